// The page comes together here.

import { unpack, type Catalogue } from "./records/catalogue.js";
import { announce, byId, h } from "./page/dom.js";
import { Explorer, type Change } from "./page/explorer.js";
import { FILL_NAMES, showFill, showResult, targetSelect } from "./views/explain.js";
import { showFacts } from "./views/facts.js";
import { Figure } from "./views/figure.js";
import { keepAddress, writeAddress } from "./page/history.js";
import { listenToLeaps } from "./views/leaps.js";
import { listenToLane, showElement, showLane } from "./views/inspector.js";
import { closeNotice, closeRemarks, showNotice } from "./page/notice.js";
import { Picker } from "./views/picker.js";
import { Player } from "./views/player.js";
import { listenToPrinting } from "./views/printing.js";
import { Share } from "./views/share.js";
import type { State } from "./page/state.js";
import { Tabs } from "./views/tabs.js";
import { applyTheme, listenToTheme } from "./page/theme.js";

async function start(): Promise<void> {
  applyTheme();
  const catalogue = await unpack<Catalogue>(byId("catalogue").textContent!);
  const explorer = new Explorer(catalogue, location.hash);
  keepHeight();
  // What stands above the picture comes first: it says how much room is left for it.
  explorer.listen((change) => showHead(explorer, change));
  const figure = new Figure(explorer);
  const tabs = new Tabs(explorer);
  byId("values").replaceChildren(
    ...Object.entries(FILL_NAMES).map(([value, name]) => h("option", { value }, name)),
  );
  const opened = [new Picker(explorer), new Share(explorer, figure)];
  listenToTools(explorer);
  listenToLane(explorer);
  listenToTheme(explorer);
  listenToPrinting(explorer, figure);
  listenToLeaps(explorer, figure);
  explorer.listen((change) => showRest(explorer, tabs, figure, change));
  const player = new Player(explorer, figure);
  keepAddress(explorer);
  // What was opened last is closed first, and the pin is let go last of all.
  const close = [...opened, player].map((each) => () => each.close());
  close.push(closeNotice);
  document.addEventListener("keydown", (event) => keys(explorer, event, close));
  showHead(explorer, "instruction");
  figure.draw();
  figure.begin();
  tabs.show("instruction");
  showRest(explorer, tabs, figure, "instruction");
  writeAddress(explorer);
  document.documentElement.dataset.ready = "yes";
}

/** The first screen is what the header leaves of the window. */
function keepHeight(): void {
  const header = document.querySelector("header")!;
  const measure = () =>
    document.documentElement.style.setProperty("--head", `${header.offsetHeight}px`);
  measure();
  new ResizeObserver(measure).observe(header);
}

function showHead(explorer: Explorer, change: Change): void {
  if (change === "instruction") showFacts(explorer);
  if (change === "instruction" || change === "picture") showTools(explorer);
}

let pinned: State["pinned"] = null;

/** Whether another element is pinned than the last time. */
function pinnedAnew({ state }: Explorer): boolean {
  const other = state.pinned !== pinned;
  pinned = state.pinned;
  return other && pinned !== null;
}

/** On a phone the card lies over the page: what is pinned is scrolled above it. */
function keepInSight({ state }: Explorer, figure: Figure): void {
  const card = byId("element");
  if (!state.pinned || getComputedStyle(card).position !== "fixed") return;
  requestAnimationFrame(() => {
    const box = state.pinned && figure.boxOf(state.pinned);
    if (!box) return;
    const over = box.y + box.height / 2 + ROOM - card.getBoundingClientRect().top;
    if (over > 0) window.scrollBy({ top: over });
  });
}

const ROOM = 24; // pixels between what is pinned and the card

function showRest(explorer: Explorer, tabs: Tabs, figure: Figure, change: Change): void {
  if (change === "view") return;
  if (change === "instruction") {
    const wrongTab = tabs.settle();
    const linked = wrongTab && !explorer.picked ? [wrongTab] : [];
    showNotice([...explorer.complaints, ...linked], explorer.remarks);
  }
  if (change === "picture" || (change === "pointer" && pinnedAnew(explorer))) closeRemarks();
  showElement(explorer);
  if (change !== "picture") keepInSight(explorer, figure);
  showResult(explorer, byId("result"));
  showLane(explorer);
}

// ── tools above the picture ─────────────────────────────────────────────────

function listenToTools(explorer: Explorer): void {
  const bind = (id: string, change: (value: string) => Partial<State>) => {
    const select = byId<HTMLSelectElement>(id);
    select.addEventListener("change", () => explorer.update(change(select.value)));
  };
  byId("values").addEventListener("change", () => {
    const { value } = byId<HTMLSelectElement>("values");
    if (value !== "own") explorer.own.begin(value as State["fill"]);
  });
  // A link holds few values of one's own: the others would be gone without a word.
  window.addEventListener("beforeunload", (event) => {
    if (explorer.own.kind === "only here") event.preventDefault();
  });
  bind("show", (name) => ({ accumulator: name as State["accumulator"] }));
  bind("sparse", (sparse) => ({ sparse: sparse as State["sparse"] }));
  bind("colour", (colour) => ({ colour: colour as State["colour"] }));
}

function showTools(explorer: Explorer): void {
  const { state } = explorer;
  showFill(explorer, byId<HTMLSelectElement>("values"));
  byId<HTMLSelectElement>("show").value = state.accumulator;
  byId<HTMLSelectElement>("colour").value = state.colour;
  byId<HTMLSelectElement>("sparse").value = explorer.sparseForm;
  byId("sparse").parentElement!.hidden =
    !explorer.scene.pattern || !explorer.matrix("A") || !explorer.matrix("metadata");
  byId("show").parentElement!.hidden = !explorer.matrix("C") || !explorer.matrix("D");
  byId("values").parentElement!.hidden = !explorer.scene.computes;
  // The target is a tool only where it changes what is shown.
  const slot = byId("target-slot");
  const asked = explorer.values?.model && document.activeElement?.id !== "target";
  if (asked) slot.replaceChildren(h("label", {}, "Target ", targetSelect(explorer, "target")));
  else if (!explorer.values?.model) slot.replaceChildren();
}

function keys(
  explorer: Explorer,
  event: KeyboardEvent,
  close: (() => boolean)[],
): void {
  const writing = (event.target as HTMLElement).matches("input, select, textarea");
  if (event.key === "Escape") {
    if (close.some((each) => each())) return;
    explorer.hover = null;
    explorer.pin(null);
    announce("Cleared");
  } else if (event.key === "/" && !writing) {
    byId("search").focus();
    event.preventDefault();
  }
}

void start();
