// Computes which lane holds what from a layout.  A layout is one line; each digit of a
// coordinate is a digit of the place.  The line comes from the catalogue with every
// bit spelled out: "L2" is bit 2 of the lane, "R2*3" three values of the register from
// bit 2 up.

export interface Digit {
  axis: string;
  stride: number;
  size: number;
}

export interface Coordinate {
  name: string;
  digits: Digit[];
  size: number;
}

export type Place = Record<string, number>;
export type Element = Record<string, number>;

const TOKEN = /^([A-Z])(\d+)(?:\*(\d+))?$/;
const ASSIGNMENT = /(\w+)\s*=\s*((?:(?:[A-Z]\d+(?:\*\d+)?|0\b)\s*)*)/g;

export class Layout {
  readonly coordinates: Coordinate[] = [];
  readonly data: Coordinate[] = [];
  readonly free: Coordinate[] = [];

  constructor(
    readonly line: string,
    readonly axes: Record<string, number>,
  ) {
    const [data, free = ""] = line.split("|");
    for (const [part, list] of [
      [data, this.data],
      [free, this.free],
    ] as const) {
      for (const [, name, tokens] of part.matchAll(ASSIGNMENT)) {
        const coordinate = read(name, tokens);
        list.push(coordinate);
        this.coordinates.push(coordinate);
      }
    }
  }

  /** The sizes of the data coordinates: the shape of the matrix. */
  get shape(): number[] {
    return this.data.map((each) => each.size);
  }

  /** The element, and the free coordinates, at a place. */
  element(place: Place): Element {
    const found: Element = {};
    for (const { name, digits } of this.coordinates) found[name] = join(digits, place);
    return found;
  }

  /** The one place of an element; free coordinates not given are 0. */
  place(element: Element): Place {
    const place: Place = {};
    for (const axis of Object.keys(this.axes)) place[axis] = 0;
    for (const { name, digits } of this.coordinates) {
      let left = element[name] ?? 0;
      for (const { axis, stride, size } of digits) {
        place[axis] += (left % size) * stride;
        left = Math.floor(left / size);
      }
    }
    return place;
  }

  /** Every place of an element, over the free coordinates that are not pinned. */
  places(element: Element): Place[] {
    let choices: Element[] = [element];
    for (const { name, size } of this.free) {
      if (name in element) continue;
      choices = choices.flatMap((chosen) =>
        Array.from({ length: size }, (_, value) => ({ ...chosen, [name]: value })),
      );
    }
    return choices.map((chosen) => this.place(chosen));
  }

  /** The flat index of each place's element, places in the order of the axes. */
  gather(): Int32Array {
    const names = Object.keys(this.axes);
    const count = names.reduce((total, name) => total * this.axes[name], 1);
    const found = new Int32Array(count);
    const place: Place = {};
    for (let index = 0; index < count; index++) {
      let left = index;
      for (const name of [...names].reverse()) {
        place[name] = left % this.axes[name];
        left = Math.floor(left / this.axes[name]);
      }
      let flat = 0;
      for (const { digits, size } of this.data)
        flat = flat * size + join(digits, place);
      found[index] = flat;
    }
    return found;
  }
}

function read(name: string, tokens: string): Coordinate {
  const digits: Digit[] = [];
  for (const token of tokens.split(/\s+/)) {
    const match = TOKEN.exec(token);
    if (!match) continue; // "0", a coordinate of one value
    const [, axis, position, size] = match;
    digits.push({ axis, stride: 2 ** Number(position), size: Number(size ?? 2) });
  }
  return { name, digits, size: digits.reduce((total, d) => total * d.size, 1) };
}

function join(digits: Digit[], place: Place): number {
  let total = 0;
  let weight = 1;
  for (const digit of digits) {
    total += weight * digitOf(digit, place[digit.axis]);
    weight *= digit.size;
  }
  return total;
}

/** This digit of an axis value. */
export function digitOf(digit: Digit, value: number): number {
  return Math.floor(value / digit.stride) % digit.size;
}
