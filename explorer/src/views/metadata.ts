// The metadata word of a lane, nibble by nibble.

import { byId, h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import type { Spot } from "../drawing/highlight.js";
import type { Matrix } from "../records/matrix.js";

/** The lane whose word is edited: the one that governs what is pinned, or the one
 * picked, if it holds codes. */
function chosenLane(explorer: Explorer, matrix: Matrix): number {
  const { pinned, lane } = explorer.state;
  const code = pinned && governing(explorer, matrix, pinned);
  const found = code === null ? lane : matrix.lane[code];
  return found !== null && matrix.lane.includes(found) ? found : matrix.lane[0];
}

/** The code of a pinned code, of an element of A, or the first in a row of D. */
function governing(explorer: Explorer, matrix: Matrix, pinned: Spot): number | null {
  if (pinned.matrix === "metadata") return pinned.index;
  if (pinned.matrix !== "A" && pinned.matrix !== "C" && pinned.matrix !== "D") return null;
  const [, row, col] = explorer.matrix(pinned.matrix)!.spot(pinned.index);
  const chunk = Math.floor(col / explorer.scene.pattern!.kept);
  return matrix.index(0, row, pinned.matrix === "A" ? chunk : 0);
}

export function metadataPanel(explorer: Explorer): Node[] {
  const matrix = explorer.matrix("metadata")!;
  const lane = chosenLane(explorer, matrix);
  const indices = [...matrix.lane.keys()].filter(
    (index) => matrix.lane[index] === lane,
  );
  indices.sort((one, other) => matrix.slot[other] - matrix.slot[one]);
  const reset = h(
    "button",
    {
      type: "button",
      id: "codes-reset",
      onclick: () => explorer.update({ codes: {} }),
    },
    "Reset codes",
  );
  return [
    h(
      "div",
      { class: "controls" },
      ...selectorControl(explorer),
      laneControl(explorer, matrix, lane),
      reset,
    ),
    h(
      "p",
      { class: "word" },
      `Register of lane ${lane}: `,
      h("code", { id: "word" }, word(explorer, indices)),
    ),
    h(
      "div",
      { class: "nibbles" },
      ...indices.map((index) => nibble(explorer, matrix, index)),
    ),
    ...(explorer.exampleCodes ? [h("p", { class: "hint" }, EXAMPLE)] : []),
    problems(explorer, matrix),
  ];
}

const EXAMPLE =
  "These codes are an example: those of a kernel follow from its A. Type other ones, or " +
  "paste A under Explain.";

function word(explorer: Explorer, indices: number[]): string {
  const matrix = explorer.matrix("metadata")!;
  const digits = Array<string>(8).fill("0");
  for (const index of indices) {
    digits[7 - matrix.slot[index]] = explorer.codes[index].toString(16);
  }
  return `0x${digits.join("")}`;
}

function selectorControl(explorer: Explorer): Node[] {
  const { selectors } = explorer.scene;
  if (selectors === 1) return [];
  const select = h("select", {
    id: "selector",
    onchange: () => explorer.update({ selector: Number(select.value) }),
  });
  for (let value = 0; value < selectors; value++)
    select.append(h("option", {}, `${value}`));
  select.value = `${explorer.state.selector}`;
  return [h("label", {}, "Selector ", select)];
}

function laneControl(explorer: Explorer, matrix: Matrix, lane: number): Node {
  const lanes = [...new Set(matrix.lane)].sort((one, other) => one - other);
  const select = h("select", {
    id: "word-lane",
    onchange: () => explorer.pickLane(Number(select.value)),
  });
  select.append(...lanes.map((each) => h("option", {}, `${each}`)));
  select.value = `${lane}`;
  return h("label", {}, "Lane ", select);
}

function nibble(explorer: Explorer, matrix: Matrix, index: number): Node {
  const code = explorer.codes[index];
  const { problems: wrong, positions } = explorer.scene.pattern!;
  const [, row, chunk] = matrix.spot(index);
  const slot = matrix.slot[index];
  const input = h("input", {
    id: `nibble-${slot}`,
    maxlength: 1,
    size: 1,
    inputmode: "text",
    autocomplete: "off",
    value: code.toString(16),
    "aria-label": `Nibble ${slot}: row ${row}, chunk ${chunk}, hexadecimal`,
    "aria-invalid": String(wrong[code] !== ""),
    "aria-describedby": `kept-${slot}`,
    onfocus: () => input.select(),
    oninput: () => setNibble(explorer, index, input),
  });
  const kept = positions[code].join(" ");
  const { pinned } = explorer.state;
  const looked = pinned !== null && governing(explorer, matrix, pinned) === index;
  const kinds = ["nibble", wrong[code] ? "wrong" : "", looked ? "this" : ""];
  return h(
    "div",
    { class: kinds.filter(Boolean).join(" ") },
    h("span", { class: "bits" }, `${4 * slot + 3}:${4 * slot}`),
    input,
    codeChoice(explorer, index, slot),
    h("span", { class: "where" }, `row ${row}, chunk ${chunk}`),
    h("span", { id: `kept-${slot}` }, wrong[code] ? "illegal" : `keeps ${kept}`),
  );
}

/** All sixteen codes: those in order first, then the other legal ones, then the rest. */
function codeChoice(explorer: Explorer, index: number, slot: number): Node {
  const { problems: wrong, positions } = explorer.scene.pattern!;
  const select = h("select", {
    id: `code-${slot}`,
    "aria-label": `Code of nibble ${slot}`,
    onchange: () => {
      explorer.setCode(index, Number(select.value));
      byId(`code-${slot}`)?.focus();
    },
  });
  const rising = (places: number[]) =>
    places.every((place, at) => !at || place > places[at - 1]);
  const kind = (code: number) => (wrong[code] ? 2 : rising(positions[code]) ? 0 : 1);
  ["in order", "in another order", "illegal"].forEach((label, at) => {
    const codes = [...wrong.keys()].filter((code) => kind(code) === at);
    const options = codes.map((code) => {
      const kept = at < 2 ? ` keeps ${positions[code].join(" ")}` : "";
      return h("option", { value: code }, bits(code) + kept);
    });
    if (codes.length) select.append(h("optgroup", { label }, ...options));
  });
  select.value = `${explorer.codes[index]}`;
  return select;
}

function bits(code: number): string {
  return code.toString(2).padStart(4, "0");
}

function setNibble(explorer: Explorer, index: number, input: HTMLInputElement): void {
  if (!/^[0-9a-f]$/i.test(input.value)) {
    input.setAttribute("aria-invalid", "true");
    return;
  }
  const { id } = input;
  explorer.setCode(index, parseInt(input.value, 16));
  // The panel was drawn anew: stay in the same nibble.
  byId<HTMLInputElement>(id)?.focus();
}

function problems(explorer: Explorer, matrix: Matrix): Node {
  const wrong = explorer.scene.pattern!.problems;
  const found = [...explorer.codes.keys()].filter((at) => wrong[explorer.codes[at]]);
  const list = h("ul", { id: "problems", "aria-live": "polite" });
  if (!found.length) list.append(h("li", { class: "fine" }, "Every code is legal."));
  for (const index of found.slice(0, 8)) {
    const [, row, chunk] = matrix.spot(index);
    const code = explorer.codes[index];
    const text = `row ${row}, chunk ${chunk}: code ${bits(code)} `;
    list.append(h("li", { class: "wrong" }, text + wrong[code]));
  }
  if (found.length > 8) list.append(h("li", {}, `and ${found.length - 8} more`));
  return list;
}
