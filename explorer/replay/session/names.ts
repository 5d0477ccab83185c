// How warps, lanes, steps and memories are called.

import type { Access } from "../recording/memory.js";
import type { Head } from "../recording/head.js";
import type { Recording } from "../recording/recording.js";

const blockName = (block: number | number[] | null): string => {
  if (block === null || block === -1) return "";
  if (typeof block === "number") return String(block);
  const [x, y = 0, z = 0] = block;
  return y || z ? `(${[x, y, z].join(", ")})` : String(x);
};

export function blockOf(head: Head, warp: number): string {
  return blockName(head.warps[warp]?.block ?? null);
}

export function severalBlocks({ warps }: Head): boolean {
  return new Set(warps.map(({ block }) => blockName(block))).size > 1;
}

export function warpName(head: Head, number: number): string {
  const warp = head.warps[number];
  if (!warp) return "no warp";
  const name = `warp ${warp.warp}`;
  return severalBlocks(head) ? `block ${blockName(warp.block)} ${name}` : name;
}

export function memoryName(head: Head, number: number): string {
  const { name: long, block } = head.memories[number];
  const [, kind, of] = /^(\w+) memory of block (.*)$/.exec(long) ?? [];
  const alike = head.memories.filter(({ name }) => name.startsWith(`${kind} memory of block`));
  const name = !kind ? long : alike.length > 1 ? `${kind}, block ${of}` : kind;
  const blocks = new Set(head.memories.map((each) => blockName(each.block)).filter(Boolean));
  return blocks.size > 1 && blockName(block) && !/block/.test(name) ? `${name}, block ${blockName(block)}` : name;
}

const LANE = 2048; // bytes of a lane of tensor memory: 512 columns

/** A place in a memory: its address, or lane and column. */
export function placeIn(head: Head, memory: number, offset: number): string {
  if (head.memories[memory].kind !== "tensor") return `0x${offset.toString(16)}`;
  return `lane ${Math.floor(offset / LANE)}, column ${Math.floor((offset % LANE) / 4)}`;
}

const NUMBERS = new Intl.NumberFormat("en-US");
export const grouped = (value: number): string => NUMBERS.format(value).replaceAll(",", "\u202f");

/** Lanes as ranges: ``0–3, 8``. */
export function lanesText(lanes: readonly number[]): string {
  const sorted = [...new Set(lanes)].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let at = 0; at < sorted.length; at++) {
    const first = sorted[at];
    while (sorted[at + 1] === sorted[at] + 1) at++;
    parts.push(first === sorted[at] ? String(first) : `${first}–${sorted[at]}`);
  }
  return parts.join(", ");
}

export function activeLanes(mask: number): number[] {
  return Array.from({ length: 32 }, (_, lane) => lane).filter((lane) => (mask >>> lane) & 1);
}

/** Who did an access: a unit, or lanes of a warp. */
export function agent(run: Recording, { step, unit, lanes }: Access): string {
  if (unit >= 0) return run.head.units[unit]?.name ?? `unit ${unit}`;
  const warp = warpName(run.head, run.columns.warp[step]);
  if (!lanes.length) return warp;
  return `${warp}, lane${lanes.length > 1 ? "s" : ""} ${lanesText(lanes)}`;
}

/** Where a step stands: the source line, else the line of PTX. */
export function lineText(run: Recording, step: number): string {
  const { file, line, ptx_line } = run.site(step);
  return file && line > 0 ? `${file.split("/").at(-1)}:${line}` : `PTX line ${ptx_line}`;
}

export type Kind = "compute" | "control" | "load" | "store" | "wait" | "copy" | "matrix";

const KINDS: [RegExp, Kind][] = [
  [/^(bar|barrier|mbarrier|fence|membar|griddepcontrol)\b|[._]wait|^cp\.async\.(commit|bulk\.commit)/, "wait"],
  [/^(wgmma|mma|wmma\.mma|tcgen05\.mma)/, "matrix"],
  [/^(cp\.|st\.async|red\.async|cp$|multimem|tcgen05\.(cp|shift|commit))/, "copy"],
  [/^(ld|tex|tld|suld|wmma\.load|tcgen05\.ld)/, "load"],
  [/^(st|atom|red|sust|wmma\.store|tcgen05\.st)/, "store"],
  [/^(bra|brx|ret|exit|call|trap)/, "control"],
];

export function kindOf(opcode: string): Kind {
  return KINDS.find(([pattern]) => pattern.test(opcode))?.[1] ?? "compute";
}

/** Which of the eight hues of lanes, and which shade of it; the later counts more. */
export const HUES: Record<Kind, [hue: number, shade: number, words: string]> = {
  control: [7, 2, "branch"],
  compute: [7, 0, "compute"],
  load: [0, 0, "load"],
  store: [1, 0, "store"],
  wait: [3, 0, "wait, arrive, barrier"],
  copy: [2, 0, "asynchronous copy"],
  matrix: [4, 0, "matrix"],
};
