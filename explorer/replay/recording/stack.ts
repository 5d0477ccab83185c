// The call stack of a warp: the functions that are under way, and the lines into which others
// were inlined.

import type { Line, Recording } from "./recording.js";

export interface Frame {
  function: string;
  /** The step at which it is. */
  step: number;
}

/** Of each warp, which of its steps are in another function than the step before. */
const known = new WeakMap<Recording, Map<number, Uint32Array>>();

function changesOf(run: Recording, warp: number): Uint32Array {
  let found = known.get(run);
  if (!found) known.set(run, (found = new Map<number, Uint32Array>()));
  let changes = found.get(warp);
  if (!changes) {
    const steps = run.stepsOfWarp(warp);
    const name = (at: number) => run.site(steps[at]).function;
    const places = Array.from(steps.keys()).filter((at) => at > 0 && name(at) !== name(at - 1));
    found.set(warp, (changes = Uint32Array.from(places)));
  }
  return changes;
}

/** The functions that are under way at a step of a warp, innermost first. */
export function framesAt(run: Recording, warp: number, step: number): Frame[] {
  const steps = run.stepsOfWarp(warp);
  const last = run.lastOf(warp, step);
  if (last < 0) return [];
  const stack: Frame[] = [{ function: run.site(steps[0]).function, step: steps[0] }];
  for (const at of changesOf(run, warp)) {
    if (steps[at] > step) break;
    const [before, name] = [steps[at - 1], run.site(steps[at]).function];
    stack[stack.length - 1] = { function: run.site(before).function, step: before };
    const under = stack.findIndex((frame) => frame.function === name);
    if (under >= 0) stack.splice(under);
    stack.push({ function: name, step: steps[at] });
  }
  stack[stack.length - 1] = { ...stack[stack.length - 1], step: last };
  return stack.reverse();
}

/** For each instruction of an inlined function: the lines it was inlined at, outermost first,
 * and its own. */
export type Inlined = Record<string, [file: string, line: number][]>;

/** The lines of a step: of the kernel, and of what was inlined there; innermost first. */
export function linesAt(run: Recording, inlined: Inlined, step: number): Line[] {
  const found = inlined[run.columns.site[step]];
  if (found) return found.map(([file, line]) => ({ file, line })).reverse();
  const { file, line, ptx_line } = run.site(step);
  return [file && line > 0 ? { file, line } : { file: run.ptx, line: ptx_line }];
}
