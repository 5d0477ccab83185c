// A problem: both accesses, and the instruction that would put them in order.

import { byId, h } from "../../src/page/dom.js";
import type { Problem } from "../recording/head.js";
import { grouped, warpName } from "../session/names.js";
import type { Session } from "../session/session.js";

export function listenToHazards(session: Session): void {
  session.listen(() => show(session));
}

let shown = "";

function show(session: Session): void {
  const { problem, step } = session;
  const key = problem ? `${problem.number} ${step}` : "";
  if (key === shown) return;
  shown = key;
  const box = byId("hazard");
  box.hidden = !problem;
  if (!problem) return box.replaceChildren();
  // What is in the way of the problem is not: its memory is shown.
  if (problem.memory >= 0 && problem.memory !== session.memory && problem.memory < session.run.memories.length) {
    session.update({ memory: problem.memory, at: null });
  }
  const all = session.run.head.problems.length;
  const count = all > 1 ? ` of ${all}` : "";
  box.replaceChildren(
    h("p", {}, h("b", { class: "badge here" }, String(problem.number)), " ", h("strong", {}, `Problem ${problem.number}${count}: ${problem.code}`), problem.hint),
    h("p", { class: "words", tabindex: 0, onclick: (event) => (event.currentTarget as HTMLElement).classList.toggle("open") }, problem.words),
    h("p", { class: "accesses" }, ...accesses(session, problem)),
  );
}

function accesses(session: Session, { steps, missing }: Problem): HTMLElement[] {
  const { run } = session;
  const order = missing
    ? [h("span", { class: "missing", title: "What would put the second access after the first" }, h("code", {}, `missing: ${missing}`), "", h("b", {}, "▸"))]
    : [];
  const both = steps.map((step, at) => {
    if (step < 0) return h("span", { class: "hint" }, "The other access is not among the steps that were recorded.");
    const warp = warpName(run.head, run.columns.warp[step]);
    const here = step === session.step;
    return h(
      "button",
      { type: "button", "aria-pressed": String(here), onclick: () => session.go(step) },
      `${at ? "b" : "a"}  step ${grouped(step)}, ${warp}: `,
      h("code", {}, run.site(step).opcode.split(".").slice(0, 3).join(".")),
    );
  });
  return [both[0], ...order, ...both.slice(1)];
}
