"""What are the sums of integers and of single bits?

The sum of integer products is exact, modulo 2**32.  With ``.satfinite`` it is clamped
once, at the end of every instruction.  For b1 the sum is the number of ones.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from fragmenta.arithmetic.blocks import BlockSizes
from fragmenta.machine.compiler import Traced, kernel, pointer
from fragmenta.machine.trace import (
    I8,
    I32,
    I64,
    LANES,
    Code,
    Value,
    convert,
    larger,
    ones,
    select,
    smaller,
)

_MOST = 2**31 - 1


@cache
def integers(a_signed: bool, b_signed: bool, satfinite: bool) -> Traced:
    """The kernel that adds the products of 8-bit integers to c."""

    @kernel(
        a=pointer(I8), offsets=pointer(I32), b=pointer(I8), c=pointer(I32),
        **dict.fromkeys(BlockSizes._fields, I64),
    )  # fmt: skip
    def add_integers(
        code: Code, a: Any, offsets: Any, b: Any, c: Any, *numbers: Value
    ) -> None:
        p = BlockSizes(*numbers)
        depth = p.instructions * p.stored
        with code.loop(p.tiles) as tile, code.loop(p.panels) as n:
            b_at = tile * p.b_tile + n * (p.instructions * p.k * LANES)
            with code.loop(p.rows) as m:
                a_at = tile * p.a_tile + m * depth
                offsets_at = tile * p.offsets_tile + m * p.offsets_row
                place = ((tile * p.panels + n) * p.rows + m) * LANES
                total = code.variable(c.lanes(place))
                with code.loop(depth, step=p.stored) as first:
                    some = code.variable(total.value.lift(0))
                    with code.loop(first + p.stored, start=first) as q:
                        x = convert(a[a_at + q], I32, signed=a_signed)
                        row = b_at + convert(offsets[offsets_at + q], I64)
                        y = convert(b.lanes(row), I32, signed=b_signed)
                        some.value = some.value + x * y
                    total.value = _added(total.value, some.value, satfinite)
                c[place] = total.value

    return add_integers


def _added(total: Value, some: Value, satfinite: bool) -> Value:
    if not satfinite:
        return total + some
    whole = convert(total, I64) + convert(some, I64)
    return convert(larger(smaller(whole, _MOST), -_MOST - 1), I32)


class BitSizes(NamedTuple):
    """The sizes of :func:`bits`."""

    rows: Any
    columns: Any
    words: Any  #: 64-bit words along k
    own_a: Any  #: 1 if every matrix of a batch has its own A, 0 if all share one
    own_b: Any
    first: Any  #: the first row to compute, counted over all matrices
    last: Any


@cache
def count_bits(xor: bool) -> Traced:
    """The kernel for b1: adds to some rows of d.

    The rows of A and the columns of B are packed into 64-bit words.
    """

    @kernel(
        a=pointer(I64), b=pointer(I64), d=pointer(I32),
        **dict.fromkeys(BitSizes._fields, I64),
    )  # fmt: skip
    def add_bits(code: Code, a: Any, b: Any, d: Any, *numbers: Value) -> None:
        p = BitSizes(*numbers)
        with code.loop(p.last, start=p.first) as row:
            x_at = select(p.own_a == 0, row % p.rows, row) * p.words
            column = row // p.rows * p.own_b * p.columns
            with code.loop(p.columns) as n:
                y_at = (column + n) * p.words
                count = code.variable(code.constant(0, I64))
                with code.loop(p.words) as w:
                    x, y = a[x_at + w], b[y_at + w]
                    count.value = count.value + ones(x ^ y if xor else x & y)
                place = row * p.columns + n
                d[place] = d[place] + convert(count.value, I32)

    return add_bits
