// Values of registers and of memory in their types.  The types of matrix elements come
// with the page, from Python's table.

import { nearest, numberOf, type ElementType } from "../../src/numbers/elements.js";
import type { Register, Site } from "./head.js";

export type Types = Record<string, ElementType>;

const BITS = /\.(f16x2|bf16x2|f16|bf16|tf32|f32|f64|e4m3x2|e5m2x2|[subf]\d+)(?![\w])/g;

export function bitsOf(type: string): number {
  if (type === "pred") return 1;
  const packed = /^(\w+?)x(\d)$/.exec(type);
  if (packed) return bitsOf(packed[1]) * Number(packed[2]);
  if (/^e\d+m\d+$/.test(type) || type === "ue8m0" || type === "ue4m3") return 8;
  if (type === "tf32") return 32;
  return Number(/\d+/.exec(type)?.[0] ?? 32);
}

export function bytesOf(type: string): number {
  return Math.max(1, bitsOf(type) >> 3);
}

export const isFloat = (type: string): boolean => /^(f|bf|tf|e\d|ue)/.test(type);

/**
 * The type in which an instruction writes a register.  Registers without a type of their
 * own, as compilers like them, have the one that the instruction names.
 */
export function typeWritten(site: Site, register: Register): string {
  if (!register.type.startsWith("b")) return register.type;
  for (const [, type] of site.opcode.matchAll(BITS)) {
    if (type.startsWith("b") && !type.startsWith("bf")) continue;
    if (bitsOf(type) === register.bits) return type;
    // Two halves in a word: D and A of a multiplication with f16.
    if (/^b?f16$/.test(type) && register.bits === 32) return `${type}x2`;
    if (/^[su]/.test(type) && bitsOf(type) < register.bits) return type[0] + register.bits;
  }
  return register.type;
}

/** The type that the value of a byte has, where its variable says none; "" if unknown. */
export function typeAccessed(opcode: string): string {
  const types = [...opcode.matchAll(BITS)].map(([, type]) => type);
  return types.findLast((type) => !/^b\d/.test(type)) ?? types.at(-1) ?? "";
}

const scratch = new DataView(new ArrayBuffer(8));

function double(low: number, high: number): number {
  scratch.setUint32(0, high);
  scratch.setUint32(4, low);
  return scratch.getFloat64(0);
}

function single(word: number): number {
  scratch.setUint32(0, word);
  return scratch.getFloat32(0);
}

export const hex = (word: number, digits: number): string =>
  `0x${(word >>> 0).toString(16).padStart(digits, "0")}`;

/** The number of fewest digits that is this one in its type. */
function shortest(value: number, same: (other: number) => boolean): string {
  if (Object.is(value, -0)) return "-0";
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "inf").replace("NaN", "nan");
  for (let digits = 1; digits < 17; digits++) {
    const near = Number(value.toPrecision(digits));
    if (same(near)) return tidy(near);
  }
  return tidy(value);
}

function tidy(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential().replace("e+", "e");
  return String(value);
}

export class Values {
  constructor(private types: Types) {}

  /** A number of at most 64 bits; for heat maps, so packed types have their first. */
  number(type: string, low: number, high = 0): number {
    if (type === "f32") return single(low);
    if (type === "f64") return double(low, high);
    const base = /^(\w+?)x\d$/.exec(type)?.[1] ?? type;
    const element = this.types[base];
    if (isFloat(base) && element) return numberOf(element, mask(low, element.bits));
    const bits = bitsOf(type);
    if (bits > 32) return Number(this.whole(type, low, high));
    const word = mask(low, bits);
    return type.startsWith("s") && word >= 2 ** (bits - 1) ? word - 2 ** bits : word;
  }

  private whole(type: string, low: number, high: number): bigint {
    const all = (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0);
    return type.startsWith("s") ? BigInt.asIntN(64, all) : all;
  }

  text(type: string, low: number, high = 0, ...rest: number[]): string {
    const packed = /^(\w+?)x(\d)$/.exec(type);
    if (packed) return this.texts(packed[1], Number(packed[2]), low).join(", ");
    const bits = bitsOf(type);
    if (type === "pred") return low & 1 ? "true" : "false";
    if (type === "f32") return shortest(single(low), (x) => Math.fround(x) === single(low));
    if (type === "f64") return shortest(double(low, high), (x) => x === double(low, high));
    const element = this.types[type];
    if (isFloat(type) && element) {
      const value = numberOf(element, mask(low, element.bits));
      return shortest(value, (x) => nearest(element, x) === value);
    }
    if (bits === 128) return `0x${[...rest].reverse().concat(high, low).map((w) => (w >>> 0).toString(16).padStart(8, "0")).join("")}`;
    if (type.startsWith("b")) {
      return bits > 32 ? `0x${this.whole(type, low, high).toString(16).padStart(16, "0")}` : hex(mask(low, bits), bits / 4);
    }
    return bits > 32 ? String(this.whole(type, low, high)) : String(this.number(type, low));
  }

  private texts(type: string, count: number, word: number): string[] {
    const bits = bitsOf(type);
    return Array.from({ length: count }, (_, at) => this.text(type, word >>> (at * bits)));
  }

  isNaN(type: string, low: number, high = 0): boolean {
    if (type === "f32") return (low & 0x7fffffff) >>> 0 > 0x7f800000;
    if (!isFloat(type)) return false;
    const packed = /^(\w+?)x(\d)$/.exec(type);
    if (!packed) return Number.isNaN(this.number(type, low, high));
    const bits = bitsOf(packed[1]);
    return Array.from({ length: Number(packed[2]) }, (_, at) => low >>> (at * bits)).some((each) =>
      Number.isNaN(this.number(packed[1], each)),
    );
  }
}

function mask(word: number, bits: number): number {
  return bits >= 32 ? word >>> 0 : (word & (2 ** bits - 1)) >>> 0;
}

/** A word of memory: little-endian, of up to four bytes. */
export function wordAt(bytes: Uint8Array, offset: number, size: number): number {
  let word = 0;
  for (let at = Math.min(4, size) - 1; at >= 0; at--) word = word * 256 + (bytes[offset + at] ?? 0);
  return word;
}
