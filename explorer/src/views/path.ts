// The way from shared memory through tensor memory into registers, drawn.  Words at
// boxes and arrows come from Python; cells are worked out.  Point at an element of D
// to see all that makes it, and where it arrives.

import type { Path } from "../records/catalogue.js";
import { byId, h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import { madeOf, type Spot } from "../drawing/highlight.js";
import { CanvasPainter } from "../drawing/painter.js";
import { laneColours } from "../drawing/palette.js";
import { inputPanes, registerPane, resultPane, sharedPanes, type Pane } from "./panes.js";

const SIDE = 700; // a panel this wide has two boxes side by side, as the style says
const BETWEEN = 158; // the arrow, gaps, frames and paddings of two boxes
const EDGE = 3; // around cells, for frames

interface Shown extends Pane {
  over: HTMLCanvasElement;
}

interface View {
  explorer: Explorer;
  panes: Shown[];
  said: HTMLElement;
}

let shown: View | null = null;

export function pathPanel(explorer: Explorer): Node[] {
  const said = h("p", { id: "path-said", role: "status" });
  const view: View = { explorer, panes: [], said };
  const { ctas, path } = explorer.op.tensor!;
  const rows = Array.from({ length: ctas }, (_, cta) => stages(view, cta));
  const notes = h("ul", { class: "hint" }, ...lines(explorer, path.notes, "li"));
  shown = view;
  follow(view);
  return [said, ...rows, notes];
}

/** Mark what is pointed at in the picture that is there. */
export function followPath(): void {
  if (shown) follow(shown);
}

function lines({ catalogue }: Explorer, words: number[], tag: "div" | "li"): Node[] {
  // A name that is too long for an arrow goes on with the dot of a qualifier.
  const breaking = (text: string) => text.split(/(?=\.)/).flatMap((part) => [h("wbr"), part]);
  return words.map((word) => h(tag, {}, ...breaking(catalogue.words[word])));
}

// ── boxes and arrows ────────────────────────────────────────────────────────

function stages(view: View, cta: number): Node {
  const { explorer } = view;
  const { ctas, path } = explorer.op.tensor!;
  const room = roomOfBox();
  const box = (title: string, said: Node[], panes: Pane[]) =>
    h(
      "figure",
      { class: "stop" },
      h("figcaption", {}, h("strong", {}, title), ...said),
      h("div", { class: "panes" }, ...panes.map((pane) => stage(view, pane))),
    );
  const say = (words: number[]) => lines(explorer, words, "div");
  const title = ctas > 1 ? [h("h3", {}, `CTA ${cta}`)] : [];
  return h(
    "section",
    { class: "path", "aria-label": ctas > 1 ? `Path in CTA ${cta}` : "Path" },
    ...title,
    box("shared memory", say(path.shared), sharedPanes(explorer, cta, room)),
    arrow(say(path.copies)),
    box("tensor memory", say(path.inputs), inputPanes(explorer, cta)),
    arrow([...say(path.multiplies), ...say([path.bypass])], "through"),
    box("tensor memory", say(path.result), [resultPane(explorer, cta, room)]),
    arrow(say(path.loaded)),
    box(
      explorer.catalogue.words[path.registers],
      warps(explorer, path, cta),
      [registerPane(explorer, cta, room)],
    ),
  );
}

/** Pixels for the panes of a box: half the panel, or all of a narrow one. */
function roomOfBox(): number {
  const wide = byId("panel").clientWidth - 4;
  return Math.min(480, wide < SIDE ? wide - 26 : Math.floor((wide - BETWEEN) / 2));
}

function arrow(said: Node[], more = ""): Node {
  return h("div", { class: `arrow ${more}` }, h("div", {}, ...said));
}

function warps(explorer: Explorer, path: Path, cta: number): Node[] {
  const colours = laneColours(explorer.catalogue, explorer.theme);
  return path.warps[cta].map(([warp, word]) => {
    const style = `background: ${colours[4 * warp + 2]}`;
    return h("div", { class: "warp", style }, explorer.catalogue.words[word]);
  });
}

// ── panes ───────────────────────────────────────────────────────────────────

/** A pane on the page: its cells, and above them what is marked. */
function stage(view: View, pane: Pane): Node {
  const { explorer } = view;
  const base = h("canvas", {
    role: "img",
    "aria-label": `${pane.where}: ${pane.name}, ${pane.rows} by ${pane.cols}`,
  });
  const over = h("canvas", { class: "over", "aria-hidden": "true" });
  const painter = new CanvasPainter(base, ...sizeOf(pane));
  const { rows, cols, width, height, colour } = pane;
  painter.mosaic({ x: pane.gutter, y: EDGE, width, height, cols, rows, colour });
  for (let left = 0; left < cols; left += pane.block) {
    const [x, wide] = [pane.gutter + left * width, pane.block * width];
    painter.frame(x, EDGE, wide, rows * height, explorer.theme.faint, 1);
  }
  if (pane.gutter > EDGE) paintBands(explorer, pane, painter);
  const under = (event: MouseEvent): Spot | null => {
    const col = Math.floor((event.offsetX - pane.gutter) / width);
    const row = Math.floor((event.offsetY - EDGE) / height);
    const inside = col >= 0 && col < cols && row >= 0 && row < rows;
    return inside ? pane.at(row, col) : null;
  };
  base.addEventListener("pointermove", (event) => explorer.point(under(event)));
  base.addEventListener("pointerleave", () => explorer.point(null));
  base.addEventListener("click", (event) => explorer.pin(under(event)));
  view.panes.push({ ...pane, over });
  return h(
    "div",
    { class: "pane", "data-pane": pane.id },
    h("span", { style: `padding-left: ${pane.gutter}px` }, pane.name),
    h("div", {}, base, over),
  );
}

function sizeOf({ gutter, cols, rows, width, height }: Pane): [number, number] {
  return [gutter + cols * width + EDGE, rows * height + 2 * EDGE];
}

/** The four warps, or the lanes that they reach, beside the cells. */
function paintBands({ theme }: Explorer, pane: Pane, painter: CanvasPainter): void {
  const { gutter, height, cols, width } = pane;
  for (let warp = 0; warp < 4; warp++) {
    const [y, middle] = [EDGE + 32 * warp * height, EDGE + (32 * warp + 16) * height];
    painter.text(gutter - 5, middle - 7, `warp ${warp}`, 11, theme.ink, "end");
    const said = pane.id.startsWith("registers")
      ? "0–31"
      : `${32 * warp}–${32 * warp + 31}`;
    painter.text(gutter - 5, middle + 7, said, 10, theme.faint, "end");
    if (warp) painter.rect(gutter, y - 1, cols * width, 2, theme.page);
  }
}

// ── what is marked ──────────────────────────────────────────────────────────

function follow(view: View): void {
  const { explorer, panes, said } = view;
  const { spot } = explorer;
  const marked = spot ? involved(explorer, spot) : new Map<string, number[]>();
  for (const pane of panes) mark(explorer, pane, marked);
  said.textContent = spot ? told(explorer, spot) : summary(explorer);
}

/** By matrix, the elements to mark: all that makes one of D, or the one itself. */
function involved(explorer: Explorer, spot: Spot): Map<string, number[]> {
  if (spot.matrix !== "D") return new Map([[spot.matrix, [spot.index]]]);
  const made = madeOf(explorer.scene, explorer.codes, spot);
  const bright = (lit: Uint8Array) => [...lit.keys()].filter((index) => lit[index]);
  return new Map([...made].map(([name, { lit }]) => [name, bright(lit!)]));
}

function mark(explorer: Explorer, pane: Shown, marked: Map<string, number[]>): void {
  const painter = new CanvasPainter(pane.over, ...sizeOf(pane));
  if (!marked.size) return;
  const { rows, cols, width, height, gutter } = pane;
  const lit = new Uint8Array(rows * cols);
  for (const index of marked.get(pane.matrix) ?? [])
    for (const [row, col] of pane.cells(index)) lit[row * cols + col] = 1;
  const { theme } = explorer;
  painter.rect(gutter, EDGE, cols * width, rows * height, theme.page, 0.5);
  for (const [top, bottom, left, right] of rectangles(lit, rows, cols)) {
    const [x, y] = [gutter + left * width, EDGE + top * height];
    const [w, tall] = [(right - left) * width, (bottom - top) * height];
    const colour = (row: number, col: number) => pane.colour(top + row, left + col);
    const [across, down] = [right - left, bottom - top];
    painter.mosaic({ x, y, width, height, cols: across, rows: down, colour });
    // A frame around a cell too small to see is somewhat larger than the cell.
    const [dx, dy] = [Math.max(1, (5 - w) / 2), Math.max(1, (5 - tall) / 2)];
    painter.frame(x - dx, y - dy, w + 2 * dx, tall + 2 * dy, theme.accent, 2);
  }
}

/** Marked cells as few rectangles: first and end of rows, of columns. */
function rectangles(lit: Uint8Array, rows: number, cols: number): number[][] {
  const found: number[][] = [];
  let open = new Map<string, number[]>();
  for (let row = 0; row < rows; row++) {
    const next = new Map<string, number[]>();
    for (let col = 0; col < cols; col++) {
      if (!lit[row * cols + col]) continue;
      const left = col;
      while (col < cols && lit[row * cols + col]) col++;
      const key = `${left} ${col}`;
      const one = open.get(key) ?? [row, row, left, col];
      if (one[0] === row) found.push(one);
      one[1] = row + 1;
      next.set(key, one);
    }
    open = next;
  }
  return found;
}

// ── words ───────────────────────────────────────────────────────────────────

function summary({ op }: Explorer): string {
  const pair = op.tensor!.ctas > 1 ? " Each CTA of the pair has a part." : "";
  return (
    "Point at an element of D, in tensor memory or in registers, to see what makes " +
    `it and where it arrives; a click pins it.${pair} Columns are examples.`
  );
}

function told(explorer: Explorer, spot: Spot): string {
  if (spot.matrix !== "D") return explorer.describe(spot);
  const [route, d] = [explorer.route!, explorer.matrix("D")!];
  const [, row, col] = d.spot(spot.index);
  const scales = explorer.matrix("scale_A")
    ? `, with row ${row} of scale_A and column ${col} of scale_B`
    : "";
  const { name, column } = route.loader(spot.index);
  return (
    `${d.label(spot.index)} is made of row ${row} of A and column ${col} of B${scales}. ` +
    `${placeOf(explorer, spot.index)}. ${name} at column ${column} ` +
    `brings it into ${route.told(spot.index)}.`
  );
}

function placeOf(explorer: Explorer, index: number): string {
  const [, place] = explorer.describe({ matrix: "D", index }).split(": ");
  return `Tensor memory: ${place}`;
}
