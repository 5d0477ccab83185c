// The page comes together here.

import { byId, h } from "../src/page/dom.js";
import { showNotice } from "../src/page/notice.js";
import { applyTheme, listenToTheme } from "../src/page/theme.js";
import { inflate, split } from "./recording/columns.js";
import { readHead } from "./recording/head.js";
import { Products, type ProductRecord } from "./recording/products.js";
import { Recording } from "./recording/recording.js";
import type { Inlined } from "./recording/stack.js";
import { Values } from "./recording/values.js";
import { keepLink, openHash } from "./session/link.js";
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
  const text = document.getElementById("replay-head")?.textContent;
  if (!text) return fail("There is no recording in this page. Python writes one: result.replay().to_html(path).");
  const head = readHead(text);
  const columns = split(head, await inflate(byId("replay-data").textContent!));
  const shared = JSON.parse(byId("shared").textContent!) as Shared;
  const run = new Recording(head, columns);
  const given = document.getElementById("replay-products")?.textContent;
  const products = given ? new Products(run, JSON.parse(given) as ProductRecord, shared) : null;
  const session = new Session(run, new Values(shared.types), shared, products);
  if (!session.run.count) return fail(`No step was recorded. ${head.left_out}`);
  showHead(session);
  const wrong = openHash(session, location.hash);
  listenToHazards(session);
  const time = new Time(session);
  const source = new Source(session);
  if (head.memories.length) new MemoryView(session);
  else byId("memory").hidden = true;
  new WarpView(session);
  new WatchView(session);
  listenToStack(session, JSON.parse(document.getElementById("replay-inlined")?.textContent || "{}") as Inlined);
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
      session.retheme();
      showLegend(session);
      session.changed();
    },
  };
  listenToTheme(themed);
  keepLink(session, showNotice);
  showNotice(wrong);
  // For tests, and for whoever asks at the console.
  Object.assign(globalThis, { replay: session });
  session.listen(() => (document.documentElement.dataset.ready = "yes"));
  session.changed();
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
  byId("problems").hidden = !problems.length;
  byId("problem-count").textContent = `${problems.length} problem${problems.length === 1 ? "" : "s"}`;
  const counted = first > 0 ? `Step 0 of this page is step ${grouped(first)} of ${grouped(total)} of the run.` : "";
  byId("left-out").textContent = [sentence(left_out), counted].filter(Boolean).join(" ");
  byId("left-out").hidden = !byId("left-out").textContent;
  showLegend(session);
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
