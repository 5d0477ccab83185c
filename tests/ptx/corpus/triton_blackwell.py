"""Triton kernels for Blackwell: tcgen05, tensor memory, products with scale factors.

Most of them are the kernels for Hopper, which Triton compiles to ``tcgen05`` for
``sm_100a``.  Launches are described as there.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fragmenta.inspect.evidence.arguments import Spec, bits, integers, normal, output
from tests.ptx.corpus.triton_hopper import LAUNCHES as HOPPER
from tests.ptx.corpus.triton_hopper import Launched, i32


@triton.jit
def matmul_scaled(
    a,
    b,
    c,
    a_scale,
    b_scale,
    n,
    k,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    KIND: tl.constexpr,
    PACK: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Elements with a scale factor for each ``VECTOR`` of them along k."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner, scales = tl.arange(0, K // PACK), tl.arange(0, K // VECTOR)
    wide, factors = k // PACK, k // VECTOR
    total = tl.zeros((M, N), dtype=tl.float32)
    for i in range(tl.cdiv(k, K)):
        at, factor = i * (K // PACK) + inner, i * (K // VECTOR) + scales
        left = tl.load(a + rows[:, None] * wide + at[None, :])
        right = tl.load(b + columns[None, :] * wide + at[:, None])
        left_scale = tl.load(a_scale + rows[:, None] * factors + factor[None, :])
        right_scale = tl.load(b_scale + columns[:, None] * factors + factor[None, :])
        total = tl.dot_scaled(left, left_scale, KIND, right, right_scale, KIND, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


def _scaled(kind: str, vector: int, tag: str) -> Launched:
    m, n, k, pack = 128, 64, 256, 2 if kind == "e2m1" else 1
    tile = {"M": 128, "N": 64, "K": 128}

    def elements(rows: int) -> Spec:
        return bits("u8", rows, k // 2) if pack == 2 else normal(kind, rows, k)

    def scales(rows: int) -> Spec:
        shape = rows, k // vector
        if vector == 16:  # ue4m3, without a sign
            return {**integers("u8", *shape, low=0x20, high=0x50), "type": "e4m3"}
        return integers("u8", *shape, low=120, high=135)  # ue8m0: exponents

    return Launched(
        matmul_scaled,
        (m // tile["M"], n // tile["N"], 1),
        [
            elements(m),
            elements(n),
            output("f32", m, n),
            scales(m),
            scales(n),
            i32(n),
            i32(k),
        ],
        {**tile, "KIND": kind, "PACK": pack, "VECTOR": vector},
        {},
        tag,
    )


LAUNCHES: list[Launched] = [
    *HOPPER,
    _scaled("e4m3", 32, "mxfp8"),
    _scaled("e2m1", 32, "mxfp4"),
    _scaled("e2m1", 16, "nvfp4"),
]
