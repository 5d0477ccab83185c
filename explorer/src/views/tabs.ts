// The same layout in other words, and what can be done with it.

import { unfold, unpackSources, type Sources } from "../records/catalogue.js";
import { byId, copy, h } from "../page/dom.js";
import type { Change, Explorer } from "../page/explorer.js";
import { explainPanel } from "./explain.js";
import { machinePanel } from "./machine.js";
import { followMemory, memoryPanel } from "./memory.js";
import { metadataPanel } from "./metadata.js";
import { nearest, oneOf, shortened } from "../records/near.js";
import { followPath, pathPanel } from "./path.js";
import { usesShared } from "../memory/stored.js";
import { tensorPanel } from "./tensor.js";

interface Tab {
  id: string;
  label: string;
  /** What it shows follows the pointer. */
  follows: boolean;
  fits?: (explorer: Explorer) => boolean;
  show: (explorer: Explorer) => Node[] | Promise<Node[]>;
  /** Marks what is pointed at, where the pointer may be in the picture itself. */
  follow?: () => void;
}

const TABS: Tab[] = [
  {
    id: "formula",
    label: "Formula",
    follows: true,
    show: (e) => notation(e, "formula"),
  },
  { id: "cute", label: "CuTe", follows: true, show: (e) => notation(e, "cute") },
  {
    id: "linear",
    label: "Linear layout",
    follows: true,
    show: (e) => notation(e, "linear"),
  },
  { id: "cuda", label: "CUDA", follows: false, show: (e) => source(e, 0) },
  { id: "ptx", label: "PTX", follows: false, show: (e) => source(e, 1) },
  { id: "machine", label: "Machine code", follows: false, show: machinePanel },
  {
    id: "explain",
    label: "Explain",
    follows: false,
    fits: ({ scene, op }) => scene.computes && op.sums !== undefined,
    show: explainPanel,
  },
  {
    id: "metadata",
    label: "Metadata",
    follows: false,
    fits: ({ scene }) => scene.pattern !== null && !scene.tensor,
    show: metadataPanel,
  },
  {
    id: "memory",
    label: "Shared memory",
    follows: false,
    fits: ({ op }) => usesShared(op),
    show: memoryPanel,
    follow: followMemory,
  },
  {
    id: "tensor",
    label: "Tensor memory",
    follows: true,
    fits: (explorer) => explorer.scene.tensor,
    show: tensorPanel,
  },
  {
    id: "path",
    label: "Path",
    follows: false,
    fits: (explorer) => explorer.scene.tensor,
    show: pathPanel,
    follow: followPath,
  },
];
const SEEN = 160; // pixels of a panel without which nobody notices it
const PICTURES = ["tensor"];

const NOTES: Record<string, string> = {
  formula: "In the words of the PTX manual; i counts the elements of a lane.",
  cute: "Thread and value to element, shape:stride, the first coordinate fastest.",
  linear: "Where each bit of the place moves the element, as Triton prints it.",
};

const CELLS: Record<string, string> = {
  formula: "Which element a cell holds, and which cell an element is in.",
  cute: "Lane and cell to element, shape:stride, the first coordinate fastest.",
  linear: "Where each bit of the column, lane (row) and CTA (block) moves the element.",
};

export class Tabs {
  private shownKey = "";

  constructor(private explorer: Explorer) {
    byId("tabs").addEventListener("click", (event) => this.click(event));
    byId("tabs").addEventListener("keydown", (event) => this.key(event));
    explorer.listen((change) => this.show(change));
  }

  private get fitting(): Tab[] {
    return TABS.filter((tab) => tab.fits?.(this.explorer) ?? true);
  }

  /** Where the instruction lacks the tab, it is another one; says why, or nothing. */
  settle(): string {
    const { state } = this.explorer;
    const { tab } = state;
    const ids = this.fitting.map((each) => each.id);
    if (ids.includes(tab)) return "";
    state.tab = this.current.id;
    const known = TABS.find((each) => each.id === tab);
    const why = known ? `has no ${known.label} tab` : `has no tab "${shortened(tab)}"`;
    const near = nearest(tab, ids);
    const hint = near ? ` (did you mean ${near}?)` : "";
    const shown = `Shown instead: ${this.current.label}.`;
    return `This instruction ${why}${hint}; it has ${oneOf(ids, "and")}. ${shown}`;
  }

  private get current(): Tab {
    const { tab } = this.explorer.state;
    return this.fitting.find((each) => each.id === tab) ?? TABS[0];
  }

  show(change: Change): void {
    if (change === "view") return;
    const { current } = this;
    if (change !== "pointer") this.list(current);
    const { operand, state, spot } = this.explorer;
    // A picture is drawn anew for each spot, a text only for another operand.
    const place =
      PICTURES.includes(current.id) ? `${spot?.matrix} ${spot?.index}` : operand?.name;
    const word =
      ["metadata", "explain"].includes(current.id) ? `${state.lane} ${state.pinned?.matrix} ${state.pinned?.index}` : "";
    const key = `${current.id} ${current.follows ? place : ""} ${word}`;
    if (change === "pointer") current.follow?.();
    if (change === "pointer" && key === this.shownKey) return;
    this.shownKey = key;
    void this.fill(current, key);
  }

  private async fill(tab: Tab, key: string): Promise<void> {
    const shown = tab.show(this.explorer);
    const nodes = shown instanceof Promise ? await shown : shown;
    if (key !== this.shownKey) return; // somebody went on in the meantime
    // Whoever uses the panel with keys stays where they are.
    const focused = byId("panel").contains(document.activeElement)
      ? document.activeElement!.id
      : "";
    byId("panel").replaceChildren(...nodes);
    if (focused) document.getElementById(focused)?.focus();
  }

  private list(current: Tab): void {
    byId("panel").setAttribute("aria-labelledby", `tab-${current.id}`);
    const focused = document.activeElement?.getAttribute("role") === "tab";
    byId("tabs").replaceChildren(
      ...this.fitting.map((tab) =>
        h(
          "button",
          {
            type: "button",
            role: "tab",
            id: `tab-${tab.id}`,
            "data-tab": tab.id,
            "aria-controls": "panel",
            "aria-selected": String(tab === current),
            tabindex: tab === current ? 0 : -1,
          },
          tab.label,
        ),
      ),
    );
    if (focused) byId(`tab-${current.id}`).focus();
  }

  private click(event: Event): void {
    const tab = (event.target as HTMLElement).closest<HTMLElement>("[data-tab]");
    if (tab) this.open(tab.dataset.tab!);
  }

  /**
   * Only what stands below the picture changes.  Who chooses a tab wants to see it: a
   * window full of the picture moves on.
   */
  private open(tab: string): void {
    this.explorer.showTab(tab);
    this.list(this.current);
    const below = window.innerHeight - byId("panel").getBoundingClientRect().top;
    if (below < SEEN) byId("tabs").scrollIntoView({ block: "start" });
  }

  private key(event: KeyboardEvent): void {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const { fitting } = this;
    const at = fitting.indexOf(this.current) + step + fitting.length;
    this.open(fitting[at % fitting.length].id);
    event.preventDefault();
  }
}

function notation(explorer: Explorer, kind: "formula" | "cute" | "linear"): Node[] {
  const part = explorer.operand!;
  const select = h("select", {
    id: "operand",
    onchange: () => explorer.update({ operand: select.value, pinned: null }),
  });
  for (const matrix of explorer.scene.matrices.values()) {
    if (matrix.part) select.append(h("option", { value: matrix.name }, matrix.name));
  }
  select.value = part.name;
  return [
    h(
      "div",
      { class: "controls" },
      h("label", {}, "Operand ", select),
      copyButton(part[kind], "Text"),
    ),
    h("pre", { class: "line" }, part.line),
    h("p", { class: "hint" }, part.skipped === undefined ? NOTES[kind] : CELLS[kind]),
    text(part[kind], kind),
  ];
}

let sources: Promise<Sources> | null = null;

/** The CUDA (0) or PTX (1) of the instruction that is shown. */
export async function sourceText(explorer: Explorer, language: 0 | 1): Promise<string> {
  sources ??= unpackSources(byId("sources").textContent!);
  const unpacked = await sources;
  const number = explorer.catalogue.instructions.indexOf(explorer.op);
  return unfold(unpacked, unpacked.texts[number][language]);
}

async function source(explorer: Explorer, language: 0 | 1): Promise<Node[]> {
  const written = await sourceText(explorer, language);
  const what = language ? "PTX" : "CUDA";
  return [
    h(
      "div",
      { class: "controls" },
      copyButton(written, what),
      h("span", { class: "hint" }, `${written.split("\n").length - 1} lines`),
    ),
    text(written, what),
  ];
}

function copyButton(written: string, what: string): Node {
  const onclick = () => void copy(written, what);
  return h("button", { type: "button", class: "copy", onclick }, "Copy");
}

/** Text that scrolls in its own box, which keys must be able to reach. */
function text(written: string, what: string): Node {
  return h(
    "pre",
    { class: "text", tabindex: 0, role: "region", "aria-label": what },
    written,
  );
}
