// Around the picture: the search box, keys, the phone, paper, and values that no link has.

import assert from "node:assert/strict";
import { inflateRawSync } from "node:zlib";
import { open } from "./browser.mjs";

const DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
const SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32";

const box = (page, selector) => page.locator(selector).boundingBox();
const where = (page) => page.evaluate(() => location.href);

export const FRAME = {
  async "header: the search has room, and no tool is hidden"(browser) {
    const page = await open(browser, `#op=${SPARSE}`);
    for (const width of [390, 1000, 1100, 1440]) {
      await page.setViewportSize({ width, height: 844 });
      assert.ok((await box(page, ".find")).width >= 220, `${width}`);
      for (const tool of ["#values", "#sparse", "#play", "#share", "#theme"]) {
        const { x, width: wide } = await box(page, tool);
        assert.ok(x >= 0 && x + wide <= width, `${tool} at ${width}`);
      }
    }
    await page.setViewportSize({ width: 390, height: 844 });
    await page.fill("#search", "nvfp4");
    const heights = await page.evaluate(() =>
      [...document.querySelectorAll("#results .main span, #words button, #results .variant")].map(
        (each) => [each.matches("span"), each.offsetHeight],
      ),
    );
    for (const [types, height] of heights) assert.ok(types ? height < 22 : height >= 24, height);
    return page;
  },

  async "keys: the words are one stop of Tab, and Escape in the search keeps the pin"(browser) {
    const page = await open(browser, `#op=${DENSE}&at=D[1][1]`);
    await page.keyboard.press("/");
    let stops = 1;
    const inMatrix = () => page.evaluate(() => document.activeElement.matches(".stage"));
    for (; stops < 20 && !(await inMatrix()); stops++) await page.keyboard.press("Tab");
    assert.ok(stops < 14, `${stops} stops`);
    await page.focus("#search");
    await page.keyboard.press("Tab");
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "wgmma");
    await page.keyboard.press("Escape");
    assert.equal(await page.isVisible("#results"), false);
    assert.equal(await page.evaluate(() => document.activeElement.id), "search");
    await page.keyboard.press("Escape");
    assert.match(await where(page), /at=D\[1\]\[1\]/);
    return page;
  },

  async "own values: a pasted matrix is in the link, a word is named"(browser) {
    const page = await open(browser, `#op=${DENSE}&tab=explain`);
    const use = async (text) => {
      await page.fill("#own-text", text);
      await page.click("#own-use");
    };
    await use("1 two 3");
    assert.match(await page.textContent("#own-said"), /"two" in row 0, column 1 is not a number/);
    await use("1 2\n3");
    assert.match(await page.textContent("#own-said"), /all rows must be equally long/);
    await use("1 2 3");
    assert.match(await page.textContent("#own-said"), /A is 16 × 16; given 1 × 3/);
    const row = Array.from({ length: 16 }, (_, at) => at + 100).join(" ");
    await use(Array.from({ length: 16 }, () => row).join("\n"));
    await page.click("#share");
    await page.click("#copy-link");
    await page.waitForSelector("text=Link copied; it opens on this machine only");
    assert.equal(await page.inputValue("#values"), "own");
    await page.waitForFunction(() => /&own=[\w-]+/.test(location.hash));
    const hash = await page.evaluate(() => location.hash);
    assert.ok(hash.length < 700, `${hash.length} letters`);
    const other = await open(browser, hash);
    await other.waitForFunction(() => document.getElementById("values").value === "own");
    assert.match(await other.inputValue("#own-text"), /^100\s+101/);
    await other.selectOption("#values", "identity");
    assert.doesNotMatch(await where(other), /own=/);
    return other;
  },

  async "paper: the title, the facts and the picture, on one page"(browser) {
    const page = await open(browser, `#op=${DENSE}`, { colorScheme: "dark" });
    const pdf = (await page.pdf({ format: "A4" })).toString("latin1");
    assert.equal(pdf.match(/\/Type\s*\/Page\b/g).length, 1);
    await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
    await page.emulateMedia({ media: "print" });
    assert.equal(await page.locator("#printed svg").isVisible(), true);
    const packed = Buffer.from(await page.textContent("#catalogue"), "base64");
    const { lanes } = JSON.parse(inflateRawSync(packed).toString());
    const printed = await page.locator("#printed").innerHTML();
    assert.ok(printed.includes(lanes.light[0]) && !printed.includes(lanes.dark[0]));
    for (const each of ["header", ".bench", ".tabline", ".below"]) {
      assert.equal(await page.isVisible(each), false, each);
    }
    return page;
  },
};
