// What is in a .npy file?  A header in Python's notation, then the items in order.

import { Refused, type Given, type Table } from "./entry.js";
import { isInteger, type ElementType } from "./elements.js";
import { bitLength, fromNumber, isFraction, repr, toNumber } from "./exact.js";

interface Header {
  order: "<" | ">";
  kind: string;
  size: number;
  fortran: boolean;
  shape: number[];
  data: number;
}

/** The matrix of a file; raw bytes are taken as bits of a type that is as wide. */
export function npyTable(buffer: ArrayBuffer, name: string, type: ElementType): Table {
  const header = headerOf(buffer);
  const shape = header.shape.length === 1 ? [1, ...header.shape] : header.shape;
  if (shape.length !== 2) {
    throw new Refused(
      `the file has shape (${header.shape.join(", ")}); a matrix has two axes`,
    );
  }
  const [rows, columns] = shape;
  const read = reader(buffer, header, name, type);
  const place = (row: number, col: number) =>
    header.data +
    (header.fortran ? col * rows + row : row * columns + col) * header.size;
  if (buffer.byteLength < header.data + rows * columns * header.size) {
    throw new Refused(`the file ends before its ${rows} × ${columns} numbers do`);
  }
  const at = (row: number, col: number) => read(place(row, col));
  return { rows, columns, at, word: (row, col) => wordOf(at(row, col)) };
}

function headerOf(buffer: ArrayBuffer): Header {
  const bytes = new Uint8Array(buffer);
  const magic = String.fromCharCode(...bytes.subarray(1, 6));
  if (bytes[0] !== 0x93 || magic !== "NUMPY") {
    throw new Refused("it is not a .npy file: those begin with \\x93NUMPY");
  }
  const view = new DataView(buffer);
  const wide = bytes[6] > 1;
  const start = wide ? 12 : 10;
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  const text = String.fromCharCode(...bytes.subarray(start, start + length));
  const descr = /'descr':\s*'([<>|=]?)([a-zA-Z?])(\d*)'/.exec(text);
  const shape = /'shape':\s*\(([\d,\s]*)\)/.exec(text);
  if (!descr || !shape)
    throw new Refused(`its header is not understood: ${text.trim()}`);
  const [, order, kind, size] = descr;
  return {
    order: order === ">" ? ">" : "<",
    kind: kind === "?" ? "b" : kind,
    size: Number(size || 1),
    fortran: /'fortran_order':\s*True/.test(text),
    shape: shape[1]
      .split(",")
      .filter((each) => each.trim())
      .map(Number),
    data: start + length,
  };
}

function reader(
  buffer: ArrayBuffer,
  { order, kind, size }: Header,
  name: string,
  type: ElementType,
): (at: number) => Given {
  const view = new DataView(buffer);
  const little = order === "<";
  const whole = (top: bigint): Given => ({ top, bottom: 1n });
  const unsigned: Record<number, (at: number) => bigint> = {
    1: (at) => BigInt(view.getUint8(at)),
    2: (at) => BigInt(view.getUint16(at, little)),
    4: (at) => BigInt(view.getUint32(at, little)),
    8: (at) => view.getBigUint64(at, little),
  };
  const floats: Record<number, (at: number) => number> = {
    2: (at) => half(view.getUint16(at, little)),
    4: (at) => view.getFloat32(at, little),
    8: (at) => view.getFloat64(at, little),
  };
  const bits = unsigned[size];
  if ((kind === "u" || kind === "b") && bits) return (at) => whole(bits(at));
  if (kind === "i" && bits) return (at) => whole(BigInt.asIntN(8 * size, bits(at)));
  if (kind === "f" && floats[size]) return (at) => ratioOf(floats[size](at));
  // Types of ml_dtypes, such as float8_e4m3fn, are saved as raw bytes.
  if (kind === "V" && bits && size === type.storage) {
    // The upper bits of an int4 may hold anything.
    const integer = isInteger(type);
    return (at) => ({ raw: integer ? BigInt.asUintN(type.used, bits(at)) : bits(at) });
  }
  const what =
    kind === "V" ? `raw items of ${size} bytes` : `items of kind ${kind}${size}`;
  throw new Refused(
    `it has ${what}; numbers of f2, f4, f8, i, u or b are taken, and raw items of ` +
      `${type.storage} byte${type.storage > 1 ? "s" : ""} as bits of ${name}`,
  );
}

function half(bits: number): number {
  const [sign, field, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (field === 31) return fraction ? NaN : sign * Infinity;
  return sign * (field ? 1024 + fraction : fraction) * 2 ** (Math.max(field, 1) - 25);
}

function ratioOf(value: number): Given {
  const exact = fromNumber(value);
  if (!isFraction(exact)) return exact;
  const minusZero = Object.is(value, -0) || value < 0;
  return exact.e >= 0
    ? { top: exact.m << BigInt(exact.e), bottom: 1n, minusZero }
    : { top: exact.m, bottom: 1n << BigInt(-exact.e), minusZero };
}

function wordOf(given: Given): string {
  if (typeof given === "number") return repr(given);
  if ("raw" in given) return `0x${given.raw.toString(16)}`;
  if (given.bottom === 1n) return given.top.toString();
  return repr(toNumber({ m: given.top, e: 1 - bitLength(given.bottom) }));
}
