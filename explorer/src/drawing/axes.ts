// Numbers and names around a matrix: its rows, columns and warps.

import { BAND, type Panel } from "./arrange.js";
import type { Window } from "./drawing.js";
import { LEAST, LETTER } from "./labels.js";
import type { Painter } from "./painter.js";
import type { Theme } from "./palette.js";
import type { Track } from "./tracks.js";

/** Numbers stay beside what is seen of a matrix that is larger than the window. */
export function drawAxes(to: Painter, panel: Panel, theme: Theme, window: Window | null): void {
  const { sheet, rows, columns, x, y, numbered } = panel;
  const wide = (count: number) => String(count - 1).length * LEAST * LETTER + 3;
  const [left, top] = [window?.left ?? -Infinity, window?.top ?? -Infinity];
  if (numbered && left < x + columns.end - 40) {
    const right = Math.max(x - 5, left + wide(rows.count));
    if (right > x) {
      to.rect(left, y, right + 3 - left, rows.end, theme.page, 0.85);
    }
    for (const row of numberedLines(rows, sheet.down, LEAST + 1)) {
      const middle = y + rows.starts[row] + rows.sizes[row] / 2;
      to.text(right, middle, String(row), LEAST, theme.faint, "end");
    }
  }
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

/** The bands of a warpgroup's warps, at the left of its rows. */
export function drawWarps(to: Painter, panel: Panel, theme: Theme): void {
  const { matrix, down } = panel.sheet;
  if (!panel.numbered || (matrix.part?.axes.W ?? 1) < 2 || down > 1) return;
  const warp = (row: number) => matrix.lane[panel.sheet.index(row, 0)] >> 5;
  const { rows } = panel;
  let first = 0;
  for (let row = 1; row <= rows.count; row++) {
    if (row < rows.count && warp(row) === warp(first)) continue;
    const [y, high] = [panel.y + rows.starts[first], rows.span(first, row - first)];
    if (panel.x >= BAND + 20 && high >= 12 && panel.x < 200) {
      const x = panel.x - BAND - 22;
      to.rect(x, y + 1, BAND - 2, high - 2, theme.band);
      const [middle, name] = [x + BAND / 2 - 1, `warp ${warp(first)}`];
      to.text(middle, y + high / 2, name, LEAST, theme.ink, "middle");
    }
    first = row;
  }
}
