// The frames of the animated picture in the README: node tests/film.mjs FOLDER
// docs/plots/film.py puts them together, and leaves in the folder what a launch printed.
//
// Three scenes: an element is found, a bit is lost, a hazard is stopped.  The window is as
// wide as the README shows the film, so that all letters keep their size.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { launch, open, pointAt } from "./browser.mjs";

const folder = process.argv[2] ?? "film";
mkdirSync(folder, { recursive: true });
const here = dirname(fileURLToPath(import.meta.url));
const WINDOW = { viewport: { width: 800, height: 600 }, deviceScaleFactor: 1.5 };
const FOUND = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32";
const LOST = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32";

const browser = await launch();
/** File names and milliseconds. */
const frames = [];

async function shoot(page, milliseconds) {
  const name = `${String(frames.length).padStart(3, "0")}.png`;
  await page.screenshot({ path: join(folder, name) });
  frames.push([name, milliseconds]);
}

/** What the scene shows, below everything else; the page draws the pointer, too. */
async function caption(page, text) {
  await page.evaluate((said) => {
    const bar = document.createElement("div");
    bar.textContent = said;
    bar.style.cssText =
      "position:fixed;z-index:98;left:0;right:0;top:0;padding:9px 16px;color:#fff;" +
      "background:#0b57a8;font:600 19px/1.3 system-ui,sans-serif";
    document.body.append(bar);
    document.body.style.paddingTop = "43px";
    const pointer = document.createElement("div");
    pointer.style.cssText =
      "position:fixed;z-index:99;width:18px;height:18px;margin:-9px;" +
      "border-radius:50%;border:2px solid #d55e00;pointer-events:none;left:-50px";
    document.body.append(pointer);
    addEventListener("pointermove", (event) => {
      pointer.style.left = `${event.clientX}px`;
      pointer.style.top = `${event.clientY}px`;
    });
  }, text);
}

/** Nothing but the picture and the card: the tools take half of a small window. */
const bare = (page) =>
  page.addStyleTag({
    content: "header, .about, .tools { display: none !important; }",
  });

// ── an element is found ─────────────────────────────────────────────────────

{
  const page = await open(browser, `#op=${FOUND}`, WINDOW);
  await bare(page);
  await caption(page, "1  Which lane holds A[3][9], in which register?");
  await page.waitForTimeout(300);
  await shoot(page, 1500);
  for (const [row, col] of [
    [1, 4],
    [2, 7],
  ]) {
    await pointAt(page, "A", row, col);
    await shoot(page, 450);
  }
  await pointAt(page, "A", 3, 9, { click: true });
  await page.waitForTimeout(200);
  await shoot(page, 3200);
  await page.context().close();
}

// ── a bit is lost ───────────────────────────────────────────────────────────

{
  const hash = `#op=${LOST}&values=random&target=sm_89&tab=explain&at=D[3][5]`;
  const page = await open(browser, hash, WINDOW);
  await caption(page, "2  Which bits does an fp8 product on Ada lose?");
  await page.evaluate(() => {
    const step = document.querySelector("#panel .step");
    window.scrollTo(0, step.getBoundingClientRect().top + window.scrollY - 60);
  });
  await page.addStyleTag({ content: "#element { display: none !important; }" });
  await page.waitForTimeout(300);
  await shoot(page, 4200);
  await page.context().close();
}

// ── a hazard is stopped ─────────────────────────────────────────────────────

{
  const page = await (await browser.newContext(WINDOW)).newPage();
  const [command, ...said] = readFileSync(join(folder, "report.txt"), "utf8").split("\n");
  const picture = readFileSync(join(here, "../../docs/images/timeline-readme.svg"), "utf8");
  const source = `data:image/svg+xml;base64,${Buffer.from(picture).toString("base64")}`;
  await page.setContent(`<style>
    body { margin: 0; background: #0d1017; color: #e6edf3; }
    pre { margin: 0; padding: 12px 16px; font: 13.5px/1.42 "DejaVu Sans Mono", monospace; }
    pre b { color: #ff7b72; } pre i { color: #7ee787; font-style: normal; }
    #shown { display: flex; background: #fff; visibility: hidden; height: 163px; }
    #shown div { overflow: hidden; background: url("${source}") no-repeat; }
    #names { width: 128px; background-position: 0 -52px !important; }
    #events { flex: 1; background-position: -328px -52px !important; }
  </style><pre id="said"></pre><div id="shown"><div id="names"></div><div id="events"></div></div>`);
  await caption(page, "3  The result was right. The wait is missing all the same.");
  const write = (text) =>
    page.evaluate((lines) => {
      const marked = lines
        .replace(/&/g, "&amp;")
        .replace(/</g, "&lt;")
        .replace(/error: [\w-]+/, "<b>$&</b>")
        .replace(/hint: [^]*/, "<i>$&</i>");
      document.querySelector("#said").innerHTML = marked;
    }, text);
  await write(command);
  await shoot(page, 1100);
  await write([command, ...said].join("\n"));
  await shoot(page, 3000);
  await page.evaluate(() => (document.querySelector("#shown").style.visibility = "visible"));
  await shoot(page, 4200);
}

writeFileSync(join(folder, "frames.json"), JSON.stringify(frames));
await browser.close();
