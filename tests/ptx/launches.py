"""The launches of the corpus that are recorded, and how each source is compiled.

A row names the source, the entry, grid, block and arguments.  Sizes are small: an
engine on one core has to replay all of them in well under a minute.
"""

from __future__ import annotations

import struct as c_struct
from typing import Any, NamedTuple

from fragmenta.inspect.evidence.arguments import (
    Spec,
    bits,
    counting,
    full,
    integers,
    normal,
    output,
    scalar,
    special,
    struct,
    uniform,
    values,
    wide,
)

Size = int | tuple[int, ...]


class Row(NamedTuple):
    """One launch to record."""

    source: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: list[Spec]
    shared: int = 0
    tag: str = ""
    """Tells launches of one entry apart."""

    @property
    def name(self) -> str:
        """The entry, and the tag if there is one."""
        return f"{self.entry}-{self.tag}" if self.tag else self.entry


# Compiled as (target, options).  Options name a variant of their own.
PLAIN = (("sm_80", ""), ("sm_90a", ""))
COMPILED: dict[str, tuple[tuple[str, str], ...]] = {
    "wmma": (("sm_80", "-lineinfo"), ("sm_90a", "")),
    "attention": (*PLAIN, ("sm_80", "-use_fast_math")),
    "layers": (("sm_80", "-lineinfo"), ("sm_90a", ""), ("sm_90a", "-use_fast_math")),
    "maths": (*PLAIN, ("sm_80", "-use_fast_math")),
    "memory": (("sm_80", ""), ("sm_90a", "-lineinfo")),
    "simulation": (*PLAIN, ("sm_80", "-fmad=false")),
    "control": (*PLAIN, ("sm_80", "-G")),
    "reduce": (*PLAIN, ("sm_90a", "-G")),
    "modern": (("sm_80", "-lineinfo"), ("sm_90a", "")),
}


def compiled(source: str) -> tuple[tuple[str, str], ...]:
    """The targets and options of a source."""
    return COMPILED.get(source, PLAIN)


ROWS: list[Row] = []
_SOURCE = [""]


def i32(value: int) -> Spec:
    return scalar("i32", value)


def f32(value: float) -> Spec:
    return scalar("f32", value)


def source(name: str) -> None:
    """The rows that follow are of this source."""
    _SOURCE[0] = name


def launch(entry: str, grid: Size, block: Size, *arguments: Spec, **more: Any) -> None:
    sizes = [(n,) if isinstance(n, int) else n for n in (grid, block)]
    three = [(*n, 1, 1)[:3] for n in sizes]
    row = Row(_SOURCE[0], entry, three[0], three[1], list(arguments), **more)
    if any((r.source, r.name) == (row.source, row.name) for r in ROWS):
        raise ValueError(f"{row.name} of {row.source} stands twice; give it a tag")
    ROWS.append(row)


# One launch is one line or a few, laid out by hand: formatted, most would have one line
# for each argument, and the file 1,071 lines instead of 367.
# fmt: off

# ── matrix products ─────────────────────────────────────────────────────────

source("wmma")
for name, a, b, c, m, n, k in [
    ("wmma_f16_f32", "f16", "f16", "f32", 64, 64, 64),
    ("wmma_f16_f16", "f16", "f16", "f16", 64, 64, 48),
    ("wmma_bf16", "bf16", "bf16", "f32", 32, 64, 64),
    ("wmma_tf32", "f32", "f32", "f32", 32, 64, 40),
    ("wmma_f64", "f64", "f64", "f64", 32, 32, 32),
]:
    launch(name, 4, 128, normal(a, m, k), normal(b, k, n), normal(c, m, n),
           output(c, m, n), i32(m), i32(n), i32(k))
launch("wmma_f16_f32", 1, 128, special("f16", 32, 32), wide("f16", 32, 32, low=-24, high=14),
       wide("f32", 32, 32, low=-30, high=30), output("f32", 32, 32), i32(32), i32(32), i32(32),
       tag="special")
launch("wmma_tf32", 1, 128, special("f32", 32, 32), wide("f32", 32, 32, low=-60, high=60),
       wide("f32", 32, 32, low=-30, high=30), output("f32", 32, 32), i32(32), i32(32), i32(32),
       tag="special")
for name, kind in [("wmma_s8", "i8"), ("wmma_u8", "u8")]:
    launch(name, 4, 128, bits(kind, 64, 64), bits(kind, 64, 64), bits("i32", 64, 64),
           output("i32", 64, 64), i32(64), i32(64), i32(64))
launch("wmma_s4", 2, 64, bits("u8", 16, 32), bits("u8", 16, 32), output("i32", 16, 16), i32(16), i32(64))
launch("wmma_b1", 2, 64, bits("u32", 16, 8), bits("u32", 16, 8), output("i32", 16, 16), i32(16), i32(256))
launch("wmma_epilogue", 2, 128, normal("f16", 8, 256), normal("f16", 8, 256), normal("f16", 8, 256),
       output("f16", 8, 256), output("f32", 8), f32(1.5), f32(-0.75))

source("pipelines")
for name, a, b, d, stages, bits_each in [
    ("gemm_f16_3_stages", "f16", "f16", "f32", 3, 16),
    ("gemm_bf16_2_stages", "bf16", "bf16", "f32", 2, 16),
    ("gemm_tf32_3_stages", "f32", "f32", "f32", 3, 32),
    ("gemm_e4m3", "e4m3", "e4m3", "f32", 3, 8),
    ("gemm_e5m2_e4m3", "e5m2", "e4m3", "f32", 2, 8),
]:
    k = 256 * 8 // bits_each
    launch(name, (1, 2), 128, normal(a, 128, k), normal(b, 64, k), output(d, 128, 64), i32(64), i32(256),
           shared=stages * 8192)
for name, a, b, stages in [
    ("gemm_s8_4_stages", "i8", "i8", 4),
    ("gemm_u8_s8", "u8", "i8", 2),
    ("gemm_s4", "u8", "u8", 2),
    ("gemm_b1", "u8", "u8", 2),
]:
    launch(name, (2, 1), 128, bits(a, 64, 320), bits(b, 128, 320), output("i32", 64, 128), i32(128), i32(320),
           shared=stages * 8192)
launch("gemm_f16_3_stages", (4, 4), 128, normal("f16", 256, 256), normal("f16", 256, 256),
       output("f32", 256, 256), i32(256), i32(512), shared=3 * 8192, tag="256")
launch("gemm_f16_3_stages", 1, 128, special("f16", 64, 64), wide("f16", 64, 64, low=-24, high=15),
       output("f32", 64, 64), i32(64), i32(128), shared=3 * 8192, tag="special")
launch("gemm_bf16_2_stages", 1, 128, special("bf16", 64, 64), wide("bf16", 64, 64, low=-130, high=120),
       output("f32", 64, 64), i32(64), i32(128), shared=2 * 8192, tag="special")
launch("gemm_e4m3", 1, 128, bits("u8", 64, 64), bits("u8", 64, 64), output("f32", 64, 64), i32(64), i32(64),
       shared=3 * 8192, tag="special")
launch("gemm_f16_trans", (2, 4), 32, normal("f16", 64, 96), normal("f16", 96, 64), normal("f16", 64),
       output("f16", 64, 64), i32(64), i32(96))
launch("gemm_f16_ragged", (4, 3), 32, normal("f16", 37, 48), normal("f16", 27, 48), output("f32", 37, 27),
       i32(37), i32(27), i32(45), i32(48))
launch("gemm_f64_split_k", (4, 4), 64, normal("f64", 32, 48), normal("f64", 32, 48), output("f64", 32, 32),
       i32(32), i32(48))

source("sparse")
launch("sparse_f16", 4, 32, normal("f16", 16, 128), normal("f16", 32, 128), output("f32", 16, 32),
       output("u32", 128), i32(32), i32(128))
launch("sparse_s8", 4, 32, bits("i8", 16, 256), bits("i8", 32, 256), output("i32", 16, 32), i32(32), i32(256))

source("attention")
for tag, causal, length in [("whole", 0, 128), ("causal", 1, 256)]:
    launch("flash_attention", (length // 64, 2), 128, normal("f16", 2, length, 64), normal("f16", 2, length, 64),
           normal("f16", 2, length, 64), output("f16", 2, length, 64), output("f32", 2, length), i32(length),
           i32(causal), f32(0.125 * 1.4426950408889634), tag=tag)
launch("attention_by_warp", 25, 128, normal("f32", 99, 64), normal("f32", 99, 64), normal("f32", 99, 64),
       output("f32", 99, 64), i32(99))

source("layers")
launch("layernorm", 8, 96, normal("f32", 8, 200), normal("f32", 200), normal("f32", 200), output("f32", 8, 200),
       i32(200), f32(1e-5))
launch("layernorm_welford", 4, (32, 4), normal("f32", 16, 150), output("f32", 16, 150), i32(150))
launch("rmsnorm_bf16", 6, 64, normal("bf16", 6, 256), normal("bf16", 256), output("bf16", 6, 256), i32(128))
launch("softmax", 8, 96, normal("f32", 8, 250, scale=4.0), output("f32", 8, 250), i32(250))
launch("activations", 16, 256, wide("f32", 4000, low=-20, high=6), *[output("f32", 4000)] * 5, i32(4000))
launch("rotary", 8, 32, normal("f16", 8, 128), values("i32", [0, 1, 7, 1000, 65535, 400000, 9999999, 33]), i32(64))
launch("cross_entropy", 12, 32, normal("f16", 12, 100, scale=3.0), integers("i64", 12, low=0, high=100),
       output("f32", 12), output("f16", 12, 100), i32(100))

# ── threads that work together ──────────────────────────────────────────────

source("reduce")
launch("reduce_shuffle", 3, 128, normal("f32", 50000), output("f32", 12), i32(50000))
launch("reduce_tree", 4, 256, normal("f64", 1024), output("f64", 4), shared=2048)
launch("reduce_redux", 4, 128, bits("u32", 512), output("u32", 128))
launch("votes", 2, 128, integers("i32", 256, low=-1000, high=1000), output("u32", 256 * 6))
launch("shuffles", 2, 128, bits("i32", 256), output("i32", 256 * 6))
launch("barrier_reductions", 6, 96, integers("i32", 576, low=0, high=100), output("i32", 18))
launch("reduce_last_block", 10, 128, bits("i32", 60000), output("i64", 10), output("i64", 1), i32(60000))
launch("argmax", 4, 128, normal("f32", 40000), full("u64", 1), i32(40000))
launch("cooperative", 2, 96, integers("i32", 192, low=0, high=5000), output("i32", 192 * 6))
launch("extremes", 1, 32, special("f32", 4000), output("f32", 3), i32(4000))

source("scan")
launch("scan_warp", 4, 128, normal("f32", 512), output("f32", 512))
launch("scan_tree", 3, 128, integers("i32", 768, low=-99, high=100), output("i32", 768), shared=1024)
launch("scan_look_back", 63, 128, integers("i32", 8000, low=-99, high=100), output("i32", 8000), full("u64", 63),
       full("u32", 1), i32(8000))
launch("scan_segmented", 4, 128, normal("f32", 512), integers("u8", 512, low=0, high=2), output("f32", 512))
launch("compact", 1, 256, bits("i16", 6000), output("i16", 6000), output("i32", 1), i32(6000))

source("sort")
launch("sort_bitonic", 2, 1024, normal("f32", 2048), shared=4096)
launch("sort_warp_pairs", 2, 128, bits("u64", 256), integers("i32", 256, low=0, high=999))
launch("sort_radix", 6, 256, bits("u32", 1536), output("u32", 1536), i32(32))
launch("merge_path", 2, 64, integers("i32", 700, low=0, high=500, ordered=True),
       integers("i32", 500, low=0, high=500, ordered=True), output("i32", 1200), i32(700), i32(500), i32(10))
launch("top_k", 6, 32, normal("f32", 6, 300), output("f32", 6, 8), output("i32", 6, 8), i32(300), i32(8))

source("atomics")
launch("histogram_shared", 4, 128, bits("u8", 100000), full("u32", 256), i32(100000))
launch("histogram_aggregated", 4, 128, integers("i32", 500, low=0, high=20), full("i32", 20), output("i32", 500),
       i32(500))
launch("add_floats", 4, 256, integers("i32", 1024, low=0, high=32), integers("f32", 1024, low=-8, high=9),
       full("f32", 32), full("f64", 32), full("f16", 64), full("bf16", 64), full("f16", 32))
launch("integer_atomics", 4, 128, bits("i32", 512), bits("i32", 12), bits("u32", 16), bits("i64", 8),
       bits("u64", 12), bits("u32", 12))
launch("cas_loops", 2, 64, normal("f32", 128), full("f32", 1, value=1.0), full("f64", 1), full("u64", 1))
launch("cas_16_bit", 2, 128, bits("u16", 256), full("u16", 16))
launch("cas_128", 2, 64, bits("u32", 128), full("u64", 2))
launch("add_vectors", 2, 128, integers("i32", 256, low=0, high=8), integers("f32", 256, low=-8, high=9),
       full("f32", 16), full("f32", 32))
launch("exchange", 4, 96, integers("i32", 384, low=1, high=10000), full("i32", 4), full("i32", 4), bits("u64", 8))
launch("hash_table", 1, 256, integers("i32", 256, low=0, high=5000), output("i32", 512), full("i32", 64),
       output("i32", 256), i32(512), shared=2048)
launch("components", 1, 128, integers("i32", 180, 2, low=0, high=256), output("i32", 256), i32(256), i32(180))

source("locks")
launch("lock_lanes", 2, 64, integers("i32", 128, low=0, high=1000), output("i32", 2), full("i32", 1))
launch("lock_blocks", 8, 64, integers("i32", 512, low=0, high=1000), full("i32", 1), full("i32", 64))
launch("chain", 10, 64, normal("f32", 640), output("f32", 640), full("i32", 1), full("i32", 1))
launch("producer_consumer", 3, 128, normal("f32", 3, 9, 64), output("f32", 192), i32(9))
launch("half_blocks", 2, 256, integers("i32", 512, low=-50, high=50), output("u32", 512))
launch("subsets", 2, 64, integers("i32", 128, low=0, high=1000), output("i32", 128))

source("spin")
launch("lock_spin", 2, 64, integers("i32", 128, low=0, high=1000), output("i32", 2))
launch("exits", 2, 256, integers("i32", 512, low=0, high=1000), output("i32", 512), i32(200))
launch("hand_on", 1, 32, integers("i32", 32, low=0, high=1000), output("i32", 32))

# ── control and memory ──────────────────────────────────────────────────────

source("control")
launch("recursion", 2, 64, integers("u32", 128, low=0, high=3), integers("u32", 128, low=0, high=12),
       output("u32", 128))
launch("quicksorts", 2, 32, bits("i32", 64 * 24), output("i32", 64 * 24), i32(24))
launch("function_pointers", 4, 128, bits("i32", 512), output("i32", 512), i32(12))
launch("virtual_functions", 2, 64, normal("f32", 128), output("f32", 128))
launch("interpreter", 4, 128, bits("u8", 60), i32(60), integers("i32", 512, low=-40, high=40), output("i32", 512))
launch("mandelbrot", (8, 16), (16, 8), output("i32", 128, 128), i32(128), f32(-2.0), f32(-1.25), f32(0.02), i32(300))
launch("tangle", 8, 128, bits("i32", 1024), output("i32", 1024), i32(1000))
launch("collatz", 2, 128, output("i32", 4000), output("u32", 4000), i32(4000))
launch("struct_by_value", 1, 64,
       struct(c_struct.pack("<dhbbb3xf4xhbbb3xf4xiB3x", 2.25, -7, 1, -2, 3, 0.5, 90, 4, 5, -6, 1.75, -2, 0b1011)),
       integers("i32", 64, low=-30, high=30), output("f64", 64), scalar("bool", True), scalar("i16", -300),
       scalar("u8", 6))
launch("grid_constant", 2, 64, struct(c_struct.pack("<12i4f", *range(-20, 40, 5), 0.5, -1.25, 3.0, 1e-3)),
       integers("i32", 128, low=0, high=100), output("f32", 128))
launch("dynamic_stack", 2, 64, integers("i32", 128, low=1, high=40), bits("i16", 256), output("i32", 128))
launch("local_arrays", 2, 32, bits("u8", 64 * 40), output("u8", 64 * 40))

source("printing")
launch("printing", 1, 32, integers("i32", 6, low=-999, high=9999), normal("f64", 6, scale=100.0), full("i32", 1),
       i32(6))
launch("asserting", 1, 64, integers("i32", 64, low=0, high=100), output("i32", 64), i32(100))

source("memory")
launch("saxpy", 3, 128, normal("f32", 2000), normal("f32", 2000), f32(2.5), i32(2000))
launch("transpose", (3, 2), (32, 8), normal("f32", 50, 70), output("f32", 70, 50), i32(70), i32(50))
launch("transpose_ldmatrix", 2, 32, bits("u16", 512), output("u16", 512))
launch("stencil_1d", 5, 128, normal("f32", 600), output("f32", 600), i32(600), shared=134 * 4)
launch("stencil_2d", 1, (32, 24), normal("f32", 24, 32), i32(32), i32(10), shared=3072)
launch("stencil_3d", (2, 4), (16, 4), normal("f64", 10, 14, 20), output("f64", 10, 14, 20), i32(20), i32(14), i32(10))
launch("matvec", 8, 128, normal("f16", 32, 512), normal("f16", 512), output("f32", 32), i32(512))
launch("vectors", 2, 64, bits("u8", 2048), output("u8", 8192))
launch("copy_bytes", 1, 64, bits("u8", 3000), output("u8", 3000), i32(5), i32(2781))
launch("globals", 1, 16, output("i32", 25), output("u8", 16))
launch("generic", 2, 48, bits("i64", 96), output("i64", 96), i32(1000), shared=480)
launch("pipeline_sum", 2, 64, normal("f32", 2, 7, 64), output("f32", 128), i32(7))
launch("transpose_movmatrix", 2, 64, bits("u16", 256), output("u16", 256))
launch("cache_hints", 2, 64, normal("f32", 128, 4), output("f32", 128, 4))
launch("places", (2, 3, 2), (5, 4, 3), output("u32", 12 * 60 * 4))

# ── numbers ─────────────────────────────────────────────────────────────────

source("integers")
launch("division_64", 4, 128, bits("i64", 512),
       values("i64", [(i * i * 7919 + 1) * (-1) ** (i // 3) << (i % 30) for i in range(512)]),
       output("i64", 512 * 6))
launch("arithmetic_128", 2, 128, bits("u64", 256), bits("u64", 256), output("u64", 256 * 6))
launch("multiply_256", 2, 64, bits("u32", 128, 8), bits("u32", 128, 8), output("u32", 128 * 18))
launch("bit_fiddling", 4, 256, bits("u32", 1024), bits("u32", 1024), output("u32", 1024, 16))
launch("packed_integers", 4, 256, bits("u32", 1024), bits("u32", 1024), output("u32", 1024, 12))
launch("sha256", 4, 64, bits("u32", 256, 16), output("u32", 256, 8))
launch("crc32", 2, 128, bits("u8", 256, 50), output("u32", 256), i32(50))
launch("philox", 2, 64, scalar("u64", 0x1234567890ABCDEF), output("u32", 512), output("f32", 512))
launch("monte_carlo", 4, 128, full("u64", 1), output("u32", 512), i32(2000))
launch("modular", 1, 128, integers("u32", 128, low=2, high=2**31), bits("u32", 128), output("u32", 128),
       output("i32", 128), scalar("u32", 2147483647))

source("maths")
for tag, v, w in [
    ("ordinary", normal("f32", 768, scale=4.0), normal("f32", 768, scale=4.0)),
    ("wide", wide("f32", 768, low=-30, high=30), wide("f32", 768, low=-5, high=5)),
    ("special", special("f32", 768), special("f32", 768)),
]:
    launch("trigonometry", 6, 128, v, output("f32", 768, 10), tag=tag)
    launch("exponentials", 6, 128, v, w, output("f32", 768, 16), tag=tag)
    launch("roots", 6, 128, v, w, output("f32", 768, 14), tag=tag)
    launch("special_functions", 6, 128, v, output("f32", 768, 8), tag=tag)
    launch("rounding", 6, 128, v, w, output("f32", 768, 16), tag=tag)
    both = [{**each, "type": "f64"} for each in (v, w)]
    launch("double_functions", 6, 128, *both, output("f64", 768, 14), tag=tag)
    launch("double_rounding", 6, 128, *both, output("f64", 768, 10), tag=tag)
    launch("conversions", 6, 128, v, both[1], output("i64", 768, 14), tag=tag)
launch("roots", 6, 128, wide("f32", 768, low=-148, high=127), wide("f32", 768, low=-148, high=127),
       output("f32", 768, 14), tag="all")
launch("compensated", 1, 128, wide("f32", 2000, low=-20, high=20), output("f64", 8), i32(2000))

source("halves")
for tag, make in [("ordinary", normal), ("special", special), ("bits", bits)]:
    launch("half_arithmetic", 8, 128, make("f16", 2048), make("f16", 2048), output("f16", 2048, 14), tag=tag)
    launch("half_functions", 8, 128, make("f16", 2048), output("f16", 2048, 10), tag=tag)
    launch("bfloat_arithmetic", 8, 128, make("bf16", 2048), make("bf16", 2048), output("bf16", 2048, 10), tag=tag)
launch("half_functions", 128, 256, counting("f16", 65536), output("f16", 32768, 10, 2), tag="all")
for tag, x in [("wide", wide("f32", 256, low=-28, high=18)), ("special", special("f32", 256))]:
    launch("half_conversions", 2, 128, x, output("u32", 2560), tag=tag)
    launch("fp8_conversions", 2, 128, x, wide("f16", 512, low=-14, high=10), output("u8", 256), output("u8", 256),
           output("f32", 768), tag=tag)
launch("dequantise_int4", 2, 64, bits("u32", 128), normal("f16", 8), output("f16", 1024), i32(16))
launch("quantise_rows", 6, 64, normal("f32", 6, 256), output("i8", 6, 256), output("f32", 6), i32(256))
launch("dequantise_table", 2, 128, bits("u8", 256), normal("f32", 16), output("bf16", 512))

source("simulation")
launch("nbody", 8, 64, normal("f32", 512, 4), output("f32", 512, 4), i32(512))
launch("life", 2, 32, bits("u32", 64), i32(400))
launch("fft", 2, 128, normal("f32", 2, 1024, 2), i32(1024), shared=8192)
launch("edit_distance", 12, 32, integers("i8", 12, 60, low=97, high=101),
       integers("i8", 12, 45, low=97, high=101), output("i32", 12), i32(60), i32(45))
launch("shortest_paths", 1, (32, 32), uniform("f32", 32, 32, low=1.0, high=100.0), i32(32))
launch("breadth_first", 1, 64, values("i32", range(0, 901, 3)), integers("i32", 900, low=0, high=300),
       output("i32", 300), i32(300))
_STARTS = [0]
for _row in range(60):
    _STARTS.append(_STARTS[-1] + _row * _row * 13 % 50)
launch("spmv", 2, 128, values("i32", _STARTS), integers("i32", _STARTS[-1], low=0, high=80),
       normal("f64", _STARTS[-1]), normal("f64", 80), output("f64", 60), i32(60))
launch("conjugate_gradients", 1, 64, normal("f64", 64), output("f64", 64), output("i32", 1), scalar("f64", 1e-20))

source("handwritten")
launch("jump_table", 1, 64, bits("u32", 64), output("u32", 64))
launch("call_table", 1, 64, bits("u32", 64), output("u32", 128))
launch("video", 1, 64, bits("u32", 64), bits("u32", 64), output("i32", 64, 12))
for tag, make in [("special", special), ("bits", bits)]:
    launch("seldom", 1, 128, make("f32", 128), make("f32", 128), output("i32", 128, 16), tag=tag)
launch("literals", 1, 32, output("u32", 256), struct(c_struct.pack("<ffd", 1.1, -0.3, 1e17 / 3)))

source("modern")
launch("atomic_refs", 2, 128, integers("i32", 256, low=0, high=100000), full("i32", 1), full("u32", 1), full("i64", 1),
       full("f32", 1))
launch("ticket_lock", 3, 256, integers("i32", 768, low=0, high=1000), output("i32", 3), output("i32", 3))
launch("ring", 1, 64, integers("i32", 640, low=0, high=1000), output("i32", 32), i32(20))
launch("complex_numbers", 4, 128, normal("f32", 512, 2), normal("f32", 512, 2), output("f32", 512, 10))
launch("complex_numbers", 4, 128, special("f32", 512, 2), special("f32", 512, 2), output("f32", 512, 10), tag="special")
launch("standard_library", 2, 128, bits("i32", 256), output("i32", 512))
