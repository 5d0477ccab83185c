// One way to draw, two places to draw on: the screen and an SVG file.

export type Anchor = "start" | "middle" | "end";

export interface Painter {
  rect(x: number, y: number, w: number, h: number, fill: string, alpha?: number): void;
  frame(x: number, y: number, w: number, h: number, stroke: string, width: number): void;
  text(x: number, y: number, text: string, size: number, fill: string, at: Anchor): void;
}

const FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";

export class CanvasPainter implements Painter {
  private context: CanvasRenderingContext2D;
  private font = 0;

  constructor(canvas: HTMLCanvasElement, width: number, height: number) {
    // A huge picture at double resolution would not fit in memory.
    const sharp = width * height > 4e6 ? 1 : Math.min(2, window.devicePixelRatio || 1);
    canvas.width = Math.ceil(width * sharp);
    canvas.height = Math.ceil(height * sharp);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    this.context = canvas.getContext("2d")!;
    this.context.scale(sharp, sharp);
    this.context.textBaseline = "middle";
  }

  rect(x: number, y: number, w: number, h: number, fill: string, alpha = 1): void {
    this.context.globalAlpha = alpha;
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, w, h);
    this.context.globalAlpha = 1;
  }

  frame(x: number, y: number, w: number, h: number, stroke: string, width: number): void {
    this.context.strokeStyle = stroke;
    this.context.lineWidth = width;
    this.context.strokeRect(x, y, w, h);
  }

  text(x: number, y: number, text: string, size: number, fill: string, at: Anchor): void {
    if (size !== this.font) this.context.font = `${size}px ${FONT}`;
    this.font = size;
    this.context.fillStyle = fill;
    this.context.textAlign = at === "middle" ? "center" : at;
    this.context.fillText(text, x, y + 0.5);
  }
}

export class SvgPainter implements Painter {
  private parts: string[] = [];

  constructor(
    private dx = 0,
    private dy = 0,
  ) {}

  /** Draw what follows from another origin. */
  at(dx: number, dy: number): this {
    [this.dx, this.dy] = [dx, dy];
    return this;
  }

  rect(x: number, y: number, w: number, h: number, fill: string, alpha = 1): void {
    const faint = alpha < 1 ? ` fill-opacity="${alpha}"` : "";
    this.parts.push(`<rect ${this.box(x, y, w, h)} fill="${fill}"${faint}/>`);
  }

  frame(x: number, y: number, w: number, h: number, stroke: string, width: number): void {
    const line = `fill="none" stroke="${stroke}" stroke-width="${width}"`;
    this.parts.push(`<rect ${this.box(x, y, w, h)} ${line}/>`);
  }

  text(x: number, y: number, text: string, size: number, fill: string, at: Anchor): void {
    const place = `x="${round(x + this.dx)}" y="${round(y + this.dy + size * 0.35)}"`;
    const style = `font-size="${round(size)}" fill="${fill}" text-anchor="${at}"`;
    this.parts.push(`<text ${place} ${style}>${escaped(text)}</text>`);
  }

  document(width: number, height: number, title: string, page: string): string {
    const size = `width="${Math.ceil(width)}" height="${Math.ceil(height)}"`;
    return [
      `<svg xmlns="http://www.w3.org/2000/svg" ${size} ` +
        `viewBox="0 0 ${Math.ceil(width)} ${Math.ceil(height)}" role="img" ` +
        `font-family="${FONT}">`,
      `<title>${escaped(title)}</title>`,
      `<rect width="100%" height="100%" fill="${page}"/>`,
      ...this.parts,
      "</svg>\n",
    ].join("\n");
  }

  private box(x: number, y: number, w: number, h: number): string {
    const [left, top] = [round(x + this.dx), round(y + this.dy)];
    return `x="${left}" y="${top}" width="${round(w)}" height="${round(h)}"`;
  }
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

export function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
