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
  /** The function that has it. */
  function?: string;
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
  /** The address of its first byte, as registers hold it. */
  start?: number;
  variables: Variable[];
}

/** A number of a memory, the first byte, the number of bytes. */
export type Range = [memory: number, offset: number, size: number];

/** A piece of asynchronous work; steps that were not recorded are -1. */
export interface Unit {
  kind: string;
  name: string;
  /** The instruction; -1 if it is not known. */
  site: number;
  issued: number;
  done: number;
  waited: number;
  /** When its source was read, if that was before it was done. */
  read?: number;
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
  /** The step, the phase, the arrivals and the bytes that it then waits for. */
  phases?: [step: number, phase: number, pending: number, bytes?: number, expected?: number][];
  uses?: [step: number, warps: number[]][];
}

export interface Problem {
  /** As in the text of the report. */
  number: number;
  code: string;
  words: string;
  hint: string;
  /** Of both accesses, the earlier first; -1 where it was not recorded. */
  steps: number[];
  /** The units that they belong to, or -1. */
  units: number[];
  memory: number;
  offset: number;
  size: number;
  /** The instruction that would make the order. */
  missing: string;
}

/** Whether a problem is about one step, as a fault is, and not about two accesses. */
export const isAlone = ({ steps, memory }: Problem): boolean => memory < 0 && steps[0] < 0;

/** Lines of a file that are lines of a file of the first run: a line of each, how many. */
export interface LinePair {
  name: string;
  first: string;
  blocks: [mine: number, theirs: number, count: number][];
}

/** What numerics found: errors of arrays in columns, and what instructions lost. */
export interface Numerics {
  /** The bytes of an element, how many there are, where they begin in the columns, and the
   * bits of the format; where errors over time begin, and how many there are. */
  outputs: { memory: number; each: number; count: number; at: number; most: number; from?: number; moments?: number }[];
  sites: { site: number; bits: number; words: string }[];
}

export type ColumnType = "u8" | "u16" | "u32" | "i32";

export interface Head {
  /** If the launch had numerics, too.  Beside others: what the run is called, which lines the first run has, too, and the
   * fields that are the same there. */
  numerics?: Numerics;
  name?: string;
  lines?: LinePair[];
  same?: string[];
  kernel: string;
  target: string;
  schedule: string;
  grid: number[];
  block: number[];
  cluster: number[] | null;
  /** The number in the run of the first step kept, and how many steps the run had. */
  first?: number;
  total?: number;
  left_out: string;
  files: { name: string; text: string }[];
  sites: Site[];
  registers: Register[];
  warps: Warp[];
  memories: Memory[];
  units: Unit[];
  barriers: Barrier[];
  problems: Problem[];
  columns: Record<string, { type: ColumnType; count: number; same?: boolean }>;
}

/** NumPy's names of types that PTX calls otherwise. */
const TYPES: Record<string, string> = {
  bool: "u8", bfloat16: "bf16", float8_e4m3fn: "e4m3", float8_e4m3: "e4m3", float8_e5m2: "e5m2",
  float8_e8m0fnu: "ue8m0",
};

function typeName(type: string): string {
  const known = /^(float|int|uint)(\d+)$/.exec(type);
  if (known) return { float: "f", int: "s", uint: "u" }[known[1]]! + known[2];
  return TYPES[type] ?? type;
}

/** The head of a run; what is the same in the first run is taken from there. */
export function readHead(text: string, first?: Head): Head {
  const own = JSON.parse(text) as Head;
  const taken = (own.same ?? []).map((name) => [name, first?.[name as keyof Head]]);
  const head = { ...Object.fromEntries(taken), ...own } as Head;
  if (own.same?.includes("memories")) return head;
  for (const { variables } of head.memories) {
    for (const variable of variables) variable[3] = typeName(variable[3]);
  }
  return head;
}
