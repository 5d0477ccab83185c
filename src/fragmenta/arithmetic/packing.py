"""Packs rows of A and columns of B for the steps of ``floor_steps``.

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

Each row of a sparse A takes other rows of B, so a pair of B has a place of its own for
each pair of A.  In panels of sixteen columns there is nothing to pair: a vector has one
product of each column.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from fragmenta.arithmetic.elements import (
    SPECIAL,
    Format,
    power_of_two,
)
from fragmenta.arrays.once import once
from fragmenta.jit.compiler import Traced, kernel, pointer
from fragmenta.jit.llvm import Type
from fragmenta.jit.trace import (
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
    float_of,
    half_of,
    joined,
    larger,
    ones,
    picked,
    select,
    shift_unsigned,
    smaller,
)

#: The most products along k that are packed at a time; a power of two.
DEPTH = 256

#: Rows of A in a group, which share the loads of B, for panels of eight columns.
GROUP = 4

#: Columns in a panel for a sparse A, and the most of k that is packed at a time.
WIDE, WIDE_DEPTH = 2 * LANES, 128

#: Exponents are clipped to this many below their base; the exponent of zero.
CLIP, NOTHING = -63, -128

# The same for the lowest bit: that of zero never loses anything.
_LOW_CLIP, _NEVER = -100, 127

# Less than every exponent.
_LOWEST = -8192


class Packing(NamedTuple):
    """What must be known to compile a packer."""

    source: Type  #: the type of raw bits
    form: Format
    values: Type
    scaled: bool  #: whether elements have ue8m0 scales
    sparse: bool  #: whether the products of a row are at any k
    across: int = LANES  #: columns in a panel

    @property
    def single(self) -> bool:
        """Whether products are taken one by one, not in pairs along k."""
        return self.across == WIDE

    @property
    def stride(self) -> int:
        """Elements from one row of A to the next."""
        return WIDE_DEPTH // 2 if self.single else DEPTH

    @property
    def group(self) -> int:
        """Rows in a group: a group and a panel have as many sums in any case."""
        return GROUP * LANES // self.across

    @property
    def lanes(self) -> Type:
        """The integers that elements are taken apart in."""
        found: Type = I32 if self.source == I32 else I16
        return found

    @property
    def wide(self) -> bool:
        """Whether exponents need a base."""
        return self.form.exponent_bits == 8 or self.scaled


class Element(NamedTuple):
    """Some elements, taken apart; exponents are 16-bit or 32-bit integers."""

    value: Value
    power: Value
    low: Value
    zero: Value
    negative: Value
    special: Value  #: whether it is infinite or NaN


def _element(raw: Value, of: Packing, scale: Value | None) -> Element:
    """Take raw bits apart."""
    form = of.form
    lanes = of.lanes
    bits = convert(raw, lanes, signed=False)
    if of.source == I32:  # tf32: the lowest bits are not used
        bits = shift_unsigned(bits, 13)
    spare = lanes.width - 1 - form.exponent_bits - form.fraction_bits
    magnitude = bits & ((1 << (lanes.width - 1 - spare)) - 1)
    negative = (bits << spare) < 0
    field = magnitude >> form.fraction_bits
    fraction = magnitude & ((1 << form.fraction_bits) - 1)
    significand = select(field > 0, fraction | (1 << form.fraction_bits), fraction)
    normal = larger(field, 1)
    trailing = ones((significand - 1) & ~significand)
    bias = (1 << (form.exponent_bits - 1)) - 1
    power, low = normal - bias, normal + trailing - (bias + form.fraction_bits)
    if form.least != 1 - bias:  # converted to another type, where it is normal
        top = significand | (significand >> 1)
        for distance in (2, 4, 8):
            top = top | (top >> distance)
        power = normal + ones(top) - (bias + form.fraction_bits + 1)
    special = magnitude >= min(form.special, (1 << (lanes.width - 1)) - 1)
    value = _value(bits, magnitude, negative, of)
    if scale is not None:
        shift = convert(scale, lanes) - 127
        special = special | (shift == SPECIAL - 127)
        value = value * power_of_two(convert(shift, I32))
        power, low = power + shift, low + shift
    return Element(value, power, low, magnitude == 0, negative, special)


def _value(bits: Value, magnitude: Value, negative: Value, of: Packing) -> Value:
    """The value of elements that are not infinite or NaN."""
    form = of.form
    if of.source == I32:
        return convert(float_of(bits << 13), of.values)
    if form.exponent_bits == 8:
        return convert(float_of(convert(bits, I32, signed=False) << 16), of.values)
    # The same number as f16, with another bias.
    half = magnitude << (10 - form.fraction_bits)
    half = half | (select(negative, bits.lift(-1 << 15), 0))
    bias = (1 << (form.exponent_bits - 1)) - 1
    value = convert(half_of(half), of.values)
    return value if bias == 15 else value * 2.0 ** (15 - bias)


def _relative(found: Element, base: Value | None) -> tuple[Value, Value]:
    """The exponents of elements and of their lowest bits, as 8-bit integers."""
    power, low = found.power, found.low
    if base is not None:
        power, low = larger(power - base, CLIP), larger(low - base, _LOW_CLIP)
    power, low = convert(power, I8), convert(low, I8)
    return select(found.zero, NOTHING, power), select(found.zero, _NEVER, low)


# -- columns ------------------------------------------------------------------


@once
def column_packer(of: Packing) -> Traced:
    """A kernel that packs a panel: ``count`` elements of up to eight columns.

    ``lows`` has, for each pair along k, four vectors of sixteen lanes: those for a pair
    of A with the signs ``++``, ``-+``, ``+-`` and ``--``.  A lane whose product is not
    negative never loses bits there.  If A is sparse, each k has two vectors, as wide as
    the panel: for a positive and for a negative element of A.

    Eight columns of a wider panel are packed at a time.
    """

    @kernel(
        bits=pointer(of.source),
        scales=pointer(I8),
        values=pointer(of.values),
        powers=pointer(I8),
        lows=pointer(I8),
        base=pointer(I16),
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
            found = code.variable(code.constant(0, memory.of).in_all_lanes())
            with code.when(left >= LANES):
                found.value = memory.lanes(start)
            with code.when(left < LANES):
                found.value = memory.gather(start + lane for lane in lanes)
            return found.value

        def element(k: Value) -> Element:
            scale = None
            if of.scaled:
                scale = convert(row(scales, k // per_scale), I32, signed=False)
            return _element(row(bits, k), of, scale)

        wrong = code.variable(code.constant(0, of.lanes).in_all_lanes() != 0)
        most = None
        if of.wide:
            largest = code.variable(code.constant(_LOWEST, of.lanes).in_all_lanes())
            with code.loop(count) as k:
                each = element(k)
                power = select(each.zero, _LOWEST, each.power)
                largest.value = larger(largest.value, power)
            most = select(largest.value == _LOWEST, 0, largest.value)
            base[0] = convert(most, I16)
        with code.loop(count, step=2) as k:
            both = [element(k + number) for number in range(2)]
            signed = []
            for number, found in enumerate(both):
                at = (k + number) * of.across
                power, low = _relative(found, most)
                values[at] = found.value
                powers[at] = power
                minus = select(found.negative, low, _NEVER)
                plus = select(found.negative, low.lift(_NEVER), low)
                signed.append((minus, plus))
                wrong.value = wrong.value | found.special
            if of.single:
                for number, vector in enumerate(chain(*signed)):
                    lows[(k * 2 + number) * of.across] = vector
            else:
                first = k * ((1 if of.sparse else 2) * 2 * LANES)
                for number, vector in enumerate(_pairs(signed, of.sparse)):
                    lows[first + number * 2 * LANES] = vector
        with code.when(any_lane(wrong.value)):
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
    """A kernel that packs ``length`` elements of each row of a group.

    Beyond the last row, the last one is repeated.  ``signs`` says which of the vectors
    of B's lowest bits belong to a pair, as a distance in bytes.  If A is sparse,
    ``places`` says where the columns of B for each element are in a panel, and
    ``signs`` where their lowest bits are.
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
        base=pointer(I16),
        special=pointer(I32),
        length=I64,
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
        wrong = code.variable(code.constant(0, of.lanes).in_all_lanes() != 0)
        with code.loop(of.group) as row:
            m = smaller(row, p.left - 1)
            start = m * p.depth

            def element(q: Value, start: Value = start, m: Value = m) -> Element:
                scale = None
                if of.scaled:
                    at = m * p.scales_depth + q // p.per_scale
                    scale = convert(scales[at], I32, signed=False).in_all_lanes()
                return _element(bits.lanes(start + q), of, scale)

            most = None
            if of.wide:
                least = code.constant(_LOWEST, of.lanes).in_all_lanes()
                largest = code.variable(least)
                with code.loop(p.length, step=LANES) as q:
                    each = element(q)
                    power = select(each.zero, _LOWEST, each.power)
                    largest.value = larger(largest.value, power)
                found = _largest_lane(largest.value)
                most = select(found == _LOWEST, 0, found)
                base[row] = convert(most, I16)
            with code.loop(p.length, step=LANES) as q:
                each = element(q)
                power, low = _relative(each, most)
                values[row * of.stride + q] = each.value
                wrong.value = wrong.value | each.special
                negative = convert(each.negative, I32, signed=False)
                for number, chosen in enumerate(_repeated(of)):
                    vectors = q * of.across // (2 * LANES) + number
                    at = (vectors * of.group + row) * (2 * LANES)
                    powers[at] = picked(power, chosen)
                    lows[at] = picked(low, chosen)
                if of.sparse:
                    place = convert(index.lanes(start + q), I32, signed=False)
                    first = convert(q // p.stored * p.k, I32)
                    there = (place + first) * of.across
                    places[row * of.stride + q] = there
                    signs[row * of.stride + q] = there * 2 + negative * of.across
                else:
                    even, odd = (
                        picked(negative, range(side, LANES, 2)) for side in range(2)
                    )
                    which = (even + odd * 2 + _pair_numbers(odd) * 4) * (2 * LANES)
                    start_pair = convert(q, I32) * (4 * LANES)
                    signs[(row * DEPTH + q) // 2] = which + start_pair
        with code.when(any_lane(wrong.value)):
            special[0] = code.constant(1, I32)

    return pack_rows


def _repeated(of: Packing) -> list[list[int]]:
    """Which of eight elements along k are in the lanes of each vector."""
    if of.single:
        return [[lane] * (2 * LANES) for lane in range(LANES)]
    return [[lane] * LANES + [lane + 1] * LANES for lane in range(0, LANES, 2)]


class _RowNumbers(NamedTuple):
    """The sizes of :func:`row_packer`."""

    length: Value  #: elements to pack
    depth: Value  #: elements of a whole row
    left: Value  #: rows from the first one of the group on
    per_scale: Value
    scales_depth: Value
    stored: Value
    k: Value


def _pair_numbers(like: Value) -> Value:
    """0, 1, 2, 3 in lanes."""
    b = like.builder
    return joined([Value(b, I32(number)) for number in range(LANES // 2)])


def _largest_lane(x: Value) -> Value:
    """The largest number of a vector of eight."""
    for half in (4, 2, 1):
        upper = picked(x, range(half, 2 * half))
        x = larger(picked(x, range(half)), upper)
    return each_lane(x)[0]
