"""What do integers and single bits add up to?

Exactly that: the sum of products modulo 2**32, or with ``.satfinite`` clamped
once at the end of every instruction; for b1 the number of ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fragmenta.arithmetic.vector import (
    LANES,
    Array,
    Integer,
    add_products,
    compiled,
    ones,
)

_MOST = np.int64(2**31 - 1)


class Plan(NamedTuple):
    """The sizes that :func:`integers` and :func:`bits` work by."""

    rows: int
    columns: int  #: a multiple of eight, for integers
    instructions: int
    a_batches: int
    b_batches: int
    index_batches: int
    k: int
    stored: int  #: for bits, 64-bit words along k
    satfinite: int
    xor: int


@compiled
def integers(
    a: Array,
    b: Array,
    d: Array,
    index: Array,
    p: Plan,
    first_row: Integer,
    last_row: Integer,
) -> None:
    """Some rows of d in place; d holds c when this begins.

    All arrays are flat.  An empty ``index`` means that A is dense.
    """
    length, columns = p.stored * p.instructions, p.columns
    offsets = np.empty(p.stored, np.int32)
    for q in range(p.stored):
        offsets[q] = q * columns
    total = np.empty(LANES, np.int32)
    for row in range(first_row, last_row):
        a_at = (row if p.a_batches > 1 else row % p.rows) * length
        index_at = (row if p.index_batches > 1 else row % p.rows) * length
        b_batch = row // p.rows if p.b_batches > 1 else 0
        for i in range(p.instructions):
            first = i * p.stored
            if len(index):
                for q in range(p.stored):
                    offsets[q] = np.int32(index[index_at + first + q]) * columns
            start = (b_batch * p.instructions + i) * p.k * columns
            for n in range(0, columns, LANES):
                total[:] = 0
                add_products(
                    a, a_at + first, b, start + n, offsets, 0, p.stored, total, 0
                )
                out = d[row * columns + n : row * columns + n + LANES]
                for lane in range(LANES):
                    whole = np.int64(out[lane]) + np.int64(total[lane])
                    if p.satfinite and whole > _MOST:
                        whole = _MOST
                    if p.satfinite and whole < -_MOST - 1:
                        whole = -_MOST - 1
                    out[lane] = np.int32(whole)


@compiled
def bits(
    a: Array, b: Array, d: Array, p: Plan, first_row: Integer, last_row: Integer
) -> None:
    """b1: some rows of d in place.  A and the columns of B are 64-bit words."""
    words, columns = p.stored, p.columns
    for row in range(first_row, last_row):
        a_at = (row if p.a_batches > 1 else row % p.rows) * words
        x = a[a_at : a_at + words]
        b_column = row // p.rows * columns if p.b_batches > 1 else 0
        out = d[row * columns : (row + 1) * columns]
        for n in range(columns):
            y = b[(b_column + n) * words : (b_column + n + 1) * words]
            count = 0
            if p.xor:
                for w in range(words):
                    count += ones(x[w] ^ y[w])
            else:
                for w in range(words):
                    count += ones(x[w] & y[w])
            out[n] = np.int32(np.int64(out[n]) + count)
