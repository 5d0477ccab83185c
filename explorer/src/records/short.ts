// Short names of instructions.  Family, shape and types make a row; qualifiers that
// may be left out, or chosen, are chips beside it.

import { shapeOf, type Catalogue, type Instruction } from "./catalogue.js";

export interface Short {
  family: string;
  /** ``m16n8k64``; a load has a tile such as ``16x64b``. */
  shape: string;
  /** ``s4 × s4 → s32``, or the one type that is moved. */
  types: string;
  /** What else is chosen, in few words. */
  chips: string[];
}

/** Qualifiers in the order of their chips; the others stand as the mnemonic has them. */
const CHIPS: Record<string, (value: string, op: Instruction) => string> = {
  operand: (value) => value.toUpperCase(),
  sp: (value) => (value.endsWith("ordered_metadata") ? "ordered" : "any order"),
  cta_group: (value, { family }) =>
    value.endsWith("2") ? "2 CTAs" : family.includes("ws") ? "" : "1 CTA",
  kind: (value, op) => (op.tensor ? kindOf(op) : value.replace("kind::", "")),
  scale_vec: (value) => value.replace("scale_vec::", "scales "),
  // Of the other kinds it cannot be chosen.
  stype: (value, { values }) => (values.kind === "kind::mxf4nvf4" ? value : ""),
  num: (value) => value,
  alayout: (_, op) => layouts(op),
  layout: (value) => value,
  trans: (value) => value,
  pack: (value) => value,
  unpack: (value) => value,
  red: (value) => value,
  abs: (value) => value,
  nan: (value) => value,
  space: (value) => value,
  c: (value, { values }) => (value === values.d ? "" : `C ${value}`),
  rounding: (value) => value,
  bitop: (value) => value,
  satfinite: (value) => value,
};

/** The kind is said where the types alone do not say it. */
function kindOf({ values }: Instruction): string {
  const kind = values.kind.replace("kind::", "");
  return kind.startsWith("mx") ? kind : "";
}

/** Nearly everything is row.col. */
function layouts({ values }: Instruction): string {
  const both = `${values.alayout}.${values.blayout}`;
  return both === "row.col" ? "" : both;
}

const known = new WeakMap<Instruction, Short>();

export function short(op: Instruction): Short {
  const made = known.get(op) ?? shortened(op);
  known.set(op, made);
  return made;
}

function shortened(op: Instruction): Short {
  const { a, b, d, type } = op.values;
  const chips: string[] = [];
  for (const name in CHIPS) {
    const value = op.values[name];
    const said = value && CHIPS[name](value, op);
    if (said) chips.push(said);
  }
  const types = a ? `${a} × ${b} → ${d}` : type;
  return { family: op.family, shape: shapeOf(op), types, chips };
}

// ── rows and groups ─────────────────────────────────────────────────────────

/** Instructions that differ only in their chips, or in the n of a ``wgmma`` or ``tcgen05.mma``. */
export interface Row {
  shape: string;
  types: string;
  ops: Instruction[];
  /** The chips that all of them have, and what each has besides. */
  common: string[];
  chips: string[][];
}

export interface Group {
  family: string;
  /** Such as ``4-bit integers``. */
  about: string;
  rows: Row[];
}

/** Modern first; the dense before the sparse, and what moves data last. */
export const FAMILIES = [
  "tcgen05.mma",
  "wgmma",
  "mma",
  "tcgen05.mma.sp",
  "wgmma.sp",
  "mma.sp",
  "wmma.mma",
  "tcgen05.mma.ws",
  "tcgen05.mma.ws.sp",
  "tcgen05.ld",
  "tcgen05.st",
  "stmatrix",
  "ldmatrix",
  "movmatrix",
  "wmma.load",
  "wmma.store",
];

/** The sparse first where somebody asks for them. */
function familyOrder(sparse: boolean): (family: string) => number {
  return (family) => {
    const at = FAMILIES.indexOf(family);
    const first = sparse && family.endsWith(".sp") ? FAMILIES.length : 0;
    return (at < 0 ? FAMILIES.length : at) - first;
  };
}

/** What was found, as it is listed: by family and type, each row once. */
export function grouped(
  catalogue: Catalogue,
  found: readonly Instruction[],
  sparse = false,
): Group[] {
  const rows = new Map<string, Row>();
  const groups = new Map<string, Group>();
  for (const op of found) {
    const { family, types } = short(op);
    const about = kindOfType(catalogue, op);
    const key = `${family} ${about}`;
    if (!groups.has(key)) groups.set(key, { family, about, rows: [] });
    const shape = rowShape(op);
    const name = `${family} ${shape} ${types}`;
    const row = rows.get(name) ?? { shape, types, ops: [], common: [], chips: [] };
    if (!rows.has(name)) groups.get(key)!.rows.push(row);
    rows.set(name, row);
    row.ops.push(op);
  }
  for (const row of rows.values()) arrange(row);
  for (const group of groups.values()) group.rows.sort(byRow);
  const order = familyOrder(sparse);
  return [...groups.values()].sort((one, other) => order(one.family) - order(other.family));
}

/** All widths of a ``wgmma``, and of a ``tcgen05.mma``, share a row. */
function rowShape(op: Instruction): string {
  const shape = shapeOf(op);
  const wide = op.family.startsWith("wgmma") || op.tensor !== undefined;
  return wide ? shape.replace(/n\d+/, "nN") : shape;
}

/** Such as ``4-bit integers``, of what is multiplied or moved. */
function kindOfType(catalogue: Catalogue, op: Instruction): string {
  const name = (op.values.a ?? op.values.type ?? "").split(".")[0];
  const { bits, kind } = catalogue.types[name] ?? {};
  if (kind === undefined || kind === "raw") return "";
  if (name === "tf32") return "tf32";
  if (kind === "bit") return "bits";
  return `${bits}-bit ${kind === "float" ? "floats" : "integers"}`;
}

/** The plainest first, the modern before the old; a row of one width names it. */
function arrange(row: Row): void {
  const { ops } = row;
  const rank = (op: Instruction) => {
    const { chips } = short(op);
    const many = chips.length - +(op.values.sp !== undefined);
    return 1e6 * +chips.includes("any order") + 1e3 * many - op.shape[1];
  };
  if (ops.length > 1) ops.sort((one, other) => rank(one) - rank(other));
  const widths = new Set(ops.map((op) => op.shape[1]));
  if (widths.size === 1) row.shape = shapeOf(ops[0]);
  const every = (chip: string) => ops.every((op) => short(op).chips.includes(chip));
  row.common = short(ops[0]).chips.filter(every);
  row.chips = ops.map((op) => {
    const own = short(op).chips.filter((chip) => !row.common.includes(chip));
    return widths.size > 1 ? [`n${op.shape[1]}`, ...own] : own;
  });
}

/** Equal types first, then the larger shape, then the wider result. */
function byRow(one: Row, other: Row): number {
  const [x, y] = [one.ops[0], other.ops[0]];
  const mixed = ({ values }: Instruction) => +(values.a !== values.b);
  const size = ({ shape }: Instruction) => shape[0] * (shape[2] || 1) * shape[1];
  const narrow = ({ values }: Instruction) => +(values.d === "f16");
  return mixed(x) - mixed(y) || size(y) - size(x) || narrow(x) - narrow(y);
}
