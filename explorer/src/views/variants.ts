// Chips beside the name that lead to instructions which differ only in a qualifier.

import { byId, h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import { grouped } from "../records/short.js";

const MOST = 6; // buttons; more variants are a list to choose from

export function showVariants(explorer: Explorer): void {
  const { op, catalogue } = explorer;
  const same = ["a", "b", "d", "type", "tile"];
  const like = catalogue.instructions.filter(
    (each) =>
      each.family === op.family &&
      each.shape[0] === op.shape[0] &&
      each.shape[2] === op.shape[2] &&
      same.every((name) => each.values[name] === op.values[name]),
  );
  const rows = grouped(catalogue, like).flatMap((group) => group.rows);
  const { ops, common, chips } = rows.find((row) => row.ops.includes(op))!;
  byId("chips").replaceChildren(
    ...common.map((chip) => h("li", { class: "chip" }, chip)),
    ...(ops.length === 1 ? [] : ops.length > MOST ? [list()] : ops.map(button)),
  );

  function label(at: number): string {
    return chips[at].join(" ") || "plain";
  }

  function button(each: typeof op, at: number): HTMLElement {
    const onclick = () => explorer.pick(each.name);
    const pressed = String(each === op);
    const made = { type: "button", "aria-pressed": pressed, title: each.name, onclick };
    return h("li", {}, h("button", made, label(at)));
  }

  function list(): HTMLElement {
    const select = h("select", {
      id: "variant",
      "aria-label": "Variant",
      onchange: () => explorer.pick(select.value),
    });
    const order = ops.map((_, at) => at).sort((x, y) => ops[x].shape[1] - ops[y].shape[1]);
    for (const at of order) {
      select.append(h("option", { value: ops[at].name }, label(at)));
    }
    select.value = op.name;
    return h("li", {}, select);
  }
}
