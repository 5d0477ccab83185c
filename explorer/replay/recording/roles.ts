// Roles: warps of a block that run the same instructions.

import type { Recording } from "./recording.js";

export interface Role {
  warps: number[];
  name: string;
}

/** Of all instructions of two warps, this share is of both, if they have one role. */
const ALIKE = 0.75;

export function rolesOf(run: Recording): Role[] {
  const { warps } = run.head;
  const sites = warps.map((_, warp) => new Set(Array.from(run.stepsOfWarp(warp), (step) => run.columns.site[step])));
  const found: Role[] = [];
  for (const [warp, { block }] of warps.entries()) {
    const fits = ({ warps: [first] }: Role) => String(warps[first].block) === String(block) && alike(sites[first], sites[warp]);
    const role = found.find(fits);
    if (role) role.warps.push(warp);
    else found.push({ warps: [warp], name: "" });
  }
  for (const role of found) role.name = nameOf(run, role);
  return found;
}

function alike(one: Set<number>, other: Set<number>): boolean {
  let both = 0;
  for (const each of one) if (other.has(each)) both++;
  const all = one.size + other.size - both;
  return !all || both >= ALIKE * all;
}

/** ``warps 0–3``. */
function nameOf({ head }: Recording, { warps }: Role): string {
  const numbers = warps.map((each) => head.warps[each].warp).sort((one, other) => one - other);
  if (numbers.length === 1) return `warp ${numbers[0]}`;
  const dense = numbers.every((each, at) => each === numbers[0] + at);
  return `warps ${dense ? `${numbers[0]}–${numbers.at(-1)}` : numbers.join(", ")}`;
}
