// What is seen only by looking: labels on a phone, the card there, wires, holders, paper; in
// a real browser, run by run.mjs.

import assert from "node:assert/strict";
import { open } from "./browser.mjs";

const DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
const SCALED =
  "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X" +
  ".f32.e2m1.e2m1.f32.ue4m3";
const LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16";
const DESK = { viewport: { width: 1440, height: 900 } };
const PHONE = { viewport: { width: 390, height: 844 } };

/** The words of the whole picture, as it is saved. */
const written = (page) =>
  page.evaluate(() => {
    const svg = document.querySelector("#figure").picture();
    const found = new DOMParser().parseFromString(svg, "image/svg+xml");
    return [...found.querySelectorAll("text")].map(({ textContent }) => textContent);
  });

export const SEEN = {
  async "search: mma.sp is what the command line takes, not the ordered one"(browser) {
    const page = await open(browser, `#op=${DENSE}`, DESK);
    await page.fill("#search", "mma.sp.m16n8k64.s4.s4");
    const active = await page.getAttribute("#results .active", "data-name");
    assert.equal(active, "mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32");
    return page;
  },

  async "wires: the lines of all six operands of nvfp4 are there at 1440"(browser) {
    const page = await open(browser, `#op=${SCALED}`, DESK);
    const names = await page.locator("#wiring .lines dt").allInnerTexts();
    assert.deepEqual(names, ["A", "B", "C", "D", "scale A", "scale B"]);
    const fits = await page.evaluate(() => {
      const { scrollHeight, clientHeight } = document.querySelector("#wiring");
      return scrollHeight <= clientHeight;
    });
    assert.ok(fits);
    return page;
  },

  async "explain: lanes and registers of both factors are in the table"(browser) {
    const page = await open(browser, `#op=${DENSE}&values=small&tab=explain&at=D[3][5]`, DESK);
    const heads = await page.locator("#panel .terms thead th").allInnerTexts();
    assert.deepEqual(heads.slice(0, 5), ["k", "a", "a in", "b", "b in"]);
    const first = page.locator("#panel .terms tbody tr").first();
    assert.equal(await first.locator("th").innerText(), "0");
    assert.deepEqual(await first.locator(".holder").allInnerTexts(), ["T12 r0", "T20 r0"]);
    return page;
  },

  async "phone: A and ldmatrix say whose registers they are"(browser) {
    for (const op of [DENSE, LDMATRIX]) {
      const page = await open(browser, `#op=${op}`, PHONE);
      const said = await written(page);
      // Every lane of a warp is somewhere, as T31 or as 31.
      for (let lane = 0; lane < 32; lane++) {
        const times = said.filter((each) => each === `${lane}` || each.startsWith(`T${lane}`));
        assert.ok(times.length >= 2, `${op}: lane ${lane}`);
      }
      const bare = said.filter((each) => each === "31").length;
      assert.ok(bare >= 2, `${op}: A has numbers of lanes`);
      await page.context().close();
    }
  },

  async "phone: the card does not lie over what is pinned"(browser) {
    const page = await open(browser, `#op=${DENSE}&at=D[15][4]`, PHONE);
    await page.waitForFunction(() => window.scrollY > 0);
    const [pinned, card] = await page.evaluate(() => {
      const { top } = document.querySelector("#element").getBoundingClientRect();
      const matrix = document.querySelector("#figure");
      return [matrix.pointOf({ matrix: "D", index: 15 * 8 + 4 }).y, top];
    });
    assert.ok(pinned < card, `${pinned} is below ${card}`);
    return page;
  },

  async "paper: the picture, the pinned element and the open tab"(browser) {
    const page = await open(browser, `#op=${DENSE}&values=small&tab=explain&at=D[3][5]`, DESK);
    await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
    await page.emulateMedia({ media: "print" });
    const said = await page.locator("#printed").innerText();
    assert.match(said, /D\[3\]\[5\]/);
    assert.match(said, /Step 1 of 1: 16 products/);
    assert.equal(await page.locator("#printed > svg").count(), 1);
    assert.equal(await page.locator("#printed button, #printed input").count(), 0);
    await page.evaluate(() => window.dispatchEvent(new Event("afterprint")));
    assert.equal(await page.locator("#printed > *").count(), 0);
    return page;
  },

  async "play: what flies stops at the edge of the element"(browser) {
    const motion = { ...DESK, reducedMotion: "no-preference" };
    const page = await open(browser, `#op=${DENSE}&values=small&at=D[3][5]`, motion);
    await page.click("#play");
    await page.waitForSelector(".flying");
    const [chips, middle] = await page.evaluate(() => {
      const goals = document.getAnimations().flatMap(({ effect }) =>
        effect?.target?.classList.contains("flying")
          ? [effect.getKeyframes().at(-1).transform.match(/-?[\d.]+/g).map(Number)]
          : [],
      );
      return [goals, document.querySelector("#figure").pointOf({ matrix: "D", index: 29 })];
    });
    assert.equal(chips.length, 2);
    for (const [x, y] of chips) {
      assert.ok(Math.hypot(x - middle.x, y - middle.y) > 18, `${x} ${y}`);
    }
    return page;
  },
};
