// The machine instructions that the assembler writes, as recorded.

import type { Sass } from "../records/catalogue.js";
import { h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";

export function machinePanel({ op, catalogue }: Explorer): Node[] {
  const head = ["Targets", "Machine instructions", "Others"].map((each) => h("th", {}, each));
  const rows = op.sass.map((number) => row(catalogue.sass[number]));
  return [
    h(
      "p",
      { class: "hint" },
      "What ptxas writes, as nvdisasm reads it. Moves of registers, loads of constants and " +
        "control are not counted. The search finds instructions by these names, too.",
    ),
    h(
      "div",
      { class: "wide", tabindex: 0, role: "region", "aria-label": "Machine code" },
      h("table", { class: "machine" }, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows)),
    ),
  ];
}

function row([targets, code, others, expanded]: Sass): HTMLElement {
  const names = code.map(([name, count]) =>
    h("div", {}, h("code", {}, name), count > 1 ? ` × ${count}` : ""),
  );
  const more = others ? `and ${others} other${others > 1 ? "s" : ""}` : "";
  const said = [more, expanded && `expanded to ${expanded}`].filter(Boolean).join("; ");
  const none = names.length ? names : ["no instruction of its own"];
  return h("tr", {}, h("td", {}, targets), h("td", {}, ...none), h("td", {}, said));
}
