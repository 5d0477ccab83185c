// A warp: the instruction, its lanes, its registers by lane in their types.

import { byId, h } from "../../src/page/dom.js";
import type { Register, Site } from "../recording/head.js";
import { wordsOf, type Held } from "../recording/recording.js";
import { laneText, typeHeld } from "../recording/registers.js";
import { isFloat } from "../recording/values.js";
import { activeLanes, grouped, lanesText, lineText, warpName } from "../session/names.js";
import { Rows } from "../session/rows.js";
import type { Session } from "../session/session.js";
import { mixed } from "../session/canvas.js";

const HEIGHT = 24;

type Item = { title: string } | { register: number; mark: "writes" | "reads" | "" };

export class WarpView {
  private rows: Rows;
  private items: Item[] = [];
  private every = new Map<number, number[]>();

  constructor(private session: Session) {
    this.rows = new Rows(byId("registers"), HEIGHT, 0, (index) => this.row(this.items[index]));
    const { head } = session.run;
    byId("warp-pick").replaceChildren(
      ...head.warps.map((_, number) => h("option", { value: number }, warpName(head, number))),
    );
    byId("warp-pick").addEventListener("change", () =>
      session.update({ warp: Number(byId<HTMLSelectElement>("warp-pick").value) }),
    );
    byId("lane-pick").addEventListener("change", () => {
      const asked = Number(byId<HTMLInputElement>("lane-pick").value);
      session.update({ lane: Math.max(0, Math.min(31, Math.round(asked) || 0)) });
    });
    byId("registers-find").addEventListener("input", () => session.changed());
    byId("registers").addEventListener("click", (event) => this.click(event));
    byId("lanes").addEventListener("click", (event) => {
      const { lane } = (event.target as HTMLElement).dataset;
      if (lane) session.update({ lane: Number(lane) });
    });
    byId("all-lanes").addEventListener("click", (event) => {
      const cell = (event.target as HTMLElement).closest<HTMLElement>("[data-lane]");
      if (cell) session.update({ lane: Number(cell.dataset.lane) });
    });
    session.listen(() => this.draw());
  }

  private click(event: Event): void {
    const row = (event.target as HTMLElement).closest<HTMLElement>("[data-register]");
    if (!row) return;
    const register = Number(row.dataset.register);
    this.session.update({ register: register === this.session.register ? -1 : register });
  }

  /** The last step of the warp, which is shown; -1 before its first. */
  private get at(): number {
    return this.session.run.lastOf(this.session.warp, this.session.step);
  }

  private draw(): void {
    const { session, at } = this;
    const { run, warp, lane, step } = session;
    byId<HTMLSelectElement>("warp-pick").value = String(warp);
    const pick = byId<HTMLInputElement>("lane-pick");
    if (document.activeElement !== pick) pick.value = String(lane);
    const site = at < 0 ? null : run.site(at);
    byId("instruction").textContent = site?.text ?? "This warp has not begun.";
    byId("instruction-said").textContent = site
      ? `${at === step ? "This step" : `Its last step, ${grouped(at)}`}; ${lineText(run, at)}${site.function && site.function !== run.head.kernel ? `, in ${site.function}` : ""}`
      : "";
    this.drawLanes(at < 0 ? 0 : run.columns.lanes[at]);
    this.list(site);
    this.rows.show();
    this.drawAll();
  }

  private drawLanes(mask: number): void {
    const { theme, lane } = this.session;
    const active = activeLanes(mask);
    byId("lanes").replaceChildren(
      ...Array.from({ length: 32 }, (_, each) =>
        h("span", {
          "data-lane": each,
          class: (mask >>> each) & 1 ? (each === lane ? "on this" : "on") : each === lane ? "this" : "",
          style: (mask >>> each) & 1 ? `background:${theme.lanes[each]}` : "",
          title: `lane ${each}${(mask >>> each) & 1 ? "" : ", not active"}`,
        }),
      ),
    );
    byId("lanes-said").textContent =
      active.length === 32 ? "all 32 lanes active" : active.length ? `active: ${lanesText(active)}` : "no lane active";
  }

  private list(site: Site | null): void {
    const { run, warp } = this.session;
    if (!this.every.has(warp)) this.every.set(warp, run.registersOf(warp));
    const find = byId<HTMLInputElement>("registers-find").value.trim().toLowerCase();
    const fits = (register: number) => run.head.registers[register].name.toLowerCase().includes(find);
    const marked = (registers: number[], mark: "writes" | "reads" | ""): Item[] =>
      [...new Set(registers)].filter(fits).map((register) => ({ register, mark }));
    const [writes, reads] = [site?.writes ?? [], site?.reads ?? []];
    const rest = this.every.get(warp)!;
    const group = (title: string, items: Item[]): Item[] => (items.length ? [{ title }, ...items] : []);
    this.items = [
      ...group("written by this instruction", marked(writes, "writes")),
      ...group("read by it", marked(reads.filter((each) => !writes.includes(each)), "reads")),
      ...group("predicates", marked(rest.filter((each) => run.head.registers[each].type === "pred"), "")),
      ...group("all registers", marked(rest, "")),
    ];
    this.rows.resize(this.items.length);
  }

  private held(register: number): Held | null {
    return this.session.run.held(this.session.warp, register, this.session.step);
  }

  private typeOf(register: Register, held: Held): string {
    return typeHeld(this.session.run, register, held);
  }

  private text(register: Register, held: Held, lane: number, type: string): string {
    return laneText(this.session.run, this.session.values, register, held, lane, type);
  }

  private row(item: Item): HTMLElement {
    if ("title" in item) return h("div", { class: "section" }, item.title);
    const { run, lane, step } = this.session;
    const register = run.head.registers[item.register];
    const held = this.held(item.register);
    const changed = held !== null && held.step === this.at && held.step === step;
    const classes = ["register", changed ? "changed" : "", item.register === this.session.register ? "chosen" : ""];
    const name = h("span", { class: "name" }, register.name);
    const attributes = { class: classes.filter(Boolean).join(" "), "data-register": item.register };
    if (!held) return h("div", attributes, name, h("span", { class: "type" }, register.type), h("span", { class: "value hint" }, "no value yet"));
    const type = this.typeOf(register, held);
    return h(
      "div",
      attributes,
      name,
      h("span", { class: "type" }, type),
      h("span", { class: "value" }, this.text(register, held, lane, type)),
      this.strip(register, held, type),
    );
  }

  /** The 32 lanes as a strip: who has the same value has the same colour. */
  private strip(register: Register, held: Held, type: string): HTMLElement {
    const { theme, hues, run, values } = this.session;
    const { words } = run.columns;
    const each = wordsOf(register) / 32;
    const number = (lane: number) =>
      register.type === "pred" ? (words[held.at] >>> lane) & 1 : values.number(type, words[held.at + lane * each], each > 1 ? words[held.at + lane * each + 1] : 0);
    const all = Array.from({ length: 32 }, (_, lane) => number(lane));
    const known = all.filter(Number.isFinite);
    const [least, most] = [Math.min(...known), Math.max(...known)];
    const stops: string[] = [];
    let last = "";
    all.forEach((value, lane) => {
      const share = most > least ? (value - least) / (most - least) : register.type === "pred" ? value : 0.35;
      const colour = Number.isFinite(value) ? mixed(hues[0], theme.page, 0.15 + 0.85 * share) : theme.warning;
      if (colour === last) return;
      const at = `${lane * 3.125}%`;
      if (last) stops.push(`${last} ${at}`);
      stops.push(`${colour} ${at}`);
      last = colour;
    });
    stops.push(last);
    return h("span", { class: "strip", style: `background:linear-gradient(90deg,${stops.join()})` });
  }

  /** All lanes of the register that was clicked, else of the first that was written. */
  private drawAll(): void {
    const { run, lane, theme } = this.session;
    const number = shownRegister(this.session);
    const box = byId("all-lanes");
    const held = number < 0 ? null : this.held(number);
    if (!held) {
      box.replaceChildren(h("p", { class: "hint" }, "Click a register to see it in all lanes."));
      return;
    }
    const register = run.head.registers[number];
    const type = this.typeOf(register, held);
    const cells = Array.from({ length: 32 }, (_, each) => {
      const text = this.text(register, held, each, type);
      const wrong = isFloat(type) && /nan|inf/.test(text);
      return h("span", { "data-lane": each, class: `${each === lane ? "this" : ""}${wrong ? " wrong" : ""}`, title: `lane ${each}: ${text}` }, h("small", { style: `background:${theme.lanes[each]}` }, String(each)), text);
    });
    const letters = Math.max(...cells.map((cell) => cell.textContent!.length)) - 2;
    const wide = letters > 14 ? "grid wide" : letters > 9 ? "grid middle" : "grid";
    box.replaceChildren(
      h("p", {}, h("code", {}, register.name), h("span", { class: "hint" }, ` ${type}, by lane; written ${held.step < 0 ? "before the first step" : "at "}`), held.step < 0 ? "" : h("button", { type: "button", class: "go", onclick: () => this.session.go(held.step) }, `step ${grouped(held.step)}`)),
      h("div", { class: wide }, ...cells),
    );
  }
}

/** The register that all lanes are shown of: the chosen one, else the first one written. */
export function shownRegister({ register, run, warp, step }: Session): number {
  if (register >= 0) return register;
  const at = run.lastOf(warp, step);
  return at < 0 ? -1 : (run.site(at).writes[0] ?? -1);
}
