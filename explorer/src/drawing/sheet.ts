// What is drawn as one grid: a matrix as it is stored, or a sparse A with gaps for the
// columns that are not stored.

import type { Matrix, Scene } from "../records/matrix.js";
import { rowOfB, type Codes } from "../numbers/values.js";

export interface Sheet {
  /** ``A``; the open A is ``logical``. */
  name: string;
  matrix: Matrix;
  rows: number;
  /** Of all matrices, where there are several side by side. */
  columns: number;
  /** Columns of one matrix. */
  each: number;
  /** Neighbours in a row, and in a column, that share a register. */
  across: number;
  down: number;
  /** The element in a cell; -1 where there is none. */
  index: (row: number, column: number) => number;
  /** Row and column of an element. */
  cell: (index: number) => [number, number];
}

export function sheetOf(matrix: Matrix): Sheet {
  const { rows, cols, count } = matrix;
  return {
    name: matrix.name,
    matrix,
    rows,
    columns: cols * count,
    each: cols,
    across: matrix.run(matrix.last),
    down: matrix.run(matrix.last - 1),
    index: (row, column) => matrix.index(Math.floor(column / cols), row, column % cols),
    cell: (index) => {
      const [m, row, col] = matrix.spot(index);
      return [row, m * cols + col];
    },
  };
}

/** A sparse A as it multiplies: each stored element at its column. */
export function logicalSheet(scene: Scene, codes: Codes): Sheet | null {
  const matrix = scene.matrices.get("A");
  const { pattern } = scene;
  if (!matrix || !pattern || !scene.matrices.has("metadata")) return null;
  const { rows, cols } = matrix;
  const each = (cols / pattern.kept) * pattern.chunk;
  const stored = new Int32Array(rows * each).fill(-1);
  const column = new Int32Array(matrix.size).fill(-1);
  for (let index = 0; index < matrix.size; index++) {
    const [, row, col] = matrix.spot(index);
    column[index] = rowOfB(scene, codes, row, col);
    if (column[index] >= 0) stored[row * each + column[index]] = index;
  }
  return {
    name: "logical",
    matrix,
    rows,
    columns: each,
    each,
    across: 1,
    down: 1,
    index: (row, at) => stored[row * each + at],
    cell: (index) => [matrix.spot(index)[1], column[index]],
  };
}
