// A canvas in a box that scrolls: it stays where it is, and draws what is seen.

export class Board {
  readonly canvas = document.createElement("canvas");
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
    box.addEventListener("scroll", draw, { passive: true });
    new ResizeObserver(draw).observe(box);
  }

  get width(): number {
    return this.box.clientWidth;
  }

  get height(): number {
    return this.box.clientHeight;
  }

  get top(): number {
    return this.box.scrollTop;
  }

  /** A clean canvas as large as the box; ``tall`` is what can be scrolled through. */
  begin(tall: number): CanvasRenderingContext2D {
    const { canvas } = this;
    const sharp = Math.min(2, window.devicePixelRatio || 1);
    const height = `${Math.max(tall, 1)}px`;
    if (this.spacer.style.height !== height) this.spacer.style.height = height;
    const [across, down] = [Math.ceil(this.width * sharp), Math.ceil(this.height * sharp)];
    if (canvas.width !== across || canvas.height !== down) {
      [canvas.width, canvas.height] = [across, down];
      canvas.style.width = `${this.width}px`;
      canvas.style.height = `${this.height}px`;
    }
    const to = canvas.getContext("2d")!;
    to.setTransform(sharp, 0, 0, sharp, 0, 0);
    to.clearRect(0, 0, this.width, this.height);
    to.textBaseline = "middle";
    return to;
  }

  /** Where a pointer is, in the canvas. */
  point(event: { clientX: number; clientY: number }): { x: number; y: number } {
    const { left, top } = this.canvas.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }
}

export const SANS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
export const MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";

/** Slanting lines: what is under way. */
export function hatching(to: CanvasRenderingContext2D, colour: string, gap = 6): CanvasPattern {
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
  return pattern;
}

/** A share of one colour in another; both are #rrggbb. */
export function mixed(one: string, other: string, share: number): string {
  const part = (colour: string, at: number) => parseInt(colour.slice(1 + 2 * at, 3 + 2 * at), 16);
  const parts = [0, 1, 2].map((at) => Math.round(part(one, at) * share + part(other, at) * (1 - share)));
  return `#${parts.map((each) => each.toString(16).padStart(2, "0")).join("")}`;
}
