// The picture: B above D, A beside it, metadata and scales beside A.

import { arrange, TOP, type Arrangement, type Panel } from "../drawing/arrange.js";
import { drawAround } from "../drawing/captions.js";
import { listenToMoves } from "../drawing/camera.js";
import { announce, byId, download, h, toast } from "../page/dom.js";
import {
  boxOf,
  drawNames,
  drawPanel,
  hit,
  saysAll,
  type Look,
  type Window,
} from "../drawing/drawing.js";
import type { Change, Explorer } from "../page/explorer.js";
import type { Spot } from "../drawing/highlight.js";
import { writeAddress } from "../page/history.js";
import { namesOf } from "../drawing/labels.js";
import { hideLens, showLens, showRemark, type Hidden } from "./lens.js";
import { drawMarks } from "../drawing/marks.js";
import type { Matrix } from "../records/matrix.js";
import { banksOfB } from "./memory.js";
import { SvgPainter, type Painter } from "../drawing/painter.js";
import {
  bankColour,
  colours,
  laneColours,
  plainColour,
  registerColour,
} from "../drawing/palette.js";
import { logicalSheet, sheetOf, type Sheet } from "../drawing/sheet.js";
import { CLOSEST } from "../page/state.js";
import { clamp, nearestTo, Viewport } from "../drawing/viewport.js";
import { Minimap } from "./minimap.js";
import { showWiring, type Corner } from "./wiring.js";

const STEP = 1.5; // how much closer one press of a button comes
const EDGE = { left: 12, top: 36 }; // around a picture that is saved
const PHONE = 1000; // pixels: narrower pages have the answer in a sheet below
const SETTLED = 250; // milliseconds without a move

export class Figure {
  private host = byId("figure");
  private base = h("canvas", { "aria-hidden": "true" });
  private over = h("canvas", { class: "over", "aria-hidden": "true" });
  /** Names, numbers and captions, above what is marked: no veil hides them. */
  private letters = h("canvas", { class: "letters", "aria-hidden": "true" });
  private stages = new Map<string, HTMLElement>();
  private view = new Viewport();
  private looks = new Map<string, Look>();
  /** Whether anyone moved since a link was opened. */
  private touched = false;
  /** A timer that waits until nobody moves any more. */
  private settling = 0;
  /** Moves the window over a picture that is about to be drawn. */
  private aim: ((to: Arrangement) => void) | null = null;
  private minimap = new Minimap((x, y) => this.moveTo(x, y));

  constructor(private explorer: Explorer) {
    this.host.append(this.base, this.over, this.letters);
    this.host.parentElement!.append(this.minimap.canvas);
    explorer.listen((change) => this.changed(change));
    byId("export").addEventListener("click", () => this.save());
    const centre = () => [this.view.size.width / 2, this.view.size.height / 2] as const;
    byId("zoom-in").addEventListener("click", () => this.zoom(STEP, ...centre()));
    byId("zoom-out").addEventListener("click", () => this.zoom(1 / STEP, ...centre()));
    byId("zoom-fit").addEventListener("click", () => this.zoom(0, 0, 0));
    listenToMoves(this.host, {
      movable: () => this.view.movable,
      move: (dx, dy) => this.move(dx, dy),
      zoom: (factor, x, y) => this.zoom(factor, x, y),
      point: (at) => this.point(at),
      click: (at) => this.click(this.view.spotAt(at.x, at.y)),
    });
    new ResizeObserver(() => this.resized()).observe(this.host);
    // For whoever drives the page from outside: where an element is on the screen, the
    // picture as it can be saved, and where on the screen that picture begins.
    Object.assign(this.host, {
      pointOf: (spot: Spot) => this.pointOf(spot),
      picture: (seen = false) => this.svg(seen ? this.view.window : null),
      offset: () => this.offset(),
    });
  }

  private changed(change: Change): void {
    // What is too wide for a phone begins with D and what stands beside it.
    if (change === "instruction") {
      this.view.pan = { x: Infinity, y: 0 };
      this.touched = false;
    }
    if (change === "pointer") this.mark();
    else this.draw();
    if (change === "instruction") this.begin();
  }

  /** What a link names is in the middle, or else what is pinned, however near the
   * picture is: everyone sees the same. */
  begin(): void {
    const { middle, pinned } = this.explorer.state;
    const spot = middle ?? pinned;
    const panel = spot && this.view.panelOf(spot);
    const box = panel && boxOf(panel, spot.index);
    if (!box) return;
    const { width, height } = this.view.size;
    this.view.pan = { x: box.x + (box.width - width) / 2, y: box.y + (box.height - height) / 2 };
    this.move(0, 0);
    this.touched = false;
    clearTimeout(this.settling);
  }

  private resized(): void {
    const { clientWidth, clientHeight } = this.host;
    const { width, height } = this.view.size;
    if (clientWidth === width && clientHeight === height) return;
    this.draw();
    // Until someone moves, what a link shows stays in the middle.
    if (!this.touched) this.begin();
  }

  // ── what stands where ─────────────────────────────────────────────────────

  /** Which grids there are. */
  private sheets(): Sheet[] {
    const { scene, state, codes } = this.explorer;
    const accumulator = scene.matrices.has(state.accumulator) ? state.accumulator : "D";
    const names = ["metadata", "scale_A", "A", "scale_B", "B", accumulator];
    const found = names.flatMap((name) => scene.matrices.get(name) ?? []);
    // A load has only the one fragment that it moves.
    const sheets = (found.length ? found : [...scene.matrices.values()]).map(sheetOf);
    const logical = logicalSheet(scene, codes);
    const form = logical ? this.explorer.sparseForm : "stored";
    const kept = sheets.filter(({ name }) => form !== "logical" || name !== "A");
    return form === "stored" ? kept : [...kept, logical!];
  }

  draw(): void {
    const { explorer } = this;
    this.view.size = { width: this.host.clientWidth, height: this.host.clientHeight };
    // Both forms of a sparse A only where they leave room for names in A, B and D.
    explorer.roomy = true;
    this.view.arrangement = this.arranged();
    if (!explorer.state.sparse && !this.view.arrangement.enough) {
      explorer.roomy = false;
      this.view.arrangement = this.arranged();
    }
    byId<HTMLSelectElement>("sparse").value = explorer.sparseForm;
    const sheets = this.view.arrangement.panels.map(({ sheet }) => sheet);
    this.looks = new Map(sheets.map((sheet) => [sheet.name, this.look(sheet)]));
    const { height } = this.view.size;
    this.aim?.(this.view.arrangement);
    this.view.hold();
    this.host.classList.toggle("movable", this.view.movable);
    this.host.classList.toggle("tall", this.view.arrangement.height > height + 1);
    this.prepareStages();
    this.paint();
    this.mark();
  }

  private arranged(): Arrangement {
    const { explorer } = this;
    const items = this.sheets().map((sheet) => ({ sheet, names: namesOf(explorer, sheet) }));
    return arrange(items, { ...this.view.size, zoom: explorer.state.zoom });
  }

  /** What the picture leaves free of the window: the corner of the L, or below it. */
  private get corner(): Corner {
    const { width, height, corner } = this.view.arrangement;
    const below = this.view.size.height - height - 24;
    if (corner.height < 100 && below > corner.height) {
      const left = Math.max(0, this.view.origin.x);
      return { left, top: height + 20, width, height: below };
    }
    return { left: 0, top: 0, width: this.view.origin.x + corner.width, height: corner.height };
  }

  // ── drawing ───────────────────────────────────────────────────────────────

  private paint(): void {
    const [painter, letters] = [this.view.painter(this.base), this.view.painter(this.letters)];
    for (const panel of this.view.arrangement.panels) {
      this.drawOne(painter, panel, this.view.window);
      drawNames(letters, panel, this.explorer.theme, this.view.window);
    }
    for (const panel of this.view.arrangement.panels) this.drawAround(letters, panel, this.view.window);
    this.minimap.show(this.view.arrangement, this.view.window, this.explorer.theme);
  }

  private drawOne(painter: Painter, panel: Panel, window: Window | null): void {
    const look = this.looks.get(panel.sheet.name)!;
    drawPanel(painter, panel, look, this.explorer.theme, window);
  }

  /** Numbers and captions. */
  private drawAround(painter: Painter, panel: Panel, window: Window | null): void {
    const { matrix } = panel.sheet;
    const example = matrix.name === "metadata" && this.explorer.exampleCodes;
    const about = { place: this.placeOf(matrix), remark: example ? ", example codes" : "" };
    drawAround(painter, panel, about, this.explorer.theme, window);
  }

  private placeOf(matrix: Matrix): string {
    if (matrix.tensor) return ", in tensor memory";
    if (matrix.part) return "";
    return `, in shared memory${this.explorer.scene.tensor ? "" : ", by bank"}`;
  }

  private look(sheet: Sheet): Look {
    const { explorer } = this;
    const { matrix } = sheet;
    const { theme, codes } = explorer;
    const pattern = explorer.scene.pattern;
    const byLane = explorer.state.colour === "lane";
    // Where tcgen05 has its B in shared memory depends on the kernel.
    const plain = !matrix.part && explorer.scene.tensor;
    const [numbers, painted] = plain
      ? [matrix.slot, [plainColour(theme)]]
      : !matrix.part
        ? [banksOfB(explorer), colours(32, bankColour, theme)]
        : byLane
          ? [matrix.lane, laneColours(explorer.catalogue, theme)]
          : [matrix.register, colours(matrix.registers, registerColour, theme)];
    const look: Look = { colour: (index) => painted[numbers[index]] };
    if (matrix.name === "A" && pattern) {
      look.every = sheet.name === "logical" ? pattern.chunk : pattern.kept;
    }
    if (matrix.name === "metadata") {
      look.wrong = (index) => pattern!.problems[codes[index]] !== "";
    }
    if (matrix.name === "D" && pattern && explorer.values) {
      look.wrong = (index) => explorer.values!.undefinedAt(index);
    }
    return look;
  }

  private mark(): void {
    const painter = this.view.painter(this.over);
    const { marks, theme, hover } = this.explorer;
    for (const panel of this.view.arrangement.panels) {
      const own = marks.get(panel.sheet.matrix.name);
      if (own) drawMarks(painter, panel, own, theme, this.view.window);
    }
    const panel = hover && this.view.panelOf(hover);
    const box = panel && !saysAll(panel) ? boxOf(panel, hover.index) : null;
    const { x, y } = this.view.origin;
    const near = box && { ...box, x: box.x + x, y: box.y + y };
    if (near) showLens(this.explorer, this.host, hover!, near, this.hidden(panel!));
    else hideLens(this.host);
    showWiring(this.explorer, this.view.movable ? null : this.corner);
  }

  /** What a lens had better not hide: captions most of all, then other matrices. */
  private hidden(own: Panel): Hidden[] {
    const { x: left, y: top } = this.view.origin;
    const found = this.view.arrangement.panels.flatMap((panel) => {
      const [x, y, width] = [panel.x + left, panel.y + top, panel.columns.end];
      const caption = { x, y: y - TOP, width, height: TOP, cost: 30 };
      const cells = { x, y, width, height: panel.rows.end, cost: panel === own ? 1 : 2 };
      return [caption, cells];
    });
    const wiring = byId("wiring");
    const { offsetLeft: x, offsetTop: y, offsetWidth: width, offsetHeight: height } = wiring;
    return wiring.hidden ? found : [...found, { x, y, width, height, cost: 1.5 }];
  }

  // ── moving ────────────────────────────────────────────────────────────────

  private move(dx: number, dy: number): void {
    this.view.move(dx, dy);
    this.prepareStages();
    this.paint();
    this.mark();
    this.unsettled();
  }

  /** Somebody moves: the address waits. */
  private unsettled(): void {
    this.touched = true;
    clearTimeout(this.settling);
    this.settling = window.setTimeout(() => this.settle(), SETTLED);
  }

  /** A point of the picture comes into the middle. */
  private moveTo(x: number, y: number): void {
    const { width, height } = this.view.size;
    this.move(this.view.pan.x - x + width / 2, this.view.pan.y - y + height / 2);
  }

  /** Nobody moves any more: the address says what is in the middle. */
  private settle(): void {
    this.explorer.see(this.middle());
    writeAddress(this.explorer);
  }

  /** The element in the middle of the window, or the nearest to it; none where the
   * window shows all. */
  private middle(): Spot | null {
    if (this.explorer.state.zoom === 1) return null;
    const { width, height } = this.view.size;
    const at = { x: width / 2 - this.view.origin.x, y: height / 2 - this.view.origin.y };
    // A sparse A that is drawn twice is named by what is stored.
    const panels = this.view.arrangement.panels.filter(
      (each) => this.view.panelOf({ matrix: each.sheet.matrix.name, index: 0 }) === each,
    );
    const panel = nearestTo(at, panels);
    const inside = (value: number, end: number) => clamp(value, 1, end - 1);
    const x = panel.x + inside(at.x - panel.x, panel.columns.end);
    const y = panel.y + inside(at.y - panel.y, panel.rows.end);
    const index = hit(panel, x, y);
    return index < 0 ? null : { matrix: panel.sheet.matrix.name, index };
  }

  /** Closer by a factor, 0 for all of it; the element under the point stays there. */
  private zoom(factor: number, x: number, y: number): void {
    const { state } = this.explorer;
    const closer = factor ? clamp(state.zoom * factor, 1, CLOSEST) : 1;
    const zoom = Math.round(closer * 100) / 100;
    if (zoom === state.zoom) return;
    this.aim = this.view.aim(x, y);
    this.explorer.zoomTo(zoom);
    this.aim = null;
    this.unsettled();
  }

  /** Move as little as it takes to see an element. */
  private reveal(spot: Spot): void {
    const [dx, dy] = this.view.toReveal(spot);
    if (dx || dy) this.move(dx, dy);
  }

  // ── pointer and keys ──────────────────────────────────────────────────────

  private point(at: { x: number; y: number } | null): void {
    const spot = at && this.view.spotAt(at.x, at.y);
    this.explorer.point(spot);
    if (at && !spot) this.remark(at.x, at.y);
  }

  /** Where a sparse A stores nothing, there is a zero. */
  private remark(x: number, y: number): void {
    const { panels } = this.view.arrangement;
    const open = panels.find(({ sheet }) => sheet.name === "logical");
    const column = open?.columns.at(x - this.view.origin.x - open.x) ?? -1;
    const row = open?.rows.at(y - this.view.origin.y - open.y) ?? -1;
    if (row < 0 || column < 0) return hideLens(this.host);
    const text = `A[${row}, ${column}] is not stored: zero`;
    showRemark(this.host, text, { x, y, width: 0, height: 0 });
  }

  /** Where an element is in the window, and how large it is. */
  boxOf(spot: Spot): { x: number; y: number; width: number; height: number } | null {
    const middle = this.pointOf(spot);
    const panel = this.view.panelOf(spot);
    const box = panel && boxOf(panel, spot.index);
    return middle && box ? { ...middle, width: box.width, height: box.height } : null;
  }

  /** Where on the screen the middle of an element is. */
  pointOf(spot: Spot): { x: number; y: number } | null {
    this.reveal(spot);
    return this.view.middleOf(spot, this.host.getBoundingClientRect());
  }

  private offset(): { x: number; y: number } {
    const { left, top } = this.host.getBoundingClientRect();
    return { x: left + this.view.origin.x - EDGE.left, y: top + this.view.origin.y - EDGE.top };
  }

  private click(spot: Spot | null): void {
    this.explorer.pin(spot);
    if (!spot) return;
    this.stages.get(spot.matrix)?.focus({ preventScroll: true });
    // On a phone the answer covers the lower part of the screen.
    const at = innerWidth < PHONE ? this.pointOf(spot) : null;
    if (at && at.y > innerHeight / 2) scrollBy(0, at.y - innerHeight / 3);
    announce(this.explorer.describe(spot));
  }

  /** For each matrix something to move to with the keyboard. */
  private prepareStages(): void {
    const panels = this.view.arrangement.panels.filter(
      (panel) => panel === this.view.panelOf({ matrix: panel.sheet.matrix.name, index: 0 }),
    );
    const names = panels.map(({ sheet }) => sheet.matrix.name);
    for (const [name, stage] of this.stages) {
      if (names.includes(name)) continue;
      stage.remove();
      this.stages.delete(name);
    }
    for (const panel of panels) {
      const { matrix } = panel.sheet;
      const stage = this.stages.get(matrix.name) ?? this.makeStage(matrix.name);
      const size = `${matrix.rows} by ${matrix.cols}`;
      const many = matrix.count > 1 ? `${matrix.count} matrices of ${size}` : size;
      stage.setAttribute("aria-label", `${matrix.name}, ${matrix.type}, ${many}`);
      const { x, y } = this.view.origin;
      Object.assign(stage.style, {
        left: `${x + panel.x}px`,
        top: `${y + panel.y}px`,
        width: `${panel.columns.end}px`,
        height: `${panel.rows.end}px`,
      });
    }
  }

  private makeStage(name: string): HTMLElement {
    const stage = h("div", {
      class: "stage",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "matrix",
      "aria-describedby": "keys",
      "data-matrix": name,
    });
    stage.addEventListener("keydown", (event) => this.key(name, event));
    stage.addEventListener("blur", () => this.explorer.point(null));
    this.stages.set(name, stage);
    this.host.append(stage);
    return stage;
  }

  private key(name: string, event: KeyboardEvent): void {
    const { explorer } = this;
    const matrix = explorer.matrix(name)!;
    const now = explorer.spot?.matrix === name ? explorer.spot : null;
    const spot = { matrix: name, index: now?.index ?? 0 };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow")) {
      const next = { ...spot, index: now ? moved(matrix, spot.index, event.key) : 0 };
      this.reveal(next);
      explorer.point(next);
    } else if (event.key === "Enter" || event.key === " ") {
      explorer.pin(spot);
    } else if (name === "metadata" && /^[0-9a-f]$/i.test(event.key)) {
      explorer.setCode(spot.index, parseInt(event.key, 16));
    } else if (!this.zoomKey(event.key, spot)) return;
    event.preventDefault();
    if (explorer.spot) announce(explorer.describe(explorer.spot));
  }

  private zoomKey(key: string, spot: Spot): boolean {
    const factor = { "+": STEP, "=": STEP, "-": 1 / STEP, "0": 0 }[key];
    if (factor === undefined) return false;
    const panel = this.view.panelOf(spot);
    const box = panel && boxOf(panel, spot.index);
    this.zoom(factor, this.view.origin.x + (box?.x ?? 0), this.view.origin.y + (box?.y ?? 0));
    return true;
  }

  // ── export ────────────────────────────────────────────────────────────────

  private save(): void {
    const name = `${this.explorer.op.name.replace(/[^\w.-]+/g, "_")}.svg`;
    download(name, this.svg(), "image/svg+xml");
    toast(`${name} saved`);
  }

  /** The whole picture, or what is seen of it, as near as it is looked at. */
  svg(window: Window | null = null): string {
    const { explorer } = this;
    const { theme } = explorer;
    const painter = new SvgPainter();
    const { panels, width, height, corner } = this.view.arrangement;
    painter.text(EDGE.left, 18, explorer.op.name, 13, theme.ink, "start", true);
    painter.at(EDGE.left, EDGE.top);
    for (const panel of panels) {
      this.drawOne(painter, panel, window);
      const own = this.explorer.marks.get(panel.sheet.matrix.name);
      if (own) drawMarks(painter, panel, own, theme, window);
      drawNames(painter, panel, theme, window);
      this.drawAround(painter, panel, window);
    }
    const lines = [...explorer.scene.matrices.values()].flatMap(({ name, part }) =>
      part ? [`${name.padEnd(8)} ${part.line}`] : [],
    );
    const most = Math.max(...lines.map((line) => line.length)) * 11 * 0.605;
    // Beside a narrow A there is no room for the lines: then they stand below.
    const inside = most < corner.width && 16 * lines.length + 8 < corner.height;
    const top = inside ? 8 : height + 14;
    lines.forEach((line, at) =>
      painter.text(0, top + 16 * at, line, 11, theme.faint, "start"),
    );
    const below = inside ? 0 : 16 * lines.length + 10;
    const all = Math.max(width, inside ? 0 : most, explorer.op.name.length * 13 * 0.62);
    const { left, top: head } = EDGE;
    const size = [all + 2 * left, height + head + below + left] as const;
    return painter.document(...size, explorer.op.name, theme.page);
  }
}

/** Where an arrow key leads, through the gaps between several matrices. */
function moved(matrix: Matrix, index: number, key: string): number {
  let [m, row, col] = matrix.spot(index);
  if (key === "ArrowUp") row = Math.max(0, row - 1);
  if (key === "ArrowDown") row = Math.min(matrix.rows - 1, row + 1);
  if (key === "ArrowLeft") col -= 1;
  if (key === "ArrowRight") col += 1;
  if (col < 0 && m > 0) [m, col] = [m - 1, matrix.cols - 1];
  if (col >= matrix.cols && m < matrix.count - 1) [m, col] = [m + 1, 0];
  return matrix.index(m, row, clamp(col, 0, matrix.cols - 1));
}
