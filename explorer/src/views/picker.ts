// The search box.  Type words; the list drops down, by family and type.

import type { Instruction } from "../records/catalogue.js";
import { byId, h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import { asksSparse, meantBy, nearby, search, wholly } from "../records/searching.js";
import { grouped, type Group, type Row } from "../records/short.js";

const MOST = 60; // rows that are drawn at once; more follow where one goes on
const WIDTHS = 3; // of a row; a wgmma has 32 of them, and the powers of two are listed
const NARROW = 32; // of a tcgen05.mma, whose rows are long, not even these

/** Words to begin with, each of which can be typed, too. */
const WORDS = [
  ["tcgen05", "wgmma", "mma", "wmma", "ldmatrix"],
  ["fp4", "fp8", "half", "bf16", "tf32", "int8", "int4", "binary"],
  ["sparse", "dense"],
  ["blackwell", "hopper", "ada", "ampere"],
];

/** A row as it is listed: its options, the first of which is the row itself. */
interface Listed {
  group: Group;
  row: Row;
  options: number[];
}

export class Picker {
  private listed: Listed[] = [];
  private said = "";
  private drawn = 0;
  /** The row and the option in it that Enter would pick. */
  private active: [number, number] = [0, 0];
  private before: HTMLElement | null = null;
  private input = byId<HTMLInputElement>("search");
  private list = byId("results");
  private find = this.input.closest<HTMLElement>(".find")!;

  constructor(private explorer: Explorer) {
    byId("words").replaceChildren(...WORDS.map((words) => this.wordGroup(words)));
    byId("words").addEventListener("keydown", (event) => this.wordKey(event));
    this.stopAt(0);
    this.input.addEventListener("input", () => this.open());
    this.input.addEventListener("focus", (event) => {
      const from = event.relatedTarget as HTMLElement | null;
      if (from && !this.find.contains(from)) this.before = from;
      this.input.select();
      this.open();
    });
    this.input.addEventListener("click", () => byId("picker").hidden && this.open());
    this.find.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("click", (event) => this.click(event));
    this.list.addEventListener("scroll", () => this.scrolled());
    this.find.addEventListener("focusout", (event) => {
      const next = event.relatedTarget as Node | null;
      if (next && !this.find.contains(next)) this.close();
    });
    document.addEventListener("pointerdown", (event) => {
      if (!this.find.contains(event.target as Node)) this.close();
    });
  }

  /** Buttons that put a word into the search, or take it out again. */
  private wordGroup(words: string[]): HTMLElement {
    const button = (word: string) =>
      h(
        "button",
        { type: "button", "data-word": word, onclick: () => this.toggle(word) },
        word,
      );
    return h("span", { role: "group" }, ...words.map(button));
  }

  /** All words are one stop of Tab; arrows go from word to word. */
  private stopAt(place: number): HTMLElement {
    const all = [...byId("words").querySelectorAll<HTMLElement>("button")];
    const at = (place + all.length) % all.length;
    all.forEach((each, index) => (each.tabIndex = index === at ? 0 : -1));
    return all[at];
  }

  private wordKey(event: KeyboardEvent): void {
    const all = [...byId("words").querySelectorAll<HTMLElement>("button")];
    const at = all.indexOf(event.target as HTMLElement);
    const next = {
      ArrowRight: at + 1,
      ArrowDown: at + 1,
      ArrowLeft: at - 1,
      ArrowUp: at - 1,
      Home: 0,
      End: -1,
    }[event.key];
    if (at < 0 || next === undefined) return;
    this.stopAt(next).focus();
    event.preventDefault();
  }

  private get words(): string[] {
    return this.input.value.split(/\s+/).filter(Boolean);
  }

  private toggle(word: string): void {
    const has = this.words.includes(word);
    const words = has ? this.words.filter((each) => each !== word) : [...this.words, word];
    this.input.value = words.join(" ");
    this.open();
  }

  // ── open and close ────────────────────────────────────────────────────────

  open(): void {
    byId("picker").hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.filter();
  }

  /** Whether there was something to close. */
  close(): boolean {
    if (byId("picker").hidden) return false;
    byId("picker").hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
    return true;
  }

  /** Go back to where one was before the search. */
  private leave(): void {
    this.close();
    const known = this.before?.isConnected ? this.before : byId("main");
    known.focus({ preventScroll: true });
  }

  // ── what is found ─────────────────────────────────────────────────────────

  private filter(): void {
    const { catalogue, op } = this.explorer;
    const text = this.input.value;
    let found = search(catalogue, text);
    this.said = `${found.length} instruction${found.length === 1 ? "" : "s"}`;
    if (!found.length) ({ said: this.said, found } = nearby(catalogue, text));
    const groups = this.groups(found, text);
    this.listed = groups.flatMap((group) =>
      group.rows.map((row) => ({ group, row, options: chosen(row, op) })),
    );
    const current = text.trim() ? -1 : this.listed.findIndex(({ row }) => row.ops.includes(op));
    this.active = [Math.max(0, current), 0];
    if (current >= 0) this.active[1] = this.optionOf(this.listed[current], op);
    // Of a row, what a link and the command line take: mma.sp is not sp::ordered_metadata.
    const [meant, other] = /\bsp\b/i.test(text) ? meantBy(catalogue, text) : [];
    if (meant && !other && this.listed.length) {
      this.active[1] = this.optionOf(this.listed[0], meant);
    }
    this.show();
  }

  /** Of a machine instruction, what becomes it alone comes first. */
  private groups(found: Instruction[], text: string): Group[] {
    const { catalogue } = this.explorer;
    const list = (some: Instruction[]) => grouped(catalogue, some, asksSparse(text));
    const own = wholly(catalogue, text);
    if (!own) return list(found);
    const parts = list(found.filter((op) => !own.has(op)));
    const said = (group: Group) => ({ ...group, about: `${group.about}, of which it is a part` });
    return [...list(found.filter((op) => own.has(op))), ...parts.map(said)];
  }

  private optionOf({ row, options }: Listed, op: Instruction): number {
    return Math.max(0, options.findIndex((at) => row.ops[at] === op));
  }

  private show(): void {
    this.list.replaceChildren();
    this.list.scrollTop = 0;
    this.drawn = 0;
    this.drawTo(Math.max(MOST, this.active[0] + 20));
    byId("count").textContent = this.said;
    for (const each of byId("words").querySelectorAll<HTMLElement>("[data-word]")) {
      each.setAttribute("aria-pressed", String(this.words.includes(each.dataset.word!)));
    }
    this.mark();
  }

  /** Rows up to a number, each group with its heading. */
  private drawTo(most: number): void {
    const last = Math.min(most, this.listed.length);
    for (; this.drawn < last; this.drawn++) {
      const { group } = this.listed[this.drawn];
      const known = this.drawn > 0 && this.listed[this.drawn - 1].group === group;
      if (!known) this.list.append(heading(group, this.drawn));
      this.list.lastElementChild!.append(this.rowOf(this.drawn));
    }
  }

  private rowOf(number: number): HTMLElement {
    const { row, options } = this.listed[number];
    const [first, ...others] = options;
    const variants = others.map((at, index) =>
      this.option(number, index + 1, row.ops[at], [row.chips[at].join(" ") || "plain"]),
    );
    const left = row.ops.length - options.length;
    const title = "For the other widths, search for a shape, such as 64x40, or pick one and choose";
    if (left) variants.push(h("small", { role: "none", title }, `+${left}`));
    const texts = [row.shape, row.types, ...row.common, ...row.chips[first]];
    return h(
      "div",
      { class: "row", role: "none" },
      this.option(number, 0, row.ops[first], texts),
      h("div", { class: "variants", role: "none" }, ...variants),
    );
  }

  /** The first of a row has its shape and types; the others only what they differ in. */
  private option(row: number, at: number, op: Instruction, texts: string[]): HTMLElement {
    const tags = ["b", "span"] as const;
    return h(
      "div",
      {
        role: "option",
        id: `option-${row}-${at}`,
        class: at ? "variant" : "main",
        "data-name": op.name,
        title: op.name,
        "aria-label": `${texts.join(" ")}: ${op.name}`,
        "aria-selected": String(op === this.explorer.op),
      },
      ...(at ? texts : texts.flatMap((each, place) => [h(tags[place] ?? "i", {}, each), " "])),
    );
  }

  private scrolled(): void {
    const { scrollTop, clientHeight, scrollHeight } = this.list;
    if (scrollTop + clientHeight > scrollHeight - 200) this.drawTo(this.drawn + MOST);
  }

  private mark(): void {
    const [row, at] = this.active;
    this.drawTo(row + 1);
    this.list.querySelector(".active")?.classList.remove("active");
    const active = document.getElementById(`option-${row}-${at}`);
    active?.classList.add("active");
    if (!active) this.input.removeAttribute("aria-activedescendant");
    else this.input.setAttribute("aria-activedescendant", active.id);
    if (active) this.reveal(active.closest<HTMLElement>(".row")!);
  }

  /** Scroll the list alone, never the page. */
  private reveal(row: HTMLElement): void {
    const { offsetTop, offsetHeight } = row;
    const { scrollTop, clientHeight } = this.list;
    const below = offsetTop + offsetHeight > scrollTop + clientHeight;
    if (offsetTop < scrollTop + 30 || below) this.list.scrollTop = offsetTop - 60;
  }

  // ── keys and clicks ───────────────────────────────────────────────────────

  private key(event: KeyboardEvent): void {
    if (event.key === "Escape") {
      // First the list, then the search itself: the pin is let go only outside.
      if (byId("picker").hidden) this.leave();
      else {
        this.input.focus();
        this.close();
      }
      event.stopPropagation(); // what is pinned stays
      event.preventDefault(); // and so do the words
      return;
    }
    if ((event.target as HTMLElement).matches("button")) return;
    const down = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    const across = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (down) this.move(down);
    else if (across && this.between(across)) this.active[1] += across;
    else if (event.key === "Enter") this.enter();
    else return;
    event.preventDefault();
    if (event.key !== "Enter") this.mark();
  }

  private move(step: number): void {
    if (byId("picker").hidden) this.open();
    const last = this.listed.length - 1;
    this.active = [Math.max(0, Math.min(last, this.active[0] + step)), 0];
  }

  /** Left and right go through a row's options once the words have ended. */
  private between(step: number): boolean {
    const { selectionStart, selectionEnd, value } = this.input;
    const ended = selectionStart === value.length && selectionEnd === value.length;
    if (!ended && document.activeElement === this.input && this.active[1] === 0) return false;
    const options = this.listed[this.active[0]]?.options.length ?? 0;
    const next = this.active[1] + step;
    return next >= 0 && next < options;
  }

  private enter(): void {
    const found = this.listed[this.active[0]];
    if (found) this.choose(found.row.ops[found.options[this.active[1]]].name);
  }

  private click(event: Event): void {
    const option = (event.target as HTMLElement).closest<HTMLElement>("[data-name]");
    if (option) this.choose(option.dataset.name!);
  }

  private choose(name: string): void {
    this.close();
    this.explorer.pick(name);
    byId("main").focus({ preventScroll: true });
  }
}

function heading({ family, about }: Group, number: number): HTMLElement {
  const id = `group-${number}`;
  const title = h("div", { class: "group", id, role: "none" }, h("b", {}, family), ` ${about}`);
  return h("div", { role: "group", "aria-labelledby": id }, title);
}

/** The options of a row that are listed: all, or of many widths the powers of two. */
function chosen(row: Row, current: Instruction): number[] {
  const all = row.ops.map((_, at) => at);
  const widths = new Set(row.ops.map((op) => op.shape[1]));
  if (widths.size <= WIDTHS) return all;
  const even = ({ shape: [, n], tensor }: Instruction) =>
    Number.isInteger(Math.log2(n)) && (!tensor || n > NARROW);
  return all.filter((at) => even(row.ops[at]) || row.ops[at] === current);
}

/** A mnemonic that may break after its dots. */
export function mnemonic(name: string): Node[] {
  return name
    .split(/(?<=[.])/)
    .flatMap((word) => [document.createTextNode(word), document.createElement("wbr")]);
}
