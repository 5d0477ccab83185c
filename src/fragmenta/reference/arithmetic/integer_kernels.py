"""Kernels that multiply integers and single bits.

The sum of integer products is exact, modulo 2**32.  With ``.satfinite`` it is clamped
once, at the end of every instruction.  For b1 the sum is the number of ones.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced, kernel, pointer
from fragmenta.base.jit.trace import (
    I8,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    convert,
    larger,
    ones,
    select,
    smaller,
)
from fragmenta.reference.arithmetic.blocks import BlockSizes
from fragmenta.reference.arithmetic.elements import row_of

_MOST = 2**31 - 1


class IntegerVariant(NamedTuple):
    """What must be known to compile the sums of integers."""

    a_signed: bool
    b_signed: bool
    satfinite: bool


class IntegerProducts(NamedTuple):
    """Where the products of one instruction are."""

    a: Memory
    offsets: Memory | None  #: None if the rows of B are taken one after the other
    b: Memory
    a_at: Value
    offsets_at: Value
    b_at: Value
    a_step: int = 1  #: items from one element of A to the next


@once
def integers(variant: IntegerVariant) -> Traced:
    """The kernel that adds the products of 8-bit integers to c."""

    @kernel(
        a=pointer(I8),
        offsets=pointer(I32),
        b=pointer(I8),
        c=pointer(I32),
        **dict.fromkeys(BlockSizes._fields, I64),
    )
    def add_integers(
        code: Code, a: Memory, offsets: Memory, b: Memory, c: Memory, *numbers: Value
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
                    at = IntegerProducts(
                        a, offsets, b, a_at + first, offsets_at + first, b_at
                    )
                    total.value = integer_instruction(
                        code, at, p.stored, total.value, variant
                    )
                c[place] = total.value

    return add_integers


def integer_instruction(
    code: Code,
    at: IntegerProducts,
    stored: Value | int,
    total: Value,
    v: IntegerVariant,
) -> Value:
    """The sums after one instruction, for eight columns."""
    some = code.variable(total.lift(0))
    with code.loop(stored) as q:
        x = convert(at.a[at.a_at + q * at.a_step], I32, signed=v.a_signed)
        row = row_of(at.b_at, at.offsets, at.offsets_at + q)
        y = convert(at.b.lanes(row), I32, signed=v.b_signed)
        some.value = some.value + x * y
    if not v.satfinite:
        return total + some.value
    whole = convert(total, I64) + convert(some.value, I64)
    return convert(larger(smaller(whole, _MOST), -_MOST - 1), I32)


class BitSizes(NamedTuple):
    """The sizes of :func:`bits`."""

    rows: Value
    columns: Value
    words: Value  #: 64-bit words along k
    own_a: Value  #: 1 if every matrix of a batch has its own A, 0 if all share one
    own_b: Value
    first: Value  #: the first row to compute, counted over all matrices
    last: Value


@once
def count_bits(xor: bool) -> Traced:
    """The kernel for b1: adds to some rows of d.

    The rows of A and the columns of B are packed into 64-bit words.
    """

    @kernel(
        a=pointer(I64),
        b=pointer(I64),
        d=pointer(I32),
        **dict.fromkeys(BitSizes._fields, I64),
    )
    def add_bits(code: Code, a: Memory, b: Memory, d: Memory, *numbers: Value) -> None:
        p = BitSizes(*numbers)
        with code.loop(p.last, start=p.first) as row:
            x_at = select(p.own_a == 0, row % p.rows, row) * p.words
            column = row // p.rows * p.own_b * p.columns
            with code.loop(p.columns) as n:
                y_at = (column + n) * p.words
                count = code.variable(code.constant(0, I64))
                with code.loop(p.words) as w:
                    some = bit_products(a[x_at + w], b[y_at + w], xor)
                    count.value = count.value + some
                place = row * p.columns + n
                d[place] = d[place] + convert(count.value, I32)

    return add_bits


def bit_products(x: Value, y: Value, xor: bool) -> Value:
    """How many products of the bits of two words are 1."""
    return ones(x ^ y if xor else x & y)
