// The state of the page.  Everything that makes a picture is in the URL, so that
// everyone who opens it sees the same.  What a link may contain is in one table.

import type { Spot } from "../drawing/highlight.js";
import { nearest, oneOf, shortened } from "../records/near.js";
import type { Major } from "../memory/shared.js";
import { USUAL, type Choice } from "../memory/stored.js";
import { FILLS, type Fill } from "../numbers/values.js";

export interface State {
  op: string;
  pinned: Spot | null;
  lane: number | null;
  fill: Fill;
  /** The target to compute for; empty: the one that is usual. */
  target: string;
  /** Elements that were typed: their bits in hexadecimal, by ``A.17``. */
  set: Record<string, string>;
  /** Whole operands that were pasted, compressed; see numbers/packing. */
  packed: string;
  accumulator: "D" | "C";
  colour: "lane" | "register";
  zoom: number;
  /** What stands in the middle of a picture that is nearer than all of it. */
  middle: Spot | null;
  /** How a sparse A is drawn; empty for what there is room for. */
  sparse: "" | "both" | "stored" | "logical";
  selector: number;
  /** Codes that differ from those one begins with, by index. */
  codes: Record<number, number>;
  tab: string;
  operand: string;
  memory: Choice;
}

/** How far one may go into the picture; 1 shows all of it. */
export const CLOSEST = 64;

export function initial(op: string): State {
  return {
    op,
    pinned: null,
    lane: null,
    fill: "off",
    target: "",
    set: {},
    packed: "",
    accumulator: "D",
    colour: "lane",
    zoom: 1,
    middle: null,
    sparse: "",
    selector: 0,
    codes: {},
    tab: "formula",
    operand: "",
    memory: { ...USUAL },
  };
}

// ── the table ───────────────────────────────────────────────────────────────

/** How one part of the state stands in a link. */
interface Field<T> {
  key: string;
  /** Nothing for what cannot be read. */
  read: (text: string) => T | undefined;
  write: (value: T) => string;
  /** What may stand there, in words. */
  allowed: string;
  /** Words of which one was perhaps meant. */
  words?: readonly string[];
}

type Fields = { [Name in keyof State]: Field<State[Name]> };

/** In the order in which a link has them. */
const FIELDS: Fields = {
  op: {
    key: "op",
    read: (text) => text || undefined,
    write: String,
    allowed: "the name of an instruction, or words that mean one",
  },
  pinned: element("at"),
  lane: {
    key: "lane",
    read: whole,
    write: (lane) => (lane === null ? "" : String(lane)),
    allowed: "a whole number",
  },
  fill: choice("values", FILLS),
  target: {
    key: "target",
    read: (text) => text || undefined,
    write: String,
    allowed: "a target, such as sm_90a",
  },
  set: {
    key: "set",
    read: readSet,
    write: setText,
    allowed: "elements with their bits in hexadecimal, such as A.17:3c00,B.0:bc00",
  },
  packed: {
    key: "own",
    read: (text) => (/^[\w-]{1,60000}$/.test(text) ? text : undefined),
    write: String,
    allowed: "values as the page packs them",
  },
  accumulator: choice("show", ["D", "C"]),
  colour: choice("colour", ["lane", "register"]),
  zoom: {
    key: "zoom",
    read: readZoom,
    write: String,
    allowed: `a number from 1 to ${CLOSEST}`,
  },
  middle: element("middle"),
  sparse: choice("sparse", ["", "both", "stored", "logical"]),
  selector: { key: "selector", read: whole, write: String, allowed: "a whole number" },
  codes: {
    key: "codes",
    read: readCodes,
    write: codesText,
    allowed: "numbers of codes, each with a hexadecimal digit, such as 0:4,17:e",
  },
  tab: {
    key: "tab",
    read: (text) => text || undefined,
    write: String,
    allowed: "the name of a tab",
  },
  operand: {
    key: "operand",
    read: (text) => text || undefined,
    write: String,
    allowed: "the name of an operand",
  },
  memory: {
    key: "memory",
    read: readMemory,
    write: memoryText,
    allowed:
      "operand, major, swizzle and multiples of 16 bytes, such as B.k.128, " +
      "B.mn.32.4096.256 with two offsets or A-x4.k.0.144 with a pitch",
  },
};

function element(key: string): Field<Spot | null> {
  return {
    key,
    read: readSpot,
    write: (spot) => (spot ? `${spot.matrix}.${spot.index}` : ""),
    allowed: "an operand with a row and a column, such as A[3][17]",
  };
}

function choice<T extends string | number>(key: string, values: readonly T[]): Field<T> {
  const words = values.map(String);
  return {
    key,
    read: (text) => values[words.indexOf(text)],
    write: String,
    allowed: oneOf(words),
    words,
  };
}

// ── to a link and back ──────────────────────────────────────────────────────

/** Only what differs from the beginning is written; ``named`` says A[3][17]. */
export function toHash(state: State, named: (spot: Spot) => string): string {
  const plain = initial(state.op);
  const parts: string[] = [];
  const add = <Name extends keyof State>(name: Name) => {
    const { key, write } = FIELDS[name] as Field<State[Name]>;
    const spot = name === "pinned" || name === "middle" ? (state[name] as Spot | null) : null;
    const value = spot ? named(spot) : write(state[name]);
    if (name !== "op" && value === write(plain[name])) return;
    parts.push(`${key}=${written(value)}`);
  };
  for (const name of Object.keys(FIELDS) as (keyof State)[]) add(name);
  return `#${parts.join("&")}`;
}

/** The characters of a mnemonic, and of A[3][17], may stand in a link as they are. */
function written(value: string): string {
  return encodeURIComponent(value).replace(/%(3A|2C|5B|5D)/g, decodeURIComponent);
}

/** A state, and what in the link could not be read. */
export interface Link {
  state: State;
  complaints: string[];
  /** What is to be said of a link in which nothing is wrong. */
  remarks: string[];
}

export function fromHash(hash: string, fallback: string): Omit<Link, "remarks"> {
  const state = initial(fallback);
  const complaints: string[] = [];
  const keys = new Map(Object.entries(FIELDS).map(([name, { key }]) => [key, name]));
  for (const [key, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
    const name = keys.get(key) as keyof State | undefined;
    if (name) take(state, name, text, complaints);
    else complaints.push(unknownKey(key, [...keys.keys()]));
  }
  return { state, complaints };
}

function take<Name extends keyof State>(
  state: State,
  name: Name,
  text: string,
  complaints: string[],
): void {
  const { key, read, allowed, words } = FIELDS[name] as Field<State[Name]>;
  const value = read(text);
  if (value === undefined) {
    const near = nearest(text, words ?? []);
    const hint = near ? `; the nearest is ${near}` : "";
    complaints.push(`${key}=${shortened(text)} is not ${allowed}${hint}.`);
  } else state[name] = value;
}

function unknownKey(key: string, keys: string[]): string {
  const near = nearest(key, keys);
  const hint = near ? ` (did you mean ${near}?)` : "";
  return `A link has no "${shortened(key)}"${hint}; it has ${oneOf(keys, "and")}.`;
}

// ── values ──────────────────────────────────────────────────────────────────

function whole(text: string): number | undefined {
  return /^\d{1,6}$/.test(text) ? Number(text) : undefined;
}

function readZoom(text: string): number | undefined {
  const found = /^\d{1,2}(\.\d{1,2})?$/.test(text) ? Number(text) : 0;
  return found >= 1 && found <= CLOSEST ? found : undefined;
}

/** An element as a link names it: by its number, or by row and column. */
export interface NamedSpot extends Spot {
  /** Row and column, and before them the matrix where there are several. */
  at?: number[];
}

/** ``A.53`` counts elements; ``A[3][17]``, ``A[3,17]`` and ``A.3.17`` name one. */
function readSpot(text: string): NamedSpot | undefined {
  const [, matrix, numbers] = /^([A-Za-z_]+)((?:[\s.,[\]]+\d{1,6})+)\]?$/.exec(text) ?? [];
  const at = numbers?.match(/\d+/g)!.map(Number) ?? [];
  if (at.length === 1 && numbers.startsWith(".")) return { matrix, index: at[0] };
  // How many elements come before it, only the operand can say.
  return at.length === 2 || at.length === 3 ? { matrix, index: -1, at } : undefined;
}

function setText(set: Record<string, string>): string {
  return Object.entries(set)
    .map(([place, bits]) => `${place}:${bits}`)
    .join(",");
}

function readSet(text: string): Record<string, string> | undefined {
  const found: Record<string, string> = {};
  for (const each of text.split(",")) {
    const [, place, bits] = /^(\w+\.\d{1,6}):([0-9a-f]{1,16})$/.exec(each) ?? [];
    if (!place) return undefined;
    found[place] = bits;
  }
  return found;
}

function codesText(codes: Record<number, number>): string {
  return Object.entries(codes)
    .map(([index, code]) => `${index}:${code.toString(16)}`)
    .join(",");
}

function readCodes(text: string): Record<number, number> | undefined {
  if (!/^(\d{1,6}:[0-9a-f](,|$))*$/.test(text)) return undefined;
  const found: Record<number, number> = {};
  for (const [, index, code] of text.matchAll(/(\d+):([0-9a-f])/g)) {
    found[Number(index)] = parseInt(code, 16);
  }
  return found;
}

/** Such as B.k.128, A-x4.k.0.144 with a pitch, B.mn.64.512.1024 with two offsets. */
function memoryText({ operand, load, major, swizzle, numbers }: Choice): string {
  return [load ? `${operand}-${load}` : operand, major, swizzle, ...numbers].join(".");
}

const MEMORY =
  /^([ABD])(?:-(x[124][mnk]?))?\.(k|mn)\.(0|32|64|128|128\/32)((?:\.\d{1,6}){0,2})$/;

function readMemory(text: string): Choice | undefined {
  const match = MEMORY.exec(text);
  if (!match) return undefined;
  const [, operand, load = "", major, swizzle, rest] = match;
  const numbers = rest.split(".").filter(Boolean).map(Number);
  if (numbers.some((bytes) => bytes % 16)) return undefined;
  return { operand, load, major: major as Major, swizzle, numbers };
}
