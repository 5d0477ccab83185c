// Where the elements of a memory stand on the map: a tile for each variable, with a
// title and rows of cells.

import type { MemoryHistory } from "../recording/memory.js";
import { bytesOf, typeAccessed } from "../recording/values.js";

export interface Tile {
  name: string;
  offset: number;
  size: number;
  type: string;
  /** Bytes of a cell. */
  each: number;
  /** Cells of a row. */
  across: number;
  rows: number;
  /** Where the first row begins. */
  top: number;
  wide: number;
  high: number;
}

export const TITLE = 24;
const BETWEEN = 10;
export const GUTTER = 52;
/** Pixels of a cell: from dots to values. */
export const LEVELS = [0, 10, 16, 52] as const;
const LETTERS: Record<string, number> = { f64: 96, b64: 128, s64: 110, u64: 110, f16x2: 96, bf16x2: 96, b32: 76, b8: 34, u8: 34, s8: 34, b16: 50 };

export function tilesOf(
  history: MemoryHistory,
  width: number,
  level: number,
  as: string,
): { tiles: Tile[]; tall: number } {
  let top = 4;
  const room = Math.max(60, width - GUTTER - 10);
  const tiles = parts(history).map(([name, offset, size, declared]) => {
    const type = as === "auto" ? guessed(history, offset, size, declared) : as;
    const each = bytesOf(type);
    const shape = level >= 3 ? spelled(type, room) : dotted(each, room, level);
    const rows = Math.max(1, Math.ceil(size / (shape.across * each)));
    const tile = { name, offset, size, type, each, rows, top: top + TITLE, ...shape };
    top += TITLE + rows * shape.high + BETWEEN;
    return tile;
  });
  return { tiles, tall: top };
}

/** Variables in their order, and what lies between them. */
function parts(history: MemoryHistory): [string, number, number, string][] {
  const { variables, size } = history.memory;
  const sorted = [...variables].filter((each) => each[2] > 0).sort((a, b) => a[1] - b[1]);
  const found: [string, number, number, string][] = [];
  let at = 0;
  for (const [name, offset, length, type] of sorted) {
    // A variable inside another (a union, an alias) is not drawn a second time.
    if (offset + length <= at) continue;
    if (offset > at + 15) found.push(["unnamed", at, offset - at, ""]);
    const begin = Math.max(at, offset);
    found.push([name, begin, Math.min(size, offset + length) - begin, type]);
    at = offset + length;
  }
  if (size > at) found.push([at ? "unnamed" : history.memory.name, at, size - at, ""]);
  // What nobody names or touches, such as the first kilobyte, only takes room.
  return found.filter(([name, offset, length]) => length > 0 && (name !== "unnamed" || history.touched(offset, length)));
}

/** Bytes without a type of their own have the one in which somebody accesses them. */
const guesses = new WeakMap<MemoryHistory, Map<number, string>>();

function guessed(history: MemoryHistory, offset: number, size: number, declared: string): string {
  if (declared && !/^b\d/.test(declared)) return declared;
  let known = guesses.get(history);
  if (!known) guesses.set(history, (known = new Map()));
  if (!known.has(offset)) known.set(offset, history.accessedAs(offset, size, typeAccessed));
  return known.get(offset) || declared || "b32";
}

/** Rows of 128 bytes, which is once around all banks, if they fit. */
function dotted(each: number, room: number, level: number): Pick<Tile, "across" | "wide" | "high"> {
  const least = LEVELS[level] || 5;
  let across = Math.max(1, 128 / each);
  while (across > 8 && room / across < least) across /= 2;
  const wide = Math.min(room / across, Math.max(least, 26));
  return { across, wide, high: Math.max(7, Math.min(18, wide)) };
}

function spelled(type: string, room: number): Pick<Tile, "across" | "wide" | "high"> {
  const least = LETTERS[type] ?? 58;
  let across = 1;
  while (across < 32 && room / (across * 2) >= least) across *= 2;
  return { across, wide: room / across, high: 20 };
}

/** The cell at a place of the map: its tile and its first byte. */
export function cellAt(tiles: Tile[], x: number, y: number): { tile: Tile; offset: number } | null {
  const tile = tiles.find(({ top, rows, high }) => y >= top && y < top + rows * high);
  if (!tile || x < GUTTER) return null;
  const column = Math.floor((x - GUTTER) / tile.wide);
  const row = Math.floor((y - tile.top) / tile.high);
  const offset = (row * tile.across + column) * tile.each;
  return column < tile.across && offset < tile.size ? { tile, offset: tile.offset + offset } : null;
}

export function tileOf(tiles: Tile[], offset: number): Tile | null {
  return tiles.find((tile) => offset >= tile.offset && offset < tile.offset + tile.size) ?? null;
}

export function boxOf(tile: Tile, offset: number): { x: number; y: number } {
  const cell = Math.floor((offset - tile.offset) / tile.each);
  const [row, column] = [Math.floor(cell / tile.across), cell % tile.across];
  return { x: GUTTER + column * tile.wide, y: tile.top + row * tile.high };
}
