// Converts raw bits to values and back, for every type of the catalogue.

import {
  isFraction,
  isZero,
  log2,
  magnitude,
  wholeUnits,
  type Exact,
  type Fraction,
  type Rounding,
} from "./exact.js";

/** A row of Python's table of types. */
export interface ElementType {
  bits: number;
  /** Bits that a pattern may have set. */
  used: number;
  kind: "signed" | "unsigned" | "bit" | "float" | "scale" | "raw";
  exponent: number;
  fraction: number;
  infinity: boolean;
  nan: boolean;
  /** Bytes of an item in a NumPy array. */
  storage: number;
  /** The largest finite value. */
  most?: number;
  /** The NaN that operations make, in hexadecimal. */
  made?: string;
}

/** Raw bits, one element per item. */
export type Patterns = Uint32Array<ArrayBuffer> | BigUint64Array<ArrayBuffer>;

export function patterns(type: ElementType, size: number): Patterns {
  return type.bits > 32 ? new BigUint64Array(size) : new Uint32Array(size);
}

export function isInteger(type: ElementType): boolean {
  return type.exponent === 0;
}

export function bias(type: ElementType): number {
  return type.exponent ? 2 ** (type.exponent - 1) - 1 : 0;
}

/** The exponent of the smallest normal number. */
export function least(type: ElementType): number {
  return 1 - bias(type);
}

/** Low bits that the hardware ignores: those of tf32. */
function ignored(type: ElementType): number {
  return type.kind === "float" ? type.bits - 1 - type.exponent - type.fraction : 0;
}

export function limits(type: ElementType): [number, number] {
  const half = 2 ** (type.used - 1);
  return type.kind === "signed" ? [-half, half - 1] : [0, 2 ** type.used - 1];
}

/** One element, exactly. */
export interface Element {
  value: Exact;
  /** Zeros and NaNs have signs, too. */
  negative: boolean;
}

export function decode(type: ElementType, pattern: bigint): Element {
  if (isInteger(type)) {
    const signed = type.kind === "signed" && pattern >> BigInt(type.bits - 1) === 1n;
    const m = signed ? pattern - (1n << BigInt(type.bits)) : pattern;
    return { value: { m, e: 0 }, negative: signed };
  }
  const raw = pattern >> BigInt(ignored(type));
  const ones = (1n << BigInt(type.fraction)) - 1n;
  const fraction = raw & ones;
  const top = 2 ** type.exponent - 1;
  const field = Number(raw >> BigInt(type.fraction)) & top;
  const negative = raw >> BigInt(type.fraction + type.exponent) === 1n;
  if (field === top && type.infinity) {
    const infinite = negative ? -Infinity : Infinity;
    return { value: fraction ? NaN : infinite, negative };
  }
  if (field === top && type.nan && fraction === ones) return { value: NaN, negative };
  // A type without fraction bits has neither zero nor subnormals.
  const normal = field > 0 || type.fraction === 0;
  const m = normal ? fraction | (1n << BigInt(type.fraction)) : fraction;
  const e = (normal ? field : 1) - bias(type) - type.fraction;
  return { value: { m: negative ? -m : m, e }, negative };
}

const POWERS = Float64Array.from({ length: 2098 }, (_, at) => 2 ** (at - 1074));

/** 2**e, looked up: ``**`` takes many times as long. */
export function power(e: number): number {
  return POWERS[e + 1074];
}

const [asNumber, asWords] = (() => {
  const buffer = new ArrayBuffer(8);
  return [new Float64Array(buffer), new Uint32Array(buffer)];
})();
const asBits = new BigUint64Array(asNumber.buffer);

/** The value of a pattern as a float64, which is exact for every type. */
export function numberOf(type: ElementType, pattern: number | bigint): number {
  if (typeof pattern === "bigint") {
    asBits[0] = pattern;
    return asNumber[0];
  }
  if (isInteger(type)) {
    const signed = type.kind === "signed" && pattern >= power(type.bits - 1);
    return signed ? pattern - power(type.bits) : pattern;
  }
  const raw = pattern >>> ignored(type);
  const fraction = raw & ((1 << type.fraction) - 1);
  const top = (1 << type.exponent) - 1;
  const field = (raw >>> type.fraction) & top;
  const sign = raw >>> (type.fraction + type.exponent) ? -1 : 1;
  if (field === top) {
    if (type.infinity) return fraction ? NaN : sign * Infinity;
    if (type.nan && fraction === (1 << type.fraction) - 1) return NaN;
  }
  const normal = field > 0 || type.fraction === 0;
  const significand = normal ? fraction + (1 << type.fraction) : fraction;
  return sign * significand * power((normal ? field : 1) - bias(type) - type.fraction);
}

/** The bits of a value that the type holds; NaN is the one that operations make. */
export function encode(type: ElementType, value: Exact, minusZero = false): bigint {
  if (isInteger(type)) {
    return BigInt.asUintN(type.used, wholeUnits(value as Fraction, 0, "rz"));
  }
  const width = type.fraction;
  const minus = type.kind === "float" ? 1n << BigInt(width + type.exponent) : 0n;
  const shift = BigInt(ignored(type));
  const top = (1n << BigInt(type.exponent)) - 1n;
  if (!isFraction(value)) {
    if (Number.isNaN(value)) {
      if (type.made) return BigInt(`0x${type.made}`);
      return ((1n << BigInt(width + type.exponent)) - 1n) << shift;
    }
    return ((top << BigInt(width)) | (value < 0 ? minus : 0n)) << shift;
  }
  if (isZero(value)) return minusZero ? minus << shift : 0n;
  // A type without fraction bits has no subnormals, and no hidden bit to add.
  if (!width) return BigInt(log2(value) + bias(type));
  const power = Math.max(log2(value), least(type));
  const significand = magnitude(wholeUnits(value, power - width, "rz"));
  const low = (BigInt(power + bias(type) - 1) << BigInt(width)) + significand;
  return (low | (value.m < 0n ? minus : 0n)) << shift;
}

/** The bits of a float64 that the type holds, of 32 bits at most. */
export function patternOf(type: ElementType, value: number): number {
  if (isInteger(type)) return ((value >>> 0) & (power(type.used) - 1)) >>> 0;
  if (Number.isNaN(value)) return parseInt(type.made ?? "7f", 16);
  const width = type.fraction;
  const minus = value < 0 || Object.is(value, -0) ? power(width + type.exponent) : 0;
  const shifted = power(ignored(type));
  if (value === 0) return minus * shifted;
  const top = (1 << type.exponent) - 1;
  if (!Number.isFinite(value)) return (minus + top * power(width)) * shifted;
  const size = Math.abs(value);
  const at = Math.max(exponentOf(size), type.fraction ? least(type) : -bias(type));
  const field = at + bias(type) - (width ? 1 : 0);
  const significand = width ? size * power(width - at) : 0;
  return (minus + field * power(width) + significand) * shifted;
}

/** floor(log2(x)) of a normal float64 that is positive. */
export function exponentOf(x: number): number {
  asNumber[0] = x;
  return (asWords[1] >>> 20) - 1023;
}

/** The nearest number of a type to one that is not too large for it. */
export function nearest(type: ElementType, value: number): number {
  if (isInteger(type) || type.bits > 32 || value === 0) return value;
  const unit = Math.max(exponentOf(Math.abs(value)), least(type)) - type.fraction;
  return toEven(value * power(-unit)) * power(unit);
}

/** The nearest whole number, of two the even one. */
export function toEven(x: number): number {
  const below = Math.floor(x);
  const rest = x - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below;
}

/** The value with ``keep`` fraction bits, within the range of a type. */
export function rounded(
  type: ElementType,
  total: Exact,
  keep: number,
  rounding: Rounding,
): Exact {
  if (!isFraction(total) || total.m === 0n) return total;
  const unit = Math.max(log2(total), least(type)) - keep;
  const value = { m: wholeUnits(total, unit, rounding), e: unit };
  if (value.m === 0n || log2(value) <= bias(type)) return value;
  const positive = total.m > 0n;
  // If f64 rounds toward zero, its largest number is the limit; fused steps give
  // infinity.
  const outward = rounding === "rn" || rounding === (positive ? "rp" : "rm");
  if (type.bits === 64 && !outward) {
    const m = (1n << BigInt(type.fraction + 1)) - 1n;
    return { m: positive ? m : -m, e: bias(type) - type.fraction };
  }
  return positive ? Infinity : -Infinity;
}
