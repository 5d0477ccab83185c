// The page comes together here.

import { announce, byId, h, toast } from "../src/page/dom.js";
import { showNotice } from "../src/page/notice.js";
import { applyTheme, listenToTheme } from "../src/page/theme.js";
import { aligned, lineIn, twin } from "./recording/aligned.js";
import { Products, type ProductRecord } from "./recording/products.js";
import type { Recording } from "./recording/recording.js";
import { readRuns, runName } from "./recording/runs.js";
import type { Inlined } from "./recording/stack.js";
import { Values } from "./recording/values.js";
import { keepLink, openHash, runAsked } from "./session/link.js";
import { grouped, HUES, type Kind } from "./session/names.js";
import { Session, type Shared } from "./session/session.js";
import { Controls } from "./views/controls.js";
import { listenToHazards } from "./views/hazard.js";
import { listenToMade } from "./views/made.js";
import { MemoryView } from "./views/memory.js";
import { listenToPanes } from "./views/panes.js";
import { ProductView } from "./views/product.js";
import { Source } from "./views/source.js";
import { listenToStack } from "./views/stack.js";
import { Time } from "./views/time.js";
import { WatchView } from "./views/watch.js";
import { WarpView } from "./views/warp.js";

async function start(): Promise<void> {
  applyTheme();
  const all = await readRuns((name) => document.getElementById(name)?.textContent);
  if (!all.length) return fail("There is no recording in this page. Python writes one: result.replay().to_html(path).");
  const [first] = all;
  if (!first.count) return fail(`No step was recorded. ${first.head.left_out}`);
  const shell = [...document.body.children].filter((each) => !each.matches("script")).map((each) => [each, each.cloneNode(true)] as const);
  const [asked, wrong] = runAsked(all, location.hash);
  const now = all[asked].count ? asked : 0;
  const session = mount(all, now, (made) => openHash(made, location.hash), shell);
  showNotice([...wrong, ...session]);
}

/** What Python says besides about a run; if it says nothing, the first one is like it. */
function recordOf<T>(name: string, run: number): T | null {
  const own = document.getElementById(`replay-${name}${run ? `-${run}` : ""}`) ?? document.getElementById(`replay-${name}`);
  return own?.textContent ? (JSON.parse(own.textContent) as T | null) : null;
}

type Shell = (readonly [Element, Node])[];

/** Show one of the runs; what ``open`` finds wrong is returned. */
function mount(all: readonly Recording[], now: number, open: (session: Session) => string[], shell: Shell): string[] {
  const shared = JSON.parse(byId("shared").textContent!) as Shared;
  const show = (number: number) => void (number !== session.runs.now && change(session, number, shell));
  const given = recordOf<ProductRecord>("products", now);
  const products = given && new Products(all[now], given, shared);
  const session = new Session(all[now], new Values(shared.types), shared, { all, now, show }, products);
  const { head } = session.run;
  showHead(session);
  const wrong = open(session);
  listenToHazards(session);
  const time = new Time(session);
  const source = new Source(session);
  if (head.memories.length) new MemoryView(session);
  else byId("memory").hidden = true;
  new WarpView(session);
  new WatchView(session);
  listenToStack(session, recordOf<Inlined>("inlined", now) ?? {});
  new ProductView(session);
  listenToMade(session);
  new Controls(session, time, (back) => source.goOn(back));
  listenToPanes(session);
  keepHeight();
  const themed = {
    get theme() {
      return session.theme;
    },
    update: () => {
      if (session.closed) return;
      session.retheme();
      showLegend(session);
      session.changed();
    },
  };
  listenToTheme(themed);
  keepLink(session, showNotice);
  // For tests, and for whoever asks at the console.
  Object.assign(globalThis, { replay: session });
  session.listen(() => (document.documentElement.dataset.ready = "yes"));
  session.changed();
  return wrong;
}

/** What is chosen in these stays when another run is shown. */
const KEPT = ["by", "memory-colour", "memory-type", "registers-find"];

/** Another run, at the place that was looked at; the page is made anew from its shell. */
function change(from: Session, number: number, shell: Shell): void {
  const { all } = from.runs;
  if (!all[number].count) return toast(`Of the run ${runName(all[number].head)}, no step was recorded`);
  from.closed = true;
  const kept = KEPT.map((id) => [id, byId<HTMLInputElement>(id).value] as const);
  const focused = document.activeElement?.closest("#runs, .elsewhere") ? "#runs" : "";
  shell.forEach((pair, at) => {
    const fresh = pair[1].cloneNode(true) as Element;
    pair[0].replaceWith(fresh);
    shell[at] = [fresh, pair[1]];
  });
  mount(all, number, (session) => (carry(from, session), []), shell);
  for (const [id, value] of kept) {
    const element = byId<HTMLInputElement>(id);
    element.value = value;
    if (element.value === value) element.dispatchEvent(new Event(element.matches("input") ? "input" : "change"));
  }
  const pane = document.querySelector<HTMLElement>(`#panes [data-pane="${document.body.dataset.pane}"]`);
  pane?.click();
  if (focused) document.querySelector<HTMLElement>("#runs [aria-pressed=true]")?.focus();
  announce(`Run ${runName(all[number].head)}`);
}

/** Look at what was looked at in another run. */
function carry(from: Session, to: Session): void {
  const met = from.met?.step === from.step ? from.met : null;
  const problem = from.problem ?? met?.problem;
  const of = from.problem ? from.run : (met?.of ?? from.run);
  const same = problem ? twin(of, problem, to.run) : -1;
  const access = problem ? Math.max(0, of === from.run ? problem.steps.indexOf(from.step) : problem.steps.length - 1) : -1;
  const there = same >= 0 ? to.run.head.problems[same].steps[access] : -1;
  const step = there >= 0 ? there : (aligned(from.run, from.step, to.run) ?? 0);
  to.go(step);
  if (same >= 0) to.which = same;
  else if (problem) to.met = { problem, of, step };
  to.watch = from.watch;
  to.product = from.product;
  to.search(from.finding);
  const { memory, at, line } = from;
  const named = to.run.head.memories.findIndex(({ name }) => name === from.run.head.memories[memory]?.name);
  to.lane = from.lane;
  if (named >= 0) to.memory = named;
  if (named >= 0 && at?.memory === memory && at.offset < to.run.head.memories[named].size) to.at = { memory: named, offset: at.offset };
  to.line = line && lineIn(from.run.head, line, to.run.head);
  to.breaks = from.breaks.flatMap((each) => lineIn(from.run.head, each, to.run.head) ?? []);
}

function fail(words: string): void {
  byId("main").replaceChildren(h("p", { class: "fail" }, words));
  document.documentElement.dataset.ready = "yes";
}

function showHead(session: Session): void {
  const { kernel, target, schedule, grid, block, cluster, left_out, problems, first = 0, total = 0 } = session.run.head;
  document.title = `${kernel} · fragmenta replay`;
  byId("kernel").textContent = kernel;
  const sizes = (size: number[]) => size.filter((each, at) => each > 1 || at === 0).join(" × ");
  const facts: [string, string][] = [
    ["target", target],
    ["grid", sizes(grid)],
    ["block", sizes(block)],
    ...(cluster && cluster.some((each) => each > 1) ? ([["cluster", sizes(cluster)]] as [string, string][]) : []),
    ["schedule", schedule],
  ];
  byId("facts").replaceChildren(
    ...facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
  showRuns(session);
  byId("problems").hidden = !problems.length;
  byId("problem-count").textContent = `${problems.length} problem${problems.length === 1 ? "" : "s"}`;
  const counted = first > 0 ? `Step 0 of this page is step ${grouped(first)} of ${grouped(total)} of the run.` : "";
  byId("left-out").textContent = [sentence(left_out), counted].filter(Boolean).join(" ");
  byId("left-out").hidden = !byId("left-out").textContent;
  showLegend(session);
}

function showRuns({ runs }: Session): void {
  byId("runs").hidden = runs.all.length < 2;
  const buttons = runs.all.map(({ head }, number) =>
    h("button", { type: "button", "aria-pressed": String(number === runs.now), onclick: () => runs.show(number) }, runName(head)),
  );
  byId("runs").replaceChildren(...buttons);
}

const sentence = (text: string): string =>
  text && text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

function showLegend({ hues }: Session): void {
  byId("kinds").replaceChildren(
    ...(Object.keys(HUES) as Kind[]).map((kind) => {
      const [hue, shade, words] = HUES[kind];
      return h("li", {}, h("span", { class: "key", style: `background:${hues[hue * 4 + shade]}` }), words);
    }),
  );
}

/** The page is what the header leaves of the window. */
function keepHeight(): void {
  const header = document.querySelector("header")!;
  const measure = () =>
    document.documentElement.style.setProperty("--head", `${header.offsetHeight}px`);
  measure();
  new ResizeObserver(measure).observe(header);
}

start().catch((error: Error) => fail(`This recording cannot be read: ${error.message}`));
