// Searching in time: the steps of an instruction, of a line, of an mbarrier, of a problem, and
// the writes of an address.

import type { Recording } from "./recording.js";
import { distinct } from "./lists.js";
import { Names } from "./scope.js";
import { Refused, Typed } from "./typed.js";

export interface Found {
  steps: Uint32Array;
  /** What was found, in words. */
  said: string;
}

const KINDS = ["op", "line", "source", "barrier", "problem", "write"] as const;
type Kind = (typeof KINDS)[number];

/** At which step, of which warp one asks: names are those of its block. */
export interface Asker {
  typed: Typed;
  step: number;
  warp: number;
}

/**
 * The steps that a text means.  ``op:mma``, ``line:gemm.cu:15``, ``source:acc +=``,
 * ``barrier:full``, ``problem:race`` and ``write:tile[3]`` say which kind is meant; without
 * that, an address means its writes, and any other text whatever has it.
 */
export function find(run: Recording, asked: string, asker: Asker): Found {
  const text = asked.trim();
  const [, word = "", rest = ""] = /^(\w+):\s*(.*)$/s.exec(text) ?? [];
  if (!text) return { steps: new Uint32Array(), said: "" };
  if (KINDS.includes(word as Kind) && rest) return ofKind(run, word as Kind, rest, asker);
  if (/^0x[\da-f]+$/i.test(text)) return ofKind(run, "write", text, asker);
  const every = (["op", "line", "source", "barrier", "problem"] as const).map((kind) => ofKind(run, kind, text, asker));
  const some = every.filter(({ steps }) => steps.length);
  const steps = distinct(some.flatMap((each) => [...each.steps]));
  return { steps, said: some.map(({ said }) => said).join("; ") || `nothing has ${text}` };
}

function ofKind(run: Recording, kind: Kind, text: string, asker: Asker): Found {
  switch (kind) {
    case "op":
      return ofInstructions(run, text);
    case "line":
      return ofLine(run, text);
    case "source":
      return ofSource(run, text);
    case "barrier":
      return ofBarriers(run, text);
    case "problem":
      return ofProblems(run, text);
    case "write":
      return ofWrites(run, text, asker);
  }
}

const contains = (whole: string, part: string): boolean => whole.toLowerCase().includes(part.toLowerCase());

const many = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;

/** All steps at some instructions. */
function ofSites(run: Recording, fits: (site: number) => boolean, what: string): Found {
  const chosen = [...run.head.sites.keys()].filter((at) => run.stepsOfSite(at).length && fits(at));
  return { steps: sorted(chosen.map((at) => run.stepsOfSite(at))), said: many(chosen.length, what) };
}

/** By the opcode; by the operands, if no opcode has it. */
function ofInstructions(run: Recording, text: string): Found {
  const { sites } = run.head;
  const found = ofSites(run, (at) => contains(sites[at].opcode, text), "instruction");
  return found.steps.length ? found : ofSites(run, (at) => contains(sites[at].text, text), "instruction");
}

function sorted(lists: Uint32Array[]): Uint32Array {
  const found = new Uint32Array(lists.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const each of lists) {
    found.set(each, at);
    at += each.length;
  }
  return found.sort();
}

/** ``gemm.cu:15``, ``ptx:20`` or ``15``, which is a line of any file. */
function ofLine(run: Recording, text: string): Found {
  const [, file = "", number = ""] = /^(?:(.*):)?\s*(\d+)$/.exec(text) ?? [];
  if (!number) return { steps: new Uint32Array(), said: "no line" };
  const ptx = file === "ptx";
  const files = run.head.files.map(({ name }) => name).filter((name) => (ptx ? name === run.ptx : file ? name.endsWith(file) : name !== run.ptx));
  const named = [...new Set([...files, ...(ptx ? [] : run.head.sites.map((site) => site.file).filter((name) => name && (file ? name.endsWith(file) : true)))])];
  const steps = sorted(named.map((name) => run.stepsOfLine(name, Number(number))));
  return { steps, said: `line ${number}` };
}

/** The lines whose text has it. */
function ofSource(run: Recording, text: string): Found {
  const lines = run.head.files
    .filter(({ name }) => name !== run.ptx)
    .flatMap(({ name, text: whole }) => whole.split("\n").flatMap((line, at) => (contains(line, text) ? [[name, at + 1] as const] : [])));
  const lists = lines.map(([name, line]) => run.stepsOfLine(name, line)).filter(({ length }) => length);
  return { steps: sorted(lists), said: many(lists.length, "source line") };
}

/** When an mbarrier changes, and when warps pass a barrier. */
function ofBarriers(run: Recording, text: string): Found {
  const some = run.head.barriers.filter(({ name }) => contains(name, text));
  const steps = some.flatMap(({ phases = [], uses = [] }) => [...phases.map(([step]) => step), ...uses.map(([step]) => step)]);
  return { steps: within(run, steps), said: many(some.length, "barrier") };
}

function ofProblems(run: Recording, text: string): Found {
  const some = run.head.problems.filter(({ number, code, words }) => String(number) === text || contains(code, text) || contains(words, text) || contains("problem", text));
  return { steps: within(run, some.flatMap(({ steps }) => steps)), said: many(some.length, "problem") };
}

const within = (run: Recording, steps: number[]): Uint32Array => distinct(steps.filter((step) => step >= 0 && step < run.count));

/** The writes of some bytes: of an address, or of what a name means. */
function ofWrites(run: Recording, text: string, { typed, step, warp }: Asker): Found {
  try {
    const { memory, offset, size } = new Names(run, typed, step, warp).span(text);
    const steps = run.memories[memory].writesOf(offset, size);
    return { steps: distinct(steps), said: `writes of ${run.head.memories[memory].name} 0x${offset.toString(16)}${size > 1 ? ` to 0x${(offset + size - 1).toString(16)}` : ""}` };
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return { steps: new Uint32Array(), said: error.message };
  }
}
