// What is looked at: the step, the warp, a lane, a byte, a line; and who draws it.

import { themeOf, type Theme } from "../../src/drawing/palette.js";
import type { Catalogue } from "../../src/records/catalogue.js";
import type { Problem } from "../recording/head.js";
import { find, type Found } from "../recording/finding.js";
import { Origins, type Made } from "../recording/origins.js";
import type { Product, Products } from "../recording/products.js";
import type { Line, Recording } from "../recording/recording.js";
import { neighbour, nextBreak, nextNaN, nextStep, type By } from "../recording/search.js";
import { Typed } from "../recording/typed.js";
import { mixed } from "./canvas.js";
import type { Values } from "../recording/values.js";

export interface Place {
  memory: number;
  offset: number;
}

/** Colours and types that Python has in the page. */
export type Shared = Pick<Catalogue, "inks" | "lanes" | "types">;

/** The runs of the page, of which one is shown; another is shown by a new session. */
export interface Runs {
  all: readonly Recording[];
  now: number;
  show(number: number): void;
}

/** A problem of another run that one has come from, and the step that it would be at. */
export interface Met {
  problem: Problem;
  /** The run that has it. */
  of: Recording;
  step: number;
}

export class Session {
  /** Whether another run is shown. */
  closed = false;
  met: Met | null = null;
  step = 0;
  warp = 0;
  lane = 0;
  /** The memory that is shown, and the byte that is pinned in it. */
  memory = 0;
  at: Place | null = null;
  /** The problem that was asked for, by its place in the list: several may share a step. */
  which = -1;
  line: Line | null = null;
  /** The register that is shown in all lanes; -1: the first that was written. */
  register = -1;
  /** Whether the product of the warp is shown, and the element of D that is explained. */
  product = false;
  element = -1;
  breaks: Line[] = [];
  /** What is searched for in time, and what was found. */
  finding = "";
  found: Found | null = null;
  /** Expressions that are watched. */
  watch: string[] = [];
  theme!: Theme;
  /** The colours of lanes for what stands on the page, and of text on them. */
  hues: string[] = [];
  onHue = "";
  /** Colours of the style sheet, read once: to ask for them lays the page out. */
  signals = { soft: "", read: "", wrote: "" };
  private views: (() => void)[] = [];
  private waiting = false;
  readonly origins: Origins;

  constructor(
    readonly run: Recording,
    readonly values: Values,
    private shared: Shared,
    readonly runs: Runs = { all: [run], now: 0, show: () => undefined },
    readonly products: Products | null = null,
  ) {
    this.origins = new Origins(run, products);
    this.retheme();
    const byKind = run.head.memories.findIndex(({ kind }) => kind === "shared");
    this.memory = Math.max(0, byKind);
  }

  /** The types of matrix elements. */
  get types(): Shared["types"] {
    return this.shared.types;
  }

  retheme(): void {
    const chosen = document.documentElement.dataset.theme;
    const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    this.theme = themeOf(this.shared as Catalogue, dark);
    // Blocks on a line are smaller than cells of a picture: in the dark they are brighter.
    const { page } = this.theme;
    this.hues = this.shared.lanes.light.map((hue) => (dark ? mixed(hue, page, 0.82) : hue));
    this.onHue = dark ? page : this.theme.ink;
    const style = getComputedStyle(document.documentElement);
    const named = (name: string) => style.getPropertyValue(`--${name}`).trim();
    this.signals = { soft: named("soft"), read: named("element"), wrote: named("register") };
  }

  // ── drawing ───────────────────────────────────────────────────────────────

  listen(view: () => void): void {
    this.views.push(view);
  }

  /** Everything is drawn once, before the next frame. */
  changed(): void {
    if (this.waiting || this.closed) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.closed) return;
      for (const view of this.views) view();
    });
  }

  update(change: Partial<Pick<Session, "warp" | "lane" | "memory" | "at" | "line" | "breaks" | "register" | "product" | "element" | "watch">>): void {
    Object.assign(this, change);
    this.changed();
  }

  // ── products ──────────────────────────────────────────────────────────────

  /** The last product of the warp that is looked at. */
  get lastProduct(): Product | null {
    return this.products?.last(this.warp, this.step) ?? null;
  }

  /** Explain an element of D; go back to its product if the warp has run another since. */
  explain({ step, index }: Made): void {
    const product = this.products!.at(step);
    const warp = this.run.columns.warp[step];
    const same = warp === this.warp && this.lastProduct === product;
    if (!same) this.go(Math.max(step, product.done));
    if (!same) this.warp = warp;
    if (this.lastProduct !== product) this.step = step;
    this.update({ product: true, element: index });
  }

  // ── moving ────────────────────────────────────────────────────────────────

  /** To a step; the warp that ran it is looked at, unless another is to be kept. */
  go(step: number, keep = false): void {
    this.step = Math.max(0, Math.min(this.run.count - 1, Math.round(step)));
    if (!keep && this.run.count) this.warp = this.run.columns.warp[this.step];
    this.changed();
  }

  /** Whether there was somewhere to go. */
  move(by: By, back = false): boolean {
    if (by === "problem") return this.moveToProblem(back);
    const to = nextStep(this.run, this.step, by, this.warp, back);
    if (to !== null) this.go(to);
    return to !== null;
  }

  /** Problems in the order of their steps; those of one step after each other. */
  private moveToProblem(back: boolean): boolean {
    const { problems } = this.run.head;
    const stop = (at: number) => Math.max(...problems[at].steps);
    const order = [...problems.keys()].filter((at) => stop(at) >= 0).sort((a, b) => stop(a) - stop(b) || a - b);
    const here = this.problem ? order.indexOf(problems.indexOf(this.problem)) : -1;
    const standing = here >= 0 && stop(order[here]) === this.step;
    const next = back
      ? standing ? here - 1 : order.findLastIndex((at) => stop(at) < this.step)
      : standing ? here + 1 : order.findIndex((at) => stop(at) > this.step);
    if (next < 0 || next >= order.length) return false;
    this.go(stop(order[next]));
    this.which = order[next];
    return true;
  }

  toBreak(back = false): boolean {
    return this.maybe(nextBreak(this.run, this.step, this.breaks, back));
  }

  /** Search for a text in time. */
  search(text: string): void {
    this.finding = text.trim();
    const asker = { typed: new Typed(this.types), step: this.step, warp: this.warp };
    this.found = this.finding ? find(this.run, this.finding, asker) : null;
    this.changed();
  }

  toFound(back = false): boolean {
    return this.maybe(this.found && neighbour(this.found.steps, this.step, back));
  }

  toNaN(): boolean {
    return this.maybe(nextNaN(this.run, this.step, this.values));
  }

  toWrite(back = false): boolean {
    if (!this.at) return false;
    const { memory, offset } = this.at;
    return this.maybe(this.run.memories[memory].nextWrite(this.step, offset, back));
  }

  private maybe(step: number | null): boolean {
    if (step !== null) this.go(step);
    return step !== null;
  }

  /** Whether playing on from here would pass a problem. */
  get stopped(): boolean {
    return this.run.stops.includes(this.step);
  }

  /** The problem that this step has a part in. */
  get problem(): Problem | null {
    const { problems } = this.run.head;
    if (problems[this.which]?.steps.includes(this.step)) return problems[this.which];
    const last = problems.find(({ steps }) => Math.max(...steps) === this.step);
    return last ?? problems.find(({ steps }) => steps.includes(this.step)) ?? null;
  }

  toggleBreak(line: Line): void {
    const same = (each: Line) => each.file === line.file && each.line === line.line;
    const rest = this.breaks.filter((each) => !same(each));
    this.update({ breaks: rest.length < this.breaks.length ? rest : [...rest, line] });
  }
}
