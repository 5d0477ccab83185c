// The path of an element.  Scales lie in shared memory in blocks of 512 bytes, and
// tcgen05.cp copies them as they are.  D goes from tensor memory into the registers
// that its loads fill; which loads these are comes with the catalogue.

import type { Catalogue } from "../records/catalogue.js";
import { scene as sceneOf, type Matrix, type Scene } from "../records/matrix.js";

const LANES = 128;
const WARP = 32;
/** Columns of tensor memory, and bytes of a line, that a block of scales has. */
const COLUMNS = 4;
export const LINE = 16;

interface Load {
  name: string;
  /** The first column of D that it loads, and its first register of all. */
  column: number;
  register: number;
  held: Matrix;
}

export class Route {
  readonly loads: Load[] = [];
  /** Registers of a thread that all loads fill. */
  readonly registers: number;
  /** Per element of D: 128 * CTA + 32 * warp + lane, and the register. */
  readonly thread: Int16Array;
  readonly register: Int16Array;

  constructor(
    catalogue: Catalogue,
    readonly scene: Scene,
  ) {
    let register = 0;
    for (const [word, column] of scene.op.tensor!.path.loads) {
      const name = catalogue.words[word];
      const op = catalogue.instructions.find((each) => each.name === name)!;
      const held = sceneOf(catalogue, op, 0).matrices.get("R")!;
      this.loads.push({ name, column, register, held });
      register += held.registers;
    }
    this.registers = register;
    const d = scene.matrices.get("D")!;
    this.thread = new Int16Array(d.size);
    this.register = new Int16Array(d.size);
    for (let index = 0; index < d.size; index++) this.follow(d, index);
  }

  private follow(d: Matrix, index: number): void {
    const { column, register, held } = this.loadOf(d.register[index]);
    const lane = d.lane[index];
    const at = held.index(0, lane % WARP, d.register[index] - column);
    this.thread[index] = lane - (lane % WARP) + held.lane[at];
    this.register[index] = register + held.register[at];
  }

  private loadOf(column: number): Load {
    return this.loads.findLast((load) => load.column <= column)!;
  }

  /** The element of D in each register: index by thread * registers + register. */
  arrived(): Int32Array {
    const ctas = this.scene.op.tensor!.ctas;
    const found = new Int32Array(ctas * LANES * this.registers).fill(-1);
    this.thread.forEach((thread, index) => {
      found[thread * this.registers + this.register[index]] = index;
    });
    return found;
  }

  /** Where an element of D arrives, in words. */
  told(index: number): string {
    const thread = this.thread[index];
    const pair = this.scene.op.tensor!.ctas > 1 ? `CTA ${thread >> 7}, ` : "";
    const warp = (thread & (LANES - 1)) >> 5;
    return `${pair}warp ${warp}, lane ${thread % WARP}, register ${this.register[index]}`;
  }

  /** The load that fetches an element of D. */
  loader(index: number): Load {
    return this.loadOf(this.scene.matrices.get("D")!.register[index]);
  }

  /** In shared memory, the block of a scale, its line and its byte in the line. */
  byteOf(scale: Matrix, index: number): [number, number, number] {
    const [lane, column] = [scale.lane[index] % LANES, scale.register[index]];
    // Of a scale that has two halves of the lanes, blocks take turns.
    const halves = scale.layout!.data.some(({ digits }) =>
      digits.some(({ axis, stride }) => axis === "T" && stride === 64),
    );
    const half = halves ? Math.floor(lane / 64) : 0;
    const block = Math.floor(column / COLUMNS) * (halves ? 2 : 1) + half;
    const [width] = scale.part!.slot;
    const byte = (column % COLUMNS) * 4 + (scale.slot[index] * width) / 8;
    return [block, lane % WARP, byte];
  }

  /** Blocks of a scale in the shared memory of one CTA. */
  blocks(scale: Matrix): number {
    let most = 0;
    for (let index = 0; index < scale.size; index++)
      most = Math.max(most, this.byteOf(scale, index)[0]);
    return most + 1;
  }

  /** The CTA whose shared memory has an element: a half of A's rows, of B's columns. */
  ctaOf(matrix: Matrix, index: number): number {
    const [, row, col] = matrix.spot(index);
    const { ctas } = this.scene.op.tensor!;
    const [at, size] = matrix.name === "A" ? [row, matrix.rows] : [col, matrix.cols];
    return Math.floor((at * ctas) / size);
  }
}
