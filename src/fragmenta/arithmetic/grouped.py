"""What do groups of e2m1 products with shared scales add up to?

One step takes four groups of 8 products and the accumulator.  The products of a
group are integers (quarters) and are added as such; the scales' significands
are integers (eighths) too.  From there on it is a fused step like any other,
only with room for more bits: see :mod:`fragmenta.arithmetic.floating`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from fragmenta.arithmetic.floating import (
    entering,
    load,
    power_of_two,
    settle,
    store,
)
from fragmenta.arithmetic.vector import LANES, add_products, compiled, cut, part

Array: TypeAlias = Any  # what mypy sees of the arrays of compiled code

# Products in a group; units of a product and of two scales' significands.
_GROUP = 8
_UNITS = 2 + 6


@part
def scale_significand(bits: int, ue4m3: bool) -> Any:
    """The significand in eighths; -1 for NaN."""
    if not ue4m3:
        return -1 if bits == 255 else 8
    fraction = bits & 7
    return -1 if bits == 127 else fraction + 8 if bits >> 3 else fraction


@part
def scale_exponent(bits: int, ue4m3: bool) -> Any:
    """The exponent, that of a subnormal not normalised."""
    return max(bits >> 3, 1) - 7 if ue4m3 else bits - 127


@compiled
def groups(
    a: Array, b: Array, a_sizes: Array, b_sizes: Array, d: Array, index: Array,
    scale_a: Array, scale_b: Array, rows: int, columns: int, k: int, stored: int,
    instructions: int, scales: int, a_batches: int, b_batches: int,
    index_batches: int, scale_a_batches: int, scale_b_batches: int, ue4m3: bool,
    products: int, fraction: int, floor: int, keep: int, first_row: int,
    last_row: int,
) -> None:
    """Some rows of d in place; d holds c, as f32 bits, when this begins.

    A and B hold twice the values, as integers, and beside them their
    magnitudes.  All arrays are flat; columns come in multiples of eight.  An
    empty ``index`` means that A is dense.
    """  # fmt: skip
    length = stored * instructions
    offsets = np.empty(stored, np.int32)
    for p in range(stored):
        offsets[p] = p * columns
    c, e, total = np.zeros(LANES), np.zeros(LANES, np.int32), np.zeros(LANES)
    special = np.zeros(LANES)
    sums = np.zeros((stored // _GROUP) * LANES, np.int32)
    sizes = np.zeros(len(sums), np.int32)
    for row in range(first_row, last_row):
        batch, m = row // rows, row % rows
        a_at = (row if a_batches > 1 else m) * length
        index_at = (row if index_batches > 1 else m) * length
        b_batch = batch if b_batches > 1 else 0
        sa_at = (row if scale_a_batches > 1 else m) * instructions * scales
        sb_batch = batch if scale_b_batches > 1 else 0
        for n in range(0, columns, LANES):
            out = d[row * columns + n : row * columns + n + LANES]
            load(out, 0, c)
            for i in range(instructions):
                if len(index):
                    for p in range(stored):
                        at = index_at + i * stored + p
                        offsets[p] = np.int32(index[at]) * columns
                b_at = (b_batch * instructions + i) * k * columns + n
                sums[:] = 0
                sizes[:] = 0
                for g in range(stored // _GROUP):
                    first, to = g * _GROUP, g * LANES
                    at = a_at + i * stored + first
                    add_products(a, at, b, b_at, offsets, first, _GROUP, sums, to)
                    add_products(
                        a_sizes, at, b_sizes, b_at, offsets, first, _GROUP, sizes, to
                    )
                sb_at = (sb_batch * instructions + i) * scales * columns + n
                for step in range(0, stored, products):
                    align(
                        scale_a[sa_at + i * scales : sa_at + (i + 1) * scales],
                        scale_b[sb_at:], columns, sums, sizes, step // _GROUP,
                        products // _GROUP, stored // _GROUP, ue4m3, fraction, floor,
                        c, e, total, special,
                    )  # fmt: skip
                    settle(c, e, total, special, fraction, floor, keep, -126, False)
            store(c, 0, out)


@part
def align(
    scale_a: Array, scale_b: Array, columns: int, sums: Array, sizes: Array,
    first: int, count: int, in_all: int, ue4m3: bool, fraction: int, floor: int,
    c: Array, e: Array, total: Array, special: Array,
) -> None:
    """The aligned groups of one step, eight columns of a row at a time."""  # fmt: skip
    for lane in range(LANES):
        largest = np.int64(entering(c[lane], floor, -126))
        for g in range(first, first + count):
            block = g * len(scale_a) // in_all
            x, y = np.int64(scale_a[block]), np.int64(scale_b[block * columns + lane])
            if scale_significand(x, ue4m3) < 0 or scale_significand(y, ue4m3) < 0:
                special[lane] = np.nan
            factor = scale_significand(x, ue4m3) * scale_significand(y, ue4m3)
            if sizes[g * LANES + lane] and factor:
                power = scale_exponent(x, ue4m3) + scale_exponent(y, ue4m3)
                largest = max(largest, power)
        for g in range(first, first + count):
            block = g * len(scale_a) // in_all
            x, y = np.int64(scale_a[block]), np.int64(scale_b[block * columns + lane])
            factor = scale_significand(x, ue4m3) * scale_significand(y, ue4m3)
            power = scale_exponent(x, ue4m3) + scale_exponent(y, ue4m3)
            whole = np.float64(np.int64(sums[g * LANES + lane]) * factor)
            # Below -1000 nothing is left of any group.
            shift = max(power - _UNITS + fraction - largest, -1000)
            total[lane] += cut(whole * power_of_two(shift))
        e[lane] = largest
