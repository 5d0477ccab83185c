// The picture: B above D, A beside it, metadata and scales beside A.

import { announce, byId, download, h, toast } from "./dom.js";
import {
  GUTTER,
  columns,
  drawMarks,
  drawMatrix,
  extent,
  hit,
  typeSize,
  type Cell,
  type Look,
  type Window,
} from "./drawing.js";
import type { Explorer } from "./explorer.js";
import type { Matrix } from "./matrix.js";
import { banksOfB } from "./memory.js";
import { CanvasPainter, SvgPainter } from "./painter.js";
import {
  bankColour,
  colours,
  laneColours,
  plainColour,
  registerColour,
} from "./palette.js";

const LARGEST: Cell = { width: 46, height: 20 };
const TALL = 800; // pixels within which the whole picture should stand

const LARGE = 1.5e6; // pixels from which only what is seen is drawn

type Area = "above" | "beside" | "result";
const AREAS: Record<string, Area> = {
  scale_B: "above",
  B: "above",
  metadata: "beside",
  scale_A: "beside",
  A: "beside",
  C: "result",
  D: "result",
  R: "result",
};

interface Stage {
  matrix: Matrix;
  figure: HTMLElement;
  stage: HTMLElement;
  over: HTMLCanvasElement;
  /** The part of the picture that is drawn: all of it, unless it is large. */
  window: Window;
}

export class Figure {
  private stages = new Map<string, Stage>();
  private waiting = 0;
  private cells = { left: LARGEST, right: LARGEST };
  private host = byId("figure");

  constructor(private explorer: Explorer) {
    explorer.listen((change) => (change === "pointer" ? this.mark() : this.draw()));
    byId("export").addEventListener("click", () => this.save());
    const zoom = (to: number) =>
      explorer.update({ zoom: Math.min(5, Math.max(1, Math.round(to * 100) / 100)) });
    byId("zoom-in").addEventListener("click", () => zoom(explorer.state.zoom * 1.5));
    byId("zoom-out").addEventListener("click", () => zoom(explorer.state.zoom / 1.5));
    byId("zoom-fit").addEventListener("click", () => zoom(1));
    byId("figure-scroll").addEventListener("scroll", () => this.scrolled());
    window.addEventListener("scroll", () => this.scrolled(), { passive: true });
    new ResizeObserver(() => this.fit()).observe(byId("figure-scroll"));
  }

  /** Which matrices there are, and in which cell of the grid. */
  private shownMatrices(): Matrix[] {
    const { scene, state } = this.explorer;
    const accumulator = scene.matrices.has(state.accumulator) ? state.accumulator : "D";
    const names = ["metadata", "scale_A", "A", "scale_B", "B", accumulator];
    const found = names.flatMap((name) => scene.matrices.get(name) ?? []);
    // A load has only the one fragment that it moves.
    return found.length ? found : [...scene.matrices.values()];
  }

  private fit(): void {
    const before = JSON.stringify(this.cells);
    if (before !== JSON.stringify(this.chooseCells())) this.draw();
  }

  /** One height for all; A and what is beside it may be narrower than B and D. */
  private chooseCells(): { left: Cell; right: Cell } {
    const shown = this.shownMatrices();
    const of = (area: Area) => shown.filter((matrix) => AREAS[matrix.name] === area);
    const [beside, above, result] = [of("beside"), of("above"), of("result")];
    const rows = (matrices: Matrix[]) => matrices.map((matrix) => matrix.rows);
    const down =
      rows(above).reduce((total, each) => total + each, 0) +
      Math.max(...rows([...beside, ...result]));
    const widest = Math.max(0, ...[...above, ...result].map(columns));
    const across = beside.reduce((total, matrix) => total + columns(matrix), 0);
    const gutters = (beside.length + (widest ? 1 : 0)) * (GUTTER.left + 16);
    const room = byId("figure-scroll").clientWidth - gutters;
    const height = clamp(Math.floor(TALL / down), 3, LARGEST.height);
    const even = clamp(Math.floor(room / (across + widest)), 3, LARGEST.width);
    // The few columns of a small n can be wide enough to read.
    const roomy = widest <= 16 && room > 450 ? Math.max(even, 26) : even;
    const left = clamp(Math.floor((room - roomy * widest) / across), 2, LARGEST.width);
    const sized = (width: number): Cell => ({
      width: Math.round(Math.min(width, height * 3) * this.explorer.state.zoom),
      height: Math.round(
        Math.min(height, Math.max(left, roomy) * 1.5) * this.explorer.state.zoom,
      ),
    });
    return { left: sized(left), right: sized(roomy) };
  }

  private cell(matrix: Matrix): Cell {
    return AREAS[matrix.name] === "beside" ? this.cells.left : this.cells.right;
  }

  draw(): void {
    this.cells = this.chooseCells();
    const shown = this.shownMatrices();
    const kept = [...this.stages.keys()].join() === shown.map((m) => m.name).join();
    if (!kept) {
      this.stages.clear();
      for (const area of this.host.children) area.replaceChildren();
    }
    for (const matrix of shown) this.prepare(matrix);
    this.writeLines();
    for (const stage of this.stages.values()) this.drawStage(stage);
    this.mark();
  }

  /** Caption and size, which decide where everything lies. */
  private prepare(matrix: Matrix): void {
    const { name } = matrix;
    const known = this.stages.get(name) ?? this.makeStage(matrix);
    known.matrix = matrix;
    this.stages.set(name, known);
    const { figure, stage } = known;
    figure.querySelector("figcaption")!.replaceChildren(...this.caption(matrix));
    const size = `${matrix.rows} by ${matrix.cols}`;
    const many = matrix.count > 1 ? `${matrix.count} matrices of ${size}` : size;
    stage.setAttribute("aria-label", `${name}, ${matrix.type}, ${many}`);
    const [width, height] = extent(matrix, this.cell(matrix));
    stage.style.width = `${width}px`;
    stage.style.height = `${height}px`;
  }

  private drawStage(known: Stage): void {
    const { matrix, stage } = known;
    const [right, bottom] = extent(matrix, this.cell(matrix));
    const whole = { left: 0, top: 0, right, bottom };
    known.window = right * bottom > LARGE ? visiblePart(stage, whole) : whole;
    const painter = canvasFor(stage.querySelector("canvas")!, known.window);
    const { theme } = this.explorer;
    drawMatrix(
      painter,
      matrix,
      this.cell(matrix),
      this.look(matrix),
      theme,
      known.window,
    );
  }

  /** Of a large picture only what can be seen is drawn. */
  private scrolled(): void {
    window.cancelAnimationFrame(this.waiting);
    this.waiting = window.requestAnimationFrame(() => {
      for (const stage of this.stages.values()) {
        const [width, height] = extent(stage.matrix, this.cell(stage.matrix));
        if (width * height > LARGE) this.drawStage(stage);
      }
      this.mark();
    });
  }

  /** The corner that the L leaves free has the lines that everything follows from. */
  private writeLines(): void {
    const parts = [...this.explorer.scene.matrices.values()].flatMap(
      (m) => m.part ?? [],
    );
    const lines = parts.flatMap((part) => [
      h("dt", {}, part.name.replace("_", " ")),
      h("dd", {}, ...colouredLine(part.line)),
    ]);
    const meaning = this.explorer.scene.tensor
      ? "Bits of the lane (T) and column (C) of tensor memory, element in the cell (E), CTA of a pair (P); lowest first."
      : "Bits of the lane (L), register (R), element in it (E), warp (W); lowest first.";
    const corner = this.host.querySelector(".corner")!;
    // Beside a narrow A there is no room for text: then it stands above.
    const beside = this.shownMatrices().filter((each) => AREAS[each.name] === "beside");
    const width = beside.reduce(
      (sum, each) => sum + extent(each, this.cell(each))[0],
      0,
    );
    this.host.classList.toggle("narrow", width < 200);
    corner.replaceChildren(h("dl", {}, ...lines), h("p", { class: "hint" }, meaning));
  }

  private caption(matrix: Matrix): Node[] {
    const size = `${matrix.count > 1 ? `${matrix.count} × ` : ""}${matrix.rows}×${matrix.cols}`;
    const stored = (matrix.part?.stored ?? 1) > 1 ? ", as stored" : "";
    const where = this.placeOf(matrix);
    const about = `${matrix.type} ${size}${stored}${where}`;
    const title = matrix.name.replace("_", " ");
    return [h("strong", {}, title), document.createTextNode(` ${about}`)];
  }

  private placeOf(matrix: Matrix): string {
    if (matrix.tensor) return ", in tensor memory";
    if (matrix.part) return "";
    return `, in shared memory${this.explorer.scene.tensor ? "" : ", by bank"}`;
  }

  private makeStage(matrix: Matrix): Stage {
    const over = h("canvas", { class: "over", "aria-hidden": "true" });
    const stage = h(
      "div",
      {
        class: "stage",
        tabindex: 0,
        role: "application",
        "aria-roledescription": "matrix",
        "aria-describedby": "keys",
        "data-matrix": matrix.name,
      },
      h("canvas", { "aria-hidden": "true" }),
      over,
    );
    const caption = h("figcaption");
    const figure = h("figure", { class: `part ${matrix.name}` }, caption, stage);
    const window = { left: 0, top: 0, right: 0, bottom: 0 };
    const made = { matrix, figure, stage, over, window };
    this.listenTo(made);
    this.host.querySelector(`.${AREAS[matrix.name]}`)!.append(figure);
    return made;
  }

  // ── looks ─────────────────────────────────────────────────────────────────

  private look(matrix: Matrix): Look {
    const { explorer } = this;
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
    const colour = (index: number) => painted[numbers[index]];
    const look: Look = { colour, label: this.labels(matrix) };
    if (matrix.name === "A" && pattern) look.every = pattern.kept;
    if (matrix.name === "metadata") {
      look.wrong = (index) => pattern!.problems[codes[index]] !== "";
    }
    if (matrix.name === "D" && pattern && explorer.values) {
      look.wrong = (index) => explorer.values!.undefinedAt(index);
    }
    return look;
  }

  /** Values if there are any, else the longest way to name the place that fits. */
  private labels(matrix: Matrix): (index: number) => string {
    const { codes, values } = this.explorer;
    if (matrix.name === "metadata") {
      const wide = typeSize(this.cell(matrix), 4) > 0;
      return (index) =>
        codes[index].toString(wide ? 2 : 16).padStart(wide ? 4 : 1, "0");
    }
    if (values?.has(matrix.name)) {
      // What no cell has room for is not computed.
      if (!typeSize(this.cell(matrix), 1)) return () => "";
      return (index) => values.text(matrix.name, index);
    }
    if (!matrix.part) return () => "";
    const { letter } = matrix.part;
    const lane = (index: number) => matrix.lane[index] % 128;
    const inside = (index: number) =>
      matrix.perRegister > 1 ? `E${matrix.slot[index]}` : "";
    const element = (index: number) =>
      matrix.tensor
        ? `C${matrix.register[index]}${inside(index)}`
        : `${letter}${matrix.ordinal(index)}`;
    const ways = [
      (index: number) => `T${lane(index)}:${element(index)}`,
      (index: number) => `T${lane(index)}`,
      (index: number) => `${lane(index)}`,
    ];
    const last = matrix.size - 1;
    return (
      ways.find((way) => typeSize(this.cell(matrix), way(last).length)) ?? (() => "")
    );
  }

  private mark(): void {
    const { marks, theme } = this.explorer;
    for (const [name, { matrix, over, window }] of this.stages) {
      const painter = canvasFor(over, window);
      const own = marks.get(name);
      if (own) drawMarks(painter, matrix, this.cell(matrix), own, theme);
    }
  }

  // ── pointer and keys ──────────────────────────────────────────────────────

  private listenTo(made: Stage): void {
    const { stage } = made;
    const at = (event: MouseEvent) => {
      const box = stage.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      const index = hit(made.matrix, this.cell(made.matrix), x, y);
      return index < 0 ? null : { matrix: made.matrix.name, index };
    };
    stage.addEventListener("pointermove", (event) => this.explorer.point(at(event)));
    stage.addEventListener("pointerleave", () => this.explorer.point(null));
    stage.addEventListener("click", (event) => {
      const spot = at(event);
      this.explorer.pin(spot);
      if (spot) announce(this.explorer.describe(spot));
    });
    stage.addEventListener("keydown", (event) => this.key(made.matrix, event));
    stage.addEventListener("blur", () => this.explorer.point(null));
  }

  private key(matrix: Matrix, event: KeyboardEvent): void {
    const { explorer } = this;
    const now = explorer.spot?.matrix === matrix.name ? explorer.spot : null;
    const spot = { matrix: matrix.name, index: now?.index ?? 0 };
    if (event.key.startsWith("Arrow")) {
      const next = now ? moved(matrix, spot.index, event.key) : 0;
      explorer.point({ ...spot, index: next });
    } else if (event.key === "Enter" || event.key === " ") {
      explorer.pin(spot);
    } else if (matrix.name === "metadata" && /^[0-9a-f]$/i.test(event.key)) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      explorer.setCode(spot.index, parseInt(event.key, 16));
    } else return;
    event.preventDefault();
    if (explorer.spot) announce(explorer.describe(explorer.spot));
  }

  // ── export ────────────────────────────────────────────────────────────────

  private save(): void {
    const name = `${this.explorer.op.name.replace(/[^\w.-]+/g, "_")}.svg`;
    download(name, this.svg(), "image/svg+xml");
    toast(`${name} saved`);
  }

  svg(): string {
    const { explorer } = this;
    const { theme, marks } = explorer;
    const painter = new SvgPainter();
    const origin = this.host.getBoundingClientRect();
    const head = 34;
    painter.text(12, 18, explorer.op.name, 13, theme.ink, "start");
    for (const [name, { matrix, stage, figure }] of this.stages) {
      const box = stage.getBoundingClientRect();
      const [x, y] = [box.left - origin.left + 8, box.top - origin.top + head];
      const caption = figure.querySelector("figcaption")!.textContent!;
      painter.at(x, y).text(34, -8, caption, 12, theme.ink, "start");
      drawMatrix(painter, matrix, this.cell(matrix), this.look(matrix), theme);
      const own = marks.get(name);
      if (own) drawMarks(painter, matrix, this.cell(matrix), own, theme);
    }
    const corner = this.host.querySelector(".corner")!.getBoundingClientRect();
    painter.at(corner.left - origin.left + 12, corner.top - origin.top + head);
    [...explorer.scene.matrices.values()].forEach(({ name, part }, at) => {
      if (part)
        painter.text(0, 8 + 16 * at, `${name}  ${part.line}`, 11, theme.faint, "start");
    });
    const { scrollWidth, scrollHeight } = this.host;
    const size = [scrollWidth + 24, scrollHeight + head + 16] as const;
    return painter.document(...size, explorer.op.name, theme.page);
  }
}

/** What can be seen of a picture, and a little around it, in its own pixels. */
function visiblePart(element: HTMLElement, whole: Window): Window {
  const box = element.getBoundingClientRect();
  const around = byId("figure-scroll").getBoundingClientRect();
  const more = 40;
  const left = clamp(around.left - box.left - more, 0, whole.right - 1);
  const top = clamp(-box.top - more, 0, whole.bottom - 1);
  return {
    left,
    top,
    right: clamp(around.right - box.left + more, left + 1, whole.right),
    bottom: clamp(window.innerHeight - box.top + more, top + 1, whole.bottom),
  };
}

/** A canvas over one part of a picture. */
function canvasFor(canvas: HTMLCanvasElement, part: Window): CanvasPainter {
  const [left, top] = [Math.floor(part.left), Math.floor(part.top)];
  canvas.style.left = `${left}px`;
  canvas.style.top = `${top}px`;
  const [width, height] = [Math.ceil(part.right) - left, Math.ceil(part.bottom) - top];
  return new CanvasPainter(canvas, width, height, left, top);
}

/** A layout's line, each digit in the colour of its axis. */
function colouredLine(line: string): Node[] {
  return line.split(/(\s+)/).map((word) => {
    const axis = /^([WLREPTC])\d/.exec(word)?.[1];
    return axis
      ? h("span", { class: `axis-${axis}` }, word)
      : document.createTextNode(word);
  });
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

function clamp(value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value));
}
