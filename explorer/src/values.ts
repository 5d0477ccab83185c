// What do the operands hold, and what is D?  The bits that the hardware returns.

import { defined, lineOf, multiplyAll, numbersOf, type Operands } from "./accumulate.js";
import type { Catalogue, Instruction, Way } from "./catalogue.js";
import { patterns, type Patterns } from "./elements.js";
import { repr } from "./exact.js";
import type { Matrix, Scene } from "./matrix.js";
import { rowOfB, type Codes } from "./storing.js";
import { explain, type Explanation, type Model } from "./trace.js";

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
  private numbers = new Map<string, Float64Array>();
  private d: Patterns | null = null;
  private matrices: Operands[] = [];
  readonly model: Model | null;

  constructor(
    private catalogue: Catalogue,
    private scene: Scene,
    private codes: Codes,
    readonly operands: Map<string, Patterns>,
    readonly target: string,
  ) {
    const way = wayOf(catalogue, scene.op, target);
    this.model = way === null || way.model === null ? null : catalogue.models[way.model];
  }

  /** Raw bits of an operand, or of D, which is computed when it is first asked for. */
  bits(name: string): Patterns | undefined {
    if (name !== "D" || this.operands.has("D")) return this.operands.get(name);
    if (!this.model || !this.scene.computes) return undefined;
    this.d ??= this.multiply(this.model);
    return this.d;
  }

  /** The same as numbers. */
  get(name: string): Float64Array | undefined {
    const known = this.numbers.get(name);
    const matrix = this.scene.matrices.get(name);
    const bits = this.bits(name);
    if (known || !bits || !matrix) return known;
    const found = numbersOf(this.catalogue.types[matrix.type], bits);
    this.numbers.set(name, found);
    return found;
  }

  /** Whether an element of D is undefined, because a code in its row is illegal. */
  undefinedAt(index: number): boolean {
    if (!this.scene.pattern || !this.model) return false;
    const [m, row] = this.scene.matrices.get("D")!.spot(index);
    return !defined(this.model, this.of(m), row);
  }

  /** A number as a cell shows it. */
  text(name: string, index: number): string {
    const value = this.get(name)?.[index];
    if (value === undefined) return "";
    if (name === "D" && this.undefinedAt(index)) return "?";
    return shown(value);
  }

  /** A number in full. */
  full(name: string, index: number): string {
    const value = this.get(name)?.[index];
    if (value === undefined) return "";
    if (name === "D" && this.undefinedAt(index)) return "undefined";
    return fullText(value);
  }

  /** The bits of an element in hexadecimal. */
  hex(name: string, index: number): string {
    const { used } = this.catalogue.types[this.scene.matrices.get(name)!.type];
    const digits = this.bits(name)![index].toString(16);
    return `0x${digits.padStart(Math.ceil(used / 4), "0")}`;
  }

  /** How one element of D comes about; null if that is undefined or not known. */
  explain(index: number): Explanation | null {
    const { model, scene } = this;
    if (!model || !scene.computes || this.undefinedAt(index)) return null;
    const [m, row, col] = scene.matrices.get("D")!.spot(index);
    return explain(this.catalogue.types, model, lineOf(model, this.of(m), row, col));
  }

  private multiply(model: Model): Patterns {
    const d = this.scene.matrices.get("D")!;
    const found = patterns(this.catalogue.types[model.d], d.size);
    for (let m = 0; m < d.count; m++) {
      const part = multiplyAll(this.catalogue.types, model, this.of(m));
      found.set(part as never, m * d.rows * d.cols);
    }
    return found;
  }

  /** The operands of one matrix of those that an instruction multiplies. */
  private of(m: number): Operands {
    return (this.matrices[m] ??= this.sliced(m));
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
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
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
