"""Triton kernels for Hopper: wgmma, tensor descriptors, clusters, warp specialisation.

A launch names the kernel, the grid in programs, the arguments, the compile-time
constants and Triton's options.  An argument may be a descriptor of an array: then
Triton's own launcher makes its tensor map.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from fragmenta.inspect.evidence.arguments import (
    Spec,
    integers,
    normal,
    output,
    scalar,
    special,
    wide,
)

LOG2_E = 1.4426950408889634


# ── products ────────────────────────────────────────────────────────────────


@triton.jit
def matmul(
    a,
    b,
    c,
    m,
    n,
    k,
    b_row,
    b_column,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    SUM: tl.constexpr,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=SUM)
    for i in range(0, k, K):
        left = tl.load(a + rows[:, None] * k + (i + inner)[None, :])
        right = tl.load(b + (i + inner)[:, None] * b_row + columns[None, :] * b_column)
        total = tl.dot(left, right, total, out_dtype=SUM)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty))


@triton.jit
def matmul_ragged(
    a, b, c, bias, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """Masks at all edges; a bias, a GELU and a cast in the epilogue."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for i in range(0, k, K):
        inside = inner < k - i
        left = tl.load(
            a + rows[:, None] * k + (i + inner)[None, :],
            (rows[:, None] < m) & inside[None, :],
            other=0.0,
        )
        right = tl.load(
            b + (i + inner)[:, None] * n + columns[None, :],
            inside[:, None] & (columns[None, :] < n),
            other=0.0,
        )
        total = tl.dot(left, right, total)
    total += tl.load(bias + columns, columns < n, other=0.0)[None, :]
    total *= tl.sigmoid(1.702 * total)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16), inside)


@triton.jit
def matmul_made_here(
    a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """Tensor descriptors made on the device: tensormap.replace."""
    left_map = tl.make_tensor_descriptor(a, [m, k], [k, 1], [M, K])
    right_map = tl.make_tensor_descriptor(b, [n, k], [k, 1], [N, K])
    result_map = tl.make_tensor_descriptor(c, [m, n], [n, 1], [M, N])
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), dtype=tl.float32)
    for i in range(0, k, K):
        left = left_map.load([row, i])
        right = right_map.load([column, i])
        total = tl.dot(left, right.T, total)
    result_map.store([row, column], total.to(c.dtype.element_ty))


@triton.jit
def matmul_persistent(
    a_map,
    b_map,
    c_map,
    m,
    n,
    k,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    SPECIALISE: tl.constexpr,
):
    """A few programs take all tiles; the host makes the descriptors."""
    across = tl.cdiv(n, N)
    for tile in tl.range(
        tl.program_id(0),
        tl.cdiv(m, M) * across,
        tl.num_programs(0),
        flatten=True,
        warp_specialize=SPECIALISE,
    ):
        row, column = tile // across * M, tile % across * N
        total = tl.zeros((M, N), dtype=tl.float32)
        for i in range(tl.cdiv(k, K)):
            left = a_map.load([row, i * K])
            right = b_map.load([i * K, column])
            total = tl.dot(left, right, total)
        c_map.store([row, column], total.to(tl.float16))


@triton.jit
def matmul_specialised(
    a_map, b_map, c, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """A group of warps copies, others multiply, where Triton can."""
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), dtype=tl.float32)
    for i in tl.range(0, k, K, warp_specialize=True):
        total = tl.dot(a_map.load([row, i]), b_map.load([column, i]).T, total)
    rows, columns = row + tl.arange(0, M), column + tl.arange(0, N)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


@triton.jit
def matmul_added(
    a_map, b_map, c_map, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """Programs along k add to the same tile by the copy engine."""
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    first = tl.program_id(2) * K
    total = tl.zeros((M, N), dtype=tl.float32)
    for i in range(first, k, K * tl.num_programs(2)):
        total = tl.dot(a_map.load([row, i]), b_map.load([column, i]).T, total)
    c_map.atomic_add([row, column], total)


# ── attention ───────────────────────────────────────────────────────────────


@triton.jit
def _step(
    query,
    key,
    value,
    first,
    rows,
    most,
    total,
    sums,
    scale,
    N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    score = tl.dot(query, key) * scale
    if CAUSAL:
        columns = first + tl.arange(0, N)
        score = tl.where(columns[None, :] <= rows[:, None], score, -1.0e6)
    new = tl.maximum(most, tl.max(score, 1))
    weight = tl.exp2(score - new[:, None])
    factor = tl.exp2(most - new)
    total = total * factor + tl.sum(weight, 1)
    sums = tl.dot(weight.to(tl.float16), value, sums * factor[:, None])
    return new, total, sums


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    length,
    scale,
    M: tl.constexpr,
    N: tl.constexpr,
    HEAD: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    head = tl.program_id(1) * length * HEAD
    at = tl.arange(0, HEAD)
    query = tl.load(q + head + rows[:, None] * HEAD + at[None, :])
    most = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, HEAD), tl.float32)
    end = (tl.program_id(0) + 1) * M if CAUSAL else length
    for first in range(0, end, N):
        columns = first + tl.arange(0, N)
        key = tl.load(k + head + columns[None, :] * HEAD + at[:, None])
        value = tl.load(v + head + columns[:, None] * HEAD + at[None, :])
        most, total, sums = _step(
            query, key, value, first, rows, most, total, sums, scale, N, CAUSAL
        )
    tl.store(
        out + head + rows[:, None] * HEAD + at[None, :],
        (sums / total[:, None]).to(tl.float16),
    )


@triton.jit
def attention_by_maps(
    q_map,
    k_map,
    v_map,
    out_map,
    length,
    scale,
    M: tl.constexpr,
    N: tl.constexpr,
    HEAD: tl.constexpr,
    CAUSAL: tl.constexpr,
    SPECIALISE: tl.constexpr,
):
    row = tl.program_id(1) * length + tl.program_id(0) * M
    rows = tl.program_id(0) * M + tl.arange(0, M)
    query = q_map.load([row, 0])
    most = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, HEAD), tl.float32)
    end = (tl.program_id(0) + 1) * M if CAUSAL else length
    for first in tl.range(0, end, N, warp_specialize=SPECIALISE):
        key = k_map.load([tl.program_id(1) * length + first, 0]).T
        value = v_map.load([tl.program_id(1) * length + first, 0])
        most, total, sums = _step(
            query, key, value, first, rows, most, total, sums, scale, N, CAUSAL
        )
    out_map.store([row, 0], (sums / total[:, None]).to(tl.float16))


# ── launches ────────────────────────────────────────────────────────────────


class Launched(NamedTuple):
    """One launch."""

    function: Any
    grid: tuple[int, int, int]
    arguments: list[Spec]
    constants: dict[str, Any]
    options: dict[str, Any]
    tag: str

    @property
    def name(self) -> str:
        """The kernel and the tag."""
        return "-".join(filter(None, [self.function.__name__, self.tag]))


def i32(value: int) -> Spec:
    return scalar("i32", value)


def described(spec: Spec, *block: int) -> Spec:
    """A descriptor of an array that this describes."""
    return {**spec, "block": block}


def _matmul(
    kind: str,
    size: tuple[int, int, int],
    tile: tuple[int, int, int],
    tag: str = "",
    make: Any = normal,
    transposed: bool = True,
    **options: Any,
) -> Launched:
    (m, n, k), (tall, wide_, deep) = size, tile
    total = "i32" if kind == "i8" else "f32"
    bounds = {"low": -128, "high": 128} if make is integers else {}
    a = make(kind, m, k, **bounds)
    b = make(kind, *((n, k) if transposed else (k, n)), **bounds)
    steps = (1, k) if transposed else (n, 1)
    return Launched(
        matmul,
        (m // tall, n // wide_, 1),
        [a, b, output(total, m, n), *map(i32, (m, n, k, *steps))],
        {
            "M": tall,
            "N": wide_,
            "K": deep,
            "SUM": tl.int32 if kind == "i8" else tl.float32,
        },
        options,
        "-".join(filter(None, [kind, tag])),
    )


def _persistent(tag: str, specialise: bool, **options: Any) -> Launched:
    m, n, k, tall, wide_, deep = 256, 256, 192, 128, 128, 64
    return Launched(
        matmul_persistent,
        (3 // options.get("num_ctas", 1) or 1, 1, 1),
        [
            described(normal("f16", m, k), tall, deep),
            described(normal("f16", k, n), deep, wide_),
            described(output("f16", m, n), tall, wide_),
            *map(i32, (m, n, k)),
        ],
        {"M": tall, "N": wide_, "K": deep, "SPECIALISE": specialise},
        options,
        tag,
    )


def _made_here(kind: str, result: str, tag: str = "", **options: Any) -> Launched:
    m, n, k, tall, wide_, deep = 200, 144, 160, 64, 64, 64
    return Launched(
        matmul_made_here,
        (4, 3, 1),
        [
            normal(kind, m, k),
            normal(kind, n, k),
            output(result, m, n),
            *map(i32, (m, n, k)),
        ],
        {"M": tall, "N": wide_, "K": deep},
        options,
        "-".join(filter(None, [kind, tag])),
    )


def _attention(
    causal: bool,
    head: int,
    maps: bool = False,
    specialise: bool = False,
    **options: Any,
) -> Launched:
    heads, length, tall, wide_ = 2, 256, 64 if head == 64 else 128, 64
    rows = heads * length
    inputs = [normal("f16", rows, head)] * 3
    made = [*inputs, output("f16", rows, head)]
    constants = {"M": tall, "N": wide_, "HEAD": head, "CAUSAL": causal}
    function = attention
    if maps:
        blocks = [tall, wide_, wide_, tall]
        made = [
            described(one, block, head) for one, block in zip(made, blocks, strict=True)
        ]
        constants["SPECIALISE"] = specialise
        function = attention_by_maps
    words = ["causal" if causal else "whole", str(head)]
    words += ["specialised"] if specialise else []
    words += [f"{name}{value}" for name, value in options.items()]
    return Launched(
        function,
        (length // tall, heads, 1),
        [*made, i32(length), scalar("f32", LOG2_E / head**0.5)],
        constants,
        options,
        "-".join(filter(None, words)),
    )


LAUNCHES: list[Launched] = [
    _matmul("f16", (128, 128, 256), (64, 128, 64)),
    _matmul(
        "f16",
        (128, 128, 128),
        (128, 128, 64),
        "rows",
        transposed=False,
        num_warps=8,
        num_stages=4,
    ),
    _matmul("f16", (64, 64, 128), (64, 64, 32), "special", make=special),
    _matmul("bf16", (128, 128, 192), (64, 64, 64)),
    _matmul("bf16", (64, 64, 128), (64, 64, 64), "wide", make=wide),
    _matmul("e4m3", (128, 128, 256), (64, 64, 128)),
    _matmul("e5m2", (64, 64, 256), (64, 64, 64)),
    _matmul("f32", (128, 64, 128), (64, 64, 32)),
    _matmul("i8", (128, 128, 256), (64, 64, 64), make=integers),
    _matmul(
        "f16", (256, 128, 128), (128, 128, 64), "cluster", transposed=False, num_ctas=2
    ),
    Launched(
        matmul_ragged,
        (2, 2, 1),
        [
            normal("f16", 100, 90),
            normal("f16", 90, 72),
            output("f16", 100, 72),
            normal("f32", 72),
            *map(i32, (100, 72, 90)),
        ],
        {"M": 64, "N": 64, "K": 32},
        {},
        "",
    ),
    _made_here("f16", "f16"),
    _made_here("bf16", "f32", "deep", num_stages=4, num_warps=8),
    _made_here("e4m3", "f16"),
    _persistent("", False),
    _persistent("specialised", True, num_warps=8),
    _persistent("cluster", False, num_ctas=2),
    Launched(
        matmul_specialised,
        (2, 2, 1),
        [
            described(normal("f16", 128, 256), 64, 64),
            described(normal("f16", 128, 256), 64, 64),
            output("f32", 128, 128),
            *map(i32, (128, 256)),
        ],
        {"M": 64, "N": 64, "K": 64},
        {},
        "",
    ),
    Launched(
        matmul_added,
        (2, 2, 2),
        [
            described(integers("f16", 128, 128, low=-8, high=9), 64, 32),
            described(integers("f16", 128, 128, low=-8, high=9), 64, 32),
            described(integers("f32", 128, 128, low=-8, high=9), 64, 64),
            i32(128),
        ],
        {"M": 64, "N": 64, "K": 32},
        {},
        "",
    ),
    _attention(False, 64),
    _attention(True, 64, num_stages=3),
    _attention(True, 128, num_warps=8),
    _attention(False, 64, maps=True),
    _attention(True, 128, maps=True, num_warps=8),
    _attention(True, 64, maps=True, specialise=True),
]
