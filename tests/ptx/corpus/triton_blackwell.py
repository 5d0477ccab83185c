"""Triton kernels for Blackwell's Tensor Core: tcgen05, tensor memory, scaled products.

Most kernels are those for Hopper, which Triton compiles to ``tcgen05`` for ``sm_100a``.
Products with scale factors are here.  A launch is described as there.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul_scaled(
    a, b, c, a_scale, b_scale, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, KIND: tl.constexpr,
    PACK: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
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
