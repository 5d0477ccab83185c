// How a target computes, and the facts about one element.  The parameters are those of
// Python's tables.

import type { ElementType } from "./elements.js";
import type { Exact, Fraction, Rounding } from "./exact.js";

/** How a target computes an instruction; what says nothing is left out. */
export interface Model {
  a: string;
  b: string;
  c: string;
  d: string;
  k: number;
  stored: number;
  form: "fused" | "grouped" | "chain" | "pairs" | "integer" | "bits";
  accumulator: string;
  c_enters: string;
  operand?: string;
  products: number;
  fraction?: number;
  floor?: number;
  keep?: number;
  rounding: Rounding;
  order?: number[];
  start: "c" | "zero";
  scale?: string;
  scale_vec?: number;
  satfinite?: boolean;
  bitop?: "xor" | "and";
  group?: number;
}

export type Types = Record<string, ElementType>;

/** A row of A and what meets it; patterns along the stored columns. */
export interface Line {
  a: bigint[];
  /** The pattern of B that each one meets. */
  b: bigint[];
  c: bigint;
  /** The logical k of each product. */
  k: number[];
  /** The patterns of both scales, block by block. */
  scales: [bigint, bigint][];
}

/** A product, a group of products, or the accumulator, whose k is empty. */
export interface Term {
  k: number[];
  a: Exact | null;
  b: Exact | null;
  value: Exact;
  exponent: number | null;
  aligned: Fraction | null;
  lost: Fraction | null;
}

/** One operation that rounds. */
export interface Step {
  operation: "fused" | "fma" | "add" | "exact" | "convert";
  terms: Term[];
  emax: number | null;
  total: Exact;
  keep: number | null;
  rounding: Rounding | "wrap" | "satfinite";
  value: Exact;
  type: string;
  bits: bigint;
}

export interface Block {
  first: number;
  last: number;
  a: Exact;
  b: Exact;
}

export interface Explanation {
  model: Model;
  steps: Step[];
  bits: bigint;
  value: Exact;
  exact: Exact;
  blocks: Block[];
}
