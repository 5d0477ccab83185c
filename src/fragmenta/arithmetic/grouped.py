"""Sums of groups of e2m1 products that share scales.

One step adds some groups of products and the accumulator.  The products of a group
are integers, in units of 1/4, and are added as integers.  The significands of the
scales are integers, too, in units of 1/8.  The rest is like any other fused step,
with more bits: see :mod:`fragmenta.arithmetic.elements`.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.arithmetic.blocks import BlockSizes
from fragmenta.arithmetic.elements import (
    Rounding,
    entering,
    power_of_two,
    row_of,
    settle,
    to_float32,
)
from fragmenta.arrays.once import once
from fragmenta.jit.compiler import Traced, kernel, pointer
from fragmenta.jit.trace import (
    F32,
    F64,
    I8,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    convert,
    is_nan,
    larger,
    select,
    truncate,
)

# A product has the unit 2**-2, each of its two scales the unit 2**-3.
_UNITS = 2 + 3 + 3


class GroupedVariant(NamedTuple):
    """What must be known to compile the steps."""

    group: int  #: products in one group
    groups: int  #: groups in one step
    nearest: bool


class GroupedNumbers(NamedTuple):
    """Where the scales of a block are, and how its steps align and round."""

    scales: Value  #: scales per row of A and instruction
    scale_a_tile: Value  #: items from one tile of scales to the next, as in A
    scale_b_tile: Value
    fraction: Value
    floor: Value
    keep: Value
    least: Value


_NUMBERS = (*BlockSizes._fields, *GroupedNumbers._fields)


class Scaled(NamedTuple):
    """Scales as significands (in eighths; NaN for a NaN) and exponents."""

    significands: Memory
    exponents: Memory


class GroupedOperands(NamedTuple):
    """The operands of a step in memory."""

    a: Memory
    offsets: Memory | None  #: None if the rows of B are taken one after the other
    b: Memory
    scale_a: Scaled
    scale_b: Scaled


class Starts(NamedTuple):
    """Where the operands of one row and one panel begin."""

    a: Value
    offsets: Value
    b: Value
    scale_a: Value
    scale_b: Value
    scales: Value  #: per row of A and instruction
    stored: Value  #: products per instruction
    a_step: int = 1  #: items from one element, and one scale, of A to the next


@once
def grouped_kernel(variant: GroupedVariant) -> Traced:
    """The kernel that computes all steps of a block.

    A and B hold the doubled values of the elements, as integers.
    """

    @kernel(
        a=pointer(I8),
        offsets=pointer(I32),
        b=pointer(I8),
        sa=pointer(F64),
        ea=pointer(I32),
        sb=pointer(F64),
        eb=pointer(I32),
        c=pointer(F32),
        **dict.fromkeys(_NUMBERS, I64),
    )
    def grouped_steps(
        code: Code,
        a: Memory,
        offsets: Memory,
        b: Memory,
        sa: Memory,
        ea: Memory,
        sb: Memory,
        eb: Memory,
        c: Memory,
        *numbers: Value,
    ) -> None:
        sizes = len(BlockSizes._fields)
        p, r = BlockSizes(*numbers[:sizes]), GroupedNumbers(*numbers[sizes:])
        rounding = Rounding(r.fraction, r.floor, r.keep, r.least, variant.nearest)
        depth, blocks = p.instructions * p.stored, p.instructions * r.scales
        scales = Scaled(sa, ea), Scaled(sb, eb)
        operands = GroupedOperands(a, offsets, b, *scales)
        tiles, panels, rows = code.loop(p.tiles), code.loop(p.panels), code.loop(p.rows)
        with tiles as tile, panels as n, rows as m:
            at = Starts(
                tile * p.a_tile + m * depth,
                tile * p.offsets_tile + m * p.offsets_row,
                tile * p.b_tile + n * (p.instructions * p.k * LANES),
                tile * r.scale_a_tile + m * blocks,
                tile * r.scale_b_tile + n * (blocks * LANES),
                r.scales,
                p.stored,
            )
            place = ((tile * p.panels + n) * p.rows + m) * LANES
            x = code.variable(convert(c.lanes(place), F64))
            step = variant.group * variant.groups
            with code.loop(depth, step=step) as first:
                x.value = grouped_step(
                    code, operands, at, first, x.value, rounding, variant
                )
            c[place] = to_float32(x.value)

    return grouped_steps


class Group(NamedTuple):
    """The sum of one group of products, for eight columns."""

    units: Value  #: the sum, in units of 2**(power - _UNITS)
    power: Value
    counts: Value  #: whether its power counts for the largest exponent
    odd: Value  #: NaN if a scale is NaN, otherwise 0


def grouped_step(
    code: Code,
    operands: GroupedOperands,
    at: Starts,
    first: Value,
    x: Value,
    p: Rounding,
    v: GroupedVariant,
) -> Value:
    """The accumulators after the step that begins with product ``first``."""
    # Loops, not copies of the code for each group: compiling takes half the time.
    units, powers = (
        code.scratch(F64, v.groups * LANES),
        code.scratch(I32, v.groups * LANES),
    )
    largest = code.variable(entering(x, p.floor, p.least))
    special, total = code.variable(x.lift(0.0)), code.variable(x.lift(0.0))
    with code.loop(v.groups) as number:
        group = _group(code, operands, at, first + number * v.group, v)
        most = larger(largest.value, group.power)
        largest.value = select(group.counts, most, largest.value)
        special.value = special.value + group.odd
        units[number * LANES] = group.units
        powers[number * LANES] = group.power
    with code.loop(v.groups) as number:
        power = powers.lanes(number * LANES)
        shift = convert(power - largest.value, I64) - _UNITS + p.fraction
        # Any group that is shifted by less than -1000 becomes zero.
        by = power_of_two(larger(shift, -1000))
        total.value = total.value + truncate(units.lanes(number * LANES) * by)
    return settle(x, largest.value, total.value, special.value, p)


def _group(
    code: Code,
    operands: GroupedOperands,
    at: Starts,
    first: Value,
    v: GroupedVariant,
) -> Group:
    """Add the products of a group, and multiply by its scales."""
    a, offsets, b, scale_a, scale_b = operands
    zero = code.constant(0, I32).in_all_lanes()
    whole, sizes = code.variable(zero), code.variable(zero)
    with code.loop(first + v.group, start=first) as q:
        row = row_of(at.b, offsets, at.offsets + q)
        product = convert(a[at.a + q * at.a_step], I32) * convert(b.lanes(row), I32)
        whole.value = whole.value + product
        sizes.value = sizes.value | product
    block = first * at.scales // at.stored
    row, column = at.scale_a + block * at.a_step, at.scale_b + block * LANES
    scale = scale_a.significands[row] * scale_b.significands.lanes(column)
    odd = is_nan(scale)
    units = convert(whole.value, F64) * select(odd, 0.0, scale)
    return Group(
        units,
        scale_a.exponents[row] + scale_b.exponents.lanes(column),
        (sizes.value != 0) & (scale != 0),
        select(odd, scale, 0.0),
    )
