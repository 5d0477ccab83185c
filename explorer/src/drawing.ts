// What does a matrix look like?

import type { Marks } from "./highlight.js";
import type { Matrix } from "./matrix.js";
import type { Painter } from "./painter.js";
import type { Theme } from "./palette.js";

export interface Cell {
  width: number;
  height: number;
}

/** How each element looks; labels are empty where nothing fits. */
export interface Look {
  colour: (index: number) => string;
  label: (index: number) => string;
  wrong?: (index: number) => boolean;
  /** A heavier line after so many columns: the chunks of a sparse A. */
  every?: number;
}

export const GUTTER = { left: 34, top: 18 };
const GAP = 1; // cells between one matrix and the next

/** Columns that a matrix takes, with the gaps between several. */
export function columns(matrix: Matrix): number {
  return matrix.count * (matrix.cols + GAP) - GAP;
}

export function extent(matrix: Matrix, cell: Cell): [number, number] {
  const width = GUTTER.left + columns(matrix) * cell.width + 1;
  return [width, GUTTER.top + matrix.rows * cell.height + 1];
}

function corner(matrix: Matrix, cell: Cell, index: number): [number, number] {
  const [m, row, col] = matrix.spot(index);
  const column = m * (matrix.cols + GAP) + col;
  return [GUTTER.left + column * cell.width, GUTTER.top + row * cell.height];
}

/** The element under a point; -1 beside the matrix. */
export function hit(matrix: Matrix, cell: Cell, x: number, y: number): number {
  const column = Math.floor((x - GUTTER.left) / cell.width);
  const row = Math.floor((y - GUTTER.top) / cell.height);
  const m = Math.floor(column / (matrix.cols + GAP));
  const col = column - m * (matrix.cols + GAP);
  const inside = row >= 0 && row < matrix.rows && m >= 0 && m < matrix.count;
  return inside && col >= 0 && col < matrix.cols ? matrix.index(m, row, col) : -1;
}

/** The largest type that fits a cell; 0 if none can be read. */
export function typeSize(cell: Cell, letters: number): number {
  const size = Math.min(12, cell.height * 0.78, (cell.width - 2) / (0.61 * letters));
  return size < 7 ? 0 : size;
}

/** A part of the picture, in its own pixels: text outside it need not be drawn. */
export interface Window {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export function drawMatrix(
  to: Painter,
  matrix: Matrix,
  cell: Cell,
  look: Look,
  theme: Theme,
  window: Window | null = null,
): void {
  drawMosaic(to, matrix, cell, look);
  if (cell.width > 6 && cell.height > 6) {
    drawGaps(to, matrix, cell, theme);
    drawLabels(to, matrix, cell, look, theme, window);
  }
  drawChunks(to, matrix, cell, look, theme);
  drawAxes(to, matrix, cell, theme);
}

/** Lines between the cells, each as long as the matrix. */
function drawGaps(to: Painter, matrix: Matrix, cell: Cell, theme: Theme): void {
  const [wide, high] = [columns(matrix) * cell.width, matrix.rows * cell.height];
  for (let row = 1; row <= matrix.rows; row++) {
    to.rect(GUTTER.left, GUTTER.top + row * cell.height - 1, wide, 1, theme.page);
  }
  for (let col = 1; col <= columns(matrix); col++) {
    to.rect(GUTTER.left + col * cell.width - 1, GUTTER.top, 1, high, theme.page);
  }
}

function drawLabels(
  to: Painter,
  matrix: Matrix,
  cell: Cell,
  look: Look,
  theme: Theme,
  window: Window | null,
): void {
  const [w, h] = [cell.width - 1, cell.height - 1];
  let longest = 1;
  // In a large matrix a sample, from the last one back, shows how long labels get.
  const step = Math.ceil(matrix.size / 4096);
  for (let index = matrix.size - 1; index >= 0; index -= step) {
    longest = Math.max(longest, look.label(index).length);
  }
  const size = typeSize(cell, longest);
  for (let index = 0; index < matrix.size; index++) {
    const [x, y] = corner(matrix, cell, index);
    if (window && !inside(window, x, y, cell)) continue;
    const wrong = look.wrong?.(index);
    if (wrong) to.frame(x + 1, y + 1, w - 2, h - 2, theme.warning, 2);
    if (size) {
      const ink = wrong ? theme.warning : theme.ink;
      to.text(x + w / 2, y + h / 2, look.label(index), size, ink, "middle");
    }
  }
}

function inside(window: Window, x: number, y: number, cell: Cell): boolean {
  const across = x + cell.width > window.left && x < window.right;
  return across && y + cell.height > window.top && y < window.bottom;
}

/** The colours alone. */
function drawMosaic(to: Painter, matrix: Matrix, cell: Cell, look: Look): void {
  const { rows, cols } = matrix;
  for (let m = 0; m < matrix.count; m++) {
    const [x, y] = corner(matrix, cell, matrix.index(m, 0, 0));
    const first = m * rows * cols;
    const colour = (row: number, col: number) => look.colour(first + row * cols + col);
    to.mosaic({ x, y, ...cell, rows, cols, colour });
  }
}

function drawChunks(
  to: Painter,
  matrix: Matrix,
  cell: Cell,
  look: Look,
  theme: Theme,
): void {
  if (!look.every || cell.width < 4) return;
  for (let col = look.every; col < matrix.cols; col += look.every) {
    const x = GUTTER.left + col * cell.width - 1;
    to.rect(x, GUTTER.top, 1, matrix.rows * cell.height, theme.faint);
  }
}

function drawAxes(to: Painter, matrix: Matrix, cell: Cell, theme: Theme): void {
  const rowStep = axisStep(cell.height, 11);
  for (let row = 0; row < matrix.rows; row += rowStep) {
    const y = GUTTER.top + (row + 0.5) * cell.height;
    to.text(GUTTER.left - 5, y, String(row), 10, theme.faint, "end");
  }
  const colStep = axisStep(cell.width, 6.5 * String(matrix.cols - 1).length + 3);
  for (let m = 0; m < matrix.count; m++) {
    for (let col = 0; col < matrix.cols; col += colStep) {
      const [x] = corner(matrix, cell, matrix.index(m, 0, col));
      to.text(x + cell.width / 2, 9, String(col), 10, theme.faint, "middle");
    }
  }
}

/** Every how many rows a number fits: 1, 2, 4, 8 … */
function axisStep(cell: number, needed: number): number {
  let step = 1;
  while (step * cell < needed) step *= 2;
  return step;
}

/** A veil over what is not lit, frames around what is chosen. */
export function drawMarks(
  to: Painter,
  matrix: Matrix,
  cell: Cell,
  marks: Marks,
  theme: Theme,
): void {
  if (marks.lit) drawVeil(to, matrix, cell, marks.lit, theme);
  for (const index of marks.framed) {
    const [x, y] = corner(matrix, cell, index);
    to.frame(x - 1, y - 1, cell.width + 1, cell.height + 1, theme.page, 4);
    to.frame(x - 1, y - 1, cell.width + 1, cell.height + 1, theme.accent, 2.25);
  }
}

function drawVeil(
  to: Painter,
  matrix: Matrix,
  cell: Cell,
  lit: Uint8Array,
  theme: Theme,
): void {
  for (let start = 0; start < matrix.size; start += matrix.cols) {
    let from = start;
    for (let index = start; index <= start + matrix.cols; index++) {
      const end = index === start + matrix.cols;
      if (!end && !lit[index]) continue;
      if (index > from) {
        const [x, y] = corner(matrix, cell, from);
        const width = (index - from) * cell.width;
        to.rect(x, y, width, cell.height, theme.page, 0.72);
      }
      if (!end) outline(to, matrix, cell, index, theme);
      from = index + 1;
    }
  }
}

/** Small cells would be hidden under their own outline; tiny ones are lost without. */
function outline(to: Painter, matrix: Matrix, cell: Cell, index: number, theme: Theme) {
  const [x, y] = corner(matrix, cell, index);
  const least = Math.min(cell.width, cell.height);
  if (least > 11) {
    to.frame(x + 0.5, y + 0.5, cell.width - 2, cell.height - 2, theme.ink, 1.25);
  } else if (least < 7) {
    to.rect(x, y, cell.width, cell.height, theme.accent, 0.85);
  }
}
