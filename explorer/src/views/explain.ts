// The tab that explains the value of an element of D: which values, on which target,
// and each product with the bits that it keeps and loses.

import { answer, outcome, refusal } from "./answer.js";
import { stepTable, type Holders } from "./bars.js";
import { byId, h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import { ownPanel } from "./owning.js";
import { cellName, FILLS, rowOfB, type Fill } from "../numbers/values.js";
import type { Matrix, Scene } from "../records/matrix.js";

export const FILL_NAMES: Record<Fill, string> = {
  off: "none",
  small: "small numbers",
  ones: "ones",
  identity: "A = identity",
  random: "random",
  extreme: "any finite bits",
};

export function explainPanel(explorer: Explorer): Node[] {
  const index = explainedIndex(explorer);
  return [
    controls(explorer, index),
    how(explorer),
    h(
      "div",
      { class: "explain" },
      h("div", { class: "told" }, ...tellings(explorer, index)),
      ownPanel(explorer),
    ),
  ];
}

/** The element of D that is pinned, or one in the row or column of what is. */
export function explainedIndex({ state, scene }: Explorer): number {
  const d = scene.matrices.get("D")!;
  const { pinned } = state;
  const matrix = pinned && scene.matrices.get(pinned.matrix);
  if (!matrix) return 0;
  const [m, row, col] = matrix.spot(pinned.index);
  if ("CD".includes(matrix.name)) return pinned.index;
  const ofRow = ["A", "scale_A", "metadata"].includes(matrix.name);
  return d.index(Math.min(m, d.count - 1), ofRow ? row : 0, ofRow ? 0 : col);
}

// ── what is asked ───────────────────────────────────────────────────────────

function controls(explorer: Explorer, index: number): HTMLElement {
  const d = explorer.matrix("D")!;
  const [m, row, col] = d.spot(index);
  const pick = (
    name: string,
    value: number,
    count: number,
    go: (to: number) => number,
  ) => {
    const input = h("input", {
      id: `explain-${name}`,
      type: "number",
      min: 0,
      max: count - 1,
      value,
      onchange: () => {
        const to = Number(input.value);
        const fine =
          input.value !== "" && Number.isInteger(to) && to >= 0 && to < count;
        input.setAttribute("aria-invalid", String(!fine));
        input.title = fine ? "" : `${name} is 0 to ${count - 1}`;
        if (fine) explorer.pin({ matrix: "D", index: go(to) });
      },
    });
    return h("label", {}, `${name} `, input);
  };
  return h(
    "div",
    { class: "controls" },
    h("strong", {}, cellName(d, index)),
    pick("row", row, d.rows, (to) => d.index(m, to, col)),
    pick("column", col, d.cols, (to) => d.index(m, row, to)),
    h("label", {}, "Values ", fillSelect(explorer, "explain-values", false)),
    h("label", {}, "Target ", targetSelect(explorer, "explain-target")),
  );
}

/** What one begins with; none only where the picture is meant. */
export function fillSelect(explorer: Explorer, id: string, off: boolean): HTMLElement {
  const select = h("select", { id });
  const { fill } = explorer.state;
  const fills = FILLS.filter((each) => off || each !== "off");
  for (const each of fills)
    select.append(h("option", { value: each }, FILL_NAMES[each]));
  select.value = fill === "off" && !off ? "small" : fill;
  if (fill !== "off") showFill(explorer, select);
  select.addEventListener("change", () => {
    if (select.value !== "own") explorer.own.begin(select.value as Fill);
  });
  return select;
}

/** What is chosen; values of one's own are said to be. */
export function showFill({ state, own }: Explorer, select: HTMLSelectElement): void {
  const mine = select.querySelector('option[value="own"]');
  const any = own.kind !== "none" && state.fill !== "off";
  if (any && !mine) select.prepend(h("option", { value: "own" }, "your own"));
  if (!any) mine?.remove();
  select.value = any ? "own" : state.fill;
}

/** Targets that compute alike stand together. */
export function targetSelect(explorer: Explorer, id: string): HTMLSelectElement {
  const { catalogue, op } = explorer;
  const { ways } = catalogue.sums[op.sums!];
  const select = h("select", { id });
  for (const way of ways) {
    const group = h("optgroup", { label: way.how });
    for (const target of way.targets) group.append(h("option", {}, target));
    select.append(group);
  }
  select.value = explorer.target;
  select.addEventListener("change", () => {
    const usual = select.value === catalogue.sums[op.sums!].usual;
    explorer.update({ target: usual ? "" : select.value });
  });
  return select;
}

function how(explorer: Explorer): HTMLElement {
  const way = explorer.way!;
  const instead =
    explorer.catalogue.targets[explorer.op.requires].targets[explorer.target];
  const written = instead ? ` The assembler writes ${instead} instead.` : "";
  return h(
    "p",
    { class: "hint" },
    `${explorer.target}: ${way.how}; ${way.source}.${written}`,
  );
}

// ── the answer ──────────────────────────────────────────────────────────────

function tellings(explorer: Explorer, index: number): Node[] {
  const values = explorer.numbers;
  if (!values.model) return [refusal(`There are no numbers: ${explorer.way!.source}`)];
  const found = values.explain(index);
  if (!found) {
    const why =
      "A code in this row of the metadata is illegal, so D is undefined here.";
    return [refusal(why)];
  }
  const { catalogue, op, target } = explorer;
  const [, row, col] = explorer.matrix("D")!.spot(index);
  const where = (k: number) => operandPlaces(explorer, index, k);
  return answer({ catalogue, name: op.name, target, row, col, where }, found);
}

function goThere(explorer: Explorer): void {
  explorer.update({ tab: "explain" });
  byId("tabs").scrollIntoView({ block: "start" });
  byId("tab-explain").focus();
}

// ── beside the picture ──────────────────────────────────────────────────────

/** The card of a pinned element of D: its value, and its bars in little room. */
export function showResult(explorer: Explorer, host: HTMLElement): void {
  const { pinned } = explorer.state;
  const asked = pinned && "CD".includes(pinned.matrix) && explorer.scene.computes;
  const { values } = explorer;
  host.hidden = !asked || !values?.model;
  if (host.hidden) return host.replaceChildren();
  const found = values!.explain(pinned!.index);
  if (!found) {
    const why = "Undefined: a code in this row is illegal.";
    return host.replaceChildren(h("h2", {}, "Result"), refusal(why));
  }
  const d = explorer.matrix("D")!;
  const title = `${cellName(d, pinned!.index)} on ${explorer.target}`;
  const lossy = found.steps.findIndex((step) => step.terms.some((t) => t.lost?.m));
  const at = Math.max(0, lossy);
  const many = found.steps.length > 1 ? `Step ${at + 1} of ${found.steps.length}` : "";
  const table = stepTable(
    explorer.catalogue.types,
    found.model,
    found.steps[at],
    255,
    false,
  );
  const more = h(
    "button",
    { type: "button", id: "explain-more", onclick: () => goThere(explorer) },
    "Explain each step",
  );
  host.replaceChildren(
    h("h2", {}, title),
    outcome(explorer.catalogue, found),
    ...(many ? [h("p", { class: "hint" }, many)] : []),
    table,
    more,
  );
}

/** Where the two factors of product k are: lanes and registers. */
function operandPlaces(explorer: Explorer, index: number, k: number): Holders | null {
  const { scene, codes } = explorer;
  const [m, row, col] = scene.matrices.get("D")!.spot(index);
  const [a, b] = [scene.matrices.get("A")!, scene.matrices.get("B")!];
  // A sparse A has stored what stands in column k.
  let stored = scene.pattern ? 0 : k;
  while (scene.pattern && stored < a.cols && rowOfB(scene, codes, row, stored) !== k) stored++;
  if (stored >= a.cols || k >= b.rows) return null;
  const places = [
    { matrix: "A", index: a.index(Math.min(m, a.count - 1), row, stored) },
    { matrix: "B", index: b.index(Math.min(m, b.count - 1), k, col) },
  ];
  const [first, second] = places.map((spot) => holder(scene, scene.matrices.get(spot.matrix)!, spot.index));
  const title = places.map((spot) => explorer.describe(spot)).join("; ");
  return { a: first, b: second, title };
}

/** In few letters: ``T12 a0``, with the warp of several; or where else it is. */
function holder(scene: Scene, matrix: Matrix, index: number): string {
  if (!matrix.part) return "shared";
  const lane = matrix.lane[index];
  if (matrix.tensor) return `lane ${lane & 127} col ${matrix.register[index]}`;
  const warp = scene.warps > 1 ? `W${lane >> 5} ` : "";
  return `${warp}T${lane & 31} r${matrix.register[index]}`;
}
