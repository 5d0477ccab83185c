"""Packs rows of A and columns of B for the steps of :mod:`fragmenta.arithmetic.floors`.

A packed element has four parts:

- its value, as a float that holds every product exactly in a fused multiply-add;
- its exponent, in 8 bits: the exponents of sixteen products are added at once;
- the exponent of its lowest bit that is set, in 8 bits: the sum of two of them is that
  of the product, and says whether a product loses bits;
- its sign.

Exponents of 8 bits are relative to a *base*: 0 for types of at most 5 exponent bits,
otherwise the largest exponent of the row or the column.  What is far below the base is
clipped; the steps detect it where it matters.

Products are taken in pairs along k, for eight columns: sixteen lanes.  The columns of B
lie in panels of eight.  The exponents of A are repeated for each lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fragmenta.arithmetic.elements import (
    SPECIAL,
    ZERO,
    Format,
    power_of_two,
    powers,
    small_value,
    wide_value,
)
from fragmenta.arrays.once import once
from fragmenta.jit.compiler import Traced, kernel, pointer
from fragmenta.jit.llvm import Type
from fragmenta.jit.trace import (
    I8,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    any_lane,
    bits_of,
    convert,
    larger,
    ones,
    picked,
    select,
    smaller,
)

#: The most products along k that are packed at a time; a power of two.
DEPTH = 256

#: Rows of A in a group, which share the loads of B.
GROUP = 4

#: Exponents are clipped to this many below their base; the exponent of zero.
CLIP, NOTHING = -63, -128

# The same for the lowest bit: that of zero never loses anything.
_LOW_CLIP, _NEVER = -100, 127


class Packing(NamedTuple):
    """What must be known to compile a packer."""

    source: Type  #: the type of raw bits
    form: Format
    values: Type
    scaled: bool  #: whether elements have ue8m0 scales
    sparse: bool  #: whether the products of a row are at any k

    @property
    def wide(self) -> bool:
        """Whether exponents need a base."""
        return self.form.exponent_bits == 8 or self.scaled


class Element(NamedTuple):
    """Some elements, taken apart."""

    value: Value
    power: Value  #: ZERO if it is zero
    low: Value
    negative: Value
    special: Value  #: whether it is infinite or NaN


def _element(bits: Value, of: Packing, scale: Value | None) -> Element:
    """Take raw bits (as 32-bit integers) apart."""
    wide = of.form.exponent_bits == 8
    size = of.source.width // 8
    x = wide_value(bits, size, of.form) if wide else small_value(bits, of.form)
    power, field = powers(x, of.form)
    word = bits_of(x)
    fraction = word & 0x7FFFFF
    # All bits below the lowest one that is set; the hidden bit is set, too.
    hidden = select(field > 0, fraction | 0x800000, fraction)
    low = larger(field, 1) - 150 + ones((hidden - 1) & ~hidden)
    special = field == SPECIAL
    value = convert(x, of.values)
    if scale is not None:
        shift = scale - 127
        special = special | (scale == SPECIAL)
        value = value * power_of_two(shift)
        power = select(power == ZERO, ZERO, power + shift)
        low = low + shift
    return Element(value, power, low, word < 0, special)


def _relative(found: Element, base: Value | None) -> tuple[Value, Value]:
    """The exponents of elements and of their lowest bits, as 8-bit integers."""
    power, low = found.power, found.low
    if base is not None:
        power, low = larger(power - base, CLIP), larger(low - base, _LOW_CLIP)
    zero = found.power == ZERO
    return (
        convert(select(zero, NOTHING, power), I8),
        convert(select(zero, _NEVER, low), I8),
    )


# -- columns ------------------------------------------------------------------


@once
def column_packer(of: Packing) -> Traced:
    """A kernel that packs a panel: ``count`` elements of up to eight columns.

    ``lows`` has, for each pair along k, four vectors of sixteen lanes: those for a pair
    of A with the signs ``++``, ``-+``, ``+-`` and ``--``.  A lane whose product is not
    negative never loses bits there.  If A is sparse, each k has two vectors of eight
    lanes: for a positive and for a negative element of A.
    """

    @kernel(
        bits=pointer(of.source),
        scales=pointer(I8),
        values=pointer(of.values),
        powers=pointer(I8),
        lows=pointer(I8),
        base=pointer(I32),
        special=pointer(I32),
        count=I64,
        columns=I64,
        left=I64,
        per_scale=I64,
    )
    def pack_columns(
        code: Code,
        bits: Memory,
        scales: Memory,
        values: Memory,
        powers: Memory,
        lows: Memory,
        base: Memory,
        special: Memory,
        count: Value,
        columns: Value,
        left: Value,
        per_scale: Value,
    ) -> None:
        # Beyond the last column, the last one is repeated.
        lanes = [smaller(left - 1, lane) for lane in range(LANES)]

        def row(memory: Memory, k: Value) -> Value:
            start = k * columns
            found = code.variable(memory.lanes(0).lift(0))
            with code.when(left >= LANES):
                found.value = memory.lanes(start)
            with code.when(left < LANES):
                found.value = memory.gather(start + lane for lane in lanes)
            return convert(found.value, I32, signed=False)

        def element(k: Value) -> Element:
            scale = row(scales, k // per_scale) if of.scaled else None
            return _element(row(bits, k), of, scale)

        wrong = code.variable(code.constant(0, I32).in_all_lanes())
        most = None
        if of.wide:
            largest = code.variable(code.constant(ZERO, I32).in_all_lanes())
            with code.loop(count) as k:
                largest.value = larger(largest.value, element(k).power)
            most = select(largest.value == ZERO, 0, largest.value)
            base[0] = most
        with code.loop(count, step=2) as k:
            both = [element(k + number) for number in range(2)]
            signed = []
            for number, found in enumerate(both):
                at = (k + number) * LANES
                power, low = _relative(found, most)
                values[at] = found.value
                powers[at] = power
                minus = select(found.negative, low, _NEVER)
                plus = select(found.negative, low.lift(_NEVER), low)
                signed.append((minus, plus))
                wrong.value = wrong.value | convert(found.special, I32)
            for number, vector in enumerate(_pairs(signed, of.sparse)):
                lows[(k * 2 + number) * (2 * LANES) - k * of.sparse * 2 * LANES] = (
                    vector
                )
        with code.when(any_lane(wrong.value != 0)):
            special[0] = code.constant(1, I32)

    return pack_columns


def _pairs(signed: list[tuple[Value, Value]], sparse: bool) -> Iterable[Value]:
    """The vectors of two k."""
    first, second = signed
    every = range(2 * LANES)
    if sparse:
        return [picked(minus, every, plus) for minus, plus in signed]
    return [picked(x, every, y) for y in second for x in first]


# -- rows ---------------------------------------------------------------------


@once
def row_packer(of: Packing) -> Traced:
    """A kernel that packs ``count`` elements of each row of a group.

    Beyond the last row, the last one is repeated.  ``signs`` says which of the vectors
    of B's lowest bits belong to a pair, as a distance in bytes.  If A is sparse,
    ``places`` holds the k of each element, and ``signs`` where B's lowest bits are.
    """

    @kernel(
        bits=pointer(of.source),
        scales=pointer(I8),
        index=pointer(I8),
        values=pointer(of.values),
        powers=pointer(I8),
        lows=pointer(I8),
        signs=pointer(I32),
        places=pointer(I32),
        base=pointer(I32),
        special=pointer(I32),
        count=I64,
        depth=I64,
        left=I64,
        per_scale=I64,
        scales_depth=I64,
        stored=I64,
        k=I64,
    )
    def pack_rows(
        code: Code,
        bits: Memory,
        scales: Memory,
        index: Memory,
        values: Memory,
        powers: Memory,
        lows: Memory,
        signs: Memory,
        places: Memory,
        base: Memory,
        special: Memory,
        *numbers: Value,
    ) -> None:
        p = _RowNumbers(*numbers)
        wrong = code.variable(code.constant(0, I32).in_all_lanes())
        with code.loop(GROUP) as row:
            m = smaller(row, p.left - 1)
            start = m * p.depth

            def element(q: Value, start: Value = start, m: Value = m) -> Element:
                raw = bits.lanes(start + q)
                scale = None
                if of.scaled:
                    at = m * p.scales_depth + q // p.per_scale
                    scale = convert(scales[at], I32, signed=False).in_all_lanes()
                return _element(convert(raw, I32, signed=False), of, scale)

            most = None
            if of.wide:
                largest = code.variable(code.constant(ZERO, I32).in_all_lanes())
                with code.loop(p.count, step=LANES) as q:
                    largest.value = larger(largest.value, element(q).power)
                found = _largest_lane(largest.value)
                most = select(found == ZERO, 0, found)
                base[row] = most
            with code.loop(p.count, step=LANES) as q:
                each = element(q)
                power, low = _relative(each, most)
                values[row * DEPTH + q] = each.value
                wrong.value = wrong.value | convert(each.special, I32)
                negative = convert(each.negative, I32, signed=False)
                for pair in range(LANES // 2):
                    twice = [2 * pair] * LANES + [2 * pair + 1] * LANES
                    at = ((q // 2 + pair) * GROUP + row) * (2 * LANES)
                    powers[at] = picked(power, twice)
                    lows[at] = picked(low, twice)
                if of.sparse:
                    place = convert(index.lanes(start + q), I32, signed=False)
                    first = convert(q // p.stored * p.k, I32)
                    places[row * DEPTH + q] = place + first
                    signs[row * DEPTH + q] = ((place + first) * 2 + negative) * LANES
                else:
                    even, odd = (
                        picked(negative, range(side, LANES, 2)) for side in range(2)
                    )
                    signs[(row * DEPTH + q) // 2] = (even + odd * 2) * (2 * LANES)
        with code.when(any_lane(wrong.value != 0)):
            special[0] = code.constant(1, I32)

    return pack_rows


class _RowNumbers(NamedTuple):
    """The sizes of :func:`row_packer`."""

    count: Value
    depth: Value  #: elements of a whole row
    left: Value  #: rows from the first one of the group on
    per_scale: Value
    scales_depth: Value
    stored: Value
    k: Value


def _largest_lane(x: Value) -> Value:
    """The largest number of a vector of eight."""
    for half in (4, 2, 1):
        upper = picked(x, range(half, 2 * half))
        x = larger(picked(x, range(half)), upper)
    return Value(x.builder, x.builder.extract_element(x.raw, I32(0)))
