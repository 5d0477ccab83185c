// What does a matrix look like?  One framed block for each lane and register, with the
// names that there is room for; colours alone where there is none.

import type { Panel } from "./arrange.js";
import { BAND } from "./arrange.js";
import type { Marks } from "./highlight.js";
import { LEAST, LETTER, width, writing, type Writing } from "./labels.js";
import type { Painter } from "./painter.js";
import type { Theme } from "./palette.js";
import type { Track } from "./tracks.js";

/** How elements look, besides their names. */
export interface Look {
  colour: (index: number) => string;
  /** What is not legal, or not defined. */
  wrong?: (index: number) => boolean;
  /** A heavier line after so many columns: the chunks of a sparse A. */
  every?: number;
}

/** A part of the picture, in its own pixels: what is outside need not be drawn. */
export interface Window {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

const FRAMED = 6; // pixels: smaller blocks are only colours

/** The rows and columns of a panel that a window shows, in whole blocks. */
function visible(panel: Panel, window: Window | null): [number, number, number, number] {
  const { rows, columns, x, y, sheet } = panel;
  if (!window) return [0, rows.count, 0, columns.count];
  const [top, bottom] = rows.between(window.top - y, window.bottom - y);
  const [left, right] = columns.between(window.left - x, window.right - x);
  const { across, down } = sheet;
  const whole = (value: number, run: number) => Math.ceil(value / run) * run;
  return [
    top - (top % down),
    Math.min(rows.count, whole(bottom, down)),
    left - (left % across),
    Math.min(columns.count, whole(right, across)),
  ];
}

/** Where an element is drawn; null for one that has no place, under an illegal code. */
export function boxOf(panel: Panel, index: number): Box | null {
  const [row, column] = panel.sheet.cell(index);
  return column < 0 ? null : cellBox(panel, row, column);
}

function cellBox({ rows, columns, x, y }: Panel, row: number, column: number): Box {
  return {
    x: x + columns.starts[column],
    y: y + rows.starts[row],
    width: columns.sizes[column],
    height: rows.sizes[row],
  };
}

/** The element under a point; -1 beside the matrix, and where nothing is stored. */
export function hit(panel: Panel, x: number, y: number): number {
  const column = panel.columns.at(x - panel.x);
  const row = panel.rows.at(y - panel.y);
  return row < 0 || column < 0 ? -1 : panel.sheet.index(row, column);
}

/** How a panel's blocks are labelled. */
export function writingOf(panel: Panel): Writing {
  const { rows, columns, sheet, names } = panel;
  const block = {
    width: columns.span(0, sheet.across),
    height: rows.span(0, sheet.down),
  };
  const cell = { width: columns.sizes[0], height: rows.sizes[0] };
  return writing(sheet, names, block, cell);
}

/** Whether every element of a panel has its name or value written. */
export function saysAll(panel: Panel): boolean {
  const { form } = writingOf(panel);
  const { across, down } = panel.sheet;
  if (form === "range" || form === "line") return across * down === 1;
  const cells = form === "elements" || form === "beside" || form === "cells";
  return cells && alike(panel.columns, across) && alike(panel.rows, down);
}

function alike(track: Track, run: number): boolean {
  return run < 3 || Math.abs(track.sizes[0] - track.sizes[2]) < 0.01;
}

export function drawPanel(
  to: Painter,
  panel: Panel,
  look: Look,
  theme: Theme,
  window: Window | null = null,
): void {
  const { sheet, rows, columns } = panel;
  const [top, bottom, left, right] = visible(panel, window);
  if (bottom <= top || right <= left) return;
  const block = Math.min(columns.span(0, sheet.across), rows.span(0, sheet.down));
  if (sheet.name === "logical") drawLogical(to, panel, look, theme, [top, bottom, left, right]);
  else if (block < FRAMED) drawMosaic(to, panel, look, [top, bottom, left, right]);
  else drawBlocks(to, panel, look, theme, [top, bottom, left, right]);
  if (block < FRAMED) to.frame(panel.x, panel.y, columns.end, rows.end, theme.hair, 1);
  drawChunks(to, panel, look, theme);
  drawAxes(to, panel, theme, window);
  drawWarps(to, panel, theme);
}

type Range = [number, number, number, number];

/** The colours alone. */
function drawMosaic(to: Painter, panel: Panel, look: Look, [top, bottom, left, right]: Range): void {
  const { sheet, rows, columns } = panel;
  for (let m = 0; m * sheet.each < columns.count; m++) {
    const first = Math.max(left, m * sheet.each);
    const last = Math.min(right, (m + 1) * sheet.each);
    if (last <= first) continue;
    to.mosaic({
      x: panel.x + columns.starts[first],
      y: panel.y + rows.starts[top],
      width: columns.span(first, last - first) / (last - first),
      height: rows.span(top, bottom - top) / (bottom - top),
      rows: bottom - top,
      cols: last - first,
      colour: (row, col) => look.colour(sheet.index(top + row, first + col)),
    });
  }
}

/** A sparse A as it multiplies: what is stored in its colours, the rest open. */
function drawLogical(to: Painter, panel: Panel, look: Look, theme: Theme, range: Range): void {
  const [top, bottom, left, right] = range;
  const wide = panel.columns.sizes[0];
  const letters = panel.names.letters.element;
  const high = panel.rows.sizes[0];
  const size = wide >= width(letters) && high >= LEAST ? LEAST : 0;
  for (let row = top; row < bottom; row++) {
    for (let column = left; column < right; column++) {
      const index = panel.sheet.index(row, column);
      const { x, y, width: w, height: h } = cellBox(panel, row, column);
      if (index < 0) {
        to.rect(x + w / 2 - 0.75, y + h / 2 - 0.75, 1.5, 1.5, theme.hair);
        continue;
      }
      to.rect(x + 0.5, y + 1, Math.max(1, w - 1), Math.max(1, h - 2), look.colour(index));
      if (size) to.text(x + w / 2, y + h / 2, panel.names.element(index), size, theme.ink, "middle");
    }
  }
  const box = { ...cellBox(panel, 0, 0), width: panel.columns.end, height: panel.rows.end };
  to.frame(box.x, box.y, box.width, box.height, theme.hair, 1);
}

function drawBlocks(to: Painter, panel: Panel, look: Look, theme: Theme, range: Range): void {
  const { sheet, rows, columns } = panel;
  const [top, bottom, left, right] = range;
  const { across, down } = sheet;
  const style = writingOf(panel);
  const least = Math.min(columns.span(0, across), rows.span(0, down));
  const line = least > 14 ? 1.2 : least > 9 ? 0.8 : 0.5;
  for (let row = top; row < bottom; row += down) {
    for (let column = left; column < right; column += across) {
      const box = {
        x: panel.x + columns.starts[column],
        y: panel.y + rows.starts[row],
        width: columns.span(column, across),
        height: rows.span(row, down),
      };
      to.rect(box.x, box.y, box.width, box.height, look.colour(sheet.index(row, column)));
      label(to, panel, row, column, box, style, theme);
      to.frame(box.x, box.y, box.width, box.height, theme.frame, line);
      if (look.wrong) drawWrong(to, panel, row, column, look.wrong, theme);
    }
  }
}

function drawWrong(
  to: Painter,
  panel: Panel,
  row: number,
  column: number,
  wrong: (index: number) => boolean,
  theme: Theme,
): void {
  const { across, down } = panel.sheet;
  for (let at = 0; at < across * down; at++) {
    const [r, c] = [row + Math.floor(at / across), column + (at % across)];
    if (!wrong(panel.sheet.index(r, c))) continue;
    const { x, y, width: w, height: h } = cellBox(panel, r, c);
    to.frame(x + 1.5, y + 1.5, w - 3, h - 3, theme.warning, 2);
  }
}

/** The names in one block. */
function label(
  to: Painter,
  panel: Panel,
  row: number,
  column: number,
  box: Box,
  { form, size }: Writing,
  theme: Theme,
): void {
  const { sheet, names } = panel;
  const { across, down } = sheet;
  const first = sheet.index(row, column);
  const last = sheet.index(row + down - 1, column + across - 1);
  const [middle, centre] = [box.x + box.width / 2, box.y + box.height / 2];
  const upper = centre - size * 0.56;
  const lower = centre + size * 0.56;
  if (form === "elements") {
    to.text(middle, upper, names.head(first), size, theme.ink, "middle", true);
    eachElement(panel, row, column, (_, text, x) =>
      to.text(x, lower, text, size, theme.ink, "middle"),
    );
  } else if (form === "beside") {
    const right = box.x + box.width - 4;
    to.text(box.x + 3, centre, names.head(first), size, theme.ink, "start", true);
    eachElement(panel, row, column, (_, text, __, y) =>
      to.text(right, y, text, size, theme.ink, "end"),
    );
  } else if (form === "cells") {
    eachElement(panel, row, column, (_, text, x, y) =>
      to.text(x, y, text, size, theme.ink, "middle"),
    );
  } else if (form === "range") {
    to.text(middle, upper, names.head(first), size, theme.ink, "middle", true);
    to.text(middle, lower, names.range(first, last), size, theme.ink, "middle");
  } else if (form === "line") {
    const text = `${names.head(first)} ${names.range(first, last)}`;
    to.text(middle, centre, text, size, theme.ink, "middle");
  } else if (form === "head") {
    to.text(middle, centre, names.head(first), size, theme.ink, "middle");
  }
}

/** The elements that have room for a name; dots where some have none. */
function eachElement(
  panel: Panel,
  row: number,
  column: number,
  write: (index: number, text: string, x: number, y: number) => void,
): void {
  const { sheet, rows, columns, names } = panel;
  const run = sheet.across * sheet.down;
  const along = sheet.across > 1;
  const track = along ? columns : rows;
  const start = along ? column : row;
  const dotted = !alike(track, run);
  for (let at = 0; at < run; at++) {
    const [r, c] = along ? [row, column + at] : [row + at, column];
    const index = sheet.index(r, c);
    const { x, y, width: w, height: h } = cellBox(panel, r, c);
    if (!dotted || at < 2 || at === run - 1) {
      write(index, names.element(index), x + w / 2, y + h / 2);
    } else if (at === 2) {
      const size = track.span(start + 2, run - 3);
      const dots = along ? "⋯" : "⋮";
      if (along) write(index, dots, x + size / 2, y + h / 2);
      else write(index, dots, x + w / 2, y + size / 2);
    }
  }
}

function drawChunks(to: Painter, panel: Panel, look: Look, theme: Theme): void {
  const { columns, rows, sheet } = panel;
  if (!look.every || columns.sizes[0] * look.every < 5) return;
  const faint = sheet.name === "logical" ? theme.hair : theme.frame;
  for (let column = look.every; column < columns.count; column += look.every) {
    if (sheet.across > 1 && sheet.name !== "logical" && column % sheet.across) continue;
    const x = panel.x + columns.starts[column];
    to.rect(x - 0.5, panel.y, 1, rows.end, faint);
  }
}

// ── around the elements ─────────────────────────────────────────────────────

/** Numbers stay beside what is seen of a matrix that is larger than the window. */
function drawAxes(to: Painter, panel: Panel, theme: Theme, window: Window | null): void {
  const { sheet, rows, columns, x, y, numbered } = panel;
  const wide = (count: number) => String(count - 1).length * LEAST * LETTER + 3;
  const [left, top] = [window?.left ?? -Infinity, window?.top ?? -Infinity];
  if (numbered && left < x + columns.end - 40) {
    const right = Math.max(x - 5, left + wide(rows.count));
    if (right > x) {
      to.rect(left, y, right + 3 - left, rows.end, theme.page, 0.85);
    }
    for (const row of numberedLines(rows, sheet.down, LEAST + 1)) {
      const middle = y + rows.starts[row] + rows.sizes[row] / 2;
      to.text(right, middle, String(row), LEAST, theme.faint, "end");
    }
  }
  if (top > y + rows.end - 20) return;
  const middle = Math.max(y - 8, top + 8);
  if (middle > y) to.rect(x, top, columns.end, 16, theme.page, 0.85);
  for (let m = 0; m * sheet.each < columns.count; m++) {
    for (const column of numberedLines(columns, sheet.across, wide(sheet.each), sheet.each)) {
      const at = m * sheet.each + column;
      const centre = x + columns.starts[at] + columns.sizes[at] / 2;
      to.text(centre, middle, String(column), LEAST, theme.faint, "middle");
    }
  }
}

/** The lines whose numbers fit side by side: all, the ends of registers, every 2nd … */
function numberedLines(track: Track, run: number, needed: number, count = track.count): number[] {
  const all = Array.from({ length: count }, (_, line) => line);
  const fits = (lines: number[]) =>
    lines.every((line, at) => {
      if (!at) return true;
      const middle = (each: number) => track.starts[each] + track.sizes[each] / 2;
      return middle(line) - middle(lines[at - 1]) >= needed;
    });
  const ends = all.filter((line) => line % run < 2 || line % run === run - 1);
  for (const some of [all, ends]) if (fits(some)) return some;
  for (let step = run; step < 2 * count; step *= 2) {
    const some = all.filter((line) => line % step === 0);
    if (fits(some)) return some;
  }
  return [0];
}

/** The bands of a warpgroup's warps, at the left of its rows. */
function drawWarps(to: Painter, panel: Panel, theme: Theme): void {
  const { matrix, down } = panel.sheet;
  if (!panel.numbered || (matrix.part?.axes.W ?? 1) < 2 || down > 1) return;
  const warp = (row: number) => matrix.lane[panel.sheet.index(row, 0)] >> 5;
  const { rows } = panel;
  let first = 0;
  for (let row = 1; row <= rows.count; row++) {
    if (row < rows.count && warp(row) === warp(first)) continue;
    const [y, high] = [panel.y + rows.starts[first], rows.span(first, row - first)];
    if (panel.x >= BAND + 20 && high >= 12 && panel.x < 200) {
      const x = panel.x - BAND - 22;
      to.rect(x, y + 1, BAND - 2, high - 2, theme.band);
      to.text(x + BAND / 2 - 1, y + high / 2, `warp ${warp(first)}`, LEAST, theme.ink, "middle");
    }
    first = row;
  }
}

// ── marks ───────────────────────────────────────────────────────────────────

/** A veil over what is not lit, frames around what is chosen. */
export function drawMarks(
  to: Painter,
  panel: Panel,
  marks: Marks,
  theme: Theme,
  window: Window | null = null,
): void {
  if (marks.lit) drawVeil(to, panel, marks.lit, theme, window);
  for (const row of marks.rows ?? []) {
    const { y, height } = cellBox(panel, row, 0);
    const high = Math.max(3, height);
    to.frame(panel.x, y + (height - high) / 2, panel.columns.end, high, theme.accent, 1.5);
  }
  for (const index of marks.framed) {
    const box = boxOf(panel, index);
    if (!box) continue;
    // What is tiny is framed as if it were not.
    const [w, h] = [Math.max(6, box.width), Math.max(6, box.height)];
    const [x, y] = [box.x + (box.width - w) / 2, box.y + (box.height - h) / 2];
    to.frame(x, y, w, h, theme.page, 4.5);
    to.frame(x, y, w, h, theme.accent, 2.25);
  }
}

function drawVeil(to: Painter, panel: Panel, lit: Uint8Array, theme: Theme, window: Window | null): void {
  const [top, bottom, left, right] = visible(panel, window);
  const { sheet, rows, columns } = panel;
  const bright = (row: number, column: number) => {
    const index = sheet.index(row, column);
    return index >= 0 && lit[index] > 0;
  };
  for (let row = top; row < bottom; row++) {
    let from = left;
    for (let column = left; column <= right; column++) {
      const end = column === right;
      if (!end && !bright(row, column)) continue;
      if (column > from) {
        const x = panel.x + columns.starts[from];
        const y = panel.y + rows.starts[row];
        to.rect(x, y, columns.span(from, column - from), rows.sizes[row], theme.page, theme.dark ? 0.66 : 0.74);
      }
      from = column + 1;
    }
  }
  for (let row = top; row < bottom; row += sheet.down) {
    for (let column = left; column < right; column += sheet.across) {
      outline(to, panel, row, column, bright, theme);
    }
  }
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
  const whole = found.length === cells.length;
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
    if (w * h < 40) to.rect(x, y, w, h, theme.accent, 0.85);
    else if (Math.min(w, h) >= 6) to.frame(x + 0.5, y + 0.5, w - 1, h - 1, theme.ink, whole ? 1.6 : 1);
  }
}

/** A caption in the room that there is: the longest of some texts. */
export function caption(texts: string[], room: number, size: number): string {
  return texts.find((text) => text.length * size * LETTER <= room) ?? texts.at(-1)!;
}

