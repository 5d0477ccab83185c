// Which instruction?  Type to filter, or choose by family, type, shape, target.

import { saidBy, search, shapeOf, typesOf, type Filter, type Instruction } from "./catalogue.js";
import { byId, h, options } from "./dom.js";
import type { Explorer } from "./explorer.js";

const MOST = 60; // rows in the list; more than one wants to scroll through
const FIELDS = ["family", "type", "shape", "target"] as const;

export class Picker {
  private found: Instruction[] = [];
  private active = 0;
  private input = byId<HTMLInputElement>("search");
  private list = byId("results");

  constructor(private explorer: Explorer) {
    const { instructions, families, allTargets } = explorer.catalogue;
    const unique = (values: string[]) => [...new Set(values)];
    const choices: Record<(typeof FIELDS)[number], string[]> = {
      family: families,
      type: unique(instructions.flatMap(typesOf)).sort(),
      shape: unique(instructions.map(shapeOf)).filter(Boolean).sort(byNumber),
      target: Object.keys(allTargets),
    };
    for (const name of FIELDS) {
      const select = this.select(name);
      options(select, choices[name], `any ${name}`);
      select.addEventListener("change", () => this.filter());
    }
    this.input.addEventListener("input", () => {
      this.open(true);
      this.filter();
    });
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("click", (event) => this.click(event));
    byId("reset-filter").addEventListener("click", () => this.reset());
    explorer.listen((change) => change === "instruction" && this.follow());
    this.listenToOpening();
    this.filter();
  }

  /** The list is open while the search, or something in the list, has the focus. */
  private listenToOpening(): void {
    const find = this.input.closest<HTMLElement>(".find")!;
    this.input.addEventListener("focus", () => this.open(true));
    this.input.addEventListener("click", () => this.open(true));
    find.addEventListener("focusout", (event) => {
      const next = event.relatedTarget as Node | null;
      if (next && !find.contains(next)) this.open(false);
    });
    document.addEventListener("pointerdown", (event) => {
      if (!find.contains(event.target as Node)) this.open(false);
    });
    find.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || byId("picker").hidden) return;
      this.open(false);
      event.stopPropagation(); // what is pinned stays
    });
  }

  private open(open: boolean): void {
    byId("picker").hidden = !open;
    this.input.setAttribute("aria-expanded", String(open));
    if (open) this.mark();
  }

  private select(name: string): HTMLSelectElement {
    return byId<HTMLSelectElement>(`filter-${name}`);
  }

  private filter(): void {
    const values = FIELDS.map((name) => [name, this.select(name).value]);
    const filter = { words: this.input.value, ...Object.fromEntries(values) } as Filter;
    this.found = search(this.explorer.catalogue, filter);
    const current = this.found.findIndex((op) => op.name === this.explorer.op.name);
    this.active = Math.max(0, current);
    this.show();
  }

  private reset(): void {
    this.input.value = "";
    for (const name of FIELDS) this.select(name).value = "";
    this.filter();
    this.input.focus();
  }

  /** Another instruction is shown: say so in the list, which is drawn only once. */
  private follow(): void {
    const { name } = this.explorer.op;
    const at = this.found.findIndex((op) => op.name === name);
    if (at >= 0) this.active = at;
    if (at >= 0 && !document.getElementById(`option-${at}`)) this.show();
    for (const row of this.list.querySelectorAll<HTMLElement>("[role=option]")) {
      const selected = String(row.dataset.name === name);
      if (row.getAttribute("aria-selected") !== selected) {
        row.setAttribute("aria-selected", selected);
      }
      row.classList.toggle("active", row.id === `option-${this.active}`);
    }
  }

  private show(): void {
    const current = this.explorer.op.name;
    // Begin a little before the active one where it lies far down.
    const first = this.active < MOST ? 0 : this.active - 20;
    const rows = this.found.slice(first, first + MOST).map((op, at) =>
      h(
        "div",
        {
          role: "option",
          id: `option-${first + at}`,
          "data-name": op.name,
          "aria-selected": String(op.name === current),
          class: first + at === this.active ? "active" : "",
        },
        ...mnemonic(op.name),
        ...(op.tensor ? [h("small", {}, ` ${saidBy(op)}`)] : []),
      ),
    );
    this.list.replaceChildren(...rows);
    const total = this.found.length;
    const more = total > rows.length ? `; ${rows.length} are listed` : "";
    const count = `${total} instruction${total === 1 ? "" : "s"}${more}`;
    byId("count").textContent = total
      ? count
      : "Nothing fits: remove a word or a filter";
    this.mark();
  }

  private mark(): void {
    const active = document.getElementById(`option-${this.active}`);
    if (!active && this.found[this.active]) {
      this.show(); // it lies beyond what is listed
      return;
    }
    this.list.querySelector(".active")?.classList.remove("active");
    active?.classList.add("active");
    if (active) this.input.setAttribute("aria-activedescendant", active.id);
    else this.input.removeAttribute("aria-activedescendant");
    // Asking where it lies is cheap only once the page has been laid out.
    if (active) requestAnimationFrame(() => this.reveal(active));
  }

  /** Scroll the list alone, never the page. */
  private reveal(row: HTMLElement): void {
    const { offsetTop, offsetHeight } = row;
    const { scrollTop, clientHeight } = this.list;
    const below = offsetTop + offsetHeight > scrollTop + clientHeight;
    if (offsetTop < scrollTop || below) this.list.scrollTop = offsetTop - 60;
  }

  private key(event: KeyboardEvent): void {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (step) {
      const last = this.found.length - 1;
      this.active = Math.max(0, Math.min(last, this.active + step));
      this.mark();
    } else if (event.key === "Enter" && this.found[this.active]) {
      this.choose(this.found[this.active].name);
    } else return;
    event.preventDefault();
  }

  private click(event: Event): void {
    const row = (event.target as HTMLElement).closest<HTMLElement>("[data-name]");
    if (!row) return;
    this.active = Number(row.id.split("-")[1]);
    this.choose(row.dataset.name!);
  }

  private choose(name: string): void {
    this.explorer.pick(name);
    this.open(false);
    this.input.blur();
  }
}

/** A mnemonic that may break after its dots. */
export function mnemonic(name: string): Node[] {
  return name
    .split(/(?<=[.])/)
    .flatMap((word) => [document.createTextNode(word), document.createElement("wbr")]);
}

function byNumber(one: string, other: string): number {
  return one.localeCompare(other, "en", { numeric: true });
}
