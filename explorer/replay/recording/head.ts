// What the page is given besides the columns: everything that is small.

export interface Site {
  function: string;
  index: number;
  opcode: string;
  text: string;
  ptx_line: number;
  file: string;
  line: number;
  /** Numbers of registers. */
  writes: number[];
  reads: number[];
}

export interface Register {
  name: string;
  /** As PTX declares it: ``f32``, ``b64``, ``pred`` … */
  type: string;
  bits: number;
}

export interface Warp {
  block: number | number[];
  warp: number;
  threads: number;
}

/** Name, first byte, number of bytes, type of the elements. */
export type Variable = [name: string, offset: number, size: number, type: string];

export interface Memory {
  name: string;
  kind: string;
  block: number | number[];
  size: number;
  variables: Variable[];
}

/** A number of a memory, the first byte, the number of bytes. */
export type Range = [memory: number, offset: number, size: number];

/** A piece of asynchronous work; steps that were not recorded are -1. */
export interface Unit {
  kind: string;
  name: string;
  issued: number;
  done: number;
  waited: number;
  warp: number;
  bytes: number;
  writes: Range[];
}

/** An mbarrier with its phases, or a barrier of warps with its uses. */
export interface Barrier {
  kind: string;
  name: string;
  memory?: number;
  offset?: number;
  phases?: [step: number, phase: number, pending: number][];
  uses?: [step: number, warps: number[]][];
}

export interface Problem {
  /** As in the text of the report. */
  number: number;
  code: string;
  words: string;
  /** Of both accesses; -1 where it was not recorded. */
  steps: number[];
  memory: number;
  offset: number;
  size: number;
  /** The instruction that would make the order. */
  missing: string;
}

export type ColumnType = "u8" | "u16" | "u32" | "i32";

export interface Head {
  kernel: string;
  target: string;
  schedule: string;
  grid: number[];
  block: number[];
  cluster: number[] | null;
  left_out: string;
  files: { name: string; text: string }[];
  sites: Site[];
  registers: Register[];
  warps: Warp[];
  memories: Memory[];
  units: Unit[];
  barriers: Barrier[];
  problems: Problem[];
  columns: Record<string, { type: ColumnType; count: number }>;
}
