// A recorded run: who did what in which order, and the values of registers at any step.
// No state is kept: every question is a search in a sorted list.

import type { Columns } from "./columns.js";
import type { Head, Register, Site } from "./head.js";
import { distinct, listed, upTo, type Lists } from "./lists.js";
import { MemoryHistory } from "./memory.js";

/** Where in ``words`` a register's values stand, and the step that wrote them; -1 before
 * the first. */
export interface Held {
  at: number;
  step: number;
  /** The lanes that wrote them, and those that have a value by then: a bit each. */
  by: number;
  lanes: number;
}

/** Whether a lane is among others. */
export const among = (lanes: number, lane: number): boolean => ((lanes >>> lane) & 1) === 1;

const ALL = 0xffffffff;

export function wordsOf({ type, bits }: Register): number {
  if (type === "pred") return 1;
  return bits <= 32 ? 32 : bits;
}

/** A line of a source file, or of the PTX. */
export interface Line {
  file: string;
  line: number;
}

/** What the engine writes into registers of a product that is in flight. */
const POISON = 0x7fff7fff;

/** Opcodes at which warps wait for each other. */
const MEETS = /^(bar|barrier)\.(?!warp)/;

export class Recording {
  readonly count: number;
  /** The file whose lines sites call ``ptx_line``: the first one. */
  readonly ptx: string;
  readonly memories: MemoryHistory[];
  /** Steps at which something asynchronous or a barrier changes, or that a problem names. */
  readonly events: Uint32Array;
  /** The last access of each problem: there playback stops. */
  readonly stops: Uint32Array;
  private byWarp: Lists;
  private bySite: Lists;
  /** Per warp and register: which values were written. */
  private writes: Lists;
  private writeStep: Int32Array;
  private writeAt: Uint32Array;
  /** The lanes that wrote a value, and those that had written one by then. */
  private writeBy: Uint32Array;
  private writeLanes: Uint32Array;
  private late: Map<number, number> | null = null;
  private byUnit: Lists | null = null;
  /** The step before, of the same warp; -1 for its first. */
  readonly before: Int32Array;
  private lineIds = new Map<string, Map<number, number[]>>();
  private counts = new Map<string, Map<number, number>>();
  private ofLine = new Map<string, Uint32Array>();
  /** Per site: the problems whose access it is, and which of both. */
  private problemsAt = new Map<number, [number, number][]>();

  constructor(
    readonly head: Head,
    readonly columns: Columns,
  ) {
    this.count = columns.site.length;
    this.ptx = head.files[0]?.name ?? "";
    this.byWarp = listed(head.warps.length, this.count, (step, put) => put(columns.warp[step]));
    this.bySite = listed(head.sites.length, this.count, (step, put) => put(columns.site[step]));
    [this.writes, this.writeStep, this.writeAt, this.writeBy] = this.indexRegisters();
    this.writeLanes = this.lanesWritten();
    this.before = this.predecessors();
    this.memories = histories(head, columns);
    this.events = this.eventSteps();
    this.stops = distinct(head.problems.flatMap(({ steps }) => lastOf(steps)));
    this.indexLines();
    this.indexProblems();
  }

  // ── steps ─────────────────────────────────────────────────────────────────

  site(step: number): Site {
    return this.head.sites[this.columns.site[step]];
  }

  stepsOfWarp(warp: number): Uint32Array {
    return this.byWarp.of(warp);
  }

  stepsOfSite(site: number): Uint32Array {
    return this.bySite.of(site);
  }

  /** The last step of a warp up to a step; -1 if it has not begun. */
  lastOf(warp: number, step: number): number {
    const steps = this.byWarp.of(warp);
    const at = upTo(steps, step);
    return at ? steps[at - 1] : -1;
  }

  nextOf(warp: number, step: number): number {
    const steps = this.byWarp.of(warp);
    return steps[upTo(steps, step)] ?? -1;
  }

  private predecessors(): Int32Array {
    const last = new Int32Array(this.head.warps.length).fill(-1);
    const found = new Int32Array(this.count);
    for (let step = 0; step < this.count; step++) {
      const warp = this.columns.warp[step];
      found[step] = last[warp];
      last[warp] = step;
    }
    return found;
  }

  private eventSteps(): Uint32Array {
    const { units, barriers, problems, sites } = this.head;
    const all = [
      ...units.flatMap(({ issued, done, waited }) => [issued, done, waited]),
      ...barriers.flatMap(({ phases }) => phases?.map(([step]) => step) ?? []),
      ...sites.flatMap(({ opcode }, site) => (MEETS.test(opcode) ? [...this.bySite.of(site)] : [])),
      ...problems.flatMap(({ steps }) => steps),
    ];
    return distinct(all.filter((step) => step >= 0 && step < this.count));
  }

  // ── registers ─────────────────────────────────────────────────────────────

  private indexRegisters(): [Lists, Int32Array, Uint32Array, Uint32Array] {
    const { site, warp, at, lanes } = this.columns;
    const { sites, registers, warps } = this.head;
    const sizes = registers.map(wordsOf);
    // What registers held before the first step comes first.
    const { i_warp, i_register, i_at, i_lanes } = this.columns;
    const { u_step, u_warp, u_register, u_at } = this.columns;
    let total = i_warp.length + u_step.length;
    for (let step = 0; step < this.count; step++) total += sites[site[step]].writes.length;
    const [ats, keys, by] = [0, 1, 2].map(() => new Uint32Array(total));
    const steps = new Int32Array(total);
    let entry = 0;
    for (; entry < i_warp.length; entry++) {
      keys[entry] = i_warp[entry] * registers.length + i_register[entry];
      [steps[entry], ats[entry], by[entry]] = [-1, i_at[entry], i_lanes[entry]];
    }
    // What units write comes before what the step writes, or after the last one.
    let late = 0;
    const lateUpTo = (last: number, step: number) => {
      for (; late < u_step.length && u_step[late] <= last; late++, entry++) {
        keys[entry] = u_warp[late] * registers.length + u_register[late];
        [steps[entry], ats[entry], by[entry]] = [step, u_at[late], ALL];
      }
    };
    for (let step = 0; step < this.count; step++) {
      lateUpTo(step, step);
      let place = at[step];
      for (const register of sites[site[step]].writes) {
        keys[entry] = warp[step] * registers.length + register;
        [steps[entry], by[entry]] = [step, lanes[step]];
        ats[entry++] = place;
        place += sizes[register];
      }
    }
    lateUpTo(this.count, this.count - 1);
    const count = warps.length * registers.length;
    const lists = listed(count, total, (item, put) => put(keys[item]));
    return [lists, steps, ats, by];
  }

  private lanesWritten(): Uint32Array {
    const { starts, items } = this.writes;
    const found = new Uint32Array(items.length);
    for (let key = 0; key + 1 < starts.length; key++) {
      let lanes = 0;
      for (let at = starts[key]; at < starts[key + 1]; at++) found[items[at]] = lanes |= this.writeBy[items[at]];
    }
    return found;
  }

  private entry(entry: number): Held {
    return { at: this.writeAt[entry], step: this.writeStep[entry], by: this.writeBy[entry], lanes: this.writeLanes[entry] };
  }

  /** What a register held after a step; null if nothing was written yet. */
  held(warp: number, register: number, step: number): Held | null {
    const { starts, items } = this.writes;
    const key = warp * this.head.registers.length + register;
    const at = this.entriesUpTo(key, step);
    return at === starts[key] ? null : this.entry(items[at - 1]);
  }

  /** The same of one lane: the step is the last at which it has written. */
  heldBy(warp: number, register: number, step: number, lane: number): Held | null {
    return this.latest(warp, register, step, (entry) => among(this.writeBy[entry], lane));
  }

  /** The last value of a register; while a product is in flight, the one before it. */
  settled(warp: number, register: number, step: number): Held | null {
    return this.latest(warp, register, step, (entry) => !this.isPoison(this.writeAt[entry]));
  }

  /** The same of one lane. */
  settledBy(warp: number, register: number, step: number, lane: number): Held | null {
    return this.latest(warp, register, step, (entry) => among(this.writeBy[entry], lane) && !this.isPoison(this.writeAt[entry]));
  }

  private latest(warp: number, register: number, step: number, fits: (entry: number) => boolean): Held | null {
    const { starts, items } = this.writes;
    const key = warp * this.head.registers.length + register;
    for (let at = this.entriesUpTo(key, step); at > starts[key]; at--) {
      if (fits(items[at - 1])) return this.entry(items[at - 1]);
    }
    return null;
  }

  /** Whether a register stands there that holds nothing: its product is in flight. */
  isPoison(at: number): boolean {
    const { words } = this.columns;
    for (let lane = 0; lane < 32; lane++) if (words[at + lane] !== POISON) return false;
    return true;
  }

  /** Behind the last write of a warp's register up to a step. */
  private entriesUpTo(key: number, step: number): number {
    const { starts, items } = this.writes;
    let [low, high] = [starts[key], starts[key + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.writeStep[items[middle]] <= step) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The unit that wrote values of a register; -1 if a step did. */
  unitAt(at: number): number {
    return this.lateAt(at) ?? -1;
  }

  /** Whether a product that is in flight hides the register whose values stand there. */
  isHidden(at: number): boolean {
    return this.lateAt(at) !== undefined && this.isPoison(at);
  }

  /** The unit whose values stand there; undefined: they were not written late. */
  private lateAt(at: number): number | undefined {
    const { u_at, u_unit } = this.columns;
    this.late ??= new Map(Array.from(u_at, (place, entry) => [place, u_unit[entry]]));
    return this.late.get(at);
  }

  /** Where the values stand that a unit wrote into a register of a warp; -1: nowhere. */
  writtenBy(unit: number, warp: number, register: number): number {
    const { u_at, u_unit, u_warp, u_register } = this.columns;
    this.byUnit ??= listed(this.head.units.length + 1, u_unit.length, (entry, put) => put(u_unit[entry] < 0 ? this.head.units.length : u_unit[entry]));
    for (const entry of this.byUnit.of(unit)) {
      if (u_warp[entry] === warp && u_register[entry] === register) return u_at[entry];
    }
    return -1;
  }

  /** The registers that a warp ever writes. */
  registersOf(warp: number): number[] {
    const all = this.head.registers.length;
    const first = warp * all;
    return Array.from({ length: all }, (_, register) => register).filter(
      (register) => this.writes.count(first + register) > 0,
    );
  }

  // ── lines ─────────────────────────────────────────────────────────────────

  private indexLines(): void {
    const put = (file: string, line: number, site: number) => {
      if (!file || line <= 0) return;
      const lines = this.lineIds.get(file) ?? new Map<number, number[]>();
      this.lineIds.set(file, lines.set(line, [...(lines.get(line) ?? []), site]));
    };
    this.head.sites.forEach((site, number) => {
      put(site.file, site.line, number);
      put(this.ptx, site.ptx_line, number);
    });
    const { site } = this.columns;
    for (let step = 0; step < this.count; step++) {
      const now = this.head.sites[site[step]];
      this.tally(this.ptx, now.ptx_line);
      if (this.enters(step)) this.tally(now.file, now.line);
    }
  }

  private tally(file: string, line: number): void {
    if (!file || line <= 0) return;
    let lines = this.counts.get(file);
    if (!lines) this.counts.set(file, (lines = new Map()));
    lines.set(line, (lines.get(line) ?? 0) + 1);
  }

  /** Whether a warp comes to a line with this step, or comes to it again: of the source,
   * and of the PTX where there is none. */
  enters(step: number): boolean {
    const { site } = this.columns;
    const before = this.before[step];
    if (before < 0) return true;
    const [now, then] = [this.site(step), this.site(before)];
    if (site[step] <= site[before] || now.file !== then.file) return true;
    return now.file ? now.line !== then.line : now.ptx_line !== then.ptx_line;
  }

  /** How often a line was run, by any warp. */
  runs(file: string, line: number): number {
    return this.counts.get(file)?.get(line) ?? 0;
  }

  mostRuns(file: string): number {
    return Math.max(1, ...(this.counts.get(file)?.values() ?? []));
  }

  sitesOfLine(file: string, line: number): number[] {
    return this.lineIds.get(file)?.get(line) ?? [];
  }

  /** The steps at which a line was run, in order. */
  stepsOfLine(file: string, line: number): Uint32Array {
    const key = `${file}:${line}`;
    const known = this.ofLine.get(key);
    if (known) return known;
    const sites = this.sitesOfLine(file, line);
    const all = Uint32Array.from(sites.flatMap((site) => [...this.bySite.of(site)])).sort();
    const steps = file === this.ptx ? all : all.filter((step) => this.enters(step));
    this.ofLine.set(key, steps);
    return steps;
  }

  /** The problems that name a step of a line, and which access of theirs it is. */
  problemsOfLine(file: string, line: number): [number, number][] {
    if (!this.problemsAt.size) return [];
    return this.sitesOfLine(file, line).flatMap((site) => this.problemsAt.get(site) ?? []);
  }

  private indexProblems(): void {
    for (const [problem, { steps }] of this.head.problems.entries()) {
      for (const [access, step] of steps.entries()) {
        if (step < 0 || step >= this.count) continue;
        const site = this.columns.site[step];
        this.problemsAt.set(site, [...(this.problemsAt.get(site) ?? []), [problem, access]]);
      }
    }
  }
}

function lastOf(steps: number[]): number[] {
  const known = steps.filter((step) => step >= 0);
  return known.length ? [Math.max(...known)] : [];
}

/** One history for each memory; what it holds at first stands one after the other. */
function histories(head: Head, columns: Columns): MemoryHistory[] {
  const { w_memory, r_memory } = columns;
  const count = head.memories.length;
  const writes = listed(count, w_memory.length, (item, put) => {
    if (w_memory[item] < count) put(w_memory[item]);
  });
  const reads = listed(count, r_memory.length, (item, put) => {
    if (r_memory[item] < count) put(r_memory[item]);
  });
  let at = 0;
  return head.memories.map((memory, number) => {
    const begin = at;
    at += memory.size;
    return new MemoryHistory(head, columns, number, begin, writes.of(number), reads.of(number));
  });
}
