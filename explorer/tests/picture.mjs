// The picture: what fits, what is written, and what is under the pointer.

import assert from "node:assert/strict";
import { open, painted, pointAt } from "./browser.mjs";

const SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32";
const LONG = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32";
const WIDE = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16";
const SCALED =
  "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3";
const DESK = { viewport: { width: 1440, height: 900 } };

/** Instructions whose A, B and D, codes and scales are seen without scrolling. */
const NAMED = [
  LONG,
  SPARSE,
  SCALED,
  WIDE,
  "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
  "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
  "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
  "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc",
  "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
  "wmma.mma.sync.aligned.row.row.m8n32k16.f16.f16",
  "wgmma.mma_async.sp.sync.aligned.m64n64k64.f32.e4m3.e4m3",
  "tcgen05.mma.cta_group::1.kind::f16 0x08400010",
  "tcgen05.mma.cta_group::2.kind::mxf4.block_scale 0x08900480",
];

const text = (page, selector) => page.locator(selector).innerText();
const facts = (page) =>
  text(page, "#element dl").then((said) => said.replace(/\s+/g, " "));

const go = (page, hash) =>
  page.evaluate(async (to) => {
    const changed = new Promise((done) =>
      addEventListener("hashchange", done, { once: true }),
    );
    location.hash = to;
    await changed;
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  }, hash);

/** The picture as it is saved, or what is seen of it, with its texts measured. */
const measured = (page, seen = false) =>
  page.evaluate((part) => {
    const host = document.createElement("div");
    host.style = "position:absolute;left:0;top:0;visibility:hidden";
    host.innerHTML = document.getElementById("figure").picture(part);
    document.body.append(host);
    const box = (node) => {
      const { x, y, width, height } = node.getBBox();
      return { x, y, width, height };
    };
    const texts = [...host.querySelectorAll("text")].map((node) => ({
      said: node.textContent,
      size: Number(node.getAttribute("font-size")),
      ...box(node),
    }));
    const frames = [...host.querySelectorAll('rect[fill="none"]')].map(box);
    const { width, height } = host.querySelector("svg").viewBox.baseVal;
    host.remove();
    return { texts, frames, width, height };
  }, seen);

/** Where each operand is in the picture. */
const stages = (page) =>
  page.evaluate(() => {
    const { left, top } = document.getElementById("figure").getBoundingClientRect();
    const found = [...document.querySelectorAll(".stage")].map((stage) => {
      const { x, y, width, height } = stage.getBoundingClientRect();
      return [stage.dataset.matrix, { x: x - left, y: y - top, width, height }];
    });
    return Object.fromEntries(found);
  });

const within = (one, other, slack) =>
  one.x >= other.x - slack &&
  one.x + one.width <= other.x + other.width + slack &&
  one.y + one.height / 2 >= other.y &&
  one.y + one.height / 2 <= other.y + other.height;

const overlap = (one, other) =>
  one.x < other.x + other.width &&
  other.x < one.x + one.width &&
  Math.abs(one.y - other.y) < 6;

const svg = (page, seen = false) =>
  page.evaluate((part) => document.getElementById("figure").picture(part), seen);

export const PICTURE = {
  async "pairs: CTAs, halves of lanes and warps are drawn and named"(browser) {
    const pair = "tcgen05.mma.cta_group::2.kind::f16 0x08200010";
    const page = await open(browser, `#op=${pair}`);
    const drawn = await svg(page);
    for (const said of ["CTA 0", "CTA 1", "0, 2", "1, 3", "lanes 0–63", "lanes 64–127"]) {
      assert.ok(drawn.includes(`>${said}</text>`), said);
    }
    return page;
  },

  async "near: registers, values and warps are written, and a map leads elsewhere"(browser) {
    const wide = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16";
    const page = await open(browser, `#op=${wide}&values=ones`);
    assert.equal(await page.isVisible("#minimap"), false);
    await page.goto(`${page.url().split("#")[0]}#op=${wide}&values=ones&zoom=10&middle=D[40][9]`);
    const drawn = await svg(page, true);
    for (const said of ["warp 2", "d6", "T0", "16"]) assert.ok(drawn.includes(`>${said}</text>`), said);
    const { x, y, width, height } = await page.locator("#minimap").boundingBox();
    await page.mouse.click(x + width - 12, y + height - 12);
    await page.waitForFunction(() => /middle=D(\.1[3-6]\d{3}|\[[56]\d\])/.test(location.hash));
    assert.ok((await svg(page, true)).includes(">warp 3</text>"));
    return page;
  },

  async "fit: all operands stand in the first screen, and no column is cut"(browser) {
    const page = await open(browser, "", DESK);
    for (const name of NAMED) {
      await go(page, `#op=${name}`);
      const boxes = await page.evaluate(() => {
        const figure = document.getElementById("figure").getBoundingClientRect();
        const stages = [...document.querySelectorAll(".stage")];
        return {
          figure: figure.toJSON(),
          stages: stages.map((stage) => [
            stage.dataset.matrix,
            stage.getBoundingClientRect().toJSON(),
          ]),
          high: innerHeight,
        };
      });
      const { figure, stages, high } = boxes;
      const found = stages.map(([matrix]) => matrix);
      for (const matrix of ["A", "B", "D"]) assert.ok(found.includes(matrix), `${name}: ${matrix}`);
      assert.ok(figure.bottom <= high, `${name}: the picture ends below the window`);
      const cut = await page.evaluate(() => {
        const corner = document.getElementById("wiring");
        return !corner.hidden && corner.scrollHeight > corner.clientHeight;
      });
      assert.ok(!cut, `${name}: the wiring is cut`);
      for (const [matrix, box] of stages) {
        const inside =
          box.left >= figure.left &&
          box.top >= figure.top &&
          box.right <= figure.right + 1 &&
          box.bottom <= figure.bottom + 1;
        assert.ok(inside, `${name}: ${matrix} is cut`);
        assert.ok(box.width > 12 && box.height > 6, `${name}: ${matrix} is too small`);
      }
    }
    return page;
  },

  async "fit: at ordinary sizes A, B and D can be read, and their values before their places"(browser) {
    const page = await open(browser, "", DESK);
    const wmma = "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32";
    const half = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32";
    for (const [width, height] of [[1024, 768], [1280, 720], [1440, 900]]) {
      await page.setViewportSize({ width, height });
      for (const name of [SPARSE, half, LONG, wmma]) {
        await go(page, `#op=${name}`);
        for (const [matrix, box] of Object.entries(await stages(page))) {
          if (matrix.length > 1) continue;
          assert.ok(box.width >= 130 && box.height >= 75, `${name} at ${width}: ${matrix} is ${box.width} × ${box.height}`);
        }
      }
    }
    for (const view of [SPARSE, LONG, SCALED, wmma]) {
      await go(page, `#op=${view}&values=random`);
      const { A, B, D } = await stages(page);
      assert.ok(D.height >= B.height, `${view}: B is higher than D`);
      assert.ok(A.width > 100);
      const { texts } = await measured(page);
      const inside = texts.filter(({ x, y }) => x > D.x && y > D.y && y < D.y + D.height);
      assert.ok(inside.some(({ said }) => /^−?[\d.]+(e.*)?$/.test(said)), `${view}: no number in D`);
    }
    return page;
  },

  async "fit: another size of the window gives what a fresh page gives"(browser) {
    const page = await open(browser, `#op=${SPARSE}&values=small&at=D[3][5]`, DESK);
    await page.setViewportSize({ width: 1000, height: 600 });
    await page.waitForTimeout(60);
    const after = await stages(page);
    const fresh = await open(browser, `#op=${SPARSE}&values=small&at=D[3][5]`, {
      viewport: { width: 1000, height: 600 },
    });
    assert.deepEqual(after, await stages(fresh));
    const right = await page.evaluate(() => document.getElementById("figure").clientWidth);
    for (const [matrix, box] of Object.entries(after)) {
      assert.ok(box.x >= 20 && box.x + box.width <= right, `${matrix} is cut, or its numbers are`);
    }
    return page;
  },

  async "labels: all can be read, and stand inside their blocks"(browser) {
    const page = await open(browser, "", DESK);
    const views = [LONG, SPARSE, SCALED, NAMED[6], `${LONG}&values=small`, `${WIDE}&zoom=12`];
    for (const name of views) {
      await go(page, `#op=${name}`);
      const { texts, frames, width } = await measured(page, true);
      for (const each of texts) {
        assert.ok(each.size >= 9, `${name}: ${each.said} has ${each.size} pixels`);
        assert.ok(each.x >= 0 && each.x + each.width <= width, `${name}: ${each.said} is cut`);
      }
      const heads = texts.filter(({ said }) => /^T\d+( |$)/.test(said)).slice(0, 400);
      for (const each of heads) {
        const inside = frames.some((frame) => within(each, frame, 0.5));
        assert.ok(inside, `${name}: ${each.said} leaves its block`);
      }
      // Names in one row do not run into each other.
      // Numbers of rows lie, on a ground of their own, over what is larger than the window.
      const near = texts.filter(({ said }) => !/zoom/.test(name) || /\D/.test(said)).slice(0, 700);
      near.forEach((one, at) => {
        const other = near.slice(at + 1).find((each) => overlap(one, each));
        assert.ok(!other, `${name}: ${one.said} runs into ${other?.said}`);
      });
    }
    return page;
  },

  async "pointing: the element that is written there is the one that is found"(browser) {
    const page = await open(browser, `#op=${LONG}`, DESK);
    const { texts, frames } = await measured(page);
    const heads = texts.filter(({ said }) => /^T\d+$/.test(said));
    const offset = await page.evaluate(() => document.getElementById("figure").offset());
    let seen = 0;
    for (const head of heads.filter((_, at) => at % 37 === 0)) {
      const frame = frames.find((each) => within(head, each, 0.5));
      const inside = texts.filter((each) => within(each, frame, 0.5));
      for (const { said, x, y, width, height } of inside) {
        if (!/^[abd]\d+$/.test(said)) continue;
        await page.mouse.move(offset.x + x + width / 2, offset.y + y + height / 2);
        const found = await facts(page);
        assert.match(found, new RegExp(`lane ${head.said.slice(1)} .*element ${said}\\b`));
        seen += 1;
      }
    }
    assert.ok(seen > 12, `${seen} elements`);
    // Inside an ellipsis the elements have no names; each is there all the same.
    for (const [matrix, row, col] of [["A", 3, 5], ["A", 9, 44], ["B", 13, 2], ["B", 62, 7]]) {
      await pointAt(page, matrix, row, col);
      assert.equal(await text(page, "#element h2"), `${matrix}[${row}][${col}]`);
      assert.match(await text(page, ".lens .this"), /^[ab]\d+$/);
    }
    return page;
  },

  async "lens: it hides neither what is pointed at nor a caption"(browser) {
    const page = await open(browser, `#op=${LONG}`, { viewport: { width: 1280, height: 720 } });
    for (const [matrix, row, col] of [["A", 0, 3], ["A", 1, 60], ["B", 0, 0], ["B", 62, 7]]) {
      await pointAt(page, matrix, row, col);
      const all = await stages(page);
      const lens = await page.evaluate(() => {
        const { offsetLeft: x, offsetTop: y, offsetWidth: width, offsetHeight: height } =
          document.querySelector(".lens");
        return { x, y, width, height };
      });
      for (const [name, { x, y, width }] of Object.entries(all)) {
        const along = lens.x < x + width && x < lens.x + lens.width;
        const free = !along || lens.y >= y || lens.y + lens.height <= y - 32;
        assert.ok(free, `${matrix}[${row}][${col}]: the lens hides the caption of ${name}`);
      }
    }
    return page;
  },

  async "zoom and pan: names appear, the pin stays in sight, nothing gets lost"(browser) {
    const page = await open(browser, `#op=${WIDE}&zoom=16&at=D.5000`, DESK);
    const pin = async () => {
      const at = await page.evaluate(() =>
        document.getElementById("figure").pointOf({ matrix: "D", index: 5000 }),
      );
      const box = await page.locator("#figure").boundingBox();
      return [at.x - box.x - box.width / 2, at.y - box.y - box.height / 2].map(Math.abs);
    };
    assert.ok(Math.max(...(await pin())) < 2, "the pinned element is not in the middle");
    const named = (await measured(page, true)).texts.some(({ said }) => said === "D");
    assert.ok(named, "whoever comes closer does not see that this is D");
    assert.ok((await measured(page, true)).texts.some(({ said }) => said === "d68"));
    const before = await page.locator('.stage[data-matrix="D"]').boundingBox();
    await page.mouse.move(500, 500);
    await page.mouse.down();
    await page.mouse.move(420, 470, { steps: 4 });
    await page.mouse.up();
    const after = await page.locator('.stage[data-matrix="D"]').boundingBox();
    assert.deepEqual([before.x - after.x, before.y - after.y], [80, 30]);
    assert.match(await page.evaluate(() => location.hash), /at=D\[19\]\[136\]/, "a drag is no click");
    await page.click("#zoom-fit");
    await page.waitForFunction(() => !/zoom=/.test(location.hash));
    await page.mouse.move(600, 500);
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -300);
    await page.keyboard.up("Control");
    await page.waitForFunction(() => /zoom=2\.7/.test(location.hash));
    return page;
  },

  async "sparse: code, kept columns and rows of B are shown together"(browser) {
    const page = await open(browser, `#op=${SPARSE}`, DESK);
    await pointAt(page, "A", 1, 8);
    assert.match(await facts(page), /stands at column 20 of A, row 20 of B/);
    assert.ok((await painted(page, "metadata")) > 50);
    const open64 = (await measured(page)).texts.some(({ said }) => /16×64 as it mul/.test(said));
    assert.ok(open64, "A as it multiplies is not drawn");
    await page.selectOption("#sparse", "stored");
    const closed = (await measured(page)).texts.some(({ said }) => /16×64/.test(said));
    assert.ok(!closed);
    await page.selectOption("#sparse", "logical");
    // The first chunk of row 1 keeps columns 0, 1, 4 and 5.
    const [zero, one] = await page.evaluate(() =>
      [32, 33].map((index) =>
        document.getElementById("figure").pointOf({ matrix: "A", index }),
      ),
    );
    await page.mouse.move(2 * one.x - zero.x, one.y);
    assert.equal(await text(page, ".lens"), "A[1, 2] is not stored: zero");
    await pointAt(page, "A", 1, 8, { click: true });
    assert.equal(await text(page, "#element h2"), "A[1][8]");
    await page.click("#tab-metadata");
    // Row 1, chunk 2 is in the word of lane 4, not of row 0.
    assert.match(await text(page, ".word"), /lane 4\b/);
    const tops = await page.evaluate(() =>
      [...document.querySelectorAll(".nibble")].map((n) => n.getBoundingClientRect().top),
    );
    assert.deepEqual([tops.length, new Set(tops).size], [8, 1]);
    const first = page.locator("#code-0 option").first();
    assert.match(await first.innerText(), /^0100 keeps 0 1/);
    return page;
  },

  async "lane: what is none is refused in words"(browser) {
    const page = await open(browser, "", DESK);
    for (const wrong of ["3.5", "99", "-1"]) {
      await page.fill("#lane-number", wrong);
      await page.press("#lane-number", "Enter");
      assert.equal(
        await text(page, "#lane-wrong"),
        `${wrong} is not a lane: lanes are 0 to 31.`,
      );
      assert.doesNotMatch(await page.evaluate(() => location.hash), /lane=/);
    }
    await page.fill("#lane-number", "31");
    await page.press("#lane-number", "Enter");
    assert.equal(await text(page, "#lane-wrong"), "");
    assert.match(await page.evaluate(() => location.hash), /lane=31/);
    return page;
  },

  async "phone: a finger moves the picture, a tap answers at the bottom"(browser) {
    const phone = { viewport: { width: 390, height: 844 }, hasTouch: true };
    const page = await open(browser, `#op=${SPARSE}`, phone);
    const right = await page.evaluate(() => document.getElementById("figure").clientWidth);
    for (const [matrix, box] of Object.entries(await stages(page))) {
      assert.ok(box.x >= 15 && box.x + box.width <= right, `${matrix} is outside the picture`);
    }
    const zoom = await page.locator("#zoom-in").boundingBox();
    assert.ok(zoom.y + zoom.height <= 844, "one has to scroll to come closer");
    await go(page, `#op=${LONG}`);
    await page.tap("#figure", { position: { x: 200, y: 120 } });
    const card = await page.locator("#element").boundingBox();
    assert.ok(card.y + card.height >= 843 && card.height < 400, "no sheet at the bottom");
    assert.match(await text(page, "#element h2"), /^[ABD]\[/);
    await page.click(".close");
    assert.equal(await text(page, "#element h2"), "Element");
    return page;
  },
};
