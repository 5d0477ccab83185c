// The products of a run: the elements that their operands had, and where these were.  The
// instructions are records of the explorer's, so that its code draws and explains them.

import { addresses, decoded, type Major } from "../../src/memory/shared.js";
import { patterns, type Patterns } from "../../src/numbers/elements.js";
import { Values, type Codes } from "../../src/numbers/values.js";
import type { Catalogue } from "../../src/records/catalogue.js";
import { Matrix, scene, type Pins, type Scene } from "../../src/records/matrix.js";
import type { Unit } from "./head.js";
import { upTo } from "./lists.js";
import type { Recording } from "./recording.js";

/** A register, a constant, a predicate that is negated, or an address. */
export type Source = number | ["=", string] | ["!", number] | ["+", number, number];

/** What an instruction descriptor says: the instruction, and how A and B are read. */
export interface Shape {
  op: number;
  major: Record<string, Major>;
  negated: string[];
}

/** An instruction with its operands, by their names in the manual. */
export interface Bound {
  op: number;
  operands: Record<string, Source[]>;
  /** Of a tcgen05.mma: the shapes that it had, by their instruction descriptors. */
  shapes?: Record<string, Shape>;
  /** If nobody can compute its D: why, what is drawn, and which operands are not read. */
  unknown?: { words: string; unread: string[] };
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
  /** A unit: what it has written, or wrote after others at the same step, does not count. */
  before?: number;
  /** A write, by its number: what was written after it does not count. */
  until?: number;
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
  private blocks = new Map<string, Uint32Array>();
  private made = new Map<string, Product>();
  private units = new Map<string, Unit[]>();
  private runs = new Map<string, Uint32Array>();
  private groups = new Map<number, number[]>();
  private byIssue: Map<number, Unit> | null = null;

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
    const make = () => this.run.stepsOfWarp(warp).filter((step) => this.isProduct(step));
    return kept(this.steps, warp, make);
  }

  /** A tcgen05.mma is one only where a lane issues it, with a shape that exists. */
  private isProduct(step: number): boolean {
    const { site, lanes } = this.run.columns;
    const bound = this.bound(site[step]);
    return bound !== null && (!bound.shapes || (lanes[step] !== 0 && this.shapeAt(step, bound) !== undefined));
  }

  /** What the instruction descriptor of a step says. */
  private shapeAt(step: number, { operands, shapes }: Bound): Shape | undefined {
    const { warp, lanes } = this.run.columns;
    const word = wordOf(this.run, operands.idesc[0], warp[step], firstLane(lanes[step]), step - 1);
    return word === null ? undefined : shapes![String(word)];
  }

  /** The last product that a warp has run up to a step; null if there is none.  If it has
   * run none, the last one of its block with D in tensor memory: any warp may read that. */
  last(warp: number, step: number): Product | null {
    for (const steps of [this.ofWarp(warp), this.ofBlock(warp)]) {
      const at = upTo(steps, step);
      if (at) return this.at(steps[at - 1]);
    }
    return null;
  }

  /** The steps of products in tensor memory of the block of a warp. */
  private ofBlock(warp: number): Uint32Array {
    const { site } = this.run.columns;
    const { warps } = this.run.head;
    const own = String(warps[warp].block);
    const make = () => {
      const members = [...warps.keys()].filter((each) => String(warps[each].block) === own);
      const steps = members.flatMap((each) => [...this.ofWarp(each)]);
      return Uint32Array.from(steps.filter((step) => this.bound(site[step])!.shapes)).sort();
    };
    return kept(this.blocks, own, make);
  }

  /** The product of a step. */
  at(step: number): Product {
    const { run } = this;
    const bound = this.bound(run.columns.site[step])!;
    const shape = bound.shapes && this.shapeAt(step, bound);
    const unit = shape ? this.issuedAt(step) : this.unitOf(step);
    // The warps of a warpgroup have their product in common.
    const key = unit ? `unit ${run.head.units.indexOf(unit)}` : String(step);
    let found = this.made.get(key);
    if (!found) {
      if (this.made.size > 40) this.made.clear();
      this.made.set(key, (found = new Product(this, bound, step, unit, shape ?? null)));
    }
    return found;
  }

  /** The asynchronous work that a step has issued. */
  private issuedAt(step: number): Unit | null {
    this.byIssue ??= new Map(this.run.head.units.filter(({ issued }) => issued >= 0).map((each) => [each.issued, each]));
    return this.byIssue.get(step) ?? null;
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

  /** The work of a warpgroup at an instruction: it is issued when the last warp comes. */
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
  private inMemory = new Map<string, Places | null>();
  private registers: Map<string, Source[]>;

  constructor(
    private products: Products,
    readonly bound: Bound,
    readonly step: number,
    readonly unit: Unit | null,
    /** What the descriptor says of a product in tensor memory. */
    readonly shape: Shape | null = null,
  ) {
    const { catalogue } = products;
    const op = catalogue.instructions[(shape ?? bound).op];
    this.scene = scene(catalogue, op, this.constant("selector", 0), this.pins());
    if (shape) this.addPlain();
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

  /** Why D cannot be computed, and what is drawn nevertheless; empty if it can. */
  get unknown(): string {
    return this.bound.unknown?.words ?? "";
  }

  /** Operands, and D as the hardware computes it from them. */
  get values(): Values {
    return (this.found ??= this.valuesNow());
  }

  private warps(): Member[] {
    const { run } = this;
    const { warp } = run.columns;
    const { unit, step } = this;
    if (this.scene.warps < 4 || !unit || this.shape) return [{ warp: warp[step], step }];
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
    if (!this.shape) return { scale_A: of("a"), scale_B: of("b") };
    // Which half of each 32 lanes an operand in tensor memory has.
    const base = (name: string) => ({ base: (this.address(name) >>> 16) >> 4 });
    return { D: base("d"), A: base("a"), scale_A: base("scale_a"), scale_B: base("scale_b"), metadata: base("metadata") };
  }

  /** A is in shared memory if a descriptor says where; D is what is added to, too. */
  private addPlain(): void {
    const { matrices } = this.scene;
    const [a, d] = [matrices.get("A"), matrices.get("D")!];
    if (a && !this.isAddress("a")) matrices.set("A", new Matrix("A", a.type, a.bits, null, [a.rows, a.cols], {}, a.ctas));
    matrices.set("C", new Matrix("C", d.type, d.bits, d.part, [], d.pinned));
  }

  private isAddress(name: string): boolean {
    const source = this.bound.operands[name]?.[0];
    return Array.isArray(source) && source[0] === "+";
  }

  /** The number that the first lane gives as an operand; null if it is not known. */
  private given(name: string, item = 0): bigint | null {
    const source = this.bound.operands[name]?.[item];
    const { warp, lanes } = this.run.columns;
    return source === undefined ? null : wordOf(this.run, source, warp[this.step], firstLane(lanes[this.step]), this.step - 1);
  }

  /** An address in tensor memory: the lane in the upper half, the column in the lower. */
  private address(name: string): number {
    return Number(this.given(name) ?? 0n);
  }

  /** Which registers each operand has. */
  private inRegisters(): Map<string, Source[]> {
    const names: Record<string, string> = {
      A: "a", B: "b", C: "c", D: "d", metadata: "metadata", scale_A: "scale_a", scale_B: "scale_b",
    };
    const found = new Map<string, Source[]>();
    if (this.shape) return found;
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

  private word(source: Source, warp: number, lane: number, step: number): bigint | null {
    return wordOf(this.run, source, warp, lane, step);
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
    if (this.isUnread(name)) return null;
    if (found === undefined) this.read.set(name, (found = name === "C" ? this.accumulator() : this.operand(name)));
    return found;
  }

  /** Whether nobody knows what is read as an operand. */
  isUnread(name: string): boolean {
    return this.bound.unknown?.unread.includes(name) ?? false;
  }

  private operand(name: string): Patterns | null {
    if (!this.scene.matrices.has(name)) return null;
    const matrix = this.scene.matrices.get(name)!;
    const sources = this.registers.get(name);
    const found = sources
      ? this.gathered(matrix, sources, (member) => this.before(member))
      : this.fromMemory(name, matrix);
    const turned = this.shape ? this.shape.negated.includes(name) : this.constant(`imm_scale_${name.toLowerCase()}`, 1) < 0;
    const negated = found && name.length === 1 && turned;
    if (!negated) return found;
    const sign = 2 ** (this.catalogue.types[matrix.type].used - 1);
    for (let index = 0; index < found.length; index++) found[index] = ((Number(found[index]) ^ sign) >>> 0) as never;
    return found;
  }

  private codesNow(): Codes {
    const metadata = this.scene.matrices.get("metadata");
    const sources = this.registers.get("metadata");
    if (metadata && this.shape) return Uint8Array.from(this.bits("metadata") ?? [], Number);
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

  // ── memory ────────────────────────────────────────────────────────────────

  /** The blocks whose memories are used: that of the warp, or both of a pair of CTAs. */
  private get blocks(): string[] {
    const { head } = this.run;
    const own = [String(head.warps[this.members[0].warp].block)];
    if ((this.scene.op.tensor?.ctas ?? 1) === 1) return own;
    const wrote = (this.unit?.writes ?? []).map(([memory]) => memory).sort((one, other) => one - other);
    return [...new Set(wrote.map((each) => String(head.memories[each].block)))];
  }

  /** The numbers of the memories of a kind of these blocks; empty if one is missing. */
  private memoriesOf(kind: string): number[] {
    const { memories } = this.run.head;
    const found = this.blocks.map((block) => memories.findIndex((each) => each.kind === kind && String(each.block) === block));
    return found.length < (this.scene.op.tensor?.ctas ?? 1) || found.includes(-1) ? [] : found;
  }

  /** Where each element of an operand is that is not in registers; null if not known. */
  private places(name: string, matrix: Matrix): Places | null {
    if (this.isUnread(name)) return null;
    return kept(this.inMemory, name, () => (matrix.tensor ? this.cells(name, matrix) : this.inShared(name, matrix)));
  }

  /** The cells of tensor memory that an operand has. */
  private cells(name: string, matrix: Matrix): Places | null {
    const memories = this.memoriesOf("tensor");
    const address = this.given(name === "C" ? "d" : name.toLowerCase());
    if (!memories.length || address === null) return null;
    const column = Number(address) & 0xffff;
    const bits = new Int32Array(matrix.size);
    const of = new Uint8Array(matrix.size);
    for (let index = 0; index < matrix.size; index++) {
      const lane = matrix.lane[index];
      const [low] = matrix.bitRange(matrix.slot[index]);
      of[index] = lane >> 7;
      bits[index] = 32 * ((lane & 127) * CELLS + column + matrix.register[index]) + low;
    }
    return { memories, of, bits, tensor: true };
  }

  /** Where in shared memory it is, by its descriptor; a pair has a half in each CTA. */
  private inShared(name: string, matrix: Matrix): Places | null {
    const memories = this.memoriesOf("shared");
    const word = this.given(name.toLowerCase());
    const { shape } = this;
    const descriptor = word === null ? null : decoded(this.catalogue, shape ? "tcgen05" : "wgmma", word);
    if (!descriptor || !memories.length) return null;
    const major: Major = shape ? shape.major[name] : this.constant(`trans_${name.toLowerCase()}`, 0) ? "mn" : "k";
    const [across, k] = name === "A" ? [matrix.rows, matrix.cols] : [matrix.cols, matrix.rows];
    const rows = across / memories.length;
    const { bits } = matrix;
    const { kinds, group } = this.catalogue.memory.padded;
    const padded = shape !== null && bits < 8 && kinds.includes(this.scene.op.values.kind.replace("kind::", ""));
    const address = addresses(this.catalogue, descriptor, { rows, k, bits, major, narrow: padded ? bits : undefined });
    const of = new Uint8Array(matrix.size);
    const found = Int32Array.from({ length: matrix.size }, (_, index) => {
      const [, row, col] = matrix.spot(index);
      const [mn, at] = name === "A" ? [row, col] : [col, row];
      of[index] = Math.floor(mn / rows);
      const along = major === "k" ? at : mn % rows;
      return 8 * address(mn % rows, at) + (((padded ? along % group : along) * bits) % 8);
    });
    return { memories, of, bits: found, tensor: false };
  }

  /** An operand in memory; of tensor memory what was there before D came, or after it. */
  private fromMemory(name: string, matrix: Matrix, after = false): Patterns | null {
    const places = this.places(name, matrix);
    if (!places) return null;
    const contents = places.memories.map((_, cta) => this.content(places, cta, matrix.bits, after));
    const type = this.catalogue.types[matrix.type];
    const found = patterns(type, matrix.size);
    const mask = type.bits >= 32 ? 0xffffffff : 2 ** type.bits - 1;
    for (let index = 0; index < matrix.size; index++) {
      const content = contents[places.of[index]];
      const [at, low] = [places.bits[index] >> 3, places.bits[index] & 7];
      let word = 0;
      for (let byte = (low + type.bits - 1) >> 3; byte >= 0; byte--) word = word * 256 + (content[at + byte] ?? 0);
      found[index] = ((word >>> low) & mask) >>> 0;
    }
    return found;
  }

  /** The bytes of a memory that an operand is in. */
  private content({ memories, of, bits, tensor }: Places, cta: number, each: number, after: boolean): Uint8Array {
    const history = this.run.memories[memories[cta]];
    if (!tensor) return history.peek(this.readAt, (content) => content.slice());
    const wanted = new Uint8Array(history.size);
    const bytes = Math.ceil(each / 8);
    for (let index = 0; index < bits.length; index++) {
      if (of[index] === cta) wanted.fill(1, bits[index] >> 3, (bits[index] >> 3) + bytes);
    }
    return history.around(this.run.head.units.indexOf(this.unit!), this.step, after, wanted);
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

  /** What is in the cells of D before: it is added, unless it is said not to be. */
  private cellsBefore(): Patterns | null {
    const matrix = this.scene.matrices.get("C")!;
    const type = this.catalogue.types[matrix.type];
    if (this.given("enable_input_d") === 0n) return patterns(type, matrix.size);
    const found = this.fromMemory("C", matrix);
    const scale = this.constant("scale_input_d", 0);
    if (!found || !scale) return found;
    // Times 2 ** -scale: the launch refuses what that makes subnormal.
    const [top, one] = [2 ** type.exponent - 1, 2 ** type.fraction];
    for (let index = 0; index < found.length; index++) {
      const exponent = Math.floor(Number(found[index]) / one) & top;
      if (exponent !== 0 && exponent !== top) found[index] = (Number(found[index]) - scale * one) as never;
    }
    return found;
  }

  private accumulator(): Patterns | null {
    if (this.shape) return this.cellsBefore();
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

  /** Why an element of D is not what its operands make; empty if it is. */
  unwritten(index: number): string {
    if (!this.shape) return "";
    if (this.unknown) return this.unknown;
    if (this.given("zero_column_mask")) return "The zero-column mask makes columns of B zero; that is not drawn, and D is not explained.";
    const lane = this.scene.matrices.get("D")!.lane[index];
    const mask = Number(this.given("disable_output_lane", lane >> 5) ?? 0n);
    return (mask >>> (lane & 31)) & 1 ? `disable-output-lane has lane ${lane & 127}: it is not written, and D stays as it was there.` : "";
  }

  /** D as it was recorded; null where it was not. */
  recorded(): Patterns | null {
    const matrix = this.scene.matrices.get("D")!;
    const sources = this.registers.get("D") as number[] | undefined;
    if (this.unknown) return null;
    if (this.shape) return this.done < 0 ? null : this.fromMemory("D", matrix, true);
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
    const places = this.places(name, matrix);
    const none = name === "C" && this.given("enable_input_d") === 0n;
    if (!places || none) return { kind: "constant" };
    const found = { memory: places.memories[places.of[index]], offset: places.bits[index] >> 3, bytes: Math.max(1, matrix.bits >> 3) };
    if (!places.tensor) return { kind: "memory", ...found, step: this.readAt };
    const step = Math.max(this.done, this.step);
    return name === "D" ? { kind: "memory", ...found, step } : { kind: "memory", ...found, step, before: this.run.head.units.indexOf(this.unit!) };
  }

  /** Whether an operand is in tensor memory, in shared memory or in registers. */
  placeOf(name: string): "tensor" | "shared" | "registers" {
    const matrix = this.scene.matrices.get(name)!;
    if (matrix.tensor) return "tensor";
    return this.registers.has(name) || !"AB".includes(name) ? "registers" : "shared";
  }

  /** The element of D in a byte of tensor memory; -1 if there is none. */
  elementAt(memory: number, offset: number): number {
    const matrix = this.scene.matrices.get("D")!;
    const places = this.shape && this.places("D", matrix);
    if (!places) return -1;
    const cell = offset & ~3;
    return places.bits.findIndex((bits, index) => bits >> 3 === cell && places.memories[places.of[index]] === memory);
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

/** A word of a lane after a step; null if it was never written. */
export function wordOf(run: Recording, source: Source, warp: number, lane: number, step: number): bigint | null {
  if (Array.isArray(source)) {
    if (source[0] === "=") return BigInt.asUintN(64, BigInt(source[1]));
    const of = wordOf(run, source[1], warp, lane, step);
    if (source[0] === "!") return 1n - (of ?? 0n);
    return of === null ? null : BigInt.asUintN(32, of + BigInt(source[2]));
  }
  const register = run.head.registers[source];
  const held = run.held(warp, source, step);
  if (!held) return null;
  const { words } = run.columns;
  if (register.type === "pred") return BigInt((words[held.at] >>> lane) & 1);
  if (register.bits <= 32) return BigInt(words[held.at + lane]);
  const at = held.at + 2 * lane;
  return (BigInt(words[at + 1]) << 32n) | BigInt(words[at]);
}

/** What was made once, by its key. */
function kept<K, T>(known: Map<K, T>, key: K, make: () => T): T {
  let found = known.get(key);
  if (found === undefined) known.set(key, (found = make()));
  return found;
}

/** Columns of tensor memory. */
export const CELLS = 512;

/** Where the elements of an operand are: which memory, and eight times the byte. */
interface Places {
  memories: number[];
  /** Per element the place in ``memories``, and eight times the byte, plus the bit. */
  of: Uint8Array;
  bits: Int32Array;
  tensor: boolean;
}

export function firstLane(mask: number): number {
  return mask ? 31 - Math.clz32(mask & -mask) : 0;
}
