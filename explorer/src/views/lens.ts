// Which elements are in a block that has no room for their names?  The lens shows the
// register under the pointer, with all of its elements.

import { h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import type { Spot } from "../drawing/highlight.js";
import { laneText, type Matrix } from "../records/matrix.js";

const MOST = 8; // elements at once: more would hide the picture

interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export function hideLens(host: HTMLElement): void {
  host.querySelector(".lens")?.remove();
}

export function showLens(
  explorer: Explorer,
  host: HTMLElement,
  spot: Spot,
  near: Box,
): void {
  hideLens(host);
  const matrix = explorer.matrix(spot.matrix)!;
  const lens = h(
    "div",
    { class: "lens", "aria-hidden": "true" },
    h("strong", {}, title(explorer, matrix, spot)),
    h("span", { class: "cells" }, ...cells(explorer, matrix, spot)),
  );
  put(lens, host, near);
}

/** A remark at a place where there is no element. */
export function showRemark(host: HTMLElement, text: string, near: Box): void {
  hideLens(host);
  put(h("div", { class: "lens", "aria-hidden": "true" }, text), host, near);
}

/** Above the place if there is room, else below it, and never outside the picture. */
function put(lens: HTMLElement, host: HTMLElement, near: Box): void {
  host.append(lens);
  const room = { width: host.clientWidth, height: host.clientHeight };
  const { offsetWidth, offsetHeight } = lens;
  const left = near.x + near.width / 2 - offsetWidth / 2;
  const above = near.y - offsetHeight - 10;
  const top = above >= 0 ? above : near.y + near.height + 12;
  lens.style.left = `${Math.max(0, Math.min(room.width - offsetWidth, left))}px`;
  lens.style.top = `${Math.max(0, Math.min(room.height - offsetHeight, top))}px`;
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
