// The rows of the time: warps, pieces of asynchronous work, mbarriers, barriers.

import type { Head, Unit } from "../recording/head.js";
import type { Role } from "../recording/roles.js";
import { blockOf, grouped, severalBlocks } from "../session/names.js";

export type Track =
  | { kind: "title"; name: string }
  | { kind: "warp"; name: string; warp: number; role: number }
  | { kind: "role"; name: string; warps: number[]; role: number }
  | { kind: "units"; name: string; matrix: boolean; units: [number: number, unit: Unit][] }
  | { kind: "mbarrier"; name: string; barrier: number }
  | { kind: "barrier"; name: string; barrier: number };

export const HEIGHTS: Record<Track["kind"], number> = {
  title: 20,
  warp: 22,
  role: 22,
  units: 18,
  mbarrier: 18,
  barrier: 18,
};
const MOST = 6; // rows for work of one kind; the rest shares the last

/** Roles that are folded have one row. */
export function tracksOf(head: Head, roles: Role[], folded: ReadonlySet<number>): Track[] {
  return [...warpTracks(head, roles, folded), ...unitTracks(head), ...barrierTracks(head)];
}

function warpTracks(head: Head, roles: Role[], folded: ReadonlySet<number>): Track[] {
  const several = severalBlocks(head);
  let block = "";
  return roles.flatMap(({ warps, name }, role): Track[] => {
    const here = blockOf(head, warps[0]);
    const title: Track[] = several && here !== block ? [{ kind: "title", name: `block ${here}` }] : [];
    block = here;
    if (folded.has(role)) return [...title, { kind: "role", name, warps, role }];
    return [...title, ...warps.map((warp): Track => ({ kind: "warp", name: `warp ${head.warps[warp].warp}`, warp, role }))];
  });
}

/** The warps of a row. */
export function warpsOf(track: Track): number[] {
  return track.kind === "role" ? track.warps : track.kind === "warp" ? [track.warp] : [];
}

/** Work of one kind that is under way at the same time stands in rows below each other. */
function unitTracks(head: Head): Track[] {
  const kinds = new Map<string, [number, Unit][]>();
  for (const [number, unit] of head.units.entries()) {
    if (unit.issued < 0 && unit.done < 0) continue;
    kinds.set(unit.kind, [...(kinds.get(unit.kind) ?? []), [number, unit]]);
  }
  return [...kinds].flatMap(([name, units]) => {
    const rows: [number, Unit][][] = [];
    const ends: number[] = [];
    const sorted = units.sort(([, a], [, b]) => a.issued - b.issued);
    for (const each of sorted) {
      const [, { issued }] = each;
      const free = ends.findIndex((end) => end < issued);
      const row = free >= 0 ? free : Math.min(rows.length, MOST - 1);
      (rows[row] ??= []).push(each);
      ends[row] = Math.max(ends[row] ?? 0, endOf(each[1]));
    }
    return rows.map((found, at): Track => ({ kind: "units", name: at ? "" : name, matrix: /mma/.test(name), units: found }));
  });
}

/** When the work is over: done, and waited for. */
export function endOf({ done, waited }: Unit): number {
  return done < 0 ? Infinity : Math.max(done, waited);
}

/** Where the bytes go, or what is multiplied; the row says which kind it is. */
export function unitLabel(head: Head, { kind, name, bytes, writes }: Unit): string {
  if (!writes.length) return name.startsWith(kind) ? name.slice(kind.length + 1) || name : name;
  const [memory, offset] = writes.reduce((least, each) => (each[1] < least[1] ? each : least));
  const { variables, name: whole } = head.memories[memory];
  const found = variables.find(([, begin, size]) => offset >= begin && offset < begin + size);
  const past = found && offset > found[1] ? `+${offset - found[1]}` : "";
  return `${grouped(bytes)} B to ${found ? found[0] + past : whole}`;
}

function barrierTracks({ barriers }: Head): Track[] {
  return barriers.map(({ name, phases }, barrier): Track => ({
    kind: phases ? "mbarrier" : "barrier",
    name,
    barrier,
  }));
}
