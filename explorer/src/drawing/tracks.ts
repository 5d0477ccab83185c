// The widths of rows and columns.  Elements of one register are close together: where
// there is no room for all of them, the first two and the last one are wide, and those
// between share what is left.  Every element keeps a place of its own, so that
// pointing at it is always exact.

/** Lines along one direction: where each begins, and how wide it is. */
export class Track {
  readonly starts: Float64Array;
  readonly sizes: Float64Array;
  readonly end: number;

  /** ``gap`` pixels stand after every ``every`` lines. */
  constructor(sizes: Float64Array, every = 0, gap = 0) {
    this.sizes = sizes;
    this.starts = new Float64Array(sizes.length);
    let at = 0;
    for (let line = 0; line < sizes.length; line++) {
      if (every && line && line % every === 0) at += gap;
      this.starts[line] = at;
      at += sizes[line];
    }
    this.end = at;
  }

  get count(): number {
    return this.sizes.length;
  }

  /** Where a run of lines ends. */
  stop(line: number): number {
    return this.starts[line] + this.sizes[line];
  }

  /** From the first of some lines to the end of the last. */
  span(first: number, count: number): number {
    return this.stop(first + count - 1) - this.starts[first];
  }

  /** The least that a register takes, and its first element. */
  least(run: number): [number, number] {
    let [block, element] = [Infinity, Infinity];
    for (let line = 0; line < this.count; line += run) {
      block = Math.min(block, this.span(line, run));
      element = Math.min(element, this.sizes[line]);
    }
    return [block, element];
  }

  /** The line at a point; -1 outside and between matrices. */
  at(point: number): number {
    const line = this.last(point);
    return line >= 0 && point < this.stop(line) ? line : -1;
  }

  /** The last line that begins at or before a point; -1 before all. */
  private last(point: number): number {
    let [low, high] = [0, this.starts.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.starts[middle] <= point) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  /** The lines between two points, from the first to one after the last. */
  between(from: number, to: number): [number, number] {
    return [Math.max(0, this.last(from)), this.last(to) + 1];
  }
}

/** The sizes of a register's elements: alike, or with those in the middle small. */
export function spread(block: number, run: number, needed: number): number[] {
  const roomy = run <= 4 || block >= run * needed || block < 3 * needed + 10;
  if (roomy) return Array<number>(run).fill(block / run);
  const wide = Math.max(needed, block * 0.27);
  const narrow = (block - 3 * wide) / (run - 3);
  return Array.from({ length: run }, (_, at) =>
    at < 2 || at === run - 1 ? wide : narrow,
  );
}

/** Registers one after the other, each beginning at a whole pixel: frames are sharp.
 * Where one line of letters just fits, no pixel can be spared. */
export function blocks(
  lines: number,
  run: number,
  block: number,
  needed: number,
): Float64Array {
  const sizes = new Float64Array(lines);
  const exact = block < 1 || (block > 9 && block < 12);
  const begin = (number: number) =>
    exact ? number * block : Math.round(number * block);
  for (let number = 0; number * run < lines; number++) {
    sizes.set(spread(begin(number + 1) - begin(number), run, needed), number * run);
  }
  return sizes;
}
