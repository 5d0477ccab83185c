// What the page computes, for Python to compare with what it computes itself.
// Reads JSON: {cases: [{op, target, change, A, B, C, codes, scale_A, scale_B, at}]},
// operands as hexadecimal words; writes D of each case, and explanations of elements.

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
async function modules(names) {
  const folder = mkdtempSync(join(tmpdir(), "explorer-"));
  const contents = names.map((name) => `export * from "./${name}.ts";`).join("\n");
  const outfile = join(folder, "modules.mjs");
  const stdin = { contents, resolveDir: join(here, "../src") };
  buildSync({ stdin, bundle: true, format: "esm", outfile, logLevel: "error" });
  const loaded = await import(pathToFileURL(outfile).href);
  rmSync(folder, { recursive: true });
  return loaded;
}

const { multiplyAll, lineOf, explain, told, patterns } = await modules([
  "accumulate", "trace", "telling", "elements",
]);
const catalogue = catalogueOf(readFileSync(page, "utf8"));
const byName = new Map(catalogue.instructions.map((op) => [op.name, op]));

const read = (type, text) => {
  const words = text ? text.split(" ") : [];
  const found = patterns(catalogue.types[type], words.length);
  const wide = found instanceof BigUint64Array;
  words.forEach((word, at) => {
    found[at] = wide ? BigInt(`0x${word}`) : parseInt(word, 16);
  });
  return found;
};

function answer(given) {
  const op = byName.get(given.op);
  const { ways } = catalogue.sums[op.sums];
  const way = ways.find((each) => each.targets.includes(given.target));
  const model = { ...catalogue.models[way.model], ...given.change };
  const operands = {
    rows: given.rows,
    columns: given.columns,
    a: read(model.a, given.A),
    b: read(model.b, given.B),
    c: read(model.c, given.C),
    meets: Int32Array.from(given.meets),
    scaleA: model.scale && read(model.scale, given.scale_A),
    scaleB: model.scale && read(model.scale, given.scale_B),
  };
  const begin = performance.now();
  const d = multiplyAll(catalogue.types, model, operands);
  const took = performance.now() - begin;
  const explained = (given.at ?? []).map(([row, col]) => {
    const found = explain(catalogue.types, model, lineOf(model, operands, row, col));
    const bits = found.bits.toString(16);
    return { bits, text: told(catalogue, given.op, given.target, row, col, found) };
  });
  return { D: [...d].map((bits) => bits.toString(16)).join(" "), explained, took };
}

const { cases } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(cases.map(answer)));
