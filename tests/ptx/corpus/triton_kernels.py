"""Triton kernels of the corpus: what another compiler makes of whole programs.

Each is compiled for sm_80, which needs no GPU, and launched from the PTX alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra import libdevice

from fragmenta.inspect.evidence import arguments as inputs
from fragmenta.inspect.evidence.arguments import (
    full,
    integers,
    normal,
    output,
    scalar,
    wide,
)
from tests.ptx.launches import Row

TARGET = GPUTarget("cuda", 80, 32)


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


@triton.jit
def fused_softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, inside, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * columns + at, value / tl.sum(value, 0), inside)


@triton.jit
def layer_norm(
    x, gain, bias, out, mean_out, scale_out, columns, epsilon, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, 0) / columns
    centred = tl.where(inside, value - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / columns + epsilon)
    result = centred * scale * tl.load(gain + at, inside) + tl.load(bias + at, inside)
    tl.store(out + row * columns + at, result, inside)
    tl.store(mean_out + row, mean)
    tl.store(scale_out + row, scale)


@triton.jit
def matmul(
    a,
    b,
    c,
    m,
    n,
    k,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    SUM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=SUM)
    for i in range(0, k, K):
        left = tl.load(a + rows[:, None] * k + (i + inner)[None, :])
        right = tl.load(b + (i + inner)[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=SUM)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty))


@triton.jit
def flash_attention(
    q, k, v, out, length, scale, M: tl.constexpr, N: tl.constexpr, HEAD: tl.constexpr
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    head = tl.program_id(1) * length * HEAD
    at = tl.arange(0, HEAD)
    query = tl.load(q + head + rows[:, None] * HEAD + at[None, :])
    most = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, HEAD), tl.float32)
    for first in range(0, (tl.program_id(0) + 1) * M, N):
        columns = first + tl.arange(0, N)
        key = tl.load(k + head + columns[None, :] * HEAD + at[:, None])
        score = tl.dot(query, key) * scale
        score = tl.where(columns[None, :] <= rows[:, None], score, -float("inf"))
        new = tl.maximum(most, tl.max(score, 1))
        weight = tl.exp2(score - new[:, None])
        factor = tl.exp2(most - new)
        total = total * factor + tl.sum(weight, 1)
        value = tl.load(v + head + columns[:, None] * HEAD + at[None, :])
        sums = tl.dot(weight.to(tl.float16), value, sums * factor[:, None])
        most = new
    tl.store(
        out + head + rows[:, None] * HEAD + at[None, :],
        (sums / total[:, None]).to(tl.float16),
    )


@triton.jit
def dropout(x, out, n, chance, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    kept = tl.rand(seed, at) > chance
    tl.store(
        out + at, tl.where(kept, tl.load(x + at, inside) / (1 - chance), 0.0), inside
    )


@triton.jit
def random_normals(out, words, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.randn(seed, at))
    tl.store(words + at, tl.randint(seed, at))


@triton.jit
def reductions(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.arange(0, ROWS)
    value = tl.load(x + row[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    tl.store(out + row, tl.sum(value, 1))
    tl.store(out + ROWS + row, tl.max(value, 1))
    tl.store(out + 2 * ROWS + row, tl.argmin(value, 1).to(tl.float32))
    tl.store(out + 3 * ROWS + tl.arange(0, COLUMNS), tl.sum(value, 0))
    tl.store(
        out + 3 * ROWS + COLUMNS + row,
        tl.xor_sum((value * 100).to(tl.int32), 1).to(tl.float32),
    )


@triton.jit
def _combine(a0, a1, b0, b1):
    return a0 * b0, b0 * a1 + b1


@triton.jit
def scans(x, decay, sums, recurrence, N: tl.constexpr):
    """Prefix sums, and the linear recurrence h = decay h + x by an associative scan."""
    at = tl.program_id(0) * N + tl.arange(0, N)
    value = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(value, 0))
    _, state = tl.associative_scan((tl.load(decay + at), value), 0, _combine)
    tl.store(recurrence + at, state)


@triton.jit
def histogram(x, out, N: tl.constexpr, BINS: tl.constexpr):
    value = tl.load(x + tl.program_id(0) * N + tl.arange(0, N))
    tl.atomic_add(out + tl.arange(0, BINS), tl.histogram(value, BINS))


@triton.jit
def atomics(keys, x, sums, most, floats, lock, guarded, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    key = tl.load(keys + at, inside, other=0)
    value = tl.load(x + at, inside, other=0)
    tl.atomic_add(sums + key, value, inside)
    tl.atomic_max(most + key, value, inside)
    tl.atomic_add(floats + key, value.to(tl.float32), inside)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(
        guarded, tl.load(guarded, volatile=True) + tl.sum(tl.where(inside, value, 0), 0)
    )
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def sort_rows(x, out, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def gather_rows(
    x, places, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PICKED: tl.constexpr
):
    row = tl.arange(0, ROWS)[:, None]
    value = tl.load(x + row * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    place = tl.load(places + row * PICKED + tl.arange(0, PICKED)[None, :])
    tl.store(
        out + row * PICKED + tl.arange(0, PICKED)[None, :], tl.gather(value, place, 1)
    )


@triton.jit
def transpose_cast(x, out, N: tl.constexpr):
    row, column = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    value = tl.trans(tl.load(x + row * N + column)).to(tl.bfloat16)
    tl.store(out + row * N + column, value)


@triton.jit
def matmul_grouped(
    a,
    b,
    c,
    m,
    n,
    k,
    GROUP: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """Blocks in groups of rows, ragged edges, a leaky ReLU: as Triton's tutorial has it."""
    rows_of_blocks, columns_of_blocks = tl.cdiv(m, M), tl.cdiv(n, N)
    in_group = GROUP * columns_of_blocks
    first = tl.program_id(0) // in_group * GROUP
    height = min(rows_of_blocks - first, GROUP)
    row = first + (tl.program_id(0) % in_group) % height
    column = (tl.program_id(0) % in_group) // height
    rows = row * M + tl.arange(0, M)
    columns = column * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for i in range(tl.cdiv(k, K)):
        left = inner < k - i * K
        x = tl.load(
            a + (rows % m)[:, None] * k + (i * K + inner)[None, :],
            left[None, :],
            other=0.0,
        )
        y = tl.load(
            b + (i * K + inner)[:, None] * n + (columns % n)[None, :],
            left[:, None],
            other=0.0,
        )
        total = tl.dot(x, y, total)
    total = tl.where(total >= 0, total, 0.01 * total)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16), inside)


@triton.jit
def weights_int4(
    packed, scale, x, out, K: tl.constexpr, N: tl.constexpr, M: tl.constexpr
):
    """A product with 4-bit weights, two in a byte, unpacked before the dot."""
    inner, columns, rows = tl.arange(0, K // 2), tl.arange(0, N), tl.arange(0, M)
    byte = tl.load(packed + inner[:, None] * N + columns[None, :])
    low, high = (byte & 15).to(tl.int8) - 8, (byte >> 4).to(tl.int8) - 8
    both = tl.join(low, high).permute(0, 2, 1).reshape(K, N)
    weight = both.to(tl.float16) * tl.load(scale + columns)[None, :]
    value = tl.load(x + rows[:, None] * K + tl.arange(0, K)[None, :])
    tl.store(out + rows[:, None] * N + columns[None, :], tl.dot(value, weight))


@triton.jit
def cached_copy(x, out, n, BLOCK: tl.constexpr):
    """Cache operators and eviction policies, and a loop over the grid."""
    for first in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = tl.load(x + at, at < n, eviction_policy="evict_first")
        value += tl.load(x + n - 1 - at, at < n, cache_modifier=".cg")
        value = tl.where(value > 0, tl.sqrt_rn(value), tl.div_rn(value, 3.0))
        tl.store(out + at, value, at < n, eviction_policy="evict_last")


@triton.jit
def functions(x, out, n: tl.constexpr):
    at = tl.arange(0, n)
    value = tl.load(x + at)
    tl.store(out + at, libdevice.erf(value))
    tl.store(out + n + at, libdevice.tanh(value) + tl.sigmoid(value))
    tl.store(out + 2 * n + at, libdevice.pow(tl.abs(value), 0.3))
    tl.store(out + 3 * n + at, tl.sin(value) * tl.log2(tl.abs(value) + 1))
    tl.store(
        out + 4 * n + at,
        tl.fma(value, value, tl.floor(value)) + tl.clamp(value, -1.0, 1.0),
    )


@triton.jit
def _keep_larger(value, place, other, there):
    larger = (other > value) | ((other == value) & (there < place))
    return tl.where(larger, other, value), tl.where(larger, there, place)


@triton.jit
def top_values(x, out, places, N: tl.constexpr, K: tl.constexpr):
    """The largest with its place by a reduction of pairs, and the first K of a sort."""
    at = tl.arange(0, N)
    value = tl.load(x + tl.program_id(0) * N + at)
    _, place = tl.reduce((value, at), 0, _keep_larger)
    tl.store(places + tl.program_id(0), place)
    tl.store(out + tl.program_id(0) * K + tl.arange(0, K), tl.topk(value, K))


def i32(value: int) -> inputs.Spec:
    return scalar("i32", value)


def _matmul(
    kind: str, shape: tuple[int, int, int], sum_type: Any, precision: str
) -> tuple[Any, ...]:
    m, n, k = shape
    make = integers if kind == "i8" else normal
    bounds = {"low": -128, "high": 128} if kind == "i8" else {}
    stored = "i32" if kind == "i8" else "f32"
    arguments = [
        make(kind, m, k, **bounds),
        make(kind, k, n, **bounds),
        output(stored, m, n),
    ]
    constants = {"M": 32, "N": 32, "K": 32, "SUM": sum_type, "PRECISION": precision}
    return (
        matmul,
        (m // 32, n // 32),
        [*arguments, i32(m), i32(n), i32(k)],
        constants,
        kind,
    )


# Kernel, grid, arguments, compile-time constants, tag.
KERNELS: list[tuple[Any, ...]] = [
    (
        vector_add,
        8,
        [normal("f32", 1000), wide("f32", 1000), output("f32", 1000), i32(1000)],
        {"BLOCK": 128},
        "",
    ),
    (
        fused_softmax,
        8,
        [normal("f32", 8, 200, scale=3.0), output("f32", 8, 200), i32(200)],
        {"BLOCK": 256},
        "",
    ),
    (
        layer_norm,
        6,
        [
            normal("f16", 6, 300),
            normal("f32", 300),
            normal("f32", 300),
            output("f16", 6, 300),
            output("f32", 6),
            output("f32", 6),
            i32(300),
            scalar("f32", 1e-5),
        ],
        {"BLOCK": 512},
        "",
    ),
    _matmul("f16", (64, 64, 128), tl.float32, "ieee"),
    _matmul("bf16", (64, 64, 96), tl.float32, "ieee"),
    _matmul("f32", (64, 64, 64), tl.float32, "tf32"),
    _matmul("e5m2", (32, 64, 64), tl.float32, "ieee"),
    _matmul("i8", (64, 64, 128), tl.int32, "ieee"),
    (
        flash_attention,
        (2, 2),
        [
            *[normal("f16", 2, 128, 64)] * 3,
            output("f16", 2, 128, 64),
            i32(128),
            scalar("f32", 0.18033688),
        ],
        {"M": 64, "N": 32, "HEAD": 64},
        "",
    ),
    (
        dropout,
        4,
        [
            normal("f32", 900),
            output("f32", 900),
            i32(900),
            scalar("f32", 0.3),
            i32(4321),
        ],
        {"BLOCK": 256},
        "",
    ),
    (
        random_normals,
        2,
        [output("f32", 512), output("i32", 512), i32(99)],
        {"BLOCK": 256},
        "",
    ),
    (
        reductions,
        1,
        [normal("f32", 16, 64), output("f32", 16 * 4 + 64)],
        {"ROWS": 16, "COLUMNS": 64},
        "",
    ),
    (
        scans,
        2,
        [
            normal("f32", 512),
            inputs.uniform("f32", 512, low=0.5, high=1.0),
            output("f32", 512),
            output("f32", 512),
        ],
        {"N": 256},
        "",
    ),
    (
        histogram,
        4,
        [integers("i32", 1024, low=0, high=64), full("i32", 64)],
        {"N": 256, "BINS": 64},
        "",
    ),
    (
        atomics,
        4,
        [
            integers("i32", 500, low=0, high=16),
            integers("i32", 500, low=-50, high=50),
            full("i32", 16),
            full("i32", 16),
            full("f32", 16),
            full("i32", 1),
            full("i32", 1),
            i32(500),
        ],
        {"BLOCK": 128},
        "",
    ),
    (sort_rows, 3, [normal("f32", 768), output("f32", 768)], {"N": 256}, ""),
    (
        gather_rows,
        1,
        [
            normal("f32", 16, 32),
            integers("i32", 16, 64, low=0, high=32),
            output("f32", 16, 64),
        ],
        {"ROWS": 16, "COLUMNS": 32, "PICKED": 64},
        "",
    ),
    (
        matmul_grouped,
        12,
        [
            normal("f16", 100, 72),
            normal("f16", 72, 90),
            output("f16", 100, 90),
            i32(100),
            i32(90),
            i32(72),
        ],
        {"GROUP": 2, "M": 32, "N": 32, "K": 32},
        "",
    ),
    (
        weights_int4,
        1,
        [
            inputs.bits("u8", 32, 32),
            normal("f16", 32),
            normal("f16", 32, 64),
            output("f32", 32, 32),
        ],
        {"K": 64, "N": 32, "M": 32},
        "",
    ),
    (
        cached_copy,
        3,
        [normal("f32", 3000), output("f32", 3000), i32(3000)],
        {"BLOCK": 256},
        "",
    ),
    (
        functions,
        1,
        [normal("f32", 512, scale=3.0), output("f32", 5, 512)],
        {"n": 512},
        "",
    ),
    (
        top_values,
        3,
        [normal("f32", 3, 128), output("f32", 3, 8), output("i32", 3)],
        {"N": 128, "K": 8},
        "",
    ),
    (transpose_cast, 1, [wide("f32", 64, 64), output("bf16", 64, 64)], {"N": 64}, ""),
]


def _signature(
    function: Any, arguments: list[inputs.Spec], constants: dict[str, Any]
) -> dict[str, str]:
    """Triton's word for the type of each argument."""
    words = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "e5m2": "fp8e5"}
    found = {}
    given = iter(arguments)
    for name in function.arg_names:
        if name in constants:
            found[name] = "constexpr"
            continue
        spec = next(given)
        word = words.get(spec["type"], spec["type"])
        found[name] = word if spec["kind"] == "scalar" else "*" + word
    return found


def compile_kernel(
    function: Any, arguments: list[inputs.Spec], constants: dict[str, Any]
) -> Any:
    """The compiled kernel, told which pointers and numbers are multiples of 16.

    Triton's own launcher tells the compiler the same.
    """
    names = function.arg_names
    keys = {(names.index(name),): value for name, value in constants.items()}
    signature = _signature(function, arguments, constants)
    given = iter(arguments)
    attributes = {}
    for i, name in enumerate(names):
        if name not in constants and next(given).get("value", 0) % 16 == 0:
            attributes[i,] = [["tt.divisibility", 16]]
    source = ASTSource(function, signature, keys, attributes)
    return triton.compile(source, target=TARGET, options={"num_warps": 4})


def programs() -> Iterator[tuple[str, str, list[Row]]]:
    """The name, PTX and launch of each kernel."""
    for function, grid, arguments, constants, tag in KERNELS:
        compiled = compile_kernel(function, arguments, constants)
        entry = compiled.metadata.name
        sizes = (grid,) if isinstance(grid, int) else grid
        text = compiled.asm["ptx"]
        # After our arguments come pointers to scratch memory, which none of these needs.
        scratch = [scalar("u64", 0)] * (parameter_count(text) - len(arguments))
        row = Row(
            "triton",
            entry,
            (*sizes, 1, 1)[:3],
            (32 * compiled.metadata.num_warps, 1, 1),
            [*arguments, *scratch],
            compiled.metadata.shared,
            tag,
        )
        yield f"triton.{row.name}", text, [row]


def parameter_count(text: str) -> int:
    """How many parameters the entry of a PTX text has."""
    return text.split(".entry", 1)[1].split("{", 1)[0].count(".param")
