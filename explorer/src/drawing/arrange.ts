// Where does each matrix stand, so that all of them fit the window?  B stands on D and
// shares its columns; A, metadata and scales lean against it and share its rows.

import { LEAST, width, type Names } from "./labels.js";
import type { Sheet } from "./sheet.js";
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
}

export interface Arrangement {
  panels: Panel[];
  width: number;
  height: number;
  /** What the L leaves free. */
  corner: { width: number; height: number };
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
const GAP = 18;
const BETWEEN = 10; // pixels between several matrices side by side
const LEFT = ["metadata", "scale_A", "logical", "A"];
const UPPER = ["scale_B", "B"];

/** Sizes of a block from the best to the least that is any good. */
type Needs = number[];
const LEVELS = 5;
const WORTH = [10, 9, 7, 4, 0];
const ONE = 9.8; // pixels of one line of the least letters

/** Heights of a block; where values are written, one line says nearly as much as two. */
function heights({ sheet: { down }, names }: Item): Needs {
  const { head, element, range } = names.letters;
  if (!head) return element ? [12, 12, 11, 10, 3] : [8, 7, 6, 5, 3];
  if (down === 1) return range ? [26, 26, 23, ONE, 3] : [26, 23, ONE, ONE, 3];
  const dotted = down > 4 ? 46 : 24;
  return [down * 11.5, dotted, range ? 23 : dotted, ONE, Math.min(3 * down, 8)];
}

/** Widths of a block, given how many lines fit into its height. */
function widths(item: Item, lines: number): Needs {
  const { across, down, name, matrix } = item.sheet;
  const { element, range, head } = item.names.letters;
  if (name === "logical") return [9, 7, 6, 5, 4];
  const lane = width(head);
  if (matrix.name === "metadata") {
    const digits = across * (width(1) + 2);
    return [digits, digits, Math.max(digits, lane), lane, 4 * across];
  }
  const tiny = Math.max(3, Math.min(3 * across, 14));
  if (!head) return element ? [width(element), 12, 9, 6, 3] : [10, 8, 6, 4, 3];
  if (lines === 0) return [14, 10, 6, 4, tiny / across].map((each) => each * across);
  const full = Math.max(across * width(element), lane);
  const dotted = across > 4 ? Math.min(full, 3 * width(element) + 12) : full;
  if (lines === 1) {
    const both = width(head + 1 + range);
    return range ? [both, both, both, lane, tiny] : [full, dotted, dotted, lane, tiny];
  }
  const short = Math.max(lane, width(range));
  if (across === 1 && down > 1) {
    const beside = lane + width(element);
    return [beside, beside, range ? short : beside, lane, tiny];
  }
  const some = across > 4 ? dotted : Math.min(full, short);
  return [full, some, range ? Math.min(full, short) : some, lane, tiny];
}

interface Item {
  sheet: Sheet;
  names: Names;
}

/** Sheets that share their lines: how many there are, and what one needs. */
interface Lines {
  count: number;
  /** Neighbours in one register, for every sheet; 1 where sheets differ. */
  run: number;
  each: number;
  needs: Needs;
  /** The letters of the longest element. */
  element: number;
  /** How much it counts that it can be read. */
  weight: number;
}

export function arrange(items: Item[], room: Room): Arrangement {
  const named = (names: string[]) =>
    names.flatMap((name) => items.find(({ sheet }) => sheet.name === name) ?? []);
  const left = named(LEFT);
  const upper = named(UPPER);
  const result = items.filter((item) => !left.includes(item) && !upper.includes(item));
  const banded = items.some(({ sheet }) => (sheet.matrix.part?.axes.W ?? 1) > 1);
  const margin = NUMBERS + (banded ? BAND : 0);
  const lower = [...left, ...result];

  const down = upper.map((item) => rowsOf([item]));
  if (lower.length) down.push(rowsOf(lower));
  const vertical = room.height - 4 - down.length * TOP - (down.length - 1) * 6;
  const high = fit(down, vertical, 40);
  const lines = (block: number) => (block >= 22 ? 2 : block >= ONE - 0.1 ? 1 : 0);
  const blockHeight = (item: Item, at: number) =>
    (high[at] / down[at].run) * item.sheet.down;
  const right = [...upper, ...result];
  const linesOf = (item: Item) => {
    const at = upper.includes(item) ? upper.indexOf(item) : down.length - 1;
    return lines(blockHeight(item, at));
  };
  const across = [
    ...left.map((item) => columnsOf([item], linesOf)),
    ...(right.length ? [columnsOf(right, linesOf)] : []),
  ];
  const narrow = left.filter(({ sheet }) => sheet.columns <= 4).length * 24;
  const between = (right.length ? left.length : left.length - 1) * GAP + narrow;
  const numbers = left.length && right.length ? NUMBERS : 0;
  const horizontal = room.width - 4 - between - margin - numbers;
  const wide = fit(across, horizontal, 46);

  const { zoom } = room;
  const rowTracks = down.map((each, at) => track(each, high[at] * zoom, LEAST * 1.15));
  const columnTracks = across.map((each, at) =>
    track(each, wide[at] * zoom, each.element ? width(each.element) : 9),
  );
  return place({ left, upper, result, rowTracks, columnTracks, margin });
}

function rowsOf(items: Item[]): Lines {
  const runs = items.map(({ sheet }) => sheet.down);
  const run = runs.every((each) => each === runs[0]) ? runs[0] : 1;
  const each = items.map((item) =>
    heights(item).map((need) => (need * run) / item.sheet.down),
  );
  const count = Math.max(...items.map(({ sheet }) => sheet.rows));
  return { count, run, each: 0, needs: most(each), element: 0, weight: weightOf(items) };
}

function columnsOf(items: Item[], lines: (item: Item) => number): Lines {
  const runs = items.map(({ sheet }) => sheet.across);
  const run = runs.every((each) => each === runs[0]) ? runs[0] : 1;
  const each = items.map((item) =>
    widths(item, lines(item)).map((need) => (need * run) / item.sheet.across),
  );
  const count = Math.max(...items.map(({ sheet }) => sheet.columns));
  const element = Math.max(...items.map(({ names }) => names.letters.element));
  const { each: one } = items[0].sheet;
  const weight = weightOf(items);
  return { count, run, each: one === count ? 0 : one, needs: most(each), element, weight };
}

/** What has no names, B in shared memory, gives way to what has; so do codes. */
function weightOf(items: Item[]): number {
  if (items.length === 1 && items[0].names.letters.element === 1) return 0.9;
  return items.some(({ names }) => names.letters.head) ? 1 : 0.2;
}

function most(needs: Needs[]): Needs {
  return Array.from({ length: LEVELS }, (_, at) => Math.max(...needs.map((n) => n[at])));
}

/** The size of each group's blocks: the best that fits, then as large as there is room. */
function fit(groups: Lines[], room: number, roomy: number): number[] {
  const gaps = groups.reduce(
    (sum, { each, count }) => sum + (each ? (count / each - 1) * BETWEEN : 0),
    0,
  );
  const free = room - gaps;
  const many = groups.map(({ count, run }) => count / run);
  const total = (levels: number[]) =>
    groups.reduce((sum, { needs }, at) => sum + needs[levels[at]] * many[at], 0);
  let best = groups.map(() => LEVELS - 1);
  let bestWorth = -1;
  for (const levels of choices(groups.length)) {
    const worth = groups.reduce((sum, { weight }, at) => sum + WORTH[levels[at]] * weight, 0);
    if (worth > bestWorth && total(levels) <= free) [best, bestWorth] = [levels, worth];
  }
  // Where names do not fit anyway, what has none is not larger than what has.
  const least = LEVELS - 1;
  if (best.some((level, at) => level === least && groups[at].weight === 1)) {
    best = best.map((level, at) => (groups[at].weight < 1 ? least : level));
  }
  const sizes = groups.map(({ needs }, at) => needs[best[at]]);
  if (total(best) > free) return sizes.map((size) => (size * free) / total(best));
  const caps = groups.map(({ needs, run }, at) =>
    Math.max(needs[0] * 1.12, Math.min(roomy * run, needs[0] * 1.9), sizes[at]),
  );
  return grown(sizes, caps, many, free);
}

/** Give what is left to all alike, up to what each can use. */
function grown(sizes: number[], caps: number[], many: number[], free: number): number[] {
  const used = (factor: number) =>
    sizes.reduce((sum, size, at) => sum + Math.min(caps[at], size * factor) * many[at], 0);
  let [low, high] = [1, 64];
  for (let step = 0; step < 40; step++) {
    const middle = (low + high) / 2;
    if (used(middle) <= free) low = middle;
    else high = middle;
  }
  return sizes.map((size, at) => Math.min(caps[at], size * low));
}

function choices(groups: number): number[][] {
  let found: number[][] = [[]];
  for (let group = 0; group < groups; group++) {
    found = found.flatMap((before) =>
      Array.from({ length: LEVELS }, (_, level) => [...before, level]),
    );
  }
  return found;
}

function track({ count, run, each }: Lines, block: number, needed: number): Track {
  return new Track(blocks(count, run, block, needed), each, BETWEEN);
}

/** A narrow sheet has room for its name, at least. */
function slot({ sheet }: Item, columns: number): number {
  return Math.max(columns, sheet.name.length * 7.3 - 4);
}

function place(given: {
  left: Item[];
  upper: Item[];
  result: Item[];
  rowTracks: Track[];
  columnTracks: Track[];
  margin: number;
}): Arrangement {
  const { left, upper, result, rowTracks, columnTracks, margin } = given;
  const panels: Panel[] = [];
  const bottom = rowTracks.slice(0, upper.length);
  let y = 0;
  let x = margin;
  const above = bottom.reduce((sum, rows) => sum + rows.end + TOP + 6, 0);
  left.forEach((item, at) => {
    const columns = columnTracks[at];
    const wide = slot(item, columns.end);
    const caption = wide + GAP - 6;
    const rows = rowTracks[upper.length];
    const numbered = at === 0;
    panels.push({ ...item, rows, columns, x, y: above + TOP, numbered, caption });
    x += wide + GAP;
  });
  const free = x - GAP;
  if (left.length) x += NUMBERS;
  const columns = columnTracks[left.length];
  const right = { columns, x, numbered: true, caption: columns?.end ?? 0 };
  upper.forEach((item, at) => {
    const rows = bottom[at];
    panels.push({ ...item, ...right, rows, y: y + TOP });
    y += rows.end + TOP + 6;
  });
  for (const item of result) {
    const rows = rowTracks[upper.length];
    panels.push({ ...item, ...right, rows, y: above + TOP });
  }
  const width = columns && (upper.length || result.length) ? x + columns.end : free;
  const lowest = rowTracks[upper.length];
  const height = above + (lowest ? TOP + lowest.end : 0);
  return { panels, width: width + 2, height: height + 2, corner: { width: free, height: above } };
}
