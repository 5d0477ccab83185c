// Where a value comes from: the step that wrote it, and what that step had it from; through
// registers, loads, stores and copies, back to a product or to what was there at first.

import { scene, type Matrix } from "../../src/records/matrix.js";
import type { Site } from "./head.js";
import type { Access } from "./memory.js";
import { CELLS, firstLane, wordOf, type Bound, type InMemory, type InRegister, type Products, type Source, type Where } from "./products.js";
import type { Recording } from "./recording.js";

/** An element of D of the product of a step. */
export interface Made {
  step: number;
  index: number;
}

/** Who wrote a value, and what it was made of. */
export interface Origin {
  where: Where;
  /** The step that wrote it; -1: it was there before the first. */
  step: number;
  access: Access | null;
  from: Where[];
  product: Made | null;
}

/** Steps that are followed at most. */
const FARTHEST = 400;

export class Origins {
  private matrices = new Map<number, ReturnType<typeof scene>>();

  constructor(
    private run: Recording,
    private products: Products | null,
  ) {}

  /** Who wrote a value last. */
  of(where: Where): Origin {
    if (where.kind === "register") return this.ofRegister(where);
    if (where.kind === "memory") return this.ofMemory(where);
    return { where, step: -1, access: null, from: [], product: null };
  }

  /** A value, what it was copied from, what that was … as long as there is one. */
  chain(where: Where, most = 12): Origin[] {
    const found: Origin[] = [];
    for (let at: Where | undefined = where; at && found.length < most; ) {
      const origin = this.of(at);
      found.push(origin);
      at = origin.product || origin.from.length !== 1 ? undefined : origin.from[0];
    }
    return found;
  }

  /** The nearest elements of products that a value was made of. */
  madeOf(where: Where): Made[] {
    let level: Where[] = [where];
    const seen = new Set<string>();
    for (let left = FARTHEST; level.length && left > 0; ) {
      const found: Made[] = [];
      const next: Where[] = [];
      for (const each of level) {
        const key = Object.values(each).join();
        if (seen.has(key) || left-- < 0) continue;
        seen.add(key);
        const { product, from } = this.of(each);
        if (product) found.push(product);
        else next.push(...from);
      }
      if (found.length) return distinctMade(found);
      level = next;
    }
    return [];
  }

  // ── registers ─────────────────────────────────────────────────────────────

  private ofRegister(where: InRegister): Origin {
    const { run } = this;
    const wide = run.head.registers[where.register].bits !== 32;
    const held = run[wide ? "heldBy" : "settledBy"](where.warp, where.register, where.step, where.lane);
    const none = { where, step: held?.step ?? -1, access: null, from: [], product: null };
    if (!held || held.step < 0) return none;
    const unit = run.unitAt(held.at);
    const found = { ...none, product: unit < 0 ? this.productOf(where, held.step) : this.productOfUnit(where, unit) };
    // What a unit wrote late is not of the step at which it came.
    if (found.product || unit >= 0) {
      return unit < 0 ? found : { ...found, from: found.product ? [] : this.cellOf(where, unit), step: run.head.units[unit].issued };
    }
    return { ...found, from: this.inputs(where, held.step) };
  }

  /** The element of D, if a product of a warpgroup wrote the register. */
  private productOfUnit({ warp, register, lane, low }: InRegister, unit: number): Made | null {
    const { products, run } = this;
    const { site, issued } = run.head.units[unit];
    if (!products?.bound(site) || issued < 0) return null;
    const product = products.at(issued);
    const index = product.elementOfD(warp, register, lane, low);
    const own = product.members.find((each) => each.warp === warp)?.step ?? issued;
    return index < 0 ? null : { step: own, index };
  }

  /** The cell of tensor memory that a tcgen05.ld has loaded into a register of a lane. */
  private cellOf({ warp, register, lane, low, bits }: InRegister, unit: number): Where[] {
    const { site, issued, done } = this.run.head.units[unit];
    const move = issued < 0 || done < 0 ? null : this.move(site, warp, issued);
    const which = move ? move.registers.indexOf(register) : -1;
    if (!move || which < 0) return [];
    const { matrix } = move;
    for (let index = 0; index < matrix.size; index++) {
      if (matrix.lane[index] !== lane || matrix.register[index] !== which) continue;
      const [first, last] = matrix.bitRange(matrix.slot[index]);
      if (low < first || low > last) continue;
      const offset = move.offset(index) + ((low - first) >> 3);
      return [{ kind: "memory", memory: move.memory, offset, bytes: Math.max(1, Math.min(bits, matrix.bits) >> 3), step: done }];
    }
    return [];
  }

  /** The register that a tcgen05.st has stored in a cell of tensor memory. */
  private storedIn({ offset, bytes }: InMemory, unit: number): Where[] {
    const { site, issued, warp } = this.run.head.units[unit];
    const move = issued < 0 ? null : this.move(site, warp, issued);
    if (!move) return [];
    const { matrix } = move;
    for (let index = 0; index < matrix.size; index++) {
      if (move.offset(index) !== (offset & ~3)) continue;
      const register = move.registers[matrix.register[index]];
      if (typeof register !== "number") return [];
      const low = matrix.bitRange(matrix.slot[index])[0] + 8 * (offset & 3);
      return [{ kind: "register", warp, register, lane: matrix.lane[index], low, bits: Math.min(8 * bytes, matrix.bits), step: issued - 1 }];
    }
    return [];
  }

  /** A move between registers and tensor memory: the bytes at which its elements are. */
  private move(site: number, warp: number, step: number): { matrix: Matrix; registers: Source[]; memory: number; offset: (index: number) => number } | null {
    const { products, run } = this;
    const bound = products?.given.sites[site];
    const matrix = bound && this.sceneOf(site, bound).matrices.get("R");
    if (!bound || !matrix) return null;
    const block = String(run.head.warps[warp].block);
    const memory = run.head.memories.findIndex((each) => each.kind === "tensor" && String(each.block) === block);
    const lane = firstLane(run.columns.lanes[step]);
    const number = (name: string) => Number((bound.operands[name] && wordOf(run, bound.operands[name][0], warp, lane, step - 1)) ?? 0n);
    const [address, split] = [number("taddr"), number("imm_half_splitoff")];
    const offset = (index: number) => {
      const [half, row, col] = matrix.spot(index);
      return 4 * (CELLS * ((address >>> 16) + row) + (address & 0xffff) + half * split + col);
    };
    return memory < 0 ? null : { matrix, registers: bound.operands.r, memory, offset };
  }

  private sceneOf(number: number, { op }: Bound): ReturnType<typeof scene> {
    const { catalogue } = this.products!;
    let known = this.matrices.get(number);
    if (!known) this.matrices.set(number, (known = scene(catalogue, catalogue.instructions[op], 0)));
    return known;
  }

  /** The element of D, if a product wrote the register. */
  private productOf({ warp, register, lane, low }: InRegister, step: number): Made | null {
    const { products, run } = this;
    if (!products) return null;
    if (!products.bound(run.columns.site[step])) return null;
    const steps = products.ofWarp(warp).filter((each) => each <= step);
    for (const each of [...steps].reverse()) {
      const product = products.at(each);
      if (product.done < 0 || product.done > step) continue;
      const index = product.elementOfD(warp, register, lane, low);
      if (index >= 0) return { step: each, index };
    }
    return null;
  }

  private inputs(where: InRegister, step: number): Where[] {
    const site = this.run.site(step);
    if (/^ldmatrix/.test(site.opcode)) return this.matrixRow(where, step);
    if (/^movmatrix/.test(site.opcode)) return this.transposed(where, step);
    if (/^shfl/.test(site.opcode)) return this.shuffled(where, site, step);
    if (/^(redux|vote|match|elect|wmma\.load)/.test(site.opcode)) return []; // of many lanes
    if (/^(ld|atom|tld)\b/.test(site.opcode)) return this.loaded(where, site, step);
    const before = (register: number, low: number, bits: number): InRegister => ({ ...where, register, low, bits, step: step - 1 });
    const [result, ...given] = operandsOf(site);
    const sized = (register: number) => this.run.head.registers[register].bits;
    const named = (text: string) => this.register(site, text);
    // mov.b32 %r, {%h1, %h2}: one of the halves.
    const packed = /^\{(.*)\}$/.exec(given[0] ?? "");
    if (/^mov/.test(site.opcode) && packed) {
      const parts = packed[1].split(",").map((each) => named(each.trim()));
      const bits = sized(where.register) / parts.length;
      const part = parts[Math.floor(where.low / bits)];
      return part === undefined || part < 0 ? [] : [before(part, where.low % bits, Math.min(bits, where.bits))];
    }
    // mov.b32 {%h1, %h2}, %r: a part of the word.
    const apart = /^\{(.*)\}$/.exec(result ?? "");
    if (/^mov/.test(site.opcode) && apart) {
      const parts = apart[1].split(",").map((each) => named(each.trim()));
      const from = named(given[0]);
      return from < 0 ? [] : [before(from, parts.indexOf(where.register) * sized(where.register) + where.low, where.bits)];
    }
    // cvt.rn.f16x2.f32 %r, %f1, %f2: the first is the upper half.
    if (/^cvt.*x2\./.test(site.opcode) && given.length === 2) {
      const part = named(given[where.low >= 16 ? 0 : 1]);
      return part < 0 ? [] : [before(part, 0, sized(part))];
    }
    return site.reads
      .filter((register) => this.run.head.registers[register].type !== "pred")
      .map((register) => before(register, 0, sized(register)));
  }

  /** The number of a register of a function, by its name. */
  private register({ function: name }: Site, text: string): number {
    return this.run.head.registers.findIndex((each) => each.name === text && (each.function ?? name) === name);
  }

  /** What a load of a lane read. */
  private loaded({ register, lane, low, bits }: InRegister, site: Site, step: number): Where[] {
    const which = site.writes.indexOf(register);
    const read = this.read(step, lane);
    if (!read) return [];
    const offset = read.offset + which * (read.size / site.writes.length) + (low >> 3);
    return [{ kind: "memory", memory: read.memory, offset, bytes: Math.max(1, bits >> 3), step: step - 1 }];
  }

  /** The row of a matrix that an element comes from: its address is another lane's. */
  private matrixRow({ register, lane, low, bits }: InRegister, step: number): Where[] {
    const found = this.element(step, "D", register, lane, low);
    if (!found) return [];
    const { matrix, index, op } = found;
    // Rows and columns are those of memory, also of what is transposed.
    const [m, row, col] = matrix.spot(index);
    const read = this.read(step, matrix.rows * m + row);
    if (!read) return [];
    // Elements of 6 and 4 bits become bytes.
    const narrow = this.products!.catalogue.memory.padded.moves[op.values.type];
    const first = col * (narrow?.bits ?? matrix.bits);
    const last = first + (narrow?.bits ?? Math.max(8, Math.min(bits, matrix.bits))) - 1;
    return [{ kind: "memory", memory: read.memory, offset: read.offset + (first >> 3), bytes: (last >> 3) - (first >> 3) + 1, step: step - 1 }];
  }

  /** The register of the lane that had the same element before a movmatrix. */
  private transposed(where: InRegister, step: number): Where[] {
    const found = this.element(step, "D", where.register, where.lane, where.low);
    const { matrices, operands } = found ?? {};
    const source = matrices?.get("A");
    const [register] = operands?.a ?? [];
    if (!found || !source || typeof register !== "number") return [];
    const low = source.bitRange(source.slot[found.index])[0];
    return [{ ...where, register, lane: source.lane[found.index], low, bits: Math.min(where.bits, source.bits), step: step - 1 }];
  }

  /** The element of a matrix that bits of a register of a lane are. */
  private element(step: number, name: string, register: number, lane: number, low: number) {
    const number = this.run.columns.site[step];
    const bound = this.products?.given.sites[number];
    if (!bound) return null;
    const { matrices, op } = this.sceneOf(number, bound);
    const matrix = matrices.get(name);
    const which = (bound.operands[name.toLowerCase()] ?? []).indexOf(register);
    if (!matrix || which < 0) return null;
    for (let index = 0; index < matrix.size; index++) {
      if (matrix.lane[index] !== lane || matrix.register[index] !== which) continue;
      const [first, last] = matrix.bitRange(matrix.slot[index]);
      if (low >= first && low <= last) return { matrix, index, op, matrices, operands: bound.operands };
    }
    return null;
  }

  /** The register of the lane that a shfl has it from. */
  private shuffled(where: InRegister, site: Site, step: number): Where[] {
    const [, from, ...rest] = operandsOf(site);
    const [source, shift, bounds] = [this.register(site, from ?? ""), ...rest.slice(0, 2).map((text) => this.word(site, text, where, step))];
    const mode = /\.(up|down|bfly|idx)\./.exec(site.opcode)?.[1];
    if (source < 0 || shift === null || bounds === null || !mode) return [];
    const [segment, clamp, by] = [(bounds >> 8) & 31, bounds & 31, shift & 31];
    const { lane } = where;
    const [least, most] = [lane & segment, (lane & segment) | (clamp & ~segment)];
    const goal = { up: lane - by, down: lane + by, bfly: lane ^ by, idx: least | (by & ~segment) }[mode]!;
    const inside = mode === "up" ? goal >= most : goal <= most;
    return [{ ...where, register: source, lane: inside ? goal : lane, step: step - 1 }];
  }

  /** An operand of a lane that is a register or a number. */
  private word(site: Site, text: string, { warp, lane }: InRegister, step: number): number | null {
    const register = this.register(site, text);
    if (register < 0) return /^-?(0x[\da-f]+|\d+)$/i.test(text) ? Number(text) : null;
    const found = wordOf(this.run, register, warp, lane, step - 1);
    return found === null ? null : Number(found);
  }

  /** What a lane read at a step, and in which memory. */
  private read(step: number, lane: number): { memory: number; offset: number; size: number } | null {
    for (const history of this.run.memories) {
      const found = history.readBy(step, lane);
      if (found) return { memory: history.number, ...found };
    }
    return null;
  }

  // ── memory ────────────────────────────────────────────────────────────────

  private ofMemory(where: InMemory): Origin {
    const access = this.run.memories[where.memory].wroteAt(where.step, where.offset, where.before, where.until);
    const found = { where, step: access?.step ?? -1, access, from: [], product: null };
    if (!access) return found;
    const product = this.productInMemory(where, access);
    if (product) return { ...found, step: product.step, product };
    return { ...found, from: this.stored(where, access) };
  }

  /** The element of D, if a product wrote the cell of tensor memory. */
  private productInMemory({ memory, offset }: InMemory, { unit }: Access): Made | null {
    const { products, run } = this;
    if (unit < 0 || !products || run.head.memories[memory].kind !== "tensor") return null;
    const { site, issued } = run.head.units[unit];
    if (issued < 0 || !products.bound(site)?.shapes) return null;
    const index = products.at(issued).elementAt(memory, offset);
    return index < 0 ? null : { step: issued, index };
  }

  /** The byte that a copy has put to another; null if the unit is none, or not done. */
  private copied(where: InMemory, { unit, step, item }: Access): InMemory | null {
    const { c_unit, c_memory, c_offset, c_from, c_at, c_size } = this.run.columns;
    const { done, read = -1 } = this.run.head.units[unit];
    if (done < 0 || done > step) return null;
    for (let at = beginOf(c_unit, unit); c_unit[at] === unit; at++) {
      const past = where.offset - c_offset[at];
      if (c_memory[at] !== where.memory || past < 0 || past >= c_size[at]) continue;
      // A copy reads before it writes; some have read a while before.
      return { kind: "memory", memory: c_from[at], offset: c_at[at] + past, bytes: where.bytes, step: read < 0 ? step : read, until: item };
    }
    return null;
  }

  private stored(where: InMemory, access: Access): Where[] {
    const { run } = this;
    const { step, lane, unit, offset, size } = access;
    const past = where.offset - offset;
    if (unit >= 0) {
      const source = this.copied(where, access);
      if (source) return [source];
      if (run.head.units[unit].kind === "tcgen05.st") return this.storedIn(where, unit);
      if (run.head.units[unit].kind !== "cp.async") return [];
      // A copy of a lane: what it read at the same step.
      const read = this.read(run.head.units[unit].issued, lane);
      if (!read || read.size < past) return [];
      return [{ ...where, memory: read.memory, offset: read.offset + past, step: step - 1 }];
    }
    const site = run.site(step);
    if (!/^st\b/.test(site.opcode) || lane < 0) return [];
    const items = operandsOf(site)[1]?.replace(/[{}]/g, "").split(",").map((each) => each.trim()) ?? [];
    const each = size / Math.max(1, items.length);
    const register = this.register(site, items[Math.floor(past / each)] ?? "");
    if (register < 0) return [];
    const warp = run.columns.warp[step];
    const low = 8 * (past % each);
    return [{ kind: "register", warp, register, lane, low, bits: Math.min(8 * where.bytes, 8 * each), step: step - 1 }];
  }
}

/** The first place in a sorted list with a number that is not less. */
function beginOf(list: Int32Array, number: number): number {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < number) low = middle + 1;
    else high = middle;
  }
  return low;
}

function distinctMade(found: Made[]): Made[] {
  const keys = new Map(found.map((each) => [`${each.step} ${each.index}`, each]));
  return [...keys.values()];
}

/**
 * The operands of an instruction as it is written; what is in braces stays together.  None
 * if the line does not have all of it.
 */
export function operandsOf({ text, opcode }: Pick<Site, "text" | "opcode">): string[] {
  const begin = text.indexOf(opcode);
  const end = text.indexOf(";", begin);
  if (begin < 0 || end < 0) return [];
  const plain = text.slice(begin + opcode.length, end);
  const found: string[] = [];
  let [depth, from] = [0, 0];
  for (let at = 0; at <= plain.length; at++) {
    if ("{[(".includes(plain[at] ?? " ")) depth++;
    if ("}])".includes(plain[at] ?? " ")) depth--;
    if (at < plain.length && !(plain[at] === "," && !depth)) continue;
    found.push(plain.slice(from, at).trim());
    from = at + 1;
  }
  return found.filter(Boolean);
}
