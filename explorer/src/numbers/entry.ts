// Reads values that were typed, pasted or loaded.  Text and .npy files become
// elements; what the type cannot hold is refused, and what had to be rounded is
// counted.

import {
  bias,
  encode,
  isInteger,
  least,
  limits,
  patterns,
  type ElementType,
  type Patterns,
} from "./elements.js";
import {
  bitLength,
  fromNumber,
  magnitude,
  repr,
  ZERO,
  type Fraction,
} from "./exact.js";

import { shortened } from "../records/near.js";

/** Something that cannot be taken, in words for whoever gave it. */
export class Refused extends Error {}

/** A number as it was given: a ratio, raw bits, or infinite or NaN. */
export type Given =
  { top: bigint; bottom: bigint; minusZero?: boolean } | { raw: bigint } | number;

/** Rows of what was given, with the words for each. */
export interface Table {
  rows: number;
  columns: number;
  at: (row: number, col: number) => Given;
  word: (row: number, col: number) => string;
}

export interface Fitted {
  bits: Patterns;
  /** How many had to be rounded, and the first of them in words. */
  rounded: number;
  example: string;
}

// ── one number ──────────────────────────────────────────────────────────────

const NUMBER = /^([+-]?)(\d*)\.?(\d*)(?:[eE]([+-]?\d+))?$/;

/** A word as a number: decimal, ``inf``, ``nan``, or ``0x`` and raw bits. */
export function numberIn(word: string): Given {
  const plain = word.replace("−", "-").replace("∞", "inf");
  if (/^0x[0-9a-f]+$/i.test(plain)) return { raw: BigInt(plain) };
  if (/^[+-]?inf(inity)?$/i.test(plain)) return plain[0] === "-" ? -Infinity : Infinity;
  if (/^[+-]?nan$/i.test(plain)) return NaN;
  const found = NUMBER.exec(plain);
  if (!found || !(found[2] || found[3])) {
    throw new Refused(
      "not a number; write decimal numbers, inf, nan, or bits as 0x3c00",
    );
  }
  const [, sign, whole, fraction, power] = found;
  // Beyond this every type has nothing: 1e-2000 is as good as any smaller number.
  const exponent = Math.max(-2000, Math.min(2000, Number(power ?? 0)));
  const places = exponent - fraction.length;
  const size = BigInt(whole + fraction) * (sign === "-" ? -1n : 1n);
  return {
    top: places > 0 ? size * 10n ** BigInt(places) : size,
    bottom: places < 0 ? 10n ** BigInt(-places) : 1n,
    minusZero: sign === "-",
  };
}

/** The nearest element, and whether it is exactly the number. */
export function fit(
  name: string,
  type: ElementType,
  given: Given,
): { bits: bigint; exact: boolean } {
  if (typeof given === "number")
    return { bits: special(name, type, given), exact: true };
  if ("raw" in given) {
    if (given.raw >> BigInt(type.used)) {
      throw new Refused(`${name} has ${type.used} bits`);
    }
    return { bits: given.raw, exact: true };
  }
  return isInteger(type) ? fitInteger(name, type, given) : fitFloat(name, type, given);
}

function special(name: string, type: ElementType, value: number): bigint {
  if (Number.isNaN(value)) {
    if (!type.nan) throw new Refused(`${name} has no NaN; ${range(name, type)}`);
  } else if (!type.infinity || (type.kind === "scale" && value < 0)) {
    throw new Refused(`${name} has no infinity; ${range(name, type)}`);
  }
  return encode(type, value);
}

interface Ratio {
  top: bigint;
  bottom: bigint;
  minusZero?: boolean;
}

function fitInteger(name: string, type: ElementType, { top, bottom }: Ratio) {
  const value = divided(top, bottom);
  const [low, high] = limits(type);
  if (value < BigInt(low) || value > BigInt(high)) throw new Refused(range(name, type));
  const bits = BigInt.asUintN(type.used, value);
  return { bits, exact: value * bottom === top };
}

function fitFloat(name: string, type: ElementType, { top, bottom, minusZero }: Ratio) {
  if (type.kind === "scale" && (top < 0n || minusZero)) {
    throw new Refused(`${name} has no sign; ${range(name, type)}`);
  }
  if (top === 0n && type.fraction) {
    return { bits: encode(type, ZERO, minusZero), exact: true };
  }
  const most = fromNumber(type.most!) as Fraction;
  const over = shifted(magnitude(top), -most.e) > shifted(bottom * most.m, most.e);
  // A type without fraction bits has no zero, and nothing rounds to it.
  const lowest = type.fraction ? least(type) : -bias(type);
  let log = bitLength(top) - bitLength(bottom);
  if (shifted(magnitude(top), -log) < shifted(bottom, log)) log -= 1;
  if (over || (!type.fraction && (top === 0n || log < lowest))) {
    throw new Refused(range(name, type));
  }
  const unit = Math.max(log, lowest) - type.fraction;
  const m = divided(shifted(top, -unit), shifted(bottom, unit));
  const exact = m * shifted(bottom, unit) === shifted(top, -unit);
  return { bits: encode(type, { m, e: unit }, minusZero), exact };
}

/** x * 2**by, for a positive ``by``; otherwise x, whose partner is shifted instead. */
function shifted(x: bigint, by: number): bigint {
  return by > 0 ? x << BigInt(by) : x;
}

/** The nearest whole number to a ratio, of two the even one. */
function divided(top: bigint, bottom: bigint): bigint {
  const size = magnitude(top);
  const below = size / bottom;
  const twice = 2n * (size - below * bottom);
  const up = twice > bottom || (twice === bottom && (below & 1n) === 1n);
  const found = up ? below + 1n : below;
  return top < 0n ? -found : found;
}

/** What a type holds. */
export function range(name: string, type: ElementType): string {
  if (isInteger(type)) {
    const [low, high] = limits(type);
    return `${name} holds integers from ${low} to ${high}`;
  }
  if (!type.fraction) return `${name} holds powers of two from 2^-127 to 2^127`;
  return `${name} holds magnitudes up to ${repr(type.most!).replace(/\.0$/, "")}`;
}

// ── tables ──────────────────────────────────────────────────────────────────

/** Lines of numbers, with commas, semicolons, tabs or blanks between them. */
export function tableIn(text: string): Table {
  const lines = text
    .replace(/[[\]()]/g, " ")
    .split(/\r?\n/)
    .map((line) =>
      line
        .trim()
        .split(/\s*[,;\t]\s*|\s+/)
        .filter(Boolean),
    )
    .filter((line) => line.length);
  if (!lines.length) throw new Refused("there are no numbers in it");
  const columns = lines[0].length;
  const uneven = lines.findIndex((line) => line.length !== columns);
  const word = (row: number, col: number) => lines[row][col];
  const at = (row: number, col: number) => numberIn(word(row, col));
  if (uneven > 0) {
    lines.forEach((line, row) => line.forEach((_, col) => readable(word, at, row, col)));
    throw new Refused(
      `row 0 has ${columns} numbers and row ${uneven} has ${lines[uneven].length}; ` +
        "all rows must be equally long",
    );
  }
  return { rows: lines.length, columns, at, word };
}

/** A word that is no number is refused before the shape is. */
function readable(word: Table["word"], at: Table["at"], row: number, col: number): void {
  try {
    at(row, col);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    const named = `"${shortened(word(row, col))}" in row ${row}, column ${col}`;
    throw new Refused(`${named} is ${error.message}`);
  }
}

/** Refuse a table that has another shape, or whose words are not numbers. */
export function refuseShape({ rows, columns, at, word }: Table, wanted: string): never {
  for (let place = 0; place < rows * columns; place++) {
    readable(word, at, Math.floor(place / columns), place % columns);
  }
  throw new Refused(`${wanted}; given ${rows} × ${columns}`);
}

/** A table as elements of a type; the first that does not fit is named. */
export function fitted(
  operand: string,
  name: string,
  type: ElementType,
  table: Table,
): Fitted {
  const { rows, columns } = table;
  const bits = patterns(type, rows * columns);
  let [rounded, example] = [0, ""];
  for (let at = 0; at < bits.length; at++) {
    const [row, col] = [Math.floor(at / columns), at % columns];
    const where = `${operand}[${row}, ${col}] = ${table.word(row, col)}`;
    try {
      const found = fit(name, type, table.at(row, col));
      bits[at] = (type.bits > 32 ? found.bits : Number(found.bits)) as never;
      if (!found.exact && !rounded++) example = where;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      throw new Refused(`${where}: ${error.message}`);
    }
  }
  return { bits, rounded, example };
}
