// Play: the picture changes step by step, by itself or at the press of a key.

import { announce, byId, h } from "../page/dom.js";
import type { Change, Explorer } from "../page/explorer.js";
import type { Figure } from "./figure.js";
import { fly } from "./flow.js";
import { stepsOf, waysOf, type Steps, type Way } from "./steps.js";

const SPEEDS = [0.5, 1, 2, 4, 8]; // steps in a second
const NAMES: Record<Way, string> = { k: "k", lane: "lanes", register: "registers" };

export class Player {
  private steps: Steps | null = null;
  private way: Way = "k";
  private step = 0;
  private timer = 0;
  private open = byId<HTMLButtonElement>("play");
  private bar = byId("player");
  private toggle = control("Play", () => this.playOrPause());
  private slider = h("input", { type: "range", min: 0, step: 1, "aria-label": "Step" });
  private said = h("output", { class: "said" });
  private ways = h("select", { "aria-label": "Step through" });
  private speed = h("select", { "aria-label": "Steps in a second" });

  constructor(
    private explorer: Explorer,
    private figure: Figure,
  ) {
    for (const each of SPEEDS) this.speed.append(h("option", { value: each }, `${each}/s`));
    this.speed.value = "2";
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.speed.addEventListener("change", () => this.timer && this.start());
    this.ways.addEventListener("change", () => {
      this.way = this.ways.value as Way;
      this.stop();
      this.prepare();
      this.go(0);
    });
    this.bar.append(
      h("label", {}, "by ", this.ways),
      control("Step back", () => this.move(-1), "‹"),
      this.toggle,
      control("Step forward", () => this.move(1), "›"),
      this.slider,
      this.speed,
      control("Close the player", () => void this.close(), "×"),
      this.said,
    );
    this.bar.addEventListener("keydown", (event) => this.key(event));
    this.open.addEventListener("click", () => this.show());
    explorer.listen((change) => this.follow(change));
  }

  // ── open and close ────────────────────────────────────────────────────────

  /** Open, and play: unless the system asks for less motion. */
  show(): void {
    if (this.steps) {
      this.close();
      return;
    }
    this.bar.hidden = false;
    this.open.setAttribute("aria-expanded", "true");
    this.prepare();
    this.go(0);
    this.toggle.focus();
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.start();
  }

  /** Whether there was something to close. */
  close(): boolean {
    if (!this.steps) return false;
    this.stop();
    this.steps = null;
    const within = this.bar.contains(document.activeElement);
    this.bar.hidden = true;
    this.open.setAttribute("aria-expanded", "false");
    if (within) this.open.focus();
    this.explorer.showFrame(null);
    return true;
  }

  /** Another instruction begins anew; another pin or value goes on at the same step. */
  private follow(change: Change): void {
    if (change === "view") return;
    if (!this.steps || this.explorer.framing) return;
    if (change === "pointer" && this.seen === this.about) return;
    if (change === "instruction") this.stop();
    this.prepare();
    this.go(change === "instruction" ? 0 : this.step);
  }

  private seen = "";

  /** What the steps depend on. */
  private get about(): string {
    const { state, own, target } = this.explorer;
    const { op, pinned, fill, codes } = state;
    return JSON.stringify([op, pinned, fill, codes, own.version, target]);
  }

  private prepare(): void {
    const { explorer } = this;
    const ways = waysOf(explorer.scene);
    if (!ways.includes(this.way)) [this.way] = ways;
    this.ways.replaceChildren(
      ...ways.map((way) => h("option", { value: way }, NAMES[way])),
    );
    this.ways.value = this.way;
    this.steps = stepsOf(explorer, this.way);
    this.slider.max = String(this.steps.count - 1);
    this.seen = this.about;
  }

  // ── steps ─────────────────────────────────────────────────────────────────

  private go(step: number): void {
    const { count, at } = this.steps!;
    this.step = Math.max(0, Math.min(count - 1, step));
    const { marks, said, flow } = at(this.step);
    this.slider.value = String(this.step);
    this.slider.setAttribute("aria-valuetext", said);
    this.said.textContent = said;
    this.explorer.showFrame(marks);
    if (flow) fly(this.figure, flow, Math.min(600, 900 / Number(this.speed.value)));
  }

  private move(by: number): void {
    this.stop();
    this.go(this.step + by);
    announce(this.said.textContent!);
  }

  private playOrPause(): void {
    if (this.timer) this.stop();
    else this.start();
  }

  /** From where it is; from the beginning if it has come to the end. */
  private start(): void {
    this.stop();
    const last = this.steps!.count - 1;
    if (this.step >= last) this.go(0);
    this.timer = window.setInterval(() => {
      this.go(this.step + 1);
      if (this.step >= last) this.stop();
    }, 1000 / Number(this.speed.value));
    name(this.toggle, "Pause");
  }

  private stop(): void {
    window.clearInterval(this.timer);
    this.timer = 0;
    name(this.toggle, "Play");
  }

  private key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const chooses = target.matches("select");
    if (step && !chooses) this.move(step);
    else if (event.key === " " && !chooses && !target.matches("button")) this.playOrPause();
    else if (event.key === "Home" && !chooses) this.move(-this.step);
    else if (event.key === "End" && !chooses) this.move(this.steps!.count);
    else return;
    event.preventDefault();
  }
}

const SIGNS: Record<string, string> = { Play: "▶", Pause: "❚❚" };

function control(title: string, onclick: () => void, sign = SIGNS[title]): HTMLButtonElement {
  return h("button", { type: "button", title, "aria-label": title, onclick }, sign);
}

function name(button: HTMLElement, title: string): void {
  button.title = title;
  button.setAttribute("aria-label", title);
  button.textContent = SIGNS[title];
}
