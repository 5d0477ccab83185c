// The metadata word of a lane, nibble by nibble.

import { byId, h } from "./dom.js";
import type { Explorer } from "./explorer.js";
import type { Matrix } from "./matrix.js";

/** The lane whose word is edited: the one looked at, if it holds codes. */
function chosenLane(explorer: Explorer, matrix: Matrix): number {
  const { pinned, lane } = explorer.state;
  const spot = pinned?.matrix === "metadata" ? matrix.lane[pinned.index] : lane;
  return spot !== null && matrix.lane.includes(spot) ? spot : matrix.lane[0];
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
    problems(explorer, matrix),
  ];
}

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
  return h(
    "div",
    { class: wrong[code] ? "nibble wrong" : "nibble" },
    h("span", { class: "bits" }, `${4 * slot + 3}:${4 * slot}`),
    input,
    h("code", {}, code.toString(2).padStart(4, "0")),
    h("span", { class: "where" }, `row ${row}`),
    h("span", { class: "where" }, `chunk ${chunk}`),
    h("span", { id: `kept-${slot}` }, wrong[code] ? "illegal" : `keeps ${kept}`),
  );
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
    const text = `row ${row}, chunk ${chunk}: code ${code.toString(2).padStart(4, "0")} `;
    list.append(h("li", { class: "wrong" }, text + wrong[code]));
  }
  if (found.length > 8) list.append(h("li", {}, `and ${found.length - 8} more`));
  return list;
}
