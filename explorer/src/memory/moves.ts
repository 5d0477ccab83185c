// Finds the ldmatrix or stmatrix that moves an operand, and the address of each lane.
// Two layout lines determine it: that of the move, and that of the operand.  A row of
// a small matrix is 16 bytes; each of their bits goes to a bit of a register, and
// there the operand's line says which element it is.  If these are not neighbours in
// memory, the move cannot be used.

import type { Catalogue, Instruction, Part } from "../records/catalogue.js";
import { Layout } from "../records/layout.js";
import type { Major } from "./shared.js";

const UNIT_BITS = 128;
/** The dimensions of the rows and columns of each operand. */
export const SIDES: Record<string, string> = { A: "mk", B: "kn", C: "mn", D: "mn" };

/** The row and the column of an element. */
export type Corner = [number, number];

/** A way to move an operand between shared memory and registers. */
export interface Move {
  op: Instruction;
  /** Operands that one instruction moves, side by side along m, n or k. */
  tiles: number;
  along: string;
  /** Instructions that move one operand. */
  parts: number;
  /** For each lane the (row, col) that begins at its address. */
  rows: (part: number, warp: number) => Corner[];
}

/** The short name of a move, for links: x4, or x4k with two operands along k. */
export function moveName({ op, along, tiles }: Way): string {
  return op.values.num + (tiles > 1 ? along : "");
}

/** Whether the lines of a tile, whose elements are contiguous, are columns. */
export function lineOf(operand: string, major: Major): 0 | 1 {
  return (operand === "B") === (major === "k") ? 1 : 0;
}

/** What a move holds in registers. */
export function heldBy(catalogue: Catalogue, op: Instruction): Part {
  return catalogue.parts[Object.values(op.parts)[0]];
}

/** Why no move can have an operand; empty if one may. */
export function notMovable(part: Part): string {
  const layout = new Layout(part.line, part.axes);
  const names = layout.data.map((each) => each.name).join(" ");
  if (names !== "row col" || layout.free.length)
    return "it is not a single matrix without copies";
  if (part.slot[0] * (part.axes.E ?? 1) !== 32)
    return "its registers have 64 bits, and these instructions move 32";
  return "";
}

/** The move with the fewest instructions, then those that move several operands. */
export function movesOf(
  catalogue: Catalogue,
  op: Instruction,
  operand: string,
  part: Part,
  major: Major,
): Move[] {
  const family = operand === "D" ? "stmatrix" : "ldmatrix";
  const targets = Object.keys(catalogue.targets[op.requires].targets);
  const found = new Map<string, Move>();
  const candidates = catalogue.instructions
    .filter(
      (each) =>
        each.family === family &&
        !each.values.space &&
        !(each.values.type in catalogue.memory.padded.moves) &&
        targets.some((target) => target in catalogue.targets[each.requires].targets),
    )
    .sort((one, other) => registers(catalogue, other) - registers(catalogue, one));
  for (const move of candidates) {
    for (const each of waysOf(catalogue, move, operand, part)) {
      const lanes = new Addressing(catalogue, each, operand, part);
      const name = each.tiles > 1 ? moveName(each) : "";
      if (found.has(name) || !lanes.adjacent(major)) continue;
      found.set(name, { ...each, rows: (at, warp) => lanes.rows(at, warp) });
    }
  }
  const moves = [...found.values()];
  const several = (each: Move) => Number(each.tiles > 1);
  return moves.sort((one, other) => several(one) - several(other));
}

function registers(catalogue: Catalogue, move: Instruction): number {
  return heldBy(catalogue, move).axes.R ?? 1;
}

type Way = Omit<Move, "rows">;

function waysOf(
  catalogue: Catalogue,
  op: Instruction,
  operand: string,
  part: Part,
): Way[] {
  const [count, own] = [registers(catalogue, op), part.axes.R ?? 1];
  if (own % count === 0) return [{ op, tiles: 1, along: "", parts: own / count }];
  if (count % own) return [];
  return [...SIDES[operand]].map((along) => ({
    op,
    tiles: count / own,
    along,
    parts: 1,
  }));
}

/** What the lanes of a move address. */
class Addressing {
  private held: Layout;
  private of: Layout;
  private moved: number;
  private slot: number;
  private shape: number[];

  constructor(
    private catalogue: Catalogue,
    private way: Way,
    private operand: string,
    part: Part,
  ) {
    const held = heldBy(catalogue, way.op);
    this.held = new Layout(held.line, held.axes);
    this.of = new Layout(part.line, part.axes);
    [this.moved, this.slot] = [held.slot[0], part.slot[0]];
    this.shape = this.of.shape;
  }

  /** Where the addresses of all lanes point to. */
  rows(part: number, warp: number): Corner[] {
    const [matrices, rows] = this.held.shape;
    return Array.from({ length: matrices * rows }, (_, lane) => {
      const [row, col] = this.bit(part, warp, lane, 0);
      return [row, col];
    });
  }

  /**
   * Whether 16 bytes at an address are neighbours in memory.  Every bit of a lane, a warp
   * or a part moves all of them alike, so it is enough to look at the first ones.
   */
  adjacent(major: Major): boolean {
    const along = lineOf(this.operand, major) ? 0 : 1;
    const step = Math.min(this.moved, this.slot);
    for (let bit = 0; bit < UNIT_BITS; bit += step) {
      const [row, col, inside] = this.bit(0, 0, 0, bit);
      const [there, across] = along ? [col, row] : [row, col];
      const right = there === Math.floor(bit / this.slot) && across === 0;
      if (!right || inside !== bit % this.slot) return false;
    }
    return true;
  }

  /** The element, and its bit, that a bit of a lane's 16 bytes is. */
  private bit(part: number, warp: number, lane: number, bit: number): number[] {
    const [, rows] = this.held.shape;
    const [matrix, row] = [Math.floor(lane / rows), lane % rows];
    const place = this.held.place({ matrix, row, col: Math.floor(bit / this.moved) });
    return this.at(place, part, warp, bit % this.moved);
  }

  /** The element, and its bit, that a bit of a register of the move is. */
  private at(
    place: Record<string, number>,
    part: number,
    warp: number,
    inside: number,
  ): number[] {
    const { tiles, along } = this.way;
    const count = registers(this.catalogue, this.way.op);
    const own = count / tiles;
    const register = (place.R ?? 0) % own;
    const tile = Math.floor((place.R ?? 0) / own);
    const bit = (place.E ?? 0) * this.moved + inside;
    const { row, col } = this.of.element({
      W: warp,
      L: place.L,
      R: register + part * count,
      E: Math.floor(bit / this.slot),
    });
    const side = tiles > 1 ? SIDES[this.operand].indexOf(along) : -1;
    return [
      row + (side === 0 ? tile * this.shape[0] : 0),
      col + (side === 1 ? tile * this.shape[1] : 0),
      bit % this.slot,
    ];
  }
}
