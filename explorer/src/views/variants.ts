// Chips beside the name that lead to instructions which differ only in a qualifier, and
// the list of widths.

import type { Instruction } from "../records/catalogue.js";
import { byId, h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import { grouped, type Row } from "../records/short.js";

const MOST = 6; // buttons; more variants are a list to choose from

export function showVariants(explorer: Explorer): void {
  const { op } = explorer;
  const row = rowOf(explorer);
  const { ops, common, chips } = row;
  const widths = ops.some((each) => each.shape[1] !== op.shape[1]);
  const own = (at: number) => (widths ? chips[at].slice(1) : chips[at]).join(" ");
  const mine = own(ops.indexOf(op));
  // Of what differs in a qualifier, too, the one of the nearest width.
  const kinds = new Map<string, Instruction>();
  ops.forEach((each, at) => {
    const known = kinds.get(own(at));
    const off = (one: Instruction) => Math.abs(one.shape[1] - op.shape[1]);
    if (!known || off(each) < off(known)) kinds.set(own(at), each);
  });
  const variants = [...kinds];
  const many = variants.length > MOST;
  byId("chips").replaceChildren(
    ...(widths ? [widthList()] : []),
    ...common.map((chip) => h("li", { class: "chip" }, chip)),
    ...(variants.length === 1 ? [] : many ? [variantList()] : variants.map(button)),
  );

  function button([label, each]: [string, Instruction]): HTMLElement {
    const onclick = () => explorer.pick(each.name);
    const pressed = String(each === op);
    const made = { type: "button", "aria-pressed": pressed, title: each.name, onclick };
    return h("li", {}, h("button", made, label || "plain"));
  }

  function variantList(): HTMLElement {
    return list("variant", "Variant", variants);
  }

  function widthList(): HTMLElement {
    const same = ops.filter((_, at) => own(at) === mine);
    same.sort((one, other) => one.shape[1] - other.shape[1]);
    return list(
      "width",
      "Width",
      same.map((each) => [`n${each.shape[1]}`, each]),
    );
  }

  function list(id: string, label: string, choices: [string, Instruction][]): HTMLElement {
    const select = h("select", {
      id,
      "aria-label": label,
      onchange: () => explorer.pick(select.value),
    });
    for (const [said, each] of choices) {
      select.append(h("option", { value: each.name }, said || "plain"));
    }
    select.value = op.name;
    return h("li", {}, select);
  }
}

/** The instructions that differ only in width and qualifiers. */
function rowOf({ op, catalogue }: Explorer): Row {
  const same = ["a", "b", "d", "type", "tile"];
  const like = catalogue.instructions.filter(
    (each) =>
      each.family === op.family &&
      each.shape[0] === op.shape[0] &&
      each.shape[2] === op.shape[2] &&
      same.every((name) => each.values[name] === op.values[name]),
  );
  const rows = grouped(catalogue, like).flatMap((group) => group.rows);
  return rows.find((row) => row.ops.includes(op))!;
}
