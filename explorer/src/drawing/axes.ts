// Numbers and names around a matrix: its rows, columns and warps.

import { BAND, TOP, type Panel } from "./arrange.js";
import type { Window } from "./drawing.js";
import { LEAST, LETTER } from "./labels.js";
import type { Painter } from "./painter.js";
import type { Theme } from "./palette.js";
import type { Track } from "./tracks.js";

const TITLED = 250; // pixels that a caption may take

/** Numbers stay beside what is seen of a matrix that is larger than the window. */
export function drawAxes(to: Painter, panel: Panel, theme: Theme, window: Window | null): void {
  const { sheet, rows, columns, x, y, numbered } = panel;
  const wide = (count: number) => String(count - 1).length * LEAST * LETTER + 3;
  const [left, top] = [window?.left ?? -Infinity, window?.top ?? -Infinity];
  if (numbered && left < x + columns.end - 40) {
    const band = panel.bands.length ? BAND : 0;
    const right = Math.max(x - 5, left + band + wide(rows.count));
    const stuck = right > x;
    if (stuck) to.rect(left, y, right + 3 - left, rows.end, theme.page, 0.85);
    if (stuck || panel.leading) drawBands(to, panel, stuck ? left : x - BAND - 22, theme, window);
    for (const row of numberedLines(rows, sheet.down, LEAST + 1)) {
      const middle = y + rows.starts[row] + rows.sizes[row] / 2;
      to.text(right, middle, String(row), LEAST, theme.faint, "end");
    }
  }
  drawTags(to, panel, theme, window);
  if (top > y + rows.end - 20) return;
  // Above the numbers stands the caption.
  const middle = Math.max(y - 8, top + 22);
  if (middle > y - 8) to.rect(x, top, columns.end, middle + 8 - top, theme.page, 0.88);
  for (let m = 0; m * sheet.each < columns.count; m++) {
    const { across, each } = sheet;
    for (const column of numberedLines(columns, across, wide(each), each)) {
      const at = m * sheet.each + column;
      const centre = x + columns.starts[at] + columns.sizes[at] / 2;
      to.text(centre, middle, String(column), LEAST, theme.faint, "middle");
    }
  }
}

/** The lines whose numbers fit side by side: all, the ends of registers, every 2nd … */
function numberedLines(
  track: Track,
  run: number,
  needed: number,
  count = track.count,
): number[] {
  const all = Array.from({ length: count }, (_, line) => line);
  const fits = (lines: number[]) =>
    lines.every((line, at) => {
      if (!at) return true;
      const middle = (each: number) => track.starts[each] + track.sizes[each] / 2;
      return middle(line) - middle(lines[at - 1]) >= needed;
    });
  const ends = all.filter((line) => line % run < 2 || line % run === run - 1);
  for (const some of [all, ends]) if (fits(some)) return some;
  for (let step = run; step < 2 * count; step *= 2) {
    const some = all.filter((line) => line % step === 0);
    if (fits(some)) return some;
  }
  return [0];
}

/** The bands of warps and CTAs, at the left of rows; what is seen of one has its name. */
function drawBands(
  to: Painter,
  { bands, rows, y }: Panel,
  x: number,
  theme: Theme,
  window: Window | null,
): void {
  for (const { first, count, lines } of bands) {
    const start = Math.max(y + rows.starts[first], (window?.top ?? -Infinity) + TOP);
    const end = Math.min(y + rows.starts[first] + rows.span(first, count), window?.bottom ?? Infinity);
    const high = end - start;
    if (high < 4) continue;
    to.rect(x, start + 1, BAND - 2, high - 2, theme.band);
    const room = Math.floor((high - 2) / (LEAST + 2));
    const said = room < lines.length ? lines.slice(-1) : lines;
    if (!room) continue;
    said.forEach((line, at) => {
      const middle = start + high / 2 + (at - (said.length - 1) / 2) * (LEAST + 2);
      to.text(x + BAND / 2 - 1, middle, line, LEAST, theme.ink, "middle");
    });
  }
}

/** The names of columns, at the right of the caption, where there is room. */
function drawTags(to: Painter, panel: Panel, theme: Theme, window: Window | null): void {
  const { parts, columns, x, y } = panel;
  if (window && window.top > y - TOP + 6) return;
  parts.tags.forEach(({ first, count, lines: [text] }, at) => {
    const needed = (text.length + 1) * LEAST * 1.1 * LETTER + (at ? 0 : TITLED);
    if (columns.span(first, count) < needed) return;
    const end = x + columns.starts[first] + columns.span(first, count) - 4;
    to.text(end, y - 22, text, LEAST * 1.1, theme.ink, "end", true);
  });
}
