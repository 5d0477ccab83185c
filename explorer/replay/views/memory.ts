// Memory at the moment: a map of named tiles, and all about the byte that is pointed at.

import { byId, h } from "../../src/page/dom.js";
import { ArrayErrors } from "../recording/errors.js";
import { IN_FLIGHT, UNWRITTEN, type Access, type MemoryHistory } from "../recording/memory.js";
import { POISONED } from "../recording/registers.js";
import { hex, wordAt } from "../recording/values.js";
import { Board, cleared, hatching, inkOn, mixed, MONO, SANS } from "../session/canvas.js";
import { agent, grouped, lineText, memoryName } from "../session/names.js";
import type { Place, Session } from "../session/session.js";
import { boxOf, cellAt, cellOf, elementName, GUTTER, LEVELS, tileOf, tilesOf, TITLE, type Tile } from "./map.js";
import { shortened } from "./time.js";

type Colouring = "state" | "values" | "writer" | "error";

const TYPES = ["auto", "f32", "f16", "bf16", "e4m3", "e5m2", "tf32", "f64", "s32", "u32", "s8", "u8", "s64", "b8", "b16", "b32", "b64"];
const READ = 8;
const WROTE = 16;
const EARLY = 32;
const LETTER = 11.5 * 0.602; // of the monospaced font of values

/** What is drawn of an element. */
interface Cell {
  ground: string;
  state: number;
  text: string;
}

const isFlat = ({ stride, across, each }: Tile): boolean => stride === across * each;

export class MemoryView {
  private board: Board;
  private tiles: Tile[] = [];
  private tall = 0;
  private key = "";
  private level = -1;
  private hover: Place | null = null;
  private hatched: CanvasPattern | null = null;
  private warned: CanvasPattern | null = null;
  private states: Uint8Array = new Uint8Array(0);
  private revealed = "";
  private moment = "";
  private picture = document.createElement("canvas");
  private drawn: { key: string; cells: Cell[] } = { key: "", cells: [] };
  private cell = 0;

  constructor(private session: Session) {
    this.board = new Board(byId("map"), "Memory. Arrow keys walk through the elements, Enter pins one, Escape lets go.", () => this.draw());
    const { head } = session.run;
    byId("memory-pick").replaceChildren(
      ...head.memories.map((_, number) => h("option", { value: number }, memoryName(head, number))),
    );
    byId("memory-type").replaceChildren(...TYPES.map((type) => h("option", { value: type }, type === "auto" ? "own type" : `as ${type}`)));
    byId("memory-colour").querySelector<HTMLOptionElement>("[value=error]")!.hidden = !head.numerics?.outputs.length;
    this.listen();
    session.listen(() => this.draw());
    // For tests: where an element is drawn.
    Object.assign(this.board.box, { pointOf: (offset: number) => this.pointOf(offset) });
  }

  private pointOf(offset: number): { x: number; y: number } | null {
    const tile = tileOf(this.tiles, offset);
    if (!tile) return null;
    const { left, top } = this.board.canvas.getBoundingClientRect();
    const { x, y } = boxOf(tile, offset);
    this.board.scrollTo(Math.max(0, y - this.board.height / 2));
    return { x: left + x + tile.wide / 2, y: top + y - this.board.top + tile.high / 2 };
  }

  private get history(): MemoryHistory {
    return this.session.run.memories[this.session.memory];
  }

  private get colouring(): Colouring {
    return byId<HTMLSelectElement>("memory-colour").value as Colouring;
  }

  private listen(): void {
    const { session } = this;
    const { canvas } = this.board;
    const pick = byId<HTMLSelectElement>("memory-pick");
    pick.addEventListener("change", () => {
      this.level = -1;
      this.board.scrollTo(0);
      session.update({ memory: Number(pick.value), at: null });
    });
    for (const id of ["memory-type", "memory-colour"]) byId(id).addEventListener("change", () => this.draw());
    for (const [id, by] of [["memory-out", -1], ["memory-in", 1]] as const) {
      byId(id).addEventListener("click", () => {
        this.level = Math.max(0, Math.min(LEVELS.length - 1, this.level + by));
        this.draw();
      });
    }
    canvas.addEventListener("pointermove", (event) => this.point(this.placeAt(event)));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("click", (event) => this.pin(this.placeAt(event)));
    canvas.addEventListener("keydown", (event) => this.keys(event));
  }

  private placeAt(event: { clientX: number; clientY: number }): Place | null {
    const { x, y } = this.board.point(event);
    const found = cellAt(this.tiles, x, y + this.board.top);
    return found && { memory: this.session.memory, offset: found.offset };
  }

  private point(place: Place | null): void {
    if (place?.offset === this.hover?.offset && place?.memory === this.hover?.memory) return;
    this.hover = place;
    this.draw();
  }

  private pin(place: Place | null): void {
    const { at } = this.session;
    const same = place && at && place.memory === at.memory && place.offset === at.offset;
    this.session.update({ at: same ? null : place });
  }

  private keys(event: KeyboardEvent): void {
    const { at, memory } = this.session;
    const tile = at ? tileOf(this.tiles, at.offset) : this.tiles[0];
    if (!tile) return;
    const row = tile.stride;
    const by = { ArrowLeft: -tile.each, ArrowRight: tile.each, ArrowUp: -row, ArrowDown: row }[event.key];
    if (by === undefined) return;
    const offset = at ? at.offset + by : tile.offset;
    event.preventDefault();
    event.stopPropagation();
    if (offset >= 0 && offset < this.history.size) this.session.update({ at: { memory, offset } });
  }

  // ── drawing ───────────────────────────────────────────────────────────────

  private settle(): void {
    const { memory, step } = this.session;
    const as = byId<HTMLSelectElement>("memory-type").value;
    const width = this.board.width;
    if (this.level < 0) {
      const spelled = tilesOf(this.history, width, 3, as);
      this.level = spelled.tall < 3.2 * this.board.height ? 3 : 0;
    }
    const key = [memory, width, this.level, as].join();
    if (key !== this.key) ({ tiles: this.tiles, tall: this.tall } = tilesOf(this.history, width, this.level, as));
    this.key = key;
    const moment = `${memory} ${step}`;
    if (moment === this.moment) return;
    this.moment = moment;
    this.history.seek(step);
    this.states = this.history.states();
    this.mark();
  }

  /** What happens at this very step: reads, writes, and reads that come too early. */
  private mark(): void {
    const { step, problem, memory } = this.session;
    const add = (bit: number) => ([offset, size]: [number, number]) => {
      for (let at = offset; at < offset + size; at++) this.states[at] |= bit;
    };
    this.history.writtenNow(step).forEach(add(WROTE));
    this.history.readNow(step).forEach(add(READ));
    if (!problem || problem.memory !== memory) return;
    for (let at = problem.offset; at < problem.offset + problem.size; at++) {
      if (this.states[at] & READ && (this.states[at] & 3) === IN_FLIGHT) this.states[at] |= EARLY;
    }
  }

  private draw(): void {
    const { board, session } = this;
    if (!session.run.memories.length || !board.width) return;
    byId<HTMLSelectElement>("memory-pick").value = String(session.memory);
    this.settle();
    this.reveal();
    const to = board.begin(this.tall);
    to.drawImage(this.cells(), 0, 0, board.width, board.height);
    this.drawFrames(to);
    this.drawLegend();
    this.say();
  }

  /** The tiles, kept from step to step: of them, only the cells that change are drawn. */
  private cells(): HTMLCanvasElement {
    const { board, session } = this;
    const { theme } = session;
    const { picture } = this;
    const { canvas } = board;
    const key = [this.key, board.top, canvas.width, canvas.height, theme.dark].join();
    const fresh = key !== this.drawn.key;
    if (fresh) this.drawn = { key, cells: [] };
    const to = fresh ? cleared(picture, canvas.width, canvas.height, canvas.width / board.width) : picture.getContext("2d")!;
    const gap = this.level < 2 ? 4 : 6;
    this.hatched = hatching(to, theme.accent, gap);
    this.warned = hatching(to, theme.warning, gap);
    this.cell = 0;
    for (const tile of this.tiles) {
      if (tile.top + tile.rows * tile.high < board.top || tile.top - TITLE > board.top + board.height) continue;
      if (fresh) this.drawTitle(to, tile);
      this.drawTile(to, tile, fresh);
    }
    return picture;
  }

  /** What is pinned, and what a problem is about, is seen. */
  private reveal(): void {
    const { at, problem, memory } = this.session;
    const target = at?.memory === memory ? at.offset : problem?.memory === memory ? problem.offset : -1;
    const key = `${memory} ${target} ${this.level}`;
    if (key === this.revealed) return;
    this.revealed = key;
    const tile = target < 0 ? null : tileOf(this.tiles, target);
    if (!tile) return;
    const { y } = boxOf(tile, target);
    const { top, height } = this.board;
    if (y < top + TITLE || y > top + height - 40) this.board.scrollTo(Math.max(0, y - height / 3));
  }

  private drawTitle(to: CanvasRenderingContext2D, tile: Tile): void {
    const { theme } = this.session;
    const { board } = this;
    const y = tile.top - board.top;
    to.textAlign = "left";
    to.fillStyle = theme.ink;
    to.font = `600 13px ${MONO}`;
    to.fillText(tile.name, 4, y - 11);
    const wide = to.measureText(tile.name).width;
    to.fillStyle = theme.faint;
    to.font = `12px ${SANS}`;
    const about = isFlat(tile)
      ? `${tile.type}, ${grouped(tile.size)} bytes at 0x${tile.offset.toString(16)}, ${tile.stride} a row`
      : `${tile.type}, a row is a lane`;
    to.fillText(shortened(to, about, board.width - wide - 24), wide + 14, y - 11);
  }

  private drawTile(to: CanvasRenderingContext2D, tile: Tile, fresh: boolean): void {
    const { board } = this;
    const first = Math.max(0, Math.floor((board.top - tile.top) / tile.high));
    const last = Math.min(tile.rows, Math.ceil((board.top + board.height - tile.top) / tile.high));
    const paint = this.painter(tile);
    for (let row = first; row < last; row++) {
      const y = tile.top - board.top + row * tile.high;
      if (fresh) this.drawAddress(to, tile, row, y);
      this.drawRow(to, tile, row, y, paint);
    }
  }

  /** Before a row: where it begins. */
  private drawAddress(to: CanvasRenderingContext2D, tile: Tile, row: number, y: number): void {
    if (tile.high < 14 && row % Math.ceil(14 / tile.high)) return;
    const begin = tile.offset + row * tile.stride;
    to.font = `10.5px ${MONO}`;
    to.fillStyle = this.session.theme.faint;
    to.textAlign = "right";
    to.fillText(isFlat(tile) ? hex(begin, 3).slice(2) : String(row), GUTTER - 6, y + tile.high / 2);
  }

  private drawRow(to: CanvasRenderingContext2D, tile: Tile, row: number, y: number, paint: (at: number) => string): void {
    const begin = tile.offset + row * tile.stride;
    to.font = `11.5px ${MONO}`;
    to.textAlign = "center";
    for (let column = 0; column < tile.across; column++) {
      const at = begin + column * tile.each;
      if (at >= tile.offset + tile.size) return;
      const now: Cell = { ground: paint(at), state: this.stateOf(at, tile.each), text: tile.wide < 30 ? "" : this.textOf(tile, at) };
      const before = this.drawn.cells[this.cell];
      this.drawn.cells[this.cell++] = now;
      if (before && before.ground === now.ground && before.state === now.state && before.text === now.text) continue;
      this.drawCell(to, tile, column, y, now);
    }
  }

  /** As much of a value as there is room for; the beginning of a hexadecimal says nothing. */
  private textOf(tile: Tile, at: number): string {
    if (!this.history.known(at)) return "";
    const letters = Math.floor((tile.wide - 5) / LETTER);
    if (this.history.hidden(at)) return letters < POISONED.length ? "" : POISONED;
    const phase = tile.each === 8 ? this.phaseAt(at) : null;
    if (phase) return [phase, phase.split(" · ")[0]].find(({ length }) => length <= letters) ?? "";
    const text = this.session.values.text(tile.type, ...this.wordsAt(at, tile.each));
    if (text.length <= letters) return text;
    return text.startsWith("0x") ? "" : `${text.slice(0, Math.max(0, letters - 1))}…`;
  }

  /** What an mbarrier that begins here is: its bits say nothing. */
  private phaseAt(offset: number): string | null {
    const { run, step, memory } = this.session;
    const here = run.head.barriers.find((each) => each.phases && each.memory === memory && each.offset === offset);
    const now = here?.phases!.findLast(([at]) => at <= step);
    if (!now) return null;
    const [, phase, pending, bytes = 0, expected = 0] = now;
    const arrived = expected ? `${expected - pending} of ${expected} arrived` : `${pending} to arrive`;
    return `phase ${phase} · ${arrived} · ${grouped(bytes)} B`;
  }

  private drawCell(to: CanvasRenderingContext2D, tile: Tile, column: number, y: number, { ground, state, text }: Cell): void {
    const { theme } = this.session;
    const flying = (state & 3) === IN_FLIGHT;
    // A cell has whole pixels, so that it is drawn again without its neighbours.
    const [left, right, top, below] = [GUTTER + column * tile.wide, GUTTER + (column + 1) * tile.wide, y, y + tile.high].map((at) => this.board.snapped(at));
    const gap = this.board.snapped(tile.wide > 8 ? 1 : 0.5);
    const [wide, high] = [right - left - gap, below - top - gap];
    to.clearRect(left, top, right - left, below - top);
    to.fillStyle = ground;
    to.fillRect(left, top, wide, high);
    if (flying) {
      to.fillStyle = (state & EARLY ? this.warned : this.hatched)!;
      to.fillRect(left, top, wide, high);
    }
    if (!text) return;
    if (flying) {
      to.fillStyle = theme.page;
      to.globalAlpha = 0.85;
      to.fillRect(left + 2, top + 3, wide - 4, high - 6);
      to.globalAlpha = 1;
    }
    to.fillStyle = state & EARLY ? theme.warning : text === POISONED ? theme.faint : flying ? theme.ink : inkOn(ground, theme);
    to.fillText(text, left + (right - left) / 2, y + tile.high / 2 + 0.5);
  }

  private stateOf(offset: number, size: number): number {
    let [state, marks] = [0, 0];
    for (let at = offset; at < offset + size; at++) {
      state = Math.max(state, this.states[at] & 3);
      marks |= this.states[at] & ~3;
    }
    return state | marks;
  }

  private wordsAt(offset: number, size: number): [number, number] {
    const { bytes } = this.history;
    return [wordAt(bytes, offset, size), size > 4 ? wordAt(bytes, offset + 4, size - 4) : 0];
  }

  /** The colour of each cell of a tile. */
  private painter(tile: Tile): (at: number) => string {
    const { theme, signals } = this.session;
    const empty = mixed(theme.band, theme.page, 0.55);
    if (this.colouring === "writer") return (at) => this.writerColour(at, empty);
    if (this.colouring === "values") return this.heat(tile, empty);
    if (this.colouring === "error") return this.lostHeat(empty);
    const { soft, read, wrote } = signals;
    const early = mixed(theme.warning, theme.page, 0.2);
    return (at) => {
      const state = this.stateOf(at, tile.each);
      if (state & EARLY) return early;
      if (state & WROTE) return wrote;
      if (state & READ) return (state & 3) === IN_FLIGHT ? soft : read;
      return (state & 3) === UNWRITTEN ? empty : soft;
    };
  }

  private writerColour(at: number, empty: string): string {
    const { theme, run, hues } = this.session;
    const write = this.history.writer[at];
    if (write < 0) return (this.states[at] & 3) === UNWRITTEN ? empty : theme.lanes[31];
    const { w_unit, w_step, w_lane } = run.columns;
    if (w_unit[write] >= 0) return hues[8];
    return hues[((run.columns.warp[w_step[write]] * 4) % 28) + (w_lane[write] % 4)];
  }

  /** Below zero orange, above it blue, by magnitude; what is no number is a warning. */
  private heat(tile: Tile, empty: string): (at: number) => string {
    const { theme, values, hues } = this.session;
    let most = 0;
    const count = tile.rows * tile.across;
    for (let cell = 0; cell < count; cell += Math.max(1, Math.floor(count / 4096))) {
      const at = tile.offset + Math.floor(cell / tile.across) * tile.stride + (cell % tile.across) * tile.each;
      if (at >= this.history.size || !this.history.known(at) || this.history.hidden(at)) continue;
      const value = Math.abs(values.number(tile.type, ...this.wordsAt(at, tile.each)));
      if (value > most && value < Infinity) most = value;
    }
    const scale = (colour: string) => Array.from({ length: 17 }, (_, at) => mixed(colour, theme.page, 0.08 + (0.92 * at) / 16));
    const [above, below] = [scale(hues[0]), scale(hues[4])];
    return (at) => {
      if (!this.history.known(at) || this.history.hidden(at)) return empty;
      const value = values.number(tile.type, ...this.wordsAt(at, tile.each));
      if (!Number.isFinite(value)) return mixed(theme.warning, theme.page, 0.6);
      const share = most ? Math.min(16, Math.round(16 * Math.sqrt(Math.abs(value) / most))) : 0;
      return value < 0 ? below[share] : above[share];
    };
  }

  private ofErrors = new Map<number, ArrayErrors | null>();

  /** The errors of the memory that is shown, if the launch had numerics. */
  private get errors(): ArrayErrors | null {
    const { memory, run } = this.session;
    if (!this.ofErrors.has(memory)) this.ofErrors.set(memory, ArrayErrors.of(run, memory));
    return this.ofErrors.get(memory)!;
  }

  /** By bits that are lost, of the values that elements have now. */
  private lostHeat(empty: string): (at: number) => string {
    const { theme, step } = this.session;
    const { errors } = this;
    const scale = Array.from({ length: 17 }, (_, at) => mixed(theme.accent, theme.page, 0.06 + (0.94 * at) / 16));
    return (at) => {
      const found = errors?.at(at, step);
      if (!found) return empty;
      if (!Number.isFinite(found.error)) return mixed(theme.warning, theme.page, 0.6);
      return scale[Math.min(16, Math.round((16 * found.lost) / errors!.most))];
    };
  }

  private errorRows(offset: number, step: number): HTMLElement[][] {
    const found = this.errors?.at(offset, step);
    if (!found) return this.errors?.isWritten(offset, step) ? [row("error", h("span", { id: "byte-error" }, "not known at this moment"))] : [];
    if (!Number.isFinite(found.error)) return [row("error", h("b", { class: "wrong", id: "byte-error" }, "no number"))];
    const { exact, error, ulp, lost } = found;
    const bits = lost >= 0.05 ? `${lost.toFixed(1)} of ${this.errors!.most} bits lost` : "no bit lost";
    return [row("exact", h("span", { id: "byte-exact" }, String(exact))), row("error", h("span", { id: "byte-error" }, `${Number(error.toPrecision(4))}`), ` (${Number(ulp.toPrecision(3))} ulp, ${bits})`)];
  }

  private drawFrames(to: CanvasRenderingContext2D): void {
    const { theme, at, memory, problem } = this.session;
    const frame = (offset: number, size: number, colour: string, width: number) => {
      const tile = tileOf(this.tiles, offset);
      if (!tile) return;
      const cells = Math.max(1, Math.ceil(Math.min(size, tile.offset + tile.size - offset) / tile.each));
      to.strokeStyle = colour;
      to.lineWidth = width;
      const [row, column] = cellOf(tile, offset);
      to.stroke(outline(tile, row * tile.across + column, cells, this.board.top));
    };
    if (problem?.memory === memory) frame(problem.offset, problem.size, theme.warning, 2.5);
    if (at?.memory === memory) frame(at.offset, 1, theme.accent, 3);
    if (this.hover?.memory === memory) frame(this.hover.offset, 1, theme.ink, 1.5);
  }

  private drawLegend(): void {
    const box = byId("memory-legend");
    if (box.dataset.shown === this.colouring) return;
    box.dataset.shown = this.colouring;
    const key = (name: string, words: string) => h("li", {}, h("span", { class: `key k-${name}` }), words);
    const lists: Record<Colouring, HTMLElement[]> = {
      state: [key("empty", "unwritten"), key("hatch", "in flight"), key("written", "written"), key("read", "read now"), key("wrote", "written now"), key("early", "too early")],
      values: [key("below", "below 0"), key("above", "above 0"), key("wrong", "inf, nan"), key("hatch", "in flight")],
      error: [key("empty", "no error known at this step"), key("exact", "rounded well"), key("lost", "all bits lost"), key("wrong", "inf, nan")],
      writer: [key("empty", "unwritten"), key("unit", "by a copy or unit"), key("warps", "by a warp; shades are lanes")],
    };
    box.replaceChildren(...lists[this.colouring]);
  }

  // ── who wrote it, who reads it ────────────────────────────────────────────

  private said = "";

  private say(): void {
    const { step, at, memory } = this.session;
    const place = this.hover ?? (at?.memory === memory ? at : null);
    const key = `${memory} ${place?.offset} ${step} ${this.key} ${at?.offset}`;
    if (key === this.said) return;
    this.said = key;
    const box = byId("byte");
    if (!place) {
      box.replaceChildren(h("p", { class: "hint" }, "Point at an element to see its value, who wrote it, who may still write it and who reads it. A click keeps it."));
      return;
    }
    box.replaceChildren(...this.told(place.offset));
  }

  private told(offset: number): HTMLElement[] {
    const { session, history } = this;
    const { step, values } = session;
    const tile = tileOf(this.tiles, offset);
    if (!tile) return [];
    const words = this.wordsAt(offset, tile.each);
    const raw = [...history.bytes.subarray(offset, offset + tile.each)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const phase = tile.each === 8 ? this.phaseAt(offset) : null;
    const value = !history.known(offset) ? "never written" : history.hidden(offset) ? POISONED : (phase ?? values.text(tile.type, ...words));
    const head = h("p", { class: "what" }, h("code", {}, elementName(tile, offset)), " = ", h("b", { id: "byte-value" }, value), h("span", { class: "hint" }, ` ${tile.type}, bytes ${raw} at 0x${offset.toString(16)}`));
    const rows = [...this.errorRows(offset, step), ...this.barrierRows(offset), this.writerRow(offset), ...this.flyingRows(offset), ...this.readerRows(offset, step)];
    return [head, h("dl", { class: "who" }, ...rows.flat())];
  }

  /** What an mbarrier here is, in words: its bits say little. */
  private barrierRows(offset: number): HTMLElement[][] {
    const { run, step, memory } = this.session;
    const here = run.head.barriers.filter((each) => each.phases && each.memory === memory && each.offset! <= offset && offset < each.offset! + 8);
    return here.map(({ name, phases }) => {
      const now = phases!.findLast(([at]) => at <= step);
      if (!now) return row("mbarrier", `${name}, not yet initialised`);
      const [since, phase, pending, bytes = 0] = now;
      return row("mbarrier", `${name}: phase ${phase} waits for ${pending} arrivals and ${grouped(bytes)} bytes, since `, this.link(since));
    });
  }

  private writerRow(offset: number): HTMLElement[] {
    const { run } = this.session;
    const access = this.history.wrote(offset);
    if (!access) return row("written by", this.history.known(offset) ? "nobody: it was there before the first step" : "nobody yet");
    const { unit } = access;
    if (this.history.hidden(offset)) return row("hidden by", ...this.told1(access), ": until it is done, reads see poison");
    const more = unit >= 0 ? `, issued at step ${grouped(run.head.units[unit].issued)}` : "";
    return row("written by", ...this.told1(access), more);
  }

  private flyingRows(offset: number): HTMLElement[][] {
    const { session } = this;
    return this.history.mayWrite(session.step, offset).map(([, unit]) =>
      row("may still write", h("b", { class: "wrong" }, unit.name), ", issued at ", this.link(unit.issued), unit.done >= 0 ? ", done at " : ", not done in what was recorded", ...(unit.done >= 0 ? [this.link(unit.done)] : [])),
    );
  }

  private readerRows(offset: number, step: number): HTMLElement[][] {
    const all = this.history.readers(offset);
    const past = all.filter((access) => access.step <= step);
    const next = all.find((access) => access.step > step);
    const rows = past.slice(-3).reverse().map((access, at) => row(at ? "" : "read by", ...this.told1(access)));
    if (past.length > 3) rows.push(row("", `and ${grouped(past.length - 3)} times before`));
    if (!past.length) rows.push(row("read by", "nobody yet"));
    if (next) rows.push(row("next read", ...this.told1(next)));
    return rows;
  }

  private told1(access: Access): (Node | string)[] {
    const { run } = this.session;
    return [agent(run, access), ", ", this.link(access.step), access.unit >= 0 ? "" : ` (${run.site(access.step).opcode}, ${lineText(run, access.step)})`];
  }

  private link(step: number): HTMLElement {
    return h("button", { type: "button", class: "go", onclick: () => this.session.go(step) }, `step ${grouped(step)}`);
  }
}

function row(name: string, ...said: (Node | string)[]): HTMLElement[] {
  return [h("dt", {}, name), h("dd", {}, ...said)];
}

/** Around some cells of a tile, which may begin and end within a row. */
function outline(tile: Tile, first: number, count: number, scrolled: number): Path2D {
  const { across, wide, high, top } = tile;
  const [x, y] = [(cell: number) => GUTTER + cell * wide - 1, (row: number) => top + row * high - scrolled - 1];
  const last = first + count - 1;
  const [row, end] = [Math.floor(first / across), Math.floor(last / across)];
  const [from, until] = [first % across, (last % across) + 1];
  const path = new Path2D();
  if (row === end) {
    path.rect(x(from), y(row), (until - from) * wide + 1, high + 1);
    return path;
  }
  const corners: [number, number][] = [
    [x(from), y(row)], [x(across) + 1, y(row)], [x(across) + 1, y(end)], [x(until) + (until === across ? 1 : 0), y(end)],
    [x(until) + (until === across ? 1 : 0), y(end + 1)], [x(0), y(end + 1)], [x(0), y(row + 1)], [x(from), y(row + 1)],
  ];
  for (const [at, [left, down]] of corners.entries()) at ? path.lineTo(left, down) : path.moveTo(left, down);
  path.closePath();
  return path;
}
