// How is an operand of this instruction stored in shared memory, and what of it does one
// instruction touch?  A tile has lines (rows, or columns if these are contiguous) of
// 16-byte units.  A descriptor says where they are, or each lane gives an address.

import { IDLE, LANES } from "./banks.js";
import type { Catalogue, Instruction } from "./catalogue.js";
import type { Matrix, Scene } from "./matrix.js";
import { lineOf, moveName, movesOf, notMovable, type Move } from "./moves.js";
import {
  addresses,
  allowedSwizzles,
  encoded,
  packedTile,
  swizzled,
  swizzleOf,
  type Descriptor,
  type Family,
  type Major,
  type Swizzle,
} from "./shared.js";

/** What somebody chose; what does not fit an instruction is replaced. */
export interface Choice {
  operand: string;
  /** The move, such as x4 or x4k; empty: the descriptor, or the first move. */
  load: string;
  major: Major;
  swizzle: string;
  /** Leading and stride offset, or the pitch. */
  numbers: number[];
}

export interface Stored {
  choice: Choice;
  operand: string;
  /** What can be chosen. */
  operands: string[];
  loads: { name: string; text: string }[];
  majors: Major[];
  swizzles: string[];
  swizzle: Swizzle;
  /** Names of the coordinates: across the lines, and along them. */
  across: string;
  along: string;
  lines: number;
  units: number;
  /** Elements of a unit. */
  perUnit: number;
  /** Bits of an element. */
  bits: number;
  unitAt: (line: number, unit: number) => number;
  /** The units that one instruction touches: address to lane, -1 without lanes. */
  touched: Map<number, number>;
  /** The addresses of a warp's lanes; null if the operand has a descriptor. */
  lanes: number[] | null;
  /** Bytes of a line, and from line to line; null if the operand has a descriptor. */
  pitch: number | null;
  descriptor: (Descriptor & { family: Family; word: string }) | null;
  move: Move | null;
  /** One after the other: what else to say. */
  notes: string[];
  /** An element to its line, its unit and its byte; null if it is not of this tile. */
  find: (index: number) => [number, number, number] | null;
  /** The element at a place of a unit; -1 if this instruction does not have it. */
  element: (line: number, unit: number, place: number) => number;
  /** The same tile with another swizzle. */
  other: (swizzle: string) => Stored;
}

const SIDES: Record<string, string> = { A: "mk", B: "kn", D: "mn" };
const FULL = 128; // bytes of a line that a tile fills, if it can

export function familyOf({ family }: Instruction): Family | null {
  if (family.startsWith("wgmma")) return "wgmma";
  return family.startsWith("tcgen05.mma") ? "tcgen05" : null;
}

/** Whether shared memory is a subject at all. */
export function usesShared({ family }: Instruction): boolean {
  return /^(mma|wgmma|ldmatrix|stmatrix|tcgen05\.mma)/.test(family);
}

/** The operand in shared memory, or why there is nothing to show. */
export function storedOf(catalogue: Catalogue, scene: Scene, choice: Choice): Stored | string {
  const { op } = scene;
  if (/^(ld|st)matrix/.test(op.family)) return matrixRows(catalogue, scene, choice);
  const family = familyOf(op);
  const operands = operandsOf(catalogue, scene, family);
  const operand = operands.includes(choice.operand) ? choice.operand : operands[0];
  if (!operand) return refused(catalogue, scene);
  const here = { ...choice, operand };
  const direct = family && operand !== "D" && !choice.load;
  const made = direct ? described(catalogue, scene, family, here) : moved(catalogue, scene, here);
  return made && { ...made, operands };
}

function operandsOf(catalogue: Catalogue, scene: Scene, family: Family | null): string[] {
  if (family === "tcgen05") return ["B", "A"];
  const through = ["B", "A", "D"].filter((name) => allMoves(catalogue, scene, name).length);
  return family ? ["B", "A", ...through.filter((name) => name === "D")] : through;
}

function refused(catalogue: Catalogue, scene: Scene): string {
  const part = scene.matrices.get("A")?.part;
  const why = (part && notMovable(part)) || "its 16-byte rows are apart in memory";
  return `No ldmatrix loads an operand of ${scene.op.name}: of A, ${why}.`;
}

// ── through a descriptor ────────────────────────────────────────────────────

function described(
  catalogue: Catalogue,
  scene: Scene,
  family: Family,
  choice: Choice,
): Stored {
  const { op } = scene;
  const { operand } = choice;
  const ctas = op.tensor?.ctas ?? 1;
  const matrix = scene.matrices.get(operand)!;
  const [rows, k] =
    operand === "A" ? [matrix.rows / ctas, matrix.cols] : [matrix.cols / ctas, matrix.rows];
  const { padded } = catalogue.memory;
  const kind = op.values.kind?.replace("kind::", "") ?? "";
  const narrow = matrix.bits < 8 && padded.kinds.includes(kind) ? matrix.bits : undefined;
  const bits = narrow ? 8 : matrix.bits;
  const allowed = (major: Major) => allowedSwizzles(catalogue, family, matrix.bits, major);
  const majors = (["k", "mn"] as Major[]).filter((major) => allowed(major).length);
  const major = majors.includes(choice.major) ? choice.major : "k";
  const swizzles = allowed(major);
  const name = swizzles.includes(choice.swizzle) ? choice.swizzle : swizzles.at(-1)!;
  const swizzle = swizzleOf(catalogue, name);
  // A K-major tile fills its spans: several instructions along k read from them.
  const fills = major === "k" && name !== "0";
  const wide = fills ? lcm(k, (swizzle.span * 8) / bits) : k;
  const tile = { rows, k: wide, bits, major, narrow };
  const packed = packedTile(catalogue, tile, name);
  const [leading, stride] =
    choice.numbers.length === 2 ? choice.numbers : [packed.leading, packed.stride];
  const descriptor = { leading, stride, swizzle: name };
  const address = addresses(catalogue, descriptor, tile);
  const perUnit = UNIT_BITS / bits;
  const side = operand === "A" ? "m" : "n";
  const [lines, length] = major === "k" ? [rows, wide] : [wide, rows];
  const units = Math.ceil(length / perUnit);
  const unitAt = (line: number, unit: number) =>
    major === "k" ? address(line, unit * perUnit) : address(unit * perUnit, line);
  const own = major === "k" ? Math.ceil(k / perUnit) : units;
  const [across, along] = major === "k" ? [side, "k"] : ["k", side];
  return {
    choice: { ...choice, major, swizzle: name },
    operand,
    operands: [],
    loads: loadsOf(catalogue, scene, operand, true),
    majors,
    swizzles,
    swizzle,
    across,
    along,
    lines,
    units,
    perUnit,
    bits: narrow ?? bits,
    unitAt,
    touched: touchedUnits(lines, own, unitAt),
    lanes: null,
    pitch: null,
    descriptor: { ...descriptor, family, word: encoded(catalogue, family, descriptor) },
    move: null,
    notes: notesOf(op, operand, family, major, wide / k, ctas),
    find: (index) => {
      const [, row, col] = matrix.spot(index);
      const [mn, at] = operand === "A" ? [row, col] : [col, row];
      const [line, place] = major === "k" ? [mn % rows, at] : [at, mn % rows];
      return [line, Math.floor(place / perUnit), address(mn % rows, at)];
    },
    element: (line, unit, place) => {
      const at = unit * perUnit + place;
      const [mn, of] = major === "k" ? [line, at] : [at, line];
      if (of >= k || mn >= rows) return -1;
      return operand === "A" ? matrix.index(0, mn, of) : matrix.index(0, of, mn);
    },
    other: (other) =>
      described(catalogue, scene, family, { ...choice, swizzle: other, numbers: [] }),
  };
}

const UNIT_BITS = 128;

function touchedUnits(
  lines: number,
  units: number,
  unitAt: Stored["unitAt"],
): Map<number, number> {
  const found = new Map<number, number>();
  for (let line = 0; line < lines; line++)
    for (let unit = 0; unit < units; unit++) found.set(unitAt(line, unit), IDLE);
  return found;
}

function notesOf(
  op: Instruction,
  operand: string,
  family: Family,
  major: Major,
  steps: number,
  ctas: number,
): string[] {
  const notes: string[] = [];
  if (steps > 1)
    notes.push(`${steps} instructions along k read from these rows; the first one is bright.`);
  if (ctas > 1)
    notes.push("Each CTA has half of it, at the same addresses of its own shared memory.");
  if (family === "tcgen05" && major === "mn") {
    const bit = operand === "A" ? 15 : 16;
    notes.push(`MN-major needs bit ${bit} of the instruction descriptor, which is 0 above.`);
  }
  if (family === "wgmma" && major === "mn")
    notes.push(`MN-major needs imm-trans-${operand.toLowerCase()} = 1.`);
  if (family === "tcgen05" && operand === "A")
    notes.push("A may be in tensor memory instead.");
  return notes;
}

// ── through ldmatrix and stmatrix ───────────────────────────────────────────

/** Every move of an operand, whichever side is contiguous. */
function allMoves(catalogue: Catalogue, scene: Scene, operand: string): Move[] {
  return (["k", "mn"] as Major[]).flatMap((major) =>
    movesFor(catalogue, scene, operand, major),
  );
}

const known = new Map<string, Move[]>();

function movesFor(
  catalogue: Catalogue,
  { op, matrices, tensor }: Scene,
  operand: string,
  major: Major,
): Move[] {
  const part = matrices.get(operand)?.part;
  if (!part || tensor || notMovable(part)) return [];
  const key = `${op.requires} ${op.parts[operand]} ${operand} ${major}`;
  let found = known.get(key);
  if (!found) known.set(key, (found = movesOf(catalogue, op, operand, part, major)));
  return found;
}

function loadsOf(
  catalogue: Catalogue,
  scene: Scene,
  operand: string,
  descriptor: boolean,
  major: Major = "k",
): Stored["loads"] {
  const moves = movesFor(catalogue, scene, operand, major).map((move) => ({
    name: moveName(move),
    text: moveText(move),
  }));
  return descriptor ? [{ name: "", text: "descriptor" }, ...moves] : moves;
}

function moveText({ op, tiles, along }: Move): string {
  const plain = op.name.replace(".sync.aligned", "");
  return tiles > 1 ? `${plain}, ${tiles} along ${along}` : plain;
}

function moved(catalogue: Catalogue, scene: Scene, choice: Choice): Stored | string {
  const { operand } = choice;
  const matrix = scene.matrices.get(operand)!;
  const majors = (["k", "mn"] as Major[]).filter(
    (each) => movesFor(catalogue, scene, operand, each).length,
  );
  if (!majors.length) return refused(catalogue, scene);
  const major = majors.includes(choice.major) ? choice.major : majors[0];
  const moves = movesFor(catalogue, scene, operand, major);
  const move = moves.find((each) => moveName(each) === choice.load) ?? moves[0];
  const line = lineOf(operand, major);
  const sides = SIDES[operand];
  const [slot] = matrix.part!.slot;
  const sizes = [matrix.rows, matrix.cols].map((size, side) =>
    sides[side] === move.along ? size * move.tiles : size,
  );
  const own = (sizes[1 - line] * slot) / 8;
  const width = FULL % own ? own : FULL;
  const perUnit = UNIT_BITS / slot;
  const firsts = move.rows(0, 0);
  const rows = rowsOf(catalogue, choice, width, {
    lines: sizes[line],
    lanes: firsts.map((each) => [each[line], each[1 - line] / perUnit]),
  });
  const family = familyOf(scene.op);
  return {
    ...rows,
    choice: { ...rows.choice, major, load: moveName(move) },
    operand,
    operands: [],
    loads: loadsOf(catalogue, scene, operand, family !== null && operand !== "D", major),
    majors,
    across: sides[line],
    along: sides[1 - line],
    perUnit,
    bits: slot,
    move,
    notes: moveNotes(matrix, move, width / own),
    find: (index) => {
      const [, row, col] = matrix.spot(index);
      const [at, place] = line === 0 ? [row, col] : [col, row];
      const unit = Math.floor(place / perUnit);
      return [at, unit, rows.unitAt(at, unit) + Math.floor(((place % perUnit) * slot) / 8)];
    },
    element: (at, unit, place) => {
      const along = unit * perUnit + place;
      const [row, col] = line === 0 ? [at, along] : [along, at];
      return row < matrix.rows && col < matrix.cols ? matrix.index(0, row, col) : -1;
    },
    other: (other) => moved(catalogue, scene, { ...choice, swizzle: other }) as Stored,
  };
}

function moveNotes({ part }: Matrix, move: Move, steps: number): string[] {
  const notes: string[] = [];
  if (move.parts > 1)
    notes.push(`The operand takes ${move.parts} instructions; the first one is bright.`);
  else if (steps > 1) notes.push("One instruction is bright; the next ones take the rest.");
  if (part!.axes.W > 1) notes.push("Lanes are those of warp 0; each warp has rows of its own.");
  return notes;
}

/** Lines of so many bytes, a pitch apart; ``lanes`` are the (line, unit) they address. */
function rowsOf(
  catalogue: Catalogue,
  choice: Choice,
  width: number,
  { lines, lanes }: { lines: number; lanes: number[][] },
) {
  const { unit, swizzles } = catalogue.memory;
  const names = swizzles.map((each) => each.swizzle);
  const name = names.includes(choice.swizzle) ? choice.swizzle : "0";
  const swizzle = swizzleOf(catalogue, name);
  const pitch = choice.numbers.length === 1 ? choice.numbers[0] : width;
  const unitAt = (line: number, at: number) => swizzled(line * pitch + at * unit, swizzle);
  const used = lanes.map(([line, at]) => unitAt(line, at));
  const idle = Array.from({ length: LANES - used.length }, () => IDLE);
  return {
    choice: { ...choice, swizzle: name },
    swizzles: names,
    swizzle,
    lines,
    units: width / unit,
    unitAt,
    touched: new Map(used.map((address, lane) => [address, lane])),
    lanes: [...used, ...idle],
    pitch,
    descriptor: null,
  };
}

/** What is wrong with a pitch; empty if nothing is. */
export function pitchProblem(catalogue: Catalogue, stored: Stored, value: number): string {
  const { unit, limit } = catalogue.memory;
  if (!Number.isInteger(value) || value % unit) return `a multiple of ${unit} bytes`;
  const least = stored.units * unit;
  if (value < least) return `at least the ${least} bytes of a line`;
  return value * stored.lines > limit ? `so small that all ends below ${limit}` : "";
}

// ── ldmatrix and stmatrix themselves ────────────────────────────────────────

/** The small matrices: two below each other, then side by side, as kernels have them. */
function matrixRows(catalogue: Catalogue, { op, matrices }: Scene, choice: Choice): Stored {
  const [matrix] = matrices.values();
  const narrow = catalogue.memory.padded.moves[op.values.type];
  const down = Math.min(2, matrix.count);
  const lane = (at: number): number[] => {
    const number = Math.floor(at / matrix.rows);
    return [(at % matrix.rows) + matrix.rows * (number % down), Math.floor(number / down)];
  };
  const lanes = Array.from({ length: matrix.count * matrix.rows }, (_, at) => lane(at));
  const rows = rowsOf(catalogue, choice, FULL, { lines: matrix.rows * down, lanes });
  const bits = narrow ?? matrix.bits;
  const perUnit = matrix.cols;
  return {
    ...rows,
    choice: { ...rows.choice, operand: matrix.name, major: "k", load: "" },
    operand: matrix.name,
    operands: [matrix.name],
    loads: [],
    majors: ["k"],
    across: "row",
    along: "col",
    perUnit,
    bits,
    move: null,
    notes: [
      `Lane ${matrix.count > 1 ? `${matrix.rows}i + r` : "r"} gives the address of row r` +
        `${matrix.count > 1 ? " of matrix i" : ""}. Where the rows are is up to the kernel.`,
    ],
    find: (index) => {
      const [number, row, col] = matrix.spot(index);
      const [line, unit] = lane(number * matrix.rows + row);
      return [line, unit, rows.unitAt(line, unit) + Math.floor((col * bits) / 8)];
    },
    element: (line, unit, place) => {
      const number = unit * down + Math.floor(line / matrix.rows);
      const inside = number < matrix.count && place < matrix.cols;
      return inside ? matrix.index(number, line % matrix.rows, place) : -1;
    },
    other: (other) =>
      matrixRows(catalogue, { op, matrices } as Scene, { ...choice, swizzle: other }),
  };
}

function lcm(one: number, other: number): number {
  let [a, b] = [one, other];
  while (b) [a, b] = [b, a % b];
  return (one / a) * other;
}
