// Where two runs are at the same place: the same warp at the same execution of a line.
// Python does the same in replay/aligning.py.

import type { Head, LinePair, Problem } from "./head.js";
import { upTo } from "./lists.js";
import type { Line, Recording } from "./recording.js";

/** The step of another run at which the same warp is where it is at a step; null: it does
 * not have the warp. */
export function aligned(run: Recording, step: number, other: Recording): number | null {
  const own = run.head.warps[run.columns.warp[step]];
  const warp = other.head.warps.findIndex((each) => each.warp === own.warp && String(each.block) === String(own.block));
  if (warp < 0 || !other.stepsOfWarp(warp).length) return null;
  if (sameSites(run.head, other.head)) return sameSite(run, step, other, warp);
  const here = new Visits(run, run.columns.warp[step]);
  const there = new Visits(other, warp);
  const now = here.of(step);
  for (let visit = now; visit >= 0; visit--) {
    const place = here.place(visit);
    const goal = lineIn(run.head, place, other.head);
    const found = goal ? there.at(goal) : [];
    if (!found.length) continue;
    const number = here.at(place).indexOf(visit);
    const wanted = visit === now ? step : here.span(visit).at(-1)!;
    return within(here, visit, wanted, there, found[Math.min(number, found.length - 1)]);
  }
  return other.stepsOfWarp(warp)[0];
}

/** A line of a run as a line of another one; null if that has no such line. */
export function lineIn(head: Head, line: Line, other: Head): Line | null {
  const first = mapped(head.lines ?? [], line, false);
  return first && mapped(other.lines ?? [], first, true);
}

function mapped(pairs: readonly LinePair[], line: Line, back: boolean): Line | null {
  for (const { name, first, blocks } of pairs) {
    if ((back ? first : name) !== line.file) continue;
    for (const [mine, theirs, count] of blocks) {
      const [from, to] = back ? [theirs, mine] : [mine, theirs];
      if (from <= line.line && line.line < from + count) return { file: back ? name : first, line: line.line - from + to };
    }
    return null;
  }
  return line;
}

const known = new WeakMap<object, Map<object, boolean>>();

function sameSites({ sites: one }: Head, { sites: other }: Head): boolean {
  if (one === other) return true;
  let answers = known.get(one);
  if (!answers) known.set(one, (answers = new Map()));
  if (!answers.has(other)) answers.set(other, JSON.stringify(one) === JSON.stringify(other));
  return answers.get(other)!;
}

/** The same instruction, executed as often; or the last time that it was. */
function sameSite(run: Recording, step: number, other: Recording, warp: number): number {
  const site = run.columns.site[step];
  const mine = run.stepsOfWarp(run.columns.warp[step]);
  const before = mine.filter((each) => each <= step && run.columns.site[each] === site).length;
  const steps = other.stepsOfWarp(warp);
  const found = steps.filter((each) => other.columns.site[each] === site);
  return found.length ? found[Math.min(before, found.length) - 1] : steps.at(-1)!;
}

const placeOf = (run: Recording, step: number): Line => {
  const { file, line, ptx_line } = run.site(step);
  return file ? { file, line } : { file: run.ptx, line: ptx_line };
};
const keyOf = ({ file, line }: Line): string => `${file}:${line}`;

/** The lines that a warp comes to, one after the other. */
class Visits {
  private steps: Uint32Array;
  private begins: number[] = [];
  private keys: string[] = [];

  constructor(
    readonly run: Recording,
    warp: number,
  ) {
    this.steps = run.stepsOfWarp(warp);
    const { site } = run.columns;
    let [last, before] = ["", -1];
    this.steps.forEach((step, at) => {
      const key = keyOf(placeOf(run, step));
      if (key !== last || site[step] <= before) {
        this.begins.push(at);
        this.keys.push(key);
      }
      [last, before] = [key, site[step]];
    });
  }

  of(step: number): number {
    return upTo(this.begins, upTo(this.steps, step) - 1) - 1;
  }

  place(visit: number): Line {
    return placeOf(this.run, this.steps[this.begins[visit]]);
  }

  at(place: Line): number[] {
    const key = keyOf(place);
    return [...this.keys.keys()].filter((visit) => this.keys[visit] === key);
  }

  span(visit: number): Uint32Array {
    return this.steps.subarray(this.begins[visit], this.begins[visit + 1] ?? this.steps.length);
  }
}

/** The step of a visit with the same opcode as one of another visit, as often. */
function within(here: Visits, visit: number, step: number, there: Visits, goal: number): number {
  const wanted = [...here.span(visit)].filter((each) => each <= step).map((each) => here.run.site(each).opcode);
  const last = wanted.at(-1);
  const theirs = there.span(goal);
  const found = [...theirs].filter((each) => there.run.site(each).opcode === last);
  if (!found.length) return theirs[Math.min(wanted.length, theirs.length) - 1];
  return found[Math.min(wanted.filter((each) => each === last).length, found.length) - 1];
}

/** The same problem in another run, by its place in the list; -1 if that does not have it. */
export function twin(run: Recording, problem: Problem, other: Recording): number {
  const places = (of: Recording, { steps }: Problem) => steps.map((step) => (step < 0 ? null : placeOf(of, step)));
  const mine = places(run, problem).map((place) => place && lineIn(run.head, place, other.head));
  return other.head.problems.findIndex((each) => {
    if (each.code !== problem.code) return false;
    return places(other, each).every((place, at) => (place && keyOf(place)) === (mine[at] && keyOf(mine[at]!)));
  });
}
