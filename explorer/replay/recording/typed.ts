// Values of expressions: how types are stored, and how values are written.  Everything is
// as in Python's debugger (debugging/values.py), digit for digit.

import { nearest, numberOf, patternOf, type ElementType } from "../../src/numbers/elements.js";

/** An integer without end, a float, or a truth value. */
export type Scalar = bigint | number | boolean;

/** What went wrong with an expression, in words. */
export class Refused extends Error {}

export const [UNWRITTEN, WRITTEN, IN_FLIGHT] = [0, 1, 2];
/** What stands behind a value of memory that was not written, or is in flight. */
const MARKS = ["?", "", "~"];

/** A number, or one for each lane, or elements of memory. */
export interface Value {
  /** ``u32``, ``f16`` …, ``bool``; ``object`` for integers without end. */
  of: string;
  /** Element after element; of packed ones part after part. */
  data: Scalar[];
  /** Parts of an element: 1 if it is not packed. */
  side: number;
  /** Whether it is a single one. */
  single: boolean;
  /** As PTX calls it; empty for what was computed. */
  type: string;
  lanes: number[];
  /** Where in memory the elements are. */
  offsets: number[] | null;
  states: number[] | null;
  /** The bytes that it was read from: a NaN has many. */
  raw: Uint8Array | null;
}

const FLOATS: Record<string, number> = { f16: 2, bf16: 2, f32: 4, tf32: 4, f64: 8, e4m3: 1, e5m2: 1, ue8m0: 1 };
const WHOLE = ["b", "u", "s"].flatMap((kind) => [8, 16, 32, 64].map((bits) => `${kind}${bits}`));
const TYPES = [...Object.keys(FLOATS), ...[8, 16, 32, 64].flatMap((bits) => ["b", "u", "s"].map((kind) => `${kind}${bits}`)), "b128", "pred"];

export interface Stored {
  /** One part: ``u32``, ``f16`` … */
  of: string;
  side: number;
  /** Bytes of all parts. */
  size: number;
}

/** How a type is stored. */
export function stored(name: string): Stored {
  const [, first, times = ""] = /^([^x]*)(?:x(.*))?$/s.exec(name) ?? [];
  const count = /^\d{1,2}$/.test(times) ? Number(times) : 1;
  const base = times && !(count > 1 && count <= 16) ? name : first;
  if (base === "b128") return { of: "u64", side: 2 * count, size: 16 * count };
  if (base === "pred") return { of: "bool", side: 1, size: 1 };
  if (base in FLOATS) return { of: base === "tf32" ? "f32" : base, side: count, size: FLOATS[base] * count };
  if (WHOLE.includes(base)) {
    const bits = Number(base.slice(1));
    return { of: `${base[0] === "s" ? "s" : "u"}${bits}`, side: count, size: (bits / 8) * count };
  }
  throw new Refused(`no type ${name.slice(0, 40)}; there are ${TYPES.slice(0, -1).join(", ")} and ${TYPES.at(-1)}, and several side by side such as f16x2`);
}

export const bytesOf = (of: string): number => FLOATS[of] ?? (of === "bool" ? 1 : of === "object" ? 8 : Number(of.slice(1)) / 8);

export const isFloat = (of: string): boolean => of in FLOATS;

/** Computes with types: those of matrix elements are in the page. */
export class Typed {
  constructor(private types: Record<string, ElementType>) {}

  /** The parts that some bytes are. */
  decoded(of: string, bytes: Uint8Array): Scalar[] {
    const size = bytesOf(of);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return Array.from({ length: Math.floor(bytes.length / size) }, (_, at) => this.one(of, view, at * size));
  }

  private one(of: string, view: DataView, at: number): Scalar {
    if (of === "f64") return view.getFloat64(at, true);
    if (of === "f32") return view.getFloat32(at, true);
    if (of === "bool") return view.getUint8(at) !== 0;
    if (isFloat(of)) return numberOf(this.types[of], bytesOf(of) === 2 ? view.getUint16(at, true) : view.getUint8(at));
    let word = 0n;
    for (let byte = bytesOf(of) - 1; byte >= 0; byte--) word = (word << 8n) | BigInt(view.getUint8(at + byte));
    return of[0] === "s" ? BigInt.asIntN(8 * bytesOf(of), word) : word;
  }

  /** The bytes of a value; what was computed without end has 64 bits. */
  bytes({ of, data, raw }: Value): Uint8Array {
    if (raw) return raw;
    const size = bytesOf(of);
    const found = new Uint8Array(data.length * size);
    const view = new DataView(found.buffer);
    data.forEach((each, at) => {
      if (of === "f64") view.setFloat64(at * size, Number(each), true);
      else if (of === "f32") view.setFloat32(at * size, Number(each), true);
      else {
        const word = isFloat(of) ? BigInt(patternOf(this.types[of], Number(each))) : BigInt.asUintN(8 * size, BigInt(each));
        for (let byte = 0; byte < size; byte++) found[at * size + byte] = Number((word >> BigInt(8 * byte)) & 255n);
      }
    });
    return found;
  }

  /** A float rounded to a type; what is too large is infinite, or no number. */
  rounded(of: string, value: number): number {
    if (of === "f64" || !Number.isFinite(value)) return !Number.isFinite(value) && !Number.isNaN(value) && /^e4/.test(of) ? NaN : value;
    if (of === "f32") return Math.fround(value);
    const type = this.types[of];
    const found = nearest(type, value);
    if (Math.abs(found) > (type.most ?? Infinity)) return type.infinity ? Math.sign(found) * Infinity : NaN;
    return found === 0 && (value < 0 || Object.is(value, -0)) ? -0 : found;
  }

  // ── texts ─────────────────────────────────────────────────────────────────

  /** Each element in words. */
  texts({ of, data, side, type, states }: Value): string[] {
    const base = type.split("x")[0];
    return Array.from({ length: data.length / side }, (_, at) => {
      const parts = data.slice(at * side, (at + 1) * side);
      const mark = states ? MARKS[states[Math.min(at, states.length - 1)]] : "";
      if (side === 1) return `${this.text(of, parts[0], type)}${mark}`;
      if (type.startsWith("b128")) return `0x${(((parts[1] as bigint) << 64n) | (parts[0] as bigint)).toString(16)}${mark}`;
      return `(${parts.map((each) => this.text(of, each, base)).join(", ")})${mark}`;
    });
  }

  private text(of: string, item: Scalar, type: string): string {
    if (typeof item === "boolean") return item ? "1" : "0";
    if (typeof item === "bigint") {
      if (type === "b8") return item.toString(16).padStart(2, "0");
      return /^b\d+$/.test(type) ? (item < 0n ? `-0x${(-item).toString(16)}` : `0x${item.toString(16)}`) : String(item);
    }
    if (of === "f64") return general(item, 10);
    if (of === "f32" || of === "f16") return shortest(item, (other) => Object.is(this.rounded(of, other), item));
    return general(item, 6);
  }
}

function special(value: number): string | null {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value < 0 ? "-inf" : "inf";
  return value === 0 ? (Object.is(value, -0) ? "-0" : "0") : null;
}

const power = (exponent: number): string => `e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;

/** So many digits of a number, of two that are as near the even ones, and its exponent. */
function digitsOf(value: number, count: number): [digits: string, exponent: number] {
  const [all, exponent] = Math.abs(value).toExponential(60).replace(".", "").split("e");
  const kept = all.slice(0, count);
  const rest = all.slice(count);
  const tie = /^50*$/.test(rest);
  const up = tie ? Number(kept.at(-1)) % 2 === 1 : rest[0] >= "5";
  const whole = String(BigInt(kept) + (up ? 1n : 0n));
  // 9.99 becomes 10.0: one digit more.
  return whole.length > count ? [whole.slice(0, count), Number(exponent) + 1] : [whole, Number(exponent)];
}

/** Digits with a point, or with a power of ten. */
function written(value: number, digits: string, exponent: number, plain: boolean): string {
  const sign = value < 0 ? "-" : "";
  const short = digits.replace(/0+$/, "") || "0";
  if (!plain) return `${sign}${short[0]}${short.length > 1 ? `.${short.slice(1)}` : ""}${power(exponent)}`;
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${short}`;
  const whole = short.padEnd(exponent + 1, "0");
  const fraction = whole.slice(exponent + 1);
  return `${sign}${whole.slice(0, exponent + 1)}${fraction ? `.${fraction}` : ""}`;
}

/** So many digits at most, as C's ``%g`` writes them. */
function general(value: number, count: number): string {
  const known = special(value);
  if (known) return known;
  const [digits, exponent] = digitsOf(value, count);
  return written(value, digits, exponent, exponent >= -4 && exponent < count);
}

/** The fewest digits that give the same float again. */
function shortest(value: number, same: (other: number) => boolean): string {
  const known = special(value);
  if (known) return known;
  for (let count = 1; ; count++) {
    const [digits, exponent] = digitsOf(value, count);
    const near = Number(`${value < 0 ? "-" : ""}${digits}e${exponent - count + 1}`);
    if (count < 17 && !same(near)) continue;
    const size = Math.abs(value);
    return written(value, digits, exponent, size >= 1e-4 && size < 1e16);
  }
}
