// The permutation of digits, drawn: places above, the element below, and a line
// from each digit to the digit that it is.

import type { Layout, Place } from "./layout.js";
import { digitOf, type Digit } from "./layout.js";

const NAMES: Record<string, string> = {
  W: "warp",
  L: "lane",
  R: "register",
  E: "element",
  P: "CTA",
  T: "lane",
  C: "column",
};
const BOX = { width: 17, height: 20, gap: 2, apart: 12 };
const ROWS = { top: 16, bottom: 104, height: 142 };

interface Slot {
  digit: Digit;
  x: number;
  width: number;
}

interface Group {
  name: string;
  value: number;
  slots: Slot[];
  x: number;
  width: number;
}

const key = (digit: Digit) => `${digit.axis}${digit.stride}`;
const boxWidth = (digit: Digit) => (digit.size === 2 ? BOX.width : BOX.width + 10);

/** Groups of boxes in a row, each group's highest digit first. */
function row(groups: { name: string; value: number; digits: Digit[] }[]): Group[] {
  let x = 0;
  return groups.map(({ name, value, digits }) => {
    const start = x;
    const slots = [...digits].reverse().map((digit) => {
      const slot = { digit, x, width: boxWidth(digit) };
      x += slot.width + BOX.gap;
      return slot;
    });
    if (!digits.length) x += BOX.width;
    const label = `${name} ${value}`.length * 6.4;
    const width = Math.max(x - start, label);
    x = start + width + BOX.apart;
    return { name, value, slots, x: start, width };
  });
}

/** An SVG of one element's digits, as text. */
export function digitsPicture(layout: Layout, place: Place): string {
  const element = layout.element(place);
  const used = layout.coordinates.flatMap((each) => each.digits);
  const above = row(
    Object.keys(layout.axes).flatMap((axis) => {
      const digits = used.filter((digit) => digit.axis === axis);
      digits.sort((one, other) => one.stride - other.stride);
      const name = NAMES[axis] ?? axis;
      return digits.length ? [{ name, value: place[axis], digits }] : [];
    }),
  );
  const below = row(
    layout.coordinates.map(({ name, digits }) => ({
      name,
      value: element[name],
      digits,
    })),
  );
  const end = (groups: Group[]) => Math.max(...groups.map((g) => g.x + g.width));
  const width = Math.max(end(above), end(below)) + 2;
  const shift = (groups: Group[]) => (width - end(groups)) / 2;
  const [left, right] = [shift(above), shift(below)];
  const body = [
    ...lines(above, below, left, right, place),
    ...boxes(above, left, ROWS.top, place, "above"),
    ...boxes(below, right, ROWS.bottom, place, "below"),
  ];
  const size = `viewBox="0 0 ${width} ${ROWS.height}" width="${width}"`;
  const title = described(above, below);
  return `<svg class="digits" ${size} role="img" aria-label="${title}">${body.join("")}</svg>`;
}

function described(above: Group[], below: Group[]): string {
  const text = (groups: Group[]) =>
    groups.map(({ name, value }) => `${name} ${value}`).join(", ");
  return `The digits of ${text(above)} become those of ${text(below)}`;
}

function lines(
  above: Group[],
  below: Group[],
  left: number,
  right: number,
  place: Place,
): string[] {
  const from = new Map<string, number>();
  for (const { slots } of above) {
    for (const { digit, x, width } of slots) from.set(key(digit), left + x + width / 2);
  }
  const [y1, y2] = [ROWS.top + BOX.height, ROWS.bottom];
  const middle = (y1 + y2) / 2;
  return below.flatMap(({ slots }) =>
    slots.map(({ digit, x, width }) => {
      const [x1, x2] = [from.get(key(digit)) ?? 0, right + x + width / 2];
      const set = digitOf(digit, place[digit.axis]) ? " set" : "";
      const curve = `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`;
      return `<path class="wire ${digit.axis}${set}" d="${curve}"/>`;
    }),
  );
}

function boxes(
  groups: Group[],
  shift: number,
  y: number,
  place: Place,
  side: "above" | "below",
): string[] {
  const nameY = side === "above" ? y - 5 : y + BOX.height + 13;
  return groups.flatMap(({ name, value, slots, x }) => [
    `<text class="name" x="${shift + x}" y="${nameY}">${name} ${value}</text>`,
    ...slots.map(({ digit, x: at, width }) => {
      const number = digitOf(digit, place[digit.axis]);
      const box = `x="${shift + at}" y="${y}" width="${width}" height="${BOX.height}"`;
      const where = `x="${shift + at + width / 2}" y="${y + 14.5}"`;
      const set = number ? " set" : "";
      return (
        `<rect class="box ${digit.axis}${set}" ${box} rx="3"/>` +
        `<text class="bit${set}" ${where}>${number}</text>`
      );
    }),
  ]);
}
