// Finds instructions by words of PTX, synonyms, shapes, and the names of machine
// instructions.

import { saidBy, type Catalogue, type Instruction } from "./catalogue.js";
import { nearest, oneOf, shortened } from "./near.js";
import { short } from "./short.js";
import { fits, meaning, narrowed, typesFit, type Meaning } from "./words.js";

/** What a catalogue is searched by, worked out once. */
interface Index {
  /** The words of each name, and what its descriptor says. */
  words: Map<Instruction, string[]>;
  /** Every word that a name has as a whole. */
  whole: Set<string>;
  /** Names of machine instructions, and the words that they begin with. */
  machine: string[];
  opcodes: Set<string>;
}

const indices = new WeakMap<Catalogue, Index>();

function indexOf(catalogue: Catalogue): Index {
  const known = indices.get(catalogue);
  if (known) return known;
  const { instructions, sass } = catalogue;
  const words = new Map(instructions.map((op) => [op, nameWords(op)]));
  const whole = new Set([...words.values()].flat());
  const machine = [...new Set(sass.flatMap(([, code]) => code.map(([name]) => name)))];
  const opcodes = new Set(machine.map((name) => name.split(".")[0]));
  const made = { words, whole, machine, opcodes };
  indices.set(catalogue, made);
  return made;
}

/** ``kind::mxf4`` is also found as mxf4, and ``sp::ordered_metadata`` as sp. */
function nameWords(op: Instruction): string[] {
  const words = `${op.name}.${saidBy(op)}`.toLowerCase().split(/[.\s]+/).filter(Boolean);
  return words.flatMap((word) => (word.includes("::") ? [word, ...word.split("::")] : word));
}

interface Word {
  word: string;
  said?: Meaning;
  /** The instructions that become a machine instruction of this name. */
  from?: Origins;
}

/**
 * The instructions that fit every word.  Each word is one of the name, or is what
 * people say and means it, or is a machine instruction that comes from it.  A word
 * that no name has is perhaps still being typed: then a part of the name is enough.
 */
export function search(catalogue: Catalogue, text: string): Instruction[] {
  const name = text.trim().toLowerCase();
  const exact = catalogue.instructions.filter((op) => op.name.toLowerCase() === name);
  return exact.length ? exact : fitting(catalogue, wordsOf(catalogue, text));
}

function fitting(catalogue: Catalogue, words: Word[], anyOrder = false): Instruction[] {
  const index = indexOf(catalogue);
  const said = words.flatMap((each) => each.said ?? []);
  const plain = words.filter((each) => !each.said).map((each) => each.word);
  const types = plain.filter((word) => word in catalogue.types);
  const unnamed = said.some((each) => each.unnamed);
  const spelled = (op: Instruction) => {
    const own = index.words.get(op)!;
    const { a, b, d, stype } = op.values;
    // What a descriptor says is named in the order of other families.
    if (op.tensor) return anyOrder ? types.every((each) => [a, b, d, stype].includes(each)) : inOrder([d, a, b, stype ?? ""], types);
    // HMMA.16816.F32 names D, and then A if that is not f16.
    if (unnamed && types.length) return types[0] === d && asOften(own, plain);
    return inOrder(own, types) && asOften(own, plain);
  };
  return catalogue.instructions.filter(
    (op) =>
      words.every((each) => fitsWord(catalogue, index, op, each)) &&
      spelled(op) &&
      typesFit(op, said, plain),
  );
}

function fitsWord(
  catalogue: Catalogue,
  { words, whole }: Index,
  op: Instruction,
  { word, said, from }: Word,
): boolean {
  if (from) return from.all.has(op);
  if (said && fits(catalogue, op, said)) return true;
  return whole.has(word)
    ? words.get(op)!.includes(word)
    : `${op.name}.${saidBy(op)}`.toLowerCase().includes(word);
}

/** Types stand in the order of D, A, B and C. */
function inOrder(words: string[], types: string[]): boolean {
  let at = 0;
  for (const word of words) if (word === types[at]) at += 1;
  return at === types.length;
}

/** A word that is said twice is there twice: row.row is not row.col. */
function asOften(words: string[], said: string[]): boolean {
  const count = (all: string[], word: string) => all.filter((each) => each === word).length;
  const twice = said.filter((word, at) => said.indexOf(word) < at);
  return twice.every((word) => count(words, word) >= count(said, word));
}

function wordsOf(catalogue: Catalogue, text: string): Word[] {
  const spoken = plainly(text);
  const { opcodes } = indexOf(catalogue);
  const isMachine = (word: string) =>
    word.includes(".") && opcodes.has(word.toUpperCase().split(".")[0]);
  const machine = spoken.split(/\s+/).find(isMachine);
  const from = machine && comingFrom(catalogue, machine);
  if (from) {
    const rest = spoken.split(/\s+/).filter((each) => each !== machine);
    const others = rest.filter((each) => !isOperand(each)).join(" ");
    return [{ word: machine, from }, ...wordsOf(catalogue, others)];
  }
  const words = spoken.toLowerCase().split(/[\s.]+/).filter(Boolean);
  const types = words.filter((word) => word in catalogue.types);
  return words.map((word) => {
    const said = meaning(catalogue, word);
    return { word, said: said && narrowed(said, types) };
  });
}

/** As short names are written: ``s4 × s4 → s32`` is the types of A, B and D. */
function plainly(text: string): string {
  return text
    .replace(/\/\*.*?\*\//g, " ")
    .replace(/(\S+)\s*[×*]\s*(\S+)\s*(?:→|->)\s*(\S+)/, "$3.$1.$2")
    .replace(/[×→,;]|->/g, " ")
    .trim();
}

// ── machine instructions ────────────────────────────────────────────────────

/** What a disassembler prints around a name: operands, predicates, addresses. */
function isOperand(word: string): boolean {
  return OPERAND.test(word);
}

/** Registers, predicates, numbers, descriptors, constants, and what waits: ``gsb0``. */
const OPERAND =
  /^([-~!]?\|?U?R(\d+|Z)\b.*|@?!?U?P(\d+|T)\b|0x[0-9a-f]+|-?\d+|gsb\d*|[gi]?desc.*|tmem.*|c\[.*|\[.*|[{&].*)$/i;

/** The instructions of which a machine instruction is all, or only a part. */
interface Origins {
  all: Set<Instruction>;
  own: Set<Instruction>;
}

/** The instructions from which a machine instruction comes. */
function comingFrom(catalogue: Catalogue, name: string): Origins | undefined {
  const { sass, instructions } = catalogue;
  const meant = new Set(machineNames(indexOf(catalogue).machine, name));
  if (!meant.size) return undefined;
  const from = (alone: boolean) =>
    instructions.filter((op) =>
      op.sass.some((number) => {
        const [, code, others, expanded] = sass[number];
        const whole = code.length === 1 && code[0][1] === 1 && !others && !expanded;
        return (whole || !alone) && code.some(([each]) => meant.has(each));
      }),
    );
  return { all: new Set(from(false)), own: new Set(from(true)) };
}

/** Of the name of a machine instruction: what becomes it alone; null without one. */
export function wholly(catalogue: Catalogue, text: string): Set<Instruction> | null {
  const found = wordsOf(catalogue, text).find(({ from }) => from?.own.size);
  return found?.from?.own ?? null;
}

/** The names that a name means: itself, all below it, or all with its words. */
function machineNames(names: string[], name: string): string[] {
  const given = name.toLowerCase().replace(/\.$/, "");
  const wanted = given.split(".");
  const among = (words: string[]) => {
    let at = 0;
    for (const word of words) if (word === wanted[at]) at += 1;
    return words[0] === wanted[0] && at === wanted.length;
  };
  const tests = [
    (each: string) => each === given,
    (each: string) => each.startsWith(`${given}.`),
    (each: string) => among(each.split(".")),
  ];
  const found = tests.map((test) => names.filter((each) => test(each.toLowerCase())));
  return found.find((some) => some.length) ?? [];
}

// ── what is meant, and what is near ─────────────────────────────────────────

/** Whether words ask for sparse instructions. */
export function asksSparse(text: string): boolean {
  return /\b(sp\b|sparse|structured|[124]:[248]|ordered)/i.test(text);
}

/**
 * What is meant where words leave a choice: multiplications, dense ones and the fewest
 * qualifiers, unless others are said.
 */
export function meantBy(catalogue: Catalogue, text: string): Instruction[] {
  const words = text.toLowerCase();
  let found = search(catalogue, text);
  const prefer = (test: (op: Instruction) => boolean) => {
    const some = found.filter(test);
    if (some.length) found = some;
  };
  const own = wholly(catalogue, text);
  if (own) prefer((op) => own.has(op));
  prefer((op) => !!op.values.a);
  if (!/\bws\b/.test(words)) prefer((op) => !op.family.includes(".ws"));
  if (!asksSparse(text)) prefer((op) => !op.family.endsWith(".sp"));
  if (!/cta_group::2|2cta/.test(words)) prefer((op) => (op.tensor?.ctas ?? 1) === 1);
  if (!words.includes("ordered")) prefer((op) => op.values.sp !== "sp::ordered_metadata");
  const unsaid = (op: Instruction) =>
    short(op).chips.filter((chip) => !words.includes(chip) && chip !== "any order").length;
  const fewest = Math.min(...found.map(unsaid));
  prefer((op) => unsaid(op) === fewest);
  return found;
}

export interface Nearby {
  /** What is wrong with the words, and what would be right. */
  said: string;
  found: Instruction[];
}

/** What is near to words that nothing fits. */
export function nearby(catalogue: Catalogue, text: string): Nearby {
  const words = wordsOf(catalogue, text);
  const strange = words.filter((each) => !fitting(catalogue, [each]).length);
  const undrawn = strange.map(({ word }) => word).filter((word) => elsewhere(catalogue, word));
  if (undrawn.length && undrawn.length === strange.length) {
    const left = words.filter(({ word }) => !undrawn.includes(word));
    const found = left.length ? ordered(catalogue, left.map(({ word }) => word).join(" ")) : [];
    const is = undrawn.length > 1 ? "are" : "is";
    const hint = found.length ? "; without, these are found" : "";
    return { said: `${oneOf(undrawn, "and")} ${is} not drawn here${hint}.`, found };
  }
  if (strange.length) {
    const instead = strange.map(({ word }) => nearest(word, vocabulary(catalogue)));
    const hints = instead.filter(Boolean);
    const names = strange.map(({ word }) => shortened(word));
    const hint = hints.length ? `; the nearest is ${oneOf(hints, "and")}` : "";
    const kept = words.map((each) => {
      const at = strange.indexOf(each);
      return at < 0 ? each.word : instead[at];
    });
    const again = kept.filter(Boolean).join(" ");
    const found = again ? ordered(catalogue, again) : [];
    return { said: `No instruction has ${oneOf(names)}${hint}.`, found };
  }
  const mixed = fitting(catalogue, words, true);
  if (mixed.length && !fitting(catalogue, words).length) {
    const types = words.map(({ word }) => word).filter((word) => word in catalogue.types);
    return { said: `No tcgen05.mma has the types ${oneOf(types, "and")} in this order; the order is D, A, B, and then that of scales.`, found: mixed };
  }
  // Each word fits something: without one of them, perhaps the last, all others do.
  for (const [at, left] of [...words.entries()].reverse()) {
    const others = words.filter((_, each) => each !== at).map(({ word }) => word);
    const found = others.length ? ordered(catalogue, others.join(" ")) : [];
    const said = `No instruction has all of these words; without ${left.word}, these have.`;
    if (found.length) return { said, found };
  }
  return { said: "No instruction has all of these words.", found: [] };
}

/** Whether only instructions without a picture of their own have a word. */
function elsewhere({ others }: Catalogue, word: string): boolean {
  const inside = (name: string) => name.toLowerCase().split(".").includes(word);
  return Object.keys(others).some(inside);
}

/** What words find, what is meant first. */
function ordered(catalogue: Catalogue, text: string): Instruction[] {
  return [...new Set([...meantBy(catalogue, text), ...search(catalogue, text)])];
}

/** Every word that finds something. */
function vocabulary(catalogue: Catalogue): Iterable<string> {
  const { whole, machine } = indexOf(catalogue);
  const { said, allTargets } = catalogue;
  return new Set([...Object.keys(said), ...Object.keys(allTargets), ...whole, ...machine]);
}
