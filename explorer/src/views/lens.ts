// The lens for blocks that have no room for names.  It shows the register under the
// pointer, with all of its elements.

import { h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import type { Spot } from "../drawing/highlight.js";
import { laneText, type Matrix } from "../records/matrix.js";

const MOST = 8; // elements at once: more would hide the picture

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** What a lens would hide, and how bad that is. */
export interface Hidden extends Box {
  cost: number;
}

export function hideLens(host: HTMLElement): void {
  host.querySelector(".lens")?.remove();
}

export function showLens(
  explorer: Explorer,
  host: HTMLElement,
  spot: Spot,
  near: Box,
  others: Hidden[],
): void {
  hideLens(host);
  const matrix = explorer.matrix(spot.matrix)!;
  const lens = h(
    "div",
    { class: "lens", "aria-hidden": "true" },
    h("strong", {}, title(explorer, matrix, spot)),
    h("span", { class: "cells" }, ...cells(explorer, matrix, spot)),
  );
  put(lens, host, near, others);
}

/** A remark at a place where there is no element. */
export function showRemark(host: HTMLElement, text: string, near: Box): void {
  hideLens(host);
  put(h("div", { class: "lens", "aria-hidden": "true" }, text), host, near, []);
}

/** Beside the place, never outside the picture, where it hides least of the rest. */
function put(lens: HTMLElement, host: HTMLElement, near: Box, others: Hidden[]): void {
  host.append(lens);
  const room = { width: host.clientWidth, height: host.clientHeight };
  const size = { width: lens.offsetWidth, height: lens.offsetHeight };
  const middle = near.x + (near.width - size.width) / 2;
  const centre = near.y + (near.height - size.height) / 2;
  const [above, below] = [near.y - size.height - 10, near.y + near.height + 12];
  const [left, right] = [near.x - size.width - 12, near.x + near.width + 12];
  const places = [
    [middle, above],
    [middle, below],
    [left, centre],
    [right, centre],
    [left, above],
    [right, above],
    [left, below],
    [right, below],
  ].map(([x, y]) => ({
    x: Math.max(0, Math.min(room.width - size.width, x)),
    y: Math.max(0, Math.min(room.height - size.height, y)),
    ...size,
  }));
  const hidden = [{ ...near, cost: 1000 }, ...others];
  const cost = (place: Box) =>
    hidden.reduce((sum, each) => sum + each.cost * shared(place, each), 0);
  const costs = places.map(cost);
  const best = places[costs.indexOf(Math.min(...costs))];
  lens.style.left = `${best.x}px`;
  lens.style.top = `${best.y}px`;
}

/** Pixels that two boxes have in common. */
function shared(one: Box, other: Box): number {
  const along = (a: number, b: number, c: number, d: number) =>
    Math.max(0, Math.min(a + b, c + d) - Math.max(a, c));
  return (
    along(one.x, one.width, other.x, other.width) *
    along(one.y, one.height, other.y, other.height)
  );
}

function title(explorer: Explorer, matrix: Matrix, { index }: Spot): string {
  if (!matrix.part) return matrix.label(index);
  const place = matrix.tensor ? "column" : "register";
  return `${laneText(matrix.lane[index], explorer.scene)}, ${place} ${matrix.register[index]}`;
}

/** The elements of the register around the one that is pointed at. */
function cells(explorer: Explorer, matrix: Matrix, spot: Spot): Node[] {
  const { index } = spot;
  const together = matrix.part ? sameRegister(matrix, index) : [index];
  const at = together.indexOf(index);
  const first = Math.max(0, Math.min(together.length - MOST, at - MOST / 2 + 1));
  const some = together.slice(first, first + MOST);
  const dots = (there: boolean) => (there ? [h("i", {}, "⋯")] : []);
  return [
    ...dots(first > 0),
    ...some.map((each) => {
      const value = explorer.valueText({ ...spot, index: each });
      const name = matrix.part ? `${matrix.part.letter}${matrix.ordinal(each)}` : "";
      const text = matrix.tensor ? `E${matrix.slot[each]}` : name;
      const said = [text, value].filter(Boolean).join(" ");
      return h("b", each === index ? { class: "this" } : {}, said);
    }),
    ...dots(first + MOST < together.length),
  ];
}

/** All elements of one register, lowest bits first. */
function sameRegister(matrix: Matrix, index: number): number[] {
  const [lane, register] = [matrix.lane[index], matrix.register[index]];
  const found: number[] = [];
  for (let each = 0; each < matrix.size; each++) {
    if (matrix.lane[each] === lane && matrix.register[each] === register) found.push(each);
  }
  return found.sort((one, other) => matrix.slot[one] - matrix.slot[other]);
}
