// Expressions: the language of Python's debugger (debugging/expressions.py), with the same
// answers.
//
//     %r5             a register, one value for each lane; %r5[3] of lane 3
//     %f1 * 2 + %f2   arithmetic, lane by lane
//     %r5 as f16x2    the same bits as another type
//     shared[0x400]   a byte of memory; shared[0x400:0x420] as f32 several elements
//     shared[%r7] as f32  what is at the address of each lane
//     tile[3]         an element of a variable
//
// Nothing is ever executed: an expression is read into a tree, and the tree is computed here.

import { bytesOf, IN_FLIGHT, isFloat, Refused, stored, UNWRITTEN, WRITTEN, type Scalar, type Typed, type Value } from "./typed.js";

const LONGEST = 500;
const DEEPEST = 40;
const MOST_BYTES = 4096;

// ── reading ─────────────────────────────────────────────────────────────────

export type Tree =
  | { kind: "number"; value: Scalar }
  | { kind: "name"; name: string }
  | { kind: "unary"; sign: string; of: Tree }
  | { kind: "binary"; sign: string; left: Tree; right: Tree }
  | { kind: "index"; of: Tree; first: Tree; last: Tree | null }
  | { kind: "as"; of: Tree; type: string };

const ORDER = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!=", "<", "<=", ">", ">="], ["<<", ">>"], ["+", "-"], ["*", "/", "%"]];
const STRENGTH = new Map(ORDER.flatMap((signs, level) => signs.map((sign) => [sign, level] as const)));
const NUMBER = /0[xX][0-9a-fA-F]+|0[bB][01]+|(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?/y;
const NAME = /[%$]?[A-Za-z_$][\w$]*(::\w+|\.[A-Za-z]\w*|@\d+)*/y;
const SIGN = /\|\||&&|<<|>>|[=!<>]=|[-+*/%&|^~!<>()[\]:]/y;
const AS = /as\s+(\w+)/y;

class Reader {
  private at = 0;
  private depth = 0;

  constructor(private text: string) {
    if (text.length > LONGEST) throw new Refused(`an expression has at most ${LONGEST} characters; given ${text.length}`);
  }

  private match(pattern: RegExp): RegExpExecArray | null {
    while (this.at < this.text.length && /\s/.test(this.text[this.at])) this.at++;
    pattern.lastIndex = this.at;
    return pattern.exec(this.text);
  }

  private fail(wanted: string): Refused {
    const rest = this.text.slice(this.at);
    const found = rest ? `at ${shortened(rest, 20)}` : "at the end";
    return new Refused(`${shortened(this.text)}: ${wanted} is missing ${found}`);
  }

  private peek(): string {
    return this.match(SIGN)?.[0] ?? "";
  }

  private take(sign: string): void {
    if (this.peek() !== sign) throw this.fail(sign);
    this.at += sign.length;
  }

  private deeper(): void {
    if (++this.depth > DEEPEST) throw new Refused(`${shortened(this.text)}: it is nested too deeply`);
  }

  whole(): Tree {
    const found = this.binary(0);
    this.match(SIGN);
    if (this.at < this.text.length) throw this.fail("an operator");
    return found;
  }

  private binary(least: number): Tree {
    this.deeper();
    let left = this.unary();
    for (;;) {
      const sign = this.peek();
      const strength = STRENGTH.get(sign) ?? -1;
      if (strength < least) break;
      this.at += sign.length;
      left = { kind: "binary", sign, left, right: this.binary(strength + 1) };
    }
    this.depth--;
    return left;
  }

  private unary(): Tree {
    const sign = this.peek();
    if (!["-", "+", "~", "!"].includes(sign)) return this.postfix(this.primary());
    this.deeper();
    this.at += sign.length;
    const found: Tree = { kind: "unary", sign, of: this.unary() };
    this.depth--;
    return found;
  }

  private primary(): Tree {
    if (this.peek() === "(") {
      this.take("(");
      const found = this.binary(0);
      this.take(")");
      return found;
    }
    const name = this.match(NAME);
    if (name) {
      this.at += name[0].length;
      return { kind: "name", name: name[0] };
    }
    const number = this.match(NUMBER);
    if (!number) throw this.fail("a register, a number or a name");
    this.at += number[0].length;
    const whole = /^0[xXbB]/.test(number[0]) || /^\d+$/.test(number[0]);
    return { kind: "number", value: whole ? BigInt(number[0].toLowerCase()) : Number(number[0]) };
  }

  private postfix(of: Tree): Tree {
    for (;;) {
      if (this.peek() === "[") {
        this.take("[");
        const first = this.binary(0);
        let last: Tree | null = null;
        if (this.peek() === ":") {
          this.take(":");
          last = this.binary(0);
        }
        this.take("]");
        of = { kind: "index", of, first, last };
        continue;
      }
      const type = this.match(AS);
      if (!type) return of;
      this.at += type[0].length;
      stored(type[1]);
      of = { kind: "as", of, type: type[1] };
    }
  }
}

export function parse(text: string): Tree {
  return new Reader(text).whole();
}

/** In quotes, cut if it is long. */
function shortened(text: string, most = 60): string {
  return text.length <= most ? `'${text}'` : `'${text.slice(0, most)}' … (${text.length} characters)`;
}

// ── computing ───────────────────────────────────────────────────────────────

/** A part of memory that is not read yet. */
export interface Area {
  memory: string;
  read: (start: number, size: number) => { bytes: Uint8Array; states: Uint8Array };
  size: number;
  start: number;
  /** The type of its elements; empty for bytes. */
  type: string;
  /** The address of the first byte of the memory, as registers hold it. */
  base: bigint;
  single: boolean;
  /** The offset of each lane, where an element for each lane is meant. */
  at: { lanes: number[]; offsets: bigint[] } | null;
  /** The bits of an address that say where in the memory it is. */
  mask: bigint;
  number: number;
}

export interface Scope {
  named(name: string): Value | Area;
}

const isArea = (found: Value | Area): found is Area => "memory" in found;

export class Evaluator {
  constructor(
    private typed: Typed,
    private scope: Scope,
  ) {}

  evaluate(tree: Tree): Value {
    const found = this.found(tree);
    return isArea(found) ? this.read(found) : found;
  }

  /** The part of memory that an expression names; null if it is another value. */
  area(tree: Tree): Area | null {
    const found = this.found(tree);
    return isArea(found) ? found : null;
  }

  /** A whole number, and what it is called if it is none. */
  whole(value: Value, what: string): number {
    if (!value.single || value.side > 1 || typeof value.data[0] !== "bigint") {
      throw new Refused(`${what} is a whole number; given ${this.typed.texts(value).join(", ").slice(0, 60)}`);
    }
    return Number(value.data[0]);
  }

  private found(tree: Tree): Value | Area {
    switch (tree.kind) {
      case "number":
        return computed([tree.value], typeof tree.value === "bigint" ? "object" : "f64", [], true);
      case "name":
        return this.scope.named(tree.name);
      case "unary":
        return this.unary(tree.sign, this.evaluate(tree.of));
      case "binary":
        return this.binary(tree.sign, this.evaluate(tree.left), this.evaluate(tree.right));
      case "as":
        return this.as(this.found(tree.of), tree.type);
      case "index": {
        const start = this.evaluate(tree.first);
        const end = tree.last ? this.whole(this.evaluate(tree.last), "the end") : null;
        return this.indexed(this.found(tree.of), start, end);
      }
    }
  }

  private as(of: Value | Area, type: string): Value {
    if (isArea(of)) return this.read({ ...of, type });
    if (of.offsets) throw new Refused("a type stands once behind a part of memory");
    return this.reinterpreted(of, type);
  }

  /** The same bits as another type; of a narrower type there are several. */
  private reinterpreted(given: Value, type: string): Value {
    const { of, size } = stored(type);
    const bytes = this.typed.bytes(given);
    const rows = Math.max(1, given.lanes.length);
    const have = bytes.length / rows;
    if (have % size) throw new Refused(`${type} has ${size} bytes, what it is read from ${have}`);
    const data = this.typed.decoded(of, bytes);
    const count = data.length / rows;
    const single = !given.lanes.length;
    const base = type === "b128" ? type : type.split("x")[0];
    const name = count === 1 ? type : base === "b128" ? base : `${base}x${count}`;
    return { of, data, side: count, single, type: name, lanes: given.lanes, offsets: null, states: null, raw: bytes };
  }

  // ── indices ───────────────────────────────────────────────────────────────

  private indexed(of: Value | Area, start: Value, end: number | null): Value | Area {
    if (!isArea(of)) return this.lanesOf(of, this.whole(start, "a lane"), end);
    if (of.at) return this.lanesOf(this.read(of), this.whole(start, "a lane"), end);
    if (of.single) throw new Refused(`${of.memory} has one index`);
    if (!start.lanes.length) return this.part(of, this.whole(start, "the offset"), end);
    if (end !== null || isFloat(start.of) || start.of === "bool" || start.side > 1) {
      throw new Refused("the offset of each lane is one whole number");
    }
    const unit = of.type ? BigInt(stored(of.type).size) : 1n;
    const offsets = (start.data as bigint[]).map((each) => (of.type ? each * unit : (each - of.base) & of.mask));
    return { ...of, at: { lanes: start.lanes, offsets }, single: true };
  }

  /** One lane of a register, or several. */
  private lanesOf(of: Value, first: number, end: number | null): Value {
    if (!of.lanes.length) throw new Refused("only registers and memory have an index");
    const last = end ?? first + 1;
    if (!(first >= 0 && first < last && last <= of.lanes.length)) {
      throw new Refused(`lanes are 0 to ${of.lanes.length - 1}; given ${first}${end === null ? "" : `:${end}`}`);
    }
    const size = of.side * bytesOf(of.of);
    return {
      ...of,
      data: of.data.slice(first * of.side, last * of.side),
      raw: of.raw && of.raw.slice(first * size, last * size),
      states: of.states && of.states.slice(first, last),
      lanes: end === null ? [] : of.lanes.slice(first, last),
      single: end === null,
      offsets: null,
    };
  }

  /** Bytes of a memory, or elements of a variable. */
  private part(of: Area, from: number, until: number | null): Area {
    const unit = of.type ? stored(of.type).size : 1;
    let [first, end] = [from, until];
    if (!of.type && of.base && BigInt(Math.trunc(first)) >= of.base) {
      const base = Number(of.base);
      [first, end] = [first - base, end === null ? null : end - base];
    }
    const last = end ?? first + 1;
    if (!(first >= 0 && first < last) || last * unit > of.size) {
      const hex = (value: number) => (value < 0 ? `-0x${(-value).toString(16)}` : `0x${value.toString(16)}`);
      throw new Refused(
        `${of.memory} has ${of.type ? "elements" : "bytes"} 0 to ${hex(Math.floor(of.size / unit) - 1)}; given ${hex(first)}${end === null ? "" : `:${hex(end)}`}`,
      );
    }
    return { ...of, start: of.start + first * unit, size: (last - first) * unit, single: end === null };
  }

  /** The elements of a part of memory. */
  private read(of: Area): Value {
    const type = of.type || "b8";
    const one = stored(type);
    const { bytes, states } = of.at ? this.gathered(of, one.size) : of.read(of.start, of.single ? one.size : Math.min(of.size, MOST_BYTES));
    const usable = Math.floor(bytes.length / one.size) * one.size;
    if (!usable) throw new Refused(`${of.memory} has no whole ${type} at 0x${of.start.toString(16)}`);
    const raw = bytes.slice(0, usable);
    const data = this.typed.decoded(one.of, raw);
    const count = usable / one.size;
    const least = Array.from({ length: count }, (_, at) => leastOf(states.subarray(at * one.size, (at + 1) * one.size)));
    const offsets = of.at ? null : Array.from({ length: count }, (_, at) => of.start + at * one.size);
    const lanes = of.at?.lanes ?? [];
    return { of: one.of, data, side: one.side, single: of.single && !of.at, type, lanes, offsets, states: least, raw };
  }

  /** So many bytes at the place of each lane; unwritten where there is no memory. */
  private gathered(of: Area, size: number): { bytes: Uint8Array; states: Uint8Array } {
    const all = of.read(of.start, of.size);
    const { offsets } = of.at!;
    const [bytes, states] = [new Uint8Array(offsets.length * size), new Uint8Array(offsets.length * size)];
    offsets.forEach((at, lane) => {
      if (at < 0n || at > BigInt(all.bytes.length - size)) return;
      const place = Number(at);
      bytes.set(all.bytes.subarray(place, place + size), lane * size);
      states.set(all.states.subarray(place, place + size), lane * size);
    });
    return { bytes, states };
  }

  // ── arithmetic ────────────────────────────────────────────────────────────

  /** Numbers to compute with: integers have no end. */
  private numbers(value: Value): Value {
    const many = !value.single && !value.lanes.length && !value.offsets;
    if (value.side > 1 || many) throw new Refused(`${value.type} has several elements; compute with one of them`);
    return isFloat(value.of) ? value : { ...value, of: "object" };
  }

  private unary(sign: string, given: Value): Value {
    const { of, data, lanes, single } = this.numbers(given);
    if (sign === "~" && of !== "object") throw new Refused("~ takes integers");
    const done = data.map((each): Scalar => {
      if (sign === "!") return Number(each) === 0;
      if (typeof each === "number") return sign === "-" ? -each : each;
      const whole = BigInt(each);
      return sign === "-" ? -whole : sign === "~" ? ~whole : whole;
    });
    return sign === "!" ? truth(done, lanes, single) : computed(done, of, lanes, single);
  }

  private binary(sign: string, left: Value, right: Value): Value {
    let [one, other] = [this.numbers(left), this.numbers(right)];
    if (["<<", ">>", "&", "|", "^"].includes(sign) && !(one.of === "object" && other.of === "object")) throw new Refused(`${sign} takes integers`);
    if (one.of !== other.of && (one.of === "object" || other.of === "object")) {
      // An integer beside a float becomes one of its type.
      [one, other] = [this.cast(one, other), this.cast(other, one)];
    } else if (one.of !== other.of && one.single !== other.single) {
      // A constant has the type of the registers.
      const like = (each: Value, there: Value) => (each.single && each.of === "f64" ? this.rounded(each, there.of) : each);
      [one, other] = [like(one, other), like(other, one)];
    }
    if (!one.single && !other.single && (String(left.lanes) !== String(right.lanes) || one.data.length !== other.data.length)) {
      throw new Refused("lanes are computed with the same lanes");
    }
    if (sign === "%" && !(one.of === "object" && other.of === "object")) throw new Refused("% takes integers");
    const of = one.of === other.of ? one.of : one.of === "f64" || other.of === "f64" ? "f64" : "f32";
    const count = Math.max(one.single ? 1 : one.data.length, other.single ? 1 : other.data.length);
    const at = (value: Value, number: number) => value.data[value.single ? 0 : number];
    const data = Array.from({ length: count }, (_, number) => this.apply(sign, at(one, number), at(other, number), of));
    const lanes = left.lanes.length ? left.lanes : right.lanes;
    const single = one.single && other.single;
    const logical = ["==", "!=", "<", "<=", ">", ">=", "&&", "||"].includes(sign) || typeof data[0] === "boolean";
    return logical ? truth(data, lanes, single) : computed(data, of, lanes, single);
  }

  private cast(value: Value, there: Value): Value {
    return value.of === "object" ? this.rounded(value, there.of) : value;
  }

  private rounded(value: Value, of: string): Value {
    return { ...value, of, data: value.data.map((each) => this.typed.rounded(of, Number(each))), raw: null };
  }

  private apply(sign: string, left: Scalar, right: Scalar, of: string): Scalar {
    if (of !== "object") return this.applyFloats(sign, Number(left), Number(right), of);
    if (typeof left === "boolean" && typeof right === "boolean" && "&|^".includes(sign) && sign.length === 1) {
      return sign === "&" ? left && right : sign === "|" ? left || right : left !== right;
    }
    const [x, y] = [BigInt(left), BigInt(right)];
    switch (sign) {
      case "+": return x + y;
      case "-": return x - y;
      case "*": return x * y;
      case "/": return quotient(x, y);
      case "%": return x - y * quotient(x, y);
      case "<<": return x << shift(y);
      case ">>": return x >> shift(y);
      case "&": return x & y;
      case "|": return x | y;
      case "^": return x ^ y;
      default: return compared(sign, x, y);
    }
  }

  private applyFloats(sign: string, x: number, y: number, of: string): Scalar {
    const result = { "+": x + y, "-": x - y, "*": x * y, "/": x / y }[sign];
    return result === undefined ? compared(sign, x, y) : this.typed.rounded(of, result);
  }
}

function compared<T extends bigint | number>(sign: string, x: T, y: T): boolean {
  switch (sign) {
    case "==": return x === y;
    case "!=": return x !== y;
    case "<": return x < y;
    case "<=": return x <= y;
    case ">": return x > y;
    case ">=": return x >= y;
    // eslint-disable-next-line eqeqeq
    case "&&": return x != 0 && y != 0;
    default: return x != 0 || y != 0;
  }
}

/** Without the fraction, as in C; BigInt's division is that. */
function quotient(x: bigint, y: bigint): bigint {
  if (y === 0n) throw new Refused("an integer is divided by 0");
  return x / y;
}

function shift(by: bigint): bigint {
  if (by < 0n || by > 64n) throw new Refused(`a shift is by 0 to 64 bits; given ${by}`);
  return by;
}

/** The state of an element, from those of its bytes. */
function leastOf(states: Uint8Array): number {
  if (states.includes(UNWRITTEN)) return UNWRITTEN;
  return states.includes(IN_FLIGHT) ? IN_FLIGHT : WRITTEN;
}

export function computed(data: Scalar[], of: string, lanes: number[], single: boolean): Value {
  return { of, data, side: 1, single, type: "", lanes, offsets: null, states: null, raw: null };
}

function truth(data: Scalar[], lanes: number[], single: boolean): Value {
  return { of: "bool", data: data.map(Boolean), side: 1, single, type: "pred", lanes, offsets: null, states: null, raw: null };
}
