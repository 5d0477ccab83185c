// Computes all of D.  The steps are those of trace.ts, for whole matrices, in float64:
// every aligned term is a whole number below 2**53, so that no sum rounds.

import {
  bias,
  exponentOf,
  least,
  numberOf,
  patternOf,
  patterns,
  power,
  toEven,
  type ElementType,
  type Patterns,
} from "./elements.js";
import type { Line, Model, Types } from "./model.js";
import { explain, stepsOf } from "./trace.js";

/** The matrices of one multiplication, as raw bits. */
export interface Operands {
  rows: number;
  columns: number;
  a: Patterns;
  b: Patterns;
  c: Patterns;
  /** For each stored element of A the row of B that it meets; negative: none. */
  meets: Int32Array;
  scaleA?: Patterns;
  scaleB?: Patterns;
}

/** Writes one row of D into the whole of it. */
export type RowMaker = (row: number, d: Patterns) => void;

/** How rows of D are computed: what all of them need is prepared once. */
export function rowMaker(types: Types, model: Model, given: Operands): RowMaker {
  const ways = {
    fused: fusedRows,
    grouped: groupedRows,
    integer: integerRows,
    bits: bitRows,
    chain: slowRows,
    pairs: slowRows,
  };
  const make = ways[model.form](types, model, given);
  return (row, d) => {
    if (defined(model, given, row)) make(row, d);
  };
}

/** All of D; rows that no code defines are zero. */
export function multiplyAll(types: Types, model: Model, given: Operands): Patterns {
  const d = patterns(types[model.d], given.rows * given.columns);
  const make = rowMaker(types, model, given);
  for (let row = 0; row < given.rows; row++) make(row, d);
  return d;
}

/** One element of D and all that makes it. */
export function lineOf(model: Model, given: Operands, row: number, col: number): Line {
  const { a, b, c, columns, meets, scaleA, scaleB } = given;
  const blocks = model.scale_vec ?? 0;
  const start = row * model.stored;
  const k = Array.from(meets.subarray(start, start + model.stored));
  return {
    a: k.map((_, p) => BigInt(a[start + p])),
    b: k.map((at) => BigInt(b[at * columns + col])),
    c: BigInt(c[row * columns + col]),
    k,
    scales: Array.from({ length: blocks }, (_, block) => [
      BigInt(scaleA![row * blocks + block]),
      BigInt(scaleB![block * columns + col]),
    ]),
  };
}

/** Chains of IEEE 754 operations are short: they are computed as they are told. */
function slowRows(types: Types, model: Model, given: Operands): RowMaker {
  const { columns } = given;
  return (row, d) => {
    for (let col = 0; col < columns; col++) {
      const { bits } = explain(types, model, lineOf(model, given, row, col));
      d[row * columns + col] = (
        d instanceof BigUint64Array ? bits : Number(bits)
      ) as never;
    }
  };
}

/** Whether every code of a row is legal. */
export function defined(model: Model, { meets }: Operands, row: number): boolean {
  for (let p = 0; p < model.stored; p++) {
    if (meets[row * model.stored + p] < 0) return false;
  }
  return true;
}

// ── fused steps ─────────────────────────────────────────────────────────────

/** Below every exponent, so that a zero counts for no emax. */
const NO_EXPONENT = -100000;

interface Decoded {
  values: Float64Array;
  exponents: Int32Array;
}

/** Values and exponents, the latter as after conversion to another type. */
function decoded(bits: Patterns, type: ElementType, as: ElementType): Decoded {
  const floor = as.fraction ? least(as) : NO_EXPONENT;
  const values = new Float64Array(bits.length);
  const exponents = new Int32Array(bits.length).fill(NO_EXPONENT);
  for (let at = 0; at < bits.length; at++) {
    const value = numberOf(type, bits[at]);
    values[at] = value;
    if (value !== 0 && Number.isFinite(value)) {
      exponents[at] = Math.max(exponentOf(Math.abs(value)), floor);
    }
  }
  return { values, exponents };
}

/** All values as float64. */
export function numbersOf(type: ElementType, bits: Patterns): Float64Array {
  const found = new Float64Array(bits.length);
  for (let at = 0; at < bits.length; at++) found[at] = numberOf(type, bits[at]);
  return found;
}

/** Rounds float64 to a type; a sum that rounds to zero is +0. */
function rounder(type: ElementType, keep: number, nearest: boolean) {
  const [low, limit] = [least(type), power(bias(type) + 1)];
  return (value: number): number => {
    if (value === 0) return 0;
    const unit = Math.max(exponentOf(Math.abs(value)), low) - keep;
    const scaled = value * power(-unit);
    const whole = nearest ? toEven(scaled) : Math.trunc(scaled);
    const found = whole * power(unit) + 0;
    if (Math.abs(found) < limit) return found;
    return found > 0 ? Infinity : -Infinity;
  };
}

/** One step: terms and their exponents, and the accumulator, to a rounded sum. */
function stepper(types: Types, model: Model) {
  const round = rounder(types[model.accumulator], model.keep!, model.rounding === "rn");
  const [fraction, floor] = [model.fraction!, model.floor ?? 0];
  return (
    terms: Float64Array,
    exponents: Int32Array,
    count: number,
    state: number,
    exponent: number,
  ): number => {
    let emax = Math.max(floor, exponent);
    let odd = Number.isFinite(state) ? 0 : state;
    for (let at = 0; at < count; at++) {
      if (exponents[at] > emax) emax = exponents[at];
      const value = terms[at];
      if (value - value !== 0) odd += value; // infinite or NaN
    }
    if (odd !== 0) return odd;
    const scale = power(fraction - emax);
    let sum = Math.trunc(state * scale);
    for (let at = 0; at < count; at++) sum += Math.trunc(terms[at] * scale);
    return round(sum * power(emax - fraction));
  };
}

/** What comes after the steps: c if it is added last, and a conversion to D's type. */
function finisher(types: Types, model: Model) {
  const type = types[model.accumulator];
  const add = rounder(type, type.fraction, true);
  const half = rounder(types.f16, types.f16.fraction, true);
  const converts = model.d === "f16" && model.accumulator === "f32";
  const sum = (c: number, state: number) => {
    const total = c + state; // in float64: what it rounds off cannot decide a tie
    return total === 0 || !Number.isFinite(total) ? total : add(total);
  };
  return (c: number, state: number): number => {
    const found = model.start === "c" ? state : sum(c, state);
    if (!converts || found === 0 || !Number.isFinite(found)) return found;
    return half(found) || found * 0; // a conversion keeps the sign of what it loses
  };
}

type Filler = (
  row: number,
  col: number,
  places: number[],
  terms: Float64Array,
  exponents: Int32Array,
) => number;

function steppedRows(
  types: Types,
  model: Model,
  given: Operands,
  fill: Filler,
): RowMaker {
  const { columns } = given;
  const c = decoded(given.c, types[model.c], types[model.c_enters]);
  const [steps, step] = [stepsOf(model), stepper(types, model)];
  const finish = finisher(types, model);
  const terms = new Float64Array(model.stored);
  const exponents = new Int32Array(model.stored);
  const fromC = model.start === "c";
  const [low, of] = [least(types[model.accumulator]), types[model.d]];
  return (row, d) => {
    for (let col = 0; col < columns; col++) {
      const at = row * columns + col;
      let state = fromC ? c.values[at] : 0;
      let exponent = fromC ? c.exponents[at] : NO_EXPONENT;
      for (const places of steps) {
        const count = fill(row, col, places, terms, exponents);
        state = step(terms, exponents, count, state, exponent);
        exponent =
          state === 0 ? NO_EXPONENT : Math.max(exponentOf(Math.abs(state)), low);
      }
      d[at] = patternOf(of, finish(c.values[at], state)) as never;
    }
  };
}

function fusedRows(types: Types, model: Model, given: Operands): RowMaker {
  const { columns, meets } = given;
  const a = decoded(given.a, types[model.a], types[model.operand ?? model.a]);
  const b = decoded(given.b, types[model.b], types[model.operand ?? model.b]);
  const scale = scalesOf(types, model, given);
  const { stored } = model;
  return steppedRows(types, model, given, (row, col, places, terms, exponents) => {
    for (let at = 0; at < places.length; at++) {
      const p = row * stored + places[at];
      const q = meets[p] * columns + col;
      terms[at] = a.values[p] * b.values[q];
      exponents[at] = a.exponents[p] + b.exponents[q];
    }
    if (scale) {
      for (let at = 0; at < places.length; at++) {
        const [factor, exponent] = scale(row, col, places[at]);
        terms[at] *= factor;
        exponents[at] += exponent;
      }
    }
    return places.length;
  });
}

/** The product of both scales of a place, and its exponent. */
function scalesOf(types: Types, model: Model, given: Operands) {
  if (!model.scale) return null;
  const type = types[model.scale];
  const a = decoded(given.scaleA!, type, type);
  const b = decoded(given.scaleB!, type, type);
  const blocks = model.scale_vec!;
  const pair: [number, number] = [0, 0];
  return (row: number, col: number, p: number): [number, number] => {
    const block = Math.floor((p * blocks) / model.stored);
    const [x, y] = [row * blocks + block, block * given.columns + col];
    pair[0] = a.values[x] * b.values[y];
    pair[1] = a.exponents[x] + b.exponents[y];
    return pair;
  };
}

function groupedRows(types: Types, model: Model, given: Operands): RowMaker {
  const { columns, meets } = given;
  const a = decoded(given.a, types[model.a], types[model.a]).values;
  const b = decoded(given.b, types[model.b], types[model.b]).values;
  const scale = scalesOf(types, model, given)!;
  const [stored, size] = [model.stored, model.group!];
  return steppedRows(types, model, given, (row, col, places, terms, exponents) => {
    const count = places.length / size;
    for (let at = 0; at < count; at++) {
      let [sum, any] = [0, false];
      for (let next = 0; next < size; next++) {
        const p = row * stored + places[at * size + next];
        const product = a[p] * b[meets[p] * columns + col];
        sum += product;
        any ||= product !== 0;
      }
      const [factor, exponent] = scale(row, col, places[at * size]);
      terms[at] = sum * factor;
      exponents[at] = any ? exponent : NO_EXPONENT;
    }
    return count;
  });
}

// ── integers and bits ───────────────────────────────────────────────────────

function integerRows(types: Types, model: Model, given: Operands): RowMaker {
  return exactRows(types, model, given, (sums, x, b, start) => {
    for (let col = 0; col < sums.length; col++) sums[col] += x * b[start + col];
  });
}

function bitRows(types: Types, model: Model, given: Operands): RowMaker {
  const xor = model.bitop === "xor";
  return exactRows(types, model, given, (sums, x, b, start) => {
    if (xor)
      for (let col = 0; col < sums.length; col++) sums[col] += x ^ b[start + col];
    else if (x) for (let col = 0; col < sums.length; col++) sums[col] += b[start + col];
  });
}

/** Adds to all columns what one element of A makes of a row of B. */
type Adder = (sums: Float64Array, x: number, b: Float64Array, start: number) => void;

/** Sums of whole numbers: row by row of B, so that memory is read in order. */
function exactRows(types: Types, model: Model, given: Operands, add: Adder): RowMaker {
  const { columns, meets } = given;
  const [a, b, c] = (["a", "b", "c"] as const).map((name) =>
    numbersOf(types[model[name]], given[name]),
  );
  const sums = new Float64Array(columns);
  const most = 2 ** 31 - 1;
  return (row, d) => {
    sums.set(c.subarray(row * columns, (row + 1) * columns));
    for (let p = row * model.stored; p < (row + 1) * model.stored; p++) {
      add(sums, a[p], b, meets[p] * columns);
    }
    for (let col = 0; col < columns; col++) {
      const sum = sums[col];
      const kept = model.satfinite ? Math.min(Math.max(sum, -most - 1), most) : sum;
      d[row * columns + col] = (kept >>> 0) as never;
    }
  };
}
