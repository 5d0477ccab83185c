// Lists of numbers: sorted ones to search in, and many short ones in one array.

/** How many numbers of a sorted list are at most this one. */
export function upTo(sorted: ArrayLike<number>, value: number, from = 0, to = sorted.length): number {
  let [low, high] = [from, to];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Many lists, one after the other; list k is from starts[k] to starts[k + 1]. */
export class Lists {
  constructor(
    readonly starts: Uint32Array,
    readonly items: Uint32Array,
  ) {}

  of(key: number): Uint32Array {
    return this.items.subarray(this.starts[key], this.starts[key + 1]);
  }

  count(key: number): number {
    return this.starts[key + 1] - this.starts[key];
  }
}

/**
 * Sorts numbers 0 … count - 1 into lists, in their order.  ``keys`` calls back with each
 * key of a number; a number may stand in several lists.
 */
export function listed(
  lists: number,
  count: number,
  keys: (item: number, put: (key: number) => void) => void,
): Lists {
  const starts = new Uint32Array(lists + 1);
  const tally = (key: number) => void starts[key + 1]++;
  for (let item = 0; item < count; item++) keys(item, tally);
  for (let key = 0; key < lists; key++) starts[key + 1] += starts[key];
  const items = new Uint32Array(starts[lists]);
  const next = starts.slice();
  let now = 0;
  const put = (key: number) => void (items[next[key]++] = now);
  for (; now < count; now++) keys(now, put);
  return new Lists(starts, items);
}

/** Sorted, each once. */
export function distinct(values: Iterable<number>): Uint32Array {
  return Uint32Array.from(new Set(values)).sort();
}
