// What the page works out about a recording, for Python to compare with what it works out
// itself: node tests/replay/evaluate.mjs PAGE, with questions as JSON in the input.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { modules, shared } from "./pages.mjs";

const { Recording, Values, readHead, inflate, split, laneText, typeHeld, nextStep, typeAccessed } = await modules(
  "recording/head", "recording/columns", "recording/recording", "recording/registers", "recording/search", "recording/values",
);
const html = readFileSync(process.argv[2], "utf8");
const inside = (id) => new RegExp(`id="${id}">([\\s\\S]*?)</script>`).exec(html)[1];
const head = readHead(inside("replay-head"));
const run = new Recording(head, split(head, await inflate(inside("replay-data"))));
const values = new Values(shared().types);
const asked = JSON.parse(readFileSync(0, "utf8"));
const lanes = Array.from({ length: 32 }, (_, lane) => lane);
const digest = (...arrays) => {
  const hash = createHash("sha256");
  for (const array of arrays) hash.update(array);
  return hash.digest("hex");
};

/** Every register of a warp after a step: its number, its type, all lanes as text. */
const registers = ([step, warp]) =>
  [...head.registers.entries()].flatMap(([number, register]) => {
    const held = run.held(warp, number, step);
    if (!held) return [];
    const type = typeHeld(run, register, held);
    return [[number, type, lanes.map((lane) => laneText(run, values, register, held, lane, type))]];
  });

const memory = ([step, number]) => {
  const history = run.memories[number];
  history.seek(step);
  return digest(history.bytes, history.states());
};

/** Who wrote a byte, its next write, and all its readers. */
const byte = ([step, number, offset]) => {
  const history = run.memories[number];
  history.seek(step);
  const access = history.wrote(offset);
  const wrote = access && [access.step, access.unit];
  return [wrote, history.nextWrite(step, offset), history.readers(offset).map((each) => each.step)];
};

const next = ([step, warp, back]) => nextStep(run, step, "instruction", warp, back);
const line = ([file, number]) => [...run.stepsOfLine(file, number)];

const answers = {
  types: head.memories.map((_, number) => run.memories[number].accessedAs(0, head.memories[number].size, typeAccessed)),
  registers: asked.registers.map(registers),
  memory: asked.memory.map(memory),
  byte: asked.byte.map(byte),
  next: asked.next.map(next),
  line: asked.line.map(line),
};
console.log(JSON.stringify(answers));
