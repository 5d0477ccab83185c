// How an element of D comes about: its value and what is lost, each product with the bits
// that it keeps and loses, and the same as text.

import { stepTable, type Holders } from "./bars.js";
import { copy, fact, h } from "../page/dom.js";
import { isInteger } from "../numbers/elements.js";
import { isFraction, isZero, multiply, short, subtract, text } from "../numbers/exact.js";
import { losses } from "../numbers/losses.js";
import type { Explanation } from "../numbers/model.js";
import { summary, told, what } from "../numbers/telling.js";
import type { Catalogue } from "../records/catalogue.js";

/** Which element of which instruction is asked for. */
export interface Asked {
  catalogue: Catalogue;
  /** The name of the instruction. */
  name: string;
  target: string;
  row: number;
  col: number;
  /** Where the factors of product k are. */
  where?: (k: number) => Holders | null;
}

export function answer(asked: Asked, found: Explanation): Node[] {
  return answerParts(asked, found).flatMap((make) => make());
}

/** The parts of an answer, for those who make a part in each frame. */
export function answerParts(asked: Asked, found: Explanation): (() => Node[])[] {
  return [
    () => [outcome(asked.catalogue, found), ...scales(found)],
    ...found.steps.map((_, at) => () => [stepOf(asked, found, at)]),
    () => inWords(asked, found),
  ];
}

/** What is lost, and all of it as text. */
function inWords({ catalogue, name, target, row, col }: Asked, found: Explanation): Node[] {
  const written = told(catalogue, name, target, row, col, found);
  const lost = losses(found, catalogue.types[found.model.d]);
  const integer = isInteger(catalogue.types[found.model.d]);
  return [
    h(
      "pre",
      { class: "summary" },
      summary(found, lost, found.model.d, integer).join("\n"),
    ),
    h(
      "details",
      { class: "as-text" },
      h("summary", {}, "As text, as op.explain writes it"),
      h(
        "button",
        { type: "button", onclick: () => void copy(written, "Explanation") },
        "Copy",
      ),
      h(
        "pre",
        { class: "text", tabindex: 0, role: "region", "aria-label": "Explanation" },
        written,
      ),
    ),
  ];
}

export function refusal(why: string): HTMLElement {
  return h("p", { class: "wrong" }, why);
}

/** The value, its bits, and how far it is from the exact one. */
export function outcome({ types }: Catalogue, found: Explanation): HTMLElement {
  const difference = subtract(found.value, found.exact);
  const list = h("dl", { class: "outcome" });
  const add = (name: string, value: string, wrong = false) =>
    list.append(fact(name, value, wrong ? "lost" : ""));
  add("D", `${text(found.value)}`);
  const digits = Math.ceil(types[found.model.d].used / 4);
  add("bits", `0x${found.bits.toString(16).padStart(digits, "0")}`);
  add("exact", text(found.exact));
  const lossy = isFraction(difference) && !isZero(difference);
  add("difference", lossy ? short(difference, 16) : text(difference), lossy);
  return list;
}

/** The scales of each block, if there are any. */
function scales({ blocks, model }: Explanation): HTMLElement[] {
  if (!blocks.length) return [];
  const heads = ["k", "scale a", "scale b", "product"];
  const rows = blocks.map(({ first, last, a, b }) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, `${first}…${last}`),
      ...[a, b, multiply(a, b)].map((each) => h("td", {}, short(each))),
    ),
  );
  return [
    h("h3", {}, `Block scales, ${model.scale}`),
    h(
      "table",
      { class: "terms" },
      h(
        "thead",
        {},
        h("tr", {}, ...heads.map((each) => h("th", { scope: "col" }, each))),
      ),
      h("tbody", {}, ...rows),
    ),
  ];
}

/** One step; of many steps only the first is open. */
function stepOf(asked: Asked, found: Explanation, at: number): HTMLElement {
  const { types } = asked.catalogue;
  const [count, step] = [found.steps.length, found.steps[at]];
  const title = h(
    "summary",
    {},
    `Step ${at + 1} of ${count}: ${what(step)} → ${short(step.value)}`,
  );
  const box = h("details", { class: "step" }, title);
  const open = () => {
    if (box.children.length > 1) return;
    const table = stepTable(types, found.model, step, room(), true, asked.where);
    const scroll = { class: "scroll", tabindex: 0, role: "region" };
    box.append(
      h("div", { ...scroll, "aria-label": `Terms of step ${at + 1}` }, table),
      h("p", { class: "hint" }, rounding(asked.catalogue, found, at)),
    );
  };
  box.addEventListener("toggle", () => box.open && open());
  if (count <= 2 || !at) {
    open();
    box.open = true;
  }
  return box;
}

/** The width of bars: all that a phone has, or what numbers leave. */
function room(): number {
  const { clientWidth } = document.documentElement;
  return clientWidth < 700 ? clientWidth - 90 : 520;
}

function rounding({ rounded }: Catalogue, found: Explanation, at: number): string {
  const step = found.steps[at];
  const said: string[] = [];
  if (step.emax !== null) {
    const cut = step.emax - found.model.fraction!;
    said.push(`emax is 2^${step.emax}; terms are cut below 2^${cut}`);
  }
  if (step.keep !== null) {
    said.push(
      `the sum keeps ${step.keep} fraction bits, ${rounded[step.rounding]}`,
    );
  } else if (step.rounding === "satfinite") {
    said.push("the sum is clamped to s32");
  } else {
    said.push("the sum is exact, and wraps in s32");
  }
  return `${said.join("; ")}.`;
}
