// Marks what is pointed at: frames around it, and a veil over the rest.

import type { Panel } from "./arrange.js";
import { boxOf, cellBox, named, visible, type Window } from "./drawing.js";
import type { Marks } from "./highlight.js";
import type { Painter } from "./painter.js";
import type { Theme } from "./palette.js";
import type { Sheet } from "./sheet.js";

/** A veil over what is not lit, frames around what is chosen. */
export function drawMarks(
  to: Painter,
  panel: Panel,
  marks: Marks,
  theme: Theme,
  window: Window | null = null,
): void {
  if (marks.lit) drawVeil(to, panel, marks.lit, theme, window);
  for (const [first, count] of neighbours(marks.rows ?? [])) {
    const { y } = cellBox(panel, first, 0);
    const height = panel.rows.span(first, count);
    const high = Math.max(3, height);
    to.frame(panel.x, y + (height - high) / 2, panel.columns.end, high, theme.accent, 1.5);
  }
  for (const index of marks.framed) {
    const box = boxOf(panel, index);
    if (!box) continue;
    // What is tiny is framed as if it were not.
    const [w, h] = [Math.max(6, box.width), Math.max(6, box.height)];
    const [x, y] = [box.x + (box.width - w) / 2, box.y + (box.height - h) / 2];
    if (Math.min(w, h) > 14) to.frame(x, y, w, h, theme.page, 4.5);
    to.frame(x, y, w, h, theme.accent, 2.25);
  }
}

/** Rows in order, those beside each other together: the first, and how many. */
function neighbours(rows: number[]): [number, number][] {
  const found: [number, number][] = [];
  for (const row of [...rows].sort((one, other) => one - other)) {
    const last = found.at(-1);
    if (last && last[0] + last[1] === row) last[1] += 1;
    else found.push([row, 1]);
  }
  return found;
}

function drawVeil(
  to: Painter,
  panel: Panel,
  lit: Uint8Array,
  theme: Theme,
  window: Window | null,
): void {
  const [top, bottom, left, right] = visible(panel, window);
  const { sheet, rows, columns } = panel;
  const bright = (row: number, column: number) => {
    const index = sheet.index(row, column);
    return index >= 0 && lit[index] > 0;
  };
  const { down } = sheet;
  const veil = (row: number, many: number, column: number, count: number) => {
    const [x, y] = [panel.x + columns.starts[column], panel.y + rows.starts[row]];
    const alpha = theme.dark ? 0.66 : 0.74;
    to.rect(x, y, columns.span(column, count), rows.span(row, many), theme.page, alpha);
  };
  const lights = (row: number, column: number) => {
    let count = 0;
    for (let at = 0; at < down; at++) if (bright(row + at, column)) count += 1;
    return count;
  };
  const touched = new Set(litBlocks(sheet, lit).map(([row]) => row));
  let open = top; // the first of rows in which nothing is lit
  const close = (row: number) => {
    if (row > open) veil(open, row - open, left, right - left);
  };
  for (let row = top; row < bottom; row += down) {
    if (!touched.has(row)) continue;
    close(row);
    open = row + down;
    let from = left;
    for (let column = left; column <= right; column++) {
      const count = column < right ? lights(row, column) : down;
      if (!count) continue;
      // A run of columns in which nothing is lit has one veil, without seams.
      if (column > from) veil(row, down, from, column - from);
      for (let at = 0; count < down && at < down; at++) {
        if (!bright(row + at, column)) veil(row + at, 1, column, 1);
      }
      from = column + 1;
    }
  }
  close(bottom);
  for (const [row, column] of litBlocks(sheet, lit)) {
    const seen = row >= top && row < bottom && column >= left && column < right;
    if (seen) outline(to, panel, row, column, bright, theme);
  }
}

/** The blocks in which something is lit: of thousands, mostly a few. */
function litBlocks(sheet: Sheet, lit: Uint8Array): [number, number][] {
  const found = new Map<number, [number, number]>();
  for (let index = lit.indexOf(1); index >= 0; index = lit.indexOf(1, index + 1)) {
    const [row, column] = sheet.cell(index);
    if (column < 0) continue;
    const [first, start] = [row - (row % sheet.down), column - (column % sheet.across)];
    found.set(first * sheet.columns + start, [first, start]);
  }
  return [...found.values()];
}

/** Around a block of which all is lit; around single elements elsewhere. */
function outline(
  to: Painter,
  panel: Panel,
  row: number,
  column: number,
  bright: (row: number, column: number) => boolean,
  theme: Theme,
): void {
  const { across, down } = panel.sheet;
  const { rows, columns } = panel;
  const cells = Array.from({ length: across * down }, (_, at) => [
    row + Math.floor(at / across),
    column + (at % across),
  ]);
  const found = cells.filter(([r, c]) => bright(r, c));
  if (!found.length) return;
  const part = found.length < cells.length;
  const open = panel.sheet.name === "logical";
  // Where a register has one name, lines around single elements would cross it.
  const whole = !part || (!open && named(panel));
  const boxes = whole
    ? [
        {
          x: panel.x + columns.starts[column],
          y: panel.y + rows.starts[row],
          width: columns.span(column, across),
          height: rows.span(row, down),
        },
      ]
    : found.map(([r, c]) => cellBox(panel, r, c));
  for (const { x, y, width: w, height: h } of boxes) {
    // Small cells would be hidden under their own outline; tiny ones are lost without.
    // Neighbours of 5 and of 6 pixels look alike: what all of them have counts.
    const least = open ? columns.end / columns.count : Math.min(w, h);
    if (w * h < 40) to.rect(x, y, w, h, theme.accent, 0.85);
    else if (least >= 6) to.frame(x + 0.5, y + 0.5, w - 1, h - 1, theme.ink, whole && !part ? 1.6 : 1);
  }
}
