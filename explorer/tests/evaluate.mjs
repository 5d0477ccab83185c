// What the page works out, for Python to compare with what it works out itself.
// Reads names of instructions from the input, one a line; writes JSON.

import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { inflateRawSync } from "node:zlib";
import { buildSync } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const page =
  process.env.EXPLORER_PAGE ?? join(here, "../../src/fragmenta/view/explorer.html");

function catalogueOf(html) {
  const [, text] = /id="catalogue">([^<]*)</.exec(html);
  return JSON.parse(inflateRawSync(Buffer.from(text, "base64")));
}

/** The page's own modules, as Node can load them. */
async function modules() {
  const folder = mkdtempSync(join(tmpdir(), "explorer-"));
  const names = [
    "layout", "matrix", "values", "fills", "storing", "shared", "route", "catalogue",
  ];
  const contents = names.map((name) => `export * from "./${name}.ts";`).join("\n");
  const outfile = join(folder, "modules.mjs");
  const stdin = { contents, resolveDir: join(here, "../src") };
  buildSync({ stdin, bundle: true, format: "esm", outfile, logLevel: "error" });
  const loaded = await import(pathToFileURL(outfile).href);
  rmSync(folder, { recursive: true });
  return loaded;
}

const digest = (...arrays) => {
  const hash = createHash("sha256");
  for (const array of arrays) hash.update(Buffer.from(Int32Array.from(array).buffer));
  return hash.digest("hex");
};

const { Layout, scene, Values, filled, usualTarget, addresses, packedTile, encoded, Route, search } =
  await modules();
const catalogue = catalogueOf(readFileSync(page, "utf8"));
const gathers = catalogue.parts.map(({ line, axes }) =>
  digest(new Layout(line, axes).gather()),
);

/** Per instruction and operand: lane, register and element of each element. */
function placesOf(op) {
  const { matrices } = scene(catalogue, op, 0);
  const held = [...matrices].filter(([, matrix]) => matrix.part);
  return Object.fromEntries(
    held.map(([name, m]) => [name, digest(m.lane, m.register, m.slot)]),
  );
}

/** What the operands hold, and D on the usual target. */
function valuesOf(op, fill) {
  const drawn = scene(catalogue, op, 0);
  const { operands, codes } = filled(catalogue, drawn, fill);
  const target = usualTarget(catalogue, op);
  const values = new Values(catalogue, drawn, codes, operands, target);
  const names = [...operands.keys(), "D"];
  const arrays = names.map((name) => [name, [...values.get(name)]]);
  return { target, codes: [...codes], ...Object.fromEntries(arrays) };
}

function memoryOf() {
  const found = [];
  for (const [bits, majors] of [
    [8, ["k"]],
    [16, ["k", "mn"]],
    [32, ["k"]],
    [1, ["k"]],
  ]) {
    for (const major of majors) {
      for (const swizzle of [0, 32, 64, 128]) {
        const tile = { rows: 64, k: 512 / bits, bits, major };
        const descriptor = packedTile(catalogue, tile, swizzle);
        const address = addresses(catalogue, descriptor, tile);
        const all = [];
        for (let mn = 0; mn < tile.rows; mn++) {
          for (let k = 0; k < tile.k; k++) all.push(address(mn, k));
        }
        const word = encoded(catalogue, descriptor);
        found.push({ ...tile, ...descriptor, word, addresses: digest(all) });
      }
    }
  }
  return found;
}

/** The registers of D: threads and registers, and the bytes of scales in blocks. */
function routeOf(op) {
  const drawn = scene(catalogue, op, 0);
  const route = new Route(catalogue, drawn);
  const bytes = [...drawn.matrices.values()]
    .filter(({ name }) => name.startsWith("scale"))
    .map((scale) => [
      scale.name,
      Array.from({ length: scale.size }, (_, index) => {
        const [block, line, byte] = route.byteOf(scale, index);
        return 512 * block + 16 * line + byte;
      }),
    ]);
  const registers = digest(route.thread, route.register);
  return { registers, scales: Object.fromEntries(bytes) };
}

// Words as people say them, for Python to say what they find.
const ASKED = [
  "fp8", "mma fp8 fp4", "half fp32", "nvfp4", "mxfp8 blackwell", "sparse int8 hopper",
  "2:4", "1:2 wgmma", "binary", "int4 turing", "HMMA 16816", "IMMA.16832", "QGMMA",
  "UTCHMMA.2CTA", "UTCOMMA", "LDSM", "16x8x16 dense", "tcgen05 fp6", "sm_120a fp4",
];

/** The names of the instructions that words find, in short. */
function foundBy(words) {
  const anything = { family: "", type: "", shape: "", target: "" };
  const found = search(catalogue, { words, ...anything }).map((op) => op.name);
  const hash = createHash("sha256").update(found.join("\n")).digest("hex");
  return [found.length, hash];
}

const wanted = new Set(readFileSync(0, "utf8").split("\n").filter(Boolean));
const ops = catalogue.instructions;
const chosen = ops.filter((op) => wanted.has(op.name));
const result = {
  gathers,
  places: Object.fromEntries(ops.map((op) => [op.name, placesOf(op)])),
  values: Object.fromEntries(chosen.map((op) => [op.name, valuesOf(op, "small")])),
  identities: Object.fromEntries(
    chosen.filter((op) => op.pattern !== undefined).map((op) => [op.name, valuesOf(op, "identity")]),
  ),
  memory: memoryOf(),
  found: Object.fromEntries(ASKED.map((words) => [words, foundBy(words)])),
  routes: Object.fromEntries(
    ops.filter((op) => op.tensor).map((op) => [op.name, routeOf(op)]),
  ),
};
process.stdout.write(JSON.stringify(result));
