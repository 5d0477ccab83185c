// Watch expressions of the warp: the debugger's language, its answers at every step.

import { byId, h, toast } from "../../src/page/dom.js";
import { Names } from "../recording/scope.js";
import { Refused, Typed, type Value } from "../recording/typed.js";
import { lanesText } from "../session/names.js";
import type { Session } from "../session/session.js";

/** Expressions that are watched at most, and values of one that are written at once. */
const MOST = 40;
const FEW = 6;

export class WatchView {
  private open = new Set<string>();
  private typed: Typed;
  private key = "";

  constructor(private session: Session) {
    this.typed = new Typed(session.types);
    const input = byId<HTMLInputElement>("watch-add");
    byId("watch-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.add(input.value.trim())) input.value = "";
    });
    byId("watch").addEventListener("click", (event) => this.click(event));
    session.listen(() => this.draw());
  }

  private add(text: string): boolean {
    const { watch } = this.session;
    if (!text || watch.includes(text)) return false;
    if (watch.length >= MOST) return toast(`At most ${MOST} expressions are watched`), false;
    this.session.update({ watch: [...watch, text] });
    return true;
  }

  private click(event: Event): void {
    const row = (event.target as HTMLElement).closest<HTMLElement>("[data-watch]");
    if (!row) return;
    const text = row.dataset.watch!;
    const { watch } = this.session;
    if ((event.target as HTMLElement).closest(".remove")) {
      return this.session.update({ watch: watch.filter((each) => each !== text) });
    }
    if (!this.open.delete(text)) this.open.add(text);
    this.key = "";
    this.session.changed();
  }

  private draw(): void {
    const { session } = this;
    const { watch, run, step, warp, lane } = session;
    const key = [step, warp, lane, ...watch].join("\n");
    if (key === this.key) return;
    this.key = key;
    byId("watch").hidden = !watch.length;
    if (!watch.length) return byId("watch").replaceChildren();
    const names = new Names(run, this.typed, step, warp);
    byId("watch").replaceChildren(...watch.map((text) => this.row(text, names)));
  }

  private row(text: string, names: Names): HTMLElement {
    const remove = h("button", { type: "button", class: "quiet remove", "aria-label": `Stop watching ${text}` }, "×");
    const name = h("code", {}, text);
    const attributes = { "data-watch": text };
    try {
      const value = names.evaluate(text);
      const texts = this.typed.texts(value);
      const open = this.open.has(text) && texts.length > 1;
      const more: Record<string, string> = texts.length > 1 ? { "aria-expanded": String(open) } : {};
      return h(
        "li",
        attributes,
        h("button", { type: "button", class: "quiet say", ...more }, name, h("span", { class: "type" }, value.type), h("span", { class: "value" }, this.short(value, texts))),
        remove,
        ...(open ? [this.all(value, texts)] : []),
      );
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      return h("li", attributes, h("span", { class: "say" }, name, h("span", { class: "wrong" }, error.message)), remove);
    }
  }

  /** The lane that is looked at; all lanes, if they have the same. */
  private short(value: Value, texts: string[]): string {
    if (texts.length === 1) return value.lanes.length ? `${texts[0]} in lane ${value.lanes[0]}` : texts[0];
    if (!value.lanes.length) return `${texts.slice(0, FEW).join(", ")}${texts.length > FEW ? ` … ${texts.length}` : ""}`;
    if (new Set(texts).size === 1) return `${texts[0]} in ${value.lanes.length === 32 ? "all lanes" : `lanes ${lanesText(value.lanes)}`}`;
    const at = value.lanes.indexOf(this.session.lane);
    return at < 0 ? texts.slice(0, FEW).join(", ") : texts[at];
  }

  private all({ lanes, offsets }: Value, texts: string[]): HTMLElement {
    const { theme } = this.session;
    const wide = Math.max(...texts.map((each) => each.length)) > 12 ? " wide" : "";
    const label = (at: number) => (lanes.length ? String(lanes[at]) : offsets ? `0x${offsets[at].toString(16)}` : String(at));
    const cells = texts.slice(0, 512).map((each, at) =>
      h("span", { title: each }, h("small", lanes.length ? { style: `background:${theme.lanes[lanes[at]]}` } : {}, label(at)), each),
    );
    return h("div", { class: `grid${wide}` }, ...cells);
  }
}
