// The errors of arrays, if the launch had numerics.  They are those of the last value of
// each element: from its last write on.

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
  private exact: Float64Array;
  private floats: Float32Array[];
  private last: Int32Array;

  private constructor(
    private run: Recording,
    memory: number,
    readonly each: number,
    private count: number,
    /** The bits of the format: the most that can be lost. */
    readonly most: number,
    at: number,
  ) {
    const { e_exact, e_error, e_ulp, e_lost } = run.columns;
    // A Float64Array begins at a multiple of eight bytes: the words are copied.
    this.exact = new Float64Array(e_exact.slice(2 * at, 2 * (at + count)).buffer);
    this.floats = [e_error, e_ulp, e_lost].map((words) => new Float32Array(words.slice(at, at + count).buffer));
    this.last = this.lastWrites(memory);
  }

  static of(run: Recording, memory: number): ArrayErrors | null {
    const found = run.head.numerics?.outputs.find((each) => each.memory === memory);
    return found ? new ArrayErrors(run, memory, found.each, found.count, found.most, found.at) : null;
  }

  /** The errors of the element at an offset; null if there is none. */
  at(offset: number): ElementError | null {
    const number = Math.floor(offset / this.each);
    if (number >= this.count) return null;
    const [error, ulp, lost] = this.floats.map((each) => each[number]);
    return { exact: this.exact[number], error, ulp, lost };
  }

  /** Whether an element has its last value after a step, and a recorded step wrote it. */
  isLast(offset: number, step: number): boolean {
    const last = this.last[Math.floor(offset / this.each)];
    return last >= 0 && last <= step;
  }

  /** The last write of each element; -1 if no step that was recorded writes it. */
  private lastWrites(memory: number): Int32Array {
    const { w_memory, w_offset, w_size, w_step } = this.run.columns;
    const found = new Int32Array(this.count).fill(-1);
    for (let write = 0; write < w_step.length; write++) {
      if (w_memory[write] !== memory) continue;
      const end = Math.min(this.count, Math.ceil((w_offset[write] + w_size[write]) / this.each));
      for (let at = Math.floor(w_offset[write] / this.each); at < end; at++) found[at] = Math.max(found[at], w_step[write]);
    }
    return found;
  }
}
