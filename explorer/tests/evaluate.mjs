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
  const names = ["layout", "matrix", "values", "shared", "stored", "banks", "route", "catalogue"];
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

const { Layout, scene, evaluate, firstCodes, storedOf, usesShared, conflicts,
  accessAddresses, Route, search } = await modules();
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

function valuesOf(op) {
  const drawn = scene(catalogue, op, 0);
  const codes = firstCodes(drawn);
  const values = evaluate(catalogue, drawn, codes, "small");
  const arrays = [...values].map(([name, array]) => [name, [...array]]);
  return { codes: [...codes], ...Object.fromEntries(arrays) };
}

/** Every way to store an operand: what can be chosen, where it is, what it costs. */
function memoryOf(op) {
  const drawn = scene(catalogue, op, 0);
  const found = [];
  const first = { operand: "B", load: "", major: "k", swizzle: "0", numbers: [] };
  const start = storedOf(catalogue, drawn, first);
  if (typeof start === "string") return start;
  for (const operand of start.operands) {
    for (const major of storedOf(catalogue, drawn, { ...first, operand }).majors) {
      const here = { ...first, operand, major };
      for (const { name: load } of storedOf(catalogue, drawn, here).loads ?? []) {
        const at = { ...here, load };
        for (const swizzle of storedOf(catalogue, drawn, at).swizzles)
          found.push(storedRecord(drawn, { ...at, swizzle }));
      }
      if (!start.loads.length)
        for (const swizzle of start.swizzles)
          found.push(storedRecord(drawn, { ...here, swizzle, numbers: [144] }));
    }
  }
  return found;
}

/** What each lane addresses, in every part and warp. */
function allRows(drawn, move) {
  const found = [];
  for (let part = 0; part < move.parts; part++)
    for (let warp = 0; warp < drawn.warps; warp++) found.push(...move.rows(part, warp).flat());
  return found;
}

function storedRecord(drawn, choice) {
  const stored = storedOf(catalogue, drawn, choice);
  const { operand, lines, units, perUnit, bits, descriptor, lanes, pitch, move } = stored;
  const all = [];
  for (let line = 0; line < lines; line++)
    for (let unit = 0; unit < units; unit++) all.push(stored.unitAt(line, unit));
  const matrix = drawn.matrices.get(operand);
  const bytes = Array.from({ length: matrix.size }, (_, index) => stored.find(index)[2]);
  const rows = { rows: lines, units, address: stored.unitAt };
  const accesses = Object.keys(catalogue.memory.accesses).map((access) => {
    const cost = conflicts(catalogue, accessAddresses(access, rows), 16);
    return [access, cost.phases.map((phase) => phase.degree)];
  });
  const { major, swizzle, load } = stored.choice;
  const cost = lanes && conflicts(catalogue, lanes, 16);
  return {
    operand, major, swizzle, load, lines, units, perUnit, bits, descriptor, lanes, pitch,
    move: move && { name: move.op.name, tiles: move.tiles, along: move.along, parts: move.parts },
    rows: move && digest(allRows(drawn, move)),
    addresses: digest(all),
    bytes: digest(bytes),
    touched: [...stored.touched.keys()].sort((one, other) => one - other),
    accesses: Object.fromEntries(accesses),
    phases: cost && cost.phases.map(({ degree, words }) => [degree, words]),
  };
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
// Shared memory: the chosen ones, every move of matrices, and some of all others.
const sampled = ops.filter(
  (op, at) =>
    usesShared(op) &&
    (wanted.has(op.name) || /^(ld|st)matrix/.test(op.family) || at % 41 === 0),
);
const result = {
  gathers,
  places: Object.fromEntries(ops.map((op) => [op.name, placesOf(op)])),
  values: Object.fromEntries(chosen.map((op) => [op.name, valuesOf(op)])),
  memory: Object.fromEntries(sampled.map((op) => [op.name, memoryOf(op)])),
  found: Object.fromEntries(ASKED.map((words) => [words, foundBy(words)])),
  routes: Object.fromEntries(
    ops.filter((op) => op.tensor).map((op) => [op.name, routeOf(op)]),
  ),
};
process.stdout.write(JSON.stringify(result));
