// Compares views of the explorer and of the replay at three sizes with stored pictures.
//
//   node tests/looks.mjs            compare
//   node tests/looks.mjs --update   store what the page looks like now
//   node tests/looks.mjs --full FOLDER   also write all of them in full, for people
//   node tests/looks.mjs --only=replay   those alone whose names begin so
//
// Pictures are stored at a quarter of their size.  They are compared in squares of 12 x 12
// of these small pixels: in at most one square of a hundred may the mean of a colour differ
// by more than 24 of 255.  So fonts may differ a little, and nothing may move.  What differs
// is written to build/looks.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { launch, open, PAGE } from "./browser.mjs";
import { make } from "./replay/made.mjs";
import { written } from "./replay/pages.mjs";
import { pageOf, told } from "./replay/recorded.mjs";

const SCALE = 4;
const SQUARE = 12;
const TOLERANCE = 24;
const SHARE = 0.01;

const here = dirname(fileURLToPath(import.meta.url));
const stored = join(here, "looks");
const wrong = join(here, "../../build/looks");
const update = process.argv.includes("--update");
/** Only views whose names begin so. */
const only = /--only=(.*)/.exec(process.argv.find((each) => each.startsWith("--only=")) ?? "")?.[1] ?? "";
const full = process.argv.includes("--full") && process.argv.at(-1);

const SIZES = {
  desk: { width: 1440, height: 900 },
  wide: { width: 1920, height: 1080 },
  phone: { width: 390, height: 844 },
};

const F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
const S4 = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32";
const SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32";
const WGMMA = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16";
const WGMMA_SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n256k64.f32.e4m3.e4m3";
const SCALED =
  "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3";
const TENSOR = "tcgen05.mma.cta_group::1.kind::f16 0x08400010";
const LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16";
const WMMA = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32";

const search = async (page) => {
  await page.locator("#search").click();
  await page.keyboard.type("sparse int4");
};

const REPLAY = written("looks", make());
const byValue = (page) => page.selectOption("#memory-colour", "values");
const warpAlone = async (page) => {
  const button = page.locator("#panes").getByText("Warp");
  if (await button.isVisible()) await button.click();
};

const [, MMA] = told.gemm.elements;
const [, WAITED] = told.ring.elements;

/** Name, what the link says, what is done then, and the page if it is not the explorer. */
const VIEWS = [
  ["first", `op=${F16}`],
  ["int4", `op=${S4}`],
  ["sparse", `op=${SPARSE}&tab=metadata&at=D.29`],
  ["values", `op=${F16}&values=small&at=D.29`],
  ["explain", `op=${F16}&values=small&tab=explain&at=D.29`],
  ["wgmma", `op=${WGMMA}`],
  ["wgmma-sparse", `op=${WGMMA_SPARSE}&at=A.70`],
  ["memory", `op=${WGMMA}&tab=memory`],
  ["scaled", `op=${SCALED}`],
  ["tensor", `op=${TENSOR}&tab=path`],
  ["ldmatrix", `op=${LDMATRIX}`],
  ["wmma", `op=${WMMA}`],
  ["search", `op=${F16}`, search],
  ["replay-hazard", "step=71&at=0:0x44", null, REPLAY],
  ["replay-values", "step=99&memory=1&lane=5", byValue, REPLAY],
  ["replay-warp", "step=97&warp=1&lane=5&line=scale.cu:16&watch=%25f1*2&watch=tile[%25laneid]&find=ld.shared", warpAlone, REPLAY],
  ["replay-product", `step=${MMA.step}&d=${MMA.row},${MMA.col}`, null, pageOf("gemm")],
  ["replay-warpgroup", `step=${WAITED.step}&warp=0&product=1`, null, pageOf("ring")],
];

/** A screenshot as a small picture; in the page, which has a canvas. */
const shrink = (page, png) =>
  page.evaluate(
    async ([source, scale]) => {
      const image = new Image();
      image.src = source;
      await image.decode();
      const width = Math.round(image.width / scale);
      const height = Math.round(image.height / scale);
      const canvas = Object.assign(document.createElement("canvas"), { width, height });
      const context = canvas.getContext("2d", { willReadFrequently: true });
      context.imageSmoothingQuality = "high";
      context.drawImage(image, 0, 0, width, height);
      return canvas.toDataURL("image/webp", 0.8);
    },
    [`data:image/png;base64,${png.toString("base64")}`, SCALE],
  );

/** The share of squares in which two small pictures differ. */
const compared = (page, one, other) =>
  page.evaluate(
    async ([sources, square, tolerance]) => {
      const [a, b] = await Promise.all(
        sources.map(async (source) => {
          const image = new Image();
          image.src = source;
          await image.decode();
          const { width, height } = image;
          const canvas = new OffscreenCanvas(width, height);
          const context = canvas.getContext("2d");
          context.drawImage(image, 0, 0);
          return context.getImageData(0, 0, width, height);
        }),
      );
      if (a.width !== b.width || a.height !== b.height) return 1;
      let [different, all] = [0, 0];
      for (let top = 0; top + square <= a.height; top += square) {
        for (let left = 0; left + square <= a.width; left += square) {
          const sums = [0, 0, 0];
          for (let y = top; y < top + square; y += 1) {
            for (let x = left; x < left + square; x += 1) {
              const at = 4 * (y * a.width + x);
              for (let c = 0; c < 3; c += 1) sums[c] += a.data[at + c] - b.data[at + c];
            }
          }
          all += 1;
          const most = Math.max(...sums.map(Math.abs)) / square ** 2;
          if (most > tolerance) different += 1;
        }
      }
      return different / all;
    },
    [[one, other], SQUARE, TOLERANCE],
  );

const asUrl = (file) =>
  `data:image/webp;base64,${readFileSync(file).toString("base64")}`;
const bytes = (url) => Buffer.from(url.split(",")[1], "base64");

/** What differs, in words. */
export async function looks(browser, names = VIEWS.map(([name]) => name)) {
  const problems = [];
  const desk = await open(browser); // a page of its own for the arithmetic
  for (const [size, viewport] of Object.entries(SIZES)) {
    for (const [name, hash, act, address = PAGE] of VIEWS) {
      if (!names.includes(name) || !name.startsWith(only)) continue;
      const dark = ["wgmma-sparse", "explain", "replay-values", "replay-warpgroup"].includes(name);
      const page = await open(browser, `#${hash}`, {
        viewport,
        colorScheme: dark ? "dark" : "light",
        reducedMotion: "reduce",
      }, address);
      await act?.(page);
      const shot = await page.screenshot();
      if (full) {
        mkdirSync(full, { recursive: true });
        writeFileSync(join(full, `${name}-${size}.png`), shot);
      }
      const small = await shrink(desk, shot);
      await page.context().close();
      const file = join(stored, `${name}-${size}.webp`);
      if (update) {
        mkdirSync(stored, { recursive: true });
        writeFileSync(file, bytes(small));
        continue;
      }
      const share = existsSync(file) ? await compared(desk, asUrl(file), small) : 1;
      if (share <= SHARE) continue;
      mkdirSync(wrong, { recursive: true });
      writeFileSync(join(wrong, `${name}-${size}.webp`), bytes(small));
      problems.push(`${name} at ${size}: ${Math.round(100 * share)}% of it differs`);
    }
  }
  await desk.context().close();
  return problems;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const browser = await launch();
  const problems = await looks(browser);
  await browser.close();
  for (const problem of problems) console.error(problem);
  if (problems.length) console.error(`see ${wrong}; or update with --update`);
  process.exitCode = problems.length ? 1 : 0;
}
