// Computes the size of rows and columns such that as much text as possible is
// legible.  Sizes are tried in which just one more thing can be written; what is
// written in all of them counts.

import { width, writing, type Form, type Names } from "./labels.js";
import type { Sheet } from "./sheet.js";
import { spread } from "./tracks.js";

export interface Item {
  sheet: Sheet;
  names: Names;
}

/** Sheets that share their rows, or their columns: how many there are, and what one needs. */
export interface Lines {
  items: Item[];
  count: number;
  /** Neighbours in one register, for every sheet; 1 where sheets differ. */
  run: number;
  /** Lines of one of several matrices side by side; 0 where there is one. */
  each: number;
  /** Sizes of a block in which one more thing can be written, the least first. */
  needs: number[];
  /** The least that an element with a name of its own needs. */
  needed: number;
}

export const BETWEEN = 10; // pixels between several matrices side by side
const ONE = 9.8; // pixels of one line of the least letters
const TWO = 23;
const LINE = 11.5; // of each of more lines
const ROOMY = { high: 40, wide: 46 }; // larger blocks say nothing more

/** What the forms say.  Without any label a matrix cannot be read at all. */
const WORTH: Record<Form, number> = {
  full: 10,
  elements: 10,
  beside: 10,
  cells: 8.5,
  range: 8,
  line: 7.5,
  head: 4,
  number: 1,
  none: -16,
};
/** Whoever reads this much of A, B and D has room for more. */
const ENOUGH = WORTH.line;
/** The result counts most, then what stands on it. */
const WEIGHT: Record<string, number> = { D: 1.3, C: 1.3, B: 1.1, logical: 0.6 };

// ── what is needed ──────────────────────────────────────────────────────────

function heights({ sheet: { down }, names }: Item): number[] {
  const { head, element } = names.letters;
  if (!head) return element ? [3, 10, 12] : [3, 5, 6, 8];
  if (down === 1) return [3, 6, ONE, TWO, 26];
  const dotted = down > 4 ? [46] : [];
  return [Math.min(3 * down, 8), ONE, TWO, ...dotted, down * LINE];
}

function widths({ sheet, names }: Item): number[] {
  const { across, down, name } = sheet;
  const { element, range, head } = names.letters;
  if (name === "logical") return [4, 5, 6, 7, 9, ...(names.alone ? [width(element)] : [])];
  if (!head) return element ? [3, 6, 9, width(element)] : [3, 4, 6, 8, 10];
  const lane = width(head);
  const full = Math.max(across * (width(element) + 1), lane);
  const tiny = [Math.min(3 * across, 8), 4 * across, 6 * across, 8 * across];
  const found = [...tiny.map((each) => Math.min(each, lane)), width(head - 1), lane, full];
  if (across > 4) found.push(Math.min(full, 3 * width(element) + 12));
  if (across === 1 && down > 1) found.push(lane + width(element) + 3);
  if (range) found.push(Math.max(lane, width(range)), width(head + 1 + range));
  return found;
}

export function rowsOf(items: Item[]): Lines {
  const needed = 9 * 1.15;
  return lines(items, { of: ({ down }) => down, needs: heights, many: "rows", needed });
}

/** All columns together take the least that is given, or more. */
export function columnsOf(items: Item[], least = 0): Lines {
  const element = Math.max(...items.map(({ names }) => names.letters.element));
  const needed = element ? width(element) : 9;
  const found = lines(items, { of: ({ across }) => across, needs: widths, many: "columns", needed });
  const { each } = items[0].sheet;
  const needs = found.needs.map((need) => Math.max(need, (least * found.run) / found.count));
  return { ...found, each: each === found.count ? 0 : each, needs: [...new Set(needs)] };
}

function lines(
  items: Item[],
  given: {
    of: (sheet: Sheet) => number;
    needs: (item: Item) => number[];
    many: "rows" | "columns";
    needed: number;
  },
): Lines {
  const runs = items.map(({ sheet }) => given.of(sheet));
  const run = runs.every((each) => each === runs[0]) ? runs[0] : 1;
  const all = items.flatMap((item, at) => given.needs(item).map((need) => (need * run) / runs[at]));
  const needs = [...new Set(all.map((need) => Math.round(need * 10) / 10))];
  needs.sort((one, other) => one - other);
  const count = Math.max(...items.map(({ sheet }) => sheet[given.many]));
  return { items, count, run, each: 0, needs, needed: given.needed };
}

// ── what it is worth ────────────────────────────────────────────────────────

/** What can be read of a sheet, given the sizes of its lines. */
function worth(item: Item, rows: Lines, high: number, columns: Lines, wide: number): number {
  const { sheet, names } = item;
  const [width, cellWidth] = block(columns, wide, sheet.across);
  const [height, cellHeight] = block(rows, high, sheet.down);
  const size = Math.min(1, width / sheet.across / 12, height / sheet.down / 12);
  if (sheet.name === "logical") return 3 + 3 * Math.min(1, cellWidth / 9) + size;
  const cell = { width: cellWidth, height: cellHeight };
  const { form } = writing(sheet, names, { width, height }, cell);
  // What has no names, B in shared memory, gives way to what has.
  if (!names.letters.head) return form === "none" ? size : 1 + size;
  // Colours alone can be told apart where they are larger.
  if (form === "none") return WORTH.none + 8 * size;
  if (form === "head" && names.alone) return 3;
  const dotted = cellWidth * sheet.across > width + 1 || cellHeight * sheet.down > height + 1;
  return WORTH[form] - (dotted ? 1 : 0);
}

/** What a register of a sheet takes, and its first element. */
function block({ run, needed }: Lines, size: number, own: number): [number, number] {
  const all = (size / run) * own;
  return [all, own === run ? spread(all, run, needed)[0] : size / run];
}

// ── the search ──────────────────────────────────────────────────────────────

export interface Fit {
  /** The size of a block in each group of rows, and of columns. */
  high: number[];
  wide: number[];
  /** Whether A, B and D say more than whose they are. */
  enough: boolean;
}

export function fit(down: Lines[], across: Lines[], room: { width: number; height: number }): Fit {
  const value = valuer(down, across);
  const rows = largest(down, room.height);
  const columns = largest(across, room.width);
  let [best, most] = [{ rows: rows[0], columns: columns[0] }, -Infinity];
  for (const r of rows) {
    for (const c of columns) {
      const found = value(r, c);
      if (found > most + 1e-9) [best, most] = [{ rows: r, columns: c }, found];
    }
  }
  // What is not needed is left to all of them alike.
  const least = (levels: number[], still: (levels: number[]) => boolean) => {
    let now = levels;
    now.forEach((_, at) => {
      for (;;) {
        const next = now.map((level, each) => (each === at ? level - 1 : level));
        if (next[at] < 0 || !still(next)) break;
        now = next;
      }
    });
    return now;
  };
  const r = least(best.rows, (each) => value(each, best.columns) >= most - 0.05);
  const c = least(best.columns, (each) => value(r, each) >= most - 0.1);
  return {
    high: grown(down, r, room.height, ROOMY.high),
    wide: grown(across, c, room.width, ROOMY.wide),
    enough: value(r, c, true) >= ENOUGH,
  };
}

/** The worth of all sheets together, or that of the least of A, B and D. */
function valuer(down: Lines[], across: Lines[]) {
  const sheets = down.flatMap((rows, r) =>
    rows.items.map((item) => {
      const c = across.findIndex(({ items }) => items.includes(item));
      const name = item.sheet.name;
      const table = rows.needs.map((high) =>
        across[c].needs.map((wide) => worth(item, rows, high, across[c], wide)),
      );
      const main = "ABCD".includes(name) && item.names.letters.head > 0;
      return { r, c, table, main, weight: WEIGHT[name] ?? 1 };
    }),
  );
  return (rows: number[], columns: number[], least = false): number => {
    let [sum, smallest] = [0, Infinity];
    for (const { r, c, table, main, weight } of sheets) {
      const found = table[rows[r]][columns[c]];
      sum += found * weight;
      if (main) smallest = Math.min(smallest, found);
    }
    return least ? smallest : sum;
  };
}

const gapsOf = (groups: Lines[]) =>
  groups.reduce((sum, { each, count }) => sum + (each ? (count / each - 1) * BETWEEN : 0), 0);

const total = (groups: Lines[], levels: number[]) =>
  groups.reduce((sum, { needs, count, run }, at) => sum + (needs[levels[at]] * count) / run, 0);

/** Choices of a size for each group that fit, and in which no group could be larger. */
function largest(groups: Lines[], room: number): number[][] {
  const free = room - gapsOf(groups);
  let found: number[][] = [[]];
  for (const { needs } of groups) {
    found = found.flatMap((before) => needs.map((_, level) => [...before, level]));
  }
  const raised = (levels: number[], at: number) =>
    levels.map((level, each) => (each === at ? level + 1 : level));
  const best = found.filter(
    (levels) =>
      total(groups, levels) <= free &&
      levels.every(
        (level, at) =>
          level + 1 === groups[at].needs.length || total(groups, raised(levels, at)) > free,
      ),
  );
  return best.length ? best : [groups.map(() => 0)];
}

/** Give what is left to all alike, up to what each can use. */
function grown(groups: Lines[], levels: number[], room: number, roomy: number): number[] {
  const free = room - gapsOf(groups);
  const sizes = groups.map(({ needs }, at) => needs[levels[at]]);
  const all = total(groups, levels);
  if (all > free) return sizes.map((size) => (size * free) / all);
  const caps = groups.map(({ needs, run }, at) => {
    const most = needs.at(-1)!;
    return Math.max(most * 1.12, Math.min(roomy * run, most * 1.9), sizes[at]);
  });
  const grow = (factor: number) => sizes.map((size, at) => Math.min(caps[at], size * factor));
  const used = (factor: number) =>
    grow(factor).reduce((sum, size, at) => sum + (size * groups[at].count) / groups[at].run, 0);
  let [low, high] = [1, 64];
  for (let step = 0; step < 40; step++) {
    const middle = (low + high) / 2;
    if (used(middle) <= free) low = middle;
    else high = middle;
  }
  return grow(low);
}
