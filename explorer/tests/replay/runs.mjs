// Pages that Python has written, in a real browser: several runs, and errors of arrays.
// node tests/replay/runs.mjs; PYTHON names the interpreter.  Whatever a test expects was
// worked out by Python: tests/replay/pages.py.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { drawn, open, run } from "../browser.mjs";
import { folder } from "./pages.mjs";

const root = join(import.meta.dirname, "../../..");
const own = join(root, ".venv/bin/python");
const python = process.env.PYTHON ?? (existsSync(own) ? own : "python3");
const env = { ...process.env, PYTHONPATH: [join(root, "src"), root].join(":") };
execFileSync(python, ["-m", "tests.replay.pages", folder], { cwd: root, env, stdio: ["ignore", "ignore", "inherit"] });
const expected = JSON.parse(readFileSync(join(folder, "expected.json"), "utf8"));

const DESK = { viewport: { width: 1440, height: 900 } };
const show = (browser, name, hash = "", settings = DESK) =>
  open(browser, hash, settings, pathToFileURL(join(folder, `${name}.html`)).href);
const state = (page) =>
  page.evaluate(() => ({ run: replay.run.head.name ?? replay.run.head.schedule, step: replay.step, problem: replay.problem?.code ?? null }));
const text = async (page, selector) => (await page.locator(selector).innerText()).replace(/\s+/g, " ").trim();

const TESTS = {
  async "another run is shown at the problem, and at any step"(browser) {
    const page = await show(browser, "runs");
    await page.keyboard.press("p");
    await drawn(page);
    for (const { name, label, step, problem } of expected.problem) {
      await page.locator("#hazard .elsewhere button").filter({ hasText: label }).click();
      await drawn(page);
      assert.deepEqual(await state(page), { run: name, step, problem });
      assert.equal(await page.locator("#runs [aria-pressed=true]").innerText(), label);
      if (!problem) assert.match(await text(page, "#hazard"), /does not have it/);
    }
    for (const [from, at, to, step] of expected.aligned) {
      const found = await page.evaluate(([one, here, other]) => {
        replay.runs.show(one);
        replay.go(here);
        replay.which = -1;
        const { problems } = replay.run.head;
        const kept = problems.splice(0); // without a problem, places are compared
        const old = replay.run;
        replay.runs.show(other);
        old.head.problems.push(...kept);
        return replay.step;
      }, [from, at, to]);
      assert.equal(found, step, `step ${at} of run ${from} in run ${to}`);
    }
    return page;
  },

  async "what is shown of each run is what Python says, and keys go on"(browser) {
    const page = await show(browser, "runs");
    for (const { number, step, memory, offset, value, steps } of expected.values) {
      await page.evaluate((to) => replay.runs.show(to), number);
      await page.evaluate((to) => replay.go(to), step);
      await drawn(page); // a problem shows its memory
      await page.evaluate(([of, at]) => replay.update({ memory: of, at: { memory: of, offset: at } }), [memory, offset]);
      await drawn(page);
      const shown = await text(page, "#byte-value");
      const same = value === "nan" ? shown === "nan" : Math.fround(Number(shown)) === Math.fround(Number(value));
      assert.ok(same, `${shown} is not ${value}`);
      assert.equal(await text(page, "#of"), `of ${steps - 1}`);
    }
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowRight");
    await drawn(page);
    assert.equal((await state(page)).step, 1); // only one session hears the key
    const before = (await state(page)).run;
    await page.keyboard.press("s");
    await drawn(page);
    assert.notEqual((await state(page)).run, before);
    await page.keyboard.press("Shift+S");
    await drawn(page);
    assert.equal((await state(page)).run, before);
    return page;
  },

  async "a link names the run"(browser) {
    const page = await show(browser, "runs", "#run=repaired&step=3");
    assert.deepEqual(await state(page), { run: "repaired", step: 3, problem: null });
    const other = await show(browser, "runs", "#run=nobody&step=2");
    assert.match(await text(other, "#notice"), /run=nobody: the runs are/);
    return page;
  },

  async "lines that only one kernel has are marked"(browser) {
    const page = await show(browser, "runs", "#run=repaired");
    await drawn(page);
    const seen = await page.$$eval("#ptx-code .code", (rows) => rows.map((row) => [Number(row.dataset.line), row.classList.contains("apart")]));
    for (const [line, apart] of seen) assert.equal(apart, expected.apart.includes(line), `line ${line}`);
    return page;
  },

  async "errors of elements, of lines, and the first NaN"(browser) {
    const page = await show(browser, "lost", `#step=${expected.lost.last}`);
    await page.selectOption("#memory-pick", String(expected.lost.memory));
    await page.selectOption("#memory-colour", "error");
    for (const { offset, exact, error } of expected.lost.elements) {
      await page.evaluate(([of, at]) => replay.update({ memory: of, at: { memory: of, offset: at } }), [expected.lost.memory, offset]);
      await drawn(page);
      const shown = await text(page, "#byte-error");
      if (error === null) assert.equal(shown, "no number");
      else {
        assert.equal(Number(await text(page, "#byte-exact")), exact);
        assert.ok(Math.abs(Number(shown) - error) <= 1e-3 * Math.abs(error), `${shown} is not ${error}`);
      }
    }
    assert.match(await text(page, "#memory-legend"), /all bits lost/);
    for (const { step, offset, exact } of expected.lost.early) {
      await page.evaluate(([to, of, at]) => (replay.go(to), replay.update({ memory: of, at: { memory: of, offset: at } })), [step, expected.lost.memory, offset]);
      await drawn(page);
      assert.equal(Number(await text(page, "#byte-exact")), exact);
    }
    await page.keyboard.press("Home");
    for (const { code, step } of expected.lost.problems) {
      await page.keyboard.press("p");
      await drawn(page);
      assert.deepEqual(await page.evaluate(() => [replay.problem.code, replay.step]), [code, step]);
      assert.doesNotMatch(await text(page, "#hazard"), /other access/);
    }
    const badges = await page.$$eval("#ptx-code .code", (rows) => rows.flatMap((row) => (row.querySelector(".lost") ? [[Number(row.dataset.line), row.querySelector(".lost").textContent]] : [])));
    for (const [line, said] of badges) assert.equal(said, expected.lost.lines[line]);
    assert.ok(badges.length);
    return page;
  },

  async "a launch that was stopped ends at its fault, and says what is left out"(browser) {
    const page = await show(browser, "fault");
    await page.keyboard.press("p");
    await drawn(page);
    assert.equal((await state(page)).step, expected.fault.step);
    assert.match(await text(page, "#hazard"), /out of bounds/);
    assert.match(await text(page, "#left-out"), /Only block 0 of the grid is recorded.*--blocks/);
    assert.equal(await page.locator("#runs").isVisible(), false);
    return page;
  },
};

await run(TESTS);
