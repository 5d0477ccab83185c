// What the page works out, for Python to compare with what it works out itself.
// Reads names of instructions from the input, one a line; writes JSON.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { catalogue, digest, modules } from "./modules.mjs";

const {
  Layout, scene, Values, filled, usualTarget, Route, search, meantBy, nearby, grouped, FAMILIES,
} = await modules(
  "records/layout", "records/matrix", "numbers/values", "numbers/fills", "memory/route", "records/searching", "records/short",
);
// Without FRAGMENTA_THOROUGH, one of so many that repeat a kind.
const oneOf = (many) => (process.env.FRAGMENTA_THOROUGH ? 1 : many);
const gathers = catalogue.parts.map(({ line, axes }, at) =>
  at % oneOf(3) === 0 ? digest(new Layout(line, axes).gather()) : null,
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
  "HGMMA.64x256x16", "HGMMA.64x64x16.F32 R24, gdesc[UR4], RZ, !UPT, gsb0 ;", "LDSM.16.MT88.4", "DMMA.RZ", "LDTM.16dp128bit",
];

// Links in words: Python's fm.find must mean the same one instruction.
const MEANT = [
  "mma.m16n8k64.s4.s4", "sparse int8 16x8x64", "HMMA.16816.F32.BF16", "hmma 16816 f32",
  "tcgen05.m128n256k16.f32.f16", "wgmma.m64n256k16.f32.bf16.bf16", "movmatrix",
  "hopper binary wgmma 64x8x256", "mma.sp.m16n8k32.f32.f16.f16", "nvfp4 16x8x64",
  "mma.sp::ordered_metadata.m16n8k32.f32.f16.f16", "ldmatrix.m8n8.x4.b16", "fp64 16x8x16",
  "binary xor 16x8x256", "IGMMA.64x64x32.S8.S8", "tcgen05.ld.32x32b.x4",
  "mma.m8n8k4.row.col.f32.f16.f16.f32", "2:4 bf16 16x8x32", "satfinite int8 16x8x32",
];

// Words that no instruction has: Python's fm.find must name the same one instead, or
// the same reason.
const REFUSED = [
  "m16n8k13", "m16n8k63", "m64n7k16", "m64n264k16", "m15n8k16", "m16n8k100",
  "e4m4", "e2m2", "nvfp5", "hoper", "spars", "blackwel", "ldmatrx",
  "tcgen05.mma.m128n128k16.f16.f16.f32", "tcgen05 m128n128k32 e4m3 e4m3 f32", "tcgen05.m128n64k64.e2m1.e2m1.f32.ue4m3",
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
// A tcgen05.mma has many widths: of all but two, one of eleven is taken.  Of the other
// instructions, one of three, and one for each way to multiply.
const some = ops.filter(({ name, tensor, shape }, at) =>
  tensor
    ? [64, 256].includes(shape[1]) || at % oneOf(11) === 0
    : wanted.has(name) || at % oneOf(3) === 0,
);
const sparse = chosen.filter((op) => op.pattern !== undefined);
const result = {
  gathers,
  places: Object.fromEntries(some.map((op) => [op.name, placesOf(op)])),
  values: Object.fromEntries(chosen.map((op) => [op.name, valuesOf(op, "small")])),
  identities: Object.fromEntries(
    sparse.map((op) => [op.name, valuesOf(op, "identity")]),
  ),
  meant: Object.fromEntries(
    MEANT.map((words) => [words, meantBy(catalogue, words).map(({ name }) => name)]),
  ),
  refused: Object.fromEntries(REFUSED.map((words) => [words, [search(catalogue, words).length, nearby(catalogue, words).said]])),
  // Every row once, every instruction in one, and no family without a place in the order.
  listed: grouped(catalogue, ops).flatMap(({ rows }) => rows.flatMap((row) => row.ops)).length,
  unplaced: catalogue.families.filter((family) => !FAMILIES.includes(family)),
  found: Object.fromEntries(ASKED.map((words) => [words, foundBy(words)])),
  routes: Object.fromEntries(
    some.filter((op) => op.tensor).map((op) => [op.name, routeOf(op)]),
  ),
};
process.stdout.write(JSON.stringify(result));
