// Operands whose rows are at addresses that lanes give.  ldmatrix loads and stmatrix
// stores them: lines a pitch apart, swizzled or not.  And the two instructions
// themselves.

import { IDLE, LANES } from "./banks.js";
import type { Catalogue } from "../records/catalogue.js";
import type { Matrix, Scene } from "../records/matrix.js";
import { lineOf, moveName, movesOf, notMovable, SIDES, type Move } from "./moves.js";
import { swizzled, swizzleOf, type Major } from "./shared.js";
import { familyOf, refused, type Choice, type Stored } from "./stored.js";

const UNIT_BITS = 128;
const FULL = 128; // bytes of a line that a tile fills, if it can

/** Every move of an operand, whichever side is contiguous. */
export function allMoves(catalogue: Catalogue, scene: Scene, operand: string): Move[] {
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

export function loadsOf(
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

export function moved(
  catalogue: Catalogue,
  scene: Scene,
  choice: Choice,
): Stored | string {
  const { operand } = choice;
  const matrix = scene.matrices.get(operand)!;
  const majors = (["k", "mn"] as Major[]).filter(
    (each) => movesFor(catalogue, scene, operand, each).length,
  );
  if (!majors.length) return refused(scene);
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
    loads: loadsOf(
      catalogue,
      scene,
      operand,
      family !== null && operand !== "D",
      major,
    ),
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
      return [
        at,
        unit,
        rows.unitAt(at, unit) + Math.floor(((place % perUnit) * slot) / 8),
      ];
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
    notes.push(
      `The operand takes ${move.parts} instructions; the first one is bright.`,
    );
  else if (steps > 1)
    notes.push("One instruction is bright; the next ones take the rest.");
  if (part!.axes.W > 1)
    notes.push("Lanes are those of warp 0; each warp has rows of its own.");
  return notes;
}

function rowNotes({ count, rows }: Matrix, bytes: number, unit: number): string[] {
  const [lane, of] = count > 1 ? [`${rows}i + r`, " of matrix i"] : ["r", ""];
  const notes = [
    `Lane ${lane} gives the address of row r${of}. Where the rows are is up to the kernel.`,
  ];
  if (bytes < unit)
    notes.push(`A row is ${bytes} bytes: here the first ones of a cell of ${unit}.`);
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
  const [given, ...more] = choice.numbers;
  const tall = { lines, units: width / unit };
  const fine = !more.length && !pitchProblem(catalogue, tall, given ?? NaN);
  const pitch = fine ? given : width;
  const unitAt = (line: number, at: number) =>
    swizzled(line * pitch + at * unit, swizzle);
  const used = lanes.map(([line, at]) => unitAt(line, at));
  const idle = Array.from({ length: LANES - used.length }, () => IDLE);
  return {
    choice: { ...choice, swizzle: name },
    swizzles: names,
    swizzle,
    lines,
    units: tall.units,
    unitAt,
    touched: new Map(used.map((address, lane) => [address, lane])),
    lanes: [...used, ...idle],
    laneBytes: unit,
    pitch,
    descriptor: null,
  };
}

/** What is wrong with a pitch; empty if nothing is. */
export function pitchProblem(
  { memory }: Catalogue,
  { lines, units }: { lines: number; units: number },
  value: number,
): string {
  const { unit, limit } = memory;
  if (!Number.isInteger(value) || value % unit) return `a multiple of ${unit} bytes`;
  const least = units * unit;
  if (value < least) return `at least the ${least} bytes of a line`;
  return value * lines > limit ? `so small that all ends below ${limit}` : "";
}

// ── ldmatrix and stmatrix themselves ────────────────────────────────────────

/** The small matrices: two below each other, then side by side, as kernels have them. */
export function matrixRows(
  catalogue: Catalogue,
  { op, matrices }: Scene,
  choice: Choice,
): Stored {
  const [matrix] = matrices.values();
  const { padded, unit } = catalogue.memory;
  const whole = { bits: matrix.bits, row: unit };
  const { bits, row: laneBytes } = padded.moves[op.values.type] ?? whole;
  const down = Math.min(2, matrix.count);
  const lane = (at: number): number[] => {
    const number = Math.floor(at / matrix.rows);
    return [
      (at % matrix.rows) + matrix.rows * (number % down),
      Math.floor(number / down),
    ];
  };
  const lanes = Array.from({ length: matrix.count * matrix.rows }, (_, at) => lane(at));
  const rows = rowsOf(catalogue, choice, FULL, { lines: matrix.rows * down, lanes });
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
    laneBytes,
    move: null,
    notes: rowNotes(matrix, laneBytes, unit),
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
