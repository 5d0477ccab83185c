"""What do groups of e2m1 products with shared scales add up to?

One step takes some groups of products and the accumulator.  The products of a
group are integers (quarters) and are added as such; the scales' significands
are integers (eighths) too.  From there on it is a fused step like any other,
only with room for more bits: see :mod:`fragmenta.arithmetic.elements`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fragmenta.arithmetic.elements import (
    Rounding,
    Sums,
    entering,
    load,
    power_of_two,
    settle,
    store,
)
from fragmenta.arithmetic.vector import (
    LANES,
    Array,
    Integer,
    add_products,
    compiled,
    cut,
    part,
)

# The units of a product (a quarter) and of two scales (an eighth each), as bits.
_UNITS = 2 + 3 + 3


class Plan(NamedTuple):
    """The sizes and numbers that :func:`groups` works by."""

    rows: int
    columns: int  #: a multiple of eight
    instructions: int
    a_batches: int
    b_batches: int
    index_batches: int
    scale_a_batches: int
    scale_b_batches: int
    k: int
    stored: int
    products: int
    group: int
    scales: int
    ue4m3: int
    rounding: Rounding


@part
def scale_significand(bits: Integer, ue4m3: Integer) -> Integer:
    """The significand in eighths; -1 for NaN."""
    if not ue4m3:
        return -1 if bits == 255 else 8
    fraction = bits & 7
    return -1 if bits == 127 else fraction + 8 if bits >> 3 else fraction


@part
def scale_exponent(bits: Integer, ue4m3: Integer) -> Integer:
    """The exponent, that of a subnormal not normalised."""
    return max(bits >> 3, 1) - 7 if ue4m3 else bits - 127


@part
def add_groups(
    operands: tuple[Array, ...],
    a_at: Integer,
    b_at: Integer,
    offsets: Array,
    p: Plan,
    whole: Array,
    sizes: Array,
) -> None:
    """The sum of each group of an instruction, and that of the magnitudes."""
    a, b, a_sizes, b_sizes = operands
    for g in range(p.stored // p.group):
        first, to = g * p.group, g * LANES
        at = a_at + first
        whole[to : to + LANES] = 0
        sizes[to : to + LANES] = 0
        add_products(a, at, b, b_at, offsets, first, p.group, whole, to)
        add_products(a_sizes, at, b_sizes, b_at, offsets, first, p.group, sizes, to)


@part
def align_groups(
    scale_a: Array,
    scale_b: Array,
    whole: Array,
    sizes: Array,
    first: Integer,
    p: Plan,
    sums: Sums,
) -> None:
    """Align the groups of the step whose first group is given."""
    last, every = first + p.products // p.group, p.stored // p.group
    for lane in range(LANES):
        largest = entering(sums.c[lane], p.rounding.floor, p.rounding.least)
        for aligning in (False, True):
            for g in range(first, last):
                block = g * p.scales // every
                x = np.int64(scale_a[block])
                y = np.int64(scale_b[block * p.columns + lane])
                sx, sy = scale_significand(x, p.ue4m3), scale_significand(y, p.ue4m3)
                power = scale_exponent(x, p.ue4m3) + scale_exponent(y, p.ue4m3)
                if not aligning:
                    if sx < 0 or sy < 0:
                        sums.special[lane] = np.nan
                    if sizes[g * LANES + lane] and sx and sy:
                        largest = max(largest, power)
                else:
                    units = np.float64(np.int64(whole[g * LANES + lane]) * (sx * sy))
                    # Below -1000 nothing is left of any group.
                    shift = max(power - _UNITS + p.rounding.fraction - largest, -1000)
                    sums.total[lane] += cut(units * power_of_two(shift))
        sums.e[lane] = largest


@compiled
def groups(
    a: Array,
    b: Array,
    a_sizes: Array,
    b_sizes: Array,
    d: Array,
    index: Array,
    scale_a: Array,
    scale_b: Array,
    p: Plan,
    first_row: Integer,
    last_row: Integer,
) -> None:
    """Some rows of d in place; d holds c, as f32 bits, when this begins.

    A and B hold twice the values, as integers, and beside them their
    magnitudes.  All arrays are flat.  An empty ``index`` means a dense A.
    """
    length = p.stored * p.instructions
    offsets = np.empty(p.stored, np.int32)
    for q in range(p.stored):
        offsets[q] = q * p.columns
    c, e = np.zeros(LANES), np.zeros(LANES, np.int32)
    sums = Sums(c, e, np.zeros(LANES), np.zeros(LANES), c)
    whole = np.zeros(p.stored // p.group * LANES, np.int32)
    sizes = np.zeros(len(whole), np.int32)
    for row in range(first_row, last_row):
        batch, m = row // p.rows, row % p.rows
        a_at = (row if p.a_batches > 1 else m) * length
        index_at = (row if p.index_batches > 1 else m) * length
        scale_at = (row if p.scale_a_batches > 1 else m) * p.instructions * p.scales
        b_batch = batch if p.b_batches > 1 else 0
        scale_batch = batch if p.scale_b_batches > 1 else 0
        for n in range(0, p.columns, LANES):
            out = d[row * p.columns + n : row * p.columns + n + LANES]
            load(out, 0, c)
            for i in range(p.instructions):
                if len(index):
                    for q in range(p.stored):
                        k = np.int32(index[index_at + i * p.stored + q])
                        offsets[q] = k * p.columns
                b_at = (b_batch * p.instructions + i) * p.k * p.columns + n
                operands = (a, b, a_sizes, b_sizes)
                add_groups(
                    operands, a_at + i * p.stored, b_at, offsets, p, whole, sizes
                )
                sa = scale_a[scale_at + i * p.scales :]
                sb = scale_b[
                    (scale_batch * p.instructions + i) * p.scales * p.columns :
                ]
                for step in range(0, p.stored, p.products):
                    align_groups(sa, sb[n:], whole, sizes, step // p.group, p, sums)
                    settle(sums, p.rounding)
            store(c, 0, out)
