// Addresses in shared memory of an operand with a descriptor: spans of neighbours,
// several of them to an atom, two offsets from atom to atom, and at last the swizzle.
// All numbers come from Python's tables.

import type { Catalogue } from "../records/catalogue.js";

export type Major = "k" | "mn";
export type Family = "wgmma" | "tcgen05";

/** The tables about shared memory, as Python packed them. */
export interface MemoryTables {
  unit: number;
  line: number;
  banks: number;
  word: number;
  limit: number;
  swizzles: Record<string, string>[];
  offsets: Record<string, string>[];
  fields: Record<Family, Record<string, string>[]>;
  modes: Record<Family, string[]>;
  constant: number;
  allowed: { family: Family; bits: number; major: Major; swizzles: string[] }[];
  /** Of a move: the bits of an element in memory, and the bytes of a row. */
  padded: {
    kinds: string[];
    group: number;
    moves: Record<string, { bits: number; row: number }>;
  };
  accesses: Record<string, string>;
}

/** What a swizzle does: its span, the spans of an atom, and the bits that it changes. */
export interface Swizzle {
  name: string;
  words: string;
  cute: string;
  span: number;
  lines: number;
  shift: number;
  mask: number;
  source: number;
}

export interface Descriptor {
  leading: number;
  stride: number;
  swizzle: string;
  /** The address of the first element, and the line in which the swizzle begins. */
  start?: number;
  base?: number;
}

export interface Tile {
  rows: number;
  k: number;
  /** Bits from one element to the next; of padded elements eight on average. */
  bits: number;
  major: Major;
  /** Of elements with padding: the bits that they have. */
  narrow?: number;
}

/** Element (mn, k) to the byte that holds it, from the start of the tile. */
export type Address = (mn: number, k: number) => number;

export function swizzleOf({ memory }: Catalogue, name: string): Swizzle {
  const line = memory.swizzles.find((each) => each.swizzle === name)!;
  const numbers = (text: string) => text.split(" ").filter(Boolean).map(Number);
  const [bits, source] = [numbers(line.bits), numbers(line.with)];
  return {
    name,
    words: line.words,
    cute: line.cute,
    span: Number(line.span),
    lines: Number(line.lines),
    shift: bits[0] ?? 0,
    mask: 2 ** bits.length - 1,
    source: source[0] ?? 0,
  };
}

/** The address to which a swizzle moves a byte. */
export function swizzled(address: number, { mask, shift, source }: Swizzle, base = 0): number {
  return address ^ ((((address - 128 * base) >> source) & mask) << shift);
}

/** The swizzles that an operand may have; none if its side cannot be major. */
export function allowedSwizzles(
  { memory }: Catalogue,
  family: Family,
  bits: number,
  major: Major,
): string[] {
  const line = memory.allowed.find(
    (each) => each.family === family && each.bits === bits && each.major === major,
  );
  return line?.swizzles ?? [];
}

/** The offsets' names: to the next span, and to the next lines across. */
function offsetNames(
  { memory }: Catalogue,
  major: Major,
  swizzle: string,
): ("leading" | "stride")[] {
  const mode = swizzle === "0" ? "none" : swizzle;
  const row = memory.offsets.find(
    (each) => each.major === major && each.swizzle.split(" ").includes(mode),
  )!;
  return [row["along // span"], row["across // 8"]] as ("leading" | "stride")[];
}

/** A descriptor whose tile fills memory without gaps, atoms across the spans first. */
export function packedTile(
  catalogue: Catalogue,
  tile: Tile,
  swizzle: string,
): Descriptor {
  const { span, lines } = swizzleOf(catalogue, swizzle);
  const across = tile.major === "k" ? tile.rows : tile.k;
  const [toSpan, toLines] = offsetNames(catalogue, tile.major, swizzle);
  const steps = {
    [toSpan]: Math.floor(across / lines) * span * lines,
    [toLines]: span * lines,
  };
  return { leading: steps.leading, stride: steps.stride, swizzle };
}

/** The first bit of an element of a row. */
function firstBit(
  { memory }: Catalogue,
  { bits, narrow }: Tile,
  index: number,
): number {
  if (!narrow) return index * bits;
  const { group } = memory.padded;
  return Math.floor(index / group) * 8 * group + (index % group) * narrow;
}

export function addresses(
  catalogue: Catalogue,
  descriptor: Descriptor,
  tile: Tile,
): Address {
  const names = offsetNames(catalogue, tile.major, descriptor.swizzle);
  const [toSpan, toLines] = names.map((name) => descriptor[name]);
  const swizzle = swizzleOf(catalogue, descriptor.swizzle);
  const { span, lines } = swizzle;
  const { start = 0, base = 0 } = descriptor;
  return (mn, k) => {
    const [along, across] = tile.major === "k" ? [k, mn] : [mn, k];
    const byte = firstBit(catalogue, tile, along) >> 3;
    const linear =
      start +
      (byte % span) +
      (across % lines) * span +
      Math.floor(byte / span) * toSpan +
      Math.floor(across / lines) * toLines;
    return swizzled(linear, swizzle, base);
  };
}

/** The 64-bit word that the instruction takes, with start address 0. */
export function encoded(
  { memory }: Catalogue,
  family: Family,
  descriptor: Descriptor,
): string {
  const given: Record<string, number> = {
    leading: descriptor.leading,
    stride: descriptor.stride,
    constant: memory.constant,
  };
  let word = 0n;
  for (const { field, low, unit } of memory.fields[family]) {
    const value =
      unit === "mode"
        ? memory.modes[family].indexOf(descriptor.swizzle)
        : (given[field] ?? 0) / Number(unit);
    word |= BigInt(value) << BigInt(low);
  }
  return `0x${word.toString(16).padStart(16, "0")}`;
}

/** What a 64-bit word says; null if its swizzle does not exist. */
export function decoded(
  { memory }: Catalogue,
  family: Family,
  word: bigint,
): Required<Descriptor> | null {
  const found: Record<string, number> = {};
  let swizzle = "";
  for (const { field, low, bits, unit } of memory.fields[family]) {
    const value = Number((word >> BigInt(low)) & ((1n << BigInt(bits)) - 1n));
    if (unit === "mode") swizzle = memory.modes[family][value] ?? "";
    else found[field] = value * Number(unit);
  }
  if (!swizzle) return null;
  const { start, leading, stride, base_offset: base } = found;
  return { start, leading, stride, base, swizzle };
}

/** What is wrong with an offset; empty if nothing is. */
export function offsetProblem({ memory }: Catalogue, value: number): string {
  const { unit, limit } = memory;
  if (!Number.isInteger(value) || value % unit) return `a multiple of ${unit} bytes`;
  return value < 0 || value >= limit ? `below ${limit} bytes` : "";
}
