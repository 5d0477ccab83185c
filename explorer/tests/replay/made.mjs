// A recording made by hand: two warps, a copy that one of them waits for too late, a NaN.
// The producer copies a tile of 128 floats into one of two stages of shared memory and
// arrives at an mbarrier; the consumer waits for it, and stores a function of the tile.

import { deflateRawSync } from "node:zlib";

const LINES = {
  "scale.cu": `// Each warp has a role: warp 0 copies tiles, warp 1 computes.
__global__ void scale(const float4 *in, float *out, int tiles) {
  __shared__ float4 tile[2][32];
  __shared__ barrier full[2];
  int lane = threadIdx.x % 32;
  for (int t = 0; t < tiles; ++t) {
    int stage = t % 2;
    if (threadIdx.x < 32) {
      cp_async(&tile[stage][lane], &in[32 * t + lane]);
      cp_async_commit();
      if (t != 2) cp_async_wait<0>();
      full[stage].arrive();
    } else {
      while (!full[stage].try_wait(t / 2 % 2)) { }
      float4 v = tile[stage][lane];
      out[32 * t + lane] = fma(v.z, v.w, v.x * v.y);
    }
    __syncthreads();
  }
}`,
  "scale.ptx": `.version 8.3
.target sm_90a
.address_size 64

.visible .entry scale(.param .u64 in, .param .u64 out, .param .u32 tiles)
{
  .shared .align 16 .f32 tile[256];
  .shared .align 8 .b64 full[2];
  .shared .align 4 .u32 spare[16];
  .reg .b32 %r<9>; .reg .b64 %rd<5>; .reg .f32 %f<7>; .reg .pred %p<4>;

  mov.u32 %r1, %laneid;
  mov.u32 %r2, 0;
$LOOP:
  and.b32 %r3, %r2, 1;
  @%p0 bra $CONSUME;
  mad.wide.u32 %rd1, %r2, 512, %rd0;
  cp.async.cg.shared.global [%r4], [%rd1], 16;
  cp.async.commit_group;
  cp.async.wait_group 0;
  mbarrier.arrive.shared.b64 _, [%r5];
  bra $NEXT;
$CONSUME:
  mbarrier.try_wait.parity.shared.b64 %p1, [%r5], %r6;
  @!%p1 bra $CONSUME;
  ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r4];
  mul.f32 %f5, %f1, %f2;
  fma.rn.f32 %f6, %f3, %f4, %f5;
  mad.wide.u32 %rd2, %r2, 128, %rd3;
  st.global.f32 [%rd2], %f6;
$NEXT:
  bar.sync 0;
  add.s32 %r2, %r2, 1;
  setp.lt.s32 %p2, %r2, %r7;
  @%p2 bra $LOOP;
  ret;
}`,
};

const REGISTERS = [
  ...["%r1", "%r2", "%r3", "%r4", "%r5", "%r6"].map((name) => [name, "b32", 32]),
  ...["%rd1", "%rd2"].map((name) => [name, "b64", 64]),
  ...["%f1", "%f2", "%f3", "%f4", "%f5", "%f6"].map((name) => [name, "f32", 32]),
  ...["%p0", "%p1", "%p2"].map((name) => [name, "pred", 1]),
].map(([name, type, bits]) => ({ name, type, bits }));

const number = Object.fromEntries(REGISTERS.map(({ name }, at) => [name, at]));

/** A line of the PTX, the line of the source, what it writes and reads. */
const SITES = [
  [12, 5, "%r1"],
  [13, 6, "%r2"],
  [15, 7, "%r3", "%r2"],
  [16, 8, "", "%p0"],
  [17, 9, "%rd1", "%r2"],
  [18, 9, "", "%r4 %rd1"],
  [19, 10],
  [20, 11],
  [21, 12, "", "%r5"],
  [22, 12],
  [24, 14, "%p1", "%r5 %r6"],
  [25, 14, "", "%p1"],
  [26, 15, "%f1 %f2 %f3 %f4", "%r4"],
  [27, 16, "%f5", "%f1 %f2"],
  [28, 16, "%f6", "%f3 %f4 %f5"],
  [29, 16, "%rd2", "%r2"],
  [30, 16, "", "%rd2 %f6"],
  [32, 18],
  [33, 6, "%r2", "%r2"],
  [34, 6, "%p2", "%r2"],
  [35, 6, "", "%p2"],
  [36, 20],
].map(([ptx_line, line, writes = "", reads = ""], index) => {
  const text = LINES["scale.ptx"].split("\n")[ptx_line - 1].trim();
  const ids = (names) => names.split(" ").filter(Boolean).map((name) => number[name]);
  return {
    function: "scale", index, opcode: text.replace(/^@!?%p\d+ /, "").split(/[ ;]/)[0], text,
    ptx_line, file: "scale.cu", line, writes: ids(writes), reads: ids(reads),
  };
});
const [MOV, ZERO, STAGE, SPLIT, FROM, COPY, COMMIT, WAIT, ARRIVE, SKIP, TRY, AGAIN, LOAD, MUL, FMA, TO, STORE, BAR, ADD, LESS, BACK, RET] =
  SITES.keys();

const TYPES = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, i32: Int32Array };
const COLUMNS = {
  site: "u32", warp: "u16", lanes: "u32", at: "u32", words: "u32",
  w_step: "u32", w_memory: "u16", w_offset: "u32", w_size: "u16", w_lane: "u16", w_unit: "i32", w_at: "u32", bytes: "u8",
  r_step: "u32", r_memory: "u16", r_offset: "u32", r_size: "u16", r_lane: "u16", r_unit: "i32",
  initial: "u8", defined: "u8", i_warp: "u16", i_register: "u32", i_at: "u32", i_lanes: "u32",
  u_step: "u32", u_warp: "u16", u_register: "u32", u_unit: "i32", u_at: "u32",
};
const ALL = 0xffffffff;
const LANES = Array.from({ length: 32 }, (_, lane) => lane);
const [SHARED, IN, OUT] = [0, 1, 2];
const FULL = 1024; // where the mbarriers are

const bits = new DataView(new ArrayBuffer(8));
const word = (value) => (bits.setFloat32(0, value), bits.getUint32(0));
const littleEndian = (value) => [0, 8, 16, 24].map((by) => (value >>> by) & 255);

class Maker {
  constructor(tiles, kept) {
    this.kept = kept;
    this.columns = Object.fromEntries(Object.keys(COLUMNS).map((name) => [name, []]));
    this.memories = [new Uint8Array(1104), new Uint8Array(512 * kept), new Uint8Array(128 * kept)];
    this.units = [];
    this.phases = [[], []];
    this.uses = [];
    this.problems = [];
    const input = new Float32Array(this.memories[IN].buffer);
    input.forEach((_, at) => (input[at] = ((at * 7) % 23) / 4 - 2));
    if (tiles > 3) [input[3 * 128 + 20], input[3 * 128 + 21]] = [Infinity, 0]; // lane 5 of tile 3
    const defined = [1104, 512 * kept, 128 * kept].flatMap((size, memory) =>
      Array.from({ length: size }, () => (memory === IN ? 1 : 0)),
    );
    this.columns.initial = this.memories.flatMap((each) => [...each]);
    for (let at = 0; at < defined.length; at += 8) {
      this.columns.defined.push(defined.slice(at, at + 8).reduce((sum, bit, by) => sum | (bit << by), 0));
    }
  }

  get now() {
    return this.columns.site.length - 1;
  }

  step(warp, site, ...values) {
    const c = this.columns;
    c.at.push(c.words.length);
    c.site.push(site);
    c.warp.push(warp);
    c.lanes.push(ALL);
    for (const each of values) for (const value of each) c.words.push(value);
    return this.now;
  }

  write(memory, offset, data, lane, unit = -1) {
    const c = this.columns;
    c.w_step.push(this.now); c.w_memory.push(memory); c.w_offset.push(offset);
    c.w_size.push(data.length); c.w_lane.push(lane); c.w_unit.push(unit); c.w_at.push(c.bytes.length);
    for (const value of data) c.bytes.push(value);
    this.memories[memory].set(data, offset);
  }

  read(memory, offset, size, lane, unit = -1) {
    const c = this.columns;
    c.r_step.push(this.now); c.r_memory.push(memory); c.r_offset.push(offset);
    c.r_size.push(size); c.r_lane.push(lane); c.r_unit.push(unit);
  }

  issue(tile, stage) {
    const unit = { kind: "cp.async", name: `cp.async group ${this.units.length}`, issued: this.now, done: -1, waited: -1, warp: 0, bytes: 512, writes: [[SHARED, 512 * stage, 512]] };
    this.units.push(unit);
    return () => {
      const [number, from] = [this.units.indexOf(unit), 512 * (tile % this.kept)];
      this.read(IN, from, 512, 65535, number);
      this.write(SHARED, 512 * stage, this.memories[IN].slice(from, from + 512), 65535, number);
      unit.done = this.now;
    };
  }
}

function produce(made, tile, pending, wrong) {
  const stage = tile % 2;
  made.step(0, STAGE, LANES.map(() => stage));
  made.step(0, SPLIT);
  made.step(0, FROM, LANES.flatMap((lane) => [0x1000 + 512 * tile + 16 * lane, 0x7f]));
  made.step(0, COPY);
  pending.push(made.issue(tile, stage));
  made.step(0, COMMIT);
  if (!wrong) {
    made.step(0, WAIT);
    const before = made.units.length - pending.length;
    for (const [at, finish] of pending.entries()) {
      finish();
      made.units[before + at].waited = made.now;
    }
    pending.length = 0;
  }
}

function consume(made, tile) {
  const stage = tile % 2;
  const floats = new Float32Array(made.memories[SHARED].buffer);
  made.step(1, LOAD, ...[0, 1, 2, 3].map((part) => LANES.map((lane) => word(floats[128 * stage + 4 * lane + part]))));
  for (const lane of LANES) made.read(SHARED, 512 * stage + 16 * lane, 16, lane);
  const v = (part) => LANES.map((lane) => floats[128 * stage + 4 * lane + part]);
  const product = v(0).map((x, lane) => Math.fround(x * v(1)[lane]));
  made.step(1, MUL, product.map(word));
  const sum = v(2).map((x, lane) => Math.fround(x * v(3)[lane] + product[lane]));
  made.step(1, FMA, sum.map(word));
  made.step(1, TO, LANES.flatMap((lane) => [0x9000 + 128 * tile + 4 * lane, 0x7f]));
  made.step(1, STORE);
  for (const lane of LANES) made.write(OUT, (128 * tile + 4 * lane) % (128 * made.kept), littleEndian(word(sum[lane])), lane);
}

/** A recording of some tiles; the wait for tile 2 is missing. */
export function make(tiles = 5, kept = Math.min(tiles, 8)) {
  const made = new Maker(tiles, kept);
  const pending = [];
  for (const warp of [0, 1]) {
    made.step(warp, MOV, LANES);
    made.step(warp, ZERO, LANES.map(() => 0));
  }
  for (let tile = 0; tile < tiles; tile += 1) {
    const stage = tile % 2;
    const wrong = tile === 2;
    made.step(1, STAGE, LANES.map(() => stage));
    made.step(1, SPLIT);
    produce(made, tile, pending, wrong);
    made.step(1, TRY, [0]);
    made.step(1, AGAIN);
    made.step(0, ARRIVE);
    made.phases[stage].push([made.now, (tile >> 1) + 1, 32, 0]);
    made.write(SHARED, FULL + 8 * stage, [tile & 255, 0, 0, 0, 32, 0, 0, 0], 0);
    made.step(0, SKIP);
    made.step(1, TRY, [ALL]);
    made.step(1, AGAIN);
    consume(made, tile);
    if (wrong) {
      const read = made.now - 4;
      made.problems.push({
        number: 1, code: "read-before-arrival",
        words: "warp 1 reads shared memory that cp.async may still be writing: nothing waits for the copy.",
        hint: "Wait for the copy before arriving.",
        steps: [made.units.at(-1).issued, read], units: [made.units.length - 1, -1], memory: SHARED, offset: 0, size: 512, missing: "cp.async.wait_group 0",
      });
    }
    for (const warp of [0, 1]) made.step(warp, BAR);
    made.uses.push([made.now, [0, 1]]);
    for (const warp of [0, 1]) {
      made.step(warp, ADD, LANES.map(() => tile + 1));
      made.step(warp, LESS, [tile + 1 < tiles ? ALL : 0]);
      made.step(warp, BACK);
    }
  }
  for (const warp of [0, 1]) made.step(warp, RET);
  return packed(made, tiles);
}

function packed(made, tiles) {
  const columns = {};
  const data = {};
  for (const [name, type] of Object.entries(COLUMNS)) {
    data[name] = TYPES[type].from(made.columns[name]);
    columns[name] = { type, count: data[name].length };
  }
  const head = {
    kernel: "scale", target: "sm_90a", schedule: "lazy", grid: [1, 1, 1], block: [64, 1, 1], cluster: null,
    left_out: "", files: ["scale.ptx", "scale.cu"].map((name) => ({ name, text: LINES[name] })),
    sites: SITES, registers: REGISTERS,
    warps: [0, 1].map((warp) => ({ block: 0, warp, threads: 32 })),
    memories: [
      { name: "shared", kind: "shared", block: 0, size: 1104, variables: [["tile", 0, 1024, "f32"], ["full", FULL, 16, "b64"], ["spare", 1040, 64, "u32"]] },
      { name: "in", kind: "global", block: -1, size: 512 * made.kept, variables: [["in", 0, 512 * made.kept, "f32"]] },
      { name: "out", kind: "global", block: -1, size: 128 * made.kept, variables: [["out", 0, 128 * made.kept, "f32"]] },
    ],
    units: made.units,
    barriers: [
      ...made.phases.map((phases, at) => ({ kind: "mbarrier", name: `full[${at}]`, memory: SHARED, offset: FULL + 8 * at, phases })),
      { kind: "bar.sync", name: "barrier 0", block: 0, uses: made.uses },
    ],
    problems: made.problems,
    columns,
  };
  const parts = Object.values(data).map((array) => {
    const bytes = Buffer.alloc(Math.ceil(array.byteLength / 4) * 4);
    bytes.set(new Uint8Array(array.buffer));
    return bytes;
  });
  return { head, data, tiles, packed: deflateRawSync(Buffer.concat(parts)).toString("base64") };
}

/** The page with a recording in it. */
export function filled(html, { head, packed }) {
  const json = JSON.stringify(head).replaceAll("<", "\\u003c");
  const record =
    `<script type="application/json" id="replay-head">${json}</script>\n` +
    `<script type="application/octet-stream" id="replay-data">${packed}</script>\n`;
  return html.replace("<!-- replay -->", () => record);
}
