// Stepping: buttons, keys, and the film that stops at a problem.

import { announce, byId, copy, h, toast } from "../../src/page/dom.js";
import { upTo } from "../recording/lists.js";
import type { By } from "../recording/search.js";
import { grouped, lineText, warpName } from "../session/names.js";
import type { Session } from "../session/session.js";
import { mark, put } from "../session/sparing.js";

export interface Zooming {
  zoom(factor: number): void;
  fold(): void;
  fit(): void;
}

interface Action {
  keys: string;
  words: string;
  run: (back: boolean) => void;
  /** Whether Shift, or the capital letter, goes back. */
  both: boolean;
}

/** Keys whose names are not what is written on them. */
const NAMES: Record<string, string> = { ArrowRight: "→", ArrowLeft: "←", " ": "Space" };

const NOWHERE: Record<By, string> = {
  step: "step",
  instruction: "instruction of this warp",
  line: "source line of this warp",
  event: "event",
  problem: "problem",
};

export class Controls {
  private playing = 0;
  private actions: Action[];

  constructor(
    private session: Session,
    private time: Zooming,
    private goOn: (back: boolean) => void,
  ) {
    this.actions = this.table();
    this.listen();
    this.fillHelp();
    session.listen(() => this.draw());
  }

  private table(): Action[] {
    const { session } = this;
    const by = (what: By) => (back: boolean) => this.moved(session.move(what, back), NOWHERE[what], back);
    return [
      { keys: "→ ← .  ,", words: "next step of any warp", run: by("step"), both: true },
      { keys: "F11 i", words: "next instruction of this warp", run: by("instruction"), both: true },
      { keys: "F10 l", words: "next source line of this warp", run: by("line"), both: true },
      { keys: "e", words: "next event: copies, units, barriers", run: by("event"), both: true },
      { keys: "p", words: "next problem", run: by("problem"), both: true },
      { keys: "F8 c", words: "run to the next breakpoint or problem", run: (back) => this.moved(session.toBreak(back), "breakpoint or problem", back), both: true },
      { keys: "F9 b", words: "breakpoint at the chosen line, else at this one", run: () => this.toggleBreak(), both: false },
      { keys: "r", words: "run to the chosen line", run: (back) => this.goOn(back), both: true },
      { keys: "w", words: "run to the next write of the chosen byte", run: (back) => this.toWrite(back), both: true },
      { keys: "n", words: "run to the next NaN in a register", run: () => this.moved(session.toNaN(), "NaN in a register", false), both: false },
      { keys: "/", words: "search in time", run: () => byId<HTMLInputElement>("find").select(), both: false },
      { keys: "F3", words: "next step that was found", run: (back) => this.toFound(back), both: true },
      { keys: "f", words: "fold warps with the same role, or unfold them", run: () => this.time.fold(), both: false },
      { keys: "m", words: "the product of this warp, and back", run: () => this.product(), both: false },
      { keys: "Space", words: "play, and stop at a problem", run: () => this.play(), both: false },
      { keys: "Home End", words: "first step, last step", run: (back) => session.go(back ? session.run.count - 1 : 0), both: false },
      { keys: "g", words: "go to a step by its number", run: () => byId<HTMLInputElement>("step").select(), both: false },
      { keys: "s", words: "the next run of the page, at this place", run: (back) => this.nextRun(back), both: true },
      { keys: "+ − 0", words: "time: nearer, farther, all of it", run: () => undefined, both: false },
      { keys: "?", words: "this sheet", run: () => this.help(), both: false },
    ];
  }

  private moved(went: boolean, what: string, back: boolean): void {
    if (!went) toast(`There is no ${what} ${back ? "before" : "after"} this step`);
  }

  private toFound(back: boolean): void {
    if (!this.session.found) return byId<HTMLInputElement>("find").select();
    this.moved(this.session.toFound(back), "such step", back);
  }

  private product(): void {
    const { session } = this;
    if (!session.lastProduct) return toast("This warp has run no product yet");
    session.update({ product: !session.product, element: -1 });
  }

  private nextRun(back: boolean): void {
    const { all, now, show } = this.session.runs;
    if (all.length < 2) return toast("There is one run in this page");
    show((now + (back ? all.length - 1 : 1)) % all.length);
  }

  private toWrite(back: boolean): void {
    if (!this.session.at) return toast("Click an element in the memory first");
    this.moved(this.session.toWrite(back), "write of this byte", back);
  }

  private toggleBreak(): void {
    const { session } = this;
    const at = session.run.lastOf(session.warp, session.step);
    if (session.line) return session.toggleBreak(session.line);
    if (at < 0) return;
    const { file, line, ptx_line } = session.run.site(at);
    session.toggleBreak(file && line > 0 ? { file, line } : { file: session.run.ptx, line: ptx_line });
  }

  // ── the film ──────────────────────────────────────────────────────────────

  private play(): void {
    if (this.playing) return this.pause();
    const { session } = this;
    if (session.step >= session.run.count - 1) session.go(0);
    const by = () => byId<HTMLSelectElement>("by").value as By;
    this.playing = window.setInterval(() => {
      if (session.closed) return this.pause();
      const went = session.move(by() === "problem" ? "step" : by());
      if (!went || session.stopped) this.pause();
    }, 250);
    this.draw();
  }

  private pause(): void {
    window.clearInterval(this.playing);
    this.playing = 0;
    if (!this.session.closed) this.draw();
  }

  // ── the document ──────────────────────────────────────────────────────────

  private listen(): void {
    const { session } = this;
    const by = () => byId<HTMLSelectElement>("by").value as By;
    const step = (back: boolean) => this.moved(session.move(by(), back), NOWHERE[by()], back);
    byId("forward").addEventListener("click", () => step(false));
    byId("back").addEventListener("click", () => step(true));
    byId("play").addEventListener("click", () => this.play());
    for (const [id, back] of [["problem-before", true], ["problem-after", false]] as const) {
      byId(id).addEventListener("click", () => this.moved(session.move("problem", back), "problem", back));
    }
    byId("step").addEventListener("change", () => session.go(Number(byId<HTMLInputElement>("step").value) || 0));
    byId("zoom-in").addEventListener("click", () => this.time.zoom(1.6));
    byId("zoom-out").addEventListener("click", () => this.time.zoom(1 / 1.6));
    byId("zoom-fit").addEventListener("click", () => this.time.fit());
    byId("help").addEventListener("click", () => this.help());
    const find = byId<HTMLInputElement>("find");
    find.addEventListener("input", () => session.search(find.value));
    byId("find-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.toFound(false);
    });
    find.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.shiftKey) {
        event.preventDefault();
        this.toFound(true);
      }
    });
    byId("find-before").addEventListener("click", () => this.toFound(true));
    byId("share").addEventListener("click", () => {
      const local = location.protocol === "file:" ? "; it works where this file is" : "";
      window.setTimeout(() => void copy(location.href, "Link", local), 200);
    });
    const run = byId<HTMLSelectElement>("run");
    run.addEventListener("change", () => {
      const action = this.actions.find(({ keys }) => keys === run.value.replace(/^-/, ""));
      action?.run(run.value.startsWith("-"));
      run.value = "";
    });
    document.addEventListener("keydown", (event) => session.closed || this.key(event));
  }

  private key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (target.matches("input, select, textarea") && !/^F\d/.test(event.key)) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return this.escape();
    if (byId<HTMLDialogElement>("sheet").open) return;
    if (event.key === " " && target.matches("button, summary")) return;
    if (!this.press(event.key, event.shiftKey)) return;
    event.preventDefault();
  }

  /** Whether the key means something. */
  private press(key: string, shift: boolean): boolean {
    const zooms: Record<string, () => void> = {
      "+": () => this.time.zoom(1.6),
      "-": () => this.time.zoom(1 / 1.6),
      "0": () => this.time.fit(),
    };
    if (zooms[key]) return zooms[key](), true;
    const name = NAMES[key] ?? (key.length === 1 ? key.toLowerCase() : key);
    const named = this.actions.find(({ keys }) => keys.split(/ +/).includes(name));
    if (!named) return false;
    const back = ["←", ",", "End"].includes(name) || (shift && named.both);
    named.run(back);
    return true;
  }

  private escape(): void {
    this.session.update({ at: null, line: null });
    announce("Cleared");
  }

  private help(): void {
    const sheet = byId<HTMLDialogElement>("sheet");
    if (sheet.open) sheet.close();
    else sheet.showModal();
  }

  private fillHelp(): void {
    const rows = this.actions.map(({ keys, words, both }) =>
      h("tr", {}, h("td", {}, ...keys.split(/ +/).map((key) => h("kbd", {}, key))), h("td", {}, words, both ? h("span", { class: "hint" }, "; with Shift backwards") : "")),
    );
    byId("keys").replaceChildren(...rows);
    byId("sheet-close").addEventListener("click", () => byId<HTMLDialogElement>("sheet").close());
    const runs = ["F8 c", "r", "w", "-w", "n"];
    byId("run").append(
      ...runs.map((value) => {
        const action = this.actions.find(({ keys }) => keys === value.replace(/^-/, ""))!;
        const words = action.words.replace("run to", "to");
        return h("option", { value }, value.startsWith("-") ? words.replace("next", "previous") : words);
      }),
    );
  }

  /** How many steps were found, and which of them this is. */
  private drawFound(): void {
    const { found, finding, step } = this.session;
    const find = byId<HTMLInputElement>("find");
    if (document.activeElement !== find) find.value = finding;
    const count = found?.steps.length ?? 0;
    const at = found ? upTo(found.steps, step) : 0;
    const here = found && at && found.steps[at - 1] === step ? `${grouped(at)} of ` : "";
    const many = `${here}${grouped(count)} step${count === 1 ? "" : "s"}`;
    put(byId("find-said"), !found ? "" : count ? `${many} (${found.said})` : found.said);
    for (const [id, any] of [["find-before", count && found!.steps[0] < step], ["find-after", count && found!.steps[count - 1] > step]] as const) {
      byId<HTMLButtonElement>(id).disabled = !any;
    }
  }

  private draw(): void {
    const { session } = this;
    const { run, step } = session;
    const input = byId<HTMLInputElement>("step");
    if (document.activeElement !== input) input.value = String(step);
    put(byId("of"), `of ${grouped(run.count - 1)}`);
    const playing = this.playing > 0;
    put(byId("play"), playing ? "Pause ❚❚" : "Play ▸");
    mark(byId("play"), "aria-pressed", String(playing));
    byId<HTMLButtonElement>("back").disabled = step <= 0;
    this.drawFound();
    byId<HTMLButtonElement>("forward").disabled = step >= run.count - 1;
    if (playing) return;
    announce(`Step ${step}, ${warpName(run.head, run.columns.warp[step])}, ${lineText(run, step)}: ${run.site(step).text}${session.problem ? `. Problem ${session.problem.number}` : ""}`);
  }
}
