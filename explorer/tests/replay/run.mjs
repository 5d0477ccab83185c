// The replay in a real browser: node tests/replay/run.mjs

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { areQuick, drawn, open, run } from "../browser.mjs";
import { make } from "./made.mjs";
import { folder, SHELL, written } from "./pages.mjs";

const require = createRequire(import.meta.url);
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const DESK = { viewport: { width: 1440, height: 900 } };
const PHONE = { viewport: { width: 390, height: 844 } };

const made = make(5);
const { head, data } = made;
const PAGE = written("made", made);
const [{ steps: [ISSUE, HAZARD] }] = head.problems;
const LAST = data.site.length - 1;

const show = (browser, hash = "", settings = DESK, page = PAGE) => open(browser, hash, settings, page);
const text = async (page, selector) => (await page.locator(selector).innerText()).replace(/\s+/g, " ").trim();
const stepOf = async (page) => {
  await drawn(page);
  return Number(await page.inputValue("#step"));
};
const press = async (page, key) => {
  await page.keyboard.press(key);
  return stepOf(page);
};
const site = (step) => head.sites[data.site[step]];
const stepsOf = (warp) => [...data.warp.keys()].filter((step) => data.warp[step] === warp);

const asFloat = (word) => new Float32Array(Uint32Array.of(word).buffer)[0];

/** What a register holds after a step, as numbers by lane; by doing every step again. */
function registersAfter(last, warp) {
  const held = new Map();
  for (const step of stepsOf(warp).filter((each) => each <= last)) {
    let at = data.at[step];
    for (const register of site(step).writes) {
      const { name, type, bits } = head.registers[register];
      const lanes = Array.from({ length: 32 }, (_, lane) => {
        if (type === "pred") return Boolean((data.words[at] >>> lane) & 1);
        if (bits === 64) return (BigInt(data.words[at + 2 * lane + 1]) << 32n) | BigInt(data.words[at + 2 * lane]);
        const word = data.words[at + lane];
        return type === "f32" ? asFloat(word) : word;
      });
      held.set(name, lanes);
      at += type === "pred" ? 1 : Math.max(32, bits);
    }
  }
  return held;
}

function same(shown, value, where) {
  if (typeof value === "boolean") return assert.equal(shown, String(value), where);
  if (typeof value === "bigint") return assert.equal(BigInt(shown), value, where);
  assert.ok(Object.is(Math.fround(Number(shown.replace("inf", "Infinity").replace("nan", "NaN"))), Math.fround(value)), `${where}: ${shown} is not ${value}`);
}

/** The float at an offset of a memory after a step; null if nobody has written it. */
function floatAfter(last, memory, offset) {
  const begin = head.memories.slice(0, memory).reduce((sum, { size }) => sum + size, 0);
  let bytes = memory === 1 ? data.initial.slice(begin + offset, begin + offset + 4) : null;
  for (const [write, step] of data.w_step.entries()) {
    const past = offset - data.w_offset[write];
    if (step > last || data.w_memory[write] !== memory || past < 0 || past >= data.w_size[write]) continue;
    bytes = data.bytes.slice(data.w_at[write] + past, data.w_at[write] + past + 4);
  }
  return bytes && new DataView(bytes.buffer).getFloat32(0, true);
}

async function pointAt(page, offset, click = false) {
  await drawn(page);
  const at = await page.evaluate((each) => document.getElementById("map").pointOf(each), offset);
  await page.mouse.move(at.x, at.y);
  if (click) await page.mouse.click(at.x, at.y);
  await drawn(page);
}

const TESTS = {
  async "keys step by instruction, line, event and problem, both ways"(browser) {
    const page = await show(browser);
    assert.equal(await stepOf(page), 0);
    assert.equal(await press(page, "ArrowRight"), 1);
    assert.equal(await press(page, "ArrowLeft"), 0);
    const [mine] = [stepsOf(0)];
    for (const key of ["F11", "i"]) {
      const now = await stepOf(page);
      assert.equal(await press(page, key), mine.find((step) => step > now));
    }
    assert.equal(await press(page, "Shift+F11"), mine[1]);
    const line = await press(page, "F10");
    assert.notEqual(site(line).line, site(mine[1]).line);
    assert.equal(data.warp[line], 0);
    assert.equal(await press(page, "p"), HAZARD);
    assert.equal(await press(page, "Shift+P"), HAZARD); // there is none before
    assert.match(await text(page, "#toast"), /no problem before/);
    const event = await press(page, "e");
    assert.ok(event > HAZARD && await press(page, "Shift+E") <= HAZARD);
    assert.equal(await press(page, "End"), LAST);
    assert.equal(await press(page, "Home"), 0);
    return page;
  },

  async "what is shown of registers is what was recorded"(browser) {
    const page = await show(browser);
    for (const step of [3, 20, 45, HAZARD, 96, 99, 100, LAST]) {
      for (const warp of [0, 1]) {
        const lane = (7 * step) % 32;
        await page.evaluate(([to, of, at]) => (replay.go(to), replay.update({ warp: of, lane: at })), [step, warp, lane]);
        await drawn(page);
        const held = registersAfter(step, warp);
        const rows = await page.$$eval("#registers .register", (found) => found.map((row) => [row.querySelector(".name").textContent, row.querySelector(".value").textContent]));
        assert.ok(rows.length >= 4);
        for (const [name, shown] of rows) {
          const value = held.get(name);
          if (value) same(shown, value[lane], `${name} at step ${step}`);
          else assert.equal(shown, "no value yet");
        }
        const [name, ...cells] = await page.$$eval("#all-lanes code, #all-lanes .grid span", (found) => found.map((each) => (each.title ? each.title.split(/: |, written/)[1] : each.textContent)));
        if (name) cells.forEach((shown, at) => same(shown, held.get(name)[at], `${name}, lane ${at}`));
      }
    }
    return page;
  },

  async "a byte says its value, who wrote it, who may still, and who reads it"(browser) {
    const page = await show(browser, `#step=${HAZARD}`);
    for (const offset of [0, 68, 508]) {
      await pointAt(page, offset);
      same(await text(page, "#byte-value"), floatAfter(HAZARD, 0, offset), `tile + ${offset}`);
    }
    const said = await text(page, "#byte");
    assert.match(said, new RegExp(`written by cp.async group 0, step ${head.units[0].done}`));
    assert.match(said, new RegExp(`may still write cp.async group 2, issued at step ${ISSUE}`));
    assert.match(said, new RegExp(`read by warp 1, lane 31, step ${HAZARD}`));
    // What is pinned stays, and its next write is where the copy is done.
    await pointAt(page, 68, true);
    await page.mouse.move(5, 5);
    assert.equal(await press(page, "w"), head.units[2].done);
    same(await text(page, "#byte-value"), floatAfter(head.units[2].done, 0, 68), "after the copy");
    assert.equal(await press(page, "Shift+W"), head.units[0].done);
    await page.locator("#byte .go").first().click();
    assert.equal(await stepOf(page), head.units[0].done);
    // A global array: the lane that stored it.
    await page.evaluate((last) => (replay.go(last), replay.update({ memory: 2, at: { memory: 2, offset: 20 } })), LAST);
    await drawn(page);
    assert.match(await text(page, "#byte"), /written by warp 1, lane 5, step \d+ \(st\.global\.f32, scale\.cu:16\)/);
    same(await text(page, "#byte-value"), floatAfter(LAST, 2, 20), "out");
    // Nobody has written what is spare.
    await page.evaluate(() => replay.update({ memory: 0, at: { memory: 0, offset: 1040 } }));
    await drawn(page);
    assert.match(await text(page, "#byte"), /never written.*nobody yet/);
    return page;
  },

  async "the link holds step, warp, lane and byte"(browser) {
    const page = await show(browser, "#step=96&warp=0&lane=3&at=0:0x44");
    await page.waitForTimeout(300);
    const hash = await page.evaluate(() => location.hash);
    assert.equal(hash, "#step=96&warp=0&lane=3&at=0:0x44");
    const found = await page.evaluate(() => [replay.step, replay.warp, replay.lane, replay.at]);
    assert.deepEqual(found, [96, 0, 3, { memory: 0, offset: 68 }]);
    const wrong = await show(browser, "#step=100000&at=9:0");
    assert.match(await text(wrong, "#notice"), /not right.*step=100000: there are steps 0 to 139.*no such byte/);
    return page;
  },

  async "a hazard stops the film and shows both accesses and what is missing"(browser) {
    const page = await show(browser, `#step=${HAZARD - 3}`);
    assert.equal(await page.locator("#hazard").isVisible(), false);
    await page.keyboard.press("Space");
    await page.waitForFunction(() => document.getElementById("play").getAttribute("aria-pressed") === "false" && !document.getElementById("hazard").hidden);
    assert.equal(await stepOf(page), HAZARD);
    const said = await text(page, "#hazard");
    for (const part of ["read-before-arrival", "missing: cp.async.wait_group 0", `a step ${ISSUE}, warp 0`, `b step ${HAZARD}, warp 1`]) assert.ok(said.includes(part), part);
    assert.equal(await text(page, "#source-code .code.now .badge"), "1b");
    await page.locator("#hazard button").first().click();
    assert.equal(await stepOf(page), ISSUE);
    assert.equal(await text(page, "#source-code .code.now .badge"), "1a");
    return page;
  },

  async "problems of one step come after each other, and the link says which"(browser) {
    const twice = make(5);
    twice.head.problems.push({ ...twice.head.problems[0], number: 2, code: "another", steps: [ISSUE - 9, HAZARD] });
    const page = await show(browser, "", DESK, written("twice", twice));
    const number = async (key) => (await press(page, key), text(page, "#hazard strong"));
    assert.match(await number("p"), /Problem 1 of 2: read-before-arrival/);
    assert.match(await number("p"), /Problem 2 of 2: another/);
    assert.equal(await stepOf(page), HAZARD);
    await page.waitForTimeout(300);
    assert.match(await page.evaluate(() => location.hash), /problem=2/);
    await press(page, "p");
    assert.match(await text(page, "#toast"), /no problem after/);
    assert.match(await number("Shift+P"), /Problem 1 of 2/);
    const linked = await show(browser, `#step=${HAZARD}&problem=2`, DESK, written("twice", twice));
    assert.match(await text(linked, "#hazard strong"), /Problem 2 of 2/);
    return page;
  },

  async "a line shows its executions, and a breakpoint stops there"(browser) {
    const page = await show(browser);
    await page.locator('#source-code [data-line="15"] .text').click();
    await page.locator("#line-said", { hasText: "was run" }).waitFor(); // drawn in a frame
    assert.match(await text(page, "#line-said"), /scale\.cu:15 was run 5 times/);
    const runs = stepsOf(1).filter((step) => site(step).line === 15);
    await page.locator("#line-after").click();
    assert.equal(await stepOf(page), runs[0]);
    assert.equal(await press(page, "r"), runs[1]);
    assert.equal(await press(page, "Shift+R"), runs[0]);
    await page.keyboard.press("F9");
    await press(page, "Home");
    assert.equal(await press(page, "F8"), runs[0]);
    assert.equal(await press(page, "F8"), runs[1]);
    assert.equal(await press(page, "c"), HAZARD);
    assert.equal(await text(page, '#ptx-code [data-line="24"] .runs'), "10×");
    return page;
  },

  async "the first NaN is found"(browser) {
    const page = await show(browser);
    const step = await press(page, "n");
    assert.equal(site(step).text, "mul.f32 %f5, %f1, %f2;");
    assert.equal(await page.locator("#all-lanes .wrong").count(), 1);
    assert.match(await text(page, "#all-lanes .wrong"), /nan/);
    await page.keyboard.press("n");
    await page.keyboard.press("n");
    assert.match(await text(page, "#toast"), /no NaN in a register after/);
    return page;
  },

  async "time: a click goes there, a drag moves, the strip leaps"(browser) {
    const page = await show(browser);
    const box = await page.locator("#time canvas").boundingBox();
    await page.mouse.click(box.x + box.width * 0.5, box.y + 42 + 10);
    const there = await stepOf(page);
    assert.ok(Math.abs(there - LAST / 2) < 8 && data.warp[there] === 0, `step ${there}`);
    await page.mouse.click(box.x + box.width - 12, box.y + 8);
    assert.ok((await stepOf(page)) > LAST - 4);
    for (const key of ["+", "+", "-", "0"]) await page.keyboard.press(key);
    await page.mouse.move(box.x + 200, box.y + 52);
    assert.match(await text(page, "#tip"), /step \d+, warp 0/);
    await page.keyboard.press("?");
    assert.match(await text(page, "#sheet"), /next instruction of this warp/);
    await page.keyboard.press("Escape");
    return page;
  },

  async "what cannot be read is said"(browser) {
    const empty = await open(browser, "", DESK, pathToFileURL(SHELL).href);
    assert.match(await text(empty, "#main"), /There is no recording in this page/);
    const cut = join(folder, "cut.html");
    const half = make(2);
    half.head.columns.words.count *= 1000;
    writeFileSync(cut, readFileSync(new URL(written("half", half)), "utf8"));
    const page = await open(browser, "", DESK, pathToFileURL(cut).href);
    assert.match(await text(page, "#main"), /The column \w+ is cut off/);
    return page;
  },

  async "phone: nothing is wider than the screen, every part can be seen"(browser) {
    const page = await show(browser, `#step=${HAZARD}&at=0:0x44`, PHONE);
    for (const name of ["Source", "Memory", "Warp"]) {
      await page.locator("#panes").getByText(name).click();
      await drawn(page);
      assert.ok(await page.locator(`#${name.toLowerCase()}`).isVisible());
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390, name);
    }
    return page;
  },

  async "on paper there is the kernel, the time and every part"(browser) {
    const page = await show(browser, `#step=${HAZARD}&at=0:0x44`, PHONE);
    await page.emulateMedia({ media: "print" });
    for (const part of ["#kernel", "#facts", "#time canvas", "#hazard", "#source", "#memory", "#byte", "#warp"]) {
      assert.ok(await page.locator(part).isVisible(), part);
    }
    assert.equal(await page.locator("header .tools").isVisible(), false);
    return page;
  },

  async "axe: no violations, light and dark, with the sheet open"(browser) {
    const views = [
      [`#step=${HAZARD}&at=0:0x44`, { ...DESK, colorScheme: "light" }],
      [`#step=20&line=scale.cu:15`, { ...DESK, colorScheme: "dark" }],
      [`#step=${HAZARD}`, { ...PHONE, colorScheme: "dark" }],
      ["", { ...DESK, colorScheme: "light" }, (page) => page.keyboard.press("?")],
    ];
    for (const [hash, settings, act] of views) {
      const page = await show(browser, hash, settings);
      await act?.(page);
      await page.waitForTimeout(100);
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
      assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes.map((n) => n.html).join("\n")}`), [], hash);
      await page.context().close();
    }
  },

  async "what is kept from step to step is what is drawn at once"(browser) {
    const all = (page) =>
      page.evaluate(() => {
        const said = (selector) => [...document.querySelectorAll(selector)].map((each) => [each.className, each.title, each.getAttribute("style"), each.textContent].join("|"));
        const lines = [...document.querySelectorAll(".code")].map((each) => [`${each.closest("[id]").id} ${each.dataset.line}`, `${each.className} ${each.textContent} ${each.querySelector(".badge")?.className}`]);
        const map = document.querySelector("#map canvas");
        return { rows: said("#registers .register, #registers .section, #registers .strip"), lanes: said("#lanes span, #all-lanes *"), lines, map: map.toDataURL() };
      });
    const page = await show(browser);
    for (const [at, colour] of [[HAZARD, "state"], [20, "state"], [LAST, "values"], [HAZARD, "values"], [99, "writer"], [HAZARD - 1, "state"]]) {
      await page.selectOption("#memory-colour", colour);
      for (const step of [at - 7, at - 1, at]) {
        await page.evaluate((to) => replay.go(Math.max(0, to)), step);
        await drawn(page);
      }
      const fresh = await show(browser, `#step=${at}`);
      await fresh.selectOption("#memory-colour", colour);
      await drawn(fresh);
      const [kept, made] = [await all(page), await all(fresh)];
      assert.deepEqual(kept.rows, made.rows, `registers at step ${at}`);
      assert.deepEqual(kept.lanes, made.lanes, `lanes at step ${at}`);
      const both = new Map(kept.lines);
      for (const [line, seen] of made.lines) if (both.has(line)) assert.equal(both.get(line), seen, `line ${line} at step ${at}`);
      assert.ok(kept.map === made.map, `memory ${colour} at step ${at}`);
      await fresh.context().close();
    }
    return page;
  },

  async "speed: a hundred thousand steps"(browser) {
    const long = make(4200);
    assert.ok(long.data.site.length > 100_000);
    const page = await show(browser, "", DESK, written("long", long));
    const acts = {
      step: () => replay.move("step"),
      back: () => replay.move("line", true),
      seek: (at) => replay.go((at * 102_947) % replay.run.count),
      all: (at) => (at === 0 && document.getElementById("zoom-fit").click(), replay.go((at * 54_321) % replay.run.count)),
      zoom: () => document.getElementById("zoom-in").click(),
    };
    await areQuick(page, acts, 20);
    return page;
  },
};

await run(TESTS);
