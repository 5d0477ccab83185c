// One way to draw, two places to draw on: the screen and an SVG file.

export type Anchor = "start" | "middle" | "end";

/** Many small cells of one size, without gaps. */
export interface Mosaic {
  x: number;
  y: number;
  width: number;
  height: number;
  cols: number;
  rows: number;
  colour: (row: number, col: number) => string;
}

export interface Painter {
  mosaic(cells: Mosaic): void;
  rect(x: number, y: number, w: number, h: number, fill: string, alpha?: number): void;
  frame(
    x: number,
    y: number,
    w: number,
    h: number,
    stroke: string,
    width: number,
  ): void;
  text(
    x: number,
    y: number,
    text: string,
    size: number,
    fill: string,
    at: Anchor,
    bold?: boolean,
  ): void;
}

const FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";

export class CanvasPainter implements Painter {
  private context: CanvasRenderingContext2D;
  private font = "";

  /** ``left`` and ``top`` are where in the whole picture the canvas begins. */
  constructor(
    canvas: HTMLCanvasElement,
    width: number,
    height: number,
    left = 0,
    top = 0,
  ) {
    const sharp = Math.min(2, window.devicePixelRatio || 1);
    const [across, down] = [Math.ceil(width * sharp), Math.ceil(height * sharp)];
    this.context = canvas.getContext("2d")!;
    if (canvas.width === across && canvas.height === down) {
      // New memory costs more than wiping what is there.
      this.context.setTransform(1, 0, 0, 1, 0, 0);
      this.context.clearRect(0, 0, across, down);
    } else {
      [canvas.width, canvas.height] = [across, down];
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    this.context.setTransform(sharp, 0, 0, sharp, -left * sharp, -top * sharp);
    this.context.textBaseline = "middle";
  }

  /** A picture of one point per cell, enlarged: thousands of strokes in one. */
  mosaic({ x, y, width, height, cols, rows, colour }: Mosaic): void {
    const small = new OffscreenCanvas(cols, rows);
    const context = small.getContext("2d")!;
    const image = context.createImageData(cols, rows);
    const points = new Uint32Array(image.data.buffer);
    for (let index = 0; index < points.length; index++) {
      points[index] = point(colour(Math.floor(index / cols), index % cols));
    }
    context.putImageData(image, 0, 0);
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(small, x, y, cols * width, rows * height);
  }

  rect(x: number, y: number, w: number, h: number, fill: string, alpha = 1): void {
    this.context.globalAlpha = alpha;
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, w, h);
    this.context.globalAlpha = 1;
  }

  frame(
    x: number,
    y: number,
    w: number,
    h: number,
    stroke: string,
    width: number,
  ): void {
    this.context.strokeStyle = stroke;
    this.context.lineWidth = width;
    this.context.strokeRect(x, y, w, h);
  }

  text(
    x: number,
    y: number,
    text: string,
    size: number,
    fill: string,
    at: Anchor,
    bold = false,
  ): void {
    const font = `${bold ? "600 " : ""}${size}px ${FONT}`;
    if (font !== this.font) this.context.font = font;
    this.font = font;
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

  /** Neighbours of one colour are one rectangle. */
  mosaic({ x, y, width, height, cols, rows, colour }: Mosaic): void {
    for (let row = 0; row < rows; row++) {
      let from = 0;
      for (let col = 1; col <= cols; col++) {
        const fill = colour(row, from);
        if (col < cols && colour(row, col) === fill) continue;
        this.rect(
          x + from * width,
          y + row * height,
          (col - from) * width,
          height,
          fill,
        );
        from = col;
      }
    }
  }

  rect(x: number, y: number, w: number, h: number, fill: string, alpha = 1): void {
    const faint = alpha < 1 ? ` fill-opacity="${alpha}"` : "";
    this.parts.push(`<rect ${this.box(x, y, w, h)} fill="${fill}"${faint}/>`);
  }

  frame(
    x: number,
    y: number,
    w: number,
    h: number,
    stroke: string,
    width: number,
  ): void {
    const line = `fill="none" stroke="${stroke}" stroke-width="${width}"`;
    this.parts.push(`<rect ${this.box(x, y, w, h)} ${line}/>`);
  }

  text(
    x: number,
    y: number,
    text: string,
    size: number,
    fill: string,
    at: Anchor,
    bold = false,
  ): void {
    const weight = bold ? ' font-weight="600"' : "";
    const place = `x="${round(x + this.dx)}" y="${round(y + this.dy + size * 0.35)}"`;
    const style = `font-size="${round(size)}" fill="${fill}" text-anchor="${at}"${weight}`;
    this.parts.push(`<text ${place} ${style}>${escaped(text)}</text>`);
  }

  document(width: number, height: number, title: string, page: string): string {
    const size = `width="${Math.ceil(width)}" height="${Math.ceil(height)}"`;
    return [
      `<svg xmlns="http://www.w3.org/2000/svg" ${size} ` +
        `viewBox="0 0 ${Math.ceil(width)} ${Math.ceil(height)}" role="img" xml:space="preserve" ` +
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

const points = new Map<string, number>();

/** A colour such as #0b57a8 as a point of an image: bytes red, green, blue, opaque. */
function point(colour: string): number {
  let found = points.get(colour);
  if (found === undefined) {
    const [red, green, blue] = [1, 3, 5].map((at) =>
      parseInt(colour.slice(at, at + 2), 16),
    );
    found = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    points.set(colour, found);
  }
  return found;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

export function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
