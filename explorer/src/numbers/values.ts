// The values of the operands, and D: the bits that the hardware returns.

import {
  defined,
  lineOf,
  numbersOf,
  rowMaker,
  type Operands,
  type RowMaker,
} from "./accumulate.js";
import type { Catalogue, Instruction, Way } from "../records/catalogue.js";
import { numberOf, patterns, type Patterns } from "./elements.js";
import { repr } from "./exact.js";
import type { Matrix, Scene } from "../records/matrix.js";
import { rowOfB, type Codes } from "./storing.js";
import type { Explanation, Model } from "./model.js";
import { explain } from "./trace.js";

export { FILLS, VALUED, type Fill } from "./fills.js";
export { firstCodes, rowOfB, type Codes } from "./storing.js";

/** How a target computes an instruction; null if it does not have it. */
export function wayOf(
  catalogue: Catalogue,
  op: Instruction,
  target: string,
): Way | null {
  if (op.sums === undefined) return null;
  const { ways } = catalogue.sums[op.sums];
  return ways.find((way) => way.targets.includes(target)) ?? null;
}

/** The target that numbers are for, unless another one is chosen. */
export function usualTarget(catalogue: Catalogue, op: Instruction): string {
  return op.sums === undefined ? "" : catalogue.sums[op.sums].usual;
}

export class Values {
  private d: Patterns | null = null;
  /** The rows of D that are computed, and those with an illegal code. */
  private done: Uint8Array | null = null;
  private bad: Uint8Array | null = null;
  private matrices: { given: Operands; make: RowMaker }[] = [];
  readonly model: Model | null;

  constructor(
    private catalogue: Catalogue,
    private scene: Scene,
    private codes: Codes,
    readonly operands: Map<string, Patterns>,
    readonly target: string,
  ) {
    const way = wayOf(catalogue, scene.op, target);
    this.model =
      way === null || way.model === null ? null : catalogue.models[way.model];
  }

  /** Raw bits of an operand, or of all of D. */
  bits(name: string): Patterns | undefined {
    if (name !== "D" || !this.has("D")) return this.operands.get(name);
    const { count, rows } = this.scene.matrices.get("D")!;
    for (let line = 0; line < count * rows; line++) this.compute(line);
    return this.d!;
  }

  /** Whether there are numbers of an operand; D need not be computed for that. */
  has(name: string): boolean {
    return (
      this.operands.has(name) || (name === "D" && !!this.model && this.scene.computes)
    );
  }

  /** The bits of one element: of D, only its row is computed. */
  private pattern(name: string, index: number): number | bigint | undefined {
    if (name !== "D" || !this.has("D")) return this.operands.get(name)?.[index];
    this.compute(Math.floor(index / this.scene.matrices.get("D")!.cols));
    return this.d![index];
  }

  private compute(line: number): void {
    const d = this.scene.matrices.get("D")!;
    this.d ??= patterns(this.catalogue.types[this.model!.d], d.size);
    this.done ??= new Uint8Array(d.count * d.rows);
    if (this.done[line]) return;
    this.done[line] = 1;
    const [m, size] = [Math.floor(line / d.rows), d.rows * d.cols];
    this.of(m).make(line % d.rows, this.d.subarray(m * size, (m + 1) * size));
  }

  /** All elements as numbers. */
  get(name: string): Float64Array | undefined {
    const matrix = this.scene.matrices.get(name);
    const bits = this.bits(name);
    return matrix && bits && numbersOf(this.catalogue.types[matrix.type], bits);
  }

  /** One element as a number. */
  number(name: string, index: number): number | undefined {
    const bits = this.pattern(name, index);
    const matrix = this.scene.matrices.get(name);
    if (bits === undefined || !matrix) return undefined;
    return numberOf(this.catalogue.types[matrix.type], bits);
  }

  /** Whether an element of D is undefined, because a code in its row is illegal. */
  undefinedAt(index: number): boolean {
    if (!this.scene.pattern || !this.model) return false;
    const d = this.scene.matrices.get("D")!;
    const row = Math.floor(index / d.cols);
    this.bad ??= Uint8Array.from({ length: d.count * d.rows }, (_, line) =>
      Number(
        !defined(this.model!, this.of(Math.floor(line / d.rows)).given, line % d.rows),
      ),
    );
    return this.bad[row] === 1;
  }

  /** A number as a cell shows it. */
  text(name: string, index: number): string {
    const value = this.number(name, index);
    if (value === undefined) return "";
    if (name === "D" && this.undefinedAt(index)) return "?";
    return shown(value);
  }

  /** A number in full. */
  full(name: string, index: number): string {
    const value = this.number(name, index);
    if (value === undefined) return "";
    if (name === "D" && this.undefinedAt(index)) return "undefined";
    return fullText(value);
  }

  /** The bits of an element in hexadecimal. */
  hex(name: string, index: number): string {
    const { used } = this.catalogue.types[this.scene.matrices.get(name)!.type];
    const digits = this.pattern(name, index)!.toString(16);
    return `0x${digits.padStart(Math.ceil(used / 4), "0")}`;
  }

  /** How one element of D comes about; null if that is undefined or not known. */
  explain(index: number): Explanation | null {
    const { model, scene } = this;
    if (!model || !scene.computes || this.undefinedAt(index)) return null;
    const [m, row, col] = scene.matrices.get("D")!.spot(index);
    return explain(
      this.catalogue.types,
      model,
      lineOf(model, this.of(m).given, row, col),
    );
  }

  /** The operands of one matrix of those that an instruction multiplies. */
  private of(m: number): { given: Operands; make: RowMaker } {
    const prepared = () => {
      const given = this.sliced(m);
      return { given, make: rowMaker(this.catalogue.types, this.model!, given) };
    };
    return (this.matrices[m] ??= prepared());
  }

  private sliced(m: number): Operands {
    const { scene, codes, operands, model } = this;
    const part = (name: string): Patterns | undefined => {
      const matrix = scene.matrices.get(name);
      const size = matrix ? matrix.rows * matrix.cols : 0;
      return operands.get(name)?.subarray(m * size, (m + 1) * size);
    };
    const [a, d] = ["A", "D"].map((name) => scene.matrices.get(name)!);
    const meets = new Int32Array(a.rows * a.cols);
    for (let at = 0; at < meets.length; at++) {
      meets[at] = rowOfB(scene, codes, Math.floor(at / a.cols), at % a.cols);
    }
    const size = d.rows * d.cols;
    return {
      rows: d.rows,
      columns: d.cols,
      a: part("A")!,
      b: part("B")!,
      // Tensor memory has no C: D itself is added to, and begins as zero.
      c: part("C") ?? patterns(this.catalogue.types[model!.c], size),
      meets,
      scaleA: part("scale_A"),
      scaleB: part("scale_B"),
    };
  }
}

/** A number as a cell shows it: of a long one as many digits as four characters hold. */
export function shown(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value < 0 ? "−inf" : "inf";
  const size = Math.abs(value);
  const minus = value < 0 || Object.is(value, -0) ? "−" : "";
  const plain = (digits: string) => minus + digits.replace(/^0\./, ".");
  const exact = plain(String(size));
  if (exact.length <= 5 + minus.length) return exact;
  const room = 4 + minus.length;
  if (size >= 0.001 && size < 9999.5) {
    for (const digits of [5, 4, 3, 2, 1]) {
      const found = plain(String(Number(size.toPrecision(digits))));
      if (found.length <= room) return found;
    }
  }
  const power = Math.log2(size);
  if (Number.isInteger(power) && Math.abs(power) > 13) {
    return `${minus}2^${String(power).replace("-", "−")}`;
  }
  const short = size.toExponential(1).replace(".0e", "e").replace("+", "");
  if (short.length <= 5) return minus + short;
  const [mantissa, exponent] = size.toExponential(0).split("e");
  return `${minus}${mantissa}e${exponent.replace("+", "").replace("-", "−")}`;
}

/** A number in full, as Python writes it. */
export function fullText(value: number): string {
  return Number.isInteger(value) && Math.abs(value) < 1e15 && !Object.is(value, -0)
    ? String(value)
    : repr(value);
}

/** What becomes of two elements: their product, or one of bits. */
export function pairing(bitop: string | undefined): (x: number, y: number) => number {
  if (bitop?.startsWith("xor")) return (x, y) => x ^ y; // bits are always dense
  if (bitop?.startsWith("and")) return (x, y) => x & y;
  return (x, y) => x * y;
}

/** An element of a matrix as people write it, ``A[3, 17]``. */
export function cellName(matrix: Matrix, index: number): string {
  const [m, row, col] = matrix.spot(index);
  return `${matrix.name}${matrix.count > 1 ? ` ${m}` : ""}[${row}, ${col}]`;
}
