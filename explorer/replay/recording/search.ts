// Where stepping goes: the next step by instruction, source line, event, problem, NaN.

import type { Recording } from "./recording.js";
import { wordsOf } from "./recording.js";
import { upTo } from "./lists.js";
import { isFloat, typeWritten, type Values } from "./values.js";

export type By = "step" | "instruction" | "line" | "event" | "problem";

/** The step after this one, or before it; null at the ends. */
export function nextStep(run: Recording, step: number, by: By, warp: number, back = false): number | null {
  switch (by) {
    case "step":
      return within(run, step + (back ? -1 : 1));
    case "instruction":
      return back ? orNull(run.lastOf(warp, step - 1)) : orNull(run.nextOf(warp, step));
    case "line":
      return nextLine(run, step, warp, back);
    case "event":
      return neighbour(run.events, step, back);
    case "problem":
      return neighbour(run.stops, step, back);
  }
}

const orNull = (step: number): number | null => (step < 0 ? null : step);

const within = (run: Recording, step: number): number | null =>
  step >= 0 && step < run.count ? step : null;

export function neighbour(sorted: Uint32Array, step: number, back: boolean): number | null {
  const at = upTo(sorted, back ? step - 1 : step);
  return (back ? sorted[at - 1] : sorted[at]) ?? null;
}

/** Where the warp comes to another source line, or to the PTX line where there is none. */
function nextLine(run: Recording, step: number, warp: number, back: boolean): number | null {
  let at = back ? run.lastOf(warp, step - 1) : run.nextOf(warp, step);
  // Backwards, first to the beginning of the line that one stands on.
  for (; at >= 0; at = back ? run.before[at] : run.nextOf(warp, at)) {
    if (run.enters(at)) return at;
  }
  return null;
}

/** The first step after this one, up to the end, at which a line in a list is run. */
export function nextBreak(
  run: Recording,
  step: number,
  lines: readonly { file: string; line: number }[],
  back: boolean,
): number | null {
  const found = [
    ...lines.map(({ file, line }) => neighbour(run.stepsOfLine(file, line), step, back)),
    neighbour(run.stops, step, back),
  ].filter((each) => each !== null);
  if (!found.length) return null;
  return back ? Math.max(...found) : Math.min(...found);
}

/** The next step that writes a NaN into a register, of any active lane. */
export function nextNaN(run: Recording, step: number, values: Values): number | null {
  const { site, at, words, lanes } = run.columns;
  const { sites, registers } = run.head;
  const floats = sites.map((each) => each.writes.map((r) => typeWritten(each, registers[r])));
  const any = floats.map((types) => types.some(isFloat));
  for (let now = step + 1; now < run.count; now++) {
    if (!any[site[now]]) continue;
    let place = at[now];
    for (const [number, register] of sites[site[now]].writes.entries()) {
      const type = floats[site[now]][number];
      const size = wordsOf(registers[register]);
      if (isFloat(type) && holdsNaN(words, place, size, type, lanes[now], values)) return now;
      place += size;
    }
  }
  return null;
}

function holdsNaN(
  words: Uint32Array,
  at: number,
  size: number,
  type: string,
  lanes: number,
  values: Values,
): boolean {
  const each = size / 32;
  for (let lane = 0; lane < 32; lane++) {
    const active = (lanes >>> lane) & 1;
    const place = at + lane * each;
    if (active && values.isNaN(type, words[place], each > 1 ? words[place + 1] : 0)) return true;
  }
  return false;
}
