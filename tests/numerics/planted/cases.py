"""Fifty planted numeric bugs: a table, one row for each.

A row says how a kernel of ``sources/`` is launched, what it is meant to leave, what is
seen of the bug in what it leaves, and what must be found: the kind, and the source line,
which is quoted.  The repaired twin has the same inputs, and nothing may be found in it.

Kinds: ``nan`` and ``inf`` (where it was born), ``overflow``, ``underflow`` (to a
subnormal or to zero, flushes, too), ``saturation``, ``cancellation``, ``absorption``,
``error`` (the line that adds most of the error of an output), ``branch`` (the exact value
decides otherwise), ``unwritten`` (a byte that nobody had written).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.empties import empty
from tests.numerics.planted import exact

Array = NDArray[Any]
Arguments = list[Any]
E4M3 = ml_dtypes.float8_e4m3fn


class Found(NamedTuple):
    """One of some kinds, on one of some lines."""

    kinds: tuple[str, ...]
    lines: tuple[str, ...]
    """Quoted; several if a function is inlined: its line or its caller's."""


class Case(NamedTuple):
    """One planted bug."""

    name: str
    source: str
    grid: int
    block: int
    arguments: Callable[[bool], Arguments]
    """The arguments of a launch, of the wrong kernel or of its twin."""
    found: tuple[Found, ...]
    """Each of them names the bug: one must be found."""
    meant: Callable[[Arguments], Array]
    """What the kernel should leave, exactly, from its arguments before the launch."""
    left: Callable[[Arguments], Array]
    """What it left, from its arguments after the launch."""
    bad: Any = None
    """Which elements are not finite: an index, or a function of the arguments.

    None if the bug is an error only."""
    lost: float = 0.0
    """The least error of the wrong kernel, as a part of the largest value."""
    kept: float = 0.0
    """The largest error of its twin."""
    output: bool = True
    """Whether what is left is the last array itself, and ``meant`` its exact value.

    It is not if the program computes another formula, or leaves codes of numbers.
    """
    formula: bool = True
    """Whether the wrong kernel has the formula of its twin, but for roundings."""
    unit: Callable[[Array], Any] = lambda meant: np.abs(meant).max()
    """What errors are parts of: the largest value."""
    wrong: str = ""
    right: str = ""
    """The entries, if they are not the name in two sources."""
    target: str = "sm_90a"
    report: str = ""
    """The real report that it is rebuilt from."""


CASES: list[Case] = []


def case(name: str, source: str, sizes: tuple[int, int], **more: Any) -> None:
    """Add a row."""
    found = more.pop("found")
    rows = found if isinstance(found, list) else [found]
    kinds = [(k.split(), w if isinstance(w, tuple) else (w,)) for k, w in rows]
    more["found"] = tuple(Found(tuple(k), w) for k, w in kinds)
    more.setdefault("left", last)
    CASES.append(Case(name, source, *sizes, **more))


# ── inputs and outputs ──────────────────────────────────────────────────────


def spread(*shape: int, seed: int = 1, low: float = -1.0, high: float = 1.0) -> Array:
    """Values between two bounds, the same on every machine."""
    count = int(np.prod(shape))
    found, state = np.empty(count), seed * 2654435761 % 2**32
    for i in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        found[i] = low + (high - low) * (state >> 8) / 2**24
    return found.reshape(shape).astype(np.float32)


def last(after: Arguments) -> Array:
    """The last array of the arguments."""
    arrays = [each for each in after if isinstance(each, np.ndarray)]
    return np.asarray(arrays[-1], np.float64)


def zeros(*shape: int, dtype: Any = np.float32) -> Array:
    return np.zeros(shape, dtype)


def placed(values: Array, where: Any, what: Any) -> Array:
    """Values with some of them replaced."""
    values[where] = what
    return values


def dequantised(scales: Callable[[Arguments], Any], q: int = 1) -> Any:
    """What is left as pairs of e4m3 times scales, as numbers."""

    def left(after: Arguments) -> Array:
        codes = after[q].view(E4M3).astype(np.float64)
        return np.asarray(codes * scales(after))

    return left


def given(before: Arguments) -> Array:
    """The first argument: what is quantised and back again is meant to stay."""
    return np.asarray(before[0], np.float64)


def powers(after: Arguments) -> Array:
    """UE8M0 scales as a column."""
    return np.exp2(after[2].astype(np.float64) - 127)[:, None]


def column(after: Arguments) -> Array:
    """Scales in f32 as a column."""
    return np.asarray(after[2], np.float64)[:, None]


# One row is one statement, laid out by hand: its lines are read as a table.
# fmt: off

# ── softmax and attention ───────────────────────────────────────────────────

case("softmax_unshifted", "softmax", (4, 128),
     arguments=lambda wrong: [placed(spread(4, 160, low=-4, high=4), 2, spread(160, low=118, high=136)),
                              zeros(4, 160), 160],
     meant=lambda a: exact.softmax(a[0]), bad=lambda a: (a[0] >= 128), kept=1e-5,
     found=[("inf overflow", "float power = exp2f(row[i] - most);"), ("nan", "out[i] = out[i] / total;")])

SEEN = placed(placed(np.ones((8, 32), np.int32), (slice(None), slice(20, 27)), 0), 5, 0)
case("softmax_masked", "softmax", (2, 128), report="vLLM RFC 44211: a row without a key",
     arguments=lambda wrong: [spread(8, 32, low=-9, high=9), SEEN.copy(), zeros(8, 32)],
     meant=lambda a: exact.softmax(a[0], a[1]), bad=5, kept=1e-5,
     found=("nan", "float shifted = mine - most;"))

case("decode", "softmax", (4, 32), report="vLLM RFC 44211: a query without a key, 0 / 0 at the end",
     arguments=lambda wrong: [spread(4, 32), spread(9, 32, seed=2), spread(9, 32, seed=3),
                              np.array([9, 0, 5, 1], np.int32), zeros(4, 32)],
     meant=lambda a: exact.decode(*a[:4]), bad=1, kept=1e-5,
     found=("nan", "out[query * 32 + lane] = sum / total;"))

NANS = np.full((56, 32), 0xFFFFFFFF, np.uint32).view(np.float32)
case("padded_values", "softmax", (1, 32), report="vLLM RFC 44211: zero weight times what the cache was left with",
     arguments=lambda wrong: [spread(40, low=0, high=0.05), np.concatenate([spread(40, 32, seed=2), NANS]),
                              zeros(32), 40, 96],
     meant=lambda a: exact.dots(a[0][None, :], a[1][:40].T)[0], bad=slice(None), kept=1e-6,
     found=("nan", ("sum = fmaf(share, tile[i][threadIdx.x], sum);",
                    "tile[i][threadIdx.x] = BUG || first + i < length")))

def workspace(wrong: bool) -> Arguments:
    """Room for 128 weights, of which 100 are written."""
    room = empty(128)
    room[:100] = spread(100, low=0.1, high=1)
    return [room, zeros(1), 100]

case("workspace_tail", "softmax", (1, 128), report="the issue: an uninitialised tail", arguments=workspace,
     meant=lambda a: exact.log_products(a[0][:100]), bad=0, kept=1e-6, output=False,
     found=[("unwritten", "weight = workspace[threadIdx.x];"), ("nan unwritten", "float share = log2f(weight);")])

def logits(wrong: bool) -> Arguments:
    """Queries and keys of which one pair is aligned: its score is beyond 65504."""
    q, k = spread(16, 64).astype(np.float16), spread(8, 64, seed=2).astype(np.float16)
    q[3], k[2] = 40, 36
    return [q.view(np.uint32), k.view(np.uint32), zeros(16, 8), 2.0**-10]

case("half_logits", "softmax", (1, 32), report="the issue: fp16 overflow in attention logits",
     arguments=logits, bad=3, kept=2e-2,
     meant=lambda a: exact.softmax(exact.dots(a[0].view(np.float16), a[1].view(np.float16)) * 2.0**-10),
     found=[("inf overflow", "half kept = __float2half_rn(logit);"),
            ("nan", "float shifted = score[i] - most;")])

# ── sums ────────────────────────────────────────────────────────────────────

case("naive_sum", "sums", (1, 32),
     arguments=lambda wrong: [placed(spread(32, 300, low=0.25, high=1.5), (slice(None), 0), 2.0**25), zeros(32), 300],
     meant=lambda a: exact.sums(a[0]), lost=5e-6, kept=1e-7,
     found=("absorption", "sum += row[i];"))

case("kahan_sum", "sums", (1, 32),
     arguments=lambda wrong: [placed(spread(32, 300, low=0.1, high=0.9), (slice(None), 0), 2.0**24), zeros(32), 300],
     meant=lambda a: exact.sums(a[0]), lost=5e-6, kept=1.3e-7,
     found=("absorption error", "float next = sum + addend;"))

case("counter", "sums", (64, 32),
     arguments=lambda wrong: [np.full((64, 32), 0.5, np.float32), np.array([2.0**25], np.float32)],
     meant=lambda a: exact.array([2**25 + 1024]), lost=3e-5, kept=0,
     found=("absorption", "atomicAdd(y, mine);"))

case("variance", "sums", (4, 128),
     arguments=lambda wrong: [spread(4, 256) * 0.5 + np.float32([[1000], [0], [300], [4000]]), zeros(4), 256],
     meant=lambda a: exact.variances(a[0]), lost=0.1, kept=1e-6,
     found=("cancellation", "float spread = average - mean * mean;"))

case("half_dot", "sums", (1, 32),
     arguments=lambda wrong: [spread(32, 256, low=0.5, high=1.5).astype(np.float16),
                              spread(256, seed=2, low=0.5, high=1.5).astype(np.float16), zeros(32), 256],
     meant=lambda a: exact.dots(a[0], a[1][None, :])[:, 0], lost=1e-3, kept=1e-6,
     found=("error absorption", "sum = __hfma(row[i], b[i], sum);"))

def parabolas(wrong: bool) -> Arguments:
    """b * b is c and a little; every other one is far from zero."""
    b = 1 + np.arange(1, 64, 2, dtype=np.float64)[:32] * 2.0**-12
    c = np.where(np.arange(32) % 2, 0.5, (b * b - 2.0**-30).astype(np.float32))
    return [np.ones(32, np.float32), b.astype(np.float32), c.astype(np.float32), zeros(32)]

case("meets", "sums", (1, 32), arguments=parabolas,
     meant=lambda a: np.array([2.0 if y * y > x * z else 0.0 for x, y, z in zip(*map(exact.fractions, a[:3]), strict=True)]),
     lost=0.9, kept=0, output=False,
     found=[("branch", ("if (found > 0)", "y[i] = 2;")),
            ("cancellation", "float found = __fsub_rn(square, __fmul_rn(a[i], c[i]));")])

case("root_step", "sums", (1, 32),
     arguments=lambda wrong: [np.arange(32, dtype=np.float32) * 1024 + 2.0**20, zeros(32)],
     meant=lambda a: exact.each(lambda x: 1 / (exact.root(x + 1) + exact.root(x)), a[0]), lost=1e-2, kept=1e-6,
     found=("cancellation", "y[i] = one - other;"))

case("muller", "sums", (1, 1),
     arguments=lambda wrong: [zeros(1), 10],
     meant=lambda a: exact.muller(10), lost=10, kept=1e-6,
     found=("cancellation error", "float next = 108.0f - (815.0f - 1500.0f / before) / now;"))

# ── layers ──────────────────────────────────────────────────────────────────

case("tiny_norm", "layers", (3, 32),
     arguments=lambda wrong: [placed(spread(3, 32, low=0.5, high=1.5), 1, spread(32, low=1e-21, high=2e-21)), zeros(3, 32)],
     meant=lambda a: exact.root_mean_squares(a[0]), bad=1, kept=1e-6,
     found=[("inf underflow", ("float inverse = rsqrt_ftz(mean);", 'asm("rsqrt.approx.ftz.f32 %0, %1;"')),
            ("underflow", "float square = value * value;")])

case("layer_norm", "layers", (4, 32),
     arguments=lambda wrong: [placed(spread(4, 64), 2, 3.0), zeros(4, 64), 1e-5],
     meant=lambda a: exact.norms(a[0], np.float32(1e-5)), bad=2, kept=1e-6, formula=False,
     found=[("inf", "float inverse = rsqrtf(spread) + epsilon;"), ("nan", "y[i] = one * inverse;")])

case("half_epsilon", "layers", (4, 32),
     arguments=lambda wrong: [placed(spread(4, 32), 1, 0.75).astype(np.float16), zeros(4, 32, dtype=np.float16), 1e-8],
     meant=lambda a: exact.norms(a[0], np.float32(1e-8)), bad=1, kept=1e-3,
     found=[("underflow", "half small = __float2half_rn(epsilon);"), ("inf", "half inverse = hrsqrt(bottom);"),
            ("nan", "y[i] = __hmul(__float2half_rn(value - mean), inverse);")])

case("scaled_gradients", "layers", (1, 64),
     arguments=lambda wrong: [placed(spread(8, 64), (3, 5), 3.0), zeros(64), 8, 65536.0 if wrong else 4096.0],
     meant=lambda a: exact.sums(a[0].T) / 8, bad=lambda a: np.abs(a[0]).max(0) * 65536 >= 65520, kept=1e-3,
     found=("inf overflow", "half kept = __float2half_rn(scaled);"))

case("detour", "layers", (2, 128),
     arguments=lambda wrong: [spread(256, low=1, high=4), zeros(256, dtype=np.float16)],
     meant=lambda a: a[0].astype(np.float64) / 2, lost=1e-3, kept=4e-4,
     found=("error", "__nv_bfloat16 narrow = __float2bfloat16_rn(value);"))

case("bf16_step", "layers", (1, 32),
     arguments=lambda wrong: [np.ones(32, ml_dtypes.bfloat16).view(np.uint16), spread(32, low=0.5, high=1),
                              zeros(32), 2.0**-10, 40],
     meant=lambda a: 1 - 40 * 2.0**-10 * a[1].astype(np.float64),
     lost=1e-2, kept=1e-5,
     found=("error absorption", ("w = __float2bfloat16_rn(moved);",)))

# ── quantisation ────────────────────────────────────────────────────────────

case("zero_row", "quantised", (4, 32), report="the issue: a division by a zero row maximum",
     arguments=lambda wrong: [placed(spread(4, 64), 2, 0), zeros(4, 32, dtype=np.uint16), zeros(4)],
     meant=given, left=dequantised(column), bad=2, kept=0.04, output=False,
     found=[("inf", "float inverse = 1.0f / scale;"),
            ("nan", "float first = low * inverse, second = high * inverse;")])

case("cut_scale", "quantised", (4, 32), report="vLLM 38083, sglang 12878: UE8M0 scales",
     arguments=lambda wrong: [spread(4, 64), zeros(4, 32, dtype=np.uint16), zeros(4, dtype=np.uint8)],
     meant=given, left=dequantised(powers), lost=0.05, kept=0.04, output=False,
     found=("saturation", ("uint16_t both = e4m3x2(low * inverse, high * inverse);",
                           'asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"')))

case("other_row", "quantised", (1, 256),
     arguments=lambda wrong: [spread(8, 64) * np.float32([[1], [2], [1], [4], [1], [1], [3], [1]]),
                              zeros(8, 32, dtype=np.uint16), zeros(8), 8],
     meant=given, left=dequantised(column), lost=0.2, kept=0.04, output=False,
     found=("saturation", ("uint16_t both = e4m3x2(low / scale, high / scale);",
                           'asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"')))

def wrong_limit(wrong: bool) -> Arguments:
    return [spread(2, 128, low=-8, high=8), zeros(128, dtype=np.uint16), 8.0]

case("wrong_limit", "quantised", (2, 64), arguments=wrong_limit,
     meant=lambda a: given(a) * (448 / 8), left=lambda a: a[1].view(E4M3).astype(np.float64).reshape(2, 128),
     lost=0.5, kept=0.04, output=False,
     found=("saturation", ("q[i] = e4m3x2(low, high);", 'asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"')))

case("one_scale", "quantised", (1, 128), report="DeepGEMM 37: one scale for all",
     arguments=lambda wrong: [spread(4, 64) * np.float32([[3e4], [0.01], [1], [0.02]]),
                              zeros(4, 32, dtype=np.uint16), zeros(4, 64), 64],
     meant=given, unit=lambda meant: np.abs(meant).max(1, keepdims=True), lost=0.9, kept=0.04,
     found=("underflow error", ("uint16_t both = e4m3x2(low / scale, high / scale);",
                                'asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"')))

def nibbles(packed: Array) -> Array:
    """Weights of 4 bits less 8, in the order of their pairs."""
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    return np.stack([packed >> (4 * i) & 15 for i in order], 1).astype(np.int64) - 8

case("dequantise", "quantised", (1, 32),
     arguments=lambda wrong: [(spread(32) * 2**31).astype(np.int64).astype(np.uint32),
                              spread(32, low=0.01, high=0.1).astype(np.float16), zeros(32, 8, dtype=np.float16)],
     meant=lambda a: nibbles(a[0]) * a[1].astype(np.float64)[:, None], lost=1e-2, kept=5e-4,
     found=("cancellation", "y[i * 4 + pair] = __hsub2(large, shift);"))

# ── functions ───────────────────────────────────────────────────────────────

case("log_sum", "functions", (3, 32),
     arguments=lambda wrong: [placed(spread(3, 32, low=-9, high=9), 1, spread(32, low=-200, high=-130)), zeros(3)],
     meant=lambda a: exact.log_sums(a[0]), bad=1, kept=1e-6,
     found=[("underflow", ("float power = exp2_ftz(score[i] - most);", 'asm("ex2.approx.ftz.f32 %0, %1;"')),
            ("inf", ("float found = log2_ftz(total) + most;", 'asm("lg2.approx.ftz.f32 %0, %1;"'))])

case("distance", "functions", (1, 64),
     arguments=lambda wrong: [(np.arange(64) // 16 * 16 + 2**27 + 1).astype(np.int32), zeros(64), 2**27 + 1],
     meant=lambda a: (np.arange(64) % 16) / 8, lost=0.1, kept=0,
     found=("error", "float here = i;"))

case("rotary", "functions", (1, 32),
     arguments=lambda wrong: [spread(32, low=0.1, high=1.0), zeros(32), 100003.0],
     meant=lambda a: exact.each(lambda x: exact.sine(x * 100003), a[0]), lost=5e-4, kept=1e-5,
     found=("error", "float angle = position * frequency[i];"))

case("large_sine", "functions", (1, 32),
     arguments=lambda wrong: [spread(32, low=2e4, high=1e6), zeros(32)],
     meant=lambda a: exact.each(exact.sine, a[0]), lost=1e-3, kept=1e-4,
     found=("error", "y[i] = __sinf(x);"))

case("versine", "functions", (1, 32),
     arguments=lambda wrong: [spread(32, low=0.001, high=0.004), zeros(32)],
     meant=lambda a: 2 * exact.each(lambda x: exact.sine(x / 2), a[0])**2, lost=5e-3, kept=2e-4,
     found=("cancellation", "y[i] = 1.0f - near;"))

case("length", "functions", (3, 32),
     arguments=lambda wrong: [placed(spread(3, 32), 1, spread(32, low=-1e25, high=1e25)), zeros(3)],
     meant=lambda a: exact.lengths(a[0]), bad=1, kept=1e-6,
     found=("inf overflow", "float square = value * value;"))

# ── Tensor Cores ────────────────────────────────────────────────────────────

def factors(*shapes: tuple[int, int], dtype: Any, low: float = 0.5, high: float = 1.5) -> list[Array]:
    return [spread(*shape, seed=i + 1, low=low, high=high).astype(dtype) for i, shape in enumerate(shapes)]

case("half_chain", "products", (1, 32),
     arguments=lambda wrong: [*(each.view(np.uint32) for each in factors((16, 512), (8, 512), dtype=np.float16)), zeros(16, 8), 32],
     meant=lambda a: exact.dots(a[0].view(np.float16), a[1].view(np.float16)), lost=1e-3, kept=5e-6,
     found=("error absorption", 'asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16'))

case("tf32_product", "products", (1, 32),
     arguments=lambda wrong: [*factors((16, 64), (8, 64), dtype=np.float32), zeros(16, 8), 8],
     meant=lambda a: exact.dots(a[0], a[1]), lost=2e-5, kept=1e-6,
     found=("error", ("high[j] = to_tf32(given[j]);", 'asm("cvt.rna.tf32.f32 %0, %1;"')))

def fp8_bytes(wrong: bool) -> Arguments:
    a, b = factors((64, 512), (8, 512), dtype=E4M3)
    return [a.view(np.uint8), b.view(np.uint8), zeros(64, 8), 16]

case("fp8_chain", "products", (1, 128), report="triton 6356, 8056; DeepGEMM 37: fast accumulation in a chain of fp8",
     arguments=fp8_bytes,
     meant=lambda a: exact.dots(a[0].view(E4M3), a[1].view(E4M3)), lost=1e-3, kept=3e-4,
     found=("error absorption", 'asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3'))

# ── the same kinds in other kernels ─────────────────────────────────────────

def near_rows(wrong: bool) -> Arguments:
    """Rows, and rows that are nearly parallel to them."""
    a = spread(4, 32)
    return [a, (a * (1 + 1e-4 * spread(4, 32, seed=7))).astype(np.float32), zeros(4)]

case("cosine_distance", "more", (4, 32), arguments=near_rows,
     meant=lambda a: exact.cosine_distances(a[0], a[1]), lost=0.05, kept=1e-5,
     found=("cancellation", "float far = 1.0f - similar;"))

case("surprise", "more", (2, 32),
     arguments=lambda wrong: [placed(spread(2, 32, low=-5, high=5), (1, 3), -40.0), zeros(2, 32)],
     meant=lambda a: a[0] - exact.log_sums(a[0])[:, None], bad=(1, 3), kept=1e-5, output=False,
     found=[("underflow", "half probability = __float2half_rn(power / total);"),
            ("inf", "y[row * 32 + lane] = log2f(__half2float(probability));")])

case("running_mean", "more", (1, 32),
     arguments=lambda wrong: [spread(80, 32, low=0, high=100), zeros(32), 80],
     meant=lambda a: exact.running_means(a[0], 0.0001), lost=1e-3, kept=1e-5,
     found=("error absorption", "half mean = __float2half_rn(kept[s % 4] * 0.03125f);"))

case("ratio", "more", (1, 32),
     arguments=lambda wrong: [placed(spread(32), 7, 0.0), placed(spread(32, seed=2), 7, 0.0), zeros(32)],
     meant=lambda a: exact.array((x / y if y else 1) / Fraction(2) + Fraction(1, 4) for x, y in
                                 zip(exact.fractions(a[0]), exact.fractions(a[1]), strict=True)),
     bad=7, kept=1e-6, found=("nan", "float share = a[i] / b[i];"))

case("geometric", "more", (1, 32),
     arguments=lambda wrong: [(1 + 1e-4 * spread(32, low=0.5, high=2)).astype(np.float32), zeros(32)],
     meant=lambda a: exact.each(lambda q: 1 + q + q * q + q**3, a[0]), lost=1e-4, kept=1e-6,
     found=[("cancellation error", "y[i] = (1.0f - power) / (1.0f - q[i]);"),
            ("error", "float power = q[i] * q[i] * q[i] * q[i];")])

case("bf16_logits", "more", (1, 32),
     arguments=lambda wrong: [spread(32, low=1, high=3), spread(32, 32, seed=3, low=0.9, high=1.1), zeros(32)],
     meant=lambda a: exact.softmax(exact.dots(a[0][None, :], a[1]))[0], lost=1e-2, kept=1e-4,
     found=("error", "__nv_bfloat16 narrow = __float2bfloat16_rn(sum);"))

def whole_bytes(wrong: bool) -> Arguments:
    """Products of int8, and a scale that is a subnormal in f16."""
    a, b = ((spread(*shape, seed=i) * 100).astype(np.int8) for i, shape in ((1, (32, 64)), (2, (1, 64))))
    return [a.view(np.int32), b.view(np.int32), zeros(32, dtype=np.float16), 3e-7]

case("int8_scale", "more", (1, 32), arguments=whole_bytes,
     meant=lambda a: exact.dots(a[0].view(np.int8), a[1].view(np.int8))[:, 0] * float(np.float32(3e-7)),
     lost=5e-3, kept=1e-3,
     found=("error underflow", "half small = __float2half_rn(scale);"))

case("counted", "more", (1, 32),
     arguments=lambda wrong: [spread(32, low=0.25, high=1), zeros(32), 2500],
     meant=lambda a: a[0].astype(np.float64), lost=0.1, kept=1e-3,
     found=("absorption error", "count = __hadd(count, __float2half_rn(1.0f));"))

# ── written by hand in PTX ──────────────────────────────────────────────────

case("stale_scale", "scales.ptx", (1, 32), report="transformers 47030: the scale rounded without requantising",
     target="sm_100a", wrong="stale_scale_wrong", right="stale_scale",
     arguments=lambda wrong: [spread(64), zeros(32, dtype=np.uint16), zeros(1, dtype=np.uint8), zeros(64)],
     meant=given, lost=0.2, kept=0.04,
     found=("error", "cvt.rp.satfinite.ue8m0x2.f32 %code, %zero, %s;"))

case("rounded_down", "scales.ptx", (1, 32), report="vLLM 38083: UE8M0 rounded down, by Blackwell's conversion",
     target="sm_100a", wrong="rounded_down_wrong", right="stale_scale",
     arguments=lambda wrong: [spread(64), zeros(32, dtype=np.uint16), zeros(1, dtype=np.uint8), zeros(64)],
     meant=given, lost=0.05, kept=0.04,
     found=("saturation", "cvt.rn.satfinite.e4m3x2.f32 %both, %v, %u; // beyond 448"))

case("squares", "halves.ptx", (1, 32), wrong="squares_wrong", right="squares", target="sm_80",
     arguments=lambda wrong: [placed(spread(40, 64), (slice(None), 6), 60).astype(np.float16).view(np.uint32), zeros(32), 40],
     meant=lambda a: exact.array(sum(v * v for v in exact.fractions(row)) for row in
                                 a[0].view(np.float16).reshape(40, 32, 2).transpose(1, 0, 2)),
     bad=3, kept=1e-6,
     found=("inf overflow", "fma.rn.f16x2 %sum, %value, %value, %sum;"))

case("cross", "halves.ptx", (1, 32), wrong="cross_wrong", right="cross", target="sm_80",
     arguments=lambda wrong: [(spread(2, 64) * 0.01 + 1).astype(np.float16).view(np.uint32), zeros(32), 1],
     meant=lambda a: exact.array(u[0] * v[1] - u[1] * v[0] for u, v in
                                 zip(*([exact.fractions(p) for p in row.view(np.float16).reshape(32, 2)] for row in a[0]),
                                     strict=True)),
     lost=1e-2, kept=1e-6,
     found=("cancellation", "sub.rn.f16 %c, %a, %b;"))

# ── written by Triton ───────────────────────────────────────────────────────

TRITON_SEEN = placed(placed(np.ones((4, 128), np.int32), (slice(None), slice(90, 128)), 0), 2, 0)
case("masked_softmax", "triton", (4, 128), wrong="masked_softmax_wrong", right="masked_softmax", target="sm_80",
     arguments=lambda wrong: [spread(4, 128, low=-9, high=9), TRITON_SEEN.copy(), zeros(4, 128), 128],
     meant=lambda a: exact.softmax(a[0], a[1]), bad=2, kept=1e-5,
     found=("nan", "shifted = value - most"))

case("row_norm", "triton", (3, 128), wrong="row_norm_wrong", right="row_norm", target="sm_80",
     arguments=lambda wrong: [spread(3, 256) + np.float32([[3000], [0], [700]]), zeros(3, 256), 256],
     meant=lambda a: exact.norms(a[0], 1.0), lost=1e-2, kept=1e-6,
     found=("cancellation", "spread = squares - mean * mean"))

def half_factors(wrong: bool) -> Arguments:
    a, b = factors((32, 256), (256, 32), dtype=np.float16)
    return [a, b, zeros(32, 32), 8]

case("half_matmul", "triton", (1, 128), wrong="half_matmul_wrong", right="half_matmul", target="sm_80",
     arguments=half_factors, meant=lambda a: exact.dots(a[0], a[1].T), lost=1e-3, kept=5e-6,
     found=("error absorption", "total = tl.dot(left, right, total, out_dtype=tl.float16)"))

# ── nothing is wrong ────────────────────────────────────────────────────────


class Quiet(NamedTuple):
    """A right kernel of ``sources/quiet.cu``: what is not finite is never stored."""

    name: str
    arguments: Callable[[], Arguments]


QUIET = [
    Quiet("masked_lanes", lambda: [spread(32, low=1, high=2), zeros(32), 20]),
    Quiet("gelu", lambda: [np.linspace(-60, 60, 32).astype(np.float16), zeros(32)]),
    Quiet("masked_keys", lambda: [spread(32), (np.arange(32) < 20).astype(np.int32), zeros(32)]),
    Quiet("chosen", lambda: [spread(32), zeros(32)]),
]
# fmt: on
