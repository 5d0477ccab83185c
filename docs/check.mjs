// Does the built site work in a browser, opened from its folder?
//
//     node docs/check.mjs          # make docs does this where Chromium is
//
// What is wrong is printed, and the exit status is 1.

import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { HANG, launch } from "../explorer/tests/browser.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const site = join(root, "build/site");
/** The smallest letters that are allowed, in pixels. */
const SMALLEST = 9;
const wrong = [];

function expect(fine, told) {
  if (!fine) wrong.push(told);
}

async function open(browser, size) {
  const page = await browser.newPage({ viewport: size });
  page.on("pageerror", (error) => wrong.push(`${page.url()}: ${error.message}`));
  page.on("request", (request) => {
    const url = request.url();
    expect(/^(file|data|blob|about):/.test(url), `${page.url()} asks for ${url}`);
  });
  return page;
}

const go = (page, name) => page.goto(pathToFileURL(join(site, name)).href);

async function searching(page) {
  await go(page, "index.html");
  await page.locator(".md-search__input").click();
  await page.locator(".md-search__input").pressSequentially("swizzle");
  const found = page.locator(".md-search-result__item");
  await found.first().waitFor({ timeout: HANG }).catch(() => wrong.push("search from a folder finds nothing"));
}

async function explaining(page) {
  await go(page, "fragment.html");
  const widget = page.locator("[data-widget=lanes]");
  const told = widget.locator(".fm-told p").first();
  const box = await widget.locator(".fm-tile-A svg").boundingBox();
  const view = await widget.locator(".fm-tile-A svg").evaluate((svg) => svg.viewBox.baseVal.width);
  const scale = box.width / view;
  await page.mouse.move(0, 0);
  const [cell, wide] = view > 500 ? [18, 34] : [20, 22];
  const at = (row, col) => [20 + (col + 0.5) * wide, 16 + (row + 0.5) * cell];
  const [x, y] = at(8, 3);
  await widget.locator(".fm-tile-A svg").hover({ position: { x: x * scale, y: y * scale } });
  expect((await told.textContent()) === "A[8, 3] is in lane 1, register 1, bits 31:16.", `pointing: ${await told.textContent()}`);
  const link = await widget.locator(".fm-open a").getAttribute("href");
  expect(/^explorer\.html#op=mma.*&at=A\[8\]\[3\]$/.test(link), `the element is linked: ${link}`);
  await widget.locator("input[type=range]").fill("31");
  expect((await told.textContent()).includes("lane 31"), "the slider shows its lane");
  const bit = page.locator("[data-widget=wires] .fm-switch").first();
  const before = await bit.getAttribute("aria-checked");
  await bit.press("Enter");
  expect((await bit.getAttribute("aria-checked")) !== before, "a switch can be switched by keys");
  await page.locator("[data-widget=types] label", { hasText: "s4" }).click();
  expect((await page.locator("[data-widget=types] .fm-register button").count()) === 8, "eight s4 in a register");
}

async function filtering(page) {
  await go(page, "instructions.html");
  const count = async () => parseInt((await page.locator(".fm-count").textContent()).replace(",", ""), 10);
  const every = await count();
  await page.locator(".fm-filter input").fill("sparse int4 16x8x64");
  const some = await count();
  expect(every > 4000 && some > 0 && some < 20, `of ${every} rows, words leave ${some}`);
  const href = await page.locator(".fm-table a").first().getAttribute("href");
  expect(/^explorer\.html#op=mma\.sp/.test(href), `a row leads to ${href}`);
  await page.locator(".fm-filter input").fill("");
  await page.getByLabel("target").selectOption("sm_70");
  expect((await count()) < every, "a target leaves some rows out");
  expect((await page.locator(".fm-table tbody tr").count()) === 50, "a page has 50 rows");
}

async function zooming(page) {
  await go(page, "layouts.html");
  await page.locator("img.fm-zoomable").first().click();
  const told = page.locator("dialog.fm-zoom output");
  const before = parseInt(await told.textContent(), 10);
  await page.mouse.move(400, 400);
  await page.mouse.wheel(0, -400);
  await page.waitForFunction((b) => parseInt(document.querySelector("dialog.fm-zoom output").textContent, 10) > b, before, { timeout: HANG })
    .catch(() => wrong.push("the wheel does not zoom"));
  await page.keyboard.press("Escape");
  expect((await page.locator("dialog.fm-zoom").count()) === 0, "Escape closes the picture");
}

/** Nothing sticks out of the window, and letters can be read. */
async function fitting(page, name) {
  await go(page, name);
  const [out, small] = await page.evaluate((least) => {
    const seen = [...document.querySelectorAll(".fm-widget text, .fm-widget button, .fm-hero *")];
    const size = (node) => {
      const box = node.ownerSVGElement;
      const scale = box ? box.getBoundingClientRect().width / box.viewBox.baseVal.width : 1;
      return parseFloat(getComputedStyle(node).fontSize) * scale;
    };
    const shown = seen.filter((node) => node.textContent && node.getBoundingClientRect().width);
    const root = document.documentElement;
    return [root.scrollWidth - root.clientWidth, shown.filter((node) => size(node) < least - 0.05).length];
  }, SMALLEST);
  expect(out <= 0, `${name} is ${out} pixels wider than the window`);
  expect(small === 0, `${name} has ${small} texts below ${SMALLEST} pixels`);
}

const PAGES = ["index.html", "install.html", "fragment.html", "gallery.html", "instructions.html", "families/mma.html", "benchmarks/h200-layers.html", "hazards.html", "reference/api.html"];
const browser = await launch();
const wide = await open(browser, { width: 1440, height: 900 });
for (const act of [searching, explaining, filtering, zooming]) {
  await act(wide).catch((error) => wrong.push(`${act.name}: ${error.message.split("\n")[0]}`));
}
const phone = await open(browser, { width: 390, height: 844 });
await explaining(phone).catch((error) => wrong.push(`explaining on a phone: ${error.message.split("\n")[0]}`));
for (const name of PAGES) {
  await fitting(phone, name);
  await fitting(wide, name);
}
await browser.close();
console.log(wrong.join("\n") || "the site works in a browser");
process.exit(wrong.length ? 1 : 0);
