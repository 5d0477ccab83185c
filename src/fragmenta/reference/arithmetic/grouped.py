"""Sums of groups of e2m1 products that share scales.

One step adds some groups of products and the accumulator.  The products of a group
are integers, in units of 1/4, and are added exactly.  A float64 holds their sum times
both scales.  The rest is like any other fused step, with more bits: see
:mod:`fragmenta.reference.arithmetic.elements`.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced, kernel, pointer
from fragmenta.base.jit.trace import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    any_lane,
    convert,
    each_lane,
    fma,
    half_of,
    larger,
    picked,
    select,
    truncate,
)
from fragmenta.reference.arithmetic.blocks import BlockSizes
from fragmenta.reference.arithmetic.elements import (
    Rounding,
    entering,
    power_of_two,
    row_of,
    settle,
    to_float32,
)

# Elements are doubled, so products are in quarters: 2**-2.
_QUARTERS = 2

#: Elements along k that share a mask.
MASKED = 16


class GroupedVariant(NamedTuple):
    """What must be known to compile the steps."""

    group: int  #: products in one group
    groups: int  #: groups in one step
    nearest: bool
    sparse: bool


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
    """Scales as values (NaN for a NaN) and exponents."""

    values: Memory
    exponents: Memory


class GroupedOperands(NamedTuple):
    """The operands of a step in memory."""

    a: Memory
    offsets: Memory | None  #: None if the rows of B are taken one after the other
    b: Memory
    scale_a: Scaled
    scale_b: Scaled
    masks: tuple[Memory, Memory] | None = None
    """For each group of A and B, which elements are not zero: a bit for each."""


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
    masks: tuple[Value, Value] | None = None


@once
def grouped_kernel(variant: GroupedVariant) -> Traced:
    """The kernel that computes all steps of a block.

    A and B hold the doubled values of the elements.
    """

    @kernel(
        a=pointer(F32),
        offsets=pointer(I32),
        b=pointer(F32),
        sa=pointer(F64),
        ea=pointer(I32),
        sb=pointer(F64),
        eb=pointer(I32),
        some_a=pointer(I16),
        some_b=pointer(I16),
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
        some_a: Memory,
        some_b: Memory,
        c: Memory,
        *numbers: Value,
    ) -> None:
        sizes = len(BlockSizes._fields)
        p, r = BlockSizes(*numbers[:sizes]), GroupedNumbers(*numbers[sizes:])
        rounding = Rounding(r.fraction, r.floor, r.keep, r.least, variant.nearest)
        depth, blocks = p.instructions * p.stored, p.instructions * r.scales
        scales = Scaled(sa, ea), Scaled(sb, eb)
        masks = None if variant.sparse else (some_a, some_b)
        operands = GroupedOperands(a, offsets, b, *scales, masks)
        groups = depth // variant.group
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
                masks=(
                    select(p.a_tile == 0, 0, tile * p.rows * groups) + m * groups,
                    (select(p.b_tile == 0, 0, tile * p.panels) + n) * groups * LANES,
                ),
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


class GroupSum(NamedTuple):
    """The sum of one group of products, for eight columns."""

    total: Value  #: in quarters; NaN if a scale is NaN
    power: Value
    counts: Value  #: whether its power counts for the largest exponent


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
    totals = code.scratch(F64, v.groups * LANES)
    largest = code.variable(entering(x, p.floor, p.least))
    total = code.variable(x.lift(0.0))
    with code.loop(v.groups) as number:
        group = _group(code, operands, at, first + number * v.group, v)
        most = larger(largest.value, group.power)
        largest.value = select(group.counts, most, largest.value)
        totals[number * LANES] = group.total
    # The largest exponent is the sum of two scales' or the accumulator's, so this is
    # a normal number, and so is every total times it.
    by = power_of_two(p.fraction - convert(largest.value, I64) - _QUARTERS)
    with code.loop(v.groups) as number:
        total.value = total.value + truncate(totals.lanes(number * LANES) * by)
    special = total.value - total.value  # 0, or NaN
    return settle(x, largest.value, total.value, special, p)


def _group(
    code: Code,
    operands: GroupedOperands,
    at: Starts,
    first: Value,
    v: GroupedVariant,
) -> GroupSum:
    """Add the products of a group, and multiply by its scales."""
    scale_a, scale_b = operands.scale_a, operands.scale_b
    block = first * at.scales // at.stored
    row, column = at.scale_a + block * at.a_step, at.scale_b + block * LANES
    scale = scale_a.values[row] * scale_b.values.lanes(column)
    add = _float_sum if operands.a.of == F32 else _integer_sum
    whole, counts = add(code, operands, at, first, v)
    return GroupSum(
        convert(whole, F64) * scale,
        scale_a.exponents[row] + scale_b.exponents.lanes(column),
        counts & (scale != 0),
    )


def _integer_sum(
    code: Code, of: GroupedOperands, at: Starts, first: Value, v: GroupedVariant
) -> tuple[Value, Value]:
    """The sum of the products of integers, and whether one of them is not zero."""
    zero = code.constant(0, I32).in_all_lanes()
    whole, sizes = code.variable(zero), code.variable(zero)
    with code.loop(first + v.group, start=first) as q:
        row = row_of(at.b, of.offsets, at.offsets + q)
        x = convert(of.a[at.a + q * at.a_step], I32)
        product = x * convert(of.b.lanes(row), I32)
        whole.value = whole.value + product
        sizes.value = sizes.value | product
    return whole.value, sizes.value != 0


def _float_sum(
    code: Code, of: GroupedOperands, at: Starts, first: Value, v: GroupedVariant
) -> tuple[Value, Value]:
    """The same for integers that are held as float32, one after the other in A.

    Without masks, the products of a sum that is zero are looked at once more.
    """
    zero = code.constant(0.0, F32).in_all_lanes()
    whole, sizes = code.variable(zero), code.variable(zero)

    def rows(q: Value, number: int) -> Value:
        return of.b.lanes(row_of(at.b, of.offsets, at.offsets + q + number))

    with code.loop(first + v.group, start=first, step=4) as q:
        some = of.a.lanes(at.a + q, 4)
        for number in range(4):
            x = picked(some, [number] * LANES)
            whole.value = fma(x, rows(q, number), whole.value)
    if of.masks is not None and at.masks is not None:
        group = first // v.group
        x = of.masks[0][at.masks[0] + group]
        y = of.masks[1].lanes(at.masks[1] + group * LANES)
        return whole.value, (y & x) != 0
    zeros = any_lane(whole.value == 0)
    with code.when(zeros), code.loop(first + v.group, start=first) as q:
        product = of.a[at.a + q] * rows(q, 0)
        sizes.value = sizes.value + abs(product)
    return whole.value, (whole.value != 0) | (sizes.value != 0)


# -- operands -----------------------------------------------------------------
#
# An e2m1 is an f16 with another bias, shifted to the left.  Elements are doubled.

_SHIFT, _SIGN = 9, 12
_SCALE = 2.0**15


def _doubled(raw: Value) -> Value:
    """The doubled values of e2m1 numbers, as float32."""
    bits = convert(raw, I16, signed=False)
    return half_of(((bits & 7) << _SHIFT) | ((bits & 8) << _SIGN)) * _SCALE


def _some(raw: Value, bits: Value) -> Value:
    """Bits, where an e2m1 is not zero."""
    return select((convert(raw, I16, signed=False) & 7) != 0, bits, 0)


@kernel(bits=pointer(I8), values=pointer(F32), masks=pointer(I16), count=I64)
def unpack_rows(
    code: Code, bits: Memory, values: Memory, masks: Memory, count: Value
) -> None:
    """The values of e2m1 numbers, and which of sixteen are not zero: a bit for each."""
    powers = code.table([1 << lane for lane in range(LANES)], I16)
    with code.loop(count, step=MASKED) as q:
        found = []
        for start in (0, LANES):
            raw = bits.lanes(q + start)
            values[q + start] = _doubled(raw)
            some = _some(raw, powers.lanes(0) << start)
            for half in (4, 2, 1):
                some = picked(some, range(half)) | picked(some, range(half, 2 * half))
            found.append(each_lane(some)[0])
        masks[q // MASKED] = found[0] | found[1]


@kernel(bits=pointer(I8), values=pointer(F32), masks=pointer(I16), count=I64)
def unpack_columns(
    code: Code, bits: Memory, values: Memory, masks: Memory, count: Value
) -> None:
    """The same for panels of eight columns: sixteen numbers of a column have a mask."""
    with code.loop(count, step=MASKED * LANES) as q:
        found = code.constant(0, I16).in_all_lanes()
        for k in range(MASKED):
            raw = bits.lanes(q + k * LANES)
            values[q + k * LANES] = _doubled(raw)
            found = found | _some(raw, found.lift(1 << k))
        masks[q // MASKED] = found


@kernel(
    bits=pointer(I8),
    each_value=pointer(F64),
    each_exponent=pointer(I32),
    values=pointer(F64),
    exponents=pointer(I32),
    count=I64,
)
def unpack_scales(
    code: Code,
    bits: Memory,
    each_value: Memory,
    each_exponent: Memory,
    values: Memory,
    exponents: Memory,
    count: Value,
) -> None:
    """The values and exponents of scales, from tables of all of them."""
    with code.loop(count) as number:
        raw = convert(bits[number], I64, signed=False)
        values[number] = each_value[raw]
        exponents[number] = each_exponent[raw]
