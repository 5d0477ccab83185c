// A problem: both accesses, and the instruction that would put them in order.

import { byId, h } from "../../src/page/dom.js";
import { isAlone, type Problem } from "../recording/head.js";
import { runName } from "../recording/runs.js";
import { grouped, warpName } from "../session/names.js";
import type { Met, Session } from "../session/session.js";

export function listenToHazards(session: Session): void {
  session.listen(() => show(session));
}

/** What the box of each session says. */
const shown = new WeakMap<Session, string>();

function show(session: Session): void {
  const { problem, step } = session;
  const met = session.met?.step === step ? session.met : null;
  const key = problem ? `${problem.number} ${step}` : met ? `met ${step}` : "";
  if (key === (shown.get(session) ?? "")) return;
  shown.set(session, key);
  const box = byId("hazard");
  box.hidden = !problem && !met;
  box.classList.toggle("met", !problem);
  if (!problem) return box.replaceChildren(...(met ? withoutProblem(session, met) : []));
  // What is in the way of the problem is not: its memory is shown.
  if (problem.memory >= 0 && problem.memory !== session.memory && problem.memory < session.run.memories.length) {
    session.update({ memory: problem.memory, at: null });
  }
  const all = session.run.head.problems.length;
  const count = all > 1 ? ` of ${all}` : "";
  box.replaceChildren(
    h("p", {}, h("b", { class: "badge here" }, String(problem.number)), " ", h("strong", {}, `Problem ${problem.number}${count}: ${problem.code}`), problem.hint),
    h("p", { class: "words", tabindex: 0, onclick: (event) => (event.currentTarget as HTMLElement).classList.toggle("open") }, problem.words),
    h("p", { class: "accesses" }, ...accesses(session, problem), ...elsewhere(session)),
  );
}

/** Here another run has a problem, and this one has none. */
function withoutProblem(session: Session, { problem, of }: Met): HTMLElement[] {
  const { head } = session.run;
  const said = `Here the run ${runName(of.head)} has problem ${problem.number}, ${problem.code}. The run ${runName(head)} does not have it.`;
  return [h("p", { class: "accesses" }, h("strong", {}, said), ...elsewhere(session))];
}

/** The same place in the other runs. */
function elsewhere({ runs }: Session): HTMLElement[] {
  if (runs.all.length < 2) return [];
  const buttons = runs.all.map(({ head }, number) =>
    h("button", { type: "button", "aria-pressed": String(number === runs.now), onclick: () => runs.show(number) }, runName(head)),
  );
  return [h("span", { class: "elsewhere", role: "group", "aria-label": "Show it in another run" }, "show it", ...buttons)];
}

function accesses(session: Session, problem: Problem): HTMLElement[] {
  const { run } = session;
  const { steps, missing } = problem;
  const alone = isAlone(problem);
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
      ...(alone ? [] : [h("b", { class: here ? "badge here" : "badge" }, `${problem.number}${at ? "b" : "a"}`), " "]),
      `step ${grouped(step)}, ${warp}: `,
      h("code", {}, run.site(step).opcode.split(".").slice(0, 3).join(".")),
    );
  });
  if (alone) return steps[1] < 0 ? [h("span", { class: "hint" }, "It is not among the steps that were recorded.")] : [both[1]];
  return [both[0], ...order, ...both.slice(1)];
}
