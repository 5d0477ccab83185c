// A browser for the tests: the system's Chromium, from the file system only.

import { accessSync, constants } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
const built = join(here, "../../src/fragmenta/view/explorer.html");

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

/** A page that has finished drawing; what the console says is kept. */
export async function open(browser, hash = "", settings = {}) {
  const viewport = { width: 1500, height: 950 };
  const context = await browser.newContext({ viewport, ...settings });
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
  await page.goto(PAGE + hash);
  await page.waitForSelector("html[data-ready]");
  return page;
}

/** Move the mouse to an element; ``click`` pins it. */
export async function pointAt(page, matrix, row, col, { click = false } = {}) {
  const stage = page.locator(`.stage[data-matrix="${matrix}"]`);
  await stage.scrollIntoViewIfNeeded();
  const box = await stage.boundingBox();
  const label = await stage.getAttribute("aria-label");
  const [, rows, cols] = /(\d+) by (\d+)$/.exec(label).map(Number);
  const [left, top] = [34, 18];
  const x = box.x + left + ((box.width - left - 1) * (col + 0.5)) / cols;
  const y = box.y + top + ((box.height - top - 1) * (row + 0.5)) / rows;
  await page.mouse.move(x, y);
  if (click) await page.mouse.click(x, y);
}
