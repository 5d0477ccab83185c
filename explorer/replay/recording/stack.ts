// The call stack of a warp: the functions that are under way, and the lines into which others
// were inlined.

import type { Line, Recording } from "./recording.js";

export interface Frame {
  function: string;
  /** The step at which it is. */
  step: number;
}

/** The functions that are under way at a step of a warp, innermost first. */
export function framesAt(run: Recording, warp: number, step: number): Frame[] {
  const steps = run.stepsOfWarp(warp);
  const stack: Frame[] = [];
  let before = -1;
  for (const each of steps) {
    if (each > step) break;
    const name = run.site(each).function;
    if (!stack.length) stack.push({ function: name, step: each });
    else if (name !== run.site(before).function) {
      stack[stack.length - 1] = { function: run.site(before).function, step: before };
      const known = stack.findIndex((frame) => frame.function === name);
      if (known >= 0) stack.splice(known);
      stack.push({ function: name, step: each });
    }
    before = each;
  }
  if (stack.length) stack[stack.length - 1] = { ...stack[stack.length - 1], step: before };
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
