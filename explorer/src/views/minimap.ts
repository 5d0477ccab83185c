// The whole picture, small, in a corner of one that is larger than the window.  A click or
// a drag moves there.

import type { Arrangement } from "../drawing/arrange.js";
import type { Window } from "../drawing/drawing.js";
import { CanvasPainter } from "../drawing/painter.js";
import type { Theme } from "../drawing/palette.js";
import { h } from "../page/dom.js";

const MOST = { width: 168, height: 112 };
const EDGE = 6;

export class Minimap {
  // Whoever uses keys moves with them: this has nothing to say besides.
  readonly canvas = h("canvas", { id: "minimap", "aria-hidden": "true", hidden: true });
  private scale = 1;
  private drawn = "";

  constructor(move: (x: number, y: number) => void) {
    const { canvas } = this;
    const go = ({ offsetX, offsetY }: PointerEvent) =>
      move((offsetX - EDGE) / this.scale, (offsetY - EDGE) / this.scale);
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      go(event);
      event.stopPropagation();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) go(event);
    });
  }

  show({ panels, width, height }: Arrangement, window: Window, theme: Theme): void {
    const seen = { width: window.right - window.left, height: window.bottom - window.top };
    const all = seen.width >= width - 1 && seen.height >= height - 1;
    this.canvas.hidden = all || seen.width < 480; // a phone has no room for it
    const key = all ? "" : [width, height, ...Object.values(window), theme.page].join();
    if (this.canvas.hidden || key === this.drawn) return;
    this.drawn = key;
    const scale = Math.min(MOST.width / width, MOST.height / height);
    this.scale = scale;
    const size = [width * scale + 2 * EDGE, height * scale + 2 * EDGE] as const;
    const to = new CanvasPainter(this.canvas, ...size);
    for (const { sheet, x, y, columns, rows } of panels) {
      const [left, top] = [EDGE + x * scale, EDGE + y * scale];
      const [wide, high] = [Math.max(2, columns.end * scale), Math.max(2, rows.end * scale)];
      to.rect(left, top, wide, high, theme.band);
      to.frame(left, top, wide, high, theme.hair, 1);
      const name = sheet.name.length > 1 ? "" : sheet.name;
      if (wide > 9 && high > 9) {
        to.text(left + wide / 2, top + high / 2, name, 9, theme.faint, "middle", true);
      }
    }
    const [left, top] = [Math.max(0, window.left), Math.max(0, window.top)];
    const wide = Math.min(seen.width, width - left) * scale;
    const high = Math.min(seen.height, height - top) * scale;
    to.frame(EDGE + left * scale, EDGE + top * scale, wide, high, theme.accent, 2);
  }
}
