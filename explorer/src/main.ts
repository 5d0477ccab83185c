// The page comes together here.

import { unpack, type Catalogue } from "./catalogue.js";
import { announce, byId, copy } from "./dom.js";
import { Explorer, type Change } from "./explorer.js";
import { showFacts } from "./facts.js";
import { Figure } from "./figure.js";
import { listenToLane, showElement, showLane } from "./inspector.js";
import { Picker } from "./picker.js";
import { toHash, type State } from "./state.js";
import { Tabs } from "./tabs.js";

async function start(): Promise<void> {
  const catalogue = await unpack<Catalogue>(byId("catalogue").textContent!);
  const explorer = new Explorer(catalogue, location.hash);
  new Picker(explorer);
  const figure = new Figure(explorer);
  const tabs = new Tabs(explorer);
  listenToTools(explorer);
  listenToLane(explorer);
  explorer.listen((change) => showRest(explorer, change));
  window.addEventListener("hashchange", () => explorer.open(location.hash));
  figure.draw();
  figure.begin();
  tabs.show("instruction");
  showRest(explorer, "instruction");
  document.documentElement.dataset.ready = "yes";
}

function showRest(explorer: Explorer, change: Change): void {
  if (change === "instruction") showFacts(explorer);
  if (change !== "pointer") showTools(explorer);
  showElement(explorer);
  showLane(explorer);
  const hash = toHash(explorer.state);
  if (location.hash !== hash) history.replaceState(null, "", hash);
}

// ── tools above the picture ─────────────────────────────────────────────────

function listenToTools(explorer: Explorer): void {
  const bind = (id: string, change: (value: string) => Partial<State>) => {
    const select = byId<HTMLSelectElement>(id);
    select.addEventListener("change", () => explorer.update(change(select.value)));
  };
  bind("values", (fill) => ({ fill: fill as State["fill"] }));
  bind("show", (name) => ({ accumulator: name as State["accumulator"] }));
  bind("sparse", (sparse) => ({ sparse: sparse as State["sparse"] }));
  bind("colour", (colour) => ({ colour: colour as State["colour"] }));
  byId("share").addEventListener("click", () => void copy(location.href, "Link"));
  byId("theme").addEventListener("click", () => switchTheme(explorer));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    explorer.update({}),
  );
  document.addEventListener("keydown", (event) => keys(explorer, event));
}

function showTools(explorer: Explorer): void {
  const { state } = explorer;
  byId<HTMLSelectElement>("values").value = state.fill;
  byId<HTMLSelectElement>("show").value = state.accumulator;
  byId<HTMLSelectElement>("colour").value = state.colour;
  byId<HTMLSelectElement>("sparse").value = explorer.sparseForm;
  byId("sparse").parentElement!.hidden =
    !explorer.scene.pattern || !explorer.matrix("A") || !explorer.matrix("metadata");
  byId("show").parentElement!.hidden = !explorer.matrix("C") || !explorer.matrix("D");
  byId("values").parentElement!.hidden = !explorer.scene.computes;
}

function switchTheme(explorer: Explorer): void {
  const { dark } = explorer.theme;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  explorer.update({});
}

function keys(explorer: Explorer, event: KeyboardEvent): void {
  const writing = (event.target as HTMLElement).matches("input, select, textarea");
  if (event.key === "Escape") {
    explorer.hover = null;
    explorer.pin(null);
    announce("Cleared");
  } else if (event.key === "/" && !writing) {
    byId("search").focus();
    event.preventDefault();
  }
}

void start();
