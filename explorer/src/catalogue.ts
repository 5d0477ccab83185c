// What is in the page?  The records that Python packed into it.

import { fits, meaning, typesFit, type Meaning } from "./words.js";

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

export interface Instruction {
  name: string;
  family: string;
  shape: [number, number, number];
  values: Record<string, string>;
  requires: number;
  parts: Record<string, number>;
  operands: string[];
  notes: number[];
  pattern?: number;
  tensor?: Tensor;
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

export interface Catalogue {
  families: string[];
  allTargets: Record<string, string>;
  types: Record<string, { bits: number; kind: string }>;
  offsets: Record<string, string>[];
  fields: Record<string, string>[];
  lanes: { light: string[]; dark: string[] };
  inks: Record<"light" | "dark", Inks>;
  parts: Part[];
  notes: string[];
  targets: Requirement[];
  patterns: Pattern[];
  words: string[];
  /** Words as people say them, with what is not empty of their meaning. */
  said: Record<string, Partial<Meaning>>;
  instructions: Instruction[];
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

/** The text that paragraphs and lines, kept once each, spell. */
export function unfold(sources: Sources, paragraphs: number[]): string {
  const paragraph = (index: number) =>
    sources.paragraphs[index].map((line) => sources.lines[line]).join("\n");
  return paragraphs.map(paragraph).join("\n\n") + "\n";
}

const TYPE_FIELDS = ["d", "a", "b", "c", "stype", "type"];

/** The element types that an instruction names. */
export function typesOf(op: Instruction): string[] {
  const named = TYPE_FIELDS.map((field) => op.values[field]).filter(Boolean);
  return [...new Set(named)];
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

export interface Filter {
  words: string;
  family: string;
  type: string;
  shape: string;
  target: string;
}

/**
 * The instructions that fit every filter.  Each word occurs in the name, or is what
 * people say and means it.
 */
export function search(catalogue: Catalogue, filter: Filter): Instruction[] {
  const words = filter.words
    .toLowerCase()
    .split(/[\s.]+/)
    .filter(Boolean)
    .map((word) => ({ word, said: meaning(catalogue, word) }));
  const said = words.flatMap((each) => each.said ?? []);
  const plain = words.filter((each) => !each.said).map((each) => each.word);
  return catalogue.instructions.filter(
    (op) =>
      (!filter.family || op.family === filter.family) &&
      (!filter.type || typesOf(op).includes(filter.type)) &&
      (!filter.shape || shapeOf(op) === filter.shape) &&
      (!filter.target || filter.target in catalogue.targets[op.requires].targets) &&
      words.every(
        (each) =>
          op.name.includes(each.word) ||
          saidBy(op).includes(each.word) ||
          (each.said && fits(catalogue, op, each.said)),
      ) &&
      typesFit(op, said, plain),
  );
}
