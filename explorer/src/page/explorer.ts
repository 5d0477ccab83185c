// What is going on: the state, what follows from it, and who wants to know.

import type { Catalogue, Instruction, Part, Way } from "../records/catalogue.js";
import { highlight, holder, type Highlight, type Spot } from "../drawing/highlight.js";
import { laneText, scene, type Matrix, type Scene } from "../records/matrix.js";
import { toast } from "./dom.js";
import { follow } from "./link.js";
import { themeOf, type Theme } from "../drawing/palette.js";
import { Route } from "../memory/route.js";
import { initial, toHash, type State } from "./state.js";
import { Own } from "../numbers/own.js";
import { usualTarget, Values, wayOf, type Codes } from "../numbers/values.js";

const USUAL = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
/** What a page without a link begins with; a page may be written for an instruction. */
const FIRST =
  document.querySelector<HTMLMetaElement>('meta[name="first-instruction"]')?.content ||
  USUAL;

/** What changed: everything, the picture, how near it is, or only what is pointed at. */
export type Change = "instruction" | "picture" | "view" | "pointer";

export class Explorer {
  state: State;
  scene!: Scene;
  codes!: Codes;
  /** Values that people typed, pasted or loaded. */
  readonly own: Own;
  hover: Spot | null = null;
  private frame: Highlight | null = null;
  /** While it is told that the frame, and nothing else, has changed. */
  framing = false;
  /** What the link asks for and cannot be shown. */
  complaints: string[] = [];
  /** What else there is to say about the link. */
  remarks: string[] = [];
  /** Whether the instruction was picked in the page, not opened by a link. */
  picked = false;
  /** Of a tcgen05.mma: where its elements pass. */
  route: Route | null = null;
  private listeners: ((change: Change) => void)[] = [];
  private byName: Map<string, Instruction>;

  constructor(
    readonly catalogue: Catalogue,
    hash: string,
  ) {
    this.byName = new Map(catalogue.instructions.map((op) => [op.name, op]));
    this.state = initial(FIRST);
    this.own = new Own(this);
    this.follow(hash);
  }

  private follow(hash: string): void {
    const { state, complaints, remarks } = follow(this.catalogue, hash, FIRST);
    this.state = state;
    this.complaints = complaints;
    this.remarks = remarks;
    this.picked = false;
    this.hover = null;
    this.derive();
  }

  listen(listener: (change: Change) => void): void {
    this.listeners.push(listener);
  }

  /** The link to what is shown. */
  get hash(): string {
    return toHash(this.state, ({ matrix, index }) => {
      const found = this.matrix(matrix)!;
      const [m, ...at] = found.spot(index);
      return `${matrix}${(found.count > 1 ? [m, ...at] : at).map((each) => `[${each}]`).join("")}`;
    });
  }

  /** Go where a link points. */
  open(hash: string): void {
    if (hash === this.hash) return;
    this.follow(hash);
    this.tell("instruction");
  }

  pick(name: string): void {
    const { tab, fill, target, colour, accumulator, sparse } = this.state;
    const kept = { tab, fill, target, colour, accumulator, sparse };
    this.state = { ...initial(name), ...kept };
    this.hover = null;
    this.complaints = this.remarks = [];
    this.picked = true;
    this.derive();
    this.tell("instruction");
  }

  update(changes: Partial<State>): void {
    this.state = { ...this.state, ...changes };
    this.derive();
    this.tell("picture");
  }

  /** Come nearer: nothing else changes, and the address follows when nobody moves. */
  zoomTo(zoom: number): void {
    this.state = { ...this.state, zoom };
    this.tell("view");
  }

  /** Note what stands in the middle: nothing has to be drawn again. */
  see(middle: Spot | null): void {
    this.state = { ...this.state, middle };
  }

  showTab(tab: string): void {
    this.state = { ...this.state, tab };
    this.tell("pointer");
  }

  /** Pin an element, or let it go. */
  pin(spot: Spot | null): void {
    this.state = { ...this.state, pinned: spot, lane: null };
    if (spot) this.state.operand = spot.matrix;
    this.tell("pointer");
  }

  pickLane(lane: number | null): void {
    this.state = { ...this.state, lane, pinned: null };
    this.hover = null;
    this.tell("pointer");
  }

  point(spot: Spot | null): void {
    if (spot?.matrix === this.hover?.matrix && spot?.index === this.hover?.index)
      return;
    this.hover = spot;
    this.tell("pointer");
  }

  /** What lights up while something is played; null for what is pointed at. */
  showFrame(frame: Highlight | null): void {
    this.frame = frame;
    this.framing = true;
    this.tell("pointer");
    this.framing = false;
  }

  setCode(index: number, code: number): void {
    const codes = { ...this.state.codes, [index]: code };
    if (this.own.codes[index] === code) delete codes[index];
    this.update({ codes });
  }

  private derive(): void {
    const op = this.byName.get(this.state.op) ?? this.byName.get(FIRST)!;
    this.state.op = op.name;
    this.scene = scene(this.catalogue, op, this.state.selector);
    this.route = op.tensor ? new Route(this.catalogue, this.scene) : null;
    // What one begins with on another instruction need not have the target.
    if (!this.way) this.state.target = "";
    this.own.keep();
    if (this.own.dropped) toast("Your own values are gone: no link holds so many");
    this.own.dropped = false;
    if (this.own.unread) toast("The values of this link cannot be read");
    this.own.unread = false;
    this.codes = this.own.codes.slice();
    for (const [index, code] of Object.entries(this.state.codes)) {
      if (Number(index) < this.codes.length) this.codes[Number(index)] = code;
    }
  }

  /** Whether the codes of the metadata are only an example. */
  get exampleCodes(): boolean {
    return !Object.keys(this.state.codes).length && this.own.kind === "none";
  }

  /** The target that numbers are for. */
  get target(): string {
    return this.state.target || usualTarget(this.catalogue, this.op);
  }

  /** How that target computes the instruction. */
  get way(): Way | null {
    return wayOf(this.catalogue, this.op, this.target);
  }

  /** What the picture shows; null if it shows places. */
  get values(): Values | null {
    return this.state.fill === "off" ? null : this.numbers;
  }

  private known: { key: string; values: Values } | null = null;

  /** What the operands hold, shown or not; D is computed when it is asked for. */
  get numbers(): Values {
    const { state, own, target, codes, scene: drawn } = this;
    const key = [state.op, state.selector, target, own.version, codes.join("")].join();
    if (this.known?.key !== key) {
      const values = new Values(this.catalogue, drawn, codes, own.operands, target);
      this.known = { key, values };
    }
    return this.known.values;
  }

  private tell(change: Change): void {
    for (const listener of this.listeners) listener(change);
  }

  // ── what follows from the state ───────────────────────────────────────────

  get op(): Instruction {
    return this.scene.op;
  }

  matrix(name: string): Matrix | undefined {
    return this.scene.matrices.get(name);
  }

  /** The element that is looked at. */
  get spot(): Spot | null {
    return this.hover ?? this.state.pinned;
  }

  /** The lane that is looked at. */
  get lane(): number | null {
    return this.spot ? holder(this.scene, this.spot) : this.state.lane;
  }

  get marks(): Highlight {
    if (this.frame) return this.frame;
    const { hover, scene: drawn, codes } = this;
    return highlight(drawn, codes, hover, this.state.pinned, this.state.lane);
  }

  /** Whether a sparse A may be drawn both ways: the picture says if there is room. */
  roomy = true;

  /** How a sparse A is drawn: both ways where a column is wide enough to see. */
  get sparseForm(): "both" | "stored" | "logical" {
    const a = this.matrix("A");
    const small = a && a.rows <= 16 && a.cols <= 32;
    return this.state.sparse || (small && this.roomy ? "both" : "stored");
  }

  /** The operand whose layout is written out. */
  get operand(): Part | null {
    const named = this.spot?.matrix ?? this.state.operand;
    const found = this.matrix(named)?.part;
    return found ?? [...this.scene.matrices.values()].find((each) => each.part)!.part;
  }

  get theme(): Theme {
    const chosen = document.documentElement.dataset.theme;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    return themeOf(this.catalogue, chosen ? chosen === "dark" : dark);
  }

  /** An element in words: where it is, what it is. */
  describe(spot: Spot): string {
    const matrix = this.matrix(spot.matrix)!;
    const value = this.valueText(spot);
    const said = `${matrix.label(spot.index)}${value ? `, value ${value}` : ""}`;
    if (!matrix.part) return `${said}: in shared memory`;
    const [low, high] = matrix.bitRange(matrix.slot[spot.index]);
    const bits = high > low ? `bits ${high} to ${low}` : `bit ${low}`;
    const lane = laneText(matrix.lane[spot.index], this.scene);
    const place = matrix.tensor ? "column" : "register";
    return `${said}: ${lane}, ${place} ${matrix.register[spot.index]}, ${bits}`;
  }

  /** The number, or the code, in a cell; empty where there is none. */
  valueText(spot: Spot): string {
    if (spot.matrix === "metadata") {
      return this.codes[spot.index].toString(2).padStart(4, "0");
    }
    return this.values?.full(spot.matrix, spot.index) ?? "";
  }
}
