// What is an instruction called, in short?  The long name stands elsewhere.

import { shapeOf, type Instruction } from "./catalogue.js";

/** What stands in a row of the list, and above the picture. */
export interface Short {
  family: string;
  shape: string;
  types: string;
}

const SAID = ["shape", "d", "a", "b", "c", "type", "tile", "num"];
const USUAL: Record<string, string> = { alayout: "row", blayout: "col" };

/** ``mma.sp``, ``m16n8k64``, ``s4 × s4 → s32``. */
export function short(op: Instruction): Short {
  const { a, b, c, d, type, tile, num } = op.values;
  const sum = c && c !== d ? `${c} → ${d}` : d;
  const types = a && b ? `${a} × ${b} → ${sum}` : (type ?? "");
  const shape = [shapeOf(op) || tile, num].filter(Boolean).join(" ");
  return { family: op.family, shape, types };
}

/** The qualifiers that neither the short name nor every instruction has. */
export function chips(op: Instruction): string[] {
  const words = Object.entries(op.values).flatMap(([name, value]) => {
    if (SAID.includes(name) || USUAL[name] === value) return [];
    if (name === "sp") return value.includes("::") ? ["ordered metadata"] : [];
    if (name === "alayout" || name === "blayout") return [`${name[0]}: ${value}`];
    if (name === "operand") return [`operand ${value}`];
    return [value];
  });
  return op.tensor ? [...words, ...op.name.split(" ").slice(1)] : words;
}
