// The tab about shared memory: where an operand is, which lane gives which address,
// and what an access costs.

import { bankOf as bankIn } from "../memory/banks.js";
import { costs, swizzlesSideBySide, takenBy } from "./costs.js";
import { h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import { pitchProblem } from "../memory/lanes.js";
import { MemoryPicture } from "./memory_picture.js";
import { offsetProblem, type Address, type Major } from "../memory/shared.js";
import { storedOf, type Choice, type Stored } from "../memory/stored.js";

let picture: MemoryPicture | null = null;

export function memoryPanel(explorer: Explorer): Node[] {
  const before = picture;
  picture = null;
  const { catalogue, scene } = explorer;
  const stored = storedOf(catalogue, scene, explorer.state.memory);
  if (typeof stored === "string") return [h("p", { class: "hint" }, stored)];
  const said = h("p", { id: "memory-said", role: "status" });
  picture = new MemoryPicture(
    explorer,
    stored,
    said,
    takenBy(explorer, stored),
    before,
  );
  keepFocus();
  return [
    controls(explorer, stored),
    h("p", { class: "memory-head" }, ...headline(explorer, stored)),
    h(
      "div",
      { class: "memory" },
      h("div", { class: "memory-main" }, picture.figure, said),
      h(
        "div",
        { class: "memory-side" },
        legend(explorer, stored),
        ...costs(explorer, stored),
      ),
    ),
    swizzlesSideBySide(explorer, stored),
  ];
}

/** Mark what is pointed at in the picture that is there. */
export function followMemory(): void {
  picture?.follow();
}

/** The panel is made anew after each choice: whoever chose goes on from there. */
function keepFocus(): void {
  const id = document.activeElement?.id;
  if (id?.startsWith("memory-"))
    queueMicrotask(() => document.getElementById(id)?.focus());
}

// ── words ───────────────────────────────────────────────────────────────────

function headline({ catalogue }: Explorer, stored: Stored): (Node | string)[] {
  const { operand, lines, units, perUnit, across, along, descriptor, pitch, move } =
    stored;
  const bytes = units * catalogue.memory.unit;
  const apart = pitch === null ? "" : `, ${pitch} apart`;
  const size = `${bytes} bytes${apart}; ${stored.swizzle.words}`;
  const said: (Node | string)[] = [
    across === "row"
      ? `${lines} rows of ${size}.`
      : `${operand}, ${across} 0–${lines - 1}, ${along} 0–${units * perUnit - 1}: ` +
        `a line for each ${across}, ${size}.`,
  ];
  if (stored.swizzle.cute) said.push(` ${stored.swizzle.cute} on byte addresses.`);
  if (descriptor) {
    said.push(
      " Descriptor, from start 0: ",
      h("code", { id: "descriptor" }, descriptor.word),
      ".",
    );
  }
  if (move) {
    const { requires } = move.op;
    const { text, ptx } = catalogue.targets[requires];
    said.push(" ", h("code", {}, move.op.name), `, ${text || `PTX ${ptx}`}.`);
  }
  for (const note of stored.notes) said.push(` ${note}`);
  return said;
}

function legend({ catalogue, theme }: Explorer, stored: Stored): Node {
  const lanes = theme.dark ? catalogue.lanes.dark : catalogue.lanes.light;
  const chips = Array.from({ length: Math.min(8, stored.units) }, (_, unit) =>
    h("i", { class: "chip", style: `background: ${lanes[4 * unit]}` }, `${unit}`),
  );
  const pale = h("i", { class: "chip dim", style: `background: ${lanes[0]}` });
  const own = stored.lanes ? "T5: the lane that gives this address" : "";
  const item = (sign: Node[], text: string) => h("li", {}, ...sign, ` ${text}`);
  const items = [
    item(chips, `16-byte unit of its line${stored.units > 8 ? ", modulo 8" : ""}`),
    item([pale], "not touched by this instruction"),
    item([h("i", { class: "chip phase" })], "served in the phase that is chosen"),
    item([h("i", { class: "chip spot" })], "the element that is looked at"),
  ];
  if (own) items.push(item([], own));
  return h("ul", { class: "memory-legend", "aria-label": "Legend" }, ...items);
}

// ── controls ────────────────────────────────────────────────────────────────

function controls(explorer: Explorer, stored: Stored): Node {
  const change = (changes: Partial<Choice>) =>
    explorer.update({ memory: { ...stored.choice, numbers: [], ...changes } });
  const { choice, operand, operands, loads, majors, swizzles } = stored;
  const found: Node[] = [];
  if (operands.length > 1) {
    const set = (value: string) => change({ operand: value, load: "" });
    found.push(chooser("operand", "Operand", pairs(operands), operand, set));
  }
  if (loads.length > 1) {
    const texts = loads.map(({ name, text }): [string, string] => [name, text]);
    found.push(
      chooser("load", "Through", texts, choice.load, (load) => change({ load })),
    );
  }
  if (stored.across !== "row") {
    const texts = majors.map((major): [string, string] => [
      major,
      majorText(operand, major),
    ]);
    const set = (major: string) => change({ major: major as Major });
    found.push(chooser("major", "Contiguous", texts, choice.major, set));
  }
  const modes = swizzles.map((name): [string, string] => [
    name,
    name === "0" ? "none" : name,
  ]);
  const set = (swizzle: string) => change({ swizzle });
  found.push(chooser("swizzle", "Swizzle", modes, choice.swizzle, set));
  return h("div", { class: "controls" }, ...found, ...numbers(explorer, stored));
}

function majorText(operand: string, major: Major): string {
  if (operand === "D") return major === "k" ? "n (row-major)" : "m (column-major)";
  return major === "k" ? "k" : operand === "A" ? "m" : "n";
}

function pairs(values: string[]): [string, string][] {
  return values.map((value) => [value, value]);
}

function chooser(
  id: string,
  label: string,
  values: [string, string][],
  now: string,
  set: (value: string) => void,
): Node {
  const select = h("select", { id: `memory-${id}`, onchange: () => set(select.value) });
  select.append(...values.map(([value, text]) => h("option", { value }, text)));
  select.value = now;
  return h("label", {}, `${label} `, select);
}

/** The offsets of a descriptor, or the pitch of lines. */
function numbers(explorer: Explorer, stored: Stored): Node[] {
  const { catalogue } = explorer;
  const { descriptor, pitch } = stored;
  const field = (
    id: string,
    label: string,
    value: number,
    problem: (value: number) => string,
    set: (value: number) => number[],
  ) => {
    const enter = () => {
      const given = Number(input.value);
      const wrong = problem(given);
      input.setCustomValidity(wrong && `This must be ${wrong}`);
      input.setAttribute("aria-invalid", String(wrong !== ""));
      if (!input.reportValidity()) return;
      explorer.update({ memory: { ...stored.choice, numbers: set(given) } });
    };
    const input = h("input", {
      id: `memory-${id}`,
      type: "number",
      step: catalogue.memory.unit,
      min: 0,
      value,
      onchange: enter,
    });
    return h("label", {}, `${label} `, input);
  };
  const offset = (value: number) => offsetProblem(catalogue, value);
  if (descriptor) {
    const { leading, stride } = descriptor;
    return [
      field("leading", "leading offset", leading, offset, (value) => [value, stride]),
      field("stride", "stride offset", stride, offset, (value) => [leading, value]),
    ];
  }
  const fits = (value: number) => pitchProblem(catalogue, stored, value);
  return [field("pitch", "pitch", pitch!, fits, (value) => [value])];
}

// ── for other parts of the page ─────────────────────────────────────────────

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
  const { catalogue, scene, state } = explorer;
  const own = state.memory.operand === "B" ? state.memory.numbers : [];
  const choice = { ...state.memory, operand: "B", load: "", numbers: own };
  const stored = storedOf(catalogue, scene, choice) as Stored;
  const matrix = explorer.matrix("B")!;
  return (k, n) => stored.find(matrix.index(0, k, n))![2];
}

/** The bank of each element of a B without lanes, in the order of the matrix. */
export function banksOfB(explorer: Explorer): Uint8Array {
  const byte = bytesOfB(explorer);
  const matrix = explorer.matrix("B")!;
  const found = new Uint8Array(matrix.size);
  for (let k = 0; k < matrix.rows; k++) {
    for (let n = 0; n < matrix.cols; n++) {
      found[k * matrix.cols + n] = bankIn(explorer.catalogue, byte(k, n));
    }
  }
  return found;
}

/** The byte and the bank of an element of B that no lane holds, in words. */
export function placeOfB(explorer: Explorer, k: number, n: number): string {
  const byte = bytesOfB(explorer)(k, n);
  return `byte ${byte}, bank ${bankIn(explorer.catalogue, byte)}`;
}
