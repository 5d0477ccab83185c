// How the page stores operands in shared memory, for Python to compare with its own.
// Reads names of instructions from the input, one a line; writes JSON.

import { readFileSync } from "node:fs";
import { catalogue, digest, modules } from "./modules.mjs";

const { scene, storedOf, usesShared, conflicts, accessAddresses } = await modules(
  "records/matrix",
  "memory/stored",
  "memory/banks",
);

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
    for (let warp = 0; warp < drawn.warps; warp++)
      found.push(...move.rows(part, warp).flat());
  return found;
}

function storedRecord(drawn, choice) {
  const stored = storedOf(catalogue, drawn, choice);
  const { operand, lines, units, perUnit, bits, descriptor, pitch, move } = stored;
  const { lanes, laneBytes } = stored;
  const all = [];
  for (let line = 0; line < lines; line++)
    for (let unit = 0; unit < units; unit++) all.push(stored.unitAt(line, unit));
  const matrix = drawn.matrices.get(operand);
  const bytes = Array.from(
    { length: matrix.size },
    (_, index) => stored.find(index)[2],
  );
  const rows = { rows: lines, units, address: stored.unitAt };
  const accesses = Object.keys(catalogue.memory.accesses).map((access) => {
    const cost = conflicts(catalogue, accessAddresses(access, rows), 16);
    return [access, cost.phases.map((phase) => phase.degree)];
  });
  const { major, swizzle, load } = stored.choice;
  const cost = lanes && conflicts(catalogue, lanes, laneBytes);
  return {
    operand,
    major,
    swizzle,
    load,
    lines,
    units,
    perUnit,
    bits,
    descriptor,
    lanes,
    laneBytes,
    pitch,
    move: move && {
      name: move.op.name,
      tiles: move.tiles,
      along: move.along,
      parts: move.parts,
    },
    rows: move && digest(allRows(drawn, move)),
    addresses: digest(all),
    bytes: digest(bytes),
    touched: [...stored.touched.keys()].sort((one, other) => one - other),
    accesses: Object.fromEntries(accesses),
    phases: cost && cost.phases.map(({ degree, words }) => [degree, words]),
  };
}

const wanted = new Set(readFileSync(0, "utf8").split("\n").filter(Boolean));
const ops = catalogue.instructions;
const result = {
  used: ops.filter(usesShared).map((op) => op.name),
  stored: Object.fromEntries(
    ops
      .filter((op) => wanted.has(op.name) && usesShared(op))
      .map((op) => [op.name, memoryOf(op)]),
  ),
};
process.stdout.write(JSON.stringify(result));
