// The user's own values: what was typed, pasted or loaded, over the initial ones.  A
// few are in the link one by one, whole operands are packed into it; what is larger
// would make it too long and is kept here.

import type { Patterns } from "./elements.js";
import type { Explorer } from "../page/explorer.js";
import { filled, type Fill, type Filled } from "./fills.js";
import { MOST_PACKED, packed, unpacked } from "./packing.js";
import { firstCodes, type Codes } from "./storing.js";

/** The most elements and codes that a link has one by one. */
export const MOST_IN_LINK = 64;

export class Own {
  /** Counts changes, so that what follows from the values knows when it is old. */
  version = 0;
  /** Whole operands that are not in the link. */
  private given = new Map<string, Patterns>();
  private givenCodes: Codes | null = null;
  private began: { key: string; filled: Filled } | null = null;
  private made: Map<string, Patterns> | null = null;
  private madeFrom = "";
  private op = "";
  /** The text of the link for what was given. */
  private packed = "";
  /** Whether values that no link has were just forgotten, unasked. */
  dropped = false;
  /** Whether the values of a link could not be read. */
  unread = false;

  constructor(private explorer: Explorer) {}

  /** After every change: forget what belongs to another instruction. */
  keep(): void {
    const { state } = this.explorer;
    if (this.op !== state.op) {
      this.op = state.op;
      this.forget();
    }
    if (state.packed && state.packed !== this.packed) {
      this.packed = state.packed;
      void this.restore(state.packed);
    }
    const from = JSON.stringify([state.op, state.selector, this.fill, state.set]);
    if (from === this.madeFrom) return;
    this.madeFrom = from;
    this.made = null;
    this.version++;
  }

  private get fill() {
    const { fill } = this.explorer.state;
    return fill === "off" ? "small" : fill;
  }

  /** What one begins with. */
  private get first(): Filled {
    const { state, catalogue, scene } = this.explorer;
    const key = [state.op, state.selector, this.fill].join();
    if (this.began?.key !== key) {
      this.began = { key, filled: filled(catalogue, scene, this.fill) };
    }
    return this.began.filled;
  }

  /** The codes before any of them is changed by hand. */
  get codes(): Codes {
    if (this.givenCodes) return this.givenCodes;
    // Only the identity has others, and to fill all operands takes a while.
    return this.fill === "identity"
      ? this.first.codes
      : firstCodes(this.explorer.scene);
  }

  /** The bits of every operand. */
  get operands(): Map<string, Patterns> {
    this.made ??= this.compose();
    return this.made;
  }

  private compose(): Map<string, Patterns> {
    const found = new Map([...this.first.operands, ...this.given]);
    const changed = new Set<string>();
    for (const [place, hex] of Object.entries(this.explorer.state.set)) {
      const [name, at] = place.split(".");
      const bits = found.get(name);
      const matrix = this.explorer.matrix(name);
      if (!bits || !matrix || Number(at) >= bits.length) continue;
      if (!changed.has(name)) found.set(name, bits.slice());
      changed.add(name);
      const { used } = this.explorer.catalogue.types[matrix.type];
      const value = BigInt.asUintN(used, BigInt(`0x${hex}`));
      const wide = bits instanceof BigUint64Array;
      found.get(name)![Number(at)] = (wide ? value : Number(value)) as never;
    }
    return found;
  }

  /** Whether there are values of one's own, and whether a link has them. */
  get kind(): "none" | "in the link" | "only here" {
    if (this.given.size || this.givenCodes) return this.packed ? "in the link" : "only here";
    return Object.keys(this.explorer.state.set).length ? "in the link" : "none";
  }

  /** Take these bits for an operand, and these codes if A is stored by them. */
  take(name: string, bits: Patterns, codes: Codes | null = null): void {
    const { state, scene } = this.explorer;
    const before = this.first.operands.get(name)!;
    const set: Record<string, string> = {};
    for (const [place, hex] of Object.entries(state.set)) {
      if (!place.startsWith(`${name}.`)) set[place] = hex;
    }
    for (let at = 0; at < bits.length; at++) {
      if (bits[at] !== before[at]) set[`${name}.${at}`] = bits[at].toString(16);
    }
    const base = this.fill === "identity" ? this.first.codes : firstCodes(scene);
    const differing: Record<number, number> = codes ? {} : { ...state.codes };
    codes?.forEach((code, at) => {
      if (code !== base[at]) differing[at] = code;
    });
    const count = Object.keys(set).length + Object.keys(differing).length;
    if (count <= MOST_IN_LINK && !this.givenCodes) {
      this.given.delete(name);
      this.change(set, differing);
      if (this.given.size) void this.pack();
      return;
    }
    this.given.set(name, bits.slice());
    if (codes) this.givenCodes = codes.slice();
    const others = Object.entries(state.set).filter(
      ([at]) => !at.startsWith(`${name}.`),
    );
    this.change(Object.fromEntries(others), codes ? {} : state.codes);
    void this.pack();
  }

  /** Put whole operands into the link, if they are small enough. */
  private async pack(): Promise<void> {
    const { version } = this;
    const lists = [...this.given].map(([name, bits]) => [
      name,
      Array.from(bits as ArrayLike<number | bigint>, (each) => each.toString(16)),
    ]);
    if (this.givenCodes) lists.push(["codes", Array.from(this.givenCodes, (each) => each.toString(16))]);
    if (lists.some(([, bits]) => bits.length > MOST_PACKED)) return;
    const text = await packed(Object.fromEntries(lists) as Record<string, string[]>);
    if (version !== this.version) return; // changed again
    this.packed = text;
    this.explorer.update({ packed: text });
  }

  /** Take the operands of a link; what does not fit the instruction is left out. */
  private async restore(text: string): Promise<void> {
    const found = await unpacked(text);
    if (this.packed !== text) return; // another link was opened
    for (const [name, bits] of Object.entries(found ?? {})) {
      const before = name === "codes" ? this.codes : this.first.operands.get(name);
      const legal = bits.every((each) => /^[0-9a-f]{1,16}$/.test(each));
      if (before?.length !== bits.length || !legal) continue;
      const own = before.slice();
      const wide = own instanceof BigUint64Array;
      const used = name === "codes" ? 4 : this.explorer.catalogue.types[this.explorer.matrix(name)!.type].used;
      bits.forEach((each, at) => {
        const value = BigInt.asUintN(used, BigInt(`0x${each}`));
        own[at] = (wide ? value : Number(value)) as never;
      });
      if (name === "codes") this.givenCodes = own as Codes;
      else this.given.set(name, own as Patterns);
    }
    this.unread = !this.given.size && !this.givenCodes;
    if (this.unread) this.packed = "";
    this.change(this.explorer.state.set, this.explorer.state.codes, this.packed);
  }

  /** Back to what one began with. */
  reset(): void {
    this.forget();
    this.dropped = false; // this was asked for
    this.begin(this.fill);
  }

  /** Begin anew, with other values. */
  begin(fill: Fill): void {
    this.forget();
    this.explorer.update({ set: {}, codes: {}, packed: "", fill });
  }

  private forget(): void {
    if (this.kind === "only here") this.dropped = true;
    this.given.clear();
    this.givenCodes = null;
    this.packed = "";
    this.made = null;
    this.madeFrom = "";
    this.version++;
  }

  private change(
    set: Record<string, string>,
    codes: Record<number, number>,
    packed = "",
  ): void {
    this.made = null;
    this.version++;
    this.packed = packed;
    this.explorer.update({ set, codes, packed, fill: this.fill });
  }
}
