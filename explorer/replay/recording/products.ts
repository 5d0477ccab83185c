// The products of a run: the elements that their operands had, and where these were.  The
// instructions are records of the explorer's, so that its code draws and explains them.

import { addresses, decoded, type Major } from "../../src/memory/shared.js";
import { patterns, type Patterns } from "../../src/numbers/elements.js";
import { Values, type Codes } from "../../src/numbers/values.js";
import type { Catalogue } from "../../src/records/catalogue.js";
import { scene, type Matrix, type Pins, type Scene } from "../../src/records/matrix.js";
import type { Unit } from "./head.js";
import { upTo } from "./lists.js";
import type { Recording } from "./recording.js";

/** A register, a constant, a predicate that is negated, or an address. */
export type Source = number | ["=", string] | ["!", number] | ["+", number, number];

/** An instruction with its operands, by their names in the manual. */
export interface Bound {
  op: number;
  operands: Record<string, Source[]>;
}

/** What Python has put into the page; types and colours are those of the page. */
export interface ProductRecord {
  catalogue: Omit<Catalogue, "types" | "inks" | "lanes">;
  sites: Record<string, Bound>;
}

/** Some bits of a register of one lane, as they are after a step. */
export interface InRegister {
  kind: "register";
  warp: number;
  register: number;
  lane: number;
  low: number;
  bits: number;
  step: number;
}

/** A byte of memory, and those after it, as they are after a step. */
export interface InMemory {
  kind: "memory";
  memory: number;
  offset: number;
  bytes: number;
  step: number;
}

export type Where = InRegister | InMemory | { kind: "constant" };

/** A warp that takes part in a product, and its step. */
interface Member {
  warp: number;
  step: number;
}

export class Products {
  readonly catalogue: Catalogue;
  /** The steps of products, by warp. */
  private steps = new Map<number, Uint32Array>();
  private made = new Map<string, Product>();
  private units = new Map<string, Unit[]>();
  private runs = new Map<string, Uint32Array>();
  private groups = new Map<number, number[]>();

  constructor(
    readonly run: Recording,
    readonly given: ProductRecord,
    shared: Pick<Catalogue, "types" | "inks" | "lanes">,
  ) {
    this.catalogue = { ...given.catalogue, ...shared };
  }

  /** The record of an instruction that multiplies; null for any other. */
  bound(site: number): Bound | null {
    const found = this.given.sites[site];
    return found && this.catalogue.instructions[found.op].sums !== undefined ? found : null;
  }

  ofWarp(warp: number): Uint32Array {
    const known = this.steps.get(warp);
    if (known) return known;
    const { site } = this.run.columns;
    const found = this.run.stepsOfWarp(warp).filter((step) => this.bound(site[step]) !== null);
    this.steps.set(warp, found);
    return found;
  }

  /** The last product that a warp has run up to a step; null if there is none. */
  last(warp: number, step: number): Product | null {
    const steps = this.ofWarp(warp);
    const at = upTo(steps, step);
    return at ? this.at(steps[at - 1]) : null;
  }

  /** The product of a step. */
  at(step: number): Product {
    const { run } = this;
    const bound = this.bound(run.columns.site[step])!;
    const unit = this.unitOf(step);
    // The warps of a warpgroup have their product in common.
    const key = unit ? `unit ${run.head.units.indexOf(unit)}` : String(step);
    let found = this.made.get(key);
    if (!found) {
      if (this.made.size > 40) this.made.clear();
      this.made.set(key, (found = new Product(this, bound, step, unit)));
    }
    return found;
  }

  /** The asynchronous work of a step of a warpgroup. */
  private unitOf(step: number): Unit | null {
    const { columns } = this.run;
    const [site, warp] = [columns.site[step], columns.warp[step]];
    const units = this.unitsOf(site, warp);
    return units[this.executions(site, warp).indexOf(step) + this.missing(site, warp)] ?? null;
  }

  /** The step at which a warp takes part in a product; -1 if it was not recorded. */
  stepOf(unit: Unit, warp: number): number {
    const at = this.unitsOf(unit.site, warp).indexOf(unit) - this.missing(unit.site, warp);
    return this.executions(unit.site, warp)[at] ?? -1;
  }

  /** The work of a warpgroup at an instruction: it is issued by the first warp that comes. */
  private unitsOf(site: number, warp: number): Unit[] {
    const group = this.groupOf(warp);
    const make = () => this.run.head.units.filter((each) => each.site === site && group.includes(each.warp));
    return kept(this.units, `${site} ${group[0]}`, make);
  }

  private executions(site: number, warp: number): Uint32Array {
    const { columns } = this.run;
    const make = () => this.run.stepsOfSite(site).filter((step) => columns.warp[step] === warp);
    return kept(this.runs, `${site} ${warp}`, make);
  }

  /** How many of the work a warp has issued before the first step that was kept. */
  private missing(site: number, warp: number): number {
    const { first = 0 } = this.run.head;
    return first ? Math.max(0, this.unitsOf(site, warp).length - this.executions(site, warp).length) : 0;
  }

  /** The four warps of a warpgroup. */
  groupOf(warp: number): number[] {
    const { warps } = this.run.head;
    const { block, warp: own } = warps[warp];
    const same = (each: number) => String(warps[each].block) === String(block) && warps[each].warp >> 2 === own >> 2;
    return kept(this.groups, warp, () => [...warps.keys()].filter(same).sort((one, other) => warps[one].warp - warps[other].warp));
  }
}

export class Product {
  readonly scene: Scene;
  readonly codes: Codes;
  readonly members: Member[];
  /** When its operands were read, and when D was there; -1 if that was not recorded. */
  readonly done: number;
  private found: Values | null = null;
  private read = new Map<string, Patterns | null>();
  private shared = new Map<string, Int32Array>();
  private registers: Map<string, Source[]>;

  constructor(
    private products: Products,
    readonly bound: Bound,
    readonly step: number,
    readonly unit: Unit | null,
  ) {
    const { catalogue } = products;
    const op = catalogue.instructions[bound.op];
    this.scene = scene(catalogue, op, this.constant("selector", 0), this.pins());
    this.members = this.warps();
    this.done = unit ? unit.done : step;
    this.registers = this.inRegisters();
    this.codes = this.codesNow();
  }

  get run(): Recording {
    return this.products.run;
  }

  get catalogue(): Catalogue {
    return this.products.catalogue;
  }

  get name(): string {
    return this.scene.op.name;
  }

  /** Operands, and D as the hardware computes it from them. */
  get values(): Values {
    return (this.found ??= this.valuesNow());
  }

  private warps(): Member[] {
    const { run } = this;
    const { warp } = run.columns;
    const { unit, step } = this;
    if (this.scene.warps < 4 || !unit) return [{ warp: warp[step], step }];
    return this.products.groupOf(warp[step]).map((each) => {
      const own = this.products.stepOf(unit, each);
      return { warp: each, step: own < 0 ? step : own };
    });
  }

  private constant(name: string, otherwise: number): number {
    const source = this.bound.operands[name]?.[0];
    return Array.isArray(source) && source[0] === "=" ? Number(BigInt.asIntN(64, BigInt(source[1]))) : otherwise;
  }

  /** Which lanes have the scales. */
  private pins(): Pins {
    const of = (letter: string) => ({
      thread: this.constant(`thread_${letter}`, 0),
      byte: this.constant(`byte_${letter}`, 0),
    });
    return { scale_A: of("a"), scale_B: of("b") };
  }

  /** Which registers each operand has. */
  private inRegisters(): Map<string, Source[]> {
    const names: Record<string, string> = {
      A: "a", B: "b", C: "c", D: "d", metadata: "metadata", scale_A: "scale_a", scale_B: "scale_b",
    };
    const found = new Map<string, Source[]>();
    for (const [name, matrix] of this.scene.matrices) {
      const sources = this.bound.operands[names[name]] ?? (name === "C" ? this.bound.operands.d : undefined);
      if (matrix.part && sources && sources.length === matrix.registers) found.set(name, sources);
    }
    return found;
  }

  /** The step after which an operand was read, of one of its warps. */
  private before({ step }: Member): number {
    return this.unit && this.done >= 0 ? Math.max(this.done, step) - 1 : step - 1;
  }

  /** The same of the accumulator: from when the first warp comes, it is in flight. */
  private beforeD({ step }: Member): number {
    const first = this.unit && this.unit.issued >= 0 ? this.unit.issued : step;
    return Math.min(first, step) - 1;
  }

  // ── elements ──────────────────────────────────────────────────────────────

  /** A word of a lane after a step; null if it was never written. */
  private word(source: Source, warp: number, lane: number, step: number): bigint | null {
    if (Array.isArray(source)) {
      if (source[0] === "=") return BigInt.asUintN(64, BigInt(source[1]));
      return source[0] === "+" ? null : 1n - (this.word(source[1], warp, lane, step) ?? 0n);
    }
    const { run } = this;
    const register = run.head.registers[source];
    const held = run.held(warp, source, step);
    if (!held) return null;
    const { words } = run.columns;
    if (register.type === "pred") return BigInt((words[held.at] >>> lane) & 1);
    if (register.bits <= 32) return BigInt(words[held.at + lane]);
    const at = held.at + 2 * lane;
    return (BigInt(words[at + 1]) << 32n) | BigInt(words[at]);
  }

  private place(matrix: Matrix, index: number): { member: Member; lane: number; low: number } {
    const lane = matrix.lane[index];
    const [low] = matrix.bitRange(matrix.slot[index]);
    return { member: this.members[Math.min(lane >> 5, this.members.length - 1)], lane: lane & 31, low };
  }

  /** All elements of an operand in registers; ``when`` is the step of each warp. */
  private gathered(matrix: Matrix, sources: Source[], when: (member: Member) => number): Patterns {
    const begins = this.members.map((member) =>
      sources.map((source) => (typeof source === "number" ? (this.run.held(member.warp, source, when(member))?.at ?? -1) : -1)),
    );
    return this.collected(matrix, sources, begins, when);
  }

  /** The same; ``begins`` is where the words of each warp's registers begin, or -1. */
  private collected(matrix: Matrix, sources: Source[], begins: number[][], when: (member: Member) => number): Patterns {
    const type = this.catalogue.types[matrix.type];
    const found = patterns(type, matrix.size);
    const steps = this.members.map(when);
    const { words } = this.run.columns;
    const narrow = !(found instanceof BigUint64Array) && sources.every((each) => typeof each !== "number" || this.run.head.registers[each].bits <= 32);
    const mask = type.bits >= 32 ? 0xffffffff : 2 ** type.bits - 1;
    const last = this.members.length - 1;
    for (let index = 0; index < matrix.size; index++) {
      const [lane, register] = [matrix.lane[index], matrix.register[index]];
      const at = Math.min(lane >> 5, last);
      const begin = begins[at][register];
      const [low] = matrix.bitRange(matrix.slot[index]);
      if (narrow && begin >= 0) {
        found[index] = ((words[begin + (lane & 31)] >>> low) & mask) >>> 0;
        continue;
      }
      const word = this.word(sources[register], this.members[at].warp, lane & 31, steps[at]) ?? 0n;
      const bits = (word >> BigInt(low)) & ((1n << BigInt(type.bits)) - 1n);
      found[index] = (found instanceof BigUint64Array ? bits : Number(bits)) as never;
    }
    return found;
  }

  /** The elements of an operand, as the product read them; null if they are not known. */
  bits(name: string): Patterns | null {
    let found = this.read.get(name);
    if (found === undefined) this.read.set(name, (found = name === "C" ? this.accumulator() : this.operand(name)));
    return found;
  }

  private operand(name: string): Patterns | null {
    if (!this.scene.matrices.has(name)) return null;
    const matrix = this.scene.matrices.get(name)!;
    const sources = this.registers.get(name);
    const found = sources
      ? this.gathered(matrix, sources, (member) => this.before(member))
      : this.fromShared(name, matrix);
    const negated = found && name.length === 1 && this.constant(`imm_scale_${name.toLowerCase()}`, 1) < 0;
    if (!negated) return found;
    const sign = 2 ** (this.catalogue.types[matrix.type].used - 1);
    for (let index = 0; index < found.length; index++) found[index] = ((Number(found[index]) ^ sign) >>> 0) as never;
    return found;
  }

  private codesNow(): Codes {
    const metadata = this.scene.matrices.get("metadata");
    const sources = this.registers.get("metadata");
    if (!metadata || !sources) return new Uint8Array();
    return Uint8Array.from(this.gathered(metadata, sources, (member) => this.before(member)), Number);
  }

  private valuesNow(): Values {
    const operands = new Map<string, Patterns>();
    for (const name of ["A", "B", "C", "scale_A", "scale_B"]) {
      const found = this.bits(name);
      if (found) operands.set(name, found);
    }
    return new Values(this.catalogue, this.scene, this.codes, operands, this.run.head.target);
  }

  // ── shared memory ─────────────────────────────────────────────────────────

  /** The number of the shared memory of its block. */
  get memory(): number {
    const { head } = this.run;
    const block = String(head.warps[this.members[0].warp].block);
    return head.memories.findIndex((each) => each.kind === "shared" && String(each.block) === block);
  }

  /** Where in shared memory each element is, as eight times the byte, plus the bit. */
  private bitsInShared(name: string, matrix: Matrix): Int32Array | null {
    const known = this.shared.get(name);
    if (known) return known;
    const source = this.bound.operands[name.toLowerCase()]?.[0];
    const own = this.members.find(({ step }) => step === this.step) ?? this.members[0];
    const word = source === undefined ? null : this.word(source, own.warp, firstLane(this.run.columns.lanes[own.step]), own.step - 1);
    const descriptor = word === null ? null : decoded(this.catalogue, "wgmma", word);
    if (!descriptor) return null;
    const major: Major = this.constant(`trans_${name.toLowerCase()}`, 0) ? "mn" : "k";
    const [rows, k] = name === "A" ? [matrix.rows, matrix.cols] : [matrix.cols, matrix.rows];
    const { bits } = matrix;
    const address = addresses(this.catalogue, descriptor, { rows, k, bits, major });
    const found = Int32Array.from({ length: matrix.size }, (_, index) => {
      const [, row, col] = matrix.spot(index);
      const [mn, at] = name === "A" ? [row, col] : [col, row];
      return 8 * address(mn, at) + (((major === "k" ? at : mn) * bits) % 8);
    });
    this.shared.set(name, found);
    return found;
  }

  private fromShared(name: string, matrix: Matrix): Patterns | null {
    const { memory } = this;
    const places = memory < 0 ? null : this.bitsInShared(name, matrix);
    if (!places) return null;
    const type = this.catalogue.types[matrix.type];
    const found = patterns(type, matrix.size);
    const bytes = Math.max(1, type.bits >> 3);
    const mask = type.bits >= 32 ? 0xffffffff : 2 ** type.bits - 1;
    return this.run.memories[memory].peek(this.readAt, (content) => {
      for (let index = 0; index < matrix.size; index++) {
        let [word, at] = [0, places[index] >> 3];
        for (let byte = bytes - 1; byte >= 0; byte--) word = word * 256 + (content[at + byte] ?? 0);
        found[index] = ((word >>> (places[index] & 7)) & mask) >>> 0;
      }
      return found;
    });
  }

  private get readAt(): number {
    return this.unit && this.done >= 0 ? this.done - 1 : this.step;
  }

  // ── the accumulator ───────────────────────────────────────────────────────

  /** Products of the same warpgroup that write the same registers. */
  private others(): Unit[] {
    const { units } = this.run.head;
    const d = String(this.bound.operands.d);
    const group = this.members.map(({ warp }) => warp);
    return units.filter(
      (each) => each !== this.unit && group.includes(each.warp) && String(this.products.bound(each.site)?.operands.d) === d,
    );
  }

  private accumulator(): Patterns {
    const matrix = this.scene.matrices.get("C") ?? this.scene.matrices.get("D")!;
    const type = this.catalogue.types[matrix.type];
    const [{ warp, step }] = this.members;
    const scale = this.bound.operands.scale_d?.[0];
    const kept = scale === undefined || (this.word(scale, warp, firstLane(this.run.columns.lanes[step]), step - 1) ?? 1n) & 1n;
    if (!kept) return patterns(type, matrix.size);
    const before = this.unit && this.unbroken();
    if (before) return before;
    const sources = this.registers.get("C")!;
    if (!this.unit) return this.gathered(matrix, sources, (member) => this.beforeD(member));
    const begins = this.members.map((member) =>
      (sources as number[]).map((source) => this.run.settled(member.warp, source, this.beforeD(member))?.at ?? -1),
    );
    return this.collected(matrix, sources, begins, (member) => this.beforeD(member));
  }

  /** What the product before leaves, if no step has recorded it; null if one has. */
  private unbroken(): Patterns | null {
    const last = this.others()
      .filter(({ issued }) => issued < this.unit!.issued)
      .sort((one, other) => one.issued - other.issued)
      .at(-1);
    if (!last) return null;
    const [register] = this.bound.operands.d as number[];
    // While a product is in flight, its registers hold nothing.
    const settled = this.members.every((member) => {
      const held = this.run.settled(member.warp, register, this.beforeD(member));
      return held && last.done >= 0 && held.step >= last.done;
    });
    if (settled) return null;
    const before = this.products.at(last.issued);
    return before.recorded() ?? (before.values.bits("D") as Patterns);
  }

  /** D as it was recorded; null where it was not. */
  recorded(): Patterns | null {
    const matrix = this.scene.matrices.get("D")!;
    const sources = this.registers.get("D") as number[] | undefined;
    if (this.done < 0 || !sources) return null;
    if (!this.unit) return this.gathered(matrix, sources, () => this.step);
    const unit = this.run.head.units.indexOf(this.unit);
    const begins = this.members.map(({ warp }) => sources.map((source) => this.run.writtenBy(unit, warp, source)));
    // Where the next product is in flight already, nothing is left of this one.
    const gone = begins.flat().some((begin) => begin < 0 || this.run.isPoison(begin));
    return gone ? null : this.collected(matrix, sources, begins, () => this.done);
  }

  // ── where ─────────────────────────────────────────────────────────────────

  /** Where an element of an operand was when it was read; of D, where it is now. */
  where(name: string, index: number): Where {
    const matrix = this.scene.matrices.get(name)!;
    const sources = this.registers.get(name);
    if (sources) {
      const source = sources[matrix.register[index]];
      if (typeof source !== "number") return { kind: "constant" };
      const { member, lane, low } = this.place(matrix, index);
      const before = name === "C" ? this.beforeD(member) : this.before(member);
      const step = name === "D" ? Math.max(this.done, member.step) : before;
      return { kind: "register", warp: member.warp, register: source, lane, low, bits: matrix.bits, step };
    }
    const places = this.bitsInShared(name, matrix);
    if (!places) return { kind: "constant" };
    return { kind: "memory", memory: this.memory, offset: places[index] >> 3, bytes: Math.max(1, matrix.bits >> 3), step: this.readAt };
  }

  /** The element of D in some bits of a register of a lane; -1 if there is none. */
  elementOfD(warp: number, register: number, lane: number, low: number): number {
    const matrix = this.scene.matrices.get("D")!;
    const which = (this.registers.get("D") ?? []).indexOf(register);
    const member = this.members.findIndex((each) => each.warp === warp);
    if (which < 0 || member < 0) return -1;
    for (let index = 0; index < matrix.size; index++) {
      if (matrix.register[index] !== which || matrix.lane[index] !== lane + (this.members.length > 1 ? 32 * member : 0)) continue;
      const [first, last] = matrix.bitRange(matrix.slot[index]);
      if (first <= low && low <= last) return index;
    }
    return -1;
  }
}

/** What was made once, by its key. */
function kept<K, T>(known: Map<K, T>, key: K, make: () => T): T {
  let found = known.get(key);
  if (found === undefined) known.set(key, (found = make()));
  return found;
}

function firstLane(mask: number): number {
  return mask ? 31 - Math.clz32(mask & -mask) : 0;
}
