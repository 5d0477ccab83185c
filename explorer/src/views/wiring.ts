// Shows how bits travel: the place above, the element below, and a line from each bit
// of the place to the bit of the row or column that it is.

import { byId, h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import { digitOf, type Digit, type Layout, type Place } from "../records/layout.js";
import type { Matrix } from "../records/matrix.js";

const NAMES: Record<string, string> = {
  W: "warp",
  L: "lane",
  R: "register",
  E: "element",
  P: "CTA",
  T: "lane",
  C: "column",
};
const BOX = { width: 21, height: 20, gap: 2, apart: 14 };
const NARROW = { ...BOX, width: 17, gap: 1, apart: 8 };
const MOST = 322; // pixels of the column beside the picture
const ROWS = { top: 30, bottom: 104, height: 154 };
const LINE = 24; // pixels of the title
const TEXT = 250; // pixels that the lines beside the picture take
const LETTER = 6.7; // pixels of a letter of a group's name

/** Where there is room in the picture. */
export interface Corner {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** With the lines of all operands beside the wires or below them, with the one of its own,
 * or outside of the picture. */
type Way = "all" | "below" | "own" | "aside";
const found = new Map<string, Way>();

/** In the free corner of the picture, or else beside it. */
export function showWiring(explorer: Explorer, corner: Corner | null): void {
  const [inside, aside] = [byId("wiring"), byId("wiring-card")];
  const matrix = explorer.matrix(explorer.operand!.name)!;
  const drawn = picture(explorer, matrix);
  const beside = corner !== null && corner.width >= drawn.width + TEXT;
  const fill = (host: HTMLElement, way: Way) => {
    const across = beside && host === inside && way !== "below";
    const all = way === "all" || way === "below";
    host.replaceChildren(...nodes(explorer, matrix, drawn.svg, all, across, way === "below"));
  };
  const way = corner ? wayFor(explorer, matrix, drawn.width, corner, fill) : "aside";
  inside.hidden = way === "aside";
  aside.hidden = !inside.hidden;
  (inside.hidden ? inside : aside).replaceChildren();
  fill(inside.hidden ? aside : inside, way);
}

/** Text is measured once for each operand and corner: asking costs time. */
function wayFor(
  explorer: Explorer,
  matrix: Matrix,
  width: number,
  corner: Corner,
  fill: (host: HTMLElement, way: Way) => void,
): Way {
  const inside = byId("wiring");
  for (const side of ["left", "top", "width", "height"] as const) {
    inside.style[side] = `${corner[side]}px`;
  }
  if (corner.width < width || corner.height < ROWS.height + LINE) return "aside";
  const { left, ...size } = corner;
  const key = JSON.stringify([explorer.op.name, matrix.name, size]);
  const known = found.get(key);
  if (known) return known;
  inside.hidden = false;
  const ways = ["all", "below", "own"] as const;
  const fits = (way: Way) => {
    fill(inside, way);
    return inside.scrollHeight <= inside.clientHeight;
  };
  const way = ways.find(fits) ?? "aside";
  found.set(key, way);
  return way;
}

function nodes(
  explorer: Explorer,
  matrix: Matrix,
  svg: Node,
  all: boolean,
  beside: boolean,
  briefly: boolean,
): Node[] {
  const parts = [...explorer.scene.matrices.values()].flatMap((each) => each.part ?? []);
  return [
    h("h2", {}, "How bits travel: ", h("b", {}, matrix.name.replace("_", " "))),
    h(
      "div",
      { class: beside ? "wires beside" : "wires" },
      svg,
      h(
        "div",
        {},
        lines(all ? parts : [matrix.part!], matrix.name),
        h("p", { class: "hint" }, briefly ? letters(explorer) : meaning(explorer)),
      ),
    ),
  ];
}

/** The one line of each layout, each bit in the colour of its axis. */
function lines(parts: { name: string; line: string }[], current: string): HTMLElement {
  const list = h("dl", { class: "lines" });
  for (const { name, line } of parts) {
    list.append(
      h("dt", name === current ? { class: "this" } : {}, name.replace("_", " ")),
      h("dd", {}, ...colouredLine(line)),
    );
  }
  return list;
}

function colouredLine(line: string): Node[] {
  return line.split(/(\s+)/).map((word) => {
    const axis = /^([WLREPTC])\d/.exec(word)?.[1];
    return axis
      ? h("span", { class: `axis-${axis}` }, word)
      : document.createTextNode(word);
  });
}

/** On one line: what the letters are bits of. */
function letters({ scene }: Explorer): string {
  const of = scene.tensor
    ? "T lane, C column, E element in the cell, P CTA"
    : "L lane, R register, E element in it, W warp";
  return `${of}; lines begin with the lowest bit.`;
}

/** Said once: what the letters mean, and which end is lowest. */
function meaning({ scene }: Explorer): string {
  const letters = scene.tensor
    ? "T2 is bit 2 of the lane, C of the column, E of the element in the cell, P the CTA."
    : "L2 is bit 2 of the lane, R0 bit 0 of the register's number, E of the element in " +
      "it, W of the warp.";
  return `${letters} Lines begin with the lowest bit; boxes, like numbers, end with it.`;
}

// ── the picture ─────────────────────────────────────────────────────────────

interface Slot {
  digit: Digit;
  x: number;
  width: number;
}

interface Group {
  label: string;
  slots: Slot[];
  x: number;
  width: number;
}

const key = (digit: Digit) => `${digit.axis}${digit.stride}`;

/** As in the line: ``L2``, and ``R2*3`` for three values from bit 2 up. */
function nameOf({ axis, stride, size }: Digit): string {
  return `${axis}${Math.log2(stride)}${size === 2 ? "" : `*${size}`}`;
}

/** Groups of boxes in a row, each group's highest digit first. */
function row(groups: { label: string; digits: Digit[] }[], box: typeof BOX): Group[] {
  let x = 0;
  return groups.map(({ label, digits }) => {
    const start = x;
    const slots = [...digits].reverse().map((digit) => {
      const width = Math.max(box.width, nameOf(digit).length * 6.5 + 3);
      const slot = { digit, x, width };
      x += width + box.gap;
      return slot;
    });
    const width = Math.max(x - start, label.length * LETTER);
    x = start + width + box.apart;
    return { label, slots, x: start, width };
  });
}

/** The digits of one element, or of the layout where none is looked at. */
function picture(explorer: Explorer, matrix: Matrix): { svg: Node; width: number } {
  const { spot } = explorer;
  const layout = matrix.layout!;
  const looked = spot?.matrix === matrix.name && matrix.whole;
  const place = looked ? matrix.places(spot.index)[0] : null;
  const { text, width } = digitsPicture(layout, place);
  const host = h("div", { class: "digits-host" });
  host.innerHTML = text;
  return { svg: host, width };
}

function digitsPicture(
  layout: Layout,
  place: Place | null,
  box = BOX,
): { text: string; width: number } {
  const element = place && layout.element(place);
  const used = layout.coordinates.flatMap((each) => each.digits);
  const above = row(
    Object.keys(layout.axes).flatMap((axis) => {
      const digits = used.filter((digit) => digit.axis === axis);
      digits.sort((one, other) => one.stride - other.stride);
      const label = `${NAMES[axis] ?? axis}${place ? ` ${place[axis]}` : ""}`;
      return digits.length ? [{ label, digits }] : [];
    }),
    box,
  );
  const below = row(
    layout.coordinates.map(({ name, digits }) => ({
      label: `${name}${element ? ` ${element[name]}` : ""}`,
      digits,
    })),
    box,
  );
  const end = (groups: Group[]) => Math.max(...groups.map((g) => g.x + g.width));
  const width = Math.max(end(above), end(below)) + 4;
  if (width > MOST && box === BOX) return digitsPicture(layout, place, NARROW);
  const shift = (groups: Group[]) => (width - end(groups)) / 2;
  const [left, right] = [shift(above), shift(below)];
  const body = [
    ...wires(above, below, left, right, place),
    ...boxes(above, left, ROWS.top, place, "above"),
    ...boxes(below, right, ROWS.bottom, place, "below"),
  ];
  const { height } = ROWS;
  const size = `viewBox="0 0 ${width} ${height}" width="${width}" height="${height}"`;
  const about = `role="img" aria-label="${described(above, below)}"`;
  return { text: `<svg class="digits" ${size} ${about}>${body.join("")}</svg>`, width };
}

function described(above: Group[], below: Group[]): string {
  const text = (groups: Group[]) => groups.map(({ label }) => label).join(", ");
  return `The bits of ${text(above)} become those of ${text(below)}`;
}

function wires(
  above: Group[],
  below: Group[],
  left: number,
  right: number,
  place: Place | null,
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
      const set = place && digitOf(digit, place[digit.axis]) ? " set" : "";
      const curve = `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`;
      return `<path class="wire ${digit.axis}${set}" d="${curve}"/>`;
    }),
  );
}

/** Above: the names of the bits as lines have them; below: which bit each is. */
function boxes(
  groups: Group[],
  shift: number,
  y: number,
  place: Place | null,
  side: "above" | "below",
): string[] {
  const over = side === "above";
  const nameY = over ? y - 17 : y + BOX.height + 25;
  const bitY = over ? y - 4 : y + BOX.height + 11;
  return groups.flatMap(({ label, slots, x }) => [
    `<text class="name" x="${shift + x}" y="${nameY}">${label}</text>`,
    ...slots.map(({ digit, x: at, width }, number) => {
      const value = place ? digitOf(digit, place[digit.axis]) : 0;
      const box = `x="${shift + at}" y="${y}" width="${width}" height="${BOX.height}"`;
      const middle = `x="${shift + at + width / 2}"`;
      const set = value ? " set" : "";
      const bit = over ? nameOf(digit) : `${slots.length - 1 - number}`;
      const inside = place ? `${value}` : over ? "" : nameOf(digit);
      return (
        `<rect class="box ${digit.axis}${set}" ${box} rx="3"/>` +
        `<text class="bit${set}" ${middle} y="${y + 14.5}">${inside}</text>` +
        `<text class="which" ${middle} y="${bitY}">${bit}</text>`
      );
    }),
  ]);
}
