// How the operands of an instruction are stored in shared memory, and what of them one
// instruction touches.  A tile has lines (rows, or columns if these are contiguous) of
// 16-byte units.  A descriptor says where they are, or each lane gives an address.

import type { Catalogue, Instruction } from "../records/catalogue.js";
import { described } from "./described.js";
import { allMoves, matrixRows, moved } from "./lanes.js";
import type { Scene } from "../records/matrix.js";
import { notMovable, type Move } from "./moves.js";
import type { Descriptor, Family, Major, Swizzle } from "./shared.js";

/** What somebody chose; what does not fit an instruction is replaced. */
export interface Choice {
  operand: string;
  /** The move, such as x4 or x4k; empty: the descriptor, or the first move. */
  load: string;
  major: Major;
  swizzle: string;
  /** Leading and stride offset, or the pitch. */
  numbers: number[];
}

/** What one begins with. */
export const USUAL: Choice = {
  operand: "B",
  load: "",
  major: "k",
  swizzle: "128",
  numbers: [],
};

export interface Stored {
  choice: Choice;
  operand: string;
  /** What can be chosen. */
  operands: string[];
  loads: { name: string; text: string }[];
  majors: Major[];
  swizzles: string[];
  swizzle: Swizzle;
  /** Names of the coordinates: across the lines, and along them. */
  across: string;
  along: string;
  lines: number;
  units: number;
  /** Elements of a unit. */
  perUnit: number;
  /** Bits of an element. */
  bits: number;
  unitAt: (line: number, unit: number) => number;
  /** The units that one instruction touches: address to lane, -1 without lanes. */
  touched: Map<number, number>;
  /** The addresses of a warp's lanes; null if the operand has a descriptor. */
  lanes: number[] | null;
  /** Bytes that each lane addresses; null if the operand has a descriptor. */
  laneBytes: number | null;
  /** Bytes of a line, and from line to line; null if the operand has a descriptor. */
  pitch: number | null;
  descriptor: (Descriptor & { family: Family; word: string }) | null;
  move: Move | null;
  /** One after the other: what else to say. */
  notes: string[];
  /** An element to its line, its unit and its byte; null if it is not of this tile. */
  find: (index: number) => [number, number, number] | null;
  /** The element at a place of a unit; -1 if this instruction does not have it. */
  element: (line: number, unit: number, place: number) => number;
  /** The same tile with another swizzle. */
  other: (swizzle: string) => Stored;
}

export function familyOf({ family }: Instruction): Family | null {
  if (family.startsWith("wgmma")) return "wgmma";
  return family.startsWith("tcgen05.mma") ? "tcgen05" : null;
}

/** Whether shared memory is a subject at all. */
export function usesShared({ family }: Instruction): boolean {
  return /^(mma|wgmma|ldmatrix|stmatrix|tcgen05\.mma)/.test(family);
}

/** The operand in shared memory, or why there is nothing to show. */
export function storedOf(
  catalogue: Catalogue,
  scene: Scene,
  choice: Choice,
): Stored | string {
  const { op } = scene;
  if (/^(ld|st)matrix/.test(op.family)) return matrixRows(catalogue, scene, choice);
  const family = familyOf(op);
  const operands = operandsOf(catalogue, scene, family);
  const operand = operands.includes(choice.operand) ? choice.operand : operands[0];
  if (!operand) return refused(scene);
  const here = { ...choice, operand };
  const direct = family && operand !== "D" && !choice.load;
  const made = direct
    ? described(catalogue, scene, family, here)
    : moved(catalogue, scene, here);
  return typeof made === "string" ? made : { ...made, operands };
}

function operandsOf(
  catalogue: Catalogue,
  scene: Scene,
  family: Family | null,
): string[] {
  if (family === "tcgen05") return ["B", "A"];
  const through = ["B", "A", "D"].filter(
    (name) => allMoves(catalogue, scene, name).length,
  );
  return family ? ["B", "A", ...through.filter((name) => name === "D")] : through;
}

export function refused(scene: Scene): string {
  const part = scene.matrices.get("A")?.part;
  const why = (part && notMovable(part)) || "its 16-byte rows are apart in memory";
  return `No ldmatrix loads an operand of ${scene.op.name}: of A, ${why}.`;
}

/** What of a choice cannot be had here: which part of it, and a sentence. */
export function replaced(
  asked: Choice,
  stored: Stored,
): { what: keyof Choice; text: string }[] {
  const { choice, descriptor, pitch } = stored;
  const offsets = descriptor ? [descriptor.leading, descriptor.stride] : [pitch];
  const rows: [keyof Choice, string, string][] = [
    ["operand", "Operand", stored.operand],
    ["load", "The move", choice.load],
    ["major", "Major", choice.major],
    ["swizzle", "Swizzle", choice.swizzle],
    ["numbers", descriptor ? "The offset pair" : "A pitch of", offsets.join(" ")],
  ];
  const text = (value: string | number[]) => (Array.isArray(value) ? value.join(" ") : value);
  return rows.flatMap(([what, name, shown]) => {
    const value = text(asked[what]);
    if (value === text(USUAL[what]) || value === shown) return [];
    const instead = shown ? `${shown} is shown` : "nothing is in its place";
    return { what, text: `${name} ${value} is not possible here; ${instead}.` };
  });
}
