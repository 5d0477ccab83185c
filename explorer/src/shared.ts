// Where in shared memory is an operand of wgmma?  Spans of neighbours, eight of
// them to an atom, two offsets from atom to atom, and at last the swizzle.

import type { Catalogue } from "./catalogue.js";

export type Major = "k" | "mn";
export const SWIZZLES = [0, 32, 64, 128] as const;

export interface Descriptor {
  leading: number;
  stride: number;
  swizzle: number;
}

export interface Tile {
  rows: number;
  k: number;
  bits: number;
  major: Major;
}

const UNIT = 16;
const LINES = 8;
const MODES = [0, 128, 64, 32];

export function span(swizzle: number): number {
  return swizzle || UNIT;
}

/** The offsets' names: to the next span, and to the next eight across. */
function offsetNames(catalogue: Catalogue, major: Major, swizzle: number): string[] {
  const mode = String(swizzle || "none");
  const row = catalogue.offsets.find(
    (each) => each.major === major && each.swizzle.split(" ").includes(mode),
  )!;
  return [row["along // span"], row["across // 8"]];
}

/** A descriptor whose tile fills memory without gaps. */
export function packedTile(
  catalogue: Catalogue,
  tile: Tile,
  swizzle: number,
): Descriptor {
  const atom = LINES * span(swizzle);
  const across = tile.major === "k" ? tile.rows : tile.k;
  const [toSpan, toLines] = offsetNames(catalogue, tile.major, swizzle);
  const steps = { [toSpan]: (across / LINES) * atom, [toLines]: atom };
  return { leading: steps.leading, stride: steps.stride, swizzle };
}

/** Element (mn, k) to the byte that holds it, from the start of the tile. */
export type Address = (mn: number, k: number) => number;

export function addresses(
  catalogue: Catalogue,
  descriptor: Descriptor,
  tile: Tile,
): Address {
  const names = offsetNames(catalogue, tile.major, descriptor.swizzle);
  const [toSpan, toLines] = names.map(
    (name) => descriptor[name as "leading" | "stride"],
  );
  const wide = span(descriptor.swizzle);
  return (mn, k) => {
    const along = tile.major === "k" ? k : mn;
    const across = tile.major === "k" ? mn : k;
    const byte = Math.floor((along * tile.bits) / 8);
    const linear =
      (byte % wide) +
      (across % LINES) * wide +
      Math.floor(byte / wide) * toSpan +
      Math.floor(across / LINES) * toLines;
    return swizzled(linear, descriptor.swizzle);
  };
}

function swizzled(linear: number, swizzle: number): number {
  const units = span(swizzle) / UNIT;
  return linear ^ (((linear >> 7) & (units - 1)) << 4);
}

/** The 64-bit word that the instruction takes, with start address 0. */
export function encoded(catalogue: Catalogue, descriptor: Descriptor): string {
  const given: Record<string, number> = { ...descriptor, start: 0, base_offset: 0 };
  let word = 0n;
  for (const { field, low, unit } of catalogue.fields) {
    const value =
      unit === "mode" ? MODES.indexOf(given[field]) : given[field] / Number(unit);
    word |= BigInt(value) << BigInt(low);
  }
  return `0x${word.toString(16).padStart(16, "0")}`;
}

/** What is wrong with an offset; empty if nothing is. */
export function offsetProblem(value: number): string {
  if (!Number.isInteger(value) || value % UNIT) return `a multiple of ${UNIT} bytes`;
  return value < 0 || value >= 1 << 18 ? "below 262144 bytes" : "";
}
