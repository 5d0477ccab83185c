// A warp: the instruction, its lanes, its registers by lane in their types.

import { byId, h } from "../../src/page/dom.js";
import type { Register, Site } from "../recording/head.js";
import { among, wordsOf, type Held } from "../recording/recording.js";
import { laneText, NOTHING, POISONED, typeHeld } from "../recording/registers.js";
import { isFloat } from "../recording/values.js";
import { activeLanes, grouped, lanesText, lineText, warpName } from "../session/names.js";
import { Rows } from "../session/rows.js";
import type { Session } from "../session/session.js";
import { dress, mark, put } from "../session/sparing.js";
import { mixed } from "../session/canvas.js";

const HEIGHT = 24;
const SHADES = 64;
const LANES = Array.from({ length: 32 }, (_, lane) => lane);

/** A row of the list: a register in a group, or the title of a group. */
type Item = { title: string } | { register: number; group: string };

/** What the strip of a row shows. */
interface Strip {
  at: number;
  type: string;
  dark: boolean;
}

const nameOf = (item: Item): string => ("title" in item ? item.title : `${item.group} ${item.register}`);

export class WarpView {
  private rows: Rows;
  private items: Item[] = [];
  private every = new Map<number, number[]>();

  constructor(private session: Session) {
    this.rows = new Rows(byId("registers"), HEIGHT, 0, (index) => nameOf(this.items[index]), (index, old) => this.row(this.items[index], old));
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
    put(byId("instruction"), site?.text ?? "This warp has not begun.");
    const within = site?.function && site.function !== run.head.kernel ? `, in ${site.function}` : "";
    const said = `${at === step ? "This step" : `Its last step, ${grouped(at)}`}; ${at < 0 ? "" : lineText(run, at)}${within}`;
    put(byId("instruction-said"), site ? said : "");
    this.drawLanes(at < 0 ? 0 : run.columns.lanes[at]);
    this.list(site);
    this.rows.show();
    this.drawAll();
  }

  private drawLanes(mask: number): void {
    const { theme, lane } = this.session;
    const active = activeLanes(mask);
    const box = byId("lanes");
    if (!box.childElementCount) box.append(...LANES.map((each) => h("span", { "data-lane": each })));
    for (const each of LANES) {
      const cell = box.children[each] as HTMLElement;
      const on = (mask >>> each) & 1;
      dress(cell, `${on ? "on" : ""}${each === lane ? " this" : ""}`.trim());
      mark(cell, "style", on ? `background:${theme.lanes[each]}` : "");
      mark(cell, "title", `lane ${each}${on ? "" : ", not active"}`);
    }
    put(byId("lanes-said"), active.length === 32 ? "all 32 lanes active" : active.length ? `active: ${lanesText(active)}` : "no lane active");
  }

  private list(site: Site | null): void {
    const { run, warp } = this.session;
    if (!this.every.has(warp)) this.every.set(warp, run.registersOf(warp));
    const find = byId<HTMLInputElement>("registers-find").value.trim().toLowerCase();
    const fits = (register: number) => run.head.registers[register].name.toLowerCase().includes(find);
    const [writes, reads] = [site?.writes ?? [], site?.reads ?? []];
    const rest = this.every.get(warp)!;
    const group = (title: string, registers: number[]): Item[] => {
      const items = [...new Set(registers)].filter(fits).map((register) => ({ register, group: title }));
      return items.length ? [{ title }, ...items] : [];
    };
    this.items = [
      ...group("written by this instruction", writes),
      ...group("read by it", reads.filter((each) => !writes.includes(each))),
      ...group("predicates", rest.filter((each) => run.head.registers[each].type === "pred")),
      ...group("all registers", rest),
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

  private row(item: Item, old?: HTMLElement): HTMLElement {
    if ("title" in item) return old ?? h("div", { class: "section" }, item.title);
    const { run, lane, step } = this.session;
    const register = run.head.registers[item.register];
    const row = old ?? h("div", { "data-register": item.register }, ...["name", "type", "value", "strip"].map((each) => h("span", { class: each })));
    const [name, kind, value, strip] = row.children as unknown as HTMLElement[];
    const held = this.held(item.register);
    const changed = held !== null && held.step === this.at && held.step === step && among(held.by, lane);
    const classes = ["register", changed ? "changed" : "", item.register === this.session.register ? "chosen" : ""];
    dress(row, classes.filter(Boolean).join(" "));
    const type = held ? this.typeOf(register, held) : register.type;
    put(name, register.name);
    put(kind, type);
    const text = held ? this.text(register, held, lane, type) : NOTHING;
    dress(value, text === NOTHING || text === POISONED ? "value hint" : "value");
    put(value, text === NOTHING ? "no value yet" : text);
    this.drawStrip(strip, register, held, type);
    return row;
  }

  private strips = new WeakMap<HTMLElement, Strip>();

  private drawStrip(strip: HTMLElement, register: Register, held: Held | null, type: string): void {
    const { dark } = this.session.theme;
    const shown = this.strips.get(strip);
    if (shown && shown.at === (held?.at ?? -1) && shown.type === type && shown.dark === dark) return;
    this.strips.set(strip, { at: held?.at ?? -1, type, dark });
    mark(strip, "style", held ? this.strip(register, held, type) : "");
  }

  private shade: { dark: boolean; list: string[] } | null = null;

  /** From the least value of a strip to the largest. */
  private get shades(): string[] {
    const { theme, hues } = this.session;
    if (this.shade?.dark !== theme.dark) {
      const list = Array.from({ length: SHADES + 1 }, (_, at) => mixed(hues[0], theme.page, 0.15 + (0.85 * at) / SHADES));
      this.shade = { dark: theme.dark, list };
    }
    return this.shade!.list;
  }

  /** The 32 lanes as a strip: who has the same value has the same colour. */
  private strip(register: Register, held: Held, type: string): string {
    const { theme, run, values } = this.session;
    const { words } = run.columns;
    const each = wordsOf(register) / 32;
    const hidden = run.isHidden(held.at);
    const number = (lane: number) =>
      hidden || !among(held.lanes, lane) ? null : register.type === "pred" ? (words[held.at] >>> lane) & 1 : values.number(type, words[held.at + lane * each], each > 1 ? words[held.at + lane * each + 1] : 0);
    const all = Array.from({ length: 32 }, (_, lane) => number(lane));
    const known = all.filter((each) => each !== null && Number.isFinite(each)) as number[];
    const [least, most] = [Math.min(...known), Math.max(...known)];
    const stops: string[] = [];
    let last = "";
    all.forEach((value, lane) => {
      const share = value === null ? 0 : most > least ? (value - least) / (most - least) : register.type === "pred" ? value : 0.35;
      const colour = value === null ? "transparent" : Number.isFinite(value) ? this.shades[Math.round(share * SHADES)] : theme.warning;
      if (colour === last) return;
      const at = `${lane * 3.125}%`;
      if (last) stops.push(`${last} ${at}`);
      stops.push(`${colour} ${at}`);
      last = colour;
    });
    stops.push(last);
    return `background:linear-gradient(90deg,${stops.join()})`;
  }

  /** All lanes of the register that was clicked, else of the first that was written. */
  private drawAll(): void {
    const { run } = this.session;
    const number = shownRegister(this.session);
    const held = number < 0 ? null : this.held(number);
    if (!held) {
      this.all = null;
      byId("all-lanes").replaceChildren(h("p", { class: "hint" }, "Click a register to see it in all lanes."));
      return;
    }
    const register = run.head.registers[number];
    const type = this.typeOf(register, held);
    const texts = LANES.map((lane) => this.text(register, held, lane, type));
    if (!this.all) {
      this.all = new AllLanes((step) => this.session.go(step));
      byId("all-lanes").replaceChildren(...this.all.parts);
    }
    const steps = LANES.map((lane) => run.heldBy(this.session.warp, number, this.session.step, lane)?.step ?? -1);
    this.all.draw(this.session, register.name, type, held, texts, steps);
  }

  private all: AllLanes | null = null;
}

/** A register in all lanes: its name, and a cell for each. */
class AllLanes {
  readonly parts: HTMLElement[];
  private name = h("code");
  private said = h("span", { class: "hint" });
  private step = -1;
  private link: HTMLElement;
  private cells = LANES.map((lane) => h("span", { "data-lane": lane }, h("small", {}, String(lane)), document.createTextNode("")));
  private grid = h("div", {}, ...this.cells);

  constructor(go: (step: number) => void) {
    this.link = h("button", { type: "button", class: "go", onclick: () => go(this.step) });
    this.parts = [h("p", {}, this.name, this.said, this.link), this.grid];
  }

  draw({ lane, theme }: Session, name: string, type: string, { step, by }: Held, texts: string[], steps: number[]): void {
    this.step = step;
    put(this.name, name);
    const who = activeLanes(by);
    const some = who.length < 32 ? ` by lane${who.length > 1 ? "s" : ""} ${lanesText(who)}` : "";
    put(this.said, ` ${type}, by lane; written${some} ${step < 0 ? "before the first step" : "at "}`);
    this.link.hidden = step < 0;
    put(this.link, `step ${grouped(step)}`);
    this.cells.forEach((cell, each) => {
      const wrong = isFloat(type) && /nan|inf/.test(texts[each]);
      const nothing = texts[each] === NOTHING || texts[each] === POISONED;
      dress(cell, `${each === lane ? "this" : ""}${wrong ? " wrong" : ""}${nothing ? " hint" : ""}`);
      mark(cell.firstElementChild!, "style", `background:${theme.lanes[each]}`);
      const text = cell.lastChild as Text;
      if (text.data !== texts[each]) text.data = texts[each];
      const when = steps[each] < 0 ? "" : `, written at step ${grouped(steps[each])}`;
      mark(cell, "title", `lane ${each}: ${texts[each] === NOTHING ? "no value yet" : texts[each]}${when}`);
    });
    const letters = Math.max(...texts.map(({ length }, each) => length + String(each).length)) - 2;
    dress(this.grid, letters > 14 ? "grid wide" : letters > 9 ? "grid middle" : "grid");
  }
}

/** The register that all lanes are shown of: the chosen one, else the first one written. */
export function shownRegister({ register, run, warp, step }: Session): number {
  if (register >= 0) return register;
  const at = run.lastOf(warp, step);
  return at < 0 ? -1 : (run.site(at).writes[0] ?? -1);
}
