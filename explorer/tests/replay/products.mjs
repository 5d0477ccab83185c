// Products, watch expressions, call stacks, roles and the search of the replay in a real
// browser, on runs that Python records and explains: node tests/replay/products.mjs

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { areQuick, drawn, open, run } from "../browser.mjs";
import { make } from "./made.mjs";
import { written } from "./pages.mjs";
import { pageOf, told } from "./recorded.mjs";

const require = createRequire(import.meta.url);
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const DESK = { viewport: { width: 1440, height: 900 } };
const PHONE = { viewport: { width: 390, height: 844 } };
const show = (browser, name, hash = "", settings = DESK) =>
  open(browser, hash, settings, pageOf(name));
const text = async (page, selector) => (await page.locator(selector).innerText()).replace(/\s+/g, " ").trim();
const stepOf = async (page) => {
  await drawn(page);
  return Number(await page.inputValue("#step"));
};
const pointAt = async (page, matrix, index, click = false) => {
  await drawn(page);
  const at = await page.evaluate((spot) => document.getElementById("figure").pointOf(spot), { matrix, index });
  await page.mouse.move(at.x, at.y);
  if (click) await page.mouse.click(at.x, at.y);
  await drawn(page);
};
const number = (shown) => Number(shown.replace("−", "-"));

const TESTS = {
  async "an element of D is explained in Python's words: mma, wgmma and tcgen05.mma"(browser) {
    let page;
    for (const name of ["gemm", "ring", "tensor"]) {
      for (const { step, row, col, name: op, told: words, d } of told[name].elements) {
        await page?.context().close();
        page = await show(browser, name, `#step=${step}&d=${row},${col}`);
        assert.equal(await text(page, "#product-name"), op);
        assert.equal(await page.locator("#told pre.text").textContent(), words);
        const shown = await page.$$eval("#told .outcome dd", (found) => found.map((each) => each.textContent));
        assert.equal(number(shown[0]), d);
        assert.equal(await page.locator("#told .wrong").count(), 0); // the kernel has the same D
      }
    }
    return page;
  },

  async "a click on D explains it; its operands say where they came from"(browser) {
    const [, { step, row, col, a, b }] = told.gemm.elements;
    const page = await show(browser, "gemm", `#step=${step}`);
    await page.keyboard.press("m");
    await pointAt(page, "D", row * 8 + col, true);
    assert.match(await text(page, "#told h3"), new RegExp(`D\\[${row}, ${col}\\]`));
    await page.waitForTimeout(300);
    assert.match(await page.evaluate(() => location.hash), new RegExp(`d=${row},${col}`));
    await page.waitForSelector(".sources tbody tr");
    const rows = await page.$$eval(".sources tbody tr", (found) => found.map((each) => [...each.cells].map((cell) => cell.innerText.trim())));
    assert.equal(rows.length, 33); // 16 of A, 16 of B, and C
    for (const [k, name, value, , from] of rows.slice(0, 32)) {
      assert.equal(Number(value), name[0] === "A" ? a[k] : b[k], `${name}, k ${k}`);
      // Through ldmatrix and cp.async, from an array.
      assert.match(from, /^ldmatrix\.sync, step \S+.* ← shared .*cp\.async, step \S+.* ← argument \d .*, there before the first step$/);
    }
    const [, , , , c] = rows.at(-1);
    assert.match(c, /D\[\d+, \d+\] of step|mov\./);
    // The first operand: its ldmatrix is the step that it says.
    const first = page.locator(".sources tbody .go").nth(1);
    const goal = Number((await first.innerText()).replace(/\D/g, ""));
    await first.click();
    assert.equal(await stepOf(page), goal);
    assert.match(await text(page, "#instruction"), /ldmatrix/);
    return page;
  },

  async "tcgen05.mma: D in tensor memory, A and B by descriptors; a cell leads to its element"(browser) {
    const [, { row, col, lane, column, d, told: words }] = told.tensor.elements;
    const { a, b, first, second } = told.tensor;
    const page = await show(browser, "tensor");
    await page.keyboard.press("End");
    await page.keyboard.press("m");
    for (const [matrix, index, value, place] of [
      ["A", row * 16 + 5, a[row][5], /shared 0x[\da-f]+ written at step \d+/],
      ["B", 5 * 8 + col, b[5][col], /shared 0x[\da-f]+ written at step \d+/],
      ["D", row * 8 + col, d, new RegExp(`tensor lane ${lane}, column ${column}`)],
    ]) {
      await pointAt(page, matrix, index);
      const said = await text(page, "#tip");
      assert.ok(said.includes(`${matrix}[`), said);
      assert.equal(number(/= (\S+)/.exec(said)[1]), value);
      assert.match(said, place);
    }
    await pointAt(page, "D", row * 8 + col, true);
    assert.equal(await page.locator("#told pre.text").textContent(), words);
    await page.waitForSelector(".sources tbody tr");
    const rows = await page.$$eval(".sources tbody tr", (found) => found.map((each) => [...each.cells].map((cell) => cell.innerText.trim())));
    assert.equal(rows.length, 33);
    for (const [k, name, value, , from] of rows.slice(0, 32)) {
      assert.equal(Number(value), name[0] === "A" ? a[row][k] : b[k][col], `${name}, k ${k}`);
      // Through st.shared and ld.global, from an array.
      assert.match(from, /^st\.shared, step \S+.* ← ld\.global, step \S+.* ← argument \d .*, there before the first step$/);
    }
    // What is added is what the product before has made, at the same step.
    assert.match(rows.at(-1)[4], new RegExp(`^D\\[${row}, ${col}\\] of step ${first}, `));
    // A cell of tensor memory.
    await page.evaluate(([at, to]) => {
      const memory = replay.run.head.memories.findIndex(({ kind }) => kind === "tensor");
      replay.update({ product: false, element: -1, memory, at: { memory, offset: 4 * (512 * at + to) } });
    }, [lane, column]);
    await drawn(page);
    assert.match(await text(page, "#byte-made"), new RegExp(`Made of D\\[${row}, ${col}\\] of the tcgen05 at step ${second}`));
    await page.locator("#byte-made .go").click();
    await drawn(page);
    assert.match(await text(page, "#told h3"), new RegExp(`D\\[${row}, ${col}\\]`));
    // While it is in flight, D has no values.
    await page.evaluate((to) => replay.go(to), second);
    await drawn(page);
    assert.match(await text(page, "#product-said"), /in flight until step/);
    return page;
  },

  async "an element of an array leads to the product that made it"(browser) {
    const page = await show(browser, "gemm");
    const { step, at, wanted } = await page.evaluate(() => {
      const { run } = replay;
      const memory = run.head.memories.findIndex(({ name }) => name.startsWith("argument 2"));
      const offset = 4 * 11;
      const write = run.memories[memory].writesOf(offset)[0];
      return { step: run.count - 1, at: { memory, offset }, wanted: write };
    });
    await page.evaluate(([to, where]) => (replay.go(to), replay.update({ memory: where.memory, at: where })), [step, at]);
    await drawn(page);
    const value = number(await text(page, "#byte-value"));
    await page.locator("#byte-made .go").click();
    await drawn(page);
    const shown = await page.$$eval("#told .outcome dd", (found) => found.map((each) => each.textContent));
    assert.equal(Math.fround(number(shown[0])), Math.fround(value));
    assert.ok((await stepOf(page)) < wanted);
    return page;
  },

  async "a register of D in a lane leads to its element"(browser) {
    const [{ step }] = told.gemm.elements;
    const page = await show(browser, "gemm", `#step=${step}&lane=13`);
    await page.locator("#lane-made .go").first().click();
    await drawn(page);
    // Lane 13, register 0 of m16n8: row 13 >> 2, column 2 * (13 & 3).
    assert.match(await text(page, "#told h3"), /D\[3, 2\]/);
    return page;
  },

  async "fragments: pointing says lane, register, bits and value"(browser) {
    const [{ step, row, a, b, col }] = told.ring.elements;
    const page = await show(browser, "ring", `#step=${step}&warp=0&product=1`);
    for (const [matrix, index, value] of [["A", row * 16 + 5, a[5]], ["B", 5 * 8 + col, b[5]]]) {
      await pointAt(page, matrix, index);
      const said = await text(page, "#tip");
      assert.ok(said.includes(`${matrix}[`), said);
      assert.equal(number(/= (\S+)/.exec(said)[1]), value);
      assert.match(said, /shared 0x[\da-f]+ written at step \d+/);
    }
    await pointAt(page, "D", 9 * 8 + 3);
    assert.match(await text(page, "#tip"), /D\[9\]\[3\] = \S+ 0x[\da-f]{8} warp 0, lane 5, %f\d+/);
    // In flight, D has no values yet.
    const issue = await page.evaluate(() => replay.lastProduct.members[0].step);
    await page.evaluate((to) => replay.go(replay.run.head.units.find((each) => /wgmma/.test(each.kind)).issued) ?? to, issue);
    await drawn(page);
    assert.match(await text(page, "#product-said"), /in flight until step/);
    const sparse = await show(browser, "sparse");
    await sparse.keyboard.press("End");
    await sparse.keyboard.press("m");
    for (const index of [0, 21, 63]) {
      await pointAt(sparse, "metadata", index);
      assert.match(await text(sparse, "#tip"), new RegExp(`= code ${told.sparse.codes[index].toString(16)} `));
    }
    return page;
  },

  async "an mbarrier reads as its phase, hidden bytes as poison, a lane without a value as such"(browser) {
    const page = await show(browser, "ring");
    const byte = async (step, memory, offset) => {
      await page.evaluate(([to, at]) => (replay.go(to), replay.update({ memory: at.memory, at })), [step, { memory, offset }]);
      await drawn(page);
      return text(page, "#byte-value");
    };
    const barriers = await page.evaluate(() => replay.run.head.barriers.filter(({ phases }) => phases));
    assert.ok(barriers.length > 1);
    for (const { memory, offset, phases } of barriers) {
      for (const [step, phase, pending, bytes, expected] of phases.slice(0, 4)) {
        const said = `phase ${phase} · ${expected - pending} of ${expected} arrived · ${bytes.toLocaleString("en-US").replaceAll(",", " ")} B`;
        assert.equal(await byte(step, memory, offset), said);
      }
    }
    const { issued, done, writes } = await page.evaluate(() => replay.run.head.units.find((each) => each.issued < each.done && each.writes.length));
    const [memory, offset] = writes[0];
    assert.equal(await byte(issued, memory, offset), "poison");
    assert.notEqual(await byte(done, memory, offset), "poison");
    // A register that some lanes have not written.
    const found = await page.evaluate(() => {
      const { run } = replay;
      for (let step = 0; step < run.count; step++) {
        const warp = run.columns.warp[step];
        for (const register of run.site(step).writes) {
          const held = run.held(warp, register, step);
          const lane = [...Array(32).keys()].find((each) => !((held.lanes >>> each) & 1));
          const other = [...Array(32).keys()].find((each) => (held.lanes >>> each) & 1);
          if (lane !== undefined && other !== undefined) return { step, warp, register, lane, other };
        }
      }
      return null;
    });
    for (const lane of [found.lane, found.other]) {
      await page.evaluate((to) => (replay.go(to.step), replay.update({ warp: to.warp, register: to.register, lane: to.lane })), { ...found, lane });
      await drawn(page);
      const nothing = lane === found.lane;
      assert.equal((await text(page, ".register.chosen .value")) === "no value yet", nothing);
      const cell = page.locator(`#all-lanes [data-lane="${lane}"]`);
      assert.equal((await cell.textContent()) === `${lane}–`, nothing);
      assert.equal(/no value yet$/.test(await cell.getAttribute("title")), nothing);
    }
    assert.match(await text(page, "#all-lanes p"), /written by lanes? [\d–, ]+ at ?step/);
    return page;
  },

  async "watch expressions have the debugger's answers"(browser) {
    const page = await show(browser, "ring");
    for (const { step, warp, text: asked, texts } of told.ring.watched) {
      await page.evaluate(([to, of]) => (replay.go(to), replay.update({ warp: of, watch: [] })), [step, warp]);
      await drawn(page);
      await page.fill("#watch-add", asked);
      await page.keyboard.press("Enter");
      await drawn(page);
      if (texts.length > 1) await page.locator("#watch .say").click();
      await drawn(page);
      const shown = await page.$$eval("#watch .grid span", (found) => found.map((each) => each.title));
      assert.deepEqual(shown, texts, asked);
      if (texts.length > 1) await page.locator("#watch .say").click();
    }
    await page.fill("#watch-add", "%nope");
    await page.keyboard.press("Enter");
    await drawn(page);
    assert.match(await text(page, "#watch li:last-child .wrong"), /no register %nope/);
    await page.waitForTimeout(300);
    const again = await show(browser, "ring", await page.evaluate(() => location.hash));
    assert.equal(await again.locator("#watch li").count(), await page.locator("#watch li").count());
    await again.locator("#watch .remove").first().click();
    await drawn(again);
    assert.equal(await again.locator("#watch li").count(), (await page.locator("#watch li").count()) - 1);
    return page;
  },

  async "the call stack is the debugger's, and inlined lines are in it"(browser) {
    const page = await show(browser, "calls");
    for (const { step, frames } of told.calls.stacks) {
      await page.evaluate((to) => replay.go(to), step);
      await drawn(page);
      const shown = await page.$$eval("#stack li", (found) => found.map((each) => each.textContent.trim()));
      assert.equal(shown.length, frames.length > 1 ? frames.length : 0);
      frames.slice(0, shown.length).forEach(([name, at], place) => {
        assert.match(shown[place], new RegExp(`^#${place} ${name} `));
        if (place) assert.ok(shown[place].endsWith(`step ${at}`));
      });
    }
    const [{ texts }] = told.calls.predicates;
    await page.keyboard.press("End");
    await page.fill("#registers-find", "%p2");
    await drawn(page);
    assert.equal(await page.locator("#registers .section").first().innerText(), "predicates");
    await page.locator("#registers .register").first().click();
    await drawn(page);
    const cells = await page.$$eval("#all-lanes .grid span", (found) => found.map((each) => each.title.split(/: |, written/)[1]));
    assert.deepEqual(cells, texts.map((each) => (each === "1" ? "true" : "false")));
    const ring = await show(browser, "ring", "#step=520&warp=0");
    assert.match(await text(ring, "#stack"), /#0 inlined, hopper\.cuh:17 ?#1 inlined, hopper\.cuh:\d+ ?#2 ring_wgmma idioms\.cu:\d+/);
    return page;
  },

  async "roles fold into one row, and unfold"(browser) {
    const page = await show(browser, "ring", "#step=520&warp=0");
    const tall = () => page.evaluate(() => getComputedStyle(document.getElementById("time")).getPropertyValue("--tall"));
    const before = parseInt(await tall(), 10);
    await page.keyboard.press("f");
    assert.equal(parseInt(await tall(), 10), before - 3 * 25); // warps 0 to 3 have one row
    const box = await page.locator("#time canvas").boundingBox();
    // In the folded row, each step is of the warp that ran it.
    const there = await page.evaluate(() => replay.run.stepsOfWarp(2).find((step) => step > 500));
    await page.evaluate((to) => replay.go(to), there);
    await drawn(page);
    await page.mouse.click(box.x + 60, box.y + 42 + 10); // the name: the next of its warps
    await drawn(page);
    assert.equal(await page.evaluate(() => replay.warp), 3);
    await page.mouse.click(box.x + 9, box.y + 42 + 10); // the triangle
    await drawn(page);
    assert.equal(parseInt(await tall(), 10), before);
    assert.equal(await page.getAttribute("#fold", "aria-pressed"), "false");
    return page;
  },

  async "search: instructions, lines, source text, barriers, addresses, problems"(browser) {
    const page = await show(browser, "ring");
    const find = async (asked) => {
      await page.fill("#find", asked);
      await drawn(page);
      return page.evaluate(() => [...replay.found.steps]);
    };
    const steps = (fits) => page.evaluate(fits);
    assert.deepEqual(await find("wgmma.mma_async"), await steps(() => [...Array(replay.run.count).keys()].filter((step) => replay.run.site(step).opcode.startsWith("wgmma.mma_async"))));
    assert.deepEqual(await find("op:cp.async.bulk"), await steps(() => [...Array(replay.run.count).keys()].filter((step) => replay.run.site(step).opcode.startsWith("cp.async.bulk"))));
    assert.deepEqual(await find("line:hopper.cuh:17"), await steps(() => [...replay.run.stepsOfLine(replay.run.head.sites.find(({ file }) => file.endsWith("hopper.cuh")).file, 17)]));
    assert.deepEqual(await find(`barrier:${await page.evaluate(() => replay.run.head.barriers.filter(({ phases }) => phases).at(-1).name)}`), await steps(() => [...new Set(replay.run.head.barriers.filter(({ phases }) => phases).at(-1).phases.map(([step]) => step))].sort((a, b) => a - b)));
    const writes = await steps(() => [...new Set(replay.run.memories[0].writesOf(0x400))]);
    assert.ok(writes.length > 1);
    assert.deepEqual(await find("0x400"), writes);
    assert.deepEqual(await find("write:shared[0x400]"), writes);
    await page.evaluate(() => replay.go(0));
    for (const step of writes.slice(0, 2)) {
      await page.keyboard.press("Enter");
      assert.equal(await stepOf(page), step);
    }
    await page.keyboard.press("Shift+Enter");
    assert.equal(await stepOf(page), writes[0]);
    assert.match(await text(page, "#find-said"), new RegExp(`^1 of ${writes.length} steps`));
    assert.deepEqual(await find("no such thing"), []);
    assert.match(await text(page, "#find-said"), /nothing has no such thing/);
    // A problem, and the text of the source, in the page with both.
    const made = make(5);
    const other = await open(browser, "#find=problem", DESK, written("search", made));
    assert.deepEqual(await other.evaluate(() => [...replay.found.steps]), made.head.problems[0].steps.toSorted((a, b) => a - b));
    const line = made.head.files[1].text.split("\n")[14].trim();
    await other.fill("#find", `source:${line}`);
    await drawn(other);
    assert.deepEqual(await other.evaluate(() => [...replay.found.steps]), await other.evaluate(() => [...replay.run.stepsOfLine("scale.cu", 15)]));
    assert.equal(await other.evaluate(() => replay.found.steps.length), 5);
    return page;
  },

  async "speed: from product to product, hovering, searching"(browser) {
    const page = await show(browser, "gemm", `#step=${told.gemm.elements[0].step}&product=1`);
    const acts = {
      product: () => document.getElementById("product-after").click(),
      explain: (at) => replay.update({ element: at }),
      find: (at) => replay.search(["mma", "ld", "0x400", "add"][at % 4]),
      fold: () => document.getElementById("fold").click(),
    };
    await areQuick(page, acts, 10);
    return page;
  },

  async "axe and phone: products, watch and search"(browser) {
    const [{ step, row, col }] = told.ring.elements;
    const hash = `#step=${step}&warp=0&d=${row},${col}&watch=%25tid.x&find=wgmma`;
    const views = [
      [hash, { ...DESK, colorScheme: "light" }],
      [hash, { ...DESK, colorScheme: "dark" }],
      [hash, { ...PHONE, colorScheme: "light" }],
      [hash.replace(/&d=[\d,]*/, ""), { ...DESK, colorScheme: "dark" }],
    ];
    for (const [address, settings] of views) {
      const page = await show(browser, "ring", address, settings);
      if (settings.viewport.width < 1000) {
        assert.ok(await page.locator("#product").isVisible());
        assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390);
      }
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
      assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes.map((n) => n.html).join("\n")}`), [], address);
      await page.context().close();
    }
  },
};

await run(TESTS);
