"""Triton kernels with numeric bugs, and their repaired twins.

    python -m tests.numerics.planted.keep_triton

compiles them, which needs no GPU, and keeps the PTX beside this file.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def masked_softmax_wrong(score, seen, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    value = tl.where(tl.load(seen + at) != 0, tl.load(score + at), float("-inf"))
    most = tl.max(value, 0)
    shifted = value - most
    power = tl.exp2(shifted)
    total = tl.sum(power, 0)
    tl.store(out + at, power / total)


@triton.jit
def masked_softmax(score, seen, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    value = tl.where(tl.load(seen + at) != 0, tl.load(score + at), float("-inf"))
    most = tl.max(value, 0)
    most = tl.where(most == float("-inf"), 0.0, most)
    power = tl.exp2(value - most)
    total = tl.sum(power, 0)
    tl.store(out + at, power / tl.where(total == 0.0, 1.0, total))


@triton.jit
def row_norm_wrong(x, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    value = tl.load(x + at)
    mean = tl.sum(value, 0) / columns
    squares = tl.sum(value * value, 0) / columns
    spread = squares - mean * mean
    tl.store(out + at, (value - mean) * tl.rsqrt(spread + 1.0))


@triton.jit
def row_norm(x, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    value = tl.load(x + at)
    mean = tl.sum(value, 0) / columns
    centred = value - mean
    centred -= tl.sum(centred, 0) / columns  # what the rounded mean has left
    spread = tl.sum(centred * centred, 0) / columns
    tl.store(out + at, centred * tl.rsqrt(spread + 1.0))


@triton.jit
def half_matmul_wrong(a, b, out, steps, BLOCK: tl.constexpr):
    row, column = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float16)
    for step in range(steps):
        left = tl.load(a + row * (steps * BLOCK) + step * BLOCK + column)
        right = tl.load(b + (step * BLOCK + row) * BLOCK + column)
        total = tl.dot(left, right, total, out_dtype=tl.float16)
    tl.store(out + row * BLOCK + column, total.to(tl.float32))


@triton.jit
def half_matmul(a, b, out, steps, BLOCK: tl.constexpr):
    row, column = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for step in range(steps):
        left = tl.load(a + row * (steps * BLOCK) + step * BLOCK + column)
        right = tl.load(b + (step * BLOCK + row) * BLOCK + column)
        total = tl.dot(left, right, total)
    tl.store(out + row * BLOCK + column, total)
