// The window through which a picture is seen: where it is, what it shows, what is under a
// point of it.

import { TOP, type Arrangement, type Panel } from "./arrange.js";
import { boxOf, hit, type Window } from "./drawing.js";
import type { Spot } from "./highlight.js";
import { CanvasPainter } from "./painter.js";

interface Point {
  x: number;
  y: number;
}

export class Viewport {
  arrangement!: Arrangement;
  /** Where the window is in the picture. */
  pan: Point = { x: Infinity, y: 0 };
  size = { width: 0, height: 0 };

  /** A picture smaller than the window stands in its middle. */
  get origin(): Point {
    const free = this.size.width - this.arrangement.width;
    return { x: free > 0 ? Math.floor(free / 2) : -this.pan.x, y: -this.pan.y };
  }

  get movable(): boolean {
    const { width, height } = this.arrangement;
    return width > this.size.width + 1 || height > this.size.height + 1;
  }

  get window(): Window {
    const { x, y } = this.origin;
    const { width, height } = this.size;
    return { left: -x, top: -y, right: width - x, bottom: height - y };
  }

  /** Nobody gets lost beside the picture. */
  hold(): void {
    const { width, height } = this.arrangement;
    const most = (all: number, seen: number) => Math.max(0, all - seen);
    this.pan.x = clamp(this.pan.x, 0, most(width, this.size.width));
    this.pan.y = clamp(this.pan.y, 0, most(height, this.size.height));
  }

  move(dx: number, dy: number): void {
    this.pan.x -= dx;
    this.pan.y -= dy;
    this.hold();
  }

  /** Moves the window over a picture that is about to be drawn: what is under a point of
   * the window stays there. */
  aim(x: number, y: number): (to: Arrangement) => void {
    const { panels } = this.arrangement;
    const at = { x: x - this.origin.x, y: y - this.origin.y };
    const nearest = nearestTo(at, panels);
    const part = {
      x: (at.x - nearest.x) / nearest.columns.end,
      y: (at.y - nearest.y) / nearest.rows.end,
    };
    return ({ panels: now }) => {
      const panel = now[panels.indexOf(nearest)];
      this.pan = {
        x: panel.x + part.x * panel.columns.end - x,
        y: panel.y + part.y * panel.rows.end - y,
      };
    };
  }

  /** How far to move, so that an element is seen. */
  toReveal(spot: Spot): [dx: number, dy: number] {
    const panel = this.panelOf(spot);
    const box = panel && boxOf(panel, spot.index);
    if (!box) return [0, 0];
    const { left, top, right, bottom } = this.window;
    const edge = 30;
    const out = (before: number, after: number) =>
      Math.min(0, before - edge) + Math.max(0, after + edge);
    const dx = out(box.x - left, box.x + box.width - right);
    const dy = out(box.y - top, box.y + box.height - bottom);
    return [-dx, -dy];
  }

  /** Where on the screen the middle of an element is; the window begins at left and top. */
  middleOf(spot: Spot, { left, top }: { left: number; top: number }): { x: number; y: number } | null {
    const panel = this.panelOf(spot);
    const box = panel && boxOf(panel, spot.index);
    if (!box) return null;
    const { x, y } = this.origin;
    return { x: left + x + box.x + box.width / 2, y: top + y + box.y + box.height / 2 };
  }

  panelOf(spot: Spot): Panel | undefined {
    const of = this.arrangement.panels.filter(
      ({ sheet }) => sheet.matrix.name === spot.matrix,
    );
    return of.find(({ sheet }) => sheet.name !== "logical") ?? of[0];
  }

  /** The element under a point of the window. */
  spotAt(x: number, y: number): Spot | null {
    const at = { x: x - this.origin.x, y: y - this.origin.y };
    for (const panel of this.arrangement.panels) {
      const index = hit(panel, at.x, at.y);
      if (index >= 0) return { matrix: panel.sheet.matrix.name, index };
    }
    return null;
  }

  painter(canvas: HTMLCanvasElement): CanvasPainter {
    const { x, y } = this.origin;
    return new CanvasPainter(canvas, this.size.width, this.size.height, -x, -y);
  }
}

/** Whether a window shows anything of a panel, or of what is above it. */
export function shows(window: Window, { x, y, columns, rows }: Panel): boolean {
  return (
    window.left < x + columns.end + TOP &&
    window.right > x - TOP &&
    window.top < y + rows.end + TOP &&
    window.bottom > y - TOP
  );
}

/** The panel that is nearest to a point of the picture. */
export function nearestTo(at: Point, panels: readonly Panel[]): Panel {
  return panels.reduce((one, other) =>
    distance(other, at) < distance(one, at) ? other : one,
  );
}

function distance({ x, y, columns, rows }: Panel, at: Point): number {
  const out = (value: number, end: number) => Math.max(0, -value, value - end);
  return Math.hypot(out(at.x - x, columns.end), out(at.y - y, rows.end));
}

export function clamp(value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value));
}
