// The boxes of the path, as panes of cells: which element is in a cell, and in which
// cells an element is.

import type { Explorer } from "../page/explorer.js";
import type { Spot } from "../drawing/highlight.js";
import type { Matrix } from "../records/matrix.js";
import { laneColours, plainColour } from "../drawing/palette.js";
import { LINE } from "../memory/route.js";
import { copiesOf, LANES } from "./tensor.js";

export interface Pane {
  /** Such as ``shared A 0``: the memory, the matrix and the CTA. */
  id: string;
  where: string;
  matrix: string;
  name: string;
  rows: number;
  cols: number;
  /** Of a cell, in pixels. */
  width: number;
  height: number;
  /** Pixels before the first cell. */
  gutter: number;
  /** Columns of cells with a frame of their own. */
  block: number;
  at: (row: number, col: number) => Spot | null;
  cells: (index: number) => [number, number][];
  colour: (row: number, col: number) => string;
}

const LANE = 1.75; // pixels of a lane: both rows of boxes are to be seen at once
const BAND = 56; // for the names of warps
const PLAIN = 3;
const TILE = { wide: 96, high: 128 };

type Sizes = Pick<Pane, "rows" | "cols" | "width" | "height" | "gutter"> &
  Partial<Pick<Pane, "block">>;

/** A grid of cells that says where each element is; -1 is nothing. */
function pane(
  explorer: Explorer,
  cta: number,
  matrix: Matrix,
  where: string,
  sizes: Sizes,
  cells: (index: number) => [number, number][],
): Pane {
  const { rows, cols } = sizes;
  const held = new Int32Array(rows * cols).fill(-1);
  // Several elements may share a cell: it is that of the first one.
  for (let index = matrix.size - 1; index >= 0; index--)
    for (const [row, col] of cells(index)) held[row * cols + col] = index;
  const lanes = laneColours(explorer.catalogue, explorer.theme);
  const [plain, tile] = [plainColour(explorer.theme), explorer.theme.line];
  return {
    block: cols,
    ...sizes,
    id: `${where.split(" ")[0]} ${matrix.name} ${cta}`,
    where,
    matrix: matrix.name,
    name: matrix.name.replace("_", " "),
    cells,
    at: (row, col) => {
      const index = held[row * cols + col];
      return index < 0 ? null : { matrix: matrix.name, index };
    },
    colour: (row, col) => {
      const index = held[row * cols + col];
      if (index < 0) return plain;
      const lane = matrix.lane[index];
      return lane < 0 ? tile : lanes[lane];
    },
  };
}

// ── shared memory ───────────────────────────────────────────────────────────

/** A, B and the scales as one CTA has them. */
export function sharedPanes(explorer: Explorer, cta: number, room: number): Pane[] {
  const scales = ["scale_A", "scale_B"].filter((name) => explorer.matrix(name));
  return [
    tilePane(explorer, cta, "A", TILE.wide),
    ...scales.map((name) => blockPane(explorer, cta, name)),
    tilePane(explorer, cta, "B", room - 2 * PLAIN),
  ];
}

function tilePane(explorer: Explorer, cta: number, name: string, room: number): Pane {
  const matrix = explorer.matrix(name)!;
  const { ctas } = explorer.op.tensor!;
  const route = explorer.route!;
  const ofA = name === "A";
  const rows = ofA ? matrix.rows / ctas : matrix.rows;
  const cols = ofA ? matrix.cols : matrix.cols / ctas;
  const width = cell(room, cols, 6);
  const height = cell(ofA ? TILE.high : TILE.wide, rows, 6);
  const sizes = { rows, cols, width, height, gutter: PLAIN };
  return pane(explorer, cta, matrix, "shared memory", sizes, (index) => {
    if (route.ctaOf(matrix, index) !== cta) return [];
    const [, row, col] = matrix.spot(index);
    return [[row % rows, col % cols]];
  });
}

/** Scales in blocks of 32 lines, as tcgen05.cp takes them. */
function blockPane(explorer: Explorer, cta: number, name: string): Pane {
  const [matrix, route] = [explorer.matrix(name)!, explorer.route!];
  const cols = LINE * route.blocks(matrix);
  const sizes = { rows: 32, cols, width: 3, height: 4, gutter: PLAIN, block: LINE };
  const everywhere = explorer.op.tensor!.ctas === 1 || ofBoth(matrix);
  return pane(explorer, cta, matrix, "shared memory", sizes, (index) => {
    if (!everywhere && matrix.lane[index] >> 7 !== cta) return [];
    const [block, line, byte] = route.byteOf(matrix, index);
    return [[line, block * LINE + byte]];
  });
}

/** Whether both CTAs of a pair have a copy. */
function ofBoth(matrix: Matrix): boolean {
  return copiesOf(matrix).some((more) => more >= LANES);
}

// ── tensor memory and registers ─────────────────────────────────────────────

/** A, scales and metadata, each with its columns. */
export function inputPanes(explorer: Explorer, cta: number): Pane[] {
  const found = [...explorer.scene.matrices.values()].filter(
    (each) => each.tensor && each.name !== "D",
  );
  return found.map((matrix, at) =>
    memoryPane(explorer, cta, matrix, at ? 0 : BAND, matrix.name === "A" ? 48 : 32),
  );
}

export function resultPane(explorer: Explorer, cta: number, room: number): Pane {
  return memoryPane(explorer, cta, explorer.matrix("D")!, BAND, room - BAND - PLAIN);
}

function memoryPane(
  explorer: Explorer,
  cta: number,
  matrix: Matrix,
  band: number,
  room: number,
): Pane {
  const { skipped, axes } = matrix.part!;
  const cols = axes.C ?? 1;
  const gutter = band || PLAIN;
  const sizes = { rows: LANES, cols, width: cell(room, cols, 11), height: LANE, gutter };
  const copies = copiesOf(matrix);
  return pane(explorer, cta, matrix, "tensor memory", sizes, (index) =>
    copies
      .map((more) => matrix.lane[index] + more - cta * LANES)
      .filter((lane) => lane >= 0 && lane < LANES)
      .map((lane) => [lane, matrix.register[index] - skipped!]),
  );
}

/** D in the registers of four warps. */
export function registerPane(explorer: Explorer, cta: number, room: number): Pane {
  const [matrix, route] = [explorer.matrix("D")!, explorer.route!];
  const cols = route.registers;
  const width = cell(room - BAND - PLAIN, cols, 11);
  const sizes = { rows: LANES, cols, width, height: LANE, gutter: BAND };
  const found = pane(explorer, cta, matrix, "registers", sizes, (index) => {
    const thread = route.thread[index] - cta * LANES;
    return thread < 0 || thread >= LANES ? [] : [[thread, route.register[index]]];
  });
  const lanes = laneColours(explorer.catalogue, explorer.theme);
  const plain = plainColour(explorer.theme);
  // The colour is that of the lane that has the register, not of the one it came from.
  const colour = (row: number, col: number) => (found.at(row, col) ? lanes[row] : plain);
  return { ...found, colour, name: "D in registers" };
}

/** Pixels of a cell, in halves, so that all fit into the room. */
function cell(room: number, count: number, most: number): number {
  const fits = Math.min(most, room / count);
  return fits > 1.5 ? Math.floor(2 * fits) / 2 : fits;
}
