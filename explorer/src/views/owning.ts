// Takes the user's own values: type one, paste rows, load or drop a file.

import { announce, byId, h } from "../page/dom.js";
import { numberOf, type Patterns } from "../numbers/elements.js";
import { fit, fitted, numberIn, Refused, refuseShape, tableIn, type Table } from "../numbers/entry.js";
import type { Explorer } from "../page/explorer.js";
import type { Matrix } from "../records/matrix.js";
import { npyTable } from "../numbers/npy.js";
import { compressed, decompressed, logicalColumns, TooFull } from "../numbers/storing.js";
import { cellName, fullText, VALUED } from "../numbers/values.js";

/** Numbers that a box of text holds without becoming slow. */
const MOST_WRITTEN = 5000;

/** What was typed and not taken yet, and what was said last. */
let draft = { op: "", operand: "A", text: null as string | null };
let said = { text: "", wrong: false };

export function ownPanel(explorer: Explorer): HTMLElement {
  if (draft.op !== explorer.op.name) {
    draft = { op: explorer.op.name, operand: "A", text: null };
    said = { text: "", wrong: false };
  }
  const matrix = explorer.matrix(draft.operand)!;
  const box = h(
    "section",
    { class: "own", "aria-label": "Own values" },
    h("h3", {}, "Own values"),
    h("div", { class: "controls" }, operandSelect(explorer), ...pinnedEntry(explorer)),
    h("p", { class: "hint" }, shapeText(explorer, matrix)),
    area(explorer, matrix),
    buttons(explorer, matrix),
    h("p", { id: "own-said", class: said.wrong ? "wrong" : "hint" }, said.text),
    h("p", { class: "hint" }, linkText(explorer)),
  );
  listenToDrops(explorer, box);
  return box;
}

function operandSelect(explorer: Explorer): HTMLElement {
  const select = h("select", {
    id: "own-operand",
    onchange: () => {
      draft = { ...draft, operand: select.value, text: null };
      say(explorer, "");
    },
  });
  for (const name of VALUED) {
    if (explorer.matrix(name)) {
      select.append(h("option", { value: name }, name.replace("_", " ")));
    }
  }
  select.value = draft.operand;
  return h("label", {}, "Operand ", select);
}

/** One number, for the element that is pinned. */
function pinnedEntry(explorer: Explorer): Node[] {
  const { pinned } = explorer.state;
  const matrix = pinned && explorer.matrix(pinned.matrix);
  if (!matrix || !VALUED.includes(matrix.name)) return [];
  const value = explorer.numbers.full(matrix.name, pinned.index);
  const stored = matrix.name === "A" && explorer.scene.pattern ? "stored " : "";
  const name = `${stored}${cellName(matrix, pinned.index)}`;
  const input = h("input", { id: "own-one", value, size: 10, spellcheck: "false" });
  const set = () =>
    attempt(explorer, () => takeOne(explorer, matrix, pinned.index, input.value));
  input.addEventListener("keydown", (event) => event.key === "Enter" && set());
  return [
    h("label", {}, `${name} `, input),
    h("button", { type: "button", onclick: set }, "Set"),
  ];
}

function takeOne(
  explorer: Explorer,
  matrix: Matrix,
  index: number,
  word: string,
): string {
  const of = explorer.catalogue.types[matrix.type];
  const where = `${cellName(matrix, index)} = ${word.trim()}`;
  try {
    const { bits, exact } = fit(matrix.type, of, numberIn(word.trim()));
    const all = explorer.numbers.operands.get(matrix.name)!.slice();
    all[index] = (of.bits > 32 ? bits : Number(bits)) as never;
    const near = fullText(numberOf(of, of.bits > 32 ? bits : Number(bits)));
    explorer.own.take(matrix.name, all);
    return exact
      ? `${where} is set.`
      : `${where} is rounded to ${near}, as ${matrix.type}.`;
  } catch (error) {
    if (error instanceof Refused) throw new Refused(`${where}: ${error.message}`);
    throw error;
  }
}

// ── whole operands ──────────────────────────────────────────────────────────

/** The whole A of a sparse instruction is written with its zeros. */
function shapeOf(explorer: Explorer, matrix: Matrix): [number, number] {
  const sparse = matrix.name === "A" && explorer.scene.pattern;
  const columns = sparse ? logicalColumns(explorer.scene, matrix) : matrix.cols;
  return [matrix.count * matrix.rows, columns];
}

function shapeText(explorer: Explorer, matrix: Matrix): string {
  const [rows, columns] = shapeOf(explorer, matrix);
  const size = `${rows} rows of ${columns} ${matrix.type}`;
  const many =
    matrix.count > 1 ? `, the ${matrix.count} matrices one below the other` : "";
  if (columns === matrix.cols) return `${size}${many}.`;
  return (
    `${size} with all their zeros, ${explorer.scene.pattern!.text}; the codes follow from ` +
    `the values. Rows of ${matrix.cols} are taken as stored, and the codes stay.`
  );
}

function area(explorer: Explorer, matrix: Matrix): HTMLElement {
  const [rows, columns] = shapeOf(explorer, matrix);
  const many = rows * columns > MOST_WRITTEN;
  const found = h("textarea", {
    id: "own-text",
    rows: Math.min(17, rows + 1),
    spellcheck: "false",
    wrap: "off",
    "aria-label": `${matrix.name}, ${rows} rows of ${columns}`,
    placeholder: many
      ? `${rows * columns} numbers: load a file, or paste them here`
      : "",
    oninput: () => (draft.text = found.value),
  });
  found.value = draft.text ?? (many ? "" : written(explorer, matrix, columns));
  return found;
}

/** The operand as rows of numbers. */
function written(explorer: Explorer, matrix: Matrix, columns: number): string {
  const of = explorer.catalogue.types[matrix.type];
  let bits: Patterns = explorer.numbers.operands.get(matrix.name)!;
  if (columns !== matrix.cols) {
    bits = decompressed(explorer.scene, of, bits, explorer.codes);
  }
  const lines: string[] = [];
  for (let start = 0; start < bits.length; start += columns) {
    const row = Array.from(bits.slice(start, start + columns) as Uint32Array);
    lines.push(row.map((each) => fullText(numberOf(of, each))).join(" "));
  }
  return lines.join("\n");
}

function buttons(explorer: Explorer, matrix: Matrix): HTMLElement {
  const accept = ".npy,.csv,.txt,.tsv";
  const file = h("input", { type: "file", id: "own-file", class: "unseen", accept });
  file.addEventListener("change", () => void load(explorer, matrix, file.files?.[0]));
  const use = () => {
    const text = byId<HTMLTextAreaElement>("own-text").value;
    attempt(explorer, () => takeTable(explorer, matrix, () => tableIn(text)));
  };
  const reset = () => {
    draft.text = null;
    explorer.own.reset();
    say(explorer, "All values are those one begins with.");
  };
  return h(
    "div",
    { class: "controls" },
    h(
      "button",
      { type: "button", id: "own-use", onclick: use },
      `Use as ${matrix.name.replace("_", " ")}`,
    ),
    h("label", { class: "file" }, "Load .npy or .csv", file),
    h("button", { type: "button", id: "own-reset", onclick: reset }, "Reset"),
  );
}

function linkText(explorer: Explorer): string {
  return {
    none: "Numbers are decimal, inf, nan, or bits such as 0x3c00. A file can be dropped here.",
    "in the link": "These values are in the link.",
    "only here": `These values are not in the link: it holds up to 64 x 64.`,
  }[explorer.own.kind];
}

/** Take a table for an operand, and say what became of it. */
function takeTable(explorer: Explorer, matrix: Matrix, read: () => Table): string {
  const { scene, catalogue } = explorer;
  const of = catalogue.types[matrix.type];
  const table = read();
  const [rows, columns] = shapeOf(explorer, matrix);
  const stored = columns !== matrix.cols && table.columns === matrix.cols;
  if (table.rows !== rows || (table.columns !== columns && !stored)) {
    const or = columns === matrix.cols ? "" : `, or ${rows} × ${matrix.cols} as stored`;
    refuseShape(table, `${matrix.name} is ${rows} × ${columns}${or}`);
  }
  const { bits, rounded, example } = fitted(matrix.name, matrix.type, of, table);
  draft.text = null;
  if (stored || columns === matrix.cols) explorer.own.take(matrix.name, bits);
  else {
    const packed = compressed(scene, of, bits);
    explorer.own.take(matrix.name, packed.bits, packed.codes);
  }
  const size = `${table.rows} × ${table.columns} numbers are ${matrix.name}`;
  if (!rounded) return `${size}; all are exact as ${matrix.type}.`;
  return `${size}; ${rounded} were rounded to ${matrix.type}, first ${example}.`;
}

async function load(explorer: Explorer, matrix: Matrix, file?: File): Promise<void> {
  if (!file) return;
  const of = explorer.catalogue.types[matrix.type];
  const buffer = await file.arrayBuffer();
  attempt(explorer, () => {
    const binary = new Uint8Array(buffer)[0] === 0x93 || file.name.endsWith(".npy");
    const read = () =>
      binary
        ? npyTable(buffer, matrix.type, of)
        : tableIn(new TextDecoder().decode(buffer));
    return `${file.name}: ${takeTable(explorer, matrix, read)}`;
  });
}

function listenToDrops(explorer: Explorer, box: HTMLElement): void {
  box.addEventListener("dragover", (event) => {
    event.preventDefault();
    box.classList.add("dropping");
  });
  box.addEventListener("dragleave", () => box.classList.remove("dropping"));
  box.addEventListener("drop", (event) => {
    event.preventDefault();
    box.classList.remove("dropping");
    const matrix = explorer.matrix(draft.operand)!;
    void load(explorer, matrix, event.dataTransfer?.files[0]);
  });
}

/** Do it, and say what was done or why not; what is refused changes nothing. */
function attempt(explorer: Explorer, act: () => string): void {
  try {
    say(explorer, act());
  } catch (error) {
    if (!(error instanceof Refused || error instanceof TooFull)) throw error;
    say(explorer, error.message, true);
  }
}

function say(explorer: Explorer, words: string, wrong = false): void {
  said = { text: words, wrong };
  explorer.update({});
  announce(words);
}
