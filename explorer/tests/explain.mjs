// The tab that explains a number, in a real browser; run.mjs runs these tests.

import assert from "node:assert/strict";
import { open, pointAt } from "./browser.mjs";

const DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
const SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32";
const SCALED =
  "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X" +
  ".f32.e2m1.e2m1.f32.ue4m3";

const text = (page, selector) => page.locator(selector).first().innerText();
const where = (page) => page.evaluate(() => location.hash);
const rows = (count, row) => Array(count).fill(row).join("\n");

/** A file as NumPy writes it: a matrix of float32. */
function npy(count, columns, numbers) {
  const shape = `(${count}, ${columns})`;
  const said = `{'descr': '<f4', 'fortran_order': False, 'shape': ${shape}, }`;
  const header = `${said.padEnd(117)}\n`;
  const begin = Buffer.from([
    0x93,
    0x4e,
    0x55,
    0x4d,
    0x50,
    0x59,
    1,
    0,
    header.length,
    0,
  ]);
  const data = Buffer.from(Float32Array.from(numbers).buffer);
  return Buffer.concat([begin, Buffer.from(header), data]);
}

export const TESTS = {
  async "explain: each product has bits that are kept and lost, on any target"(
    browser,
  ) {
    const page = await open(browser, `#op=${DENSE}&values=random&tab=explain&at=D.42`);
    assert.match(await text(page, "#panel .outcome"), /bits\s+0x[0-9a-f]{8}/);
    assert.match(await text(page, "#panel .step summary"), /Step 1 of 1: 16 products/);
    assert.equal(await page.locator("#panel .terms .bits").count(), 16 + 3);
    assert.ok((await page.locator("#panel .terms .gone1").count()) > 0);
    await page.selectOption("#explain-target", "sm_80");
    assert.match(await text(page, "#panel .step summary"), /Step 1 of 2: 8 products/);
    assert.match(await text(page, "#result h2"), /D\[5, 2\] on sm_80/);
    assert.match(await where(page), /target=sm_80/);
    assert.equal(await page.inputValue("#target"), "sm_80");
    await page.fill("#explain-row", "99");
    await page.press("#explain-row", "Enter");
    assert.equal(await page.getAttribute("#explain-row", "aria-invalid"), "true");
    await page.fill("#explain-row", "3");
    await page.press("#explain-row", "Enter");
    assert.match(await text(page, "#result h2"), /D\[3, 2\]/);
    await page.click(".as-text summary");
    assert.match(
      await text(page, ".as-text pre"),
      /emax -?\d+: terms are cut below 2\^/,
    );
    return page;
  },

  async "explain: block scales count, and the identity of a sparse A is its own"(
    browser,
  ) {
    const page = await open(browser, `#op=${SCALED}&values=ones&tab=explain&at=D.0`);
    await page.selectOption("#own-operand", "scale_A");
    await page.fill("#own-text", rows(16, "2 2 2 2"));
    await page.click("#own-use");
    assert.match(await text(page, "#panel .outcome"), /^D\s+128/);
    await page.goto(`${page.url().split("#")[0]}#op=${SPARSE}&values=identity`);
    for (const [row, col] of [
      [0, 0],
      [5, 2],
      [15, 7],
    ]) {
      await pointAt(page, "B", row, col);
      const b = /value\s+(\S+)/.exec(await text(page, "#element dl"))[1];
      await pointAt(page, "D", row, col);
      assert.equal(/value\s+(\S+)/.exec(await text(page, "#element dl"))[1], b);
    }
    return page;
  },

  async "explain: own values are typed, pasted and loaded, or refused"(browser) {
    const page = await open(browser, `#op=${DENSE}&values=ones&tab=explain&at=D.0`);
    const said = () => text(page, "#own-said");
    const use = async (numbers) => {
      await page.fill("#own-text", numbers);
      await page.click("#own-use");
    };
    const ones = "1 ".repeat(16);
    await use(`${rows(15, ones)}\n${ones.replace("1", "70000")}`);
    assert.equal(await said(), "A[15, 0] = 70000: f16 holds magnitudes up to 65504");
    await use(rows(16, "1 2 3"));
    assert.equal(await said(), "A is 16 × 16; given 16 × 3");
    await use(`${ones.replace("1", "0.1")}\n${rows(15, ones)}`);
    assert.match(await said(), /1 were rounded to f16, first A\[0, 0\] = 0\.1\./);
    assert.match(await where(page), /set=A\.0:2e66/);
    assert.match(await text(page, "#panel .outcome"), /^D\s+15\.0999/);
    const file = (name, buffer) => ({
      name,
      mimeType: "application/octet-stream",
      buffer,
    });
    const twos = Array(256).fill(2);
    await page.setInputFiles("#own-file", file("a.npy", npy(16, 16, twos)));
    await page.waitForFunction(() =>
      document.getElementById("own-said").textContent.startsWith("a.npy: 16 × 16"),
    );
    assert.match(await text(page, "#panel .outcome"), /^D\s+32\s/);
    await page.waitForFunction(() => /own=/.test(location.hash));
    assert.match(await text(page, ".own"), /These values are in the link/);
    assert.doesNotMatch(await where(page), /set=/);
    await page.click("#own-reset");
    assert.match(await text(page, "#panel .outcome"), /^D\s+16\s/);
    const wrong = `#op=${DENSE}&values=ones&target=sm_75&set=A.999:1,D.0:1,A.0:3c000`;
    await page.goto(page.url().replace(/#.*/, wrong));
    const notice = await text(page, "#notice");
    assert.match(
      notice,
      /sm_75 does not have this instruction; .* Numbers are of sm_90a/,
    );
    assert.match(notice, /A\.999:1 is left out: the last element is A\.255/);
    return page;
  },
};
