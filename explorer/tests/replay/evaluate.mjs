// What the page works out about a recording, for Python to compare with what it works out
// itself: node tests/replay/evaluate.mjs PAGE, with questions as JSON in the input.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { modules, shared } from "./pages.mjs";

const { Recording, wordOf, Values, Products, Origins, readHead, inflate, split, laneText, typeHeld, nextStep, typeAccessed, told, Names, Typed, framesAt, ArrayErrors } = await modules(
  "recording/head", "recording/columns", "recording/recording", "recording/registers", "recording/search", "recording/values",
  "recording/products", "recording/origins", "recording/scope", "recording/typed", "recording/stack", "recording/errors", "../src/numbers/telling",
);
const html = readFileSync(process.argv[2], "utf8");
const inside = (id) => new RegExp(`id="${id}">([\\s\\S]*?)</script>`).exec(html)?.[1];
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

const given = inside("replay-products");
const products = given ? new Products(run, JSON.parse(given), shared()) : null;
const origins = new Origins(run, products);
const texts = (found) => found && Array.from(found, String);

/** The operands of a product as bits, D as it was recorded, some elements explained. */
const product = ([step, elements]) => {
  const found = products.at(step);
  const { scene, codes, values: of, name, catalogue } = found;
  const operands = Object.fromEntries(["A", "B", "C", "scale_A", "scale_B"].map((each) => [each, texts(of.bits(each))]));
  const explained = elements.map((index) => {
    if (found.unwritten(index)) return null;
    const [, row, col] = scene.matrices.get("D").spot(index);
    return told(catalogue, name, head.target, row, col, of.explain(index));
  });
  const { unknown } = found;
  return { name, unknown, ...operands, codes: [...codes], D: unknown ? null : texts(of.bits("D")), recorded: texts(found.recorded()), explained };
};

/** Where an element was, and the steps that it came through. */
const origin = ([step, matrix, index]) => {
  const where = products.at(step).where(matrix, index);
  return [where, origins.chain(where).map((each) => [each.step, each.from.length, each.where])];
};

/** What bits of a register, or bytes of memory, hold: a number as text. */
const valueOf = ({ kind, warp, register, lane, low, bits, memory, offset, bytes, step }) => {
  if (kind === "register") {
    const word = wordOf(run, register, warp, lane, step);
    return word === null ? null : String((word >> BigInt(low)) & ((1n << BigInt(bits)) - 1n));
  }
  if (kind !== "memory") return null;
  run.memories[memory].seek(step);
  return String(run.memories[memory].bytes.subarray(offset, offset + bytes).reduceRight((all, each) => all * 256n + BigInt(each), 0n));
};

/** Where bits of a register of a lane come from: places, their values and their writers. */
const chains = ([step, warp, register, lane, low, bits]) =>
  origins.chain({ kind: "register", warp, register, lane, low, bits, step }).map((each) => ({ ...each.where, value: valueOf(each.where), wrote: each.step }));

/** The elements of products that a byte was made of. */
const made = ([step, memory, offset]) => origins.madeOf({ kind: "memory", memory, offset, bytes: 4, step });

/** Where a byte comes from through copies: each byte, and the step and the unit that wrote it. */
const bytes = ([step, memory, offset]) => {
  const found = origins.chain({ kind: "memory", memory, offset, bytes: 1, step });
  const end = found.findIndex((each) => each.where.kind !== "memory");
  const own = end < 0 ? found : found.slice(0, end);
  return own.map(({ where, access }) => [where.memory, where.offset, access?.step ?? -1, access?.unit ?? -1]);
};

/** An expression: its texts, type and lanes, or what is wrong with it. */
const typed = new Typed(shared().types);
const expression = ([step, warp, text]) => {
  try {
    const value = new Names(run, typed, step, warp).evaluate(text);
    return { texts: typed.texts(value), type: value.type, lanes: value.lanes };
  } catch (error) {
    return { refused: error.message, kind: error.constructor.name };
  }
};

/** The functions that are under way in a warp, innermost first: name and step. */
const stack = ([step, warp]) => framesAt(run, warp, step).map((each) => [each.function, each.step]);

/** The errors of an element after a step; null if they are not known. */
const errors = ([step, memory, offset]) => {
  const found = ArrayErrors.of(run, memory)?.at(offset, step);
  return found ? [found.exact, found.error, found.ulp, found.lost].map(String) : null;
};

const answers = {
  errors: asked.errors?.map(errors),
  expressions: asked.expressions?.map(expression),
  stacks: asked.stacks?.map(stack),
  products: asked.products?.map(product),
  origins: asked.origins?.map(origin),
  chains: asked.chains?.map(chains),
  made: asked.made?.map(made),
  bytes: asked.bytes?.map(bytes),
  types: head.memories.map((_, number) => run.memories[number].accessedAs(0, head.memories[number].size, typeAccessed)),
  registers: asked.registers?.map(registers),
  memory: asked.memory?.map(memory),
  byte: asked.byte?.map(byte),
  next: asked.next?.map(next),
  line: asked.line?.map(line),
};
console.log(JSON.stringify(answers));
