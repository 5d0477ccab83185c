// Unpacks the columns: base64 of raw deflate of typed arrays, one after the other, each
// padded to four bytes.

import type { ColumnType, Head } from "./head.js";

type Whole = Uint8Array | Uint16Array | Uint32Array | Int32Array;

export interface Columns {
  /** Per step: where it stands, who ran it, with which lanes, where its values begin. */
  site: Uint32Array;
  warp: Uint16Array;
  lanes: Uint32Array;
  at: Uint32Array;
  words: Uint32Array;
  w_step: Uint32Array;
  w_memory: Uint16Array;
  w_offset: Uint32Array;
  w_size: Uint16Array;
  w_lane: Uint16Array;
  w_unit: Int32Array;
  w_at: Uint32Array;
  bytes: Uint8Array;
  r_step: Uint32Array;
  r_memory: Uint16Array;
  r_offset: Uint32Array;
  r_size: Uint16Array;
  r_lane: Uint16Array;
  r_unit: Int32Array;
  initial: Uint8Array;
  defined: Uint8Array;
  /** Registers before the first step, if the run began earlier. */
  i_warp: Uint16Array;
  i_register: Uint32Array;
  i_at: Uint32Array;
  /** The lanes that have a value there. */
  i_lanes: Uint32Array;
  /** Errors of elements: the exact value as f64, the others as f32. */
  e_exact: Uint32Array;
  e_error: Uint32Array;
  e_ulp: Uint32Array;
  e_lost: Uint32Array;
  /** Registers that units wrote, before a step was done; ``u_step`` may be the number of
   * steps: after the last one. */
  u_step: Uint32Array;
  u_warp: Uint16Array;
  u_register: Uint32Array;
  u_unit: Int32Array;
  u_at: Uint32Array;
  /** Bytes that units copied as they are, in the order of the units: where they are, and
   * where they come from. */
  c_unit: Int32Array;
  c_memory: Uint16Array;
  c_offset: Uint32Array;
  c_from: Uint16Array;
  c_at: Uint32Array;
  c_size: Uint32Array;
  /** Errors over time, in the order of elements and steps: an element has them from a step
   * on; whether they are known; the same as those of ``e_``. */
  h_element: Uint32Array;
  h_step: Int32Array;
  h_known: Uint8Array;
  h_exact: Uint32Array;
  h_error: Uint32Array;
  h_ulp: Uint32Array;
  h_lost: Uint32Array;
}

const VIEWS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, i32: Int32Array };

/** Where each column begins and ends, as bytes. */
function places(columns: Head["columns"]): [string, ColumnType, number, number][] {
  let at = 0;
  return Object.entries(columns).map(([name, { type, count, same }]) => {
    if (same) return [name, type, -1, count];
    const begin = at;
    at += Math.ceil((count * VIEWS[type].BYTES_PER_ELEMENT) / 4) * 4;
    return [name, type, begin, count];
  });
}

/** The columns of a run; those that are the same in the first run are taken from there. */
export function split(head: Head, buffer: ArrayBuffer, first?: Columns): Columns {
  const found: Record<string, Whole> = {};
  for (const [name, type, begin, count] of places(head.columns)) {
    if (begin < 0) {
      found[name] = first![name as keyof Columns];
      continue;
    }
    if (begin + count * VIEWS[type].BYTES_PER_ELEMENT > buffer.byteLength) {
      throw new Error(`The column ${name} is cut off: the file is not complete.`);
    }
    found[name] = new VIEWS[type](buffer, begin, count);
  }
  return found as unknown as Columns;
}

export async function inflate(text: string): Promise<ArrayBuffer> {
  const letters = atob(text.trim());
  const packed = new Uint8Array(letters.length);
  for (let at = 0; at < packed.length; at++) packed[at] = letters.charCodeAt(at);
  const stream = new Blob([packed]).stream();
  const plain = stream.pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(plain).arrayBuffer();
}
