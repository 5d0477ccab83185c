// Shows the element under the pointer, and what its lane holds.

import { announce, byId, fact, h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import type { Spot } from "../drawing/highlight.js";
import { laneOf, laneText, registerOf, unit, type Matrix } from "../records/matrix.js";
import { placeOfB } from "./memory.js";
import { rowOfB } from "../numbers/values.js";

export function showElement(explorer: Explorer): void {
  const { spot } = explorer;
  const host = byId("element");
  document.body.toggleAttribute("data-looking", spot !== null);
  if (!spot) {
    const hint = "Point at an element, or move to a matrix and use the arrow keys.";
    host.replaceChildren(h("h2", {}, "Element"), h("p", { class: "hint" }, hint));
    return;
  }
  const matrix = explorer.matrix(spot.matrix)!;
  const parts: Node[] = [
    h("h2", {}, matrix.label(spot.index)),
    closeButton(explorer),
    facts(explorer, matrix, spot),
  ];
  if (matrix.layout) {
    // In a narrow column the conditions stand close to their cases.
    const narrow = matrix.part!.formula.replace(/ {3,}(?=for|otherwise)/g, "  ");
    const formula = h("pre", { class: "formula", tabindex: 0 }, narrow);
    formula.setAttribute("role", "region");
    const which = matrix.tensor ? "Formula" : "Formula of the PTX manual";
    formula.setAttribute("aria-label", which);
    parts.push(formula);
  }
  host.replaceChildren(...parts);
}

/** On a phone the card lies over the page: it can be put away. */
function closeButton(explorer: Explorer): HTMLElement {
  const onclick = () => {
    explorer.hover = null;
    explorer.pin(null);
  };
  return h("button", { type: "button", class: "close", "aria-label": "Close", onclick }, "×");
}

function facts(explorer: Explorer, matrix: Matrix, spot: Spot): HTMLElement {
  const list = h("dl", { class: "place" });
  const add = (name: string, value: string, warn = false) =>
    list.append(fact(name, value, warn ? "wrong" : ""));
  if (matrix.tensor) {
    addCell(explorer, matrix, spot, add);
  } else if (matrix.part) {
    const { warps } = explorer.scene;
    const [low, high] = matrix.bitRange(matrix.slot[spot.index]);
    if (warps > 1) add("warp", `${matrix.lane[spot.index] >> 5}`);
    add("lane", `${matrix.lane[spot.index] & 31}`);
    add("register", `${matrix.register[spot.index]}`);
    add(high > low ? "bits" : "bit", high > low ? `${high}:${low}` : `${low}`);
    add("element", `${matrix.part.letter}${matrix.ordinal(spot.index)}`);
    const copies = matrix.places(spot.index).slice(1);
    for (const place of copies) {
      add("copy", `${laneText(laneOf(place), explorer.scene)}, register ${place.R}`);
    }
  } else {
    const [, k, n] = matrix.spot(spot.index);
    const ctas = explorer.op.tensor?.ctas ?? 1;
    const cta = ctas > 1 ? `of CTA ${Math.floor((n * ctas) / matrix.cols)}, ` : "";
    add("in shared memory", `${cta}${placeOfB(explorer, k, n)}`);
  }
  if (spot.matrix === "A" && explorer.scene.pattern && explorer.matrix("metadata")) {
    const [, row, stored] = matrix.spot(spot.index);
    const k = rowOfB(explorer.scene, explorer.codes, row, stored);
    add(
      "stands at",
      k < 0 ? "no column: its code is illegal" : `column ${k} of A, row ${k} of B`,
      k < 0,
    );
  }
  const value = explorer.valueText(spot);
  if (value && spot.matrix !== "metadata") add("value", value);
  if (spot.matrix === "metadata") addCode(explorer, spot, add);
  return list;
}

/** A place in tensor memory, and the warp that reaches it. */
function addCell(
  { scene, route }: Explorer,
  matrix: Matrix,
  spot: Spot,
  add: (name: string, value: string) => void,
): void {
  const lane = matrix.lane[spot.index];
  const [low, high] = matrix.bitRange(matrix.slot[spot.index]);
  if (scene.warps > 4) add("CTA", `${lane >> 7}`);
  add("lane", `${lane & 127}`);
  add("column", `${matrix.register[spot.index]}`);
  add("bits", `${high}:${low}`);
  add("reached by", `warp ${(lane & 127) >> 5}`);
  if (matrix.name === "D") add("loaded into", route!.told(spot.index));
  for (const place of matrix.places(spot.index).slice(1)) {
    const column = registerOf(place) + matrix.part!.skipped!;
    add("copy", `${laneText(laneOf(place), scene)}, column ${column}`);
  }
}

function addCode(
  explorer: Explorer,
  spot: Spot,
  add: (name: string, value: string, warn?: boolean) => void,
): void {
  const pattern = explorer.scene.pattern!;
  const code = explorer.codes[spot.index];
  const [, , chunk] = explorer.matrix("metadata")!.spot(spot.index);
  add("code", `${code.toString(2).padStart(4, "0")} (${code.toString(16)})`);
  const kept = pattern.positions[code].map((place) => chunk * pattern.chunk + place);
  if (kept.length) add("keeps", `columns ${kept.join(", ")} of A, which meet these rows of B`);
  if (pattern.problems[code]) add("illegal", pattern.problems[code], true);
}

// ── the lane ────────────────────────────────────────────────────────────────

export function listenToLane(explorer: Explorer): void {
  const number = byId<HTMLInputElement>("lane-number");
  const warp = byId<HTMLSelectElement>("lane-warp");
  const go = (lane: number) => {
    const count = 32 * explorer.scene.warps;
    const wrapped = ((lane % count) + count) % count;
    explorer.pickLane(wrapped);
    announce(`${laneText(wrapped, explorer.scene)} picked`);
  };
  const typed = () => {
    const wrong = laneProblem(explorer, number);
    byId("lane-wrong").textContent = wrong;
    number.setAttribute("aria-invalid", String(wrong !== ""));
    if (wrong) return;
    if (number.value === "") explorer.pickLane(null);
    else go(Number(number.value) + unit(explorer.scene) * Number(warp.value || 0));
  };
  number.addEventListener("change", typed);
  warp.addEventListener("change", typed);
  byId("lane-before").addEventListener("click", () => go((explorer.lane ?? 0) - 1));
  byId("lane-after").addEventListener("click", () => go((explorer.lane ?? -1) + 1));
  byId("lane-clear").addEventListener("click", () => explorer.pickLane(null));
}

/** Why something is not the number of a lane; empty where it is, or where none is. */
function laneProblem({ scene }: Explorer, input: HTMLInputElement): string {
  const { value, validity } = input;
  const most = unit(scene) - 1;
  if (value === "" && !validity.badInput) return "";
  if (/^\d+$/.test(value) && Number(value) <= most) return "";
  return `${value || "This"} is not a lane: lanes are 0 to ${most}.`;
}

export function showLane(explorer: Explorer): void {
  const { lane, scene } = explorer;
  const { warps } = scene;
  const number = byId<HTMLInputElement>("lane-number");
  const warp = byId<HTMLSelectElement>("lane-warp");
  const size = unit(scene);
  warp.parentElement!.hidden = 32 * warps === size;
  warp.parentElement!.firstChild!.textContent = scene.tensor ? "CTA " : "Warp ";
  number.max = `${size - 1}`;
  if (document.activeElement !== number)
    number.value = lane === null ? "" : `${lane % size}`;
  if (lane !== null && number.value === `${lane % size}`) {
    byId("lane-wrong").textContent = "";
    number.removeAttribute("aria-invalid");
  }
  if (lane !== null) warp.value = `${Math.floor(lane / size)}`;
  const host = byId("lane-holds");
  if (lane === null) {
    const hint = "Pick a lane to see all that it holds.";
    delete host.dataset.key;
    host.replaceChildren(h("p", { class: "hint" }, hint));
    return;
  }
  const held = [...scene.matrices.values()].filter((matrix) => matrix.part);
  const { own, codes, state, target } = explorer;
  const key = [state.op, state.selector, state.fill, lane, own.version, target, codes.join("")].join();
  if (host.dataset.key === key) return; // another element of the same lane
  host.dataset.key = key;
  host.replaceChildren(...held.flatMap((matrix) => lines(explorer, matrix, lane)));
}

/** The registers of a lane, each with its elements, lowest bits first. */
function lines(explorer: Explorer, matrix: Matrix, lane: number): Node[] {
  const registers = new Map<number, number[]>();
  for (let index = 0; index < matrix.size; index++) {
    if (matrix.lane[index] !== lane) continue;
    const at = matrix.register[index];
    registers.set(at, [...(registers.get(at) ?? []), index]);
  }
  const title = h("h3", {}, matrix.name.replace("_", " "));
  if (!registers.size) return [title, h("p", { class: "hint" }, "nothing that counts")];
  const rows = [...registers].sort(([one], [other]) => one - other);
  const list = (some: [number, number[]][]) =>
    h(
      "dl",
      { class: "registers" },
      ...some.map(([register, indices]) => {
        indices.sort((one, other) => matrix.slot[one] - matrix.slot[other]);
        const name = `${matrix.tensor ? "column" : "register"} ${register}`;
        const items = indices.map((index) => item(explorer, matrix, index));
        return h("div", {}, h("dt", {}, name), h("dd", {}, ...items));
      }),
    );
  if (rows.length <= MOST) return [title, list(rows)];
  const rest = rows.slice(FIRST);
  const more = h("details", {}, h("summary", {}, `and ${rest.length} more`));
  // Made when they are asked for: a wgmma has 128, and the pointer moves often.
  more.addEventListener("toggle", () => more.append(list(rest)), { once: true });
  return [title, list(rows.slice(0, FIRST)), more];
}

const MOST = 20; // registers of an operand that are listed at once
const FIRST = 12; // of more than that

/** An element that a click leads to; keys get there in the picture. */
function item(explorer: Explorer, matrix: Matrix, index: number): HTMLElement {
  const [m, row, col] = matrix.spot(index);
  const spot = { matrix: matrix.name, index };
  const value = explorer.valueText(spot);
  const where = matrix.count > 1 ? `${m}:${row},${col}` : `${row},${col}`;
  const said = `(${where})${value ? `=${value.replace("-", "−")}` : ""}`;
  const onclick = () => explorer.pin(spot);
  return h("button", { type: "button", tabindex: -1, class: "go", onclick }, said);
}
