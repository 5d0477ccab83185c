// What the page computes, for Python to compare with what it computes itself.
// Reads JSON: {cases: [{op, target, change, A, B, C, codes, scale_A, scale_B, at}]},
// operands as hexadecimal words; writes D of each case, and explanations of elements.
// Then {words: [[type, word]], files: [[type, base64]]}: the bits, or why not; and
// {whole: [[op, A]]}: the stored values and codes of a sparse A, and A again.

import { readFileSync } from "node:fs";
import { catalogue, modules } from "./modules.mjs";

const {
  multiplyAll, lineOf, explain, told, patterns, fit, fitted, numberIn, npyTable,
  compressed, decompressed, scene,
} = await modules(
  "numbers/accumulate", "numbers/trace", "numbers/telling", "numbers/elements", "numbers/entry", "numbers/npy", "numbers/storing", "records/matrix",
);
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

/** What was read, or why it is refused. */
function attempt(act) {
  try {
    return act();
  } catch (error) {
    return { refused: error.message };
  }
}

const hex = (bits) => bits.toString(16);
const wordOf = ([type, word]) =>
  attempt(() => {
    const { bits, exact } = fit(type, catalogue.types[type], numberIn(word));
    return { bits: hex(bits), exact };
  });
const fileOf = ([type, text]) =>
  attempt(() => {
    const buffer = Uint8Array.from(Buffer.from(text, "base64")).buffer;
    const table = npyTable(buffer, type, catalogue.types[type]);
    return [...fitted("A", type, catalogue.types[type], table).bits].map(hex).join(" ");
  });

const storedOf = ([name, text]) =>
  attempt(() => {
    const op = byName.get(name);
    const drawn = scene(catalogue, op, 0);
    const { type } = drawn.matrices.get("A");
    const { bits, codes } = compressed(drawn, catalogue.types[type], read(type, text));
    const again = decompressed(drawn, catalogue.types[type], bits, codes);
    return [bits, codes, again].map((each) => [...each].map(hex).join(" "));
  });

const { cases = [], words = [], files = [], whole = [] } = JSON.parse(readFileSync(0, "utf8"));
const answers = {
  cases: cases.map(answer),
  words: words.map(wordOf),
  files: files.map(fileOf),
  whole: whole.map(storedOf),
};
process.stdout.write(JSON.stringify(answers));
