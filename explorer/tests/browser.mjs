// A browser for the tests: the system's Chromium, from the file system only.

import assert from "node:assert/strict";
import { accessSync, constants } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
const built = join(here, "../../src/fragmenta/inspect/view/explorer.html");

export const PAGE = pathToFileURL(process.env.EXPLORER_PAGE ?? built).href;

const NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"];
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** The browser's path: CHROMIUM, or the first on the PATH. */
export function executable() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    for (const name of NAMES) {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return join(folder, name);
      } catch {
        // not in this folder
      }
    }
  }
  throw new Error(`no Chromium: none of ${NAMES.join(", ")} is on the PATH`);
}

// Playwright gives each launch a profile of its own, new and empty.
export const launch = () =>
  chromium.launch({ executablePath: executable(), headless: true, args: FLAGS });

/** Milliseconds after which a page hangs; nothing takes as long on any machine. */
export const HANG = Number(process.env.HANG ?? 600_000);

/** A page that has finished drawing; what the console says is kept. */
export async function open(browser, hash = "", settings = {}, address = PAGE) {
  const viewport = { width: 1500, height: 950 };
  const context = await browser.newContext({ viewport, ...settings });
  context.setDefaultTimeout(HANG);
  const page = await context.newPage();
  page.said = [];
  page.on("console", (message) =>
    page.said.push(`${message.type()}: ${message.text()}`),
  );
  page.on("pageerror", (error) => page.said.push(`error: ${error.message}`));
  page.on("request", (request) => {
    if (!/^(file|data|blob):/.test(request.url()))
      page.said.push(`asked for ${request.url()}`);
  });
  await page.goto(address + hash);
  await page.waitForSelector("html[data-ready]");
  return page;
}

/** Move the mouse to an element; ``click`` pins it. */
export async function pointAt(page, matrix, row, col, { click = false, m = 0 } = {}) {
  const at = await page.evaluate(
    ({ name, spot }) => {
      const figure = document.getElementById("figure");
      figure.scrollIntoView({ block: "nearest" });
      const label = document
        .querySelector(`.stage[data-matrix="${name}"]`)
        .getAttribute("aria-label");
      const [, rows, cols] = /(\d+) by (\d+)$/.exec(label).map(Number);
      const [m, row, col] = spot;
      return figure.pointOf({ matrix: name, index: (m * rows + row) * cols + col });
    },
    { name: matrix, spot: [m, row, col] },
  );
  await page.mouse.move(at.x, at.y);
  if (click) await page.mouse.click(at.x, at.y);
}

/** How many pixels of the marks over a matrix are painted. */
export const painted = (page, matrix) =>
  page.evaluate((name) => {
    const over = document.querySelector("#figure .over");
    const stage = document.querySelector(`.stage[data-matrix="${name}"]`);
    const [all, box] = [over, stage].map((each) => each.getBoundingClientRect());
    // Read from a copy: reading slows the canvas itself down, and Chromium warns.
    const [width, height] = [Math.ceil(box.width), Math.ceil(box.height)];
    const copy = new OffscreenCanvas(width, height).getContext("2d", {
      willReadFrequently: true,
    });
    copy.drawImage(over, all.left - box.left, all.top - box.top);
    const { data } = copy.getImageData(0, 0, width, height);
    let count = 0;
    for (let at = 3; at < data.length; at += 4) if (data[at]) count += 1;
    return count;
  }, matrix);

/** Run the tests whose names contain the word on the command line, then end the process. */
export async function run(tests) {
  const only = process.argv[2] ?? "";
  const browser = await launch();
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    if (!name.includes(only)) continue;
    const started = Date.now();
    try {
      const page = await test(browser);
      // Whatever else was tested: nothing was complained about, nothing fetched.
      if (page) assert.deepEqual(page.said, [], "the console says");
      console.log(`ok   ${name} (${Date.now() - started} ms)`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL ${name}\n${error.stack}`);
    }
    for (const context of browser.contexts()) await context.close();
  }
  await browser.close();
  console.log(failed ? `${failed} failed` : "all passed");
  process.exit(failed ? 1 : 0);
}

/** The page has drawn what was asked for: its next frame, and the one after it. */
export const drawn = (page) =>
  page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/** Milliseconds that the page's own thread has spent: other programs do not count in it. */
export async function clockOf(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  return async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    return 1000 * metrics.find(({ name }) => name === "ThreadTime").value;
  };
}

/** How much longer all takes now: threads that share a core slow each other down. */
export const slower = () => Math.min(4, Math.max(1, loadavg()[0] / availableParallelism()));

/** Each of the acts takes less than 40 ms, and nine of ten rounds less than a frame of 50. */
export async function areQuick(page, acts, rounds) {
  const spent = await clockOf(page);
  const busy = slower();
  for (const [name, act] of Object.entries(acts)) {
    const times = [];
    for (let at = 0; at < rounds; at += 1) {
      const before = await spent();
      await page.evaluate(act, at);
      await drawn(page);
      times.push((await spent()) - before);
    }
    const median = times.sort((a, b) => a - b)[rounds / 2];
    const most = times[Math.ceil(rounds * 0.9) - 1];
    if (process.env.SAY_TIMES) console.log(`     ${name}: ${median.toFixed(0)} ms, at most ${times.at(-1).toFixed(0)} ms`);
    assert.ok(median < 40 * busy, `${name} took ${median.toFixed(0)} ms`);
    assert.ok(most < 50 * busy, `${name} took ${most.toFixed(0)} ms in nine of ten rounds`);
  }
}
