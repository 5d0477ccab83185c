// What the page works out, for Python to compare with what it works out itself.
// Reads names of instructions from the input, one a line; writes JSON.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { catalogue, digest, modules } from "./modules.mjs";

const { Layout, scene, evaluate, firstCodes, Route, search } = await modules(
  "layout", "matrix", "values", "route", "searching",
);
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
  "HMMA.16816.F32", "HMMA.16816.F32 R4, R8, R12, R4 ;", "hmma.bf16", "IMMA.16832.S8.S8",
  "HGMMA.64x256x16", "LDSM.16.MT88.4", "DMMA.RZ", "LDTM.16dp128bit",
];

/** The names of the instructions that words find, in short. */
function foundBy(words) {
  const found = search(catalogue, words).map((op) => op.name);
  const hash = createHash("sha256").update(found.join("\n")).digest("hex");
  return [found.length, hash];
}

const wanted = new Set(readFileSync(0, "utf8").split("\n").filter(Boolean));
const ops = catalogue.instructions;
const chosen = ops.filter((op) => wanted.has(op.name));
const result = {
  gathers,
  places: Object.fromEntries(ops.map((op) => [op.name, placesOf(op)])),
  values: Object.fromEntries(chosen.map((op) => [op.name, valuesOf(op)])),
  found: Object.fromEntries(ASKED.map((words) => [words, foundBy(words)])),
  routes: Object.fromEntries(
    ops.filter((op) => op.tensor).map((op) => [op.name, routeOf(op)]),
  ),
};
process.stdout.write(JSON.stringify(result));
