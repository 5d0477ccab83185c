// Opens links.  A link leads to what it names; where that does not exist, the page
// says so, with the nearest that does.

import { type Catalogue, type Instruction } from "../records/catalogue.js";
import { laneText, scene as sceneOf, type Matrix, type Scene } from "../records/matrix.js";
import { nearest, oneOf, shortened } from "../records/near.js";
import { meantBy, nearby } from "../records/searching.js";
import { replaced, storedOf, USUAL, usesShared } from "../memory/stored.js";
import { VALUED, wayOf } from "../numbers/values.js";
import { fromHash, initial, type Link, type NamedSpot, type State } from "./state.js";

const ELSEWHERE = "Its element and lane are of another instruction: nothing is marked.";

const CHECKS: ((state: State, scene: Scene, catalogue: Catalogue) => string)[] = [
  (state, scene) => checkElement(state, "pinned", scene),
  (state, scene) => checkElement(state, "middle", scene),
  checkLane,
  checkSelector,
  checkCodes,
  checkOperand,
  checkTarget,
  checkSet,
  checkMemory,
];

/** The state that a link asks for, and what of it cannot be shown. */
export function follow(catalogue: Catalogue, hash: string, first: string): Link {
  const { state, complaints } = fromHash(hash, first);
  const { op, said = "", how } = named(catalogue, state.op, first);
  const remarks = said && how !== "wrong" ? [said] : [];
  if (how === "wrong" || how === "one of many") {
    const { tab, fill, colour, pinned, lane } = state;
    const plain = { ...initial(op.name), tab, fill, colour };
    const lost = pinned || lane !== null ? [ELSEWHERE] : [];
    const wrong = how === "wrong" ? [said] : [];
    return { state: plain, complaints: [...wrong, ...lost, ...complaints], remarks };
  }
  const checked = { ...state, op: op.name };
  if (!needsChecks(state)) return { state: checked, complaints, remarks };
  const scene = sceneOf(catalogue, op, 0);
  for (const check of CHECKS) {
    const said = check(checked, scene, catalogue);
    if (said) complaints.push(said);
  }
  return { state: checked, complaints, remarks };
}

/** Whether a link says something that only the instruction can confirm. */
function needsChecks(state: State): boolean {
  const { pinned, middle, lane, selector, codes, operand, target, set, memory } = state;
  const marked = pinned !== null || middle !== null || (lane ?? 0) >= 32 || operand !== "";
  const given = { ...codes, ...set };
  const stored = JSON.stringify(memory) !== JSON.stringify(USUAL);
  const chosen = selector > 0 || target !== "" || stored;
  return marked || chosen || Object.keys(given).length > 0;
}

// ── the instruction ─────────────────────────────────────────────────────────

/** What a link's words lead to. */
interface Found {
  op: Instruction;
  said?: string;
  how: "meant" | "like it" | "one of many" | "wrong";
}

/** What a name or words mean, and what there is to say about it. */
function named(catalogue: Catalogue, given: string, first: string): Found {
  const { instructions } = catalogue;
  const exact = (name: string) => instructions.find((op) => op.name === name);
  const words = given.replace(/\+/g, " ");
  const own = exact(given) ?? exact(words.toLowerCase()) ?? rounded(catalogue, words);
  if (own) return { op: own, how: "meant" };
  const other = drawnAs(catalogue, words, first);
  if (other) return other;
  const meant = meantBy(catalogue, words);
  if (meant.length === 1) return { op: meant[0], how: "meant" };
  const quoted = `"${shortened(given)}"`;
  if (meant.length) {
    const many = `${quoted} can be ${meant.length} instructions`;
    const said = `${many}. The first is shown: ${meant[0].name}.`;
    return { op: meant[0], said, how: "one of many" };
  }
  const near = nearby(catalogue, words);
  const op = near.found[0] ?? exact(first)!;
  const said = `This link asks for ${quoted}. ${near.said} Shown instead: ${op.name}.`;
  return { op, said, how: "wrong" };
}

/** The instruction without a rounding that it has anyway. */
function rounded({ instructions, implied }: Catalogue, name: string): Instruction | null {
  const words = name.toLowerCase().split(".");
  const plain = words.filter((word) => !implied.includes(word)).join(".");
  if (plain.length === name.length) return null;
  const op = instructions.find((each) => each.name === plain);
  // Only where others can be chosen may it be written.
  const chosen = (each: Instruction) =>
    each.values.rounding && each.family === op!.family && each.values.d === op!.values.d;
  return op && instructions.some(chosen) ? op : null;
}

/** What is shown for an instruction that exists and has no picture of its own. */
function drawnAs(catalogue: Catalogue, name: string, first: string): Found | null {
  const { instructions, others } = catalogue;
  const [plain, descriptor = ""] = name.trim().split(/\s+/);
  const at = others[plain] ?? others[plain.toLowerCase()];
  if (at === undefined) return null;
  if (at < 0) {
    const [head] = plain.split(/(?=\.)/);
    const near = instructions.find((op) => op.name.startsWith(`${head}.`));
    const op = near ?? instructions.find((each) => each.name === first)!;
    const said = `${plain} is not drawn here. Shown instead: ${op.name}.`;
    return { op, said, how: "one of many" };
  }
  const [base] = instructions[at].name.split(" ");
  const same = described(catalogue, base, descriptor);
  const op = same ?? instructions[at];
  const [asked, shown] = [plain.split("."), base.split(".")];
  const without = asked.filter((word) => !shown.includes(word));
  const added = shown.filter((word) => !asked.includes(word));
  const exact = same?.name.endsWith(` ${descriptor}`);
  const types = [op.values.a, op.values.b, op.values.d];
  const alike = `as ${op.values.shape} of ${types[0]} × ${types[1]} → ${types[2]}`;
  const parts = [
    exact ? "" : same ? alike : `as ${op.values.shape}, one of its shapes`,
    without.length ? `without ${oneOf(without, "and")}` : "",
    added.length ? `with ${oneOf(added, "and")}` : "",
  ];
  const said = `${plain} is drawn ${parts.filter(Boolean).join(", ")}.`;
  return { op, said, how: "like it" };
}

/**
 * The instruction of a descriptor: itself, or one of its M and N that differs in the
 * fewest other bits.  Bits 17 to 22 are N / 8, and bits 24 to 28 are M / 16.
 */
function described(
  { instructions }: Catalogue,
  base: string,
  descriptor: string,
): Instruction | null {
  if (!/^0x[0-9a-f]{1,8}$/i.test(descriptor)) return null;
  const wanted = Number(descriptor);
  const [n, m] = [8 * ((wanted >>> 17) & 63), 16 * ((wanted >>> 24) & 31)];
  const off = (op: Instruction) => {
    const differing = (Number(op.name.split(" ")[1]) ^ wanted) >>> 0;
    return differing.toString(2).replaceAll("0", "").length;
  };
  const alike = instructions.filter(
    ({ name, shape }) => name.startsWith(`${base} `) && shape[0] === m && shape[1] === n,
  );
  alike.sort((one, other) => off(one) - off(other));
  return alike[0] ?? null;
}

// ── what it has ─────────────────────────────────────────────────────────────

function checkElement(
  state: State,
  of: "pinned" | "middle",
  { matrices }: Scene,
): string {
  const spot = state[of] as NamedSpot | null;
  if (!spot) return "";
  state[of] = null;
  const not = of === "pinned" ? "No element is pinned." : "The picture is not moved.";
  const names = [...matrices.keys()];
  const name = names.find((each) => each.toLowerCase() === spot.matrix.toLowerCase());
  const matrix = name && matrices.get(name);
  if (!matrix) {
    const what = `There is no operand ${shortened(spot.matrix)}`;
    return `${what}; the operands are ${oneOf(names, "and")}. ${not}`;
  }
  const index = spot.at ? counted(matrix, spot.at) : spot.index;
  if (index >= 0 && index < matrix.size) {
    state[of] = { matrix: matrix.name, index };
    return "";
  }
  const given = spot.at ? `[${spot.at.join("][")}]` : `.${spot.index}`;
  const last = matrix.label(matrix.size - 1);
  return `${matrix.name}${given} is outside; the last element is ${last}. ${not}`;
}

/** The number of an element of a row and a column; -1 if there is none. */
function counted(matrix: Matrix, at: number[]): number {
  const [m, row, col] = at.length < 3 ? [0, ...at] : at;
  const inside = m < matrix.count && row < matrix.rows && col < matrix.cols;
  return inside ? matrix.index(m, row, col) : -1;
}

function checkLane(state: State, scene: Scene): string {
  const { lane } = state;
  const most = 32 * scene.warps;
  if (lane === null || lane < most) return "";
  state.lane = null;
  const last = scene.warps > 1 ? ` (${laneText(most - 1, scene)})` : "";
  return `There is no lane ${lane}; the last is ${most - 1}${last}. No lane is picked.`;
}

function checkSelector(state: State, { selectors }: Scene): string {
  const { selector } = state;
  if (selector < selectors) return "";
  state.selector = 0;
  const have = selectors > 1 ? `the selectors are 0 to ${selectors - 1}` : "it has none";
  return `There is no selector ${selector}; ${have}.`;
}

function checkCodes(state: State, { matrices }: Scene): string {
  const size = matrices.get("metadata")?.size ?? 0;
  const outside = Object.keys(state.codes).filter((index) => Number(index) >= size);
  if (!outside.length) return "";
  for (const index of outside) delete state.codes[Number(index)];
  const have = size ? `the codes are 0 to ${size - 1}` : "this instruction has no metadata";
  return `There is no code ${outside[0]}; ${have}.`;
}

function checkOperand(state: State, { matrices }: Scene): string {
  const { operand } = state;
  const names = [...matrices.keys()];
  if (!operand || names.includes(operand)) return "";
  state.operand = nearest(operand, names);
  const have = `the operands are ${oneOf(names, "and")}`;
  return `There is no operand ${shortened(operand)}; ${have}.`;
}

function checkTarget(state: State, { op }: Scene, catalogue: Catalogue): string {
  const { target } = state;
  if (!target || wayOf(catalogue, op, target)) return "";
  state.target = "";
  if (op.sums === undefined) return "This instruction computes nothing on any target.";
  const { usual, ways } = catalogue.sums[op.sums];
  const have = ways.flatMap((way) => way.targets);
  const near = nearest(target, have);
  const hint = near ? `; the nearest is ${near}` : "";
  return `${shortened(target)} does not have this instruction${hint}. Numbers are of ${usual}.`;
}

/** Elements that were typed must be in operands, and have no more bits than those. */
function checkSet(state: State, { matrices }: Scene, catalogue: Catalogue): string {
  let wrong = "";
  for (const [place, bits] of Object.entries(state.set)) {
    const [name, at] = place.split(".");
    const matrix = VALUED.includes(name) ? matrices.get(name) : undefined;
    const used = matrix ? catalogue.types[matrix.type].used : 0;
    const narrow = BigInt(`0x${bits}`) >> BigInt(used) === 0n;
    if (matrix && Number(at) < matrix.size && narrow) continue;
    delete state.set[place];
    const why = !matrix
      ? `there is no value of ${name}`
      : narrow
        ? `the last element is ${matrix.name}.${matrix.size - 1}`
        : `${matrix.type} has ${used} bits`;
    wrong ||= `${place}:${bits} is left out: ${why}.`;
  }
  return wrong;
}

/** An operand in shared memory: what is not possible there is replaced. */
function checkMemory(state: State, scene: Scene, catalogue: Catalogue): string {
  const asked = state.memory;
  if (JSON.stringify(asked) === JSON.stringify(USUAL)) return "";
  const stored = usesShared(scene.op)
    ? storedOf(catalogue, scene, asked)
    : "This instruction has no operand in shared memory.";
  if (typeof stored === "string") {
    state.memory = { ...USUAL };
    return stored;
  }
  const wrong = replaced(asked, stored);
  if (!wrong.length) return "";
  const kept = wrong.some(({ what }) => what === "numbers") ? [] : asked.numbers;
  state.memory = { ...stored.choice, operand: stored.operand, numbers: kept };
  return wrong.map(({ text }) => text).join(" ");
}
