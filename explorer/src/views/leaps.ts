// Keys for large matrices.  Home and End go to the ends of a row, with Ctrl to those
// of the matrix; Page Up and Page Down skip several rows.

import { announce, byId } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import type { Matrix } from "../records/matrix.js";
import type { Figure } from "./figure.js";

const ROWS = 8; // as far as a page key goes: the rows of a small matrix

export function listenToLeaps(explorer: Explorer, figure: Figure): void {
  byId("figure").addEventListener("keydown", (event) => {
    const stage = (event.target as HTMLElement).closest<HTMLElement>(".stage");
    const matrix = stage && explorer.matrix(stage.dataset.matrix!);
    if (!matrix || event.altKey || event.metaKey) return;
    const { spot } = explorer;
    const from = spot?.matrix === matrix.name ? spot.index : 0;
    const index = leap(matrix, from, event.key, event.ctrlKey);
    if (index === null) return;
    event.preventDefault();
    const next = { matrix: matrix.name, index };
    figure.pointOf(next); // it comes into view, however near one is
    explorer.point(next);
    announce(explorer.describe(next));
  });
}

function leap(matrix: Matrix, index: number, key: string, far: boolean): number | null {
  const [m, row, col] = matrix.spot(index);
  const last = matrix.rows - 1;
  if (far) return key === "Home" ? 0 : key === "End" ? matrix.size - 1 : null;
  if (key === "Home") return matrix.index(m, row, 0);
  if (key === "End") return matrix.index(m, row, matrix.cols - 1);
  if (key === "PageUp") return matrix.index(m, Math.max(0, row - ROWS), col);
  return key === "PageDown" ? matrix.index(m, Math.min(last, row + ROWS), col) : null;
}
