// Stores a sparse A as Python's compress stores it: the values that are not zero,
// filled up with zeros, and one code per chunk with their places.

import type { Pattern } from "../records/catalogue.js";
import type { Matrix, Scene } from "../records/matrix.js";
import { patterns, type ElementType, type Patterns } from "./elements.js";

export type Codes = Uint8Array;

/** Codes to begin with: every legal one in turn, so that rows differ. */
export function firstCodes(scene: Scene): Codes {
  const metadata = scene.matrices.get("metadata");
  if (!metadata || !scene.pattern) return new Uint8Array();
  const { problems } = scene.pattern;
  const legal = problems.flatMap((problem, code) => (problem ? [] : [code]));
  return Uint8Array.from({ length: metadata.size }, (_, index) => {
    const [, row, chunk] = metadata.spot(index);
    return legal[(row + 2 * chunk) % legal.length];
  });
}

/** The row of B that meets a stored column of A; -1 for an illegal code. */
export function rowOfB(
  scene: Scene,
  codes: Codes,
  row: number,
  stored: number,
): number {
  const { pattern } = scene;
  if (!pattern) return stored;
  const metadata = scene.matrices.get("metadata")!;
  const chunk = Math.floor(stored / pattern.kept);
  const code = codes[metadata.index(0, row, chunk)];
  const place = pattern.positions[code][stored % pattern.kept];
  return place === undefined ? -1 : chunk * pattern.chunk + place;
}

/** The columns that A has before it is stored. */
export function logicalColumns(scene: Scene, a: Matrix): number {
  return scene.pattern ? (a.cols / scene.pattern.kept) * scene.pattern.chunk : a.cols;
}

export interface Stored {
  bits: Patterns;
  codes: Codes;
}

/** A chunk with more values than are stored. */
export class TooFull extends Error {}

/** The stored values and codes of a whole A; a chunk that is too full is refused. */
export function compressed(scene: Scene, type: ElementType, whole: Patterns): Stored {
  const pattern = scene.pattern!;
  const { kept, chunk } = pattern;
  const size = (whole.length / chunk) * kept;
  const [bits, codes] = [patterns(type, size), new Uint8Array(whole.length / chunk)];
  const sign = type.kind === "float" ? 2 ** (type.bits - 1) : 0;
  const zero = (at: number) => Number(whole[at]) === 0 || Number(whole[at]) === sign;
  for (let number = 0; number < codes.length; number++) {
    const first = number * chunk;
    const filled: number[] = [];
    for (let at = 0; at < chunk; at++) if (!zero(first + at)) filled.push(at);
    const code = codeOf(pattern, filled);
    if (code < 0) throw new TooFull(tooFull(scene, number, filled));
    codes[number] = code;
    pattern.positions[code].forEach((place, at) => {
      bits[number * kept + at] = whole[first + place] as never;
    });
  }
  return { bits, codes };
}

/** The one ordered code that keeps these places, and otherwise the last half. */
function codeOf(pattern: Pattern, filled: number[]): number {
  const { positions, problems, kept, chunk } = pattern;
  const last = Array.from({ length: chunk / 2 }, (_, at) => chunk / 2 + at);
  const legal = positions.flatMap((places, code) => {
    const ascending = places.every((place, at) => !at || place > places[at - 1]);
    return !problems[code] && ascending && places.length === kept ? [code] : [];
  });
  const keeping = legal.filter((code) =>
    filled.every((at) => positions[code].includes(at)),
  );
  // Fewer values than are stored: place 2 is filled up first, then place 3.
  const fills = (code: number) =>
    positions[code]
      .filter((at) => !filled.includes(at))
      .reduce((sum, at) => sum + (last.includes(at) ? at : 100 + at), 0);
  keeping.sort((one, other) => fills(one) - fills(other));
  return keeping[0] ?? -1;
}

function tooFull(scene: Scene, number: number, filled: number[]): string {
  const pattern = scene.pattern!;
  const chunks = scene.matrices.get("A")!.cols / pattern.kept;
  const [row, at] = [Math.floor(number / chunks), number % chunks];
  const columns = `columns ${at * pattern.chunk} to ${(at + 1) * pattern.chunk - 1}`;
  return (
    `A[${row}], ${columns}: ${filled.length} values that are not zero, at ` +
    `${filled.map((place) => at * pattern.chunk + place).join(", ")}; ` +
    `${pattern.text} stores ${pattern.kept}`
  );
}

/** A with its zeros, from what is stored; places of illegal codes stay zero. */
export function decompressed(
  scene: Scene,
  type: ElementType,
  bits: Patterns,
  codes: Codes,
): Patterns {
  const a = scene.matrices.get("A")!;
  const columns = logicalColumns(scene, a);
  const whole = patterns(type, a.rows * columns);
  for (let index = 0; index < bits.length; index++) {
    const [, row, stored] = a.spot(index);
    const k = rowOfB(scene, codes, row, stored);
    if (k >= 0) whole[row * columns + k] = bits[index] as never;
  }
  return whole;
}
