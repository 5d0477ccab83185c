// The errors of arrays, if the launch had numerics: of each element, those of the value
// that it has after a step.

import type { Numerics } from "./head.js";
import type { Recording } from "./recording.js";

export interface ElementError {
  exact: number;
  error: number;
  /** In units of the last place. */
  ulp: number;
  lost: number;
}

/** The errors of one memory; null if there are none. */
export class ArrayErrors {
  /** The bits of the format: the most that can be lost. */
  readonly most: number;
  private each: number;
  private steps: Int32Array;
  private known: Uint8Array;
  private exact: Float64Array;
  private floats: Float32Array[];
  /** Where the errors of each element begin; those of the next one end them. */
  private begins: Int32Array;

  private constructor({ columns }: Recording, output: Numerics["outputs"][number]) {
    const { each, count, most, from = 0, moments = 0 } = output;
    const end = from + moments;
    this.each = each;
    this.most = most;
    this.steps = columns.h_step.subarray(from, end);
    this.known = columns.h_known.subarray(from, end);
    // A Float64Array begins at a multiple of eight bytes: the words are copied.
    this.exact = new Float64Array(columns.h_exact.slice(2 * from, 2 * end).buffer);
    const words = [columns.h_error, columns.h_ulp, columns.h_lost];
    this.floats = words.map((column) => new Float32Array(column.slice(from, end).buffer));
    this.begins = new Int32Array(count + 1);
    for (const element of columns.h_element.subarray(from, end)) this.begins[element + 1]++;
    for (let at = 0; at < count; at++) this.begins[at + 1] += this.begins[at];
  }

  static of(run: Recording, memory: number): ArrayErrors | null {
    const found = run.head.numerics?.outputs.find((each) => each.memory === memory);
    return found ? new ArrayErrors(run, found) : null;
  }

  /** The errors of the element at an offset after a step; null if they are not known. */
  at(offset: number, step: number): ElementError | null {
    const number = this.last(Math.floor(offset / this.each), step);
    if (number < 0 || !this.known[number]) return null;
    const [error, ulp, lost] = this.floats.map((each) => each[number]);
    return { exact: this.exact[number], error, ulp, lost };
  }

  /** Whether a step that was recorded has written the element by then. */
  isWritten(offset: number, step: number): boolean {
    return this.last(Math.floor(offset / this.each), step) >= 0;
  }

  /** The last of the errors of an element by a step; -1 if it has none by then. */
  private last(element: number, step: number): number {
    if (element + 1 >= this.begins.length) return -1;
    const begin = this.begins[element];
    let [low, high] = [begin, this.begins[element + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.steps[middle] <= step) low = middle + 1;
      else high = middle;
    }
    return low > begin ? low - 1 : -1;
  }
}
