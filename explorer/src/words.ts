// What do people's words for instructions mean?  Python's table says it.

import { shapeOf, type Catalogue, type Instruction } from "./catalogue.js";

/** What one word means: conditions that an instruction fulfils. */
export interface Meaning {
  types: string[];
  /** Of each of these, the name has one word. */
  has: string[][];
  lacks: string[];
  sparsity: string;
  families: string[];
  targets: string[];
  shapes: string[];
}

const NOTHING: Meaning = {
  types: [],
  has: [],
  lacks: [],
  sparsity: "",
  families: [],
  targets: [],
  shapes: [],
};
const RESULTS = ["f32", "s32"]; // the types that only D and C have

/** What a word means; nothing for the words of PTX. */
export function meaning(catalogue: Catalogue, word: string): Meaning | undefined {
  if (word in catalogue.said) return { ...NOTHING, ...catalogue.said[word] };
  if (word in catalogue.allTargets) return { ...NOTHING, targets: [word] };
  const sizes = /^m?(\d{1,3})xn?(\d{1,3})(?:xk?(\d{1,3}))?$/.exec(word);
  if (sizes) {
    const [, m, n, k] = sizes;
    return { ...NOTHING, shapes: [`m${m}n${n}${k ? `k${k}` : ""}`] };
  }
  if (!/^\d{3,}$/.test(word)) return undefined;
  const shapes = catalogue.instructions.map(shapeOf);
  const meant = [...new Set(shapes)].filter((shape) => shape.replace(/\D/g, "") === word);
  return meant.length ? { ...NOTHING, shapes: meant } : undefined;
}

/** Whether an instruction is what one word means, but for types. */
export function fits(catalogue: Catalogue, op: Instruction, said: Meaning): boolean {
  const words = op.name.toLowerCase().split(/[.\s]/);
  const { a = "", b = "" } = op.values;
  const targets = catalogue.targets[op.requires].targets;
  const pattern = op.pattern === undefined ? "" : catalogue.patterns[op.pattern].text;
  const named = !said.families.length || said.families.includes(op.family);
  const free = !said.families.length || !said.types.length;
  const machine = free || (said.types.includes(a) && said.types.includes(b));
  return (
    named &&
    machine &&
    said.has.every((some) => some.some((word) => words.includes(word))) &&
    !said.lacks.some((word) => words.includes(word)) &&
    (!said.targets.length || said.targets.some((each) => each in targets)) &&
    (!said.shapes.length || said.shapes.includes(shapeOf(op))) &&
    pattern.startsWith(said.sparsity)
  );
}

/** Whether the types that are said are those of A and B, or else of D. */
export function typesFit(op: Instruction, said: Meaning[], plain: string[]): boolean {
  const { a, b, c, d, type } = op.values;
  const spoken = said.filter((m) => m.types.length && !m.families.length);
  const has = [a ?? type, b ?? type, c, d];
  if (!spoken.every((m) => m.types.some((each) => has.includes(each)))) return false;
  const types = spoken.flatMap((m) => m.types);
  const multiplied = types.filter((each) => !RESULTS.includes(each));
  const allowed = [...multiplied, ...plain];
  const both = allowed.includes(a ?? type) && allowed.includes(b ?? type);
  return !multiplied.length || both;
}
