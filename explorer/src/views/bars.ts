// Shows which bits of a sum are kept, and which are lost.  Each term is a bar of bits
// under an axis of powers of two; left of the line bits count, right of it they are
// cut off.

import { h } from "../page/dom.js";
import {
  bitLength,
  equal,
  isFraction,
  isZero,
  log2,
  magnitude,
  short,
  subtract,
  text,
  type Exact,
  type Fraction,
} from "../numbers/exact.js";
import { least, type ElementType } from "../numbers/elements.js";
import { folded, nameOf } from "../numbers/telling.js";
import type { Model, Step, Term } from "../numbers/model.js";

/** Positions of bits, from the highest to the lowest that is drawn. */
interface Axis {
  top: number;
  bottom: number;
  /** Terms lose what lies below it; null where nothing is aligned. */
  cut: number | null;
  /** The sum is rounded here. */
  unit: number | null;
  emax: number | null;
  cell: number;
}

/** Lost bits that are drawn at most. */
const DEEPEST = 24;
/** Bits that are drawn at most where none is lost. */
const WIDEST = 120;
const HEIGHT = 15;
/** With less room than this, bars stand before numbers. */
const NARROW = 400;

/** Rows that a table with little room has. */
const MOST_ROWS = 12;

/** A column of the table; the bars are one of them. */
type Column = "a" | "a in" | "b" | "b in" | "product" | "exponent" | "bits" | "lost";

/** Where the two factors of a product are: lane and register, in few letters. */
export interface Holders {
  a: string;
  b: string;
  /** The same in full. */
  title: string;
}

/** A step as a table of terms, or only their bars where there is little room. */
export function stepTable(
  types: Record<string, ElementType>,
  model: Model,
  step: Step,
  room: number,
  full: boolean,
  /** Where the operands of a product are. */
  where?: (k: number) => Holders | null,
): HTMLElement {
  const axis = axisOf(types, model, step, room);
  const held = step.terms.some(({ k }) => k.length === 1 && where?.(k[0]));
  const columns = columnsOf(step, full, room < NARROW, held);
  const { rows, notes } = rowsOf(model, step, full);
  const body = h("tbody", {}, ...rows.map((term) => termRow(term, axis, columns, where)));
  for (const said of notes) body.append(note(said, columns));
  if (full) body.append(legend(axis, columns));
  if (step.operation !== "convert") {
    body.append(sumRow("sum", step.total, axis, columns));
  }
  const rounded = step.keep === null ? step.rounding : step.type;
  const lost = subtract(step.total, step.value);
  body.append(sumRow(rounded, step.value, axis, columns, lost));
  const head = columns.map((column) =>
    h("th", { scope: "col" }, column === "bits" ? axisPicture(axis) : column),
  );
  const first = h("th", { scope: "col" }, "k");
  return h(
    "table",
    { class: `terms${full ? " full" : ""}` },
    h("thead", {}, h("tr", {}, first, ...head)),
    body,
  );
}

/** The terms that are drawn, and what is said of the others. */
function rowsOf(
  model: Model,
  step: Step,
  full: boolean,
): { rows: Term[]; notes: string[] } {
  const products = step.terms.filter((term) => term.k.length);
  const zeros = products.filter((term) => isZero(term.value)).length;
  // Of single bits every product is 0 or 1: it is enough to count them.
  const counted = model.form === "bits";
  const rows = folded(
    step.terms.filter((term) => !term.k.length || !(counted || isZero(term.value))),
  );
  const hidden = full ? 0 : Math.max(0, rows.length - MOST_ROWS);
  rows.splice(MOST_ROWS - 1, hidden); // the accumulator, which is last, stays
  const are = zeros === 1 ? "product that is" : "products that are";
  const notes = [
    counted ? `and ${products.length - zeros} products that are 1` : "",
    zeros ? `and ${zeros} ${are} zero` : "",
    hidden ? `and ${hidden} more terms` : "",
  ];
  return { rows, notes: notes.filter(Boolean) };
}

/** The columns that say something; on a narrow screen the bars come first. */
function columnsOf(step: Step, full: boolean, narrow: boolean, held: boolean): Column[] {
  if (!full) return ["bits"];
  const single = step.terms.some((term) => term.a !== null);
  const aligned = step.emax !== null;
  const lossy = aligned || !equal(step.total, step.value);
  const factors: Column[] = held ? ["a", "a in", "b", "b in"] : ["a", "b"];
  const numbers: Column[] = single ? [...factors, "product"] : ["product"];
  if (aligned) numbers.push("exponent");
  const lost: Column[] = lossy ? ["lost"] : [];
  return narrow ? ["bits", ...lost, ...numbers] : [...numbers, "bits", ...lost];
}

/** What the colours of the bars mean. */
function legend({ cut, unit }: Axis, columns: Column[]): HTMLElement {
  const mark = (kind: string) => {
    const found = svg(9, 9, "");
    put(found, "rect", { class: kind, width: 9, height: 9 });
    found.style.display = "inline-block";
    return found;
  };
  const one = (kind: string, said: string) => [mark(kind), ` ${said}  `];
  const line = cut !== null ? `; terms are cut at the dashed line, 2^${cut}` : "";
  const all = { colspan: columns.length + 1, class: "hint" };
  const lost = cut === null && unit === null ? [] : one("gone1", `bits that are lost${line}`);
  return h("tr", { class: "legend" }, h("td", all, ...one("kept1", "bits that count"), ...lost));
}

function note(said: string, columns: Column[]): HTMLElement {
  return h("tr", {}, h("td", { colspan: columns.length + 1, class: "hint" }, said));
}

function axisOf(
  types: Record<string, ElementType>,
  model: Model,
  step: Step,
  room: number,
): Axis {
  const values = [...step.terms.map((term) => term.value), step.total, step.value];
  const counting = values.filter(isFraction).filter((each) => each.m !== 0n);
  const top = counting.length ? Math.max(...counting.map(log2)) : 0;
  const cut = step.emax === null ? null : step.emax - model.fraction!;
  const { total } = step;
  const rounds = step.keep !== null && isFraction(total) && total.m !== 0n;
  const low = least(types[step.type]);
  const unit = rounds ? Math.max(log2(total), low) - step.keep! : null;
  const lowest = counting.length ? Math.min(...counting.map(lowestBit)) : 0;
  // Where nothing is cut off, all bits are kept.
  const edge = Math.min(cut ?? Infinity, unit ?? Infinity, top);
  const free = cut === null && unit === null;
  const bottom = Math.max(lowest, edge - (free ? WIDEST : DEEPEST));
  const shown = Math.min(bottom, edge);
  const cell = Math.max(2, Math.min(10, Math.floor(room / (top - shown + 1))));
  return { top, bottom: shown, cut, unit, emax: step.emax, cell };
}

/** The position of the lowest bit that is set. */
function lowestBit({ m, e }: Fraction): number {
  return bitLength(m & -m) - 1 + e;
}

/** −1, 0 or 1; what is no number has none. */
function signOf(value: Exact): number {
  return !isFraction(value) || value.m === 0n ? 0 : value.m < 0n ? -1 : 1;
}

function termRow(
  term: Term,
  axis: Axis,
  columns: Column[],
  where?: (k: number) => Holders | null,
): HTMLElement {
  const lost = lostText(term.lost);
  const holders = (term.k.length === 1 && where?.(term.k[0])) || null;
  const said = `${short(term.value)}${lost ? `, of which ${lost} is lost` : ""}`;
  const cell: Record<Column, () => HTMLElement> = {
    a: () => h("td", {}, term.a === null ? "" : short(term.a)),
    "a in": () => h("td", { class: "holder" }, holders?.a ?? ""),
    b: () => h("td", {}, term.b === null ? "" : short(term.b)),
    "b in": () => h("td", { class: "holder" }, holders?.b ?? ""),
    product: () => h("td", {}, short(term.value)),
    exponent: () => h("td", {}, term.exponent === null ? "" : `${term.exponent}`),
    bits: () => h("td", { class: "bits" }, bits(term.value, axis, axis.cut, said)),
    lost: () => h("td", { class: "lost" }, lost),
  };
  // The bars have no sign; where no number stands beside them, the name has it.
  const minus = !columns.includes("product") && signOf(term.value) < 0 ? " −" : "";
  const title = holders?.title || false;
  const k = h("th", { scope: "row", title }, nameOf(term.k) + minus);
  return h("tr", {}, k, ...columns.map((column) => cell[column]()));
}

function lostText(lost: Exact | null): string {
  return lost === null || isZero(lost) || !isFraction(lost) ? "" : short(lost, 9);
}

/** The sum, or what is left of it. */
function sumRow(
  name: string,
  value: Exact,
  axis: Axis,
  columns: Column[],
  lost: Exact | null = null,
): HTMLElement {
  const row = h("tr", { class: "sum" }, h("th", { scope: "row" }, name));
  // The columns of a and b are free for its digits.
  const wide = columns[0] === "a" ? columns.indexOf("product") + 1 : 1;
  for (const column of columns.slice(wide - 1)) {
    if (column === "bits") {
      row.append(
        h("td", { class: "bits" }, bits(value, axis, axis.unit, short(value))),
      );
    } else if (column === "lost") {
      row.append(h("td", { class: "lost" }, lostText(lost)));
    } else if (column === "product") {
      row.append(h("td", { colspan: wide }, short(value, 24)));
    } else row.append(h("td"));
  }
  return row;
}

// ── pictures ────────────────────────────────────────────────────────────────

const SVG = "http://www.w3.org/2000/svg";

function svg(width: number, height: number, said: string): SVGSVGElement {
  const found = document.createElementNS(SVG, "svg");
  found.setAttribute("width", `${width}`);
  found.setAttribute("height", `${height}`);
  if (said) {
    found.setAttribute("role", "img");
    found.setAttribute("aria-label", said);
  } else {
    found.setAttribute("aria-hidden", "true");
  }
  return found;
}

function put(
  host: SVGElement,
  tag: string,
  attributes: Record<string, number | string>,
  written = "",
): void {
  const found = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    found.setAttribute(name, `${value}`);
  }
  found.textContent = written;
  host.append(found);
}

function widthOf({ top, bottom, cell }: Axis): number {
  return (top - bottom + 1) * cell + 14; // and an arrow
}

/** Powers of two, and where terms are cut and the sum is rounded. */
function axisPicture(axis: Axis): SVGSVGElement {
  const { top, bottom, cell, emax } = axis;
  const said = emax === null ? "bits" : `bits; emax ${emax}, cut below 2^${axis.cut}`;
  const found = svg(widthOf(axis), 14, said);
  const marks = new Set<number>();
  const room = (at: number) =>
    [...marks].every((each) => Math.abs(each - at) * cell > 34);
  const wanted = [emax, axis.cut ?? axis.unit, top, bottom];
  for (const at of wanted) {
    if (at === null || at > top || at < bottom || !room(at)) continue;
    marks.add(at);
    const x = (top - at) * cell + cell / 2;
    const anchor = at === top ? "start" : "middle";
    const start = at === top ? 0 : x;
    put(
      found,
      "text",
      { x: start, y: 11, "text-anchor": anchor, class: "tick" },
      `2^${at}`,
    );
  }
  return found;
}

/** The bits of a value: those below ``cut`` are lost. */
function bits(
  value: Exact,
  axis: Axis,
  cut: number | null,
  said: string,
): SVGSVGElement {
  const { top, bottom, cell } = axis;
  const found = svg(widthOf(axis), HEIGHT, said);
  const at = (position: number) => (top - position) * cell;
  if (!isFraction(value)) {
    put(found, "text", { x: 2, y: 11, class: "tick" }, text(value));
  } else if (value.m !== 0n) {
    const low = Math.max(bottom, lowestBit(value));
    const bit = (position: number) =>
      Number((magnitude(value.m) >> BigInt(position - value.e)) & 1n);
    // One shape for all bits of a kind: an element each would be hundreds.
    const shapes = new Map<string, string>();
    for (let position = log2(value); position >= low;) {
      let end = position;
      const [set, kept] = [bit(position), cut === null || position >= cut];
      const same = (p: number) => bit(p) === set && (cut === null || p >= cut) === kept;
      while (end > low && same(end - 1)) end--;
      const width = (position - end + 1) * cell;
      const kind = `${kept ? "kept" : "gone"}${set}`;
      const before = shapes.get(kind) ?? "";
      shapes.set(kind, `${before}M${at(position)} 2h${width}v11h${-width}z`);
      position = end - 1;
    }
    for (const [kind, d] of shapes) put(found, "path", { d, class: kind });
    if (cell >= 7) digits(found, log2(value), low, bit, axis);
    if (lowestBit(value) < bottom) arrow(found, axis, cut === null);
  }
  if (cut !== null && cut - 1 >= bottom - 1) {
    const x = at(cut) + cell;
    put(found, "line", { x1: x, x2: x, y1: 0, y2: HEIGHT, class: "cut" });
  }
  return found;
}

function digits(
  host: SVGSVGElement,
  high: number,
  low: number,
  bit: (position: number) => number,
  { top, cell, bottom }: Axis,
): void {
  const places: [string[], string[]] = [[], []];
  for (let position = Math.min(high, top); position >= Math.max(low, bottom); position--) {
    places[bit(position)].push(`${(top - position) * cell + cell / 2}`);
  }
  for (const [digit, at] of places.entries()) {
    if (!at.length) continue;
    const x = at.join(" ");
    put(host, "text", { x, y: 11, class: `digit digit${digit}` }, `${digit}`.repeat(at.length));
  }
}

/** There are more bits than are drawn. */
function arrow(host: SVGSVGElement, axis: Axis, kept: boolean): void {
  const x = widthOf(axis) - 12;
  put(host, "path", { d: `M${x} 4 l7 4 l-7 4 z`, class: kept ? "kept1" : "gone1" });
}
