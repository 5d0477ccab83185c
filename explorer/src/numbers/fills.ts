// The initial values of operands.  They are always the same, so that a link shows what
// its sender saw.

import type { Catalogue } from "../records/catalogue.js";
import {
  isInteger,
  limits,
  nearest,
  numberOf,
  patternOf,
  patterns,
  type ElementType,
  type Patterns,
} from "./elements.js";
import type { Matrix, Scene } from "../records/matrix.js";
import { compressed, firstCodes, logicalColumns, type Codes } from "./storing.js";

export const FILLS = ["off", "small", "ones", "identity", "random", "extreme"] as const;
export type Fill = (typeof FILLS)[number];

/** The operands that have values; D follows from them. */
export const VALUED = ["A", "B", "C", "scale_A", "scale_B"];

export interface Filled {
  operands: Map<string, Patterns>;
  /** What the values say; only the identity has codes of its own. */
  codes: Codes;
}

export function filled(catalogue: Catalogue, scene: Scene, fill: Fill): Filled {
  const operands = new Map<string, Patterns>();
  for (const name of VALUED) {
    const matrix = scene.matrices.get(name);
    if (!matrix) continue;
    const of = catalogue.types[matrix.type];
    operands.set(name, pattern(matrix, of, fill, matrix.cols));
  }
  const a = scene.matrices.get("A");
  if (fill !== "identity" || !a || !scene.pattern) {
    return { operands, codes: firstCodes(scene) };
  }
  // The identity of the whole A: at most one value in a chunk, so that it is sparse.
  const of = catalogue.types[a.type];
  const whole = pattern(a, of, fill, logicalColumns(scene, a));
  const { bits, codes } = compressed(scene, of, whole);
  operands.set("A", bits);
  return { operands, codes };
}

function pattern(
  matrix: Matrix,
  of: ElementType,
  fill: Fill,
  columns: number,
): Patterns {
  const next = numbers(matrix.name);
  const lines = matrix.count * matrix.rows;
  const found = patterns(of, lines * columns);
  const put = (at: number, bits: bigint) => {
    found[at] = (of.bits > 32 ? bits : Number(bits)) as never;
  };
  const wide = new Float64Array(found.buffer as ArrayBuffer); // of f64 alone
  const putNumber = (at: number, value: number) => {
    if (of.bits > 32) wide[at] = value;
    else found[at] = patternOf(of, nearest(of, value)) as never;
  };
  for (let line = 0; line < lines; line++) {
    const [m, row] = [Math.floor(line / matrix.rows), line % matrix.rows];
    for (let col = 0; col < columns; col++) {
      const at = line * columns + col;
      if (fill === "extreme") put(at, finite(of, next));
      else if (fill === "random") putNumber(at, uniform(matrix.name, of, next));
      else putNumber(at, small(matrix.name, m, row, col, of, fill));
    }
  }
  return found;
}

/** Numbers that every type holds and that add up exactly. */
function small(
  name: string,
  m: number,
  row: number,
  col: number,
  of: ElementType,
  fill: Fill,
): number {
  if (of.kind === "scale") return fill === "small" ? 2 ** (((row + col) % 3) - 1) : 1;
  if (fill === "ones") return name === "C" ? 0 : 1;
  if (fill === "identity" && name === "A") return row === col ? 1 : 0;
  if (fill === "identity" && name === "C") return 0;
  const mixed = (row * 7 + col * 5 + (row >> 2) * 3 + (col >> 3) + m) % 11;
  if (of.kind === "bit") return mixed % 2;
  return of.kind === "unsigned" ? mixed % 4 : (mixed % 5) - 2;
}

/** From -2 to 2; integers of the whole range, but a small C. */
function uniform(name: string, of: ElementType, next: () => number): number {
  if (of.kind === "scale") return 2 ** (Math.floor(next() * 5) - 2);
  if (!isInteger(of)) return (next() * 4 - 2) / 2 ** Math.floor(next() * 4);
  const [low, high] = name === "C" ? [-1000, 1000] : limits(of);
  return low + Math.floor(next() * (high - low + 1));
}

/** Any pattern that is neither infinite nor NaN. */
function finite(of: ElementType, next: () => number): bigint {
  for (;;) {
    const words = [next(), next()].map((each) => BigInt(Math.floor(each * 2 ** 32)));
    const bits = BigInt.asUintN(of.used, (words[0] << 32n) | words[1]);
    const value = numberOf(of, of.bits > 32 ? bits : Number(bits));
    if (Number.isFinite(value)) return bits;
  }
}

/** Numbers from 0 to 1 that look random, and are the same for the same name. */
function numbers(name: string): () => number {
  let state = [...name].reduce((sum, letter) => sum * 31 + letter.charCodeAt(0), 7);
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
