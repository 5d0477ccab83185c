// The losses of one element of D: where terms are aligned, and where steps round.  The
// two losses add up to D minus the exact result.

import { isInteger, least, type ElementType } from "./elements.js";
import {
  add,
  isFraction,
  isNegative,
  isZero,
  log2,
  subtract,
  ZERO,
  type Fraction,
} from "./exact.js";
import type { Explanation } from "./model.js";

/** What one cause adds to D, in how many places, and where it adds the most. */
export interface Loss {
  total: Fraction;
  count: number;
  among: number;
  step: number | null;
  k: number[] | null;
}

export interface Losses {
  alignment: Loss;
  rounding: Loss;
  /** The exponent of D's unit in the last place; null at zero and of integers. */
  ulp: number | null;
}

interface Change {
  change: Fraction;
  step: number;
  k: number[] | null;
}

/** What is lost by alignment and by rounding; null if a sum is not finite. */
export function losses(told: Explanation, of: ElementType): Losses | null {
  const { steps, exact } = told;
  const finite = steps.every(
    (each) => isFraction(each.total) && isFraction(each.value),
  );
  if (!finite || !isFraction(exact)) return null;
  const round = steps.map((each, at) => ({
    change: subtract(each.value, each.total) as Fraction,
    step: at + 1,
    k: null,
  }));
  const cut = steps.flatMap((each, at) =>
    each.terms
      .filter(({ lost, value }) => lost && !isZero(value))
      .map(({ lost, k }) => ({ change: { m: -lost!.m, e: lost!.e }, step: at + 1, k })),
  );
  const at = isZero(exact) ? (told.value as Fraction) : exact;
  const whole = isInteger(of) || at.m === 0n;
  const ulp = whole ? null : Math.max(log2(at), least(of)) - of.fraction;
  return { alignment: loss(cut), rounding: loss(round), ulp };
}

function loss(changes: Change[]): Loss {
  const total = changes.map((each) => each.change).reduce(sumOf, ZERO);
  const lossy = changes.filter((each) => each.change.m !== 0n);
  const base = { total, count: lossy.length, among: changes.length };
  if (!lossy.length) return { ...base, step: null, k: null };
  const size = (x: Fraction): Fraction => ({ m: x.m < 0n ? -x.m : x.m, e: x.e });
  const larger = (one: Change, other: Change) =>
    isNegative(subtract(size(one.change), size(other.change))) ? other : one;
  const { step, k } = lossy.reduce(larger);
  return { ...base, step, k };
}

function sumOf(x: Fraction, y: Fraction): Fraction {
  return add(x, y) as Fraction;
}
