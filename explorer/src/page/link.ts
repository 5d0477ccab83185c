// Where does a link lead?  To what it names; where that does not exist, the page
// says so, with the nearest that does.

import { type Catalogue, type Instruction } from "../records/catalogue.js";
import { laneText, scene as sceneOf, type Matrix, type Scene } from "../records/matrix.js";
import { nearest, oneOf, shortened } from "../records/near.js";
import { meantBy, nearby } from "../records/searching.js";
import { VALUED, wayOf } from "../numbers/values.js";
import { fromHash, initial, type Link, type NamedSpot, type State } from "./state.js";

const ELSEWHERE = "Its element and lane are of another instruction: nothing is marked.";

const CHECKS: ((state: State, scene: Scene, catalogue: Catalogue) => string)[] = [
  checkElement,
  checkLane,
  checkSelector,
  checkCodes,
  checkOperand,
  checkTarget,
  checkSet,
];

/** The state that a link asks for, and what of it cannot be shown. */
export function follow(catalogue: Catalogue, hash: string, first: string): Link {
  const { state, complaints } = fromHash(hash, first);
  const [op, wrong] = named(catalogue, state.op, first);
  if (wrong) {
    const { tab, fill, colour, pinned, lane } = state;
    const plain = { ...initial(op.name), tab, fill, colour };
    const lost = pinned || lane !== null ? [ELSEWHERE] : [];
    return { state: plain, complaints: [wrong, ...lost, ...complaints] };
  }
  const checked = { ...state, op: op.name };
  if (!needsChecks(state)) return { state: checked, complaints };
  const scene = sceneOf(catalogue, op, 0);
  for (const check of CHECKS) {
    const said = check(checked, scene, catalogue);
    if (said) complaints.push(said);
  }
  return { state: checked, complaints };
}

/** Whether a link says something that only the instruction can confirm. */
function needsChecks(state: State): boolean {
  const { pinned, lane, selector, codes, operand, target, set } = state;
  const marked = pinned !== null || (lane ?? 0) >= 32 || operand !== "";
  const given = { ...codes, ...set };
  return marked || selector > 0 || target !== "" || Object.keys(given).length > 0;
}

// ── the instruction ─────────────────────────────────────────────────────────

/** What a name or words mean; and what is wrong with them, if nothing is meant. */
function named(
  catalogue: Catalogue,
  given: string,
  first: string,
): [Instruction, string] {
  const { instructions } = catalogue;
  const exact = (name: string) => instructions.find((op) => op.name === name);
  const own = exact(given) ?? exact(given.toLowerCase().replace(/\+/g, " "));
  if (own) return [own, ""];
  const words = given.replace(/\+/g, " ");
  const meant = meantBy(catalogue, words);
  if (meant.length === 1) return [meant[0], ""];
  const quoted = `"${shortened(given)}"`;
  if (meant.length) {
    const many = `${quoted} can be ${meant.length} instructions`;
    return [meant[0], `${many}. The first is shown: ${meant[0].name}.`];
  }
  const near = nearby(catalogue, words);
  const shown = near.found[0] ?? exact(first)!;
  return [shown, `This link asks for ${quoted}. ${near.said} Shown instead: ${shown.name}.`];
}

// ── what it has ─────────────────────────────────────────────────────────────

function checkElement(state: State, { matrices }: Scene): string {
  const spot = state.pinned as NamedSpot | null;
  if (!spot) return "";
  state.pinned = null;
  const names = [...matrices.keys()];
  const name = names.find((each) => each.toLowerCase() === spot.matrix.toLowerCase());
  const matrix = name && matrices.get(name);
  if (!matrix) {
    const what = `There is no operand ${shortened(spot.matrix)}`;
    return `${what}; the operands are ${oneOf(names, "and")}. No element is pinned.`;
  }
  const index = spot.at ? counted(matrix, spot.at) : spot.index;
  if (index >= 0 && index < matrix.size) {
    state.pinned = { matrix: matrix.name, index };
    return "";
  }
  const given = spot.at ? `[${spot.at.join("][")}]` : `.${spot.index}`;
  const last = matrix.label(matrix.size - 1);
  return `${matrix.name}${given} is outside; the last element is ${last}. No element is pinned.`;
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
