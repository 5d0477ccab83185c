// Highlights a lane in all operands, or the operands of one element of D.

import type { Matrix, Scene } from "../records/matrix.js";
import { rowOfB, type Codes } from "../numbers/values.js";

export interface Spot {
  matrix: string;
  index: number;
}

export interface Marks {
  /** Elements that stay bright; null when everything does. */
  lit: Uint8Array | null;
  /** Elements with a frame around them. */
  framed: number[];
  /** Whole rows with a frame: those of B that meet what is looked at. */
  rows?: number[];
}

export type Highlight = Map<string, Marks>;

export function sameSpot(one: Spot | null, other: Spot | null): boolean {
  return one?.matrix === other?.matrix && one?.index === other?.index;
}

/** The lane that holds an element; null for one in shared memory. */
export function holder(scene: Scene, spot: Spot | null): number | null {
  const matrix = spot && scene.matrices.get(spot.matrix);
  const lane = matrix ? matrix.lane[spot.index] : -1;
  return lane < 0 ? null : lane;
}

export function highlight(
  scene: Scene,
  codes: Codes,
  hover: Spot | null,
  pinned: Spot | null,
  lane: number | null,
): Highlight {
  const spot = hover ?? pinned;
  const isPinned = sameSpot(spot, pinned);
  if (spot && isPinned && "CD".includes(spot.matrix) && scene.computes) {
    return madeOf(scene, codes, spot);
  }
  const found = ofLane(scene, spot ? holder(scene, spot) : lane);
  for (const each of [pinned, spot]) {
    if (each) found.get(each.matrix)?.framed.push(each.index);
  }
  if (spot) governing(scene, codes, spot, found);
  return found;
}

function ofLane(scene: Scene, lane: number | null): Highlight {
  const found: Highlight = new Map();
  for (const [name, matrix] of scene.matrices) {
    const lit = lane === null || !matrix.part ? null : heldBy(matrix, lane);
    found.set(name, { lit, framed: [], rows: [] });
  }
  return found;
}

function heldBy(matrix: Matrix, lane: number): Uint8Array {
  const lit = new Uint8Array(matrix.size);
  for (let index = 0; index < lit.length; index++)
    lit[index] = +(matrix.lane[index] === lane);
  return lit;
}

/** The row of A, the column of B, the scales and the codes that make one of D. */
export function madeOf(scene: Scene, codes: Codes, spot: Spot): Highlight {
  const found: Highlight = new Map();
  const [m, row, col] = scene.matrices.get(spot.matrix)!.spot(spot.index);
  for (const [name, matrix] of scene.matrices) {
    found.set(name, { lit: new Uint8Array(matrix.size), framed: [], rows: [] });
  }
  const light = (name: string, r: number, c: number, count = m) => {
    const matrix = scene.matrices.get(name);
    if (matrix && r >= 0) found.get(name)!.lit![matrix.index(count, r, c)] = 1;
  };
  const a = scene.matrices.get("A")!;
  for (let stored = 0; stored < a.cols; stored++) {
    light("A", row, stored);
    light("B", rowOfB(scene, codes, row, stored), col);
  }
  for (const name of ["metadata", "scale_A"]) {
    const cols = scene.matrices.get(name)?.cols ?? 0;
    for (let at = 0; at < cols; at++) light(name, row, at);
  }
  const scales = scene.matrices.get("scale_B")?.rows ?? 0;
  for (let at = 0; at < scales; at++) light("scale_B", at, col);
  for (const name of ["C", "D"]) light(name, row, col);
  found.get(spot.matrix)!.framed.push(spot.index);
  return found;
}

/** Frame the code that governs an element of A, or what a code governs, and the rows
 * of B that meet it. */
function governing(scene: Scene, codes: Codes, spot: Spot, found: Highlight): void {
  const [a, metadata] = ["A", "metadata"].map((name) => scene.matrices.get(name));
  if (!scene.pattern || !a || !metadata) return;
  const { kept } = scene.pattern;
  const meets = (row: number, stored: number) => {
    const k = rowOfB(scene, codes, row, stored);
    if (k >= 0) found.get("B")?.rows?.push(k);
  };
  if (spot.matrix === "A") {
    const [, row, col] = a.spot(spot.index);
    const code = metadata.index(0, row, Math.floor(col / kept));
    found.get("metadata")!.framed.push(code);
    meets(row, col);
  } else if (spot.matrix === "metadata") {
    const [, row, chunk] = metadata.spot(spot.index);
    for (let at = 0; at < kept; at++) {
      found.get("A")!.framed.push(a.index(0, row, chunk * kept + at));
      meets(row, chunk * kept + at);
    }
  }
}
