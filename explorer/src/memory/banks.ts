// Counts the passes of an access to shared memory.  All banks deliver one word in a
// pass; lanes are served in phases, as many at a time as fill all banks.

import type { Catalogue } from "../records/catalogue.js";

/** The address of a lane without an access. */
export const IDLE = -1;
export const LANES = 32;

/** Lanes that are served together. */
export interface Phase {
  first: number;
  last: number;
  /** For each bank, the number of words that lanes take from it. */
  words: number[];
  /** The most words taken from one bank; 1 means no conflict, 0 no lane. */
  degree: number;
}

export interface Conflicts {
  phases: Phase[];
  degree: number;
  turns: number;
}

/** The bank of a byte. */
export function bankOf({ memory }: Catalogue, byte: number): number {
  return Math.floor(byte / memory.word) % memory.banks;
}

/** The cost of a warp's access, ``width`` bytes at each address. */
export function conflicts(
  catalogue: Catalogue,
  addresses: number[],
  width: number,
): Conflicts {
  const { banks, word } = catalogue.memory;
  const size = Math.min(LANES, (banks * word) / width);
  const phases: Phase[] = [];
  for (let first = 0; first < LANES; first += size) {
    const taken = Array.from({ length: banks }, () => new Set<number>());
    for (const address of addresses.slice(first, first + size)) {
      if (address === IDLE) continue;
      const last = Math.floor((address + width - 1) / word);
      for (let at = Math.floor(address / word); at <= last; at++)
        taken[at % banks].add(at);
    }
    const words = taken.map((each) => each.size);
    phases.push({ first, last: first + size - 1, words, degree: Math.max(...words) });
  }
  const degrees = phases.map((phase) => phase.degree);
  return {
    phases,
    degree: Math.max(...degrees),
    turns: degrees.reduce((total, each) => total + each, 0),
  };
}

/** Rows of units in memory, as accesses see them. */
export interface Rows {
  rows: number;
  units: number;
  address: (row: number, unit: number) => number;
}

/** The addresses of one of the accesses that Python names, 16 bytes for each lane. */
export function accessAddresses(
  access: string,
  { rows, units, address }: Rows,
): number[] {
  const down = Math.max(1, Math.min(4, Math.floor(rows / 8)));
  return Array.from({ length: LANES }, (_, lane) => {
    const matrix = lane >> 3;
    const [row, unit] =
      access === "rows"
        ? [Math.floor(lane / units), lane % units]
        : access === "column"
          ? [lane, 0]
          : [(lane % 8) + 8 * (matrix % down), Math.floor(matrix / down)];
    return row < rows && unit < units ? address(row, unit) : IDLE;
  });
}

/** As a table has it. */
export function waysText(degree: number): string {
  return degree > 1 ? `${degree}-way` : "free";
}
