// What is shown?  Everything that makes a picture is in the URL, so that
// whoever opens it sees the same.

import type { Spot } from "./highlight.js";
import { FILLS, type Fill } from "./values.js";

export interface State {
  op: string;
  pinned: Spot | null;
  lane: number | null;
  fill: Fill;
  accumulator: "D" | "C";
  colour: "lane" | "register";
  zoom: number;
  /** How a sparse A is drawn; empty for what there is room for. */
  sparse: "" | "both" | "stored" | "logical";
  selector: number;
  /** Codes that differ from those one begins with, by index. */
  codes: Record<number, number>;
  tab: string;
  operand: string;
  memory: { operand: string; major: string; swizzle: number; offsets: number[] };
}

/** How far one may go into the picture; 1 shows all of it. */
export const CLOSEST = 64;

export function initial(op: string): State {
  return {
    op,
    pinned: null,
    lane: null,
    fill: "off",
    accumulator: "D",
    colour: "lane",
    zoom: 1,
    sparse: "",
    selector: 0,
    codes: {},
    tab: "formula",
    operand: "",
    memory: { operand: "B", major: "k", swizzle: 128, offsets: [] },
  };
}

/** Only what differs from the beginning is written. */
export function toHash(state: State): string {
  const plain = initial(state.op);
  const words: [string, string][] = [["op", state.op]];
  const add = (name: string, value: unknown, usual: unknown) => {
    if (String(value) !== String(usual)) words.push([name, String(value)]);
  };
  const { pinned, memory } = state;
  if (pinned) words.push(["at", `${pinned.matrix}.${pinned.index}`]);
  if (state.lane !== null) words.push(["lane", String(state.lane)]);
  add("values", state.fill, plain.fill);
  add("show", state.accumulator, plain.accumulator);
  add("colour", state.colour, plain.colour);
  add("zoom", state.zoom, plain.zoom);
  add("sparse", state.sparse, plain.sparse);
  add("selector", state.selector, plain.selector);
  add("codes", codesText(state.codes), "");
  add("tab", state.tab, plain.tab);
  add("operand", state.operand, plain.operand);
  add("memory", memoryText(memory), memoryText(plain.memory));
  // The characters of a mnemonic may stand in a fragment as they are.
  const text = (value: string) => encodeURIComponent(value).replace(/%3A/g, ":");
  return `#${words.map(([name, value]) => `${name}=${text(value)}`).join("&")}`;
}

export function fromHash(hash: string, fallback: string): State {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const state = initial(given.get("op") || fallback);
  const [matrix, index] = (given.get("at") ?? "").split(".");
  if (/^\d+$/.test(index ?? "")) state.pinned = { matrix, index: Number(index) };
  state.lane = whole(given.get("lane"));
  state.fill = oneOf(given.get("values"), FILLS, state.fill);
  state.accumulator = oneOf(given.get("show"), ["D", "C"], state.accumulator);
  state.colour = oneOf(given.get("colour"), ["lane", "register"], state.colour);
  state.zoom = zoomGiven(given.get("zoom"));
  state.sparse = oneOf(given.get("sparse"), ["both", "stored", "logical"], state.sparse);
  state.selector = whole(given.get("selector")) ?? 0;
  state.codes = readCodes(given.get("codes") ?? "");
  state.tab = given.get("tab") ?? state.tab;
  state.operand = given.get("operand") ?? "";
  state.memory = readMemory(given.get("memory")) ?? state.memory;
  return state;
}

function whole(text: string | null): number | null {
  return text && /^\d{1,6}$/.test(text) ? Number(text) : null;
}

function zoomGiven(text: string | null): number {
  const found = text && /^\d{1,2}(\.\d{1,2})?$/.test(text) ? Number(text) : 1;
  return found >= 1 && found <= CLOSEST ? found : 1;
}

function oneOf<T>(value: unknown, allowed: readonly T[], usual: T): T {
  return allowed.includes(value as T) ? (value as T) : usual;
}

function codesText(codes: Record<number, number>): string {
  return Object.entries(codes)
    .map(([index, code]) => `${index}:${code.toString(16)}`)
    .join(",");
}

function readCodes(text: string): Record<number, number> {
  const found: Record<number, number> = {};
  for (const [, index, code] of text.matchAll(/(\d+):([0-9a-f])/g)) {
    found[Number(index)] = parseInt(code, 16);
  }
  return found;
}

function memoryText({ operand, major, swizzle, offsets }: State["memory"]): string {
  return [operand, major, swizzle, ...offsets].join(".");
}

function readMemory(text: string | null): State["memory"] | null {
  const match = /^([AB])\.(k|mn)\.(0|32|64|128)(?:\.(\d+)\.(\d+))?$/.exec(text ?? "");
  if (!match) return null;
  const [, operand, major, swizzle, leading, stride] = match;
  const offsets = leading ? [Number(leading), Number(stride)] : [];
  return { operand, major, swizzle: Number(swizzle), offsets };
}
