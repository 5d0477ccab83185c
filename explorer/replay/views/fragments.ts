// The fragments of a product, as the explorer draws them, with the values that were recorded.

import { arrange } from "../../src/drawing/arrange.js";
import { listenToMoves } from "../../src/drawing/camera.js";
import { drawAround } from "../../src/drawing/captions.js";
import { drawNames, drawPanel, type Look } from "../../src/drawing/drawing.js";
import { highlight, sameSpot, type Spot } from "../../src/drawing/highlight.js";
import { namesOf, type Written } from "../../src/drawing/labels.js";
import { drawMarks } from "../../src/drawing/marks.js";
import { bankColour, laneColours, plainColour } from "../../src/drawing/palette.js";
import { logicalSheet, sheetOf, type Sheet } from "../../src/drawing/sheet.js";
import { clamp, Viewport } from "../../src/drawing/viewport.js";
import { numberOf, type Patterns } from "../../src/numbers/elements.js";
import { fullText, shown } from "../../src/numbers/values.js";
import { byId, h } from "../../src/page/dom.js";
import type { Matrix } from "../../src/records/matrix.js";
import type { Product } from "../recording/products.js";
import type { Session } from "../session/session.js";

const STEP = 1.5;
const CLOSEST = 16;
const ORDER = ["metadata", "scale_A", "A", "scale_B", "B", "D"];

/** Values of a product: operands as it read them, D as it was recorded. */
export class Shown {
  constructor(
    readonly product: Product,
    /** D, if it was there at the step that is looked at. */
    readonly d: Patterns | null,
  ) {}

  has(name: string): boolean {
    return this.bits(name) !== undefined;
  }

  bits(name: string): Patterns | undefined {
    return (name === "D" ? this.d : this.product.bits(name)) ?? undefined;
  }

  number(name: string, index: number): number {
    const { catalogue, scene } = this.product;
    return numberOf(catalogue.types[scene.matrices.get(name)!.type], this.bits(name)![index]);
  }

  text(name: string, index: number): string {
    return shown(this.number(name, index));
  }

  full(name: string, index: number): string {
    return fullText(this.number(name, index));
  }

  hex(name: string, index: number): string {
    const { catalogue, scene } = this.product;
    const { used } = catalogue.types[scene.matrices.get(name)!.type];
    return `0x${this.bits(name)![index].toString(16).padStart(Math.ceil(used / 4), "0")}`;
  }
}

export class Fragments {
  private host = byId("figure");
  private canvases = [0, 1, 2].map(() => h("canvas", { "aria-hidden": "true" }));
  private view = new Viewport();
  private shown: Shown | null = null;
  private hover: Spot | null = null;
  private zoom = 1;
  private aim: ((to: Viewport["arrangement"]) => void) | null = null;

  constructor(
    private session: Session,
    /** What is said about the element that is pointed at. */
    private say: (spot: Spot | null, at: { x: number; y: number }) => void,
    private choose: (spot: Spot) => void,
  ) {
    this.host.append(...this.canvases);
    const centre = () => [this.view.size.width / 2, this.view.size.height / 2] as const;
    byId("product-in").addEventListener("click", () => this.nearer(STEP, ...centre()));
    byId("product-out").addEventListener("click", () => this.nearer(1 / STEP, ...centre()));
    listenToMoves(this.host, {
      movable: () => this.shown !== null && this.view.movable,
      move: (dx, dy) => {
        this.view.move(dx, dy);
        this.paint();
      },
      zoom: (factor, x, y) => this.nearer(factor, x, y),
      point: (at) => this.point(at),
      click: (at) => {
        const spot = this.shown && this.view.spotAt(at.x, at.y);
        if (spot) this.choose(spot);
      },
    });
    new ResizeObserver(() => this.draw()).observe(this.host);
    // For tests: where an element is on the screen.
    Object.assign(this.host, { pointOf: (spot: Spot) => this.pointOf(spot) });
  }

  show(shown: Shown | null): void {
    const product = this.shown?.product;
    if (shown?.product.scene.op !== product?.scene.op) [this.zoom, this.view.pan] = [1, { x: Infinity, y: 0 }];
    this.shown = shown;
    this.hover = null;
    this.draw();
  }

  private sheets({ scene, codes }: Product): Sheet[] {
    const found = ORDER.flatMap((name) => scene.matrices.get(name) ?? []).map(sheetOf);
    const open = logicalSheet(scene, codes);
    // Where there is room, a sparse A stands there as it multiplies, too.
    return open && this.view.size.width > 700 ? [...found, open] : found;
  }

  draw(): void {
    const { shown, view, host } = this;
    if (!shown || !host.clientWidth) return;
    view.size = { width: host.clientWidth, height: host.clientHeight };
    const written: Written = { values: shown, codes: shown.product.codes };
    const items = this.sheets(shown.product).map((sheet) => ({ sheet, names: namesOf(written, sheet) }));
    view.arrangement = arrange(items, { ...view.size, zoom: this.zoom });
    this.aim?.(view.arrangement);
    this.aim = null;
    view.hold();
    host.classList.toggle("movable", view.movable);
    host.classList.toggle("tall", view.arrangement.height > view.size.height + 1);
    this.paint();
  }

  /** Another element is chosen; all else is as it was. */
  mark(): void {
    if (this.shown && this.view.size.width) this.paintMarks();
    else this.draw();
  }

  private paint(): void {
    const { view, session } = this;
    const { theme } = session;
    const [base, , letters] = this.canvases;
    const [cells, names] = [view.painter(base), view.painter(letters)];
    for (const panel of view.arrangement.panels) {
      drawPanel(cells, panel, this.look(panel.sheet), theme, view.window);
      drawNames(names, panel, theme, view.window);
    }
    for (const panel of view.arrangement.panels) {
      const { matrix } = panel.sheet;
      const { d, product } = this.shown!;
      const remark = matrix.name !== "D" || d ? "" : product.unknown ? ", not computed" : ", in flight";
      drawAround(names, panel, { place: this.place(matrix), remark }, theme, view.window);
    }
    this.paintMarks();
  }

  /** What is pointed at and what is explained has a canvas of its own. */
  private paintMarks(): void {
    const { view, session } = this;
    const { scene, codes } = this.shown!.product;
    const over = view.painter(this.canvases[1]);
    const pinned = session.element < 0 ? null : { matrix: "D", index: session.element };
    const marks = highlight(scene, codes, this.hover, pinned, null);
    for (const panel of view.arrangement.panels) {
      const own = marks.get(panel.sheet.matrix.name);
      if (own) drawMarks(over, panel, own, session.theme, view.window);
    }
  }

  private place({ name }: Matrix): string {
    const { product } = this.shown!;
    if (product.isUnread(name)) return ", from a table";
    const place = product.placeOf(name);
    return { tensor: ", in tensor memory, by lane", shared: ", in shared memory, by bank", registers: "" }[place];
  }

  /** Lanes have the explorer's colours, what is in shared memory those of its banks. */
  private look({ matrix, name }: Sheet): Look {
    const { product } = this.shown!;
    const { pattern } = product.scene;
    const look: Look = { colour: this.colours(matrix) };
    if (matrix.name === "A" && pattern) look.every = name === "logical" ? pattern.chunk : pattern.kept;
    if (matrix.name === "metadata") look.wrong = (index) => pattern!.problems[product.codes[index]] !== "";
    return look;
  }

  private colours(matrix: Matrix): (index: number) => string {
    const { theme } = this.session;
    const { product } = this.shown!;
    if (product.placeOf(matrix.name) !== "shared") {
      const lanes = laneColours(product.catalogue, theme);
      return (index) => lanes[matrix.lane[index]];
    }
    return (index) => {
      const where = product.where(matrix.name, index);
      return where.kind === "memory" ? bankColour((where.offset >> 2) % 32, theme) : plainColour(theme);
    };
  }

  private nearer(factor: number, x: number, y: number): void {
    if (!this.shown) return;
    const zoom = Math.round(clamp(this.zoom * factor, 1, CLOSEST) * 100) / 100;
    if (zoom === this.zoom) return;
    this.aim = this.view.aim(x, y);
    this.zoom = zoom;
    this.draw();
  }

  private point(at: { x: number; y: number } | null): void {
    if (!this.shown) return;
    const spot = at && this.view.spotAt(at.x, at.y);
    const { left, top } = this.host.getBoundingClientRect();
    if (at) this.say(spot, { x: left + at.x, y: top + at.y });
    else this.say(null, { x: 0, y: 0 });
    if (sameSpot(spot, this.hover)) return;
    this.hover = spot;
    this.paintMarks();
  }

  private pointOf(spot: Spot): { x: number; y: number } | null {
    const [dx, dy] = this.view.toReveal(spot);
    if (dx || dy) this.view.move(dx, dy);
    this.paint();
    return this.view.middleOf(spot, this.host.getBoundingClientRect());
  }
}
