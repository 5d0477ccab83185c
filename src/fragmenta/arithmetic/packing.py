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

from collections.abc import Callable, Iterable
from functools import partial
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
    I1,
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
    recast,
    scalar_type,
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

_SIXTEEN = range(2 * LANES)


class Packing(NamedTuple):
    """What must be known to compile a packer."""

    source: Type  #: the type of raw bits
    form: Format
    values: Type
    scaled: bool  #: whether elements have ue8m0 scales
    sparse: bool  #: whether the products of a row are at any k
    across: int = LANES  #: columns in a panel
    sixteens: bool = False  #: whether rows have whole sixteens of elements

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

    @property
    def at_once(self) -> int:
        """How many elements of a row are taken apart at a time."""
        return 2 * LANES if self.as_bytes else LANES

    @property
    def as_bytes(self) -> bool:
        """Whether sixteen elements are taken apart at a time, in 8-bit integers."""
        return self.sixteens and not self.wide


class Parts(NamedTuple):
    """Some elements, taken apart; exponents are integers of any width."""

    power: Value
    low: Value
    zero: Value
    negative: Value
    special: Value  #: whether it is infinite or NaN
    magnitude: Value  #: all bits but the sign


class Element(NamedTuple):
    """Some elements with their values."""

    values: list[Value]
    parts: Parts


def _parts(bits: Value, form: Format) -> Parts:
    """Take raw bits apart, in integers that hold them."""
    width = scalar_type(bits.type).width
    spare = width - 1 - form.exponent_bits - form.fraction_bits
    magnitude = bits & ((1 << (width - 1 - spare)) - 1)
    field = magnitude >> form.fraction_bits
    fraction = magnitude & ((1 << form.fraction_bits) - 1)
    significand = select(field > 0, fraction | (1 << form.fraction_bits), fraction)
    normal = larger(field, 1)
    bias = (1 << (form.exponent_bits - 1)) - 1
    power = normal - bias
    if form.least != 1 - bias:  # converted to another type, where it is normal
        top = significand | (significand >> 1)
        for distance in (2, 4, 8):
            if distance < width:
                top = top | (top >> distance)
        power = normal + ones(top) - (bias + form.fraction_bits + 1)
    return Parts(
        power,
        normal + _trailing(significand) - (bias + form.fraction_bits),
        magnitude == 0,
        (bits << spare) < 0,
        magnitude >= min(form.special, (1 << (width - 1)) - 1),
        magnitude,
    )


def _trailing(x: Value) -> Value:
    """How many zeros an integer ends with; all its bits if it is zero."""
    return ones((x - 1) & ~x)


def _half_parts(bits: Value) -> Parts:
    """Take f16 numbers apart: their upper and lower halves, in 8-bit integers."""
    lanes = range(2 * bits.type.count)
    lower, upper = (picked(recast(bits, I8), lanes[side::2]) for side in (0, 1))
    magnitude = upper & 0x7F
    field, fraction = magnitude >> 2, upper & 3
    significand = select(field > 0, fraction | 4, fraction)
    normal = larger(field, 1)
    more = select(lower == 0, _trailing(significand), 0)
    return Parts(
        normal - 15,
        normal + (_trailing(lower) + more) - 25,
        (magnitude | lower) == 0,
        upper < 0,
        field == 31,
        magnitude,
    )


def _element(raw: Value, of: Packing, scale: Value | None = None) -> Element:
    """Take elements apart: eight, or sixteen in 8-bit integers."""
    if of.as_bytes:
        parts = _half_parts(raw) if of.source == I16 else _parts(raw, of.form)
        halves = (range(start, start + LANES) for start in (0, LANES))
        values = [_value(_wider(picked(raw, half), of), of) for half in halves]
        return Element(values, parts)
    bits = _wider(raw, of)
    parts, value = _parts(bits, of.form), _value(bits, of)
    if scale is not None:
        shift = convert(scale, of.lanes) - 127
        value = value * power_of_two(convert(shift, I32))
        parts = parts._replace(
            power=parts.power + shift,
            low=parts.low + shift,
            special=parts.special | (shift == SPECIAL - 127),
        )
    return Element([value], parts)


def _wider(raw: Value, of: Packing) -> Value:
    """Raw bits as integers of 16 or 32 bits."""
    bits = convert(raw, of.lanes, signed=False)
    # The lowest bits of tf32 are not used.
    return shift_unsigned(bits, 13) if of.source == I32 else bits


def _value(bits: Value, of: Packing) -> Value:
    """The value of elements that are not infinite or NaN."""
    form = of.form
    if of.source == I32:
        return convert(float_of(bits << 13), of.values)
    if form.exponent_bits == 8:
        return convert(float_of(convert(bits, I32, signed=False) << 16), of.values)
    # The same number as f16, with another bias.
    size = form.exponent_bits + form.fraction_bits
    half = bits
    if size < 15:
        half = (bits & ((1 << size) - 1)) << (10 - form.fraction_bits)
        half = half | ((bits >> size) << 15)
    bias = (1 << (form.exponent_bits - 1)) - 1
    value = convert(half_of(half), of.values)
    return value if bias == 15 else value * 2.0 ** (15 - bias)


def _relative(found: Parts, base: Value | None) -> tuple[Value, Value]:
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

        def pair(k: Value) -> tuple[list[Value], list[Parts]]:
            if of.as_bytes:
                both = picked(row(bits, k), range(2 * LANES), row(bits, k + 1))
                found = _element(both, of)
                return found.values, [found.parts]
            two = [element(k + number) for number in range(2)]
            return [each.values[0] for each in two], [each.parts for each in two]

        wrong = code.variable(code.constant(0, I1).in_all_lanes())
        most = None
        if of.wide:
            largest = code.variable(code.constant(_LOWEST, of.lanes).in_all_lanes())
            with code.loop(count) as k:
                each = element(k).parts
                power = select(each.zero, _LOWEST, each.power)
                largest.value = larger(largest.value, power)
            most = select(largest.value == _LOWEST, 0, largest.value)
            base[0] = convert(most, I16)
        with code.loop(count, step=2) as k:
            found, parts = pair(k)
            for number, value in enumerate(found):
                values[(k + number) * of.across] = value
            power, minus, plus = (_both(each) for each in _signed(parts, most))
            for each in parts:
                wrong.value = wrong.value | _any_half(each.special)
            if of.single:
                _put_halves(powers, k * WIDE, WIDE, [power])
                _put_halves(lows, k * (2 * WIDE), 2 * WIDE, [minus, plus])
            else:
                powers[k * LANES] = power
                first = k * ((1 if of.sparse else 2) * 2 * LANES)
                for number, vector in enumerate(_pairs(minus, plus, of.sparse)):
                    lows[first + number * 2 * LANES] = vector
        with code.when(any_lane(wrong.value)):
            special[0] = code.constant(1, I32)

    return pack_columns


def _signed(parts: list[Parts], base: Value | None) -> Iterable[list[Value]]:
    """The exponents of elements, and of lowest bits by the sign of an element of A."""
    found = []
    for each in parts:
        power, low = _relative(each, base)
        minus = select(each.negative, low, _NEVER)
        plus = select(each.negative, low.lift(_NEVER), low)
        found.append((power, minus, plus))
    return map(list, zip(*found, strict=True))


def _both(halves: list[Value]) -> Value:
    """Sixteen lanes: eight for each of two k."""
    return halves[0] if len(halves) == 1 else picked(halves[0], _SIXTEEN, halves[1])


def _half(x: Value, which: int) -> Value:
    """The lanes of the first or the second k."""
    return picked(x, range(which * LANES, (which + 1) * LANES))


def _any_half(x: Value) -> Value:
    """Conditions of eight columns, from those of one k or of two."""
    return x if x.type.count == LANES else _half(x, 0) | _half(x, 1)


def _put_halves(to: Memory, first: Value, step: int, vectors: list[Value]) -> None:
    """Write eight columns of a wider panel, for two k."""
    for which in range(2):
        for number, vector in enumerate(vectors):
            to[first + (which * step + number * WIDE)] = _half(vector, which)


def _pairs(minus: Value, plus: Value, sparse: bool) -> Iterable[Value]:
    """The vectors of two k."""
    first, second = [*range(LANES)], [*range(LANES, 2 * LANES)]
    other = 2 * LANES  # where the lanes of the other vector begin
    if sparse:
        return [
            picked(minus, half + [other + lane for lane in half], plus)
            for half in (first, second)
        ]
    crossed = first + [other + lane for lane in second]
    return [minus, picked(plus, crossed, minus), picked(minus, crossed, plus), plus]


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
        wrong = code.variable(code.constant(0, I1).in_all_lanes())
        to = _RowMemories(values, powers, lows, signs, places)

        def element(row: Value, q: Value) -> Element:
            m = smaller(row, p.left - 1)
            scale = None
            if of.scaled:
                at = m * p.scales_depth + q // p.per_scale
                scale = convert(scales[at], I32, signed=False).in_all_lanes()
            return _element(bits.lanes(m * p.depth + q, of.at_once), of, scale)

        def put(row: Value, q: Value, most: Value | None) -> None:
            found = element(row, q)
            wrong.value = wrong.value | _any_half(found.parts.special)
            _put_row(of, to, row, q, found, most)
            if of.sparse:
                start = smaller(row, p.left - 1) * p.depth + q
                _put_places(of, to, row, q, found, index.lanes(start, of.at_once), p)

        if of.as_bytes:  # one loop: rows may be short
            row, q = (code.variable(code.constant(0, I64)) for _ in range(2))
            with code.loop(p.length * of.group, step=of.at_once):
                put(row.value, q.value, None)
                following = q.value + of.at_once
                last = following == p.length
                row.value = row.value + select(last, following.lift(1), 0)
                q.value = select(last, 0, following)
        else:
            with code.loop(of.group) as m:
                most = None
                if of.wide:
                    most = _largest(code, of, partial(element, m), p.length)
                    base[m] = convert(most, I16)
                with code.loop(p.length, step=LANES) as start:
                    put(m, start, most)
        with code.when(any_lane(wrong.value)):
            special[0] = code.constant(1, I32)

    return pack_rows


class _RowMemories(NamedTuple):
    """Where the parts of packed rows are written."""

    values: Memory
    powers: Memory
    lows: Memory
    signs: Memory
    places: Memory


def _largest(
    code: Code, of: Packing, element: Callable[[Value], Element], length: Value
) -> Value:
    """The largest exponent of a row."""
    largest = code.variable(code.constant(_LOWEST, of.lanes).in_all_lanes())
    with code.loop(length, step=LANES) as q:
        each = element(q).parts
        power = select(each.zero, _LOWEST, each.power)
        largest.value = larger(largest.value, power)
    found = _largest_lane(largest.value)
    return select(found == _LOWEST, 0, found)


def _put_row(
    of: Packing,
    to: _RowMemories,
    row: Value,
    q: Value,
    found: Element,
    most: Value | None,
) -> None:
    """Write elements of a row, and the signs of their pairs if A is not sparse."""
    power, low = _relative(found.parts, most)
    for number, value in enumerate(found.values):
        to.values[row * of.stride + q + number * LANES] = value
    for number, chosen in enumerate(_repeated(of)):
        vectors = q * of.across // (2 * LANES) + number
        at = (vectors * of.group + row) * (2 * LANES)
        to.powers[at] = picked(power, chosen)
        to.lows[at] = picked(low, chosen)
    if not of.sparse:
        narrow = I8 if of.as_bytes else I32
        negative = convert(found.parts.negative, narrow, signed=False)
        even, odd = (picked(negative, range(side, of.at_once, 2)) for side in (0, 1))
        which = convert(even + odd * 2, I32) + _numbers(odd) * 4
        start = convert(q, I32) * (4 * LANES)
        to.signs[(row * DEPTH + q) // 2] = which * (2 * LANES) + start


def _put_places(
    of: Packing,
    to: _RowMemories,
    row: Value,
    q: Value,
    found: Element,
    index: Value,
    p: _RowNumbers,
) -> None:
    """Write where the columns of B for each element are in a panel."""
    negative = convert(found.parts.negative, I32, signed=False)
    first = convert(q // p.stored * p.k, I32)
    there = (convert(index, I32, signed=False) + first) * of.across
    to.places[row * of.stride + q] = there
    to.signs[row * of.stride + q] = there * 2 + negative * of.across


def _repeated(of: Packing) -> list[list[int]]:
    """Which of some elements along k are in the lanes of each vector."""
    if of.single:
        return [[lane] * (2 * LANES) for lane in range(of.at_once)]
    return [[lane] * LANES + [lane + 1] * LANES for lane in range(0, of.at_once, 2)]


class _RowNumbers(NamedTuple):
    """The sizes of :func:`row_packer`."""

    length: Value  #: elements to pack
    depth: Value  #: elements of a whole row
    left: Value  #: rows from the first one of the group on
    per_scale: Value
    scales_depth: Value
    stored: Value
    k: Value


def _numbers(like: Value) -> Value:
    """0, 1, 2, ... in lanes."""
    b = like.builder
    return joined([Value(b, I32(number)) for number in range(like.type.count)])


def _largest_lane(x: Value) -> Value:
    """The largest number of a vector of eight."""
    for half in (4, 2, 1):
        upper = picked(x, range(half, 2 * half))
        x = larger(picked(x, range(half)), upper)
    return each_lane(x)[0]
