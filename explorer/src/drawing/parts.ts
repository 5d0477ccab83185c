// Which rows and columns of a matrix belong to which warp and CTA.

import type { Matrix } from "../records/matrix.js";
import type { Painter } from "./painter.js";
import type { Theme } from "./palette.js";
import type { Sheet } from "./sheet.js";
import type { Track } from "./tracks.js";

/** A line before a row or a column: between warps, or between CTAs. */
interface Cut {
  at: number;
  cta: boolean;
}

/** Rows that belong together, and what they are called. */
export interface Band {
  first: number;
  count: number;
  lines: string[];
}

export interface Parts {
  rows: Cut[];
  columns: Cut[];
  bands: Band[];
  /** The names of columns, where not all belong to the same warps or CTA. */
  tags: Band[];
}

const NONE: Parts = { rows: [], columns: [], bands: [], tags: [] };

export function partsOf(sheet: Sheet): Parts {
  const { matrix } = sheet;
  if (!matrix.part) return matrix.ctas > 1 ? halves(matrix) : NONE;
  const grouped = matrix.tensor || (matrix.part.axes.W ?? 1) > 1;
  if (!grouped || matrix.count > 1 || sheet.down > 1) return NONE;
  // Scales are in the lanes of every warp: only their CTAs differ.
  const unit = matrix.name.startsWith("scale") ? 128 : 32;
  const key = (row: number, col: number) =>
    Math.floor(matrix.lane[matrix.index(0, row, col)] / unit);
  const down = runs(matrix.rows, (row) => key(row, 0));
  const along = runs(matrix.cols, (col) => key(0, col));
  const cuts = (found: number[][], of: (at: number) => number) =>
    found.slice(1).map(([at]) => ({
      at,
      cta: matrix.tensor && Math.floor((of(at) * unit) / 128) !== Math.floor((of(at - 1) * unit) / 128),
    }));
  const pair = (matrix.part.axes.P ?? 1) > 1;
  const named = (row: number, columns: number[][]) =>
    unit === 32 ? called(columns.map(([col]) => key(row, col)), matrix.tensor, pair) : [];
  const logical = sheet.name === "logical";
  return {
    rows: cuts(down, (at) => key(at, 0)),
    columns: logical ? [] : cuts(along, (at) => key(0, at)),
    bands: down.map(([first, count]) => ({ first, count, lines: named(first, along) })),
    tags: along.length < 2 || logical ? [] : along.map(([first, count]) => tag(first, count)),
  };

  /** The lanes of tensor memory that hold some columns. */
  function tag(first: number, count: number): Band {
    const lanes = down.map(([row]) => 32 * (key(row, first) % 4));
    const text = `lanes ${Math.min(...lanes)}–${Math.max(...lanes) + 31}`;
    return { first, count, lines: [text] };
  }
}

/** B of a pair: each CTA has the columns of its half in its shared memory. */
function halves({ cols, ctas }: Matrix): Parts {
  const count = cols / ctas;
  const tags = Array.from({ length: ctas }, (_, cta) => ({
    first: cta * count,
    count,
    lines: [`CTA ${cta}`],
  }));
  return { ...NONE, columns: tags.slice(1).map(({ first: at }) => ({ at, cta: true })), tags };
}

/** Neighbours with one key: the first, and how many. */
function runs(count: number, key: (at: number) => number): number[][] {
  const found: number[][] = [];
  for (let at = 0; at < count; at++) {
    if (at && key(at) === key(at - 1)) found.at(-1)![1] += 1;
    else found.push([at, 1]);
  }
  return found;
}

/** Such as ``CTA 1``, ``warp 2``; warps of tensor memory are those that reach it. */
function called(keys: number[], tensor: boolean, pair: boolean): string[] {
  const warps = [...new Set(keys.map((key) => (tensor ? key % 4 : key)))];
  const many = warps.length > 2 ? `${warps[0]}–${warps.at(-1)}` : warps.join(", ");
  const said = warps.length > 1 ? ["warps", many] : [`warp ${many}`];
  return pair ? [`CTA ${Math.floor(keys[0] / 4)}`, ...said] : said;
}

/** Lines between warps, and stronger ones between CTAs. */
export function drawCuts(
  to: Painter,
  { rows, columns }: Parts,
  place: { x: number; y: number; rows: Track; columns: Track },
  theme: Theme,
): void {
  const [wide, high] = [place.columns.end, place.rows.end];
  const strength = (cta: boolean) => (cta ? ([3, 0.95] as const) : ([1.5, 0.6] as const));
  for (const { at, cta } of rows) {
    const [size, alpha] = strength(cta);
    to.rect(place.x, place.y + place.rows.starts[at] - size / 2, wide, size, theme.ink, alpha);
  }
  for (const { at, cta } of columns) {
    const [size, alpha] = strength(cta);
    to.rect(place.x + place.columns.starts[at] - size / 2, place.y, size, high, theme.ink, alpha);
  }
}
