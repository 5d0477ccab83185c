// One operand as a picture needs it: who holds each element, looked up once.

import type { Catalogue, Instruction, Part, Pattern } from "./catalogue.js";
import { Layout, type Element, type Place } from "./layout.js";

/** An operand of an instruction; ``part`` is null for one in shared memory. */
export class Matrix {
  readonly layout: Layout | null;
  readonly count: number;
  readonly rows: number;
  readonly cols: number;
  /** Per element, in (matrix, row, col) order. */
  readonly lane: Int16Array;
  readonly register: Int16Array;
  readonly slot: Int16Array;

  constructor(
    readonly name: string,
    readonly type: string,
    readonly bits: number,
    readonly part: Part | null,
    shape: number[],
    readonly pinned: Element,
    /** The CTAs that share an operand in shared memory. */
    readonly ctas = 1,
  ) {
    this.layout = part && new Layout(part.line, part.axes);
    const sizes = part?.windows?.map(([size]) => size) ?? this.layout?.shape ?? shape;
    [this.count, this.rows, this.cols] = sizes.length > 2 ? sizes : [1, ...sizes];
    const size = this.count * this.rows * this.cols;
    this.lane = new Int16Array(size).fill(-1);
    this.register = new Int16Array(size);
    this.slot = new Int16Array(size);
    if (this.layout) this.lookUp(this.layout);
  }

  /** A place is a sum: what each coordinate's digits add to it. */
  private lookUp(layout: Layout): void {
    const [matrices, rows, cols] = this.axisPlaces(layout);
    const { part } = this;
    for (let index = 0; index < this.lane.length; index++) {
      const col = cols[index % this.cols];
      const line = Math.floor(index / this.cols);
      const row = rows[line % this.rows];
      const matrix = matrices[Math.floor(line / this.rows)];
      this.lane[index] = laneOf(matrix) + laneOf(row) + laneOf(col);
      this.register[index] =
        registerOf(matrix) + registerOf(row) + registerOf(col) + (part?.skipped ?? 0);
      this.slot[index] = (matrix.E ?? 0) + (row.E ?? 0) + (col.E ?? 0);
    }
  }

  /** The place of each value of (matrix, row, col), the others being 0. */
  private axisPlaces(layout: Layout): Place[][] {
    const values = (name: string, size: number, pinned: Element) =>
      Array.from({ length: size }, (_, at) =>
        layout.place({ ...pinned, [name]: this.inLayout(name, at) }),
      );
    const names = layout.data.map((each) => each.name);
    const [first, second] = names.slice(-2);
    const matrices =
      names.length > 2
        ? values(names[0], this.count, this.pinned)
        : [layout.place(this.pinned)];
    return [matrices, values(first, this.rows, {}), values(second, this.cols, {})];
  }

  /** The index in the layout, of which an operand may have a part. */
  private inLayout(name: string, at: number): number {
    const axis = this.layout!.data.findIndex((each) => each.name === name);
    const window = this.part?.windows?.[axis];
    if (!window) return at;
    const [, first, part, padded] = window;
    return part ? first + Math.floor(at / part) * padded + (at % part) : first + at;
  }

  /** Whether the operand has all of its layout, index for index. */
  get whole(): boolean {
    return !this.part?.windows?.some(([, first, part]) => first || part);
  }

  /** Whether its cells are in tensor memory. */
  get tensor(): boolean {
    return this.part?.skipped !== undefined;
  }

  get size(): number {
    return this.lane.length;
  }

  /** The number of the last coordinate: columns; rows are the one before. */
  get last(): number {
    return (this.layout?.data.length ?? 2) - 1;
  }

  /** How many neighbours along a coordinate share a register. */
  run(axis: number): number {
    if (!this.layout) return 1;
    let size = 1;
    for (const digit of this.layout.data[axis].digits) {
      if (digit.axis !== "E" || digit.stride !== size) break;
      size *= digit.size;
    }
    const window = this.part!.windows?.[axis];
    if (!window) return size;
    const [all, first] = window;
    // What begins inside a cell and goes on in the next has no blocks of one size.
    return (first && first + all > size) || all === 1 ? 1 : Math.min(size, all);
  }

  /** Elements that one register holds. */
  get perRegister(): number {
    return this.part?.axes.E ?? 1;
  }

  /** Registers of a lane, or columns of tensor memory. */
  get registers(): number {
    const { axes, skipped } = this.part!;
    return (axes.R ?? axes.C ?? 1) + (skipped ?? 0);
  }

  index(matrix: number, row: number, col: number): number {
    return (matrix * this.rows + row) * this.cols + col;
  }

  /** (matrix, row, col) of a flat index. */
  spot(index: number): [number, number, number] {
    const row = Math.floor(index / this.cols);
    return [Math.floor(row / this.rows), row % this.rows, index % this.cols];
  }

  /** The coordinates of the layout's line for a flat index. */
  element(index: number): Element {
    const [matrix, row, col] = this.spot(index);
    const names = this.layout!.data.map((each) => each.name);
    const values = names.length > 2 ? [matrix, row, col] : [row, col];
    return Object.fromEntries(
      names.map((name, at) => [name, this.inLayout(name, values[at])]),
    );
  }

  /** Every place of an element: its copies, for the pinned selectors. */
  places(index: number): Place[] {
    return this.layout!.places({ ...this.element(index), ...this.pinned });
  }

  /** The lowest and highest bit of an element in its register. */
  bitRange(slot: number): [number, number] {
    const [width, shift] = this.part!.slot;
    const low = slot * width + shift;
    return [low, low + this.bits - 1];
  }

  /** The number the manual gives an element: i of a lane's a0, a1 … */
  ordinal(index: number): number {
    return this.register[index] * this.perRegister + this.slot[index];
  }

  /** ``A[3][17]``; ``A 2[3][17]`` where there are several matrices. */
  label(index: number): string {
    const [matrix, row, col] = this.spot(index);
    return `${this.name}${this.count > 1 ? ` ${matrix}` : ""}[${row}][${col}]`;
  }
}

/** The lane in its warpgroup, 32 * warp + lane; in tensor memory, 128 * CTA + lane. */
export function laneOf(place: Place): number {
  if ("T" in place) return (place.P ?? 0) * 128 + place.T;
  return (place.W ?? 0) * 32 + place.L;
}

/** The register, or the column of tensor memory. */
export function registerOf(place: Place): number {
  return place.R ?? place.C ?? 0;
}

/** Lanes that are counted together: those of a warp, or of a CTA's tensor memory. */
export function unit({ tensor }: Scene): number {
  return tensor ? 128 : 32;
}

/** Such as ``lane 5``, ``warp 2, lane 5`` in a warpgroup, ``CTA 1, lane 100``. */
export function laneText(lane: number, scene: Scene): string {
  const size = unit(scene);
  const many = 32 * scene.warps > size;
  const group = `${scene.tensor ? "CTA" : "warp"} ${Math.floor(lane / size)}, `;
  return `${many ? group : ""}lane ${lane % size}`;
}

/** Everything that one instruction draws. */
export interface Scene {
  op: Instruction;
  matrices: Map<string, Matrix>;
  pattern: Pattern | null;
  warps: number;
  selectors: number;
  /** Whether its operands are in tensor memory. */
  tensor: boolean;
  /** Whether D can be worked out: A and B are there, and which rows of B meet A. */
  computes: boolean;
}

/** Which places count, by operand: of what is free in its layout. */
export type Pins = Record<string, Element>;

export function scene(
  catalogue: Catalogue,
  op: Instruction,
  selector: number,
  pins: Pins = {},
): Scene {
  const matrices = new Map<string, Matrix>();
  let warps = 1;
  let selectors = 1;
  for (const [name, number] of Object.entries(op.parts)) {
    const part = catalogue.parts[number];
    const layout = new Layout(part.line, part.axes);
    const inTensor = part.skipped === undefined ? 1 : 4 * (part.axes.P ?? 1);
    warps = Math.max(warps, part.axes.W ?? 1, inTensor);
    const pinned: Element = {};
    for (const { name: free, size } of layout.free) {
      if (free === "selector") selectors = Math.max(selectors, size);
      // Copies are all of them there; a selector says which places count.
      if (free !== "copy") pinned[free] = pins[name]?.[free] ?? (free === "selector" ? selector % size : 0);
    }
    const { bits } = catalogue.types[part.type];
    matrices.set(name, new Matrix(name, part.type, bits, part, [], pinned));
  }
  if (!matrices.has("B") && op.values.b) {
    const { bits } = catalogue.types[op.values.b];
    const shape = [op.shape[2], op.shape[1]];
    const ctas = op.tensor?.ctas ?? 1;
    matrices.set("B", new Matrix("B", op.values.b, bits, null, shape, {}, ctas));
  }
  const pattern = op.pattern === undefined ? null : catalogue.patterns[op.pattern];
  const [a, b] = ["A", "B"].map((each) => matrices.get(each));
  const computes = !!a && !!b && (pattern !== null || a.cols === b.rows);
  const tensor = op.tensor !== undefined;
  return { op, matrices, pattern, warps, selectors, tensor, computes };
}
