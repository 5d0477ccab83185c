// The facts about the instruction.

import type { Instruction } from "../records/catalogue.js";
import { byId, fact, h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import { mnemonic } from "./picker.js";
import { short } from "../records/short.js";
import { showVariants } from "./variants.js";

export function showFacts(explorer: Explorer): void {
  const { op, catalogue } = explorer;
  const needs = catalogue.targets[op.requires];
  document.title = `${op.name} · fragmenta`;
  const { family, shape, types } = short(op);
  byId("short").replaceChildren(family, " ", h("b", {}, shape), " ", types);
  showVariants(explorer);
  byId("name").replaceChildren(...mnemonic(op.name));
  byId("facts").replaceChildren(
    fact("PTX", needs.ptx, "fact"),
    fact("for", needs.text, "fact"),
    ...expansions(needs.targets),
    ...tensor(op),
    ...(explorer.scene.pattern ? [sparsity(explorer)] : []),
  );
  const notes = op.notes.map((number) => h("li", {}, catalogue.notes[number]));
  notes.unshift(h("li", {}, `Operands: ${op.operands.join("; ")}.`));
  if (op.tensor) notes.push(h("li", {}, `Descriptor: ${op.tensor.says.join("; ")}.`));
  const observed = new Set(
    Object.values(op.parts).map((n) => catalogue.parts[n].observed),
  );
  for (const where of observed) {
    if (where) notes.push(h("li", {}, `Layout observed on ${where}.`));
  }
  byId("notes").replaceChildren(...notes);
  const more = notes.length > 1 ? ` and ${notes.length - 1} more` : "";
  byId("notes-box").querySelector("summary")!.textContent = `Operands${more}`;
}

/** How D is spread. */
function tensor({ tensor: found }: Instruction): HTMLElement[] {
  if (!found) return [];
  const ctas = found.ctas > 1 ? "a pair of CTAs" : "one CTA";
  return [fact("Layout", `${found.letter} of the PTX manual, ${ctas}`, "fact")];
}

function sparsity(explorer: Explorer): HTMLElement {
  const { pattern, selectors } = explorer.scene;
  const order = pattern!.ordered ? "ordered" : "any order";
  const chosen = selectors > 1 ? `, selectors 0 to ${selectors - 1}` : "";
  return fact("Sparsity", `${pattern!.text}, ${order}${chosen}`, "fact");
}

/** Targets on which the assembler writes something else in its place. */
function expansions(targets: Record<string, string>): HTMLElement[] {
  const by = new Map<string, string[]>();
  for (const [target, to] of Object.entries(targets)) {
    if (to) by.set(to, [...(by.get(to) ?? []), target]);
  }
  return [...by].map(([to, names]) => {
    const many = names.length > 1 ? `${names[0]} … ${names.at(-1)}` : names[0];
    return fact("becomes", `${to} on ${many}`, "fact");
  });
}
