// What does it compute?  Small numbers, on which every type here is exact, so
// that ordinary arithmetic gives the bits that the hardware gives.

import type { Catalogue } from "./catalogue.js";
import type { Matrix, Scene } from "./matrix.js";

export const FILLS = ["off", "small", "ones", "identity"] as const;
export type Fill = (typeof FILLS)[number];

export type Codes = Uint8Array;
export type Values = Map<string, Float64Array>;

/** Codes to begin with: every legal one in turn, so that rows differ. */
export function firstCodes(scene: Scene): Codes {
  const metadata = scene.matrices.get("metadata");
  if (!metadata || !scene.pattern) return new Uint8Array();
  const { problems } = scene.pattern;
  const legal = problems.flatMap((problem, code) => (problem ? [] : [code]));
  return Uint8Array.from({ length: metadata.size }, (_, index) => {
    const [, row, chunk] = metadata.spot(index);
    return legal[(row + 2 * chunk) % legal.length];
  });
}

/** The row of B that meets a stored column of A; -1 for an illegal code. */
export function rowOfB(
  scene: Scene,
  codes: Codes,
  row: number,
  stored: number,
): number {
  const { pattern } = scene;
  if (!pattern) return stored;
  const metadata = scene.matrices.get("metadata")!;
  const chunk = Math.floor(stored / pattern.kept);
  const code = codes[metadata.index(0, row, chunk)];
  const place = pattern.positions[code][stored % pattern.kept];
  return place === undefined ? -1 : chunk * pattern.chunk + place;
}

/** A and B filled, C beside them, and D computed. */
export function evaluate(
  catalogue: Catalogue,
  scene: Scene,
  codes: Codes,
  fill: Fill,
): Values {
  const values: Values = new Map();
  for (const name of ["A", "B", "C"]) {
    const matrix = scene.matrices.get(name);
    if (matrix) values.set(name, filled(catalogue, matrix, fill));
  }
  const [a, b, d] = ["A", "B", "D"].map((name) => scene.matrices.get(name));
  if (a && b && d && scene.computes) values.set("D", multiply(scene, codes, values));
  return values;
}

function filled(catalogue: Catalogue, matrix: Matrix, fill: Fill): Float64Array {
  const { kind } = catalogue.types[matrix.type];
  const { rows, cols } = matrix;
  const found = new Float64Array(matrix.size);
  for (let line = 0; line < matrix.count * rows; line++) {
    const [m, row] = [Math.floor(line / rows), line % rows];
    for (let col = 0; col < cols; col++) {
      found[line * cols + col] = number(matrix.name, m, row, col, kind, fill);
    }
  }
  return found;
}

function number(
  name: string,
  m: number,
  row: number,
  col: number,
  kind: string,
  fill: Fill,
): number {
  if (fill === "ones") return name === "C" ? 0 : 1;
  if (fill === "identity" && name === "A") return row === col ? 1 : 0;
  if (fill === "identity" && name === "C") return 0;
  const mixed = (row * 7 + col * 5 + (row >> 2) * 3 + (col >> 3) + m) % 11;
  if (kind === "bit") return mixed % 2;
  return kind === "unsigned" ? mixed % 4 : (mixed % 5) - 2;
}

/** Row by row of B, so that the innermost loop walks through memory in order. */
function multiply(scene: Scene, codes: Codes, values: Values): Float64Array {
  const [a, b, d] = ["A", "B", "D"].map((name) => scene.matrices.get(name)!);
  const [va, vb, vc] = ["A", "B", "C"].map((name) => values.get(name)!);
  const meet = pairing(scene.op.values.bitop);
  // Tensor memory has no C: D itself is added to, and begins as zero.
  const found = vc ? Float64Array.from(vc) : new Float64Array(d.size);
  for (let start = 0; start < d.size; start += d.cols) {
    const [matrix, row] = d.spot(start);
    const ofA = a.index(matrix, row, 0);
    for (let stored = 0; stored < a.cols; stored++) {
      const k = rowOfB(scene, codes, row, stored);
      const x = k < 0 ? NaN : va[ofA + stored];
      const ofB = b.index(matrix, Math.max(0, k), 0);
      for (let col = 0; col < d.cols; col++)
        found[start + col] += meet(x, vb[ofB + col]);
    }
  }
  return found;
}

/** What becomes of two elements: their product, or one of bits. */
export function pairing(bitop: string | undefined): (x: number, y: number) => number {
  if (bitop?.startsWith("xor")) return (x, y) => x ^ y; // bits are always dense
  if (bitop?.startsWith("and")) return (x, y) => x & y;
  return (x, y) => x * y;
}

/** A number as a cell shows it; what an illegal code leaves undefined is "?". */
export function shown(value: number): string {
  if (Number.isNaN(value)) return "?";
  return String(Object.is(value, -0) ? 0 : value).replace("-", "−");
}
