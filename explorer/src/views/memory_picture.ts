// Shared memory as a picture: a line of it is all banks, a cell is 16 bytes.  Only the
// part of the picture that is in its box is drawn, so memory may be long.

import { bankOf } from "../memory/banks.js";
import { h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import type { Spot } from "../drawing/highlight.js";
import { CanvasPainter } from "../drawing/painter.js";
import { plainColour } from "../drawing/palette.js";
import type { Stored } from "../memory/stored.js";

/** Sizes of cells: in the picture of a tile, and side by side. */
export const CELLS = {
  large: { width: 76, height: 18, left: 52, top: 34 },
  small: { width: 30, height: 20, left: 26, top: 4 },
};
const TALL = 24; // lines that a box shows
const LETTER = 6.1; // the width of a letter of 10 pixels

interface Cells {
  from: number;
  to: number;
  width: number;
  height: number;
  left: number;
  top: number;
}

/** By address of a unit: the line and the unit of the tile that are there. */
function unitsOf(stored: Stored): Map<number, [number, number]> {
  const found = new Map<number, [number, number]>();
  for (let line = 0; line < stored.lines; line++) {
    for (let unit = 0; unit < stored.units; unit++)
      found.set(stored.unitAt(line, unit), [line, unit]);
  }
  return found;
}

const held = new WeakMap<Stored, Map<number, [number, number]>>();

function unitAt(stored: Stored, address: number): [number, number] | undefined {
  let units = held.get(stored);
  if (!units) held.set(stored, (units = unitsOf(stored)));
  return units.get(address);
}

/** The cells of some lines of memory, each with what it holds. */
export function paintCells(
  explorer: Explorer,
  stored: Stored,
  painter: CanvasPainter,
  { from, to, width, height, left, top }: Cells,
): void {
  const { catalogue, theme } = explorer;
  const lanes = theme.dark ? catalogue.lanes.dark : catalogue.lanes.light;
  const { line: across, unit: size } = catalogue.memory;
  const each = across / size;
  for (let line = from; line < to; line++) {
    const y = top + (line - from) * height;
    const first = `${line * across}`;
    painter.text(left - 5, y + height / 2, first, 10, theme.faint, "end");
    for (let at = 0; at < each; at++) {
      const address = line * across + at * size;
      const x = left + at * width;
      const found = unitAt(stored, address);
      if (!found) {
        painter.rect(x, y, width - 1, height - 1, plainColour(theme), 0.6);
        continue;
      }
      const lane = stored.touched.get(address);
      const dim = lane === undefined;
      painter.rect(
        x,
        y,
        width - 1,
        height - 1,
        lanes[(4 * found[1]) % 32],
        dim ? 0.3 : 1,
      );
      const text = written(stored, found, lane ?? -1, Math.floor((width - 5) / LETTER));
      const ink = dim ? theme.faint : theme.ink;
      painter.text(x + width / 2 - 0.5, y + height / 2, text, 10, ink, "middle");
    }
  }
}

/** What is in a cell, in as many letters as there is room for. */
function written(
  stored: Stored,
  [line, unit]: [number, number],
  lane: number,
  room: number,
): string {
  const { across, along, perUnit } = stored;
  const who = lane < 0 ? "" : `T${lane} `;
  const short = `${line}.${unit}`;
  const long =
    across === "row" ? `r${short}` : `${across}${line} ${along}${unit * perUnit}`;
  // In a small picture the place counts, in a narrow one the lane.
  const choices = [`${who}${long}`, room > 4 ? who.trim() : "", long, short];
  return choices.find((text) => text && text.length <= room) ?? "";
}

/** Frames around units. */
export function paintFrames(
  { catalogue, theme }: Explorer,
  painter: CanvasPainter,
  addresses: Iterable<number>,
  { from, to, width, height, left, top }: Cells,
  colour = theme.ink,
  stroke = 1.6,
): void {
  const { line: across, unit: size } = catalogue.memory;
  for (const address of addresses) {
    const line = Math.floor(address / across);
    if (line < from || line >= to) continue;
    const x = left + ((address % across) / size) * width;
    const y = top + (line - from) * height;
    painter.frame(x + 0.5, y + 0.5, width - 2, height - 2, colour, stroke);
  }
}

export class MemoryPicture {
  readonly figure: HTMLElement;
  private canvas: HTMLCanvasElement;
  private box: HTMLElement;
  private lines: number;
  private sizes = CELLS.large;
  /** The unit that keys or the pointer are at. */
  private cursor: number | null = null;

  constructor(
    private explorer: Explorer,
    private stored: Stored,
    private said: HTMLElement,
    private taken: Set<number>,
    before: MemoryPicture | null,
  ) {
    const { catalogue } = explorer;
    let last = 0;
    for (let line = 0; line < stored.lines; line++)
      for (let unit = 0; unit < stored.units; unit++)
        last = Math.max(last, stored.unitAt(line, unit));
    this.lines = Math.floor(last / catalogue.memory.line) + 1;
    this.canvas = h("canvas", {
      role: "img",
      "aria-label": "Shared memory: banks across, addresses down",
    });
    const caption = `Shared memory: ${this.lines} lines of ${catalogue.memory.line} bytes`;
    const inner = h("div", { class: "memory-all" }, this.canvas);
    this.box = h(
      "div",
      {
        class: "memory-box",
        tabindex: 0,
        role: "region",
        "aria-label": caption,
        id: "memory-box",
      },
      inner,
    );
    this.figure = h(
      "figure",
      { class: "memory-picture" },
      h("figcaption", {}, `${caption}; a cell is ${catalogue.memory.unit} bytes`),
      this.box,
    );
    this.box.addEventListener("scroll", () => this.draw());
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("pointermove", (event) =>
      this.point(this.under(event)),
    );
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener("click", (event) => this.pin(this.under(event)));
    // Who chose another swizzle or phase goes on where they were.
    const same =
      before?.stored.operand === stored.operand && before.explorer.op === explorer.op;
    const top = same ? before.box.scrollTop : 0;
    queueMicrotask(() => this.arrive(top));
  }

  /** On the page now: fit its room, and bring what is looked at into the box. */
  private arrive(scrolled: number): void {
    const room = this.box.parentElement!.clientWidth;
    const { left, top, height } = CELLS.large;
    const narrow = room < left + 8 * CELLS.large.width;
    const width = narrow
      ? Math.max(38, Math.floor((room - left - 14) / 8))
      : CELLS.large.width;
    this.sizes = { ...CELLS.large, width };
    const shown = Math.min(this.lines, TALL);
    this.box.style.height = `${top + shown * height + 4}px`;
    this.box.style.width = `${left + 8 * width + 14}px`;
    const inner = this.box.firstElementChild as HTMLElement;
    inner.style.height = `${top + this.lines * height + 2}px`;
    inner.style.width = `${left + 8 * width}px`;
    this.box.scrollTop = scrolled;
    this.follow();
  }

  /** Mark the element that is looked at, and scroll to it unless it is in view. */
  follow(): void {
    const place = this.place();
    if (place !== null && !this.box.matches(":hover")) this.show(place);
    this.say();
    this.draw();
  }

  private show(address: number): void {
    const { height, top } = this.sizes;
    const y = Math.floor(address / this.explorer.catalogue.memory.line) * height;
    const { scrollTop, clientHeight } = this.box;
    const inside = y >= scrollTop && y + height <= scrollTop + clientHeight - top;
    if (inside) return;
    const above = Math.floor((clientHeight - top) / height / 2) * height;
    this.box.scrollTop = Math.max(0, y - above);
  }

  /** The address of the unit of the element that is looked at. */
  private place(): number | null {
    const { spot } = this.explorer;
    if (spot?.matrix !== this.stored.operand) return null;
    const found = this.stored.find(spot.index);
    return found && this.stored.unitAt(found[0], found[1]);
  }

  private draw(): void {
    const { explorer, stored, sizes } = this;
    const { theme } = explorer;
    const { width, height, left, top } = sizes;
    const tall = this.box.clientHeight;
    const from = Math.floor(this.box.scrollTop / height);
    const shift = this.box.scrollTop - from * height;
    const to = Math.min(this.lines, from + Math.ceil((tall - top) / height) + 1);
    const painter = new CanvasPainter(this.canvas, left + 8 * width, tall);
    const cells = { ...sizes, from, to, top: top - shift };
    paintCells(explorer, stored, painter, cells);
    paintFrames(explorer, painter, this.taken, cells);
    const place = this.place();
    const marked = [this.cursor, place].filter((each): each is number => each !== null);
    paintFrames(explorer, painter, marked, cells, theme.accent, 3);
    painter.rect(0, 0, left + 8 * width, top - 2, theme.page);
    painter.text(left - 5, 24, "byte", 10, theme.faint, "end");
    painter.text(left + 4 * width, 8, "banks", 10, theme.faint, "middle");
    for (let unit = 0; unit < 8; unit++) {
      const banks = `${4 * unit}–${4 * unit + 3}`;
      painter.text(left + (unit + 0.5) * width, 24, banks, 10, theme.faint, "middle");
    }
  }

  // ── the pointer and keys ──────────────────────────────────────────────────

  private under(event: MouseEvent): [number, number] | null {
    const { width, height, left, top } = this.sizes;
    const { line: across, unit: size } = this.explorer.catalogue.memory;
    const at = Math.floor((event.offsetX - left) / width);
    const line = Math.floor((event.offsetY - top + this.box.scrollTop) / height);
    const inside = at >= 0 && at < 8 && event.offsetY >= top && line < this.lines;
    const share = ((event.offsetX - left) % width) / width;
    return inside ? [line * across + at * size, share] : null;
  }

  private point(at: [number, number] | null): void {
    this.cursor = at && at[0];
    this.explorer.point(at && this.spotAt(...at));
    this.say();
    this.draw();
  }

  private pin(at: [number, number] | null): void {
    const spot = at && this.spotAt(...at);
    if (spot) this.explorer.pin(spot);
  }

  /** The element at a share of a unit; null if this instruction does not have it. */
  private spotAt(address: number, share: number): Spot | null {
    const found = unitAt(this.stored, address);
    if (!found) return null;
    const place = Math.floor(share * this.stored.perUnit);
    const index = this.stored.element(...found, place);
    return index < 0 ? null : { matrix: this.stored.operand, index };
  }

  private key(event: KeyboardEvent): void {
    const { line, unit } = this.explorer.catalogue.memory;
    const steps: Record<string, number> = {
      ArrowUp: -line,
      ArrowDown: line,
      ArrowLeft: -unit,
      ArrowRight: unit,
      PageUp: -8 * line,
      PageDown: 8 * line,
    };
    const now = this.cursor ?? this.place() ?? 0;
    if (event.key in steps) {
      const last = this.lines * line - unit;
      this.cursor = Math.min(last, Math.max(0, now + steps[event.key]));
      this.show(this.cursor);
      this.say();
      this.draw();
    } else if (event.key === "Enter") this.pin([now, 0]);
    else return;
    event.preventDefault();
  }

  /** Everything about the unit that is looked at, in words. */
  private say(): void {
    const address = this.cursor ?? this.place();
    this.said.textContent =
      address === null
        ? "Point at a cell, or walk with the arrow keys; a click or Enter pins its element."
        : this.told(address);
  }

  private told(address: number): string {
    const { stored, explorer } = this;
    const { unit: size } = explorer.catalogue.memory;
    const bank = bankOf(explorer.catalogue, address);
    const place = `bytes ${address} to ${address + size - 1}, banks ${bank} to ${bank + 3}`;
    const found = unitAt(stored, address);
    if (!found) return `${place}: not used`;
    const [line, unit] = found;
    const first = unit * stored.perUnit;
    const what =
      stored.across === "row"
        ? `unit ${unit} of row ${line}`
        : `${stored.across} ${line}, ${stored.along} ${first} to ${first + stored.perUnit - 1}`;
    const lane = stored.touched.get(address);
    const who =
      lane === undefined
        ? "not touched by this instruction"
        : lane < 0
          ? ""
          : `lane ${lane} gives this address`;
    const own =
      explorer.spot?.matrix === stored.operand
        ? stored.find(explorer.spot.index)
        : null;
    const here = own && stored.unitAt(own[0], own[1]) === address;
    const element = here
      ? `; ${explorer.matrix(stored.operand)!.label(explorer.spot!.index)} is at byte ${own[2]}`
      : "";
    return `${place}: ${what}${who ? `; ${who}` : ""}${element}`;
  }
}
