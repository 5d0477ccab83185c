// Writes explanations in the words of Python's op.explain, so that both can be read
// side by side.

import type { Catalogue } from "../records/catalogue.js";
import { isInteger } from "./elements.js";
import { equal, isZero, multiply, short, subtract, text, type Exact } from "./exact.js";
import { losses, type Loss, type Losses } from "./losses.js";
import type { Explanation, Step, Term } from "./model.js";

export function told(
  catalogue: Catalogue,
  op: string,
  target: string,
  row: number,
  col: number,
  found: Explanation,
): string {
  const type = catalogue.types[found.model.d];
  const { steps } = found;
  const lines = [`${op} on ${target}`, `D[${row}, ${col}]`, "", ...blockLines(found)];
  steps.forEach((step, at) => {
    lines.push(title(step, at + 1, steps.length), ...termLines(step));
    lines.push(...sumLines(catalogue, step, found.model.fraction ?? 0), "");
  });
  const bits = found.bits.toString(16).padStart(type.bits / 4, "0");
  lines.push(
    `D           ${text(found.value)}  (bits 0x${bits})`,
    `exact       ${text(found.exact)}`,
    `difference  ${text(subtract(found.value, found.exact))}`,
    ...summary(found, losses(found, type), found.model.d, isInteger(type)),
  );
  return lines.join("\n");
}

function title(step: Step, number: number, count: number): string {
  return `step ${number} of ${count}: ${what(step)}`;
}

/** What a step does. */
export function what(step: Step): string {
  const products = step.terms.reduce((sum, term) => sum + term.k.length, 0);
  const size = Math.max(...step.terms.map((term) => term.k.length));
  const groups = size > 1 ? ` in groups of ${size}` : "";
  return {
    fused: `${products} products${groups} and the accumulator in one sum`,
    fma: "a fused multiply-add",
    add: "an ordinary addition",
    exact: `${products} products, exactly`,
    convert: "a conversion",
  }[step.operation];
}

/** The scales of each block, if there are any. */
function blockLines({ blocks, model }: Explanation): string[] {
  if (!blocks.length) return [];
  const heads = ["scale a", "scale b", "product"].map((head) => head.padStart(11));
  const rows = blocks.map(({ first, last, a, b }) => {
    const k = Array.from({ length: last - first + 1 }, (_, at) => first + at);
    const cells = [a, b, multiply(a, b)].map((each) => short(each).padStart(11));
    return `  ${nameOf(k).padEnd(10)}${cells.join("  ")}`;
  });
  return [
    `block scales, ${model.scale}`,
    `  ${"k".padEnd(10)}${heads.join("  ")}`,
    ...rows,
    "",
  ];
}

/** One line for terms that are alike, and one with the number of zeros. */
function termLines(step: Step): string[] {
  const aligned = step.terms.some((term) => term.aligned !== null);
  const tail = aligned ? "  exponent         kept      lost" : "";
  const shown = folded(step.terms.filter((t) => !isZero(t.value) || !t.k.length));
  const wide = Math.max(3, ...shown.map((term) => nameOf(term.k).length + 1));
  const room = 11 - Math.max(0, wide - 8);
  const head = `  ${"k".padEnd(wide)}${"a".padStart(room)}            b      product`;
  const zeros = step.terms.filter((term) => term.k.length && isZero(term.value)).length;
  return [
    head + tail,
    ...shown.map((term) => termLine(term, aligned, wide, room)),
    ...(zeros ? [`  and ${zeros} that are zero`] : []),
  ];
}

/** The terms, with equal ones at consecutive k as one term of all their k. */
export function folded(terms: Term[]): Term[] {
  const found: Term[] = [];
  for (const term of terms) {
    const last = found[found.length - 1];
    const next = term.k.length === 1 && last?.k[last.k.length - 1] === term.k[0] - 1;
    if (next && alike(last, term)) {
      found[found.length - 1] = { ...last, k: [...last.k, ...term.k] };
    } else {
      found.push(term);
    }
  }
  return found;
}

function alike(one: Term, other: Term): boolean {
  const same = (x: Exact | null, y: Exact | null) =>
    x === null || y === null ? x === y : equal(x, y);
  return (
    one.exponent === other.exponent &&
    same(one.a, other.a) &&
    same(one.b, other.b) &&
    same(one.value, other.value) &&
    same(one.aligned, other.aligned) &&
    same(one.lost, other.lost)
  );
}

/** The columns of a row: ``7``, ``7,9`` or ``7…12``; c is the accumulator. */
export function nameOf(k: number[]): string {
  if (k.length < 3) return k.join(",") || "c";
  return `${k[0]}…${k[k.length - 1]}`;
}

function termLine(term: Term, aligned: boolean, wide: number, room: number): string {
  const cells = [
    `  ${nameOf(term.k).padEnd(wide)}${(term.a === null ? "" : short(term.a, room)).padStart(room)}`,
    (term.b === null ? "" : short(term.b)).padStart(11),
    short(term.value).padStart(11),
  ];
  if (aligned) {
    cells.push(
      (term.exponent === null ? "" : `${term.exponent}`).padStart(8),
      (term.aligned === null ? "" : short(term.aligned)).padStart(11),
      (term.lost === null ? "" : short(term.lost, 8)).padStart(8),
    );
  }
  return cells.join("  ").trimEnd();
}

function sumLines(catalogue: Catalogue, step: Step, fraction: number): string[] {
  const total = short(step.total, 24);
  const lines = [
    step.emax === null
      ? `  sum ${total}`
      : `  emax ${step.emax}: terms are cut below 2^${step.emax - fraction}; sum ${total}`,
  ];
  if (step.keep !== null) {
    const how = catalogue.rounded[step.rounding] ?? step.rounding;
    const value = short(step.value, 22);
    lines.push(`  rounded to ${step.keep} fraction bits, ${how}: ${value}`);
  }
  return lines;
}

/** What was lost, by what, where, and how much that is in D's last place. */
export function summary(
  found: Explanation,
  lost: Losses | null,
  type: string,
  integer: boolean,
): string[] {
  if (!lost) return ["lost        not counted: a sum is not finite"];
  const { steps } = found;
  const last = steps[steps.length - 1];
  const lines: string[] = [];
  if (steps.some((step) => step.emax !== null)) {
    lines.push(...lossLines("alignment", lost, lost.alignment, "terms"));
  }
  const whole = last.operation === "exact";
  const named: Record<string, string> = { wrap: "wrapping", satfinite: "saturation" };
  const cause = whole ? named[last.rounding] : "rounding";
  lines.push(...lossLines(cause, lost, lost.rounding, "steps"));
  if (lost.ulp !== null && !integer && (lost.alignment.step ?? lost.rounding.step)) {
    lines.push(`ulp         2^${lost.ulp}, of ${type} at the exact result`);
  }
  return lines;
}

function lossLines(cause: string, lost: Losses, loss: Loss, places: string): string[] {
  const head = cause.padEnd(11);
  if (loss.step === null) return [`${head} nothing lost`];
  const at = loss.k === null ? "" : ` at ${loss.k.length ? "k " : ""}${nameOf(loss.k)}`;
  const { total } = loss;
  const inUlp =
    lost.ulp === null ? "" : short({ m: total.m, e: total.e - lost.ulp }, 8);
  const units = inUlp ? ` (${inUlp} ulp)` : "";
  return wrapped(
    `${head} ${short(total)}${units} in ${loss.count} of ${loss.among} ${places}, ` +
      `most${at} in step ${loss.step}`,
  );
}

/** Lines of at most 80 characters; those after the first are indented. */
function wrapped(whole: string): string[] {
  const lines: string[] = [];
  const words = whole.split(/(?<= )(?=[^ ])/);
  let line = "";
  for (const word of words) {
    if ((line + word).trimEnd().length > 80) {
      lines.push(line.trimEnd());
      line = " ".repeat(12);
    }
    line += word;
  }
  return [...lines, line.trimEnd()];
}
