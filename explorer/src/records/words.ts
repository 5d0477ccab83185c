// The meanings of synonyms, from Python's table.

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
  /** The type of A that is meant where none is named. */
  unnamed: string;
}

const NOTHING: Meaning = {
  types: [],
  has: [],
  lacks: [],
  sparsity: "",
  families: [],
  targets: [],
  shapes: [],
  unnamed: "",
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

/** A word that means several types, next to one of them, means that one. */
export function narrowed(said: Meaning, types: string[]): Meaning {
  let named = said.types.filter((each) => types.includes(each));
  if (said.unnamed && types.length) {
    const others = named.filter((each) => each !== said.unnamed);
    named = others.length ? others : [said.unnamed];
  }
  return named.length ? { ...said, types: named } : said;
}

/** Whether an instruction is what one word means, but for types. */
export function fits(catalogue: Catalogue, op: Instruction, said: Meaning): boolean {
  return (
    (!said.families.length || isMachine(op, said)) &&
    (!said.shapes.length || said.shapes.includes(shapeOf(op))) &&
    (!said.targets.length || runsOn(catalogue, op, said.targets)) &&
    (!said.sparsity || patternOf(catalogue, op).startsWith(said.sparsity)) &&
    ((!said.has.length && !said.lacks.length) || hasWords(op, said))
  );
}

/** Whether a machine instruction of these families and types can come from it. */
function isMachine({ family, values }: Instruction, said: Meaning): boolean {
  const { a = "", b = "" } = values;
  const typed = said.types.includes(a) && said.types.includes(b);
  return said.families.includes(family) && (!said.types.length || typed);
}

function runsOn(catalogue: Catalogue, op: Instruction, targets: string[]): boolean {
  const known = catalogue.targets[op.requires].targets;
  return targets.some((each) => each in known);
}

function patternOf(catalogue: Catalogue, { pattern }: Instruction): string {
  return pattern === undefined ? "" : catalogue.patterns[pattern].text;
}

function hasWords(op: Instruction, { has, lacks }: Meaning): boolean {
  const words = op.name.toLowerCase().split(/[.\s]/);
  return (
    has.every((some) => some.some((word) => words.includes(word))) &&
    !lacks.some((word) => words.includes(word))
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
