// The call stack of the warp: functions that are under way, and lines into which others were
// inlined.

import { byId, h } from "../../src/page/dom.js";
import { framesAt, linesAt, type Inlined } from "../recording/stack.js";
import { grouped } from "../session/names.js";
import type { Session } from "../session/session.js";

export function listenToStack(session: Session, inlined: Inlined): void {
  let last = "";
  session.listen(() => {
    const at = session.run.lastOf(session.warp, session.step);
    const key = `${session.warp} ${at} ${session.step}`;
    if (key === last) return;
    last = key;
    show(session, inlined, at);
  });
}

function show(session: Session, inlined: Inlined, at: number): void {
  const { run, warp } = session;
  const box = byId("stack");
  const rows = at < 0 ? [] : framesAt(run, warp, at).flatMap((frame) => {
    const lines = linesAt(run, inlined, frame.step);
    return lines.map((line, level) => ({ frame, line, inner: level < lines.length - 1 }));
  });
  box.hidden = rows.length < 2;
  box.replaceChildren(
    ...(rows.length < 2 ? [] : rows).map(({ frame, line, inner }, number) =>
      h(
        "li",
        {},
        h("span", { class: "hint" }, `#${number} `),
        inner ? "inlined, " : h("code", {}, `${frame.function} `),
        h("button", { type: "button", class: "go", title: "Its executions", onclick: () => session.update({ line }) }, `${line.file.split("/").at(-1)}:${line.line}`),
        ...(inner || frame.step === at ? [] : [", ", h("button", { type: "button", class: "go", onclick: () => session.go(frame.step) }, `step ${grouped(frame.step)}`)]),
      ),
    ),
  );
}
