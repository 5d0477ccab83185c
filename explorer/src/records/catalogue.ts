// The records that Python packed into the page.

import type { ElementType } from "../numbers/elements.js";
import type { MemoryTables } from "../memory/shared.js";
import type { Model } from "../numbers/model.js";
import type { Meaning } from "./words.js";

export interface Part {
  name: string;
  letter: string;
  type: string;
  line: string;
  axes: Record<string, number>;
  slot: [number, number];
  stored: number;
  observed: string;
  formula: string;
  cute: string;
  linear: string;
  /** Of an operand in tensor memory: columns before its first cell. */
  skipped?: number;
  /** The part of the layout that it has: size, first, part, padded for each axis. */
  windows?: [number, number, number, number][];
}

/** What a tcgen05.mma has besides. */
export interface Tensor {
  letter: string;
  ctas: number;
  /** What the instruction descriptor says. */
  says: string[];
  /** The columns at which operands are drawn. */
  columns: Record<string, number>;
  path: Path;
}

/** From shared memory to registers: numbers are those of words. */
export interface Path {
  shared: number[];
  copies: number[];
  inputs: number[];
  bypass: number;
  multiplies: number[];
  result: number[];
  loaded: number[];
  notes: number[];
  registers: number;
  /** For each CTA: a warp, and which part of D it has at the end. */
  warps: [number, number][][];
  /** The loads of D, each with its first column. */
  loads: [number, number][];
}

export interface Requirement {
  ptx: string;
  text: string;
  targets: Record<string, string>;
}

export interface Pattern {
  text: string;
  kept: number;
  chunk: number;
  ordered: boolean;
  positions: number[][];
  problems: string[];
}

/** How some targets compute an instruction; no model: its source says why. */
export interface Way {
  targets: string[];
  how: string;
  source: string;
  model: number | null;
}

/** How each target does, and the target that one begins with. */
export interface Sums {
  usual: string;
  ways: Way[];
}

export interface Instruction {
  name: string;
  family: string;
  shape: [number, number, number];
  values: Record<string, string>;
  requires: number;
  parts: Record<string, number>;
  operands: string[];
  notes: number[];
  /** What the assembler writes for it: numbers of ``Catalogue.sass``. */
  sass: number[];
  pattern?: number;
  tensor?: Tensor;
  /** Of a multiplication: how targets add its products. */
  sums?: number;
}

/** The colours of what is not a lane. */
export interface Inks {
  page: string;
  text: string;
  small: string;
  outline: string;
  hairline: string;
  band: string;
}

/**
 * Targets, the machine instructions that do the work on them, each with how many there
 * are, how many others, and what the instruction is expanded to.
 */
export type Sass = [
  targets: string,
  code: [name: string, count: number][],
  others: number,
  expanded: string,
];

export interface Catalogue {
  families: string[];
  allTargets: Record<string, string>;
  types: Record<string, ElementType>;
  /** How each rounding is called. */
  rounded: Record<string, string>;
  memory: MemoryTables;
  lanes: { light: string[]; dark: string[] };
  inks: Record<"light" | "dark", Inks>;
  parts: Part[];
  notes: string[];
  targets: Requirement[];
  patterns: Pattern[];
  words: string[];
  models: Model[];
  sums: Sums[];
  /** Words as people say them, with what is not empty of their meaning. */
  said: Record<string, Partial<Meaning>>;
  sass: Sass[];
  instructions: Instruction[];
  /** Names that have no picture of their own: which instruction is shown, or -1. */
  others: Record<string, number>;
  /** Roundings that mean the same as none. */
  implied: string[];
}

export interface Sources {
  lines: string[];
  paragraphs: number[][];
  texts: [number[], number[]][];
}

/** Base64 of deflated JSON, as Python writes it, back to a record. */
export async function unpack<T>(text: string): Promise<T> {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const inflate = new DecompressionStream("deflate-raw");
  const stream = new Blob([bytes]).stream().pipeThrough(inflate);
  return (await new Response(stream).json()) as T;
}

/** What is new in lists of numbers has the next number: -1 stands for it. */
function counted<T>(lists: T): T {
  let known = 0;
  const number = (item: unknown): unknown =>
    Array.isArray(item) ? item.map(number) : item === -1 ? known++ : item;
  return number(lists) as T;
}

/** The sources, with every number in its place. */
export async function unpackSources(text: string): Promise<Sources> {
  const { lines, paragraphs, texts } = await unpack<Sources>(text);
  return { lines, paragraphs: counted(paragraphs), texts: counted(texts) };
}

/** The text that paragraphs and lines, kept once each, spell. */
export function unfold(sources: Sources, paragraphs: number[]): string {
  const paragraph = (index: number) =>
    sources.paragraphs[index].map((line) => sources.lines[line]).join("\n");
  return paragraphs.map(paragraph).join("\n\n") + "\n";
}

/** The shape of a multiplication, or the tile that a load moves. */
export function shapeOf(op: Instruction): string {
  return op.values.shape ?? op.values.tile ?? "";
}

/** The shape and the types that a descriptor has, which the name does not say. */
export function saidBy(op: Instruction): string {
  if (!op.tensor) return "";
  const { d, a, stype } = op.values;
  return [shapeOf(op), d, a, stype].filter(Boolean).join(".");
}
