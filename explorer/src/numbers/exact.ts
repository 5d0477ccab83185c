// Exact values: binary fractions, ``m * 2**e``; a plain number only if it is infinite
// or NaN.

export interface Fraction {
  m: bigint;
  e: number;
}
export type Exact = Fraction | number;

export const ZERO: Fraction = { m: 0n, e: 0 };

export function isFraction(x: Exact): x is Fraction {
  return typeof x !== "number";
}

export function magnitude(m: bigint): bigint {
  return m < 0n ? -m : m;
}

/** How many bits a magnitude has. */
export function bitLength(m: bigint): number {
  const text = magnitude(m).toString(16);
  return m === 0n ? 0 : 4 * text.length - Math.clz32(parseInt(text[0], 16)) + 28;
}

/** floor(log2(abs(x))) of a fraction that is not zero. */
export function log2(x: Fraction): number {
  return bitLength(x.m) - 1 + x.e;
}

export function isZero(x: Exact): boolean {
  return isFraction(x) && x.m === 0n;
}

export function isNegative(x: Exact): boolean {
  return isFraction(x) ? x.m < 0n : x < 0;
}

/** x as a multiple of ``2**e``, where e is at most x's own. */
function over(x: Fraction, e: number): bigint {
  return x.m << BigInt(x.e - e);
}

export function power(e: number): Fraction {
  return { m: 1n, e };
}

export function negated(x: Exact): Exact {
  return isFraction(x) ? { m: -x.m, e: x.e } : -x;
}

/** The sum; what is infinite or NaN outweighs every fraction. */
export function add(x: Exact, y: Exact): Exact {
  if (isFraction(x) && isFraction(y)) {
    if (x.m === 0n) return y;
    if (y.m === 0n) return x;
    const e = Math.min(x.e, y.e);
    return { m: over(x, e) + over(y, e), e };
  }
  return (isFraction(x) ? 0 : x) + (isFraction(y) ? 0 : y);
}

export function subtract(x: Exact, y: Exact): Exact {
  return isFraction(x) && isFraction(y) ? add(x, negated(y)) : NaN;
}

export function multiply(x: Exact, y: Exact): Exact {
  if (isFraction(x) && isFraction(y)) return { m: x.m * y.m, e: x.e + y.e };
  return isZero(x) || isZero(y) ? NaN : sign(x) * sign(y) * Infinity;
}

function sign(x: Exact): number {
  return isFraction(x) ? (x.m < 0n ? -1 : 1) : Math.sign(x);
}

export function equal(x: Exact, y: Exact): boolean {
  if (!isFraction(x) || !isFraction(y)) return x === y;
  return isZero(subtract(x, y));
}

/** Which of two magnitudes is larger: positive if it is the first. */
export function compareSizes(x: Fraction, y: Fraction): number {
  const e = Math.min(x.e, y.e);
  const [one, other] = [magnitude(over(x, e)), magnitude(over(y, e))];
  return one > other ? 1 : one < other ? -1 : 0;
}

export type Rounding = "rz" | "rn" | "rm" | "rp";

/** x / 2**unit as a whole number, rounded. */
export function wholeUnits(x: Fraction, unit: number, rounding: Rounding): bigint {
  const shift = x.e - unit;
  if (shift >= 0) return x.m << BigInt(shift);
  const size = BigInt(-shift);
  const below = x.m >> size; // toward minus infinity
  const rest = x.m - (below << size);
  if (rest === 0n || rounding === "rm") return below;
  if (rounding === "rp") return below + 1n;
  if (rounding === "rz") return x.m < 0n ? below + 1n : below;
  const half = 1n << (size - 1n);
  const up = rest > half || (rest === half && (below & 1n) === 1n);
  return up ? below + 1n : below;
}

/** The float64 nearest to x; infinite if x is too large for any. */
export function toNumber(x: Exact): number {
  if (!isFraction(x)) return x;
  if (x.m === 0n) return 0;
  const unit = Math.max(log2(x), -1022) - 52;
  const whole = Number(wholeUnits(x, unit, "rn"));
  // Two factors: 2**unit alone may be too small or too large.
  const half = Math.trunc(unit / 2);
  const size = Math.abs(whole) * 2 ** half * 2 ** (unit - half);
  return x.m < 0n ? -size : size;
}

/** A float64 as the fraction that it is. */
export function fromNumber(x: number): Exact {
  if (!Number.isFinite(x)) return x;
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, x);
  const bits = view.getBigUint64(0);
  const field = Number((bits >> 52n) & 0x7ffn);
  const fraction = bits & ((1n << 52n) - 1n);
  const m = field ? fraction | (1n << 52n) : fraction;
  return { m: x < 0 ? -m : m, e: Math.max(field, 1) - 1075 };
}

// ── as text, in Python's words ──────────────────────────────────────────────

/** Decimal digits and exponent of numerator / denominator, rounded half to even. */
function digits(
  numerator: bigint,
  denominator: bigint,
  count: number,
): [string, number] {
  let exponent = numerator.toString().length - denominator.toString().length;
  const scaled = (at: number): [bigint, bigint] =>
    at >= 0
      ? [numerator, denominator * 10n ** BigInt(at)]
      : [numerator * 10n ** BigInt(-at), denominator];
  const [n, d] = scaled(exponent);
  if (n < d) exponent -= 1;
  const [top, bottom] = scaled(exponent - count + 1);
  let whole = top / bottom;
  const twice = 2n * (top - whole * bottom);
  if (twice > bottom || (twice === bottom && (whole & 1n) === 1n)) whole += 1n;
  if (whole === 10n ** BigInt(count))
    return [`1${"0".repeat(count - 1)}`, exponent + 1];
  return [whole.toString(), exponent];
}

function ratio(x: Fraction): [bigint, bigint] {
  const m = magnitude(x.m);
  return x.e >= 0 ? [m << BigInt(x.e), 1n] : [m, 1n << BigInt(-x.e)];
}

/** As ``format(x, ".3g")`` of Python writes it. */
export function general(x: Fraction, count: number): string {
  if (x.m === 0n) return "0";
  const [found, exponent] = digits(...ratio(x), count);
  return (x.m < 0n ? "-" : "") + placed(found.replace(/0+$/, ""), exponent, count);
}

/** Digits with their point: plain if the exponent is from -4 to below ``limit``. */
function placed(found: string, exponent: number, limit: number): string {
  if (exponent < -4 || exponent >= limit) {
    const rest = found.length > 1 ? `.${found.slice(1)}` : "";
    const size = String(Math.abs(exponent)).padStart(2, "0");
    return `${found[0]}${rest}e${exponent < 0 ? "-" : "+"}${size}`;
  }
  if (exponent < 0) return `0.${"0".repeat(-exponent - 1)}${found}`;
  const whole = found.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return found.length > exponent + 1 ? `${whole}.${found.slice(exponent + 1)}` : whole;
}

/** As ``repr`` of Python writes a float64: the shortest text that means it. */
export function repr(x: number): string {
  if (Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return x < 0 ? "-inf" : "inf";
  const negative = x < 0 || Object.is(x, -0) ? "-" : "";
  if (x === 0) return `${negative}0.0`;
  const [mantissa, exponent] = Math.abs(x).toExponential().split("e");
  const text = placed(mantissa.replace(".", ""), Number(exponent), 16);
  return negative + (/[.e]/.test(text) ? text : `${text}.0`);
}

/** An exact number as decimal text; marked if it had to be rounded. */
export function text(x: Exact): string {
  if (!isFraction(x)) return repr(x);
  if (x.m === 0n) return "0";
  const size = log2(x);
  if (isWhole(x) && size < 50) {
    const whole = over(x, Math.min(0, x.e)) >> BigInt(Math.max(0, -x.e));
    if (magnitude(whole) < 10n ** 15n) return whole.toString();
  }
  const near = toNumber(x);
  if (!Number.isFinite(near)) return `${general(decimal28(x), 17)} (rounded)`;
  return equal(fromNumber(near), x) ? repr(near) : `${repr(near)} (rounded)`;
}

/** A number as text of at most ``width`` characters, exact if it fits. */
export function short(x: Exact, width = 11): string {
  const whole = text(x);
  if (whole.length <= width || !isFraction(x)) return whole;
  const near = toNumber(x);
  if (near === 0) return Object.is(near, -0) ? "-0" : "0"; // too small for a float64
  const number = Number.isFinite(near) ? (fromNumber(near) as Fraction) : decimal28(x);
  let found = whole;
  for (let count = width; count > 0; count--) {
    found = general(number, count);
    if (found.length <= width) return found;
  }
  return found;
}

export function isWhole(x: Fraction): boolean {
  return x.e >= 0 || (x.m & ((1n << BigInt(-x.e)) - 1n)) === 0n;
}

/** Rounded to 28 digits: what Python has where a number is beyond every float64. */
function decimal28(x: Fraction): Fraction {
  const [found, exponent] = digits(...ratio(x), 28);
  const m = BigInt(found) * 10n ** BigInt(exponent - 27);
  return { m: x.m < 0n ? -m : m, e: 0 };
}
