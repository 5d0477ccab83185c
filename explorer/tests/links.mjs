// Links: every name of the catalogue, and what is only nearly right.

import assert from "node:assert/strict";
import { inflateRawSync } from "node:zlib";
import { open } from "./browser.mjs";

const DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
const flat = (said) => said.replace(/\s+/g, " ").trim();

/** Open a link in the page; what the notice and the address say. */
const goTo = (page, hash) =>
  page.evaluate(async (to) => {
    location.hash = to;
    await new Promise((done) => window.addEventListener("hashchange", done, { once: true }));
    const notice = document.getElementById("notice");
    return { said: notice.textContent, wrong: notice.matches(".wrong-link"), hash: location.hash };
  }, hash);

export const LINKS = {
  async "links: every name of the catalogue is drawn, or is said to have no picture"(browser) {
    const page = await open(browser, `#op=${DENSE}`);
    const packed = await page.textContent("#catalogue");
    const record = JSON.parse(inflateRawSync(Buffer.from(packed, "base64")).toString());
    const names = Object.keys(record.others);
    assert.ok(names.length > 1000);
    for (const name of names.filter((_, at) => at % 180 === 0)) {
      const { said, wrong, hash } = await goTo(page, `#op=${name}`);
      const shown = record.others[name] < 0 ? "is not drawn here" : "is drawn ";
      assert.ok(said.includes(`${name} ${shown}`) && !wrong, `${name}: ${said}`);
      if (name.startsWith("tcgen05")) assert.match(hash, /^#op=tcgen05/);
    }
    const mma = "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale";
    const filled = await goTo(page, `#op=${mma}.scale_vec::1X.collector::a::fill&at=D[1][2]`);
    assert.match(filled.said, /is drawn as m128n64k32, one of its shapes, without scale_vec::1X and collector::a::fill\./);
    assert.match(filled.hash, /mxf8f6f4.*&at=D\[1\]\[2\]/);
    const bare = "tcgen05.mma.cta_group::1.kind::f16";
    const exact = await goTo(page, `#op=${bare}+0x08200010`);
    assert.deepEqual([exact.said, /0x08200010$/.test(exact.hash)], ["", true]);
    assert.match(await page.textContent("#short"), /m128n128k16 f16 × f16 → f32/);
    // Its B is N-major: drawn like the one that is not.
    const turned = await goTo(page, `#op=${bare}+0x08210010`);
    assert.match(turned.said, /is drawn as m128n128k16 of f16 × f16 → f32\./);
    await page.selectOption("#width", { label: "n192" });
    assert.match(await page.textContent("#short"), /m128n192k16 f16 × f16 → f32/);
    await page.click("#chips >> text=2 CTAs");
    assert.match(await page.textContent("#name"), /cta_group::2\.kind::f16 0x08300010/);
    const double = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64";
    assert.deepEqual(await goTo(page, `#op=${double}.rn`), { said: "", wrong: false, hash: `#op=${double}` });
    assert.match((await goTo(page, `#op=${DENSE}.rn`)).said, /not right/);
    await page.fill("#search", "tcgen05 fp8 collector::b::fill");
    assert.match(await page.textContent("#count"), /collector::b::fill is not drawn here; without, these are/);
    const several = await goTo(page, "#op=wmma");
    assert.match(several.said, /^About this link.*can be \d+ instructions/);
    assert.equal(several.wrong, false);
    return page;
  },

  async "links: a near picture keeps its place, with and without a pin"(browser) {
    const wide = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16";
    const far = await open(browser, `#op=${wide}&zoom=10`);
    const box = await far.locator("#figure").boundingBox();
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    await far.mouse.move(x, y);
    await far.mouse.down();
    await far.mouse.move(x - 260, y - 190, { steps: 4 });
    await far.mouse.up();
    await far.waitForFunction(() => /middle=/.test(location.hash));
    const hash = await far.evaluate(() => location.hash);
    await far.close();
    const [, matrix, row, col] = /middle=([A-D])\[(\d+)\]\[(\d+)\]/.exec(hash);
    const index = Number(row) * { A: 16, B: 256, D: 256 }[matrix] + Number(col);
    const page = await open(browser, `${hash}&at=A.0`, { width: 1100, height: 700 });
    const off = await page.evaluate(
      ([matrix, index]) => {
        const figure = document.getElementById("figure");
        const at = figure.pointOf({ matrix, index: Number(index) });
        const { left, top, width, height } = figure.getBoundingClientRect();
        return [at.x - left - width / 2, at.y - top - height / 2].map(Math.abs);
      },
      [matrix, index],
    );
    assert.ok(Math.max(...off) < 40, `${matrix}.${index} is ${off} pixels off the middle`);
    assert.match(await page.evaluate(() => location.hash), /zoom=10&middle=/);
    const wrong = await goTo(page, `#op=${wide}&zoom=4&middle=Q[1][2]`);
    assert.match(flat(wrong.said), /There is no operand Q; .* The picture is not moved\./);
    await page.click("#zoom-fit");
    await page.waitForFunction(() => !/middle=|zoom=/.test(location.hash));
    return page;
  },

  async "links: an operand in shared memory is checked, and the address is corrected"(browser) {
    const page = await open(browser);
    const eight = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32";
    const pitch = await goTo(page, `#op=${eight}&memory=A-x4.k.0.80`);
    assert.match(flat(pitch.said), /A pitch of 80 is not possible here; 128 is shown\./);
    assert.match(pitch.hash, /memory=A-x4\.k\.0$/);
    const sparse = "mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32";
    const move = await goTo(page, `#op=${sparse}&memory=A-x4.k.128`);
    assert.match(move.said, /The move x4 is not possible here; x2 is shown\./);
    assert.match(move.hash, /memory=A-x2\.k\.128$/);
    const fine = await goTo(page, `#op=${eight}&memory=A-x4.k.0.144`);
    assert.deepEqual([fine.said, /memory=A-x4\.k\.0\.144$/.test(fine.hash)], ["", true]);
    return page;
  },

  async "links: one that is opened while the page changes is not lost"(browser) {
    const page = await open(browser, `#op=${DENSE}`);
    const other = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32";
    await page.evaluate(async (name) => {
      location.hash = `#op=${name}`;
      document.getElementById("theme").click();
      await new Promise((done) => setTimeout(done, 50));
    }, other);
    assert.match(await page.evaluate(() => location.hash), /m16n8k8/);
    assert.match(await page.textContent("#short"), /m16n8k8/);
    return page;
  },
};
