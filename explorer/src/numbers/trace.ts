// Computes one element of D step by step, in exact fractions, and records everything:
// each product and its exponent, emax, what every term loses, the rounding.  The
// parameters are Python's; these are the steps of its own explanations.

import { decode, encode, isInteger, least, rounded } from "./elements.js";
import type { Block, Explanation, Line, Model, Step, Term, Types } from "./model.js";
import {
  add,
  isFraction,
  isNegative,
  isZero,
  log2,
  multiply,
  subtract,
  wholeUnits,
  ZERO,
  type Exact,
  type Fraction,
  type Rounding,
} from "./exact.js";

/** A number as it enters a step. */
interface Entering {
  value: Exact;
  negative: boolean;
  exponent: number | null;
  /** The quiet pattern of an f64 NaN. */
  nan: bigint | null;
}

const NOTHING: Entering = { value: ZERO, negative: false, exponent: null, nan: null };

/** The positions of the products in each step. */
export function stepsOf(model: Model): number[][] {
  const order = model.order ?? Array.from({ length: model.stored }, (_, at) => at);
  const steps: number[][] = [];
  for (let first = 0; first < order.length; first += model.products) {
    steps.push(order.slice(first, first + model.products));
  }
  return steps;
}

export function explain(types: Types, model: Model, line: Line): Explanation {
  const story = new Story(types, model, line);
  story.run();
  const { steps } = story;
  const { bits, value } = steps[steps.length - 1];
  return { model, steps, bits, value, exact: story.exact(), blocks: story.blocks() };
}

class Story {
  readonly steps: Step[] = [];
  /** The type of ordinary operations, and of the results of fused steps. */
  private type: string;

  constructor(
    private types: Types,
    private model: Model,
    private line: Line,
  ) {
    this.type = model.form === "pairs" ? "f32" : model.accumulator;
  }

  private get c(): Entering {
    const { model, line } = this;
    return this.number(line.c, model.c, model.c_enters);
  }

  run(): void {
    const { model } = this;
    const run = {
      fused: () => this.fused(),
      grouped: () => this.fused(),
      chain: () => this.chain(),
      pairs: () => this.pairs(),
      integer: () => this.whole(),
      bits: () => this.whole(),
    }[model.form];
    const state = run();
    if (model.d === "f16" && this.type === "f32") this.convert(state);
  }

  exact(): Exact {
    let total = this.c.value;
    for (let p = 0; p < this.line.a.length; p++) {
      total = add(total, this.product(p).value);
    }
    return total;
  }

  blocks(): Block[] {
    const { model, line } = this;
    const size = model.k / (model.scale_vec || 1);
    return line.scales.map(([x, y], at) => ({
      first: at * size,
      last: (at + 1) * size - 1,
      a: this.number(x, model.scale!, model.scale!).value,
      b: this.number(y, model.scale!, model.scale!).value,
    }));
  }

  // ── terms ─────────────────────────────────────────────────────────────────

  /** An element; its exponent is the one after conversion to ``operand``. */
  private number(pattern: bigint, name: string, operand: string): Entering {
    const type = this.types[name];
    const { value, negative } = decode(type, pattern);
    if (!isFraction(value)) {
      const quiet = Number.isNaN(value) && type.bits === 64;
      return {
        value,
        negative,
        exponent: null,
        nan: quiet ? pattern | (1n << BigInt(type.fraction - 1)) : null,
      };
    }
    let exponent: number | null = null;
    if (value.m !== 0n && !isInteger(type)) {
      const as = this.types[operand];
      exponent = as.fraction ? Math.max(log2(value), least(as)) : log2(value);
    }
    return { value, negative, exponent, nan: null };
  }

  private operands(p: number): [Entering, Entering] {
    const { model, line } = this;
    return [
      this.number(line.a[p], model.a, model.operand ?? model.a),
      this.number(line.b[p], model.b, model.operand ?? model.b),
    ];
  }

  private scalesOf(p: number): [Entering, Entering] {
    const { model, line } = this;
    const block = Math.floor((p * line.scales.length) / line.a.length);
    const name = model.scale!;
    const [x, y] = line.scales[block];
    return [this.number(x, name, name), this.number(y, name, name)];
  }

  /** One product, including block scales. */
  private product(p: number): Term {
    const [x, y] = this.operands(p);
    const k = [this.line.k[p]];
    if (this.model.form === "bits") {
      const value = { m: this.bit(p), e: 0 };
      return term(k, x.value, y.value, value, null);
    }
    const numbers = this.line.scales.length ? [x, y, ...this.scalesOf(p)] : [x, y];
    const value = numbers.map((each) => each.value).reduce(multiply);
    const counts = isFraction(value) && value.m !== 0n;
    const exponent = numbers.reduce((sum, each) => sum + (each.exponent ?? 0), 0);
    return term(k, x.value, y.value, value, counts ? exponent : null);
  }

  private bit(p: number): bigint {
    const { a, b } = this.line;
    return this.model.bitop === "xor" ? a[p] ^ b[p] : a[p] & b[p];
  }

  /** Products that share their scales, added before they are aligned. */
  private group(first: number): Term {
    const size = this.model.group!;
    let total: Exact = ZERO;
    let any = false;
    for (let p = first; p < first + size; p++) {
      const [x, y] = this.operands(p);
      const product = multiply(x.value, y.value);
      any ||= !isZero(product);
      total = add(total, product);
    }
    const [x, y] = this.scalesOf(first);
    const value = multiply(multiply(total, x.value), y.value);
    const counts = any && x.exponent !== null && y.exponent !== null;
    const exponent = counts ? x.exponent! + y.exponent! : null;
    return term(this.line.k.slice(first, first + size), null, null, value, exponent);
  }

  // ── forms ─────────────────────────────────────────────────────────────────

  /** Fused steps, from c or from zero. */
  private fused(): Entering {
    const { model, c } = this;
    let state = model.start === "c" ? c : NOTHING;
    for (const places of stepsOf(model)) {
      const terms =
        model.form === "grouped"
          ? places.filter((_, at) => at % model.group! === 0).map((p) => this.group(p))
          : places.map((p) => this.product(p));
      state = this.step(terms, state);
    }
    return model.start === "c" ? state : this.sum(c, state);
  }

  private step(products: Term[], c: Entering): Entering {
    const { model } = this;
    const terms = [...products, term([], null, null, c.value, c.exponent)];
    const [keep, rounding] = [model.keep!, model.rounding];
    if (!terms.every((each) => isFraction(each.value))) {
      const total = terms.map((each) => each.value).reduce(add);
      return this.note({ operation: "fused", terms, total, keep, rounding });
    }
    const counting = terms.flatMap((each) => each.exponent ?? []);
    const emax = Math.max(...counting, model.floor ?? 0);
    const cut = terms.map((each) => aligned(each, emax - model.fraction!));
    const total = cut.map((each): Exact => each.aligned!).reduce(add);
    return this.note({ operation: "fused", terms: cut, emax, total, keep, rounding });
  }

  /** An ordinary addition in the accumulator's type, rounded to nearest. */
  private sum(c: Entering, state: Entering): Entering {
    const terms = [c, state].map((x) => term([], null, null, x.value, x.exponent));
    return this.note({
      operation: "add",
      terms,
      total: add(c.value, state.value),
      keep: this.types[this.type].fraction,
      rounding: "rn",
      minusZero: c.negative && state.negative,
    });
  }

  /** Fused multiply-adds, from c or from zero. */
  private chain(): Entering {
    const { model, c } = this;
    let state = model.start === "c" ? c : NOTHING;
    for (let p = 0; p < model.stored; p++) state = this.fma(p, state);
    return model.start === "c" ? state : this.sum(c, state);
  }

  private fma(p: number, c: Entering): Entering {
    const { rounding } = this.model;
    const [x, y] = this.operands(p);
    const product = this.product(p);
    const signs = [x.negative !== y.negative, c.negative];
    return this.note({
      operation: "fma",
      terms: [product, term([], null, null, c.value, c.exponent)],
      total: add(product.value, c.value),
      keep: this.types[this.type].fraction,
      rounding,
      minusZero: rounding === "rm" ? signs.some(Boolean) : signs.every(Boolean),
      keepSign: true,
      nan: y.nan ?? c.nan ?? x.nan,
    });
  }

  /** Two products at a time, in f32. */
  private pairs(): Entering {
    let state = this.c;
    for (const p of [0, 2]) {
      const [x, y] = this.operands(p);
      const value = multiply(x.value, y.value);
      const start = { ...NOTHING, value, negative: x.negative !== y.negative };
      state = this.sum(state, this.fma(p + 1, start));
    }
    return state;
  }

  /** Integers and single bits. */
  private whole(): Entering {
    const { model, c } = this;
    const terms = this.line.a.map((_, p) => this.product(p));
    terms.push(term([], null, null, c.value, null));
    const total = terms.map((each) => each.value).reduce(add) as Fraction;
    let whole = wholeUnits(total, 0, "rz");
    const most = (1n << 31n) - 1n;
    if (model.satfinite) whole = whole > most ? most : whole < ~most ? ~most : whole;
    const value = { m: BigInt.asIntN(32, whole), e: 0 };
    this.steps.push({
      operation: "exact",
      terms,
      emax: null,
      total,
      keep: null,
      rounding: model.satfinite ? "satfinite" : "wrap",
      value,
      type: "s32",
      bits: BigInt.asUintN(32, whole),
    });
    return { ...NOTHING, value };
  }

  /** The f32 result rounded to f16. */
  private convert(state: Entering): void {
    this.note({
      operation: "convert",
      terms: [term([], null, null, state.value, state.exponent)],
      total: state.value,
      keep: this.types.f16.fraction,
      rounding: "rn",
      minusZero: state.negative,
      keepSign: true,
      name: "f16",
    });
  }

  /** Round the sum, record the step, and return the result. */
  private note(told: {
    operation: Step["operation"];
    terms: Term[];
    emax?: number;
    total: Exact;
    keep: number;
    rounding: Rounding;
    minusZero?: boolean;
    keepSign?: boolean;
    nan?: bigint | null;
    name?: string;
  }): Entering {
    const { operation, terms, total, keep, rounding } = told;
    const type = told.name ?? this.type;
    const value = rounded(this.types[type], total, keep, rounding);
    let minusZero = told.minusZero ?? false;
    if (isZero(value) && !isZero(total)) {
      minusZero = !!told.keepSign && isNegative(total);
    }
    const bits = told.nan ?? encode(this.types[type], value, minusZero);
    const emax = told.emax ?? null;
    this.steps.push({
      operation,
      terms,
      emax,
      total,
      keep,
      rounding,
      value,
      type,
      bits,
    });
    return this.number(bits, type, type);
  }
}

function term(
  k: number[],
  a: Exact | null,
  b: Exact | null,
  value: Exact,
  exponent: number | null,
): Term {
  return { k, a, b, value, exponent, aligned: null, lost: null };
}

/** The term, truncated toward zero to a multiple of ``2**unit``. */
function aligned(each: Term, unit: number): Term {
  const value = each.value as Fraction;
  const kept = { m: wholeUnits(value, unit, "rz"), e: unit };
  return { ...each, aligned: kept, lost: subtract(value, kept) as Fraction };
}
