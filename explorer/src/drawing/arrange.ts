// Places the matrices so that all of them fit the window.  B is above D and shares its
// columns; A, metadata and scales are beside it and share its rows.

import { BETWEEN, columnsOf, fit, rowsOf, type Item, type Lines } from "./fit.js";
import type { Names } from "./labels.js";
import type { Sheet } from "./sheet.js";
import { partsOf, type Band, type Parts } from "./parts.js";
import { blocks, Track } from "./tracks.js";

export interface Panel {
  sheet: Sheet;
  names: Names;
  rows: Track;
  columns: Track;
  /** Where the first element begins. */
  x: number;
  y: number;
  /** Whether numbers of rows stand at its left. */
  numbered: boolean;
  /** Room for its caption. */
  caption: number;
  /** Its warps and CTAs. */
  parts: Parts;
  /** What the rows are called that it shares with its neighbours, and whether it is the
   * first of them. */
  bands: Band[];
  leading: boolean;
}

export interface Arrangement {
  panels: Panel[];
  width: number;
  height: number;
  /** What the L leaves free. */
  corner: { width: number; height: number };
  /** Whether A, B and D say more than whose registers these are. */
  enough: boolean;
}

export interface Room {
  width: number;
  height: number;
  zoom: number;
}

/** Above each sheet: its caption and the numbers of its columns. */
export const TOP = 32;
/** Beside it: the numbers of its rows, and the warps of a warpgroup. */
const NUMBERS = 24;
export const BAND = 42;
const GAP = { usual: 18, narrow: 8 };
const NARROW = 480; // pixels: on a phone every one counts
const LEFT = ["metadata", "scale_A", "logical", "A"];
const UPPER = ["scale_B", "B"];

export function arrange(items: Item[], room: Room): Arrangement {
  const named = (names: string[]) =>
    names.flatMap((name) => items.find(({ sheet }) => sheet.name === name) ?? []);
  const left = named(LEFT);
  const upper = named(UPPER);
  const result = items.filter((item) => !left.includes(item) && !upper.includes(item));
  const banded = items.some(({ sheet }) => partsOf(sheet).bands.length);
  const margin = NUMBERS + (banded ? BAND : 0);
  const lower = [...left, ...result];

  const down = upper.map((item) => rowsOf([item]));
  if (lower.length) down.push(rowsOf(lower));
  const vertical = room.height - 4 - down.length * TOP - (down.length - 1) * 6;
  const right = [...upper, ...result];
  const across = left.map((item) => columnsOf([item], slot(item)));
  if (right.length) across.push(columnsOf(right));
  const gap = room.width < NARROW ? GAP.narrow : GAP.usual;
  const between = (right.length ? left.length : left.length - 1) * gap;
  const numbers = left.length && right.length ? NUMBERS : 0;
  const horizontal = room.width - 4 - between - margin - numbers;
  const { high, wide, enough } = fit(down, across, { width: horizontal, height: vertical });

  const nearer = zoomed(room.zoom, (high.at(-1) ?? 1) / (down.at(-1)?.run ?? 1), wide.at(-1) ?? 1);
  const rowTracks = down.map((each, at) => track(each, high[at] * nearer.high));
  const columnTracks = across.map((each, at) => track(each, wide[at] * nearer.wide));
  const placed = place({ left, upper, result, rowTracks, columnTracks, margin, gap });
  return { ...placed, enough };
}

/** Cells that can be read: what is larger says nothing more. */
const READABLE = { high: 48, wide: 96 };

/**
 * How much higher rows, and how much wider columns, a nearer picture has.  Rows that are
 * high enough grow slowly, and columns, which have more to say, take what they leave.
 */
function zoomed(zoom: number, high: number, wide: number): { high: number; wide: number } {
  const slowly = (factor: number, size: number, readable: number) => {
    const enough = Math.max(readable, size) / size;
    return factor <= enough ? factor : enough * Math.sqrt(factor / enough);
  };
  const tall = slowly(zoom, high, READABLE.high);
  return { high: tall, wide: slowly((zoom * zoom) / tall, wide, READABLE.wide) };
}

/** The bands of the first sheet that has any; the result before what stands beside it. */
function bandsOf(items: Item[]): Band[] {
  const found = items.map(({ sheet }) => partsOf(sheet).bands);
  return found.find((bands) => bands.some(({ lines }) => lines.length)) ?? [];
}

function track({ count, run, each, needed }: Lines, block: number): Track {
  return new Track(blocks(count, run, block, needed), each, BETWEEN);
}

/** A narrow sheet has room for its name, at least. */
function slot({ sheet }: Item): number {
  return sheet.name.length * 7.3 - 4;
}

function place(given: {
  left: Item[];
  upper: Item[];
  result: Item[];
  rowTracks: Track[];
  columnTracks: Track[];
  margin: number;
  gap: number;
}): Omit<Arrangement, "enough"> {
  const { left, upper, result, rowTracks, columnTracks, margin, gap } = given;
  const panels: Panel[] = [];
  const bottom = rowTracks.slice(0, upper.length);
  let y = 0;
  let x = margin;
  const above = bottom.reduce((sum, rows) => sum + rows.end + TOP + 6, 0);
  const bands = bandsOf([...result, ...left]);
  left.forEach((item, at) => {
    const parts = partsOf(item.sheet);
    const columns = columnTracks[at];
    const caption = columns.end + gap - 6;
    const rows = rowTracks[upper.length];
    const numbered = at === 0;
    const more = { parts, bands, leading: at === 0 };
    panels.push({ ...item, rows, columns, x, y: above + TOP, numbered, caption, ...more });
    x += columns.end + gap;
  });
  const free = x - gap;
  if (left.length) x += NUMBERS;
  const columns = columnTracks[left.length];
  const right = { columns, x, numbered: true, caption: columns?.end ?? 0 };
  upper.forEach((item, at) => {
    const rows = bottom[at];
    const more = { parts: partsOf(item.sheet), bands: [], leading: false };
    panels.push({ ...item, ...right, rows, y: y + TOP, ...more });
    y += rows.end + TOP + 6;
  });
  for (const item of result) {
    const rows = rowTracks[upper.length];
    const more = { parts: partsOf(item.sheet), bands, leading: !left.length };
    panels.push({ ...item, ...right, rows, y: above + TOP, ...more });
  }
  const width = columns && (upper.length || result.length) ? x + columns.end : free;
  const lowest = rowTracks[upper.length];
  const height = above + (lowest ? TOP + lowest.end : 0);
  return { panels, width: width + 2, height: height + 2, corner: { width: free, height: above } };
}
