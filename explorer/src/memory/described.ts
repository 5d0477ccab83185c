// Operands that an instruction reads through a descriptor: the tile that one
// descriptor covers, and what of it the first instruction along k reads.

import { IDLE } from "./banks.js";
import type { Catalogue } from "../records/catalogue.js";
import { loadsOf } from "./lanes.js";
import type { Scene } from "../records/matrix.js";
import {
  addresses,
  allowedSwizzles,
  encoded,
  offsetProblem,
  packedTile,
  swizzleOf,
  type Descriptor,
  type Family,
  type Major,
  type Tile,
} from "./shared.js";
import type { Choice, Stored } from "./stored.js";

const UNIT_BITS = 128;

export function described(
  catalogue: Catalogue,
  scene: Scene,
  family: Family,
  choice: Choice,
): Stored {
  const { operand } = choice;
  const { ctas, matrix, rows, k, swizzle, majors, swizzles, tile } = chosenTile(
    catalogue,
    scene,
    family,
    choice,
  );
  const { major, bits } = tile;
  const descriptor = offsetsOf(catalogue, choice, tile, swizzle.name);
  const address = addresses(catalogue, descriptor, tile);
  const perUnit = UNIT_BITS / bits;
  const side = operand === "A" ? "m" : "n";
  const [lines, length] = major === "k" ? [rows, tile.k] : [tile.k, rows];
  const [across, along] = major === "k" ? [side, "k"] : ["k", side];
  const units = Math.ceil(length / perUnit);
  const unitAt = (line: number, unit: number) =>
    major === "k" ? address(line, unit * perUnit) : address(unit * perUnit, line);
  const own = major === "k" ? Math.ceil(k / perUnit) : units;
  const notes = notesOf(operand, family, major, tile.k / k, ctas);
  if (family === "tcgen05") notes.push(...copied(scene));
  if (touchedUnits(lines, units, unitAt).size < lines * units)
    notes.push("With these offsets, several elements are at one address.");
  return {
    choice: { ...choice, major, swizzle: swizzle.name },
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
    bits: tile.narrow ?? bits,
    unitAt,
    touched: touchedUnits(lines, own, unitAt),
    lanes: null,
    laneBytes: null,
    pitch: null,
    descriptor: { ...descriptor, family, word: encoded(catalogue, family, descriptor) },
    move: null,
    notes,
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

/** The tile of an operand in one CTA; what was chosen and cannot be is replaced. */
function chosenTile(
  catalogue: Catalogue,
  { op, matrices }: Scene,
  family: Family,
  { operand, major: wanted, swizzle: named }: Choice,
) {
  const ctas = op.tensor?.ctas ?? 1;
  const matrix = matrices.get(operand)!;
  const [across, k] =
    operand === "A" ? [matrix.rows, matrix.cols] : [matrix.cols, matrix.rows];
  const rows = across / ctas;
  const kind = op.values.kind?.replace("kind::", "") ?? "";
  const padded = matrix.bits < 8 && catalogue.memory.padded.kinds.includes(kind);
  const bits = padded ? 8 : matrix.bits;
  const allowed = (each: Major) =>
    allowedSwizzles(catalogue, family, matrix.bits, each);
  const majors = (["k", "mn"] as Major[]).filter((each) => allowed(each).length);
  const major = majors.includes(wanted) ? wanted : "k";
  const swizzles = allowed(major);
  const name = swizzles.includes(named) ? named : swizzles.at(-1)!;
  const swizzle = swizzleOf(catalogue, name);
  // A K-major tile fills its spans: several instructions along k read from them.
  const fills = major === "k" && name !== "0";
  const wide = fills ? lcm(k, (swizzle.span * 8) / bits) : k;
  const narrow = padded ? matrix.bits : undefined;
  const tile: Tile = { rows, k: wide, bits, major, narrow };
  return { ctas, matrix, rows, k, swizzle, majors, swizzles, tile };
}

/** The offsets that were chosen, if they are possible, or those without gaps. */
function offsetsOf(
  catalogue: Catalogue,
  { numbers }: Choice,
  tile: Tile,
  swizzle: string,
): Descriptor {
  const fine = numbers.every((value) => !offsetProblem(catalogue, value));
  if (numbers.length !== 2 || !fine) return packedTile(catalogue, tile, swizzle);
  return { leading: numbers[0], stride: numbers[1], swizzle };
}

/** What else is in shared memory, but not for long. */
function copied({ matrices, pattern }: Scene): string[] {
  const both = [matrices.has("scale_A") && "scales", pattern && "metadata"];
  const names = both.filter(Boolean).join(" and ");
  return names ? [`Its ${names} must be in tensor memory: see Path.`] : [];
}

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
  operand: string,
  family: Family,
  major: Major,
  steps: number,
  ctas: number,
): string[] {
  const notes: string[] = [];
  if (steps > 1)
    notes.push(
      `${steps} instructions along k read from these rows; the first one is bright.`,
    );
  if (ctas > 1)
    notes.push(
      "Each CTA has half of it, at the same addresses of its own shared memory.",
    );
  if (family === "tcgen05" && major === "mn") {
    const bit = operand === "A" ? 15 : 16;
    notes.push(
      `MN-major needs bit ${bit} of the instruction descriptor, which is 0 above.`,
    );
  }
  if (family === "wgmma" && major === "mn")
    notes.push(`MN-major needs imm-trans-${operand.toLowerCase()} = 1.`);
  if (family === "tcgen05" && operand === "A")
    notes.push("A may be in tensor memory instead.");
  return notes;
}

function lcm(one: number, other: number): number {
  let [a, b] = [one, other];
  while (b) [a, b] = [b, a % b];
  return (one / a) * other;
}
