// The caption of a matrix, and the numbers around it.

import { BAND, type Panel } from "./arrange.js";
import { drawAxes } from "./axes.js";
import { caption, type Window } from "./drawing.js";
import type { Painter } from "./painter.js";
import type { Theme } from "./palette.js";
import type { Sheet } from "./sheet.js";
import { shows } from "./viewport.js";

const TITLE = 12; // the size of captions
const STUCK = 28; // pixels beside the edge: the numbers of rows stand there

/** What a caption says besides: where the operand is, and a remark. */
export interface About {
  place: string;
  remark?: string;
}

export function drawAround(
  painter: Painter,
  panel: Panel,
  { place, remark = "" }: About,
  theme: Theme,
  window: Window | null,
): void {
  if (window && !shows(window, panel)) return;
  drawAxes(painter, panel, theme, window);
  // The caption stays beside what is seen of a matrix that is larger than the window.
  const seen = !window || window.top < panel.y + panel.rows.end - 40;
  const stuck = STUCK + (panel.bands.length ? BAND : 0);
  const moved = window && window.left > panel.x ? window.left + stuck - panel.x : 0;
  const [x, y] = [panel.x + moved, Math.max(panel.y - 22, (window?.top ?? -Infinity) + 8)];
  const [name, about] = captionOf(panel.sheet, place, remark, panel.caption - moved);
  const wide = (name.length + 1) * TITLE * 0.605;
  if (!seen || (moved && panel.caption - moved < wide)) return;
  painter.text(x, y, name, TITLE, theme.ink, "start", true);
  if (about) painter.text(x + wide, y, about, TITLE - 1, theme.faint, "start");
}

/** The name, and as much about it as there is room for. */
function captionOf(sheet: Sheet, place: string, remark: string, room: number): [string, string] {
  const { matrix } = sheet;
  const open = sheet.name === "logical";
  const name = open ? "A" : matrix.name.replace("_", " ");
  const many = matrix.count > 1 ? `${matrix.count} × ` : "";
  const size = `${many}${matrix.rows}×${sheet.each}`;
  const stored = (matrix.part?.stored ?? 1) > 1 ? " as stored" : "";
  const where = open ? " as it multiplies" : `${stored}${place}`;
  const kind = matrix.name === "metadata" ? "" : `${matrix.type} `;
  const texts = [`${kind}${size}${where}${remark}`, `${kind}${size}${where}`, `${kind}${size}`, size, ""];
  const left = room - (name.length + 1) * TITLE * 0.605;
  return [name, caption(texts, left, TITLE - 1)];
}
