// The last product of the warp: its fragments with their values, and how an element of D
// came about: its products, the steps of the sum, the lost bits, and where in the kernel
// each operand came from.

import type { Spot } from "../../src/drawing/highlight.js";
import { byId, h, toast } from "../../src/page/dom.js";
import { rowOfB } from "../../src/numbers/values.js";
import { answerParts, refusal } from "../../src/views/answer.js";
import type { Holders } from "../../src/views/bars.js";
import type { Origin } from "../recording/origins.js";
import type { Product, Where } from "../recording/products.js";
import { agent, grouped, lineText, memoryName, placeIn, warpName } from "../session/names.js";
import type { Session } from "../session/session.js";
import { showPane } from "./panes.js";
import { Fragments, Shown } from "./fragments.js";

/** Of so many products, it is shown at once where operands came from. */
const FEW = 32;
/** Rows of that table that are made in one frame. */
const PIECE = 12;

export class ProductView {
  private fragments: Fragments;
  private shown: Shown | null = null;
  private key = "";
  private told = "";
  private opened = false;
  private scrolled = false;

  constructor(private session: Session) {
    this.fragments = new Fragments(
      session,
      (spot, at) => this.tip(spot, at),
      (spot) => this.choose(spot),
    );
    byId("told").addEventListener("scroll", () => (this.scrolled = true), { passive: true });
    byId("product-open").addEventListener("click", () => this.open());
    byId("product-close").addEventListener("click", () => session.update({ product: false, element: -1 }));
    for (const [id, back] of [["product-before", true], ["product-after", false]] as const) {
      byId(id).addEventListener("click", () => this.go(back));
    }
    session.listen(() => this.draw());
  }

  /** Show the product of the warp, or the registers and the memory again. */
  private open(): void {
    const { session } = this;
    session.update({ product: !session.product, element: -1 });
  }

  /** To another product of this warp. */
  private go(back: boolean): void {
    const { session } = this;
    const { products, warp, lastProduct } = session;
    const steps = products!.ofWarp(warp);
    const here = lastProduct ? steps.findLastIndex((step) => products!.at(step) === lastProduct) : -1;
    const to = steps[here + (back ? -1 : 1)];
    if (to === undefined) return toast(`This warp has no product ${back ? "before" : "after"} this one`);
    session.go(Math.max(to, products!.at(to).done));
    session.update({ warp });
  }

  private choose({ matrix, index }: Spot): void {
    const { session } = this;
    if (matrix !== "D") return this.goTo(session.lastProduct!.where(matrix, index));
    session.update({ element: index === session.element ? -1 : index });
  }

  /** Show where an operand is: its register in its lane, or its byte. */
  private goTo(where: Where): void {
    const { session } = this;
    if (where.kind === "register") {
      session.update({ warp: where.warp, lane: where.lane, register: where.register, product: false });
    } else if (where.kind === "memory") {
      session.update({ memory: where.memory, at: { memory: where.memory, offset: where.offset }, product: false });
    }
  }

  // ── drawing ───────────────────────────────────────────────────────────────

  private draw(): void {
    const { session } = this;
    const product = session.lastProduct;
    byId("product-open").hidden = !product;
    byId("product-pane").hidden = !product;
    const open = session.product && product !== null;
    if (open !== this.opened) showPane(open ? "product" : document.body.dataset.pane === "product" ? "warp" : document.body.dataset.pane!);
    this.opened = open;
    byId("product").hidden = !open;
    document.body.classList.toggle("products", open);
    if (!open) return void (this.key = "");
    const there = product.done >= 0 && product.done <= session.step && !product.unknown;
    const key = `${product.step} ${there} ${session.theme.dark} ${session.element}`;
    if (key === this.key) return;
    const same = key.split(" ").slice(0, 3).join() === this.key.split(" ").slice(0, 3).join();
    this.key = key;
    byId("product-name").textContent = product.name;
    byId("product-said").textContent = this.said(product, there);
    if (same) this.fragments.mark();
    else this.fragments.show((this.shown = new Shown(product, there ? (product.recorded() ?? product.values.bits("D")!) : null)));
    this.explain(product, there);
  }

  private said(product: Product, there: boolean): string {
    const { run, step } = this.session;
    const { members, done, unit } = product;
    const own = members.find(({ warp }) => warp === this.session.warp) ?? members[0];
    const warps = members.length > 1 ? `warps ${run.head.warps[members[0].warp].warp} to ${run.head.warps[members.at(-1)!.warp].warp}` : warpName(run.head, own.warp);
    const ended = !unit ? "" : there ? `, done at step ${grouped(done)}` : done < 0 ? ", not done in what was recorded" : `, in flight until step ${grouped(done)}`;
    const kept = there && unit && !product.recorded() ? " D is computed from the operands: no step recorded it before the next product." : "";
    const click = product.unknown || "Click an element of D to explain it; of A or B, to go there.";
    const before = own.step === step ? "" : `, ${grouped(step - own.step)} steps before this one`;
    return `Step ${grouped(own.step)}${before}, by ${warps}; ${lineText(run, own.step)}${ended}.${kept} ${click}`;
  }

  // ── an element of D ───────────────────────────────────────────────────────

  private explain(product: Product, there: boolean): void {
    const box = byId("told");
    const { element } = this.session;
    const key = `${product.step} ${element} ${there}`;
    if (key === this.told) return;
    this.told = key;
    box.hidden = element < 0;
    if (element < 0) return box.replaceChildren();
    const d = product.scene.matrices.get("D")!;
    const [, row, col] = d.spot(element);
    const { target } = this.session.run.head;
    const title = h("h3", {}, `D[${row}, ${col}] on ${target}`);
    const close = h("button", { type: "button", class: "quiet", onclick: () => this.session.update({ element: -1 }) }, "Close");
    const left = product.unwritten(element);
    if (left) return box.replaceChildren(h("div", { class: "row" }, title, close), refusal(left));
    const found = product.values.explain(element);
    if (!found) {
      const why = product.values.model ? "A code in this row of the metadata is illegal, so D is undefined here." : `How ${target} adds these products is not known.`;
      return box.replaceChildren(h("div", { class: "row" }, title, close), refusal(why));
    }
    const asked = { catalogue: product.catalogue, name: product.name, target, row, col, where: (k: number) => this.holders(product, element, k) };
    box.replaceChildren(h("div", { class: "row" }, title, close), ...this.differs(element, found.bits));
    const still = () => this.told === key;
    const parts = answerParts(asked, found).map((make) => () => box.append(...make()));
    inFrames([...parts, () => box.append(this.sources(product, element, still))], still);
    // To scroll lays the page out: only if somebody has scrolled.
    if (this.scrolled) box.scrollTop = 0;
    this.scrolled = false;
  }

  /** What must never be: that the kernel has another D than its operands make. */
  private differs(element: number, bits: bigint): HTMLElement[] {
    const recorded = this.shown?.d && BigInt(this.shown.d[element]);
    if (recorded === null || recorded === undefined || recorded === bits) return [];
    return [refusal(`The kernel has recorded 0x${recorded.toString(16)} here. Its operands were changed while it read them.`)];
  }

  /** The elements of A and B of product k, by their indices. */
  private factors({ scene, codes }: Product, element: number, k: number): { a: number; b: number } | null {
    const [m, row, col] = scene.matrices.get("D")!.spot(element);
    const [a, b] = [scene.matrices.get("A")!, scene.matrices.get("B")!];
    let stored = scene.pattern ? 0 : k;
    while (scene.pattern && stored < a.cols && rowOfB(scene, codes, row, stored) !== k) stored++;
    if (stored >= a.cols || k >= b.rows) return null;
    return { a: a.index(Math.min(m, a.count - 1), row, stored), b: b.index(Math.min(m, b.count - 1), k, col) };
  }

  private holders(product: Product, element: number, k: number): Holders | null {
    const found = this.factors(product, element, k);
    if (!found) return null;
    const [a, b] = [product.where("A", found.a), product.where("B", found.b)];
    return { a: this.short(a), b: this.short(b), title: [a, b].map((each) => this.place(each)).join("; ") };
  }

  /** In few letters: ``T12 %r5``, or the address. */
  private short(where: Where): string {
    const { run } = this.session;
    if (where.kind === "memory") return placeIn(run.head, where.memory, where.offset);
    return where.kind === "constant" ? "constant" : `T${where.lane} ${run.head.registers[where.register].name}`;
  }

  private place(where: Where): string {
    const { run } = this.session;
    if (where.kind === "constant") return "a constant";
    if (where.kind === "memory") return `${memoryName(run.head, where.memory)} ${placeIn(run.head, where.memory, where.offset)}`;
    const { name, bits } = run.head.registers[where.register];
    const part = where.bits < bits ? `, bits ${where.low}–${where.low + where.bits - 1}` : "";
    return `${warpName(run.head, where.warp)}, lane ${where.lane}, ${name}${part}`;
  }

  // ── where operands came from ──────────────────────────────────────────────

  /** For each product its factors, and the steps through which they came. */
  private sources(product: Product, element: number, still: () => boolean): HTMLElement {
    const box = h("details", { class: "sources" }, h("summary", {}, "Where each operand came from"));
    const fill = () => {
      if (box.children.length > 1) return;
      const head = h("tr", {}, ...["k", "element", "value", "was in", "came from"].map((each) => h("th", { scope: "col" }, each)));
      const body = h("tbody", {});
      box.append(h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Where operands came from" }, h("table", {}, h("thead", {}, head), body)));
      const rows = this.sourceRows(product, element);
      const pieces = Array.from({ length: Math.ceil(rows.length / PIECE) }, (_, at) => rows.slice(at * PIECE, (at + 1) * PIECE));
      inFrames(pieces.map((piece) => () => body.append(...piece.map((make) => make()))), still);
    };
    box.addEventListener("toggle", () => box.open && fill());
    box.open = product.scene.matrices.get("A")!.cols <= FEW;
    return box;
  }

  /** The rows of that table, each made when it is its turn. */
  private sourceRows(product: Product, element: number): (() => HTMLElement)[] {
    const { scene, codes } = product;
    const shown = new Shown(product, null);
    const [, row] = scene.matrices.get("D")!.spot(element);
    const found: (() => HTMLElement)[] = [];
    const put = (name: string, index: number, k: number) => found.push(() => this.sourceRow(product, name, index, k, shown.full(name, index)));
    for (let stored = 0; stored < scene.matrices.get("A")!.cols; stored++) {
      const k = rowOfB(scene, codes, row, stored);
      const at = k < 0 ? null : this.factors(product, element, k);
      if (!at) continue;
      put("A", at.a, k);
      put("B", at.b, k);
    }
    if (scene.matrices.has("C")) put("C", element, -1);
    return found;
  }

  private sourceRow(product: Product, name: string, index: number, k: number, value: string): HTMLElement {
    const where = product.where(name, index);
    const place = h("button", { type: "button", class: "go", title: this.place(where), onclick: () => this.goTo(where) }, this.short(where));
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, k < 0 ? "c" : String(k)),
      h("td", {}, product.scene.matrices.get(name)!.label(index)),
      h("td", { class: "number" }, value),
      h("td", {}, where.kind === "constant" ? "a constant" : place),
      h("td", {}, ...this.chain(where)),
    );
  }

  /** Such as ``ldmatrix, step 71, gemm.cu:15 ← cp.async, step 30, gemm.cu:10 ← in[68]``. */
  private chain(where: Where): (Node | string)[] {
    const { origins } = this.session;
    if (where.kind === "constant") return [];
    return origins.chain(where).flatMap((origin, at) => {
      const arrow = at ? [" ← "] : [];
      const from = origin.where.kind === "memory" && at ? [`${this.place(origin.where)}, `] : [];
      return [...arrow, ...from, ...this.writer(origin)];
    });
  }

  private writer({ step, where, access, product }: Origin): (Node | string)[] {
    const { run } = this.session;
    if (step < 0) return [where.kind === "memory" ? "there before the first step" : "before the first step"];
    const site = run.site(step);
    const unit = access && access.unit >= 0 ? run.head.units[access.unit] : null;
    const name = (unit?.name ?? site.opcode).split(".").slice(0, 2).join(".");
    const at = unit && unit.issued >= 0 ? unit.issued : step;
    const who = access ? agent(run, access) : warpName(run.head, run.columns.warp[step]);
    const go = h("button", { type: "button", class: "go", title: `${site.text} (${who})`, onclick: () => this.session.go(at) }, `step ${grouped(at)}`);
    const line = lineText(run, at);
    if (!product) return [`${name}, `, go, `, ${line}`];
    const [, row, col] = this.session.products!.at(product.step).scene.matrices.get("D")!.spot(product.index);
    const made = h("button", { type: "button", class: "go", onclick: () => this.session.explain(product) }, `D[${row}, ${col}] of step ${grouped(product.step)}`);
    return [made, `, ${line}`];
  }

  // ── pointing ──────────────────────────────────────────────────────────────

  private valueOf(shown: Shown, { matrix, index }: Spot): string {
    if (matrix === "metadata") return ` = code ${shown.product.codes[index].toString(16)}`;
    return shown.has(matrix) ? ` = ${shown.full(matrix, index)}  ${shown.hex(matrix, index)}` : "";
  }

  private tip(spot: Spot | null, at: { x: number; y: number }): void {
    const box = byId("tip");
    box.hidden = !spot || !this.shown;
    if (!spot || !this.shown) return;
    const { product } = this.shown;
    const matrix = product.scene.matrices.get(spot.matrix)!;
    const value = this.valueOf(this.shown, spot);
    const where = product.where(spot.matrix, spot.index);
    const origin = spot.matrix === "D" ? null : this.session.origins.of(where);
    const { run } = this.session;
    const from = !origin ? "" : origin.step < 0 ? "there before the first step" : `written at step ${grouped(origin.step)}, ${lineText(run, origin.step)}: ${run.site(origin.step).text}`;
    const lines = [this.place(where), from].filter(Boolean);
    box.replaceChildren(h("strong", {}, `${matrix.label(spot.index)}${value}`), ...lines.map((line) => h("div", {}, line)));
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(4, Math.min(innerWidth - width - 8, at.x + 14))}px`;
    box.style.top = `${Math.max(4, Math.min(innerHeight - height - 8, at.y + 18))}px`;
  }
}

/** Do the first thing now and one in each frame after it, as long as they are wanted. */
function inFrames(things: (() => void)[], still: () => boolean): void {
  const [first, ...rest] = things;
  first?.();
  if (rest.length) requestAnimationFrame(() => setTimeout(() => still() && inFrames(rest, still)));
}
