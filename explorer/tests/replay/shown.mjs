// What the page of a recorded run shows while it is used, for Python to compare with what
// was recorded: node tests/replay/shown.mjs FOLDER
//
// FOLDER has pages and acts.json: for each page what is done in it, one act after the other.
// After each act everything that is shown is read; shown.json gets it.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { launch, open } from "../browser.mjs";

const folder = process.argv[2];
const SETTINGS = { viewport: { width: 1440, height: 1000 } };

const ACTS = {
  key: (page, key) => page.keyboard.press(key),
  /** Go to a step by typing its number. */
  async seek(page, step) {
    await page.fill("#step", String(step));
    await page.press("#step", "Enter");
    await away(page);
  },
  async look(page, warp, lane) {
    await page.selectOption("#warp-pick", String(warp));
    await page.fill("#lane-pick", String(lane));
    await page.press("#lane-pick", "Enter");
    await away(page);
  },
  /** Click a register that is seen. */
  async register(page, which) {
    const rows = page.locator("#registers .register");
    await rows.nth(which % (await rows.count())).click();
    await away(page);
  },
  /** Choose a memory and click the element with a byte, if it is drawn. */
  async byte(page, memory, offset) {
    await page.selectOption("#memory-pick", String(memory));
    await drawn(page);
    const at = await page.evaluate((each) => document.getElementById("map").pointOf(each), offset);
    await drawn(page);
    if (at) await page.mouse.click(at.x, at.y);
    await away(page);
  },
};

/** Nothing is pointed at, and no field has the focus. */
async function away(page) {
  await page.mouse.move(2, 2);
  await page.evaluate(() => document.activeElement?.blur());
}

/** All views draw in the next frame; who asks later is called later. */
const drawn = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(done)));

/** Everything that is shown, as text. */
function shown() {
  const one = (selector) => document.querySelector(selector)?.textContent ?? "";
  const each = (selector, read) => [...document.querySelectorAll(selector)].map(read);
  const part = (row, name) => row.querySelector(name)?.textContent ?? "";
  const lines = (selector) =>
    each(`${selector} .code`, (row) => [Number(row.dataset.line), part(row, ".runs"), part(row, ".text"), row.classList.contains("now")]);
  const { step, warp, lane, memory, at } = globalThis.replay;
  return {
    // Where the page stands; all else is what it says about that.
    stands: { step, warp, lane, memory, at: at && at.memory === memory ? at.offset : null },
    step: document.getElementById("step").value,
    instruction: one("#instruction"),
    where: one("#instruction-said"),
    lanes: one("#lanes-said"),
    registers: each("#registers .register", (row) => [Number(row.dataset.register), part(row, ".name"), part(row, ".type"), part(row, ".value")]),
    all: {
      name: one("#all-lanes code"),
      about: one("#all-lanes p"),
      lanes: each("#all-lanes .grid > span", (cell) => cell.title),
    },
    byte: {
      what: one("#byte .what"),
      value: one("#byte-value"),
      who: each("#byte .who dt", (term) => [term.textContent, term.nextElementSibling.textContent]),
    },
    file: document.getElementById("file").value,
    source: lines("#source-code"),
    ptx: lines("#ptx-code"),
    hazard: document.getElementById("hazard").hidden ? "" : one("#hazard strong"),
  };
}

/** Use one page. */
async function use(browser, { page: name, acts }) {
  const page = await open(browser, "", SETTINGS, pathToFileURL(join(folder, name)).href);
  const seen = [await page.evaluate(shown)];
  for (const [act, ...given] of acts) {
    await ACTS[act](page, ...given);
    await drawn(page);
    seen.push(await page.evaluate(shown));
  }
  await page.context().close();
  return { page: name, said: page.said, seen };
}

const browser = await launch();
const todo = JSON.parse(readFileSync(join(folder, "acts.json"), "utf8"));
const found = new Array(todo.length);
let next = 0;
// While one page waits for its frames, another is used.
const workers = Array.from({ length: 3 }, async () => {
  while (next < todo.length) {
    const mine = next++;
    found[mine] = await use(browser, todo[mine]);
  }
});
await Promise.all(workers);
await browser.close();
writeFileSync(join(folder, "shown.json"), JSON.stringify(found));
