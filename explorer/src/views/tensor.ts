// The picture of tensor memory.  Lanes run downwards, columns to the right, with every
// operand at an address of its own.  Bands are the lanes that a warp reaches.

import { h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import type { Spot } from "../drawing/highlight.js";
import { laneOf, type Matrix } from "../records/matrix.js";
import { scrolling } from "./memory.js";
import { CanvasPainter } from "../drawing/painter.js";
import { laneColours, plainColour } from "../drawing/palette.js";

export const LANES = 128;
const GUTTER = { left: 62, top: 34 };
const ROOM = 760; // pixels that the columns of one CTA may take
const HEIGHT = 4; // of a lane

interface View {
  explorer: Explorer;
  parts: Matrix[];
  columns: number;
  /** Per cell of all CTAs: the operand and its first element there, or -1. */
  owner: Int32Array;
  index: Int32Array;
  width: number;
}

export function tensorPanel(explorer: Explorer): Node[] {
  const view = laidOut(explorer);
  const said = h("p", { id: "tensor-said", role: "status" }, summary(view));
  const { ctas } = explorer.op.tensor!;
  const pictures = Array.from({ length: ctas }, (_, cta) => picture(view, cta, said));
  return [said, h("div", { class: "memory" }, ...pictures)];
}

/** The column at which an operand is drawn. */
function columnOf({ op }: Explorer, matrix: Matrix): number {
  return op.tensor!.columns[matrix.name];
}

function laidOut(explorer: Explorer): View {
  const parts = [...explorer.scene.matrices.values()].filter((each) => each.tensor);
  const ends = parts.map((each) => columnOf(explorer, each) + each.registers);
  const columns = Math.max(...ends);
  const size = explorer.op.tensor!.ctas * LANES * columns;
  const owner = new Int32Array(size).fill(-1);
  const index = new Int32Array(size);
  parts.forEach((matrix, number) => {
    const start = columnOf(explorer, matrix);
    const copies = copiesOf(matrix);
    for (let at = matrix.size - 1; at >= 0; at--) {
      for (const more of copies) {
        const lane = matrix.lane[at] + more;
        const cell = lane * columns + start + matrix.register[at];
        owner[cell] = number;
        index[cell] = at;
      }
    }
  });
  const width = Math.max(2, Math.min(12, Math.floor(ROOM / columns)));
  return { explorer, parts, columns, owner, index, width };
}

/** How many lanes further each copy of an element is. */
export function copiesOf(matrix: Matrix): number[] {
  const layout = matrix.layout!;
  const copy = layout.free.find(({ name }) => name === "copy");
  const count = copy?.size ?? 1;
  return Array.from({ length: count }, (_, at) => laneOf(layout.place({ copy: at })));
}

function summary({ explorer, columns }: View): string {
  const { letter, ctas } = explorer.op.tensor!;
  const where = ctas > 1 ? "of each CTA of the pair" : "of one CTA";
  return (
    `Layout ${letter}: ${columns} columns ${where}. ` +
    "Addresses are examples; point at a cell, or click to pin its element."
  );
}

// ── one CTA ─────────────────────────────────────────────────────────────────

function picture(view: View, cta: number, said: HTMLElement): Node {
  const { explorer, columns, width } = view;
  const canvas = h("canvas", {
    role: "img",
    "aria-label": `Tensor memory of CTA ${cta}: ${LANES} lanes, ${columns} columns`,
  });
  const right = GUTTER.left + columns * width + 80; // the last name may stand out
  const painter = new CanvasPainter(canvas, right, GUTTER.top + LANES * HEIGHT + 8);
  paintCells(view, painter, cta);
  paintNames(view, painter);
  paintBands(view, painter);
  paintSpot(view, painter, cta);
  const under = (event: MouseEvent): [number, number] | null => {
    const column = Math.floor((event.offsetX - GUTTER.left) / width);
    const lane = Math.floor((event.offsetY - GUTTER.top) / HEIGHT);
    const inside = column >= 0 && column < columns && lane >= 0 && lane < LANES;
    return inside ? [lane, column] : null;
  };
  canvas.addEventListener("pointermove", (event) => {
    const at = under(event);
    said.textContent = at ? told(view, cta, ...at) : summary(view);
  });
  canvas.addEventListener("pointerleave", () => (said.textContent = summary(view)));
  canvas.addEventListener("click", (event) => {
    const at = under(event);
    explorer.pin(at && spotAt(view, cta, ...at));
  });
  return scrolling(explorer.op.tensor!.ctas > 1 ? `CTA ${cta}` : "One CTA", canvas);
}

function cellAt({ columns }: View, cta: number, lane: number, column: number): number {
  return (cta * LANES + lane) * columns + column;
}

function spotAt(view: View, cta: number, lane: number, column: number): Spot | null {
  const cell = cellAt(view, cta, lane, column);
  if (view.owner[cell] < 0) return null;
  return { matrix: view.parts[view.owner[cell]].name, index: view.index[cell] };
}

/** Everything about one cell, in words. */
function told(view: View, cta: number, lane: number, column: number): string {
  const { explorer } = view;
  const spot = spotAt(view, cta, lane, column);
  const pair = explorer.op.tensor!.ctas > 1 ? `CTA ${cta}, ` : "";
  const place = `${pair}lane ${lane}, column ${column}`;
  const warp = `warp ${lane >> 5} reaches this lane`;
  if (!spot) return `${place}: not used; ${warp}`;
  const matrix = explorer.matrix(spot.matrix)!;
  const held = [...matrix.lane.keys()].filter(
    (at) =>
      matrix.lane[at] === matrix.lane[spot.index] &&
      matrix.register[at] === matrix.register[spot.index],
  );
  held.sort((one, other) => matrix.slot[one] - matrix.slot[other]);
  const [low] = matrix.bitRange(matrix.slot[held[0]]);
  const [, high] = matrix.bitRange(matrix.slot[held.at(-1)!]);
  const [first, last] = [matrix.label(held[0]), matrix.label(held.at(-1)!)];
  const elements = held.length > 1 ? `${first} to ${last}` : first;
  return `${place}, bits ${high}:${low}: ${elements}; ${warp}`;
}

// ── painting ────────────────────────────────────────────────────────────────

function paintCells(view: View, painter: CanvasPainter, cta: number): void {
  const { explorer, columns, width, owner } = view;
  const { theme } = explorer;
  const [lanes, plain] = [laneColours(explorer.catalogue, theme), plainColour(theme)];
  const colour = (lane: number, column: number) =>
    owner[cellAt(view, cta, lane, column)] < 0 ? plain : lanes[lane];
  const [x, y] = [GUTTER.left, GUTTER.top];
  painter.mosaic({ x, y, width, height: HEIGHT, cols: columns, rows: LANES, colour });
}

/** The name and the columns of each operand above it, and lines between them. */
function paintNames(view: View, painter: CanvasPainter): void {
  const { explorer, parts, width } = view;
  const { theme } = explorer;
  let free = 0;
  for (const matrix of parts) {
    const start = columnOf(explorer, matrix) + matrix.part!.skipped!;
    const count = matrix.part!.axes.C;
    const x = GUTTER.left + start * width;
    painter.frame(x, GUTTER.top, count * width, LANES * HEIGHT, theme.ink, 1);
    // Names of narrow operands would meet: then they take turns.
    const high = x < free;
    const text = `${matrix.name.replace("_", " ")} ${start}`;
    painter.text(x, high ? 8 : 24, text, 11, theme.ink, "start");
    free = high ? free : x + 7 * text.length + 6;
  }
}

function paintBands(view: View, painter: CanvasPainter): void {
  const { theme } = view.explorer;
  const end = GUTTER.left + view.columns * view.width;
  for (let warp = 0; warp < 4; warp++) {
    const y = GUTTER.top + 32 * warp * HEIGHT;
    const middle = y + 16 * HEIGHT;
    painter.text(GUTTER.left - 8, middle - 7, `warp ${warp}`, 11, theme.ink, "end");
    const lanes = `${32 * warp}–${32 * warp + 31}`;
    painter.text(GUTTER.left - 8, middle + 8, lanes, 10, theme.faint, "end");
    if (warp) painter.rect(GUTTER.left - 52, y - 1, end - GUTTER.left + 52, 2, theme.page);
    if (warp) painter.rect(GUTTER.left - 52, y, end - GUTTER.left + 52, 1, theme.ink);
  }
}

/** Frames around all places of the element that is looked at. */
function paintSpot(view: View, painter: CanvasPainter, cta: number): void {
  const { explorer, width } = view;
  const { spot } = explorer;
  const matrix = spot && explorer.matrix(spot.matrix);
  if (!spot || !matrix?.tensor) return;
  const column = columnOf(explorer, matrix) + matrix.register[spot.index];
  for (const more of copiesOf(matrix)) {
    const lane = matrix.lane[spot.index] + more - cta * LANES;
    if (lane < 0 || lane >= LANES) continue;
    const [x, y] = [GUTTER.left + column * width, GUTTER.top + lane * HEIGHT];
    const wide = Math.max(width, 5);
    painter.frame(x - 2, y - 2, wide + 4, HEIGHT + 4, explorer.theme.page, 4);
    painter.frame(x - 2, y - 2, wide + 4, HEIGHT + 4, explorer.theme.accent, 2.25);
  }
}
