// The source and the PTX, at the line of the step; counts and problems in the margin.

import { byId, h, toast } from "../../src/page/dom.js";
import { lineIn } from "../recording/aligned.js";
import { isAlone } from "../recording/head.js";
import type { Line } from "../recording/recording.js";
import { upTo } from "../recording/lists.js";
import { grouped, warpName } from "../session/names.js";
import { Rows } from "../session/rows.js";
import { dress, mark, put } from "../session/sparing.js";
import type { Session } from "../session/session.js";

const HEIGHT = 20;
const STAY = 120; // rows: those of a loop, also if it is longer than the box
const WORDS =
  /(\/\/.*$|#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(%[\w.]+)|\b(0x[\da-fA-F]+|\d+(?:\.\d+)?[fu]?)\b|(?<![\w.])(\.?\b(?:__global__|__shared__|__device__|__syncthreads|for|while|if|else|return|int|float4?|half|const|void|def|import|in|range|auto|template|constexpr|unsigned|reg|entry|visible|version|target|address_size|param|shared|align|func)\b)/g;
const KINDS = ["t-comment", "t-string", "t-register", "t-number", "t-word"];

/** A line of code with its words coloured. */
function coloured(text: string, python: boolean): (Node | string)[] {
  const found: (Node | string)[] = [];
  let last = 0;
  for (const match of text.matchAll(WORDS)) {
    const kind = match.slice(1).findIndex(Boolean);
    if (kind === 0 && match[0].startsWith("#") && !python) continue;
    found.push(text.slice(last, match.index), h("i", { class: KINDS[kind] }, match[0]));
    last = match.index + match[0].length;
  }
  return [...found, text.slice(last)];
}

class Pane {
  private rows: Rows;
  private lines: string[] = [];
  private most = 1;
  private shown = -1;
  private digits = 3;
  private key = "";
  file = "";

  constructor(
    private session: Session,
    private box: HTMLElement,
    readonly ptx: boolean,
  ) {
    this.rows = new Rows(box, HEIGHT, 0, (index) => `${this.file}:${index}`, (index, old) => this.dressed(old ?? this.row(index), index), STAY);
    box.addEventListener("click", (event) => this.click(event));
  }

  open(file: string): void {
    if (file === this.file) return;
    this.file = file;
    const { files } = this.session.run.head;
    this.lines = (files.find(({ name }) => name === file)?.text ?? "").split("\n");
    this.most = this.session.run.mostRuns(file);
    this.digits = Math.max(2, String(this.lines.length).length);
    this.box.style.setProperty("--digits", `${this.digits}ch`);
    this.rows.resize(this.lines.length);
    this.rows.scrollTo(0);
    this.shown = -1;
  }

  draw(): void {
    const line = this.lineAt(this.session.run.lastOf(this.session.warp, this.session.step));
    if (line > 0 && line !== this.shown) this.rows.reveal(line - 1);
    this.shown = line;
    const { line: chosen, breaks, problem } = this.session;
    const key = [this.file, line, chosen?.file, chosen?.line, problem?.number, ...breaks.map((each) => `${each.file}:${each.line}`)].join();
    if (key === this.key) return;
    this.key = key;
    this.rows.show();
  }

  /** The line of this file that a step belongs to; 0 if none. */
  private lineAt(step: number): number {
    if (step < 0) return 0;
    const site = this.session.run.site(step);
    if (this.ptx) return site.ptx_line;
    return site.file === this.file ? site.line : 0;
  }

  /** A row, without what changes from step to step. */
  private row(index: number): HTMLElement {
    const { run } = this.session;
    const number = index + 1;
    const runs = run.runs(this.file, number);
    const badges = run.problemsOfLine(this.file, number).map(([at, access]) => {
      const problem = run.head.problems[at];
      const { number: which, code } = problem;
      const [letter, more] = isAlone(problem) ? ["", ""] : access ? ["b", ": the second access"] : ["a", ": the first access"];
      return h("b", { class: "badge", "data-problem": which, title: `Problem ${which}, ${code}${more}` }, `${which}${letter}`);
    });
    const share = runs ? 0.12 + 0.88 * (Math.log(runs + 1) / Math.log(this.most + 1)) : 0;
    return h(
      "div",
      { "data-line": number },
      h("span", { class: "dot" }),
      h("span", { class: "no" }, String(number)),
      h("span", { class: "runs", style: `--share:${share.toFixed(2)}` }, runs ? short(runs) : ""),
      h("span", { class: "text" }, ...coloured(this.lines[index], /\.py$/.test(this.file))),
      ...this.lostOf(number),
      ...badges,
    );
  }

  private dressed(row: HTMLElement, index: number): HTMLElement {
    const { run, line, breaks, problem } = this.session;
    const number = index + 1;
    const same = (each: Line) => each.file === this.file && each.line === number;
    const classes = ["code"];
    if (number === this.shown) classes.push("now");
    if (line && same(line)) classes.push("chosen");
    if (!run.runs(this.file, number)) classes.push("idle");
    if (this.apart(number)) classes.push("apart");
    const stop = breaks.some(same);
    if (stop) classes.push("stop");
    dress(row, classes.join(" "));
    mark(row.firstElementChild!, "title", stop ? "Breakpoint (F9)" : "");
    for (const badge of row.querySelectorAll<HTMLElement>(".badge")) {
      dress(badge, Number(badge.dataset.problem) === problem?.number ? "badge here" : "badge");
    }
    return row;
  }

  /** The most bits that results of a line have lost, if the launch had numerics. */
  private lostOf(number: number): HTMLElement[] {
    const { run } = this.session;
    const { numerics } = run.head;
    if (!numerics?.sites.length) return [];
    const sites = run.sitesOfLine(this.file, number);
    const [worst] = numerics.sites.filter(({ site }) => sites.includes(site)).sort((a, b) => b.bits - a.bits);
    return worst ? [h("span", { class: "lost", title: worst.words }, `−${Math.round(worst.bits)} bits`)] : [];
  }

  /** Whether a run beside this one does not have the line: the kernels differ there. */
  private apart(number: number): boolean {
    const { runs, run } = this.session;
    if (!this.lines[number - 1].trim()) return false;
    const line = { file: this.file, line: number };
    return runs.all.some((each) => each !== run && (each.head.lines?.length || run.head.lines?.length) && !lineIn(run.head, line, each.head));
  }

  private click(event: Event): void {
    const row = (event.target as HTMLElement).closest<HTMLElement>(".code");
    if (!row) return;
    const line = { file: this.file, line: Number(row.dataset.line) };
    if ((event.target as HTMLElement).matches(".dot, .no")) this.session.toggleBreak(line);
    else this.session.update({ line });
  }
}

const short = (count: number): string => (count < 10000 ? `${count}×` : `${Math.round(count / 1000)}k×`);

export class Source {
  private upper: Pane;
  private lower: Pane;
  private files: string[];
  private chosen = "";

  constructor(private session: Session) {
    const { run } = session;
    this.upper = new Pane(session, byId("source-code"), false);
    this.lower = new Pane(session, byId("ptx-code"), true);
    this.files = run.head.files.map(({ name }) => name).filter((name) => name !== run.ptx);
    byId("source").classList.toggle("single", !this.files.length);
    byId("source-head").hidden = byId("source-code").hidden = !this.files.length;
    this.lower.open(run.ptx);
    byId("file").replaceChildren(...this.files.map((name) => h("option", { value: name }, name.split("/").at(-1)!)));
    byId("file").addEventListener("change", () => {
      this.chosen = byId<HTMLSelectElement>("file").value;
      session.changed();
    });
    session.listen(() => this.draw());
    for (const [id, back] of [["line-before", true], ["line-after", false]] as const) {
      byId(id).addEventListener("click", () => this.goOn(back));
    }
    byId("line-stop").addEventListener("click", () => session.line && session.toggleBreak(session.line));
    byId("line-close").addEventListener("click", () => session.update({ line: null }));
  }

  private last = -1;

  private draw(): void {
    const { session } = this;
    const { run } = session;
    const at = run.lastOf(session.warp, session.step);
    // A file that was chosen stays until the next step.
    if (at !== this.last) this.chosen = "";
    this.last = at;
    const here = at < 0 ? "" : run.site(at).file;
    const file = this.chosen || (this.files.includes(here) ? here : this.upper.file || this.files[0]);
    if (file) {
      this.upper.open(file);
      byId<HTMLSelectElement>("file").value = file;
      this.upper.draw();
    }
    this.lower.draw();
    this.drawLine();
  }

  /** The line that was clicked, and its executions. */
  private drawLine(): void {
    const { line, run, step, breaks } = this.session;
    byId("line").hidden = !line;
    if (!line) return;
    const steps = run.stepsOfLine(line.file, line.line);
    const name = `${line.file.split("/").at(-1)}:${line.line}`;
    const at = upTo(steps, step) - 1;
    const on = steps[at] === step ? ` Now the ${at + 1}. of ${grouped(steps.length)}, by ${warpName(run.head, run.columns.warp[step])}.` : "";
    const often = `${name} was run ${grouped(steps.length)} time${steps.length > 1 ? "s" : ""}.${on}`;
    put(byId("line-said"), steps.length ? often : `${name} was not run.`);
    byId<HTMLButtonElement>("line-before").disabled = !(steps[0] < step);
    byId<HTMLButtonElement>("line-after").disabled = !(steps.length && steps.at(-1)! > step);
    const stop = breaks.some((each) => each.file === line.file && each.line === line.line);
    byId("line-stop").setAttribute("aria-pressed", String(stop));
  }

  goOn(back: boolean): void {
    const { line, run, step } = this.session;
    if (!line) return toast("Click a line first");
    const steps = run.stepsOfLine(line.file, line.line);
    const at = upTo(steps, back ? step - 1 : step);
    const to = back ? steps[at - 1] : steps[at];
    if (to === undefined) toast(`The line is not run ${back ? "before" : "after"} this step`);
    else this.session.go(to);
  }
}
