"""What do integers and single bits add up to?

Exactly that: the sum of products modulo 2**32, or with ``.satfinite`` clamped
once at the end of every instruction; for b1 the number of ones.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from fragmenta.arithmetic.vector import LANES, add_products, compiled, ones

Array: TypeAlias = Any  # what mypy sees of the arrays of compiled code


@compiled
def integers(
    a: Array, b: Array, d: Array, index: Array, rows: int, columns: int, k: int,
    stored: int, instructions: int, a_batches: int, b_batches: int,
    index_batches: int, satfinite: bool, first_row: int, last_row: int,
) -> None:
    """Some rows of d in place; d holds c when this begins.

    All arrays are flat; the columns of B and d come in multiples of eight.
    An empty ``index`` means that A is dense.
    """  # fmt: skip
    length = stored * instructions
    offsets = np.empty(stored, np.int32)
    for p in range(stored):
        offsets[p] = p * columns
    total = np.empty(LANES, np.int32)
    for row in range(first_row, last_row):
        a_at = (row if a_batches > 1 else row % rows) * length
        b_at = row // rows * k * instructions * columns if b_batches > 1 else 0
        index_at = (row if index_batches > 1 else row % rows) * length
        for i in range(instructions):
            if len(index):
                for p in range(stored):
                    offsets[p] = np.int32(index[index_at + i * stored + p]) * columns
            start = b_at + i * k * columns
            for n in range(0, columns, LANES):
                total[:] = 0
                add_products(
                    a, a_at + i * stored, b, start + n, offsets, 0, stored, total, 0
                )
                out = d[row * columns + n : row * columns + n + LANES]
                for lane in range(LANES):
                    whole = np.int64(out[lane]) + np.int64(total[lane])
                    if satfinite:
                        whole = min(max(whole, -(2**31)), 2**31 - 1)
                    out[lane] = np.int32(whole)


@compiled
def bits(
    a: Array, b: Array, d: Array, rows: int, columns: int, words: int,
    a_batches: int, b_batches: int, xor: bool, first_row: int, last_row: int,
) -> None:
    """b1: some rows of d in place.  A and the columns of B are 64-bit words."""  # fmt: skip
    for row in range(first_row, last_row):
        a_at = (row if a_batches > 1 else row % rows) * words
        x = a[a_at : a_at + words]
        for n in range(columns):
            b_at = (row // rows * columns if b_batches > 1 else 0) + n
            y = b[b_at * words : (b_at + 1) * words]
            count = 0
            for w in range(words):
                count += ones(x[w] ^ y[w] if xor else x[w] & y[w])
            d[row * columns + n] = np.int32(np.int64(d[row * columns + n]) + count)
