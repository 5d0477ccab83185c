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
  /** Cells of a row, and bytes from one row to the next. */
  across: number;
  stride: number;
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
  if (history.memory.kind === "tensor") return tensorTile(history, room, as);
  const tiles = parts(history).map(([name, offset, size, declared]) => {
    const type = as === "auto" ? guessed(history, offset, size, declared) : as;
    const each = bytesOf(type);
    const shape = level >= 3 ? spelled(type, room) : dotted(each, room, level);
    const rows = Math.max(1, Math.ceil(size / (shape.across * each)));
    const stride = shape.across * each;
    const tile = { name, offset, size, type, each, rows, stride, top: top + TITLE, ...shape };
    top += TITLE + rows * shape.high + BETWEEN;
    return tile;
  });
  return { tiles, tall: top };
}

const LANE = 2048; // bytes of a lane of tensor memory: 512 columns

/** Tensor memory: a row for each lane, and the columns that somebody uses. */
function tensorTile(history: MemoryHistory, room: number, as: string): { tiles: Tile[]; tall: number } {
  const each = 4;
  const type = as === "auto" ? history.accessedAs(0, history.size, typeAccessed) || "b32" : as;
  const [first, last] = history.columnsUsed(LANE);
  const across = Math.max(1, Math.floor(last / each) - Math.floor(first / each) + 1);
  const wide = Math.max(3, Math.min(58, room / across));
  const high = wide >= 40 ? 20 : Math.max(7, Math.min(14, wide));
  const [offset, rows] = [Math.floor(first / each) * each, Math.ceil(history.size / LANE)];
  const name = `columns ${offset / each} to ${offset / each + across - 1}`;
  const size = (rows - 1) * LANE + across * each;
  const kind = bytesOf(type) === each ? type : "b32";
  const tile = { name, offset, size, type: kind, each, across, stride: LANE, rows, top: 4 + TITLE, wide, high };
  return { tiles: [tile], tall: 4 + TITLE + rows * high + BETWEEN };
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
  const offset = row * tile.stride + column * tile.each;
  return column < tile.across && offset < tile.size ? { tile, offset: tile.offset + offset } : null;
}

export function tileOf(tiles: Tile[], offset: number): Tile | null {
  const inside = (tile: Tile) => offset >= tile.offset && offset < tile.offset + tile.size && cellOf(tile, offset)[1] < tile.across;
  return tiles.find(inside) ?? null;
}

/** The row and the column of a byte. */
export function cellOf(tile: Tile, offset: number): [row: number, column: number] {
  const past = offset - tile.offset;
  return [Math.floor(past / tile.stride), Math.floor((past % tile.stride) / tile.each)];
}

/** What an element is called: by its number in the variable, or by lane and column. */
export function elementName(tile: Tile, offset: number): string {
  const [row, column] = cellOf(tile, offset);
  if (tile.stride !== tile.across * tile.each) return `lane ${row}, column ${tile.offset / tile.each + column}`;
  return `${tile.name}[${row * tile.across + column}]`;
}

export function boxOf(tile: Tile, offset: number): { x: number; y: number } {
  const [row, column] = cellOf(tile, offset);
  return { x: GUTTER + column * tile.wide, y: tile.top + row * tile.high };
}
