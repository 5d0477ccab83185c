// Time: the order of events from left to right, a row for each warp, for asynchronous
// work, for each barrier.  The strip on top is the whole run.

import { byId } from "../../src/page/dom.js";
import type { Found } from "../recording/finding.js";
import { upTo } from "../recording/lists.js";
import { Board, cleared, hatching, mixed, MONO, SANS } from "../session/canvas.js";
import { grouped, HUES, kindOf, lineText, warpName, type Kind } from "../session/names.js";
import type { Session } from "../session/session.js";
import { rolesOf, type Role } from "../recording/roles.js";
import { endOf, HEIGHTS, tracksOf, unitLabel, warpsOf, type Track } from "./tracks.js";

const OVERVIEW = 22;
const RULER = 20;
const TOP = OVERVIEW + RULER;
const ABOVE = 4; // pixels above the first row: the frame of a problem is larger than its step
const NAMES = 18; // pixels before the names of warps: there roles are folded
const DETAIL = 3; // pixels of a step from which on each is a box of its own
const MANY = 8; // warps: more of them are folded at first
const ORDER = Object.keys(HUES) as Kind[];

interface Spot {
  track: Track | null;
  step: number;
  x: number;
}

export class Time {
  private board: Board;
  private tracks: Track[] = [];
  private tops: number[] = [];
  private tall = 0;
  /** The warps that do the same, and which of these have one row. */
  private roles: Role[];
  private folded = new Set<number>();
  /** The row of each warp. */
  private rowOf: number[] = [];
  private kinds: Uint8Array;
  /** The steps that are seen: the first, and how many pixels one has. */
  private first = 0;
  private scale = 0;
  private last = -1;
  /** The problem that was drawn last. */
  private drawn = -1;
  private strip: { key: string; picture: HTMLCanvasElement } | null = null;
  /** What is drawn. */
  private whole = "";
  private lastFound: Found | null = null;
  private kept = { key: "", picture: document.createElement("canvas") };

  constructor(private session: Session) {
    const { run } = session;
    this.roles = rolesOf(run);
    if (run.head.warps.length > MANY) this.folded = this.foldable;
    this.kinds = Uint8Array.from(run.head.sites, ({ opcode }) => ORDER.indexOf(kindOf(opcode)));
    const box = byId("time");
    this.layOut();
    this.board = new Board(box, "Time: the order of steps. Arrow keys step.", () => this.draw());
    const fold = byId("fold");
    fold.hidden = !this.foldable.size;
    fold.addEventListener("click", () => this.fold());
    this.board.canvas.setAttribute("aria-describedby", "time-hint");
    session.listen(() => this.draw());
    this.listen();
  }

  /** The rows, from the roles that are folded. */
  private layOut(): void {
    const { head } = this.session.run;
    this.tracks = tracksOf(head, this.roles, this.folded);
    [this.tops, this.tall] = [[], ABOVE];
    this.tracks.forEach((track, at) => {
      this.tops.push(this.tall);
      this.tall += HEIGHTS[track.kind] + 3;
      for (const warp of warpsOf(track)) this.rowOf[warp] = at;
    });
    byId("time").style.setProperty("--tall", `${this.tall + TOP + 6}px`);
    byId("fold").setAttribute("aria-pressed", String(this.folded.size > 0));
  }

  /** The roles that several warps have. */
  private get foldable(): Set<number> {
    return new Set([...this.roles.keys()].filter((role) => this.roles[role].warps.length > 1));
  }

  /** Fold a role, or unfold it; without one, all of them. */
  fold(role?: number): void {
    if (role === undefined) this.folded = this.folded.size ? new Set() : this.foldable;
    else if (!this.folded.delete(role)) this.folded.add(role);
    this.layOut();
    this.kept.key = this.whole = "";
    this.draw();
  }

  private get gutter(): number {
    return this.board.width < 600 ? 76 : 118;
  }

  private get room(): number {
    return Math.max(10, this.board.width - this.gutter - 8);
  }

  private x(step: number): number {
    return this.gutter + (step - this.first) * this.scale;
  }

  // ── what is seen ──────────────────────────────────────────────────────────

  /** All steps if each is a box; else a part around the step. */
  private settle(): void {
    const { count } = this.session.run;
    const least = this.room / Math.max(1, count);
    if (!this.scale) {
      this.scale = least >= DETAIL ? least : Math.max(least, this.room / 160);
      this.first = this.session.step - 40;
    }
    this.scale = Math.max(least, Math.min(120, this.scale));
    const { step } = this.session;
    if (step !== this.last) {
      const seen = this.room / this.scale;
      const [left, right] = [this.first + 0.04 * seen, this.first + 0.94 * seen];
      if (step < left || step > right) this.first = step - seen * (step < left ? 0.75 : 0.25);
      this.last = step;
    }
    this.closer();
    this.first = Math.max(0, Math.min(count - this.room / this.scale, this.first));
  }

  /** Both accesses of a problem are seen, and the arrow between them is long enough. */
  private closer(): void {
    const { problem } = this.session;
    if (problem?.number === this.drawn) return;
    this.drawn = problem?.number ?? -1;
    const known = problem?.steps.filter((step) => step >= 0) ?? [];
    if (known.length < 2) return;
    const [least, most] = [Math.min(...known), Math.max(...known)];
    const seen = least > this.first && most < this.first + this.room / this.scale;
    if (seen && (most - least) * this.scale >= 140) return;
    const scale = Math.min(60, (this.room * 0.3) / Math.max(1, most - least));
    this.scale = Math.max(this.room / this.session.run.count, scale);
    this.first = (least + most) / 2 - (this.room * 0.45) / this.scale;
  }

  zoom(factor: number, around = this.session.step): void {
    const held = this.x(around);
    const least = this.room / Math.max(1, this.session.run.count);
    this.scale = Math.max(least, Math.min(120, this.scale * factor));
    this.first = around - (held - this.gutter) / this.scale;
    this.draw();
  }

  fit(): void {
    this.scale = this.room / this.session.run.count;
    this.first = 0;
    this.draw();
  }

  // ── drawing ───────────────────────────────────────────────────────────────

  draw(): void {
    const { session, board } = this;
    if (!board.width) return;
    this.settle();
    if (this.isDrawn()) return;
    const to = board.begin(this.tall + TOP + 6);
    this.drawBand(to);
    to.drawImage(this.layer(), 0, 0, board.width, board.height);
    to.save();
    to.beginPath();
    to.rect(0, TOP, board.width, board.height - TOP);
    to.clip();
    this.drawMine(to);
    this.drawMarks(to);
    this.drawProblem(to);
    to.restore();
    this.drawOverview(to);
    this.drawCursor(to, session.step);
  }

  /** Whether all stands there already; what is searched for may change without a step. */
  private isDrawn(): boolean {
    const { board, session } = this;
    const { step, warp, problem, line, found } = session;
    const same = found === this.lastFound;
    this.lastFound = found;
    const key = [this.layerKey, board.width, board.height, step, warp, problem?.number, line?.file, line?.line].join();
    if (same && key === this.whole) return true;
    this.whole = key;
    return false;
  }

  private get layerKey(): string {
    const { first, scale, board, session, tracks } = this;
    return [first, scale, board.canvas.width, board.canvas.height, board.top, session.theme.dark, tracks.length].join();
  }

  /** What does not change with the step is kept until one moves or zooms. */
  private layer(): HTMLCanvasElement {
    const { board, layerKey } = this;
    const { width, height } = board.canvas;
    if (layerKey === this.kept.key) return this.kept.picture;
    this.kept.key = layerKey;
    const { picture } = this.kept;
    const to = cleared(picture, width, height, width / board.width);
    to.save();
    to.beginPath();
    to.rect(0, TOP, board.width, board.height - TOP);
    to.clip();
    this.drawGrid(to);
    this.tracks.forEach((track, at) => {
      const y = TOP + this.tops[at] - board.top;
      if (y + HEIGHTS[track.kind] < TOP || y > board.height) return;
      this.drawTrack(to, track, y);
    });
    to.restore();
    this.drawRuler(to);
    return picture;
  }

  /** A band behind the warp that is looked at. */
  private drawBand(to: CanvasRenderingContext2D): void {
    const { theme, warp } = this.session;
    const y = this.warpTop(warp);
    if (y === null || y < TOP - HEIGHTS.warp) return;
    to.fillStyle = mixed(theme.accent, theme.page, 0.13);
    to.fillRect(0, y - 1, this.board.width, HEIGHTS.warp + 2);
  }

  /** The warp that is looked at, and the work that is under way at this step. */
  private drawMine(to: CanvasRenderingContext2D): void {
    const { theme, warp, step, run } = this.session;
    this.tracks.forEach((track, at) => {
      const [y, tall] = [TOP + this.tops[at] - this.board.top, HEIGHTS[track.kind]];
      if (warpsOf(track).includes(warp)) {
        to.fillStyle = mixed(theme.accent, theme.page, 0.13);
        to.fillRect(0, y - 1, this.gutter - 2, tall + 2);
        to.fillStyle = theme.accent;
        to.font = `600 12px ${SANS}`;
        to.textAlign = "left";
        const name = track.kind === "role" ? `${track.name}: ${run.head.warps[warp].warp}` : track.name;
        to.fillText(shortened(to, name, this.gutter - 26), NAMES, y + tall / 2 + 0.5);
        this.drawFold(to, track, y, tall);
      }
      if (track.kind !== "units") return;
      to.strokeStyle = theme.accent;
      to.lineWidth = 2;
      for (const [, unit] of track.units) {
        if (unit.issued > step) break;
        const end = unit.done < 0 ? run.count : unit.done;
        if (end <= step) continue;
        const left = Math.max(this.gutter, this.x(unit.issued + 0.5));
        to.strokeRect(left + 0.5, y + 1.5, Math.max(1, this.x(end + 0.5) - left - 1), tall - 3);
      }
    });
  }

  private colour(kind: number): string {
    const [hue, shade] = HUES[ORDER[kind]];
    return this.session.hues[hue * 4 + shade];
  }

  private drawGrid(to: CanvasRenderingContext2D): void {
    const { theme } = this.session;
    to.fillStyle = theme.band;
    to.globalAlpha = 0.55;
    for (const step of this.ticks()) to.fillRect(Math.round(this.x(step)), TOP, 1, this.board.height);
    to.globalAlpha = 1;
  }

  /** Round numbers about eighty pixels apart. */
  private ticks(): number[] {
    const least = 80 / this.scale;
    const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
    const each = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= least)!;
    const from = Math.ceil(this.first / each) * each;
    const until = Math.min(this.session.run.count, this.first + this.room / this.scale);
    return Array.from({ length: Math.max(0, Math.ceil((until - from) / each)) }, (_, at) => from + at * each);
  }

  private drawTrack(to: CanvasRenderingContext2D, track: Track, y: number): void {
    const { theme } = this.session;
    const tall = HEIGHTS[track.kind];
    to.save();
    to.beginPath();
    to.rect(this.gutter, y - 1, this.board.width - this.gutter, tall + 2);
    to.clip();
    if (track.kind === "warp" || track.kind === "role") this.drawWarps(to, warpsOf(track), y, tall);
    else if (track.kind === "units") this.drawUnits(to, track, y, tall);
    else if (track.kind === "mbarrier") this.drawPhases(to, track.barrier, y, tall);
    else if (track.kind === "barrier") this.drawUses(to, track.barrier, y, tall);
    to.restore();
    to.font = `12px ${track.kind === "mbarrier" || track.kind === "units" ? MONO : SANS}`;
    const warps = warpsOf(track).length > 0;
    to.fillStyle = warps ? theme.ink : theme.faint;
    to.textAlign = "left";
    const left = warps ? NAMES : 10;
    to.fillText(shortened(to, track.name, this.gutter - left - 6), left, y + tall / 2 + 0.5);
    this.drawFold(to, track, y, tall);
  }

  /** A triangle at the first row of a role with several warps; a line beside the others. */
  private drawFold(to: CanvasRenderingContext2D, track: Track, y: number, tall: number): void {
    if (track.kind !== "role" && track.kind !== "warp") return;
    const { warps } = this.roles[track.role];
    if (warps.length < 2) return;
    const { theme } = this.session;
    to.fillStyle = theme.faint;
    const [x, middle] = [9, y + tall / 2];
    if (track.kind === "warp" && track.warp !== warps[0]) {
      to.fillRect(x - 0.5, y - 3, 1, track.warp === warps.at(-1) ? tall / 2 + 3 : tall + 3);
      return;
    }
    const corners = track.kind === "role" ? [[-2.5, -4.5], [3.5, 0], [-2.5, 4.5]] : [[-4.5, -2.5], [4.5, -2.5], [0, 3.5]];
    to.beginPath();
    for (const [dx, dy] of corners) to.lineTo(x + dx, middle + dy);
    to.fill();
  }

  /** The steps of a warp that are seen. */
  private seen(warp: number): Uint32Array {
    const steps = this.session.run.stepsOfWarp(warp);
    const from = upTo(steps, this.first - 2);
    return steps.subarray(from, upTo(steps, this.first + this.room / this.scale + 1));
  }

  private drawWarps(to: CanvasRenderingContext2D, warps: number[], y: number, tall: number): void {
    const { theme, run } = this.session;
    const all = warps.map((warp) => run.stepsOfWarp(warp)).filter(({ length }) => length);
    if (!all.length) return;
    const [from, until] = [this.x(Math.min(...all.map((each) => each[0]))), this.x(Math.max(...all.map((each) => each.at(-1)!)) + 1)];
    to.fillStyle = theme.band;
    to.fillRect(from, y + tall / 2 - 1.5, until - from, 3);
    if (this.scale >= DETAIL) for (const warp of warps) this.drawSteps(to, warp, y, tall);
    else this.drawDense(to, warps.map((warp) => this.seen(warp)), y, tall);
  }

  private drawSteps(to: CanvasRenderingContext2D, warp: number, y: number, tall: number): void {
    const { onHue, run } = this.session;
    const { site } = run.columns;
    const gap = this.scale > 6 ? 1 : 0.5;
    const written = this.scale >= 44;
    to.font = `11px ${MONO}`;
    to.textAlign = "center";
    for (const step of this.seen(warp)) {
      const x = this.x(step);
      to.fillStyle = this.colour(this.kinds[site[step]]);
      to.beginPath();
      to.roundRect(x + gap / 2, y, this.scale - gap, tall, Math.min(3, this.scale / 4));
      to.fill();
      if (!written) continue;
      const { opcode } = run.head.sites[site[step]];
      to.fillStyle = onHue;
      to.fillText(shortened(to, opcode, this.scale - 6), x + this.scale / 2, y + tall / 2 + 0.5);
    }
  }

  /** Many steps in a pixel: what counts most among them. */
  private drawDense(to: CanvasRenderingContext2D, lists: Uint32Array[], y: number, tall: number): void {
    const { site } = this.session.run.columns;
    const width = Math.ceil(this.room) + 2;
    const most = new Int8Array(width).fill(-1);
    for (const steps of lists) {
      for (const step of steps) {
        const x = Math.max(0, Math.floor((step - this.first) * this.scale));
        const kind = this.kinds[site[step]];
        if (x < width && kind > most[x]) most[x] = kind;
      }
    }
    for (let x = 0; x < width; ) {
      const kind = most[x];
      let end = x + 1;
      while (end < width && most[end] === kind) end++;
      if (kind >= 0) {
        to.fillStyle = this.colour(kind);
        to.fillRect(this.gutter + x, y, end - x, tall);
      }
      x = end;
    }
  }

  /** Under way: hatched.  Done and not waited for: a thin line. */
  private drawUnits(to: CanvasRenderingContext2D, track: Track & { kind: "units" }, y: number, tall: number): void {
    const { theme, run, hues } = this.session;
    const colour = hues[track.matrix ? 16 : 8];
    const strong = theme.dark ? colour : mixed(colour, theme.ink, 0.65);
    const hatched = hatching(to, strong, 4);
    const until = this.first + this.room / this.scale;
    let drawn = -1;
    for (const [, unit] of track.units) {
      if (unit.issued > until || endOf(unit) < this.first) continue;
      // Of many in one pixel, one is enough.
      const pixel = Math.floor(this.x(Math.max(unit.issued, unit.waited)));
      if (pixel === drawn) continue;
      drawn = pixel;
      const end = unit.done < 0 ? run.count : unit.done;
      const [left, right] = [this.x(Math.max(unit.issued, this.first - 5) + 0.5), this.x(Math.min(end, until + 5) + 0.5)];
      const width = Math.max(2, right - left);
      to.globalAlpha = 0.3;
      to.fillStyle = colour;
      to.fillRect(left, y + 1, width, tall - 2);
      to.globalAlpha = 1;
      if (width > 5) {
        to.fillStyle = hatched;
        to.fillRect(left, y + 1, width, tall - 2);
      }
      to.strokeStyle = strong;
      to.lineWidth = 1;
      to.strokeRect(left + 0.5, y + 1.5, width - 1, tall - 3);
      if (unit.waited > unit.done && unit.done >= 0) {
        to.fillStyle = theme.hair;
        to.fillRect(right, y + tall / 2 - 1, this.x(unit.waited + 0.5) - right, 2);
        to.fillRect(this.x(unit.waited + 0.5) - 1, y + 3, 2, tall - 6);
      }
      if (width > 60) this.label(to, unitLabel(run.head, unit), left, width, y + tall / 2);
    }
  }

  private label(to: CanvasRenderingContext2D, text: string, left: number, width: number, y: number): void {
    const { theme } = this.session;
    const from = Math.max(left, this.gutter);
    const room = left + width - from - 10;
    if (room < 24) return;
    to.font = `11px ${SANS}`;
    to.textAlign = "left";
    const short = shortened(to, text, room);
    to.fillStyle = theme.page;
    to.globalAlpha = 0.82;
    to.fillRect(from + 3, y - 7, to.measureText(short).width + 6, 14);
    to.globalAlpha = 1;
    to.fillStyle = theme.ink;
    to.fillText(short, from + 6, y + 0.5);
  }

  private drawPhases(to: CanvasRenderingContext2D, barrier: number, y: number, tall: number): void {
    const { theme, run, hues } = this.session;
    const phases = run.head.barriers[barrier].phases!;
    const until = this.first + this.room / this.scale;
    let drawn = -1;
    for (let at = 0; at < phases.length; at++) {
      const [step, phase, pending, bytes] = phases[at];
      const end = phases[at + 1]?.[0] ?? run.count;
      if (end < this.first || step > until) continue;
      const pixel = Math.floor(this.x(end));
      if (pixel === drawn) continue;
      drawn = pixel;
      const [left, right] = [this.x(Math.max(step, this.first - 9) + 0.5), this.x(Math.min(end, until + 9) + 0.5)];
      to.fillStyle = hues[phase % 2 ? 13 : 15];
      to.fillRect(left, y + 2, Math.max(1, right - left), tall - 4);
      to.fillStyle = theme.hair;
      to.fillRect(left, y, 1.5, tall);
      if (right - left > 70) this.plain(to, `phase ${phase}, ${awaited(pending, bytes)}`, left, right, y + tall / 2);
      else if (right - left > 16) this.plain(to, String(phase), left, right, y + tall / 2);
    }
  }

  private plain(to: CanvasRenderingContext2D, text: string, left: number, right: number, y: number, colour = this.session.onHue): void {
    const from = Math.max(left, this.gutter) + 5;
    to.font = `11px ${SANS}`;
    to.textAlign = "left";
    to.fillStyle = colour;
    if (right - from > 10) to.fillText(shortened(to, text, right - from - 2), from, y + 0.5);
  }

  private drawUses(to: CanvasRenderingContext2D, barrier: number, y: number, tall: number): void {
    const { theme, run, hues } = this.session;
    const uses = run.head.barriers[barrier].uses ?? [];
    let last = -Infinity;
    for (const [step, warps] of uses) {
      const x = this.x(step + 0.5);
      if (x < this.gutter - 8 || x > this.board.width + 8 || x < last + 1) continue;
      to.fillStyle = hues[12];
      if (x < last + 8) {
        to.fillRect(x - 0.5, y + 3, 1, tall - 6);
        last = x;
        continue;
      }
      last = x;
      to.strokeStyle = theme.frame;
      to.lineWidth = 1;
      to.beginPath();
      to.moveTo(x, y + 2);
      to.lineTo(x + 6, y + tall / 2);
      to.lineTo(x, y + tall - 2);
      to.lineTo(x - 6, y + tall / 2);
      to.closePath();
      to.fill();
      to.stroke();
      if (this.scale * 8 > 60) this.plain(to, `${warps.length} warps`, x + 6, x + 70, y + tall / 2, theme.ink);
    }
  }

  /** The executions of the line that was clicked, and what was found, as ticks. */
  private drawMarks(to: CanvasRenderingContext2D): void {
    const { line, run, theme, found, signals } = this.session;
    if (line) this.drawTicks(to, run.stepsOfLine(line.file, line.line), theme.accent, HEIGHTS.warp - 2);
    if (found) this.drawTicks(to, found.steps, signals.wrote, -2);
  }

  private drawTicks(to: CanvasRenderingContext2D, steps: Uint32Array, colour: string, below: number): void {
    const { warp } = this.session.run.columns;
    const until = upTo(steps, this.first + this.room / this.scale);
    to.fillStyle = colour;
    let [lastX, lastY] = [-1, -1];
    for (let at = upTo(steps, this.first - 1); at < until; at++) {
      const y = this.warpTop(warp[steps[at]]);
      if (y === null) continue;
      // Of many in one pixel, one is enough.
      const x = Math.floor(this.x(steps[at]));
      if (x === lastX && y === lastY) continue;
      [lastX, lastY] = [x, y];
      to.fillRect(this.x(steps[at]), y + below, Math.max(2, this.scale - 1), 4);
    }
  }

  private warpTop(warp: number): number | null {
    const at = this.rowOf[warp];
    return at === undefined ? null : TOP + this.tops[at] - this.board.top;
  }

  /** Both accesses of a problem, and the order that is missing between them. */
  private drawProblem(to: CanvasRenderingContext2D): void {
    const { problem, run, theme } = this.session;
    if (!problem) return;
    const ends = problem.steps.flatMap((step) => {
      const y = step < 0 ? null : this.warpTop(run.columns.warp[step]);
      return y === null ? [] : [{ x: this.x(step + 0.5), y: y + HEIGHTS.warp / 2 }];
    });
    to.strokeStyle = to.fillStyle = theme.warning;
    to.lineWidth = 2.5;
    const wide = Math.max(9, this.scale / 2 + 3);
    for (const { x, y } of ends) {
      to.beginPath();
      to.roundRect(x - wide, y - 14, 2 * wide, 28, 6);
      to.stroke();
    }
    if (ends.length < 2) return;
    const [from, until] = ends;
    const ahead = until.x > from.x ? 1 : -1;
    const [x0, x1] = [from.x + ahead * wide, until.x - ahead * wide];
    to.setLineDash([6, 4]);
    to.lineWidth = 2;
    to.beginPath();
    to.moveTo(x0, from.y);
    to.bezierCurveTo((x0 + x1) / 2, from.y, (x0 + x1) / 2, until.y, x1 - ahead * 6, until.y);
    to.stroke();
    to.setLineDash([]);
    to.beginPath();
    to.moveTo(x1, until.y);
    to.lineTo(x1 - ahead * 9, until.y - 5);
    to.lineTo(x1 - ahead * 9, until.y + 5);
    to.fill();
    if (problem.missing) this.tag(to, `missing: ${problem.missing}`, until.x + wide + 8, until.y);
  }

  private tag(to: CanvasRenderingContext2D, text: string, x: number, y: number): void {
    const { theme } = this.session;
    to.font = `600 12px ${MONO}`;
    const wide = to.measureText(text).width + 14;
    const left = Math.max(this.gutter + 2, Math.min(this.board.width - wide - 4, x));
    // Without room beside the access, below it.
    if (left < x) y += HEIGHTS.warp + 4;
    to.fillStyle = theme.page;
    to.strokeStyle = theme.warning;
    to.lineWidth = 1.5;
    to.beginPath();
    to.roundRect(left, y - 10, wide, 20, 5);
    to.fill();
    to.stroke();
    to.fillStyle = theme.warning;
    to.textAlign = "left";
    to.fillText(text, left + 7, y + 0.5);
  }

  private drawRuler(to: CanvasRenderingContext2D): void {
    const { theme } = this.session;
    to.font = `11px ${SANS}`;
    to.fillStyle = theme.faint;
    to.textAlign = "left";
    to.fillText(this.board.width < 600 ? "step" : "step (order only)", 10, OVERVIEW + RULER / 2);
    for (const step of this.ticks()) {
      const x = this.x(step);
      to.fillRect(Math.round(x), TOP - 5, 1, 5);
      to.fillText(grouped(step), x + 4, OVERVIEW + RULER / 2);
    }
    to.fillStyle = theme.band;
    to.fillRect(0, TOP - 1, this.board.width, 1);
    this.flags(to, (step) => this.x(step + 0.5), OVERVIEW + 2, 16);
  }

  /** A numbered flag where a problem is. */
  private flags(to: CanvasRenderingContext2D, x: (step: number) => number, y: number, tall: number): void {
    const { theme, run } = this.session;
    to.textAlign = "center";
    for (const { steps, number } of run.head.problems) {
      if (Math.max(...steps) < 0) continue;
      const at = x(Math.max(...steps));
      if (at < this.gutter - 9 || at > this.board.width) continue;
      to.fillStyle = theme.warning;
      to.beginPath();
      to.roundRect(at - 8, y, 16, tall, 4);
      to.fill();
      to.fillStyle = theme.page;
      to.font = `700 11px ${SANS}`;
      to.fillText(String(number), at, y + tall / 2 + 0.5);
    }
  }

  /** The whole run, drawn once, and the part of it that is seen. */
  private drawOverview(to: CanvasRenderingContext2D): void {
    const { theme, run, step } = this.session;
    const [wide, tall] = [Math.ceil(this.room), OVERVIEW - 8];
    const key = `${wide} ${theme.dark}`;
    if (this.strip?.key !== key) this.strip = { key, picture: this.paintStrip(wide, tall) };
    to.font = `11px ${SANS}`;
    to.fillStyle = theme.faint;
    to.textAlign = "left";
    to.fillText(this.board.width < 600 ? "all" : `all ${grouped(run.count)} steps`, 10, OVERVIEW / 2);
    to.drawImage(this.strip.picture, this.gutter, 4, wide, tall);
    const each = this.room / run.count;
    const [left, width] = [this.gutter + this.first * each, (this.room / this.scale) * each];
    if (width < this.room - 2) {
      to.fillStyle = theme.page;
      to.globalAlpha = 0.6;
      to.fillRect(this.gutter, 3, left - this.gutter, tall + 2);
      to.fillRect(left + width, 3, this.gutter + this.room - left - width, tall + 2);
      to.globalAlpha = 1;
    }
    to.strokeStyle = theme.accent;
    to.lineWidth = 1.5;
    to.strokeRect(left, 3, Math.max(6, width), tall + 2);
    to.fillStyle = theme.accent;
    to.fillRect(this.gutter + (step + 0.5) * each - 1, 1, 2, OVERVIEW - 2);
    if (width < this.room - 2) this.flags(to, (at) => this.gutter + (at + 0.5) * each, 4, 14);
    this.drawFound(to, each);
  }

  /** What was found, on the strip of all steps. */
  private drawFound(to: CanvasRenderingContext2D, each: number): void {
    const { found, signals } = this.session;
    to.fillStyle = signals.wrote;
    let last = -1;
    for (const step of found?.steps ?? []) {
      const x = Math.floor(this.gutter + (step + 0.5) * each);
      if (x !== last) to.fillRect((last = x), OVERVIEW - 5, 1.5, 5);
    }
  }

  /** How often each kind stands in each part of the run, stacked. */
  private paintStrip(wide: number, tall: number): HTMLCanvasElement {
    const { run } = this.session;
    const { site } = run.columns;
    const counts = new Uint32Array(wide * ORDER.length);
    for (let step = 0; step < run.count; step++) {
      const x = Math.floor((step / run.count) * wide);
      counts[x * ORDER.length + this.kinds[site[step]]]++;
    }
    const picture = document.createElement("canvas");
    [picture.width, picture.height] = [wide, tall * 2];
    const to = picture.getContext("2d")!;
    let last: number[] = [];
    for (let x = 0; x < wide; x++) {
      const here = [...counts.subarray(x * ORDER.length, (x + 1) * ORDER.length)];
      const total = here.reduce((sum, each) => sum + each, 0);
      // Where a step is wider than a pixel, its neighbour is the same step.
      if (total) last = here.map((each) => each / total);
      let y = tall * 2;
      last.forEach((share, kind) => {
        to.fillStyle = this.colour(kind);
        to.fillRect(x, y - share * tall * 2, 1, share * tall * 2);
        y -= share * tall * 2;
      });
    }
    return picture;
  }

  private drawCursor(to: CanvasRenderingContext2D, step: number): void {
    const { theme } = this.session;
    const x = this.x(step + 0.5);
    if (x < this.gutter || x > this.board.width) return;
    to.fillStyle = theme.accent;
    to.globalAlpha = 0.14;
    to.fillRect(this.x(step), TOP, Math.max(1, this.scale), this.board.height - TOP);
    to.globalAlpha = 1;
    to.fillRect(x - 0.75, TOP - 2, 1.5, this.board.height - TOP + 2);
    const text = grouped(step);
    if (this.session.problem) to.fillStyle = theme.warning;
    to.font = `600 11px ${SANS}`;
    const wide = to.measureText(text).width + 12;
    const left = Math.max(this.gutter, Math.min(this.board.width - wide - 2, x - wide / 2));
    this.hideNumbers(to, left, left + wide);
    to.beginPath();
    to.roundRect(left, OVERVIEW + 2, wide, 16, 8);
    to.fill();
    to.fillStyle = theme.page;
    to.textAlign = "left";
    to.fillText(text, left + 6, OVERVIEW + 10.5);
  }

  /** Half a number beside the one of the cursor would be another number. */
  private hideNumbers(to: CanvasRenderingContext2D, left: number, right: number): void {
    const { fillStyle, font } = to;
    to.font = `11px ${SANS}`;
    for (const step of this.ticks()) {
      const from = this.x(step) + 4;
      const wide = to.measureText(grouped(step)).width;
      if (from > right || from + wide < left) continue;
      to.fillStyle = this.session.theme.page;
      to.fillRect(from - 1, OVERVIEW + 2, wide + 2, RULER - 7);
    }
    this.flags(to, (step) => this.x(step + 0.5), OVERVIEW + 2, 16);
    [to.fillStyle, to.font] = [fillStyle, font];
  }

  // ── pointing ──────────────────────────────────────────────────────────────

  private spot({ x, y }: { x: number; y: number }): Spot | null {
    if (y < TOP || x < 0) return null;
    const down = y - TOP + this.board.top;
    const at = this.tops.findLastIndex((top) => top <= down);
    const track = this.tracks[at] ?? null;
    return { track, step: Math.floor(this.first + (x - this.gutter) / this.scale), x };
  }

  private listen(): void {
    const { canvas, box } = this.board;
    let held: { x: number; first: number; moved: boolean; zone: "all" | "ruler" | "tracks" } | null = null;
    canvas.addEventListener("pointerdown", (event) => {
      const { x, y } = this.board.point(event);
      const zone = y < OVERVIEW ? "all" : y < TOP ? "ruler" : "tracks";
      held = { x, first: this.first, moved: false, zone };
      canvas.setPointerCapture(event.pointerId);
      if (zone !== "tracks") this.scrub(x, zone);
    });
    canvas.addEventListener("pointermove", (event) => {
      const point = this.board.point(event);
      if (!held) return this.point(this.spot(point), event);
      if (Math.abs(point.x - held.x) > 4) held.moved = true;
      if (held.zone !== "tracks") this.scrub(point.x, held.zone);
      else if (held.moved) {
        this.first = held.first - (point.x - held.x) / this.scale;
        this.draw();
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      const clicked = held && !held.moved && held.zone === "tracks";
      held = null;
      if (clicked) this.click(this.spot(this.board.point(event)));
    });
    canvas.addEventListener("pointerleave", () => this.point(null));
    box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  private wheel(event: WheelEvent): void {
    const scrolls = this.board.box.scrollHeight > this.board.box.clientHeight + 1;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (!event.ctrlKey && !sideways && scrolls) return;
    event.preventDefault();
    if (sideways && !event.ctrlKey) {
      this.first += (event.deltaX || event.deltaY) / this.scale;
      return this.draw();
    }
    const { x } = this.board.point(event);
    this.zoom(Math.exp(-event.deltaY / 300), this.first + (x - this.gutter) / this.scale);
  }

  private scrub(x: number, zone: "all" | "ruler"): void {
    const { run } = this.session;
    const share = (x - this.gutter) / this.room;
    this.session.go(zone === "all" ? share * run.count : this.first + (x - this.gutter) / this.scale - 0.5);
  }

  private click(spot: Spot | null): void {
    if (!spot) return;
    const { run } = this.session;
    const { track, step } = spot;
    const warps = track ? warpsOf(track) : [];
    if (track && warps.length && step < this.first) return this.pick(track, warps, spot.x);
    if (warps.length) {
      const near = this.nearOf(warps, step);
      if (near >= 0) return this.session.go(near);
    }
    this.session.go(Math.max(0, Math.min(run.count - 1, step)));
  }

  /** The name of a row: its warp is looked at; the triangle before it folds. */
  private pick(track: Track, warps: number[], x: number): void {
    const folds = (track.kind === "warp" || track.kind === "role") && x < NAMES && this.roles[track.role].warps.length > 1;
    if (folds) return this.fold(track.role);
    const { warp } = this.session;
    this.session.update({ warp: warps[(warps.indexOf(warp) + 1) % warps.length] });
  }

  private nearOf(warps: number[], step: number): number {
    const found = warps.map((warp) => this.near(warp, step)).filter((each) => each >= 0);
    return found.reduce((one, other) => (Math.abs(other - step) < Math.abs(one - step) ? other : one), found[0] ?? -1);
  }

  /** The step of a warp that is nearest to where one clicks. */
  private near(warp: number, step: number): number {
    const { run } = this.session;
    const [before, after] = [run.lastOf(warp, step), run.nextOf(warp, step)];
    if (before < 0 || after < 0) return Math.max(before, after);
    return step - before <= after - step ? before : after;
  }

  private point(spot: Spot | null, event?: PointerEvent): void {
    this.board.canvas.style.cursor = spot ? "pointer" : "default";
    const box = byId("tip");
    const said = spot && event ? this.said(spot) : null;
    box.hidden = !said;
    if (!said || !event) return;
    box.replaceChildren(...said.map((text, at) => {
      const line = document.createElement(at ? "div" : "strong");
      line.textContent = text;
      return line;
    }));
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(4, Math.min(innerWidth - width - 8, event.clientX + 14))}px`;
    box.style.top = `${Math.min(innerHeight - height - 8, event.clientY + 18)}px`;
  }

  private said({ track, step }: Spot): string[] | null {
    const { run } = this.session;
    const { head } = run;
    if (!track || step < 0 || step >= run.count) return null;
    const warps = warpsOf(track);
    if (warps.length) {
      const at = warps.includes(run.columns.warp[step]) ? step : this.scale < DETAIL ? this.nearOf(warps, step) : -1;
      if (at < 0) return null;
      return [`step ${grouped(at)}, ${warpName(head, run.columns.warp[at])}`, run.site(at).text, lineText(run, at)];
    }
    if (track.kind === "units") {
      const found = track.units.find(([, unit]) => unit.issued <= step && step <= endOf(unit));
      if (!found) return null;
      const [, { name, issued, done, waited, bytes, warp }] = found;
      const when = (what: string, at: number) => (at < 0 ? `not ${what} in what was recorded` : `${what} at step ${grouped(at)}`);
      return [name, `${grouped(bytes)} bytes, issued at step ${grouped(issued)} by ${warpName(head, warp)}`, when("done", done), when("waited for", waited)];
    }
    if (track.kind === "mbarrier") {
      const phase = head.barriers[track.barrier].phases!.findLast(([at]) => at <= step);
      return phase ? [track.name, `phase ${phase[1]}, waits for ${awaited(phase[2], phase[3])}, since step ${grouped(phase[0])}`] : null;
    }
    if (track.kind === "barrier") {
      const uses = head.barriers[track.barrier].uses ?? [];
      const use = uses.find(([at]) => Math.abs(at - step) * this.scale < 8);
      return use ? [track.name, `step ${grouped(use[0])}: ${use[1].map((warp) => warpName(head, warp)).join(", ")}`] : null;
    }
    return null;
  }
}

const awaited = (arrivals: number, bytes = 0): string =>
  `${arrivals} arrival${arrivals === 1 ? "" : "s"}${bytes ? `, ${grouped(bytes)} B` : ""}`;

/** As much of a text as there is room for. */
export function shortened(to: CanvasRenderingContext2D, text: string, room: number): string {
  const wide = to.measureText(text).width;
  if (wide <= room) return text;
  const letters = Math.floor((text.length * room) / wide) - 1;
  return letters < 1 ? "" : `${text.slice(0, letters)}…`;
}
