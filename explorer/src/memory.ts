// Where in shared memory does wgmma find its operand, and in which banks?

import { h } from "./dom.js";
import type { Explorer } from "./explorer.js";
import { CanvasPainter } from "./painter.js";
import { bankColour, colours, laneColours, plainColour } from "./palette.js";
import {
  addresses,
  encoded,
  offsetProblem,
  packedTile,
  span,
  SWIZZLES,
  type Address,
  type Descriptor,
  type Major,
  type Tile,
} from "./shared.js";
import type { State } from "./state.js";

const LINE = 128; // bytes that the 32 banks hold side by side
const MOST = 128; // lines drawn

interface View {
  explorer: Explorer;
  tile: Tile;
  /** Instructions along k whose operands lie side by side in the spans. */
  steps: number;
  descriptor: Descriptor;
  address: Address;
  /** Elements drawn as one: those that share a byte. */
  joined: number;
}

export function memoryPanel(explorer: Explorer): Node[] {
  const { operand } = explorer.state.memory;
  const [tile, steps] = tileOf(explorer, operand);
  const descriptor = descriptorOf(explorer, tile, operand);
  const joined = Math.max(1, 8 / tile.bits);
  const address = addresses(explorer.catalogue, descriptor, tile);
  const view = { explorer, tile, steps, descriptor, address, joined };
  const said = h("p", { id: "memory-said", role: "status" }, summary(view));
  return [
    controls(explorer, descriptor, tile),
    h(
      "p",
      { class: "word" },
      "Descriptor, from start 0: ",
      h("code", { id: "descriptor" }, encoded(explorer.catalogue, descriptor)),
    ),
    said,
    h("div", { class: "memory" }, byBank(view, said), image(view)),
  ];
}

function descriptorOf(explorer: Explorer, tile: Tile, operand: string): Descriptor {
  const { swizzle, offsets, operand: chosen } = explorer.state.memory;
  const fitting = packedTile(explorer.catalogue, tile, swizzle);
  const given = offsets.length > 0 && operand === chosen;
  const [leading, stride] = given ? offsets : [fitting.leading, fitting.stride];
  return { leading, stride, swizzle };
}

/** The operand's tile, and how many instructions along k fill its spans. */
function tileOf(explorer: Explorer, operand: string): [Tile, number] {
  const { memory } = explorer.state;
  const { op } = explorer;
  const a = explorer.matrix("A")!;
  const [rows, k] = operand === "A" ? [a.rows, a.cols] : [op.shape[1], op.shape[2]];
  const { bits } = explorer.matrix(operand)!;
  const major = bits === 16 ? (memory.major as Major) : "k";
  const read = (k * bits) / 8;
  const steps = major === "k" ? Math.max(1, span(memory.swizzle) / read) : 1;
  return [{ rows, k: k * steps, bits, major }, steps];
}

function summary({ explorer, tile, steps, descriptor }: View): string {
  const { operand } = explorer.state.memory;
  const side = operand === "A" ? "row m" : "column n";
  const way = tile.major === "k" ? "K-major" : "MN-major";
  const mode = descriptor.swizzle ? `${descriptor.swizzle}-byte swizzle` : "no swizzle";
  const many =
    steps > 1 ? ` One instruction reads ${tile.k / steps} of k, the first ones.` : "";
  return `${operand}: ${tile.rows} × ${tile.k} (${side} × stored k), ${way}, ${mode}.${many}`;
}

// ── controls ────────────────────────────────────────────────────────────────

function controls(explorer: Explorer, descriptor: Descriptor, tile: Tile): Node {
  const { memory } = explorer.state;
  const change = (changes: Partial<State["memory"]>) =>
    explorer.update({ memory: { ...memory, offsets: [], ...changes } });
  const chooser = (
    id: string,
    label: string,
    values: string[],
    now: string,
    set: (v: string) => void,
  ) => {
    const select = h("select", { id, onchange: () => set(select.value) });
    select.append(...values.map((value) => h("option", {}, value)));
    select.value = now;
    return h("label", {}, `${label} `, select);
  };
  const majors = tile.bits === 16 ? ["k", "mn"] : ["k"];
  const number = (name: "leading" | "stride") => {
    const input = h("input", {
      id: `memory-${name}`,
      type: "number",
      step: 16,
      min: 0,
      value: descriptor[name],
      onchange: () => setOffset(explorer, descriptor, name, input),
    });
    return h("label", {}, `${name} offset `, input);
  };
  return h(
    "div",
    { class: "controls" },
    chooser("memory-operand", "Operand", ["A", "B"], memory.operand, (operand) =>
      change({ operand }),
    ),
    chooser("memory-major", "Major", majors, tile.major, (major) => change({ major })),
    chooser(
      "memory-swizzle",
      "Swizzle",
      SWIZZLES.map(String),
      `${memory.swizzle}`,
      (swizzle) => change({ swizzle: Number(swizzle) }),
    ),
    number("leading"),
    number("stride"),
  );
}

function setOffset(
  explorer: Explorer,
  descriptor: Descriptor,
  name: "leading" | "stride",
  input: HTMLInputElement,
): void {
  const value = Number(input.value);
  const problem = offsetProblem(value);
  input.setCustomValidity(problem && `An offset is ${problem}`);
  input.setAttribute("aria-invalid", String(problem !== ""));
  if (!input.reportValidity()) return;
  const next = { ...descriptor, [name]: value };
  const { memory } = explorer.state;
  explorer.update({ memory: { ...memory, offsets: [next.leading, next.stride] } });
}

// ── pictures ────────────────────────────────────────────────────────────────

/** The operand, each element in the colour of its bank. */
function byBank(view: View, said: HTMLElement): Node {
  const { explorer, tile, joined } = view;
  const cols = tile.k / joined;
  const w = Math.max(4, Math.min(16, Math.floor(420 / cols)));
  const height = Math.max(3, Math.min(10, Math.floor(640 / tile.rows)));
  const canvas = h("canvas", {
    role: "img",
    "aria-label": "The operand, coloured by shared-memory bank",
  });
  const painter = new CanvasPainter(canvas, cols * w, tile.rows * height);
  const painted = colours(32, bankColour, explorer.theme);
  const colour = (mn: number, col: number) =>
    painted[bankOf(view.address(mn, col * joined))];
  painter.mosaic({ x: 0, y: 0, width: w, height, cols, rows: tile.rows, colour });
  const spot = looked(view);
  if (spot) {
    const [mn, k] = spot;
    painter.frame(
      Math.floor(k / joined) * w,
      mn * height,
      w,
      height,
      explorer.theme.ink,
      2,
    );
  }
  canvas.addEventListener("pointermove", (event) => {
    const mn = Math.min(tile.rows - 1, Math.max(0, Math.floor(event.offsetY / height)));
    const k = joined * Math.min(cols - 1, Math.max(0, Math.floor(event.offsetX / w)));
    const byte = view.address(mn, k);
    said.textContent = `mn ${mn}, k ${k}: byte ${byte}, bank ${bankOf(byte)}`;
  });
  canvas.addEventListener("pointerleave", () => (said.textContent = summary(view)));
  return scrolling("By bank: rows mn, columns k", canvas);
}

/** The element that is looked at, as (mn, k), if it is of this operand. */
function looked({ explorer }: View): [number, number] | null {
  const { spot } = explorer;
  const { operand } = explorer.state.memory;
  if (spot?.matrix !== operand) return null;
  const [, row, col] = explorer.matrix(operand)!.spot(spot.index);
  return operand === "A" ? [row, col] : [col, row];
}

/** Memory itself, 128 bytes a line, in units of 16 bytes. */
function image(view: View): Node {
  const { explorer, tile } = view;
  const units = heldUnits(view);
  const last = Math.max(...units.keys());
  const total = Math.floor(last / LINE) + 1;
  const lines = Math.min(MOST, total);
  const [w, height, left, top] = [55, 15, 46, 16];
  const canvas = h("canvas", {
    role: "img",
    "aria-label": "Shared memory, 128 bytes a line: which elements each 16 bytes hold",
  });
  const { theme } = explorer;
  const lanes = laneColours(explorer.catalogue, theme);
  const painter = new CanvasPainter(canvas, left + 8 * w, top + lines * height);
  for (let unit = 0; unit < 8; unit++) {
    const banks = `${4 * unit}–${4 * unit + 3}`;
    painter.text(left + (unit + 0.5) * w, 8, banks, 10, theme.faint, "middle");
  }
  for (let line = 0; line < lines; line++) {
    const y = top + line * height;
    painter.text(left - 6, y + height / 2, `${line * LINE}`, 10, theme.faint, "end");
    for (let unit = 0; unit < 8; unit++) {
      const held = units.get(line * LINE + unit * 16);
      const across = held && (tile.major === "k" ? held[0] : held[1]);
      const fill = across === undefined ? plainColour(theme) : lanes[(across % 8) * 4];
      painter.rect(left + unit * w, y, w - 1, height - 1, fill);
      const text = held ? `${held[0]},${held[1]}` : "";
      painter.text(
        left + (unit + 0.5) * w,
        y + height / 2,
        text,
        10,
        theme.ink,
        "middle",
      );
    }
  }
  markUnit(view, painter, [w, height, left, top]);
  const more = total > lines ? `; ${total - lines} more lines` : "";
  const caption = `Memory, by address and bank: first mn,k of each 16 bytes${more}`;
  return scrolling(caption, canvas);
}

/** The first element of each 16-byte unit, by address. */
function heldUnits(view: View): Map<number, [number, number]> {
  const { tile } = view;
  const step = Math.max(1, 128 / tile.bits);
  const [byMn, byK] = tile.major === "k" ? [1, step] : [step, 1];
  const found = new Map<number, [number, number]>();
  for (let mn = 0; mn < tile.rows; mn += byMn) {
    for (let k = 0; k < tile.k; k += byK) found.set(view.address(mn, k), [mn, k]);
  }
  return found;
}

function markUnit(view: View, painter: CanvasPainter, sizes: number[]): void {
  const spot = looked(view);
  if (!spot) return;
  const [w, height, left, top] = sizes;
  const byte = view.address(...spot);
  const [line, unit] = [Math.floor(byte / LINE), (byte % LINE) >> 4];
  if (line >= MOST) return;
  const { theme } = view.explorer;
  painter.frame(left + unit * w, top + line * height, w - 1, height - 1, theme.ink, 2);
}

/** A picture that scrolls in its own box, which keys must be able to reach. */
export function scrolling(caption: string, canvas: HTMLCanvasElement): Node {
  const box = h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    canvas,
  );
  return h("figure", {}, h("figcaption", {}, caption), box);
}

/** Element (k, n) of a B without lanes to its byte, from the start of the tile. */
export function bytesOfB(explorer: Explorer): Address {
  const [tile] = tileOf(explorer, "B");
  const descriptor = descriptorOf(explorer, tile, "B");
  const address = addresses(explorer.catalogue, descriptor, tile);
  return (k, n) => address(n, k);
}

/** The bank of a byte: 32 banks of four bytes. */
export function bankOf(byte: number): number {
  return (byte >> 2) % 32;
}

/** The bank of each element of a B without lanes, in the order of the matrix. */
export function banksOfB(explorer: Explorer): Uint8Array {
  const byte = bytesOfB(explorer);
  const matrix = explorer.matrix("B")!;
  const found = new Uint8Array(matrix.size);
  for (let k = 0; k < matrix.rows; k++) {
    for (let n = 0; n < matrix.cols; n++) {
      found[k * matrix.cols + n] = bankOf(byte(k, n));
    }
  }
  return found;
}
