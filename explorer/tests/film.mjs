// The frames of the animated picture in the README: node tests/film.mjs FOLDER
// docs/plots/film.py puts them together.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { launch, open, pointAt } from "./browser.mjs";

const folder = process.argv[2] ?? "film";
mkdirSync(folder, { recursive: true });
const FIRST = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";

const browser = await launch();
const page = await open(browser, `#op=${FIRST}`, {
  viewport: { width: 1440, height: 900 },
});
/** File names and milliseconds. */
const frames = [];

async function shoot(milliseconds) {
  const name = `${String(frames.length).padStart(3, "0")}.png`;
  await page.screenshot({ path: join(folder, name) });
  frames.push([name, milliseconds]);
}

/** Screenshots have no pointer, so the page draws one. */
async function drawPointer() {
  await page.evaluate(() => {
    const pointer = document.createElement("div");
    pointer.style.cssText =
      "position:fixed;z-index:99;width:18px;height:18px;margin:-9px;" +
      "border-radius:50%;border:2px solid #d55e00;pointer-events:none;left:-50px";
    document.body.append(pointer);
    addEventListener("pointermove", (event) => {
      pointer.style.left = `${event.clientX}px`;
      pointer.style.top = `${event.clientY}px`;
    });
  });
}

await drawPointer();
await shoot(1200);
// Search.
await page.locator("#search").click();
for (const part of ["sparse", " int4", " 16x", "8x64"]) {
  await page.keyboard.type(part);
  await shoot(300);
}
await shoot(900);
await page.keyboard.press("Enter");
await page.keyboard.press("Escape");
await shoot(1200);
// Point at elements.
for (const [row, col] of [
  [1, 4],
  [3, 9],
  [5, 14],
  [9, 20],
]) {
  await pointAt(page, "A", row, col);
  await shoot(700);
}
// Pin a result.
await page.locator("#values").selectOption("small");
await pointAt(page, "D", 3, 5);
await shoot(700);
await page.mouse.down();
await page.mouse.up();
await shoot(2200);
// The codes that say which columns are kept.
await page.locator('[role="tab"]', { hasText: "Metadata" }).click();
await pointAt(page, "metadata", 3, 2);
await shoot(2600);
writeFileSync(join(folder, "frames.json"), JSON.stringify(frames));
await browser.close();
