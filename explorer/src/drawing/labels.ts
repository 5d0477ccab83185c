// The text in a block, if there is room for it.

import type { Codes } from "../numbers/values.js";
import type { Sheet } from "./sheet.js";

export const LEAST = 9; // pixels: smaller letters are not written
const MOST = 12;
export const LETTER = 0.605; // of the size: the width of a letter
const LINE = [0, 1.06, 1.2, 1.2]; // of the size: the height of one line, of each of more

/** What can be written about elements and the registers that hold them. */
export interface Names {
  /** Whose register it is: ``T13``. */
  head: (index: number) => string;
  /** The element in it: ``a5``, or its value. */
  element: (index: number) => string;
  /** All elements from the first to the last: ``a0–7``. */
  range: (first: number, last: number) => string;
  /** Whether elements say something without their lane: values and codes do. */
  alone: boolean;
  /** Where a value is: ``d12``; only with values, which leave no room for it elsewhere. */
  place?: (index: number) => string;
  /** The most letters that each of them has. */
  letters: { head: number; element: number; range: number; place?: number };
}

/** How a sheet's blocks are labelled; all of them in the same way. */
export type Form =
  | "full" // the lane above, in each cell the element and its value
  | "elements" // the lane above, an element in each cell
  | "beside" // the lane at the left, elements below each other
  | "cells" // an element in each cell, no lane
  | "range" // the lane above, the first and the last element below
  | "line" // both on one line
  | "head" // the lane alone
  | "number" // its number alone, on a phone
  | "none";

export interface Writing {
  form: Form;
  size: number;
}

/** What is written of elements: their values, where there are some, and the codes. */
export interface Written {
  values: { has(name: string): boolean; text(name: string, index: number): string } | null;
  codes: Codes;
}

export function namesOf({ values, codes }: Written, sheet: Sheet): Names {
  const { matrix } = sheet;
  if (matrix.name === "metadata") return codesOf(codes, sheet);
  const numbers = values?.has(matrix.name);
  const head = headOf(sheet);
  const element = numbers
    ? (index: number) => values!.text(matrix.name, index)
    : elementOf(sheet);
  const inside = (index: number) => element(index).replace(/^[a-z]|^E/i, "");
  const range = (first: number, last: number) => {
    if (first === last) return element(first);
    return numbers
      ? `${element(first)}…${element(last)}`
      : `${element(first)}–${inside(last)}`;
  };
  const last = matrix.size - 1;
  const block = sheet.across * sheet.down - 1;
  const long = numbers ? longest(last, element) : element(last).length;
  const letters = {
    head: head(last).length,
    element: long,
    // Two values stand beside each other in any case.
    range: block ? (numbers ? (block > 1 ? 2 * long + 1 : 0) : 2 * long) : long,
  };
  if (!numbers || !matrix.part) return { head, element, range, alone: !!numbers, letters };
  const place = elementOf(sheet);
  const more = { ...letters, place: place(last).length };
  return { head, element, range, alone: true, place, letters: more };
}

function headOf({ matrix, across, down }: Sheet): (index: number) => string {
  if (!matrix.part) return () => "";
  const boxed = matrix.tensor && across * down > 1;
  return (index) => {
    const column = boxed ? ` C${matrix.register[index]}` : "";
    return `T${matrix.lane[index] % (matrix.tensor ? 128 : 32)}${column}`;
  };
}

function elementOf({ matrix, across, down }: Sheet): (index: number) => string {
  if (!matrix.part) return () => "";
  const { letter } = matrix.part;
  if (!matrix.tensor) return (index) => `${letter}${matrix.ordinal(index)}`;
  const several = matrix.perRegister > 1;
  return (index) => {
    const inside = several ? `E${matrix.slot[index]}` : "";
    return across * down > 1 ? inside : `C${matrix.register[index]}${inside}`;
  };
}

/** Of metadata the codes are written, one hexadecimal digit each. */
function codesOf(codes: Codes, sheet: Sheet): Names {
  return {
    head: headOf(sheet),
    element: (index) => codes[index].toString(16),
    range: () => "",
    alone: true,
    letters: { head: headOf(sheet)(sheet.matrix.size - 1).length, element: 1, range: 0 },
  };
}

/** In a large matrix a sample, from the last one back, shows how long labels get. */
function longest(last: number, label: (index: number) => string): number {
  const step = Math.ceil((last + 1) / 4096);
  let found = 1;
  for (let index = last; index >= 0; index -= step) {
    found = Math.max(found, label(index).length);
  }
  return found;
}

/** Pixels that so many letters take. */
export function width(letters: number, size = LEAST): number {
  return letters * LETTER * size + 4;
}

/** The largest letters for a box; 0 where the least do not fit. */
function fitting(wide: number, high: number, letters: number, lines = 1): number {
  if (!letters) return 0;
  const size = Math.min(MOST, (wide - 3) / (LETTER * letters), high / lines / LINE[lines]);
  return size < LEAST ? 0 : Math.floor(size * 4) / 4;
}

/** The letters of a lane of a warp: ``T31``. */
const LANE = 3;

/** The form that says most in a block, given the cells of its first elements. */
export function writing(
  { across, down }: Sheet,
  { letters, alone }: Names,
  block: { width: number; height: number },
  cell: { width: number; height: number },
): Writing {
  const { width: w, height: h } = block;
  const { head, element, range, place = 0 } = letters;
  const stacked = Math.min(fitting(w, h, head, 2), fitting(cell.width, h, element, 2));
  const beside = Math.min(
    fitting(w - 7, h, head + element),
    fitting(w, cell.height, element),
  );
  const cells = alone ? fitting(cell.width, cell.height, element) : 0;
  const three = Math.min(fitting(w, h, head, 3), fitting(cell.width, h, Math.max(element, place), 3));
  const forms: [Form, number][] = [
    ["full", place && down === 1 ? three : 0],
    ["elements", down === 1 ? stacked : 0],
    ["beside", across === 1 && down > 1 ? beside : 0],
    ["cells", across * down > 1 ? cells : 0],
    ["range", Math.min(fitting(w, h, head, 2), fitting(w, h, range, 2))],
    ["line", range ? fitting(w, h, head + 1 + range) : 0],
    ["cells", cells],
    ["head", fitting(w, h, head)],
    ["number", head > 1 && head <= LANE ? fitting(w, h, head - 1) : 0],
  ];
  const [form, size] = forms.find(([, each]) => each) ?? ["none", 0];
  return { form, size };
}
