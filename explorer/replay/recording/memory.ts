// One memory at any step: its bytes, who wrote each of them, who will, who read it.
// Who wrote each byte last is kept for some moments; from there, the writes up to the
// step are done again.

import type { Columns } from "./columns.js";
import type { Head, Memory, Unit } from "./head.js";
import { listed, upTo, type Lists } from "./lists.js";

export const UNWRITTEN = 0;
export const WRITTEN = 1;
export const IN_FLIGHT = 2;

/** A read or a write; ``step`` is when it was done. */
export interface Access {
  step: number;
  offset: number;
  size: number;
  lane: number;
  unit: number;
  /** Its number among all reads, or all writes, of the run. */
  item: number;
  /** The lanes that did the same at the same step, if it was not a unit. */
  lanes: number[];
}

const BUCKET = 5; // accesses are looked up by pieces of 32 bytes
const KEPT = 48 << 20; // bytes for all kept moments of one memory
const NONE = 65535;
const NEVER = new Set<number>();

export class MemoryHistory {
  readonly memory: Memory;
  /** The bytes after ``step``, and for each of them its last write, or -1. */
  readonly bytes: Uint8Array;
  readonly writer: Int32Array;
  /** Which of them have a value: before the first step, and after ``step``. */
  private first: Uint8Array;
  private live: Uint8Array;
  step = -1;
  private done = 0;
  private order: Uint32Array;
  private steps: Uint32Array;
  private every = 1;
  private kept: Int32Array[] = [];
  private buckets: { writes: Lists; reads: Lists } | null = null;
  private units: [unit: number, Unit][];
  private repeated: Map<number, Set<number>> | null = null;

  constructor(
    private head: Head,
    private columns: Columns,
    readonly number: number,
    private begin: number,
    writes: Uint32Array,
    private reads: Uint32Array,
  ) {
    this.memory = head.memories[number];
    const { size } = this.memory;
    this.bytes = columns.initial.slice(begin, begin + size);
    this.writer = new Int32Array(size).fill(-1);
    this.first = Uint8Array.from({ length: size }, (_, offset) => (this.defined(offset) ? WRITTEN : UNWRITTEN));
    this.live = this.first.slice();
    this.order = inOrder(writes, columns.w_step);
    this.steps = this.order.map((write) => columns.w_step[write]);
    this.reads = inOrder(reads, columns.r_step);
    this.units = [...head.units.entries()].filter(([, unit]) =>
      unit.writes.some(([memory]) => memory === number),
    );
  }

  get size(): number {
    return this.memory.size;
  }

  get writeCount(): number {
    return this.order.length;
  }

  /** Whether the byte had a value before the first step. */
  defined(offset: number): boolean {
    const bit = this.begin + offset;
    return ((this.columns.defined[bit >> 3] >> (bit & 7)) & 1) === 1;
  }

  /** Whether the byte has a value at the step sought, whatever is in flight to it. */
  known(offset: number): boolean {
    return this.live[offset] === WRITTEN;
  }

  /** Whether a unit in flight hides the byte at the step sought: reads see poison. */
  hidden(offset: number): boolean {
    const write = this.writer[offset];
    return write >= 0 && this.isHidden(write);
  }

  // ── the moment ────────────────────────────────────────────────────────────

  /** Make ``bytes`` and ``writer`` those after a step. */
  seek(step: number): void {
    if (step === this.step) return;
    const target = upTo(this.steps, step);
    this.step = step;
    if (!this.kept.length && target > 0) this.keep();
    const frame = Math.floor(target / this.every);
    if (target < this.done || frame * this.every > this.done) this.restore(frame);
    this.advance(target);
  }

  /** Read the bytes after another step; what was sought stays sought. */
  peek<T>(step: number, read: (bytes: Uint8Array) => T): T {
    const before = this.step;
    this.seek(step);
    const found = read(this.bytes);
    this.seek(before);
    return found;
  }

  /**
   * Some bytes as a unit found them when it was done, or as it left them.  What was
   * written to hide bytes while work is in flight does not count.
   */
  around(unit: number, step: number, after: boolean, wanted: Uint8Array): Uint8Array {
    const { w_at, w_offset, w_size, bytes, initial } = this.columns;
    const found = initial.slice(this.begin, this.begin + this.size);
    const left = wanted.slice();
    let open = left.reduce((sum, each) => sum + each, 0);
    for (let at = this.edge(unit, step, after) - 1; at >= 0 && open > 0; at--) {
      const write = this.order[at];
      if (this.isHidden(write)) continue;
      const [from, to] = [w_at[write], w_offset[write]];
      for (let past = 0; past < w_size[write]; past++) {
        if (!left[to + past]) continue;
        found[to + past] = bytes[from + past];
        left[to + past] = 0;
        open--;
      }
    }
    return found;
  }

  /** How many writes were made before the results of a unit, or up to their last. */
  private edge(unit: number, step: number, after: boolean): number {
    const done = this.head.units[unit]?.done ?? -1;
    if (done < 0) return upTo(this.steps, step);
    const { w_unit } = this.columns;
    const end = upTo(this.steps, done);
    let [first, last] = [-1, -1];
    for (let at = upTo(this.steps, done - 1); at < end; at++) {
      if (w_unit[this.order[at]] !== unit || this.isHidden(this.order[at])) continue;
      if (first < 0) first = at;
      last = at;
    }
    if (first < 0) return after ? end : upTo(this.steps, done - 1);
    return after ? last + 1 : first;
  }

  /** Whether a write only hides bytes that a unit in flight will write. */
  private isHidden(write: number): boolean {
    const unit = this.columns.w_unit[write];
    if (unit < 0) return false;
    const { issued, done } = this.head.units[unit];
    if (done < 0 || this.columns.w_step[write] < done) return true;
    return issued === done && this.again(unit).has(write);
  }

  /** Of a unit that was done at once, the writes whose bytes it writes again. */
  private again(unit: number): Set<number> {
    const { w_unit, w_offset } = this.columns;
    if (!this.repeated) {
      this.repeated = new Map();
      const last = new Map<string, number>();
      for (const write of this.order) {
        const of = w_unit[write];
        if (of < 0 || this.head.units[of].issued !== this.head.units[of].done) continue;
        const before = last.get(`${of} ${w_offset[write]}`);
        if (before !== undefined) this.repeated.set(of, (this.repeated.get(of) ?? new Set<number>()).add(before));
        last.set(`${of} ${w_offset[write]}`, write);
      }
    }
    return this.repeated.get(unit) ?? NEVER;
  }

  /** All writes once, with the moments that are kept on the way. */
  private keep(): void {
    const most = Math.max(1, Math.min(256, Math.floor(KEPT / (4 * this.size + 1))));
    this.every = Math.max(256, Math.ceil((this.order.length + 1) / most));
    const { w_offset, w_size } = this.columns;
    const { order, every } = this;
    const last = this.writer.slice();
    for (let at = 0; at < order.length; at++) {
      if (at % every === 0) this.kept.push(last.slice());
      fill(last, order[at], w_offset[order[at]], w_size[order[at]]);
    }
    if (order.length % every === 0) this.kept.push(last);
  }

  private restore(frame: number): void {
    const { w_at, w_offset, bytes, initial } = this.columns;
    this.writer.set(this.kept[frame]);
    this.live.set(this.first);
    this.done = frame * this.every;
    for (let offset = 0; offset < this.size; offset++) {
      const write = this.writer[offset];
      if (write < 0) this.bytes[offset] = initial[this.begin + offset];
      else {
        this.bytes[offset] = bytes[w_at[write] + offset - w_offset[write]];
        this.live[offset] = WRITTEN;
      }
    }
  }

  private advance(target: number): void {
    const { w_at, w_offset, w_size, bytes } = this.columns;
    for (; this.done < target; this.done++) {
      const write = this.order[this.done];
      const [from, to, size] = [w_at[write], w_offset[write], w_size[write]];
      for (let at = 0; at < size; at++) this.bytes[to + at] = bytes[from + at];
      fill(this.writer, write, to, size);
      fill(this.live, WRITTEN, to, size);
    }
  }

  /** The state of every byte at the step sought. */
  states(): Uint8Array {
    const found = this.live.slice();
    for (const [, { writes }] of this.flying(this.step)) {
      for (const [memory, offset, size] of writes) {
        if (memory === this.number) found.fill(IN_FLIGHT, offset, offset + size);
      }
    }
    return found;
  }

  /** The units that have begun to write here and are not done. */
  flying(step: number): [unit: number, Unit][] {
    return this.units.filter(
      ([, { issued, done }]) => issued <= step && issued >= 0 && (done < 0 || done > step),
    );
  }

  /** Those of them that may still write a byte. */
  mayWrite(step: number, offset: number): [unit: number, Unit][] {
    return this.flying(step).filter(([, { writes }]) =>
      writes.some(
        ([memory, begin, size]) =>
          memory === this.number && begin <= offset && offset < begin + size,
      ),
    );
  }

  /** The reads of one step, as first byte and number of bytes. */
  readNow(step: number): [offset: number, size: number][] {
    const { r_step, r_offset, r_size } = this.columns;
    const found: [number, number][] = [];
    let at = first(this.reads, r_step, step);
    for (; at < this.reads.length && r_step[this.reads[at]] === step; at++) {
      found.push([r_offset[this.reads[at]], r_size[this.reads[at]]]);
    }
    return found;
  }

  /** The same of writes. */
  writtenNow(step: number): [offset: number, size: number][] {
    const { w_offset, w_size } = this.columns;
    const found: [number, number][] = [];
    const end = upTo(this.steps, step);
    for (let at = upTo(this.steps, step - 1); at < end; at++) {
      found.push([w_offset[this.order[at]], w_size[this.order[at]]]);
    }
    return found;
  }

  // ── who ───────────────────────────────────────────────────────────────────

  /** The write that a byte's value comes from; null if it is as it was at first. */
  wrote(offset: number): Access | null {
    const write = this.writer[offset];
    return write < 0 ? null : this.access(write, "w", offset);
  }

  /** The same of any step, before a write; or of when a unit was done, before it wrote. */
  wroteAt(step: number, offset: number, before = -1, until = Infinity): Access | null {
    const { w_step, w_unit } = this.columns;
    const all = this.covering("w", offset).filter((each) => each < until);
    const own = before < 0 ? -1 : all.findIndex((each) => w_unit[each] === before && !this.isHidden(each));
    const found = before < 0 ? all : (own < 0 ? all : all.slice(0, own)).filter((each) => !this.isHidden(each));
    const write = found.findLast((each) => w_step[each] <= step);
    return write === undefined ? null : this.access(write, "w", offset);
  }

  /** What a lane read at a step; null if it read nothing here. */
  readBy(step: number, lane: number): { offset: number; size: number } | null {
    const { r_step, r_lane, r_offset, r_size } = this.columns;
    let at = first(this.reads, r_step, step);
    for (; at < this.reads.length && r_step[this.reads[at]] === step; at++) {
      const read = this.reads[at];
      if (r_lane[read] === lane) return { offset: r_offset[read], size: r_size[read] };
    }
    return null;
  }

  /** The step of the next write of a byte, or of the one before; null if there is none. */
  nextWrite(step: number, offset: number, back = false): number | null {
    const { w_step } = this.columns;
    const steps = this.covering("w", offset).map((write) => w_step[write]);
    if (!back) return steps.find((each) => each > step) ?? null;
    return steps.findLast((each) => each < step) ?? null;
  }

  /** The steps at which some bytes are written, in order. */
  writesOf(offset: number, size = 1): number[] {
    const { w_step, w_offset, w_size } = this.columns;
    if (size === 1) return this.covering("w", offset).map((write) => w_step[write]);
    const found: number[] = [];
    for (const write of this.order) {
      if (w_offset[write] < offset + size && w_offset[write] + w_size[write] > offset) found.push(w_step[write]);
    }
    return found;
  }

  /** All reads of a byte, in order, the lanes of a step together. */
  readers(offset: number): Access[] {
    const { r_step, r_unit } = this.columns;
    const found: Access[] = [];
    let last = -1;
    for (const read of this.covering("r", offset)) {
      const same = last >= 0 && r_step[read] === r_step[last] && r_unit[read] === r_unit[last];
      if (!same) found.push(this.access(read, "r", offset));
      last = read;
    }
    return found;
  }

  /** Of lines of so many bytes, the first and the last place in a line that is used. */
  columnsUsed(line: number): [number, number] {
    const { w_offset, w_size, r_offset, r_size } = this.columns;
    let [first, last] = [line, 0];
    const use = (offset: number, size: number) => {
      const begin = offset % line;
      first = Math.min(first, begin);
      last = Math.max(last, Math.min(line - 1, begin + size - 1));
    };
    for (const write of this.order) use(w_offset[write], w_size[write]);
    for (const read of this.reads) use(r_offset[read], r_size[read]);
    for (const [, { writes }] of this.units) {
      for (const [memory, offset, size] of writes) if (memory === this.number) use(offset, size);
    }
    return last < first ? [0, 127] : [first, last];
  }

  /** Whether anybody ever reads or writes some bytes, or they had values before. */
  touched(offset: number, size: number): boolean {
    const { w_offset, w_size, r_offset, r_size } = this.columns;
    const meets = (begin: number, length: number) => begin < offset + size && begin + length > offset;
    if (this.order.some((write) => meets(w_offset[write], w_size[write]))) return true;
    if (this.reads.some((read) => meets(r_offset[read], r_size[read]))) return true;
    for (let at = offset; at < offset + size; at++) if (this.defined(at)) return true;
    return false;
  }

  /** The type in which bytes are accessed, by what instructions and units are called. */
  accessedAs(offset: number, size: number, type: (name: string) => string): string {
    const { site, w_step, w_offset, w_unit, r_step, r_offset, r_unit } = this.columns;
    const { sites, units } = this.head;
    const name = (step: number, unit: number) => (unit < 0 ? sites[site[step]].opcode : units[unit].name);
    const types = new Set<string>();
    for (const item of this.reads) {
      if (r_offset[item] >= offset && r_offset[item] < offset + size) types.add(type(name(r_step[item], r_unit[item])));
    }
    for (const item of this.order) {
      if (w_offset[item] >= offset && w_offset[item] < offset + size) types.add(type(name(w_step[item], w_unit[item])));
    }
    const found = [...types].filter(Boolean);
    return found.find((each) => !/^b\d/.test(each)) ?? found[0] ?? "";
  }

  private covering(kind: "w" | "r", offset: number): number[] {
    const { writes, reads } = this.index();
    const [order, lists] = kind === "w" ? [this.order, writes] : [this.reads, reads];
    const { [`${kind}_offset` as const]: offsets, [`${kind}_size` as const]: sizes } = this.columns;
    const found: number[] = [];
    for (const at of lists.of(offset >> BUCKET)) {
      const item = order[at];
      if (offsets[item] <= offset && offset < offsets[item] + sizes[item]) found.push(item);
    }
    return found;
  }

  private index(): { writes: Lists; reads: Lists } {
    if (this.buckets) return this.buckets;
    const { w_offset, w_size, r_offset, r_size } = this.columns;
    const count = (this.size >> BUCKET) + 1;
    const sorted = (order: Uint32Array, offsets: Uint32Array, sizes: Uint16Array) =>
      listed(count, order.length, (at, put) => {
        const begin = offsets[order[at]];
        const end = begin + Math.max(1, sizes[order[at]]) - 1;
        for (let bucket = begin >> BUCKET; bucket <= end >> BUCKET; bucket++) put(bucket);
      });
    const writes = sorted(this.order, w_offset, w_size);
    const reads = sorted(this.reads, r_offset, r_size);
    return (this.buckets = { writes, reads });
  }

  private access(item: number, kind: "w" | "r", offset: number): Access {
    const c = this.columns;
    const [steps, offsets, sizes, lanes, units] =
      kind === "w"
        ? [c.w_step, c.w_offset, c.w_size, c.w_lane, c.w_unit]
        : [c.r_step, c.r_offset, c.r_size, c.r_lane, c.r_unit];
    const step = steps[item];
    const order = kind === "w" ? this.order : this.reads;
    const together: number[] = [];
    let at = first(order, steps, step);
    for (; at < order.length && steps[order[at]] === step; at++) {
      const each = order[at];
      const covers = offsets[each] <= offset && offset < offsets[each] + sizes[each];
      if (covers && lanes[each] !== NONE && units[each] < 0) together.push(lanes[each]);
    }
    const lane = lanes[item] === NONE ? -1 : lanes[item];
    return { step, offset: offsets[item], size: sizes[item], lane, unit: units[item], item, lanes: together };
  }
}

/** ``fill`` of few elements is slower than a loop. */
function fill(array: Int32Array | Uint8Array, value: number, from: number, size: number): void {
  if (size > 32) array.fill(value, from, from + size);
  else for (let at = from; at < from + size; at++) array[at] = value;
}

/** The first place in a list whose step is not before this one. */
function first(order: Uint32Array, steps: Uint32Array, step: number): number {
  let [low, high] = [0, order.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[order[middle]] < step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** By step; those of one step stay in their order. */
function inOrder(items: Uint32Array, steps: Uint32Array): Uint32Array {
  for (let at = 1; at < items.length; at++) {
    if (steps[items[at - 1]] > steps[items[at]]) {
      return Uint32Array.from(items).sort((a, b) => steps[a] - steps[b] || a - b);
    }
  }
  return items;
}
