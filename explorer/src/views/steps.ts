// The steps of the player: through k, what D is made of; through lanes or registers,
// what each of them holds.

import { add, fromNumber, multiply, text, ZERO, type Exact } from "../numbers/exact.js";
import type { Explorer } from "../page/explorer.js";
import type { Flow } from "./flow.js";
import type { Highlight, Spot } from "../drawing/highlight.js";
import { laneText, unit, type Matrix, type Scene } from "../records/matrix.js";
import { pairing, rowOfB } from "../numbers/values.js";

export const WAYS = ["k", "lane", "register"] as const;
export type Way = (typeof WAYS)[number];

export interface Step {
  marks: Highlight;
  said: string;
  /** What comes together in this step. */
  flow?: Flow;
}

export interface Steps {
  count: number;
  at: (step: number) => Step;
}

/** The ways in which one can step through an instruction. */
export function waysOf({ computes }: Scene): Way[] {
  return WAYS.filter((way) => way !== "k" || computes);
}

export function stepsOf(explorer: Explorer, way: Way): Steps {
  if (way === "lane") return lanes(explorer.scene);
  if (way === "register") return registers(explorer.scene);
  const { pinned } = explorer.state;
  const made = pinned && "CD".includes(pinned.matrix);
  return made ? sums(explorer, pinned) : slices(explorer);
}

// ── through k ───────────────────────────────────────────────────────────────

/** Nothing is lit yet. */
function dark(scene: Scene): Highlight {
  const marks: Highlight = new Map();
  for (const [name, { size }] of scene.matrices) {
    marks.set(name, { lit: new Uint8Array(size), framed: [] });
  }
  return marks;
}

/** The codes and scales of one product: operand, row and column of each. */
function governors(
  { matrices, pattern, op }: Scene,
  at: { row: number; col: number; stored: number; k: number },
): [string, number, number][] {
  const [a, b] = [matrices.get("scale_A"), matrices.get("scale_B")];
  const block = (many: number) => Math.floor((at.k * many) / op.shape[2]);
  const found: [string, number, number][] = [];
  if (pattern && matrices.has("metadata")) {
    found.push(["metadata", at.row, Math.floor(at.stored / pattern.kept)]);
  }
  if (a && at.k >= 0) found.push(["scale_A", at.row, block(a.cols)]);
  if (b && at.k >= 0) found.push(["scale_B", block(b.rows), at.col]);
  return found;
}

/** One element of D: a row of A and a column of B come together, product by product. */
function sums(explorer: Explorer, spot: Spot): Steps {
  const { scene, codes } = explorer;
  const [m, row, col] = scene.matrices.get(spot.matrix)!.spot(spot.index);
  const a = scene.matrices.get("A")!;
  const at = (step: number): Step => {
    const marks = dark(scene);
    const light = (name: string, r: number, c: number, now: boolean) => {
      const index = scene.matrices.get(name)?.index(name[0] === "s" ? 0 : m, r, c);
      if (index === undefined || r < 0) return;
      const own = marks.get(name)!;
      own.lit![index] = 1;
      if (now && !own.framed.includes(index)) own.framed.push(index);
    };
    for (let stored = 0; stored <= step; stored++) {
      const now = stored === step;
      const k = rowOfB(scene, codes, row, stored);
      light("A", row, stored, now);
      light("B", k, col, now);
      for (const [name, r, c] of governors(scene, { row, col, stored, k })) {
        light(name, r, c, now);
      }
    }
    for (const name of ["C", "D"]) light(name, row, col, true);
    const made = { m, row, col };
    return { marks, said: productText(explorer, made, step), flow: flowTo(explorer, made, step) };
  };
  return { count: a.cols, at };
}

/** An element of A and one of B go to what is shown of C and D. */
function flowTo(explorer: Explorer, { m, row, col }: Made, step: number): Flow | undefined {
  const { scene, codes, state } = explorer;
  const k = rowOfB(scene, codes, row, step);
  if (k < 0) return undefined;
  const spot = (matrix: string, r: number, c: number): Spot => ({
    matrix,
    index: scene.matrices.get(matrix)!.index(m, r, c),
  });
  const shown = scene.matrices.has(state.accumulator) ? state.accumulator : "D";
  const from = [spot("A", row, step), spot("B", k, col)].map((each) => ({
    spot: each,
    text: minus(explorer.valueText(each)) || each.matrix,
  }));
  return { from, to: spot(shown, row, col) };
}

interface Made {
  m: number;
  row: number;
  col: number;
}

function productText(explorer: Explorer, made: Made, step: number): string {
  const { scene, codes, op } = explorer;
  const [a, b] = [scene.matrices.get("A")!, scene.matrices.get("B")!];
  const { m, row, col } = made;
  const k = rowOfB(scene, codes, row, step);
  const left = a.label(a.index(m, row, step));
  const where = scene.pattern ? `stored ${step}, column ${k} of A` : `k = ${k}`;
  if (k < 0) return `Stored ${step}: an illegal code keeps no column, so D is undefined.`;
  const sign = op.values.bitop?.split(".")[0] ?? "×";
  const scaled = scene.matrices.has("scale_A") ? " × their scales" : "";
  const said = `${where}: ${left} ${sign} ${b.label(b.index(m, k, col))}${scaled}`;
  const values = explorer.values;
  if (!values) return said;
  const product = productAt(explorer, made, step);
  const sum = sumTo(explorer, made, step);
  const last = step === a.cols - 1;
  const d = explorer.valueText({ matrix: "D", index: scene.matrices.get("D")!.index(m, row, col) });
  const end = last && d ? `; the instruction returns ${minus(d)}` : "";
  return `${said} = ${minus(text(product))}; exact sum so far ${minus(text(sum))}${end}`;
}

/** C and the products up to a step, exactly: what is lost on the way is not in it. */
function sumTo(explorer: Explorer, made: Made, step: number): Exact {
  const c = explorer.scene.matrices.get("C");
  const start = c && explorer.values!.number("C", c.index(made.m, made.row, made.col));
  let sum = start === undefined ? ZERO : fromNumber(start);
  for (let stored = 0; stored <= step; stored++) {
    sum = add(sum, productAt(explorer, made, stored));
  }
  return sum;
}

function productAt({ scene, codes, values, op }: Explorer, made: Made, stored: number): Exact {
  const { m, row, col } = made;
  const k = rowOfB(scene, codes, row, stored);
  const value = (name: string, matrix: number, r: number, c: number) =>
    values!.number(name, scene.matrices.get(name)!.index(matrix, r, c));
  if (k < 0) return NaN;
  const [x, y] = [value("A", m, row, stored)!, value("B", m, k, col)!];
  if (op.values.bitop) return fromNumber(pairing(op.values.bitop)(x, y));
  const scales = governors(scene, { row, col, stored, k })
    .filter(([name]) => name !== "metadata")
    .map(([name, r, c]) => value(name, 0, r, c) ?? 1);
  return [y, ...scales].reduce((all, each) => multiply(all, fromNumber(each)), fromNumber(x));
}

/** All of D: with each k, a column of A meets a row of B. */
function slices({ scene, codes }: Explorer): Steps {
  const [a, b] = [scene.matrices.get("A")!, scene.matrices.get("B")!];
  const at = (step: number): Step => {
    const marks = dark(scene);
    for (const name of ["C", "D"]) marks.get(name)?.lit!.fill(1);
    const rows = new Set<number>();
    const light = (name: string, matrix: number, r: number, c: number) => {
      const of = scene.matrices.get(name)!;
      marks.get(name)!.lit![of.index(matrix, r, c)] = 1;
    };
    for (let line = 0; line < a.count * a.rows; line++) {
      const [m, row] = [Math.floor(line / a.rows), line % a.rows];
      const k = rowOfB(scene, codes, row, step);
      light("A", m, row, step);
      if (k >= 0) rows.add(k);
      for (const [name, r, c] of governors(scene, { row, col: 0, stored: step, k })) {
        if (name !== "scale_B") light(name, 0, r, c);
      }
    }
    const scales = scene.matrices.get("scale_B");
    for (const k of rows) {
      for (let line = 0; line < b.count * b.cols; line++) {
        light("B", Math.floor(line / b.cols), k, line % b.cols);
      }
      const block = scales ? Math.floor((k * scales.rows) / scene.op.shape[2]) : 0;
      for (let col = 0; col < (scales?.cols ?? 0); col++) light("scale_B", 0, block, col);
    }
    const kept = [...rows].sort((x, y) => x - y).join(", ");
    const said = scene.pattern
      ? `stored column ${step} of A meets rows ${kept} of B: each row of A has kept its own`
      : `k = ${step}: column ${step} of A meets row ${step} of B, and all of D grows`;
    return { marks, said };
  };
  return { count: a.cols, at };
}

// ── through lanes and registers ─────────────────────────────────────────────

function held(scene: Scene): Matrix[] {
  return [...scene.matrices.values()].filter((matrix) => matrix.part);
}

/** Elements that fit are lit; an operand in shared memory stays as it is. */
function where(scene: Scene, fits: (matrix: Matrix, index: number) => boolean): Highlight {
  const marks: Highlight = new Map();
  for (const [name, matrix] of scene.matrices) {
    const lit = matrix.part && new Uint8Array(matrix.size);
    for (let index = 0; lit && index < lit.length; index++) {
      lit[index] = +fits(matrix, index);
    }
    marks.set(name, { lit, framed: [] });
  }
  return marks;
}

/** Such as ``8 of A, 4 of B and 4 of D``. */
function counts(scene: Scene, marks: Highlight): string {
  const some = held(scene).flatMap(({ name }) => {
    const count = marks.get(name)!.lit!.reduce((sum, each) => sum + each, 0);
    return count ? `${count} of ${name.replace("_", " ")}` : [];
  });
  return some.join(", ") || "nothing";
}

function lanes(scene: Scene): Steps {
  const count = Math.max(32 * scene.warps, unit(scene));
  const at = (step: number): Step => {
    const marks = where(scene, (matrix, index) => matrix.lane[index] === step);
    return { marks, said: `${laneText(step, scene)} holds ${counts(scene, marks)}` };
  };
  return { count, at };
}

function registers(scene: Scene): Steps {
  const count = Math.max(...held(scene).map(({ registers: many }) => many));
  const what = scene.tensor ? "column" : "register";
  const at = (step: number): Step => {
    const marks = where(scene, (matrix, index) => matrix.register[index] === step);
    return { marks, said: `${what} ${step} of every lane: ${counts(scene, marks)}` };
  };
  return { count, at };
}

function minus(number: string): string {
  return number.replace(/-/g, "−");
}
