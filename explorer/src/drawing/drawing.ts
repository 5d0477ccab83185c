// Draws a matrix: one framed block for each lane and register, with the names that
// there is room for; colours alone where there is none.

import { BAND, type Panel } from "./arrange.js";
import { LEAST, LETTER, width, writing, type Writing } from "./labels.js";
import type { Painter } from "./painter.js";
import { drawCuts } from "./parts.js";
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

/** The first row and the one after the last; the same of columns. */
type Range = [number, number, number, number];

const FRAMED = 6; // pixels: smaller blocks are only colours

/** The rows and columns of a panel that a window shows, in whole blocks. */
export function visible(panel: Panel, window: Window | null): Range {
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

export function cellBox({ rows, columns, x, y }: Panel, row: number, column: number): Box {
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
  const [width, cellWidth] = columns.least(sheet.across);
  const [height, cellHeight] = rows.least(sheet.down);
  const cell = { width: cellWidth, height: cellHeight };
  return writing(sheet, names, { width, height }, cell);
}

/** Whether every element of a panel has its name or value written. */
export function saysAll(panel: Panel): boolean {
  const { form } = writingOf(panel);
  const { across, down } = panel.sheet;
  if (form === "range" || form === "line") return across * down === 1;
  const cells = form === "full" || form === "elements" || form === "beside" || form === "cells";
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
  const range = visible(panel, window);
  const [top, bottom, left, right] = range;
  if (bottom <= top || right <= left) return;
  const block = Math.min(columns.span(0, sheet.across), rows.span(0, sheet.down));
  if (sheet.name === "logical") drawLogical(to, panel, look, theme, range);
  else if (block < FRAMED) drawMosaic(to, panel, look, range);
  else drawBlocks(to, panel, look, theme, range);
  if (block < FRAMED) to.frame(panel.x, panel.y, columns.end, rows.end, theme.hair, 1);
  drawChunks(to, panel, look, theme);
  drawCuts(to, panel.parts, panel, theme);
}

/** The colours alone. */
function drawMosaic(to: Painter, panel: Panel, look: Look, range: Range): void {
  const [top, bottom, left, right] = range;
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
function drawLogical(
  to: Painter,
  panel: Panel,
  look: Look,
  theme: Theme,
  range: Range,
): void {
  const [top, bottom, left, right] = range;
  for (let row = top; row < bottom; row++) {
    for (let column = left; column < right; column++) {
      const index = panel.sheet.index(row, column);
      const { x, y, width: w, height: h } = cellBox(panel, row, column);
      if (index < 0) {
        to.rect(x + w / 2 - 0.75, y + h / 2 - 0.75, 1.5, 1.5, theme.hair);
        continue;
      }
      to.rect(x + 0.5, y + 1, Math.max(1, w - 1), Math.max(1, h - 2), look.colour(index));
    }
  }
  const box = { ...cellBox(panel, 0, 0), width: panel.columns.end, height: panel.rows.end };
  to.frame(box.x, box.y, box.width, box.height, theme.hair, 1);
}

function drawBlocks(
  to: Painter,
  panel: Panel,
  look: Look,
  theme: Theme,
  range: Range,
): void {
  const { sheet, rows, columns } = panel;
  const [top, bottom, left, right] = range;
  const { across, down } = sheet;
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
      to.frame(box.x, box.y, box.width, box.height, theme.frame, line);
      if (look.wrong) drawWrong(to, panel, row, column, look.wrong, theme);
    }
  }
}

/** The names in all blocks that a window shows. */
export function drawNames(
  to: Painter,
  panel: Panel,
  theme: Theme,
  window: Window | null = null,
): void {
  const { sheet, rows, columns } = panel;
  const [top, bottom, left, right] = visible(panel, window);
  if (bottom <= top || right <= left) return;
  const { across, down } = sheet;
  const logical = sheet.name === "logical";
  const style = logical ? writingOfOpen(panel) : writingOf(panel);
  if (style.form === "none") return;
  // Names of warps stand over what is behind the edge of the window.
  const edge = window && panel.bands.length ? window.left + BAND : -Infinity;
  for (let row = top; row < bottom; row += down) {
    for (let column = left; column < right; column += across) {
      if (logical && sheet.index(row, column) < 0) continue;
      const box = {
        x: panel.x + columns.starts[column],
        y: panel.y + rows.starts[row],
        width: columns.span(column, across),
        height: rows.span(row, down),
      };
      if (box.x < edge) continue;
      label(to, panel, row, column, box, style, theme);
    }
  }
}

/** A sparse A as it multiplies has the names of elements alone. */
function writingOfOpen({ columns, rows, names }: Panel): Writing {
  const fits = columns.sizes[0] >= width(names.letters.element) && rows.sizes[0] >= LEAST;
  return { form: fits ? "cells" : "none", size: LEAST };
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

/** Whether a panel writes a name that belongs to all elements of a register. */
export function named(panel: Panel): boolean {
  return !["cells", "none"].includes(writingOf(panel).form);
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
  if (form === "full") {
    const line = size * 1.14;
    to.text(middle, centre - line, names.head(first), size, theme.ink, "middle", true);
    eachElement(panel, row, column, (index, text, x) => {
      if (text !== "…") to.text(x, centre, names.place!(index), size, theme.ink, "middle");
      to.text(x, centre + line, text, size, theme.ink, "middle");
    });
  } else if (form === "elements") {
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
  } else if (form === "number") {
    to.text(middle, centre, names.head(first).slice(1), size, theme.ink, "middle");
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
      const dots = along ? "…" : "⋮";
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

/** A caption in the room that there is: the longest of some texts. */
export function caption(texts: string[], room: number, size: number): string {
  return texts.find((text) => text.length * size * LETTER <= room) ?? texts.at(-1)!;
}

