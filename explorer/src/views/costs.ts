// The costs of accesses to an operand in shared memory, phase by phase and with every
// swizzle.  Beside the picture: a table of accesses, and the swizzles side by side.

import { accessAddresses, conflicts, waysText, type Conflicts } from "../memory/banks.js";
import { h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import { CELLS, paintCells, paintFrames } from "./memory_picture.js";
import { CanvasPainter } from "../drawing/painter.js";
import type { Stored } from "../memory/stored.js";

/** What somebody looks at: an access by name, and one of its phases. */
const chosen = { access: "", phase: 0 };
const OWN = "own";

interface Access {
  name: string;
  text: string;
  hint: string;
}

/** The accesses of a tile: its own instruction first, if lanes give the addresses. */
function accessesOf({ catalogue, op }: Explorer, stored: Stored): Access[] {
  const { lanes, laneBytes, move } = stored;
  const names: Record<string, string> = {
    ldmatrix: "8 lines x 16 bytes",
    rows: "line after line",
    column: "one unit of each line",
  };
  const known = Object.entries(catalogue.memory.accesses).map(([name, hint]) => ({
    name,
    text: names[name],
    hint,
  }));
  if (!lanes) return known;
  const [family, ...rest] = (move?.op ?? op).name.split(".");
  const number = rest.find((word) => /^x[124]$/.test(word)) ?? "";
  const own = {
    name: OWN,
    text: `${family} ${number}`,
    hint: `each lane gives the address of ${laneBytes} bytes`,
  };
  return [own, ...known.filter(({ name }) => name !== "ldmatrix")];
}

function addressesOf(stored: Stored, access: string): number[] {
  if (access === OWN) return stored.lanes!;
  const { lines: rows, units, unitAt: address } = stored;
  return accessAddresses(access, { rows, units, address });
}

/** The tile with another swizzle; with its own it keeps its own offsets. */
function withSwizzle(stored: Stored, name: string): Stored {
  return name === stored.swizzle.name ? stored : stored.other(name);
}

function costOf({ catalogue }: Explorer, stored: Stored, access: string): Conflicts {
  const width = access === OWN ? stored.laneBytes! : catalogue.memory.unit;
  return conflicts(catalogue, addressesOf(stored, access), width);
}

function current(explorer: Explorer, stored: Stored): Access {
  const all = accessesOf(explorer, stored);
  return all.find(({ name }) => name === chosen.access) ?? all[0];
}

/** The units that the chosen phase takes: address to turn, 0 for the first. */
export function takenBy(explorer: Explorer, stored: Stored): Set<number> {
  const { name } = current(explorer, stored);
  const { phases } = costOf(explorer, stored, name);
  const phase = phases[chosen.phase]?.degree ? phases[chosen.phase] : phases[0];
  const addresses = addressesOf(stored, name).slice(phase.first, phase.last + 1);
  return new Set(addresses.filter((address) => address >= 0));
}

// ── tables ──────────────────────────────────────────────────────────────────

export function costs(explorer: Explorer, stored: Stored): Node[] {
  const access = current(explorer, stored);
  return [
    h("h3", {}, "Bank conflicts of each access, with each swizzle"),
    wide("Costs", table(explorer, stored, access)),
    h("p", { class: "hint" }, `${access.text}: ${access.hint}.`),
    h("h3", {}, "Phase by phase: words that each bank delivers"),
    wide("Phases", phases(explorer, costOf(explorer, stored, access.name))),
  ];
}

/** A table that may be wider than a phone. */
function wide(label: string, inside: Node): Node {
  return h(
    "div",
    { class: "costs-box", tabindex: 0, role: "region", "aria-label": label },
    inside,
  );
}

function table(explorer: Explorer, stored: Stored, access: Access): Node {
  const { swizzles, swizzle } = stored;
  const head = swizzles.map((name) =>
    h(
      "th",
      { scope: "col", class: name === swizzle.name ? "now" : "" },
      name === "0" ? "none" : name,
    ),
  );
  const others = swizzles.map((name) => withSwizzle(stored, name));
  const rows = accessesOf(explorer, stored).map((each) => {
    const cells = others.map((other) => {
      const { degree } = costOf(explorer, other, each.name);
      const now = other.swizzle.name === swizzle.name ? "now" : "";
      return h(
        "td",
        { class: `${degree > 1 ? "wrong" : "fine"} ${now}` },
        waysText(degree),
      );
    });
    const pick = () => {
      Object.assign(chosen, { access: each.name, phase: 0 });
      explorer.update({});
    };
    const pressed = String(each.name === access.name);
    const button = h(
      "button",
      {
        type: "button",
        id: `memory-access-${each.name}`,
        "aria-pressed": pressed,
        onclick: pick,
        title: each.hint,
      },
      each.text,
    );
    return h("tr", {}, h("th", { scope: "row" }, button), ...cells);
  });
  return h(
    "table",
    { class: "costs" },
    h("thead", {}, h("tr", {}, h("td", {}), ...head)),
    h("tbody", {}, ...rows),
  );
}

/** For each phase and four banks: how many words each bank delivers. */
function phases(explorer: Explorer, cost: Conflicts): Node {
  const { banks, unit, word } = explorer.catalogue.memory;
  const each = unit / word;
  const groups = Array.from({ length: banks / each }, (_, at) => at * each);
  const head = groups.map((bank) =>
    h("th", { scope: "col" }, `${bank}–${bank + each - 1}`),
  );
  const rows = cost.phases.flatMap(({ first, last, words, degree }, number) => {
    if (!degree) return [];
    const cells = groups.map((bank) => {
      const most = Math.max(...words.slice(bank, bank + each));
      return h("td", { class: most > 1 ? "wrong" : "" }, most ? `${most}` : "");
    });
    const pick = () => {
      chosen.phase = number;
      explorer.update({});
    };
    const button = h(
      "button",
      {
        type: "button",
        id: `memory-phase-${number}`,
        "aria-pressed": String(number === chosen.phase),
        onclick: pick,
      },
      `lanes ${first}–${last}`,
    );
    const turns = `${degree} turn${degree > 1 ? "s" : ""}`;
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, button),
      ...cells,
      h("td", { class: "turns" }, turns),
    );
  });
  return h(
    "table",
    { class: "costs phases" },
    h(
      "thead",
      {},
      h("tr", {}, h("th", { scope: "row" }, "banks"), ...head, h("td", {})),
    ),
    h("tbody", {}, ...rows),
  );
}

// ── swizzles side by side ───────────────────────────────────────────────────

const LINES = 8; // after which every swizzle begins anew

/** The first kilobyte of the tile with each swizzle it may have. */
export function swizzlesSideBySide(explorer: Explorer, stored: Stored): Node {
  const pictures = stored.swizzles.map((name) => {
    const other = withSwizzle(stored, name);
    const { degree } = costOf(explorer, other, current(explorer, stored).name);
    const canvas = h("canvas", {
      role: "img",
      "aria-label": `The first 1024 bytes with ${other.swizzle.words}`,
    });
    const { width, height, left, top } = CELLS.small;
    const painter = new CanvasPainter(
      canvas,
      left + 8 * width + 1,
      top + LINES * height + 1,
    );
    paintCells(explorer, other, painter, { from: 0, to: LINES, ...CELLS.small });
    paintFrames(explorer, painter, takenBy(explorer, other), {
      from: 0,
      to: LINES,
      ...CELLS.small,
    });
    const pick = () =>
      explorer.update({ memory: { ...stored.choice, numbers: [], swizzle: name } });
    const button = h(
      "button",
      {
        type: "button",
        id: `memory-with-${name}`,
        "aria-pressed": String(name === stored.swizzle.name),
        onclick: pick,
      },
      other.swizzle.words,
    );
    const cost = h("span", { class: degree > 1 ? "wrong" : "fine" }, waysText(degree));
    return h("figure", {}, h("figcaption", {}, button, " ", cost), canvas);
  });
  const named =
    stored.across === "row" ? "r5.2 is unit 2 of row 5" : "5.2 is unit 2 of line 5";
  return h(
    "section",
    { class: "swizzles", "aria-label": "Swizzles side by side" },
    h(
      "h3",
      {},
      `Swizzles side by side: ${named}; the chosen phase of “${current(explorer, stored).text}” is framed`,
    ),
    h("div", { class: "side" }, ...pictures),
  );
}
