// What the page works out about a recording, against what a plain loop over it finds:
// node tests/replay/queries.mjs

import assert from "node:assert/strict";
import { make } from "./made.mjs";
import { modules, shared } from "./pages.mjs";

const { Recording, readHead, Values, inflate, split, nextStep, nextNaN, nextBreak, typeWritten, wordsOf, UNWRITTEN, WRITTEN, IN_FLIGHT } =
  await modules("recording/head", "recording/columns", "recording/recording", "recording/memory", "recording/search", "recording/values");

const made = make(5);
const { data } = made;
const head = readHead(JSON.stringify(made.head));
const run = new Recording(head, split(head, await inflate(made.packed)));
const values = new Values(shared().types);
const every = Array.from({ length: run.count }, (_, step) => step);

// The columns are what was packed.
for (const [name, array] of Object.entries(data)) assert.deepEqual(run.columns[name], array, name);

/** Registers of both warps after a step, by doing all steps up to it. */
function registersAfter(last, late = []) {
  const held = [new Map(), new Map()];
  const units = (when, step) => {
    for (const [then, warp, register, at] of late) if (then === when) held[warp].set(register, { at, step });
  };
  for (let step = 0; step <= last; step += 1) {
    units(step, step);
    let at = data.at[step];
    for (const register of head.sites[data.site[step]].writes) {
      held[data.warp[step]].set(register, { at, step });
      at += wordsOf(head.registers[register]);
    }
  }
  if (last === run.count - 1) units(run.count, last);
  return held;
}

function sameRegisters(of, late) {
  for (const step of every) {
    const held = registersAfter(step, late);
    for (const warp of [0, 1]) {
      for (const register of head.registers.keys()) {
        const found = of.held(warp, register, step);
        assert.deepEqual(found && { at: found.at, step: found.step }, held[warp].get(register) ?? null);
      }
    }
  }
}
sameRegisters(run);

// Units write registers: before a step that writes the same one, at others, at the end.
const writing = every.findLast((step) => run.site(step).writes.length);
const own = run.site(writing).writes[0];
const late = [[3, 0, 12, 0], [3, 1, 12, 32], [writing, run.columns.warp[writing], own, 64], [run.count, 1, own, 96]];
const [u_step, u_warp, u_register, u_at] = [0, 1, 2, 3].map((at) => late.map((row) => row[at]));
sameRegisters(
  new Recording(head, {
    ...run.columns,
    u_step: Uint32Array.from(u_step),
    u_warp: Uint16Array.from(u_warp),
    u_register: Uint32Array.from(u_register),
    u_unit: new Int32Array(late.length),
    u_at: Uint32Array.from(u_at),
  }),
  late,
);

/** A memory after a step: bytes, states, last writes; by doing all writes up to it. */
function memoryAfter(last, memory) {
  const begin = head.memories.slice(0, memory).reduce((sum, { size }) => sum + size, 0);
  const { size } = head.memories[memory];
  const bytes = data.initial.slice(begin, begin + size);
  const writer = new Int32Array(size).fill(-1);
  const states = Uint8Array.from({ length: size }, (_, at) => (data.defined[(begin + at) >> 3] >> ((begin + at) & 7)) & 1 ? WRITTEN : UNWRITTEN);
  data.w_step.forEach((step, write) => {
    if (step > last || data.w_memory[write] !== memory) return;
    for (let at = 0; at < data.w_size[write]; at += 1) {
      const offset = data.w_offset[write] + at;
      [bytes[offset], writer[offset], states[offset]] = [data.bytes[data.w_at[write] + at], write, WRITTEN];
    }
  });
  for (const { issued, done, writes } of head.units) {
    if (issued > last || (done >= 0 && done <= last)) continue;
    for (const [where, offset, length] of writes) if (where === memory) states.fill(IN_FLIGHT, offset, offset + length);
  }
  return { bytes, writer, states };
}

// Forwards, backwards, and in leaps.
const leaps = [...every, ...every.toReversed(), ...every.map((step) => (step * 37) % run.count)];
for (const step of leaps) {
  for (const [memory, history] of run.memories.entries()) {
    history.seek(step);
    const expected = memoryAfter(step, memory);
    assert.deepEqual(history.bytes, expected.bytes);
    assert.deepEqual(history.writer, expected.writer);
    assert.deepEqual(history.states(), expected.states);
  }
}

// Many writes: moments are kept, and leaps between them arrive at the same bytes.
const long = make(600, 8);
const many = new Recording(long.head, split(long.head, await inflate(long.packed)));
const [once, again] = [many, new Recording(long.head, many.columns)].map(({ memories }) => memories[2]);
assert.ok(once.writeCount > 3 * 2048);
for (let step = many.count - 1; step > 0; step -= 997) {
  once.seek(step);
  const fresh = new Recording(long.head, many.columns).memories[2];
  fresh.seek(step);
  assert.deepEqual(once.bytes, fresh.bytes);
}
for (let step = 0; step < many.count; step += 501) again.seek(step);
once.seek(many.count - 1);
again.seek(many.count - 1);
assert.deepEqual(once.bytes, again.bytes);

// Who wrote a byte, who will, who reads it.
const [tile, , out] = run.memories;
const { issued, done } = head.units[2];
tile.seek(issued);
assert.deepEqual(tile.mayWrite(issued, 17).map(([unit]) => unit), [2]);
assert.deepEqual(tile.mayWrite(issued, 600), []);
assert.equal(tile.wrote(17).unit, 0);
assert.equal(tile.nextWrite(issued, 17), done);
assert.equal(tile.nextWrite(issued, 17, true), head.units[0].done);
assert.equal(tile.nextWrite(0, 1100), null);
out.seek(run.count - 1);
const { lane, step: stored, lanes } = out.wrote(4 * 5 + 2);
assert.deepEqual([lane, lanes, run.site(stored).opcode], [5, [5], "st.global.f32"]);
const reads = tile.readers(17).map(({ step }) => step);
const plain = [...data.r_step].filter((_, read) => data.r_memory[read] === 0 && data.r_offset[read] <= 17 && 17 < data.r_offset[read] + data.r_size[read]);
assert.deepEqual(reads, plain);

// Stepping.
const { steps: [first, second] } = head.problems[0];
assert.equal(nextStep(run, 0, "problem", 0), second);
assert.equal(nextStep(run, second, "problem", 0), null);
assert.equal(nextStep(run, second + 1, "problem", 0, true), second);
for (const warp of [0, 1]) {
  const own = every.filter((step) => data.warp[step] === warp);
  for (const step of every) {
    assert.equal(nextStep(run, step, "instruction", warp), own.find((each) => each > step) ?? null);
    assert.equal(nextStep(run, step, "instruction", warp, true), own.findLast((each) => each < step) ?? null);
  }
}
assert.equal(run.site(nextStep(run, first, "line", 0)).line, 10);
assert.equal(nextStep(run, issued - 1, "event", 0), issued);
assert.equal(nextBreak(run, 0, [{ file: "scale.cu", line: 15 }], false), 18);
assert.equal(nextBreak(run, 18, [], false), second);
assert.equal(run.runs("scale.cu", 15), 5);
assert.equal(run.runs("scale.ptx", 24), 10);
assert.deepEqual([...run.stepsOfLine("scale.ptx", 20)], every.filter((step) => head.sites[data.site[step]].ptx_line === 20));

// The first NaN: infinity times zero, in lane 5 of tile 3.
const nan = nextNaN(run, 0, values);
assert.equal(run.site(nan).text, "mul.f32 %f5, %f1, %f2;");
const { at } = run.held(1, run.site(nan).writes[0], nan);
assert.equal(values.text("f32", data.words[at + 5]), "nan");
assert.equal([...data.words.slice(at, at + 32)].filter((word) => values.isNaN("f32", word)).length, 1);

// Values in their types.
const cases = [
  ["f32", [0x3dcccccd], "0.1"], ["f32", [0x80000000], "-0"], ["f32", [0xff800000], "-inf"], ["f32", [1], "1e-45"],
  ["f64", [0x9999999a, 0x3fb99999], "0.1"], ["f16", [0x3c01], "1.001"], ["bf16", [0x3f80], "1"], ["f16x2", [0xc0003c00], "1, -2"],
  ["s32", [0xffffffff], "-1"], ["u32", [0xffffffff], "4294967295"], ["s64", [0xffffffff, 0xffffffff], "-1"],
  ["u64", [0, 1], "4294967296"], ["b32", [255], "0x000000ff"], ["b64", [255, 1], "0x00000001000000ff"], ["s8", [0x80], "-128"],
  ["e4m3", [0x7f], "nan"], ["e4m3", [0x38], "1"], ["pred", [1], "true"], ["f32", [0x4b800000], "16777216"],
  ["b128", [1, 2, 3, 4], "0x00000004000000030000000200000001"],
];
for (const [type, words, text] of cases) assert.equal(values.text(type, ...words), text, type);
const written = (opcode, type, bits) => typeWritten({ opcode }, { type, bits });
assert.equal(written("cvt.rn.f32.s32", "b32", 32), "f32");
assert.equal(written("mul.wide.s32", "b64", 64), "s64");
assert.equal(written("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "b32", 32), "f16x2");
assert.equal(written("ld.shared.b32", "b32", 32), "b32");
assert.equal(written("fma.rn.bf16x2", "b32", 32), "bf16x2");

// A file that was cut off is refused.
const short = (await inflate(made.packed)).slice(0, 5000);
assert.throws(() => split(head, short), /is cut off/);
console.log("all passed");
