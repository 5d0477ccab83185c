// What names mean at a moment: registers, special registers, memories, variables.  As in
// Python's debugger (debugging/scope.py).

import { Evaluator, parse, type Area } from "./expressions.js";
import type { Memory } from "./head.js";
import { upTo } from "./lists.js";
import { among, type Recording } from "./recording.js";
import { Refused, stored, Typed, type Value } from "./typed.js";

const LANES = Array.from({ length: 32 }, (_, lane) => lane);
const RANK_BITS = 24n;
const KINDS = ["shared", "local", "tensor"];

export class Names {
  private contents = new Map<number, { bytes: Uint8Array; states: Uint8Array }>();
  private function: string;

  /** After a step; -1 is before the first. */
  constructor(
    private run: Recording,
    private typed: Typed,
    private step: number,
    private warp: number,
  ) {
    this.function = functionOf(run, step, warp);
  }

  /** The value of an expression. */
  evaluate(text: string): Value {
    return new Evaluator(this.typed, this).evaluate(parse(text));
  }

  /** The bytes that an expression names: a place, or an address. */
  span(text: string): { memory: number; offset: number; size: number } {
    const tree = parse(text);
    const evaluator = new Evaluator(this.typed, this);
    const found = evaluator.area(tree);
    if (found?.at) throw new Refused(`${text}: a place is the same for all lanes; add [LANE]`);
    if (found) return { memory: found.number, offset: found.start, size: Math.max(1, found.size) };
    const value = evaluator.evaluate(tree);
    if (value.offsets) throw new Refused(`${text}: a place has no type; leave it out`);
    return this.atAddress(evaluator.whole(value, "an address"));
  }

  /** The byte at an address, as registers hold it. */
  private atAddress(address: number): { memory: number; offset: number; size: number } {
    const { memories } = this.run.head;
    const mine = this.own();
    const inside = (number: number) => address - (memories[number].start ?? 0) >= 0 && address - (memories[number].start ?? 0) < memories[number].size;
    const far = mine.find((number) => memories[number].kind === "global" && inside(number));
    if (far !== undefined) return { memory: far, offset: address - (memories[far].start ?? 0), size: 1 };
    const offset = Number(BigInt(address) & ((1n << RANK_BITS) - 1n));
    const near = mine.find((number) => this.called(memories[number]) === "shared" && offset < memories[number].size);
    if (near !== undefined) return { memory: near, offset, size: 1 };
    throw new Refused(`nothing is at address 0x${address.toString(16)}`);
  }

  named(name: string): Value | Area {
    if (name.startsWith("%") || this.number(name) >= 0) return this.register(name);
    const variables = this.variables();
    const known = variables.get(name);
    if (known) return known;
    const { memories } = this.run.head;
    const number = memories.findIndex((each) => name === this.called(each) || name === `${each.kind}@${blockOf(each)}`);
    if (number >= 0) return this.area(number);
    const every = [...new Set([...variables.keys(), ...this.own().map((each) => this.called(memories[each]))])];
    const list = every.slice(0, 8);
    const have = list.length < 2 ? list.join("") || "nothing" : `${list.slice(0, -1).join(", ")} and ${list.at(-1)}`;
    throw new Refused(`no register, variable or memory ${name.slice(0, 40)}; in memory there is ${have}`);
  }

  // ── registers ─────────────────────────────────────────────────────────────

  private number(name: string): number {
    return this.run.head.registers.findIndex((each) => each.name === name && (each.function ?? this.function) === this.function);
  }

  private register(name: string): Value {
    const number = this.number(name);
    if (number < 0) return this.special(name);
    const { run } = this;
    const { type, bits } = run.head.registers[number];
    const held = run.held(this.warp, number, this.step);
    if (!held) throw new Refused(`${name} was not written before step ${(this.step + 1).toLocaleString("en-US")}`);
    const { words } = run.columns;
    // As in memory: 0 is a value that was not written, 1 one that was.
    const states = held.lanes >>> 0 === 0xffffffff ? null : LANES.map((lane) => Number(among(held.lanes, lane)));
    if (type === "pred") {
      const data = LANES.map((lane) => ((words[held.at] >>> lane) & 1) === 1);
      return { of: "bool", data, side: 1, single: false, type, lanes: LANES, offsets: null, states, raw: null };
    }
    const raw = bytesOfLanes(words, held.at, bits);
    // Packed types, as PTX declares them, are words.
    const known = bits <= 64 && /^[busf]\d+$/.test(type) ? type : `b${bits}`;
    const { of, side } = stored(known);
    return { of, data: this.typed.decoded(of, raw), side, single: false, type: known, lanes: LANES, offsets: null, states, raw };
  }

  /** The special registers, as far as they follow from the launch. */
  private special(name: string): Value {
    const { head } = this.run;
    const at = head.warps[this.warp];
    const found = new Map<string, number[]>([
      ["%laneid", LANES],
      ["%warpid", LANES.map(() => at.warp)],
    ]);
    const sides: [string, number[], number[]][] = [
      ["tid", LANES.map((lane) => at.warp * 32 + lane), head.block],
      ["ctaid", LANES.map(() => Number(at.block)), head.grid],
    ];
    for (const [of, numbers, sizes] of sides) {
      let rest = numbers;
      [..."xyz"].forEach((axis, place) => {
        const size = sizes[place] ?? 1;
        found.set(`%${of}.${axis}`, rest.map((each) => each % size));
        found.set(`%n${of}.${axis}`, LANES.map(() => size));
        rest = rest.map((each) => Math.floor(each / size));
      });
    }
    const values = found.get(name);
    if (!values) throw new Refused(`no register ${name.slice(0, 40)}`);
    return { of: "u32", data: values.map(BigInt), side: 1, single: false, type: "u32", lanes: LANES, offsets: null, states: null, raw: null };
  }

  // ── memory ────────────────────────────────────────────────────────────────

  /** The memories of the warp's block, and those of the grid. */
  private own(): number[] {
    const { memories, warps } = this.run.head;
    const block = String(warps[this.warp].block);
    return [...memories.keys()].filter((each) => ["-1", block].includes(blockOf(memories[each])));
  }

  private called({ name, kind, block }: Memory): string {
    if (!KINDS.includes(kind)) {
      const argument = /^argument (\d+)(?: \((\w+)\))?$/.exec(name);
      return argument ? (argument[2] ?? `arg${argument[1]}`) : name;
    }
    return String(block) === String(this.run.head.warps[this.warp].block) ? kind : `${kind}@${block}`;
  }

  private area(number: number): Area {
    const memory = this.run.head.memories[number];
    return {
      memory: this.called(memory),
      read: (start, size) => this.read(number, start, size),
      size: memory.size,
      start: 0,
      type: "",
      base: BigInt(memory.start ?? 0),
      single: false,
      at: null,
      mask: memory.kind === "shared" ? (1n << RANK_BITS) - 1n : -1n,
      number,
    };
  }

  private read(number: number, start: number, size: number): { bytes: Uint8Array; states: Uint8Array } {
    let known = this.contents.get(number);
    if (!known) {
      const history = this.run.memories[number];
      known = history.peek(this.step, (bytes) => ({ bytes: bytes.slice(), states: history.states() }));
      this.contents.set(number, known);
    }
    return { bytes: known.bytes.slice(start, start + size), states: known.states.slice(start, start + size) };
  }

  /** All variables by name; an array is called as its memory. */
  private variables(): Map<string, Area> {
    const found = new Map<string, Area>();
    for (const number of this.own()) {
      const area = this.area(number);
      const memory = this.run.head.memories[number];
      for (const [name, offset, size, type] of memory.variables) {
        const called = size === memory.size ? area.memory : name;
        if (!found.has(called)) found.set(called, { ...area, memory: called, size, start: offset, type: known(type), base: 0n, mask: -1n });
      }
    }
    return found;
  }
}

const blockOf = ({ block }: Memory): string => String(block);

function known(type: string): string {
  try {
    stored(type);
    return type;
  } catch {
    return "b8";
  }
}

/** The bytes of all lanes of a register. */
function bytesOfLanes(words: Uint32Array, at: number, bits: number): Uint8Array {
  const size = bits / 8;
  const found = new Uint8Array(32 * size);
  for (let lane = 0; lane < 32; lane++) {
    for (let byte = 0; byte < size; byte++) {
      // Of 128 bits, the lower halves of all lanes come first.
      const half = bits > 64 ? (byte >> 3) * 64 + 2 * lane : bits > 32 ? 2 * lane : lane;
      found[lane * size + byte] = words[at + half + ((byte >> 2) & 1)] >>> (8 * (byte & 3));
    }
  }
  return found;
}

/** The function of the instruction that a warp runs next, or has run last. */
function functionOf(run: Recording, step: number, warp: number): string {
  const steps = run.stepsOfWarp(warp);
  if (!steps.length) return run.head.sites[0]?.function ?? "";
  return run.site(steps[Math.min(upTo(steps, step), steps.length - 1)]).function;
}
