// A canvas in a box that scrolls: it stays where it is, and draws what is seen.

import type { Theme } from "../../src/drawing/palette.js";

export class Board {
  readonly canvas = document.createElement("canvas");
  // To ask the box each time would make the browser lay the page out each time.
  width = 0;
  height = 0;
  top = 0;
  private tall = 0;
  /** Pixels of the canvas for each of the page. */
  private sharp = 1;
  private spacer = document.createElement("div");

  constructor(
    readonly box: HTMLElement,
    label: string,
    draw: () => void,
  ) {
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", label);
    this.canvas.tabIndex = 0;
    this.spacer.className = "board";
    this.spacer.append(this.canvas);
    box.append(this.spacer);
    box.addEventListener("scroll", () => this.moved(draw), { passive: true });
    new ResizeObserver(() => this.resized(draw)).observe(box);
    this.resized(() => undefined);
  }

  private resized(draw: () => void): void {
    [this.width, this.height] = [this.box.clientWidth, this.box.clientHeight];
    this.top = this.box.scrollTop;
    draw();
  }

  private moved(draw: () => void): void {
    this.top = this.box.scrollTop;
    draw();
  }

  /** The box moves when all is drawn: at once, it would be laid out for that alone. */
  scrollTo(top: number): void {
    this.top = Math.max(0, Math.min(top, this.tall - this.height));
    queueMicrotask(() => (this.box.scrollTop = this.top));
  }

  /** The edge of a pixel that is next. */
  snapped(at: number): number {
    return Math.round(at * this.sharp) / this.sharp;
  }

  /** A clean canvas as large as the box; ``tall`` is what can be scrolled through. */
  begin(tall: number): CanvasRenderingContext2D {
    const { canvas } = this;
    const sharp = Math.min(2, window.devicePixelRatio || 1);
    this.sharp = sharp;
    this.tall = tall;
    const height = `${Math.max(tall, 1)}px`;
    if (this.spacer.style.height !== height) this.spacer.style.height = height;
    const [across, down] = [Math.ceil(this.width * sharp), Math.ceil(this.height * sharp)];
    if (canvas.width !== across || canvas.height !== down) {
      canvas.style.width = `${this.width}px`;
      canvas.style.height = `${this.height}px`;
    }
    return cleared(canvas, across, down, sharp);
  }

  /** Where a pointer is, in the canvas. */
  point(event: { clientX: number; clientY: number }): { x: number; y: number } {
    const { left, top } = this.canvas.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }
}

/** A canvas of this size with nothing on it.  To set its size makes all of it anew. */
export function cleared(canvas: HTMLCanvasElement, width: number, height: number, sharp: number): CanvasRenderingContext2D {
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const to = canvas.getContext("2d")!;
  to.setTransform(1, 0, 0, 1, 0, 0);
  to.clearRect(0, 0, width, height);
  to.setTransform(sharp, 0, 0, sharp, 0, 0);
  to.textBaseline = "middle";
  return to;
}

export const SANS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
export const MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";

const patterns = new Map<string, CanvasPattern>();

/** Slanting lines: what is under way. */
export function hatching(to: CanvasRenderingContext2D, colour: string, gap = 6): CanvasPattern {
  const key = `${colour} ${gap}`;
  const known = patterns.get(key);
  if (known) return known;
  const tile = document.createElement("canvas");
  tile.width = tile.height = gap * 2;
  const paint = tile.getContext("2d")!;
  paint.strokeStyle = colour;
  paint.lineWidth = 1.6;
  for (const shift of [-gap * 2, -gap, 0, gap, gap * 2]) {
    paint.beginPath();
    paint.moveTo(shift, gap * 2);
    paint.lineTo(shift + gap * 2, 0);
    paint.stroke();
  }
  const pattern = to.createPattern(tile, "repeat")!;
  patterns.set(key, pattern);
  return pattern;
}

/** A share of one colour in another; both are #rrggbb. */
export function mixed(one: string, other: string, share: number): string {
  const part = (colour: string, at: number) => parseInt(colour.slice(1 + 2 * at, 3 + 2 * at), 16);
  const parts = [0, 1, 2].map((at) => Math.round(part(one, at) * share + part(other, at) * (1 - share)));
  return `#${parts.map((each) => each.toString(16).padStart(2, "0")).join("")}`;
}

const inks = new Map<string, boolean>();

/** The text that reads well on a colour: the page's ink, or the page itself. */
export function inkOn(colour: string, { dark, ink, page }: Theme): string {
  let light = inks.get(colour);
  if (light === undefined) {
    const [red, green, blue] = [1, 3, 5].map((at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.2;
    inks.set(colour, light);
  }
  return light === dark ? page : ink;
}
