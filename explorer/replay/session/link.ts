// The link holds the step, the warp, the lane, the byte and the line.

import type { Recording } from "../recording/recording.js";
import { runName } from "../recording/runs.js";
import type { Session } from "./session.js";

export function hashOf(session: Session): string {
  const { which, step, warp, lane, at, line, memory, run, product, element, lastProduct, runs } = session;
  const parts = [`step=${step}`, `warp=${warp}`];
  if (runs.now) parts.unshift(`run=${encodeURIComponent(run.head.name ?? runs.now)}`);
  if (which >= 0 && run.head.problems[which].steps.includes(step)) parts.push(`problem=${run.head.problems[which].number}`);
  if (lane) parts.push(`lane=${lane}`);
  if (at) parts.push(`at=${at.memory}:0x${at.offset.toString(16)}`);
  else if (memory && run.head.memories.length > 1) parts.push(`memory=${memory}`);
  if (line) parts.push(`line=${encodeURIComponent(line.file)}:${line.line}`);
  if (product && lastProduct) {
    const [, row, col] = lastProduct.scene.matrices.get("D")!.spot(Math.max(0, element));
    parts.push(element < 0 ? "product=1" : `d=${row},${col}`);
  }
  if (session.finding) parts.push(`find=${encodeURIComponent(session.finding)}`);
  for (const each of session.watch) parts.push(`watch=${encodeURIComponent(each)}`);
  return `#${parts.join("&")}`;
}

/** The run that a link asks for, and what is wrong with that. */
export function runAsked(runs: readonly Recording[], hash: string): [number, string[]] {
  const name = new URLSearchParams(hash.replace(/^#/, "")).get("run");
  if (name === null) return [0, []];
  const found = runs.findIndex(({ head }, at) => (head.name ?? String(at)) === name);
  const named = runs.map(({ head }) => runName(head)).join(", ");
  return found < 0 ? [0, [`run=${name}: the runs are ${named}.`]] : [found, []];
}

/** What a link says that is there is taken; the rest is told. */
export function openHash(session: Session, hash: string): string[] {
  const { run } = session;
  const { warps, memories } = run.head;
  const asked = new URLSearchParams(hash.replace(/^#/, ""));
  const wrong: string[] = [];
  const whole = (name: string, count: number): number | null => {
    const text = asked.get(name);
    if (text === null) return null;
    const value = Number(text);
    if (Number.isInteger(value) && value >= 0 && value < count) return value;
    wrong.push(`${name}=${text}: there are ${name}s 0 to ${count - 1}.`);
    return null;
  };
  const step = whole("step", run.count);
  if (step !== null) session.go(step);
  const problem = asked.get("problem");
  if (problem !== null) session.which = run.head.problems.findIndex(({ number }) => String(number) === problem);
  const warp = whole("warp", warps.length);
  if (warp !== null) session.warp = warp;
  session.lane = whole("lane", 32) ?? session.lane;
  session.memory = whole("memory", memories.length) ?? session.memory;
  const at = asked.get("at");
  if (at !== null) {
    const [memory, offset] = at.split(":").map(Number);
    if (memories[memory] && offset >= 0 && offset < memories[memory].size) {
      Object.assign(session, { at: { memory, offset }, memory });
    } else wrong.push(`at=${at}: there is no such byte.`);
  }
  const line = /^(.*):(\d+)$/.exec(asked.get("line") ?? "");
  if (line) session.line = { file: line[1], line: Number(line[2]) };
  session.search(asked.get("find") ?? "");
  session.watch = [...new Set(asked.getAll("watch"))];
  wrong.push(...openProduct(session, asked));
  session.changed();
  return wrong;
}

/** The product, and its element that is explained. */
function openProduct(session: Session, asked: URLSearchParams): string[] {
  const d = asked.get("d");
  session.product = asked.has("product") || d !== null;
  session.element = -1;
  if (d === null) return [];
  const matrix = session.lastProduct?.scene.matrices.get("D");
  const [row, col] = d.split(",").map(Number);
  if (!matrix) return [`d=${d}: the warp has run no product up to this step.`];
  if (!(row >= 0 && row < matrix.rows && col >= 0 && col < matrix.cols)) {
    return [`d=${d}: D has ${matrix.rows} rows and ${matrix.cols} columns.`];
  }
  session.element = matrix.index(0, row, col);
  return [];
}

/** The address follows what is shown, but not at every step of a film. */
export function keepLink(session: Session, complain: (wrong: string[]) => void): void {
  let [timer, last] = [0, location.hash];
  session.listen(() => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => {
      if (session.closed) return;
      const hash = hashOf(session);
      if (hash === location.hash) return;
      try {
        history.replaceState(null, "", hash);
        last = location.hash;
      } catch {
        // A page inside another may not have an address of its own.
      }
    }, 150);
  });
  window.addEventListener("hashchange", () => {
    if (location.hash === last || session.closed) return;
    last = location.hash;
    const [asked, wrong] = runAsked(session.runs.all, last);
    if (!wrong.length && asked !== session.runs.now) return session.runs.show(asked);
    complain(openHash(session, last));
  });
}
