"""Packs rows of A and columns of B for the steps of ``floor_steps``.

A packed element has four parts:

- its value, as a float that holds every product exactly in a fused multiply-add;
- its exponent, in 8 bits: the exponents of sixteen products are added at once;
- the exponent of its lowest bit that is set, in 8 bits: the sum of two of them is that
  of the product, and says whether a product loses bits;
- its sign.

Types of at most 5 exponent bits are *narrow*: the exponent of a lowest bit takes less
than 7 bits, and the sign is the eighth.  Added modulo 256, two signs are that of the
product.

The signs of a row of other types choose among vectors of B.  In registers of 512 bits,
which hold several rows, signs are vectors of their own instead, and are compared.

The exponents of other types, and of scaled elements, are relative to a *base*, the
largest exponent of the row or the column.  What is far below the base is clipped; the
steps detect it where it matters.

Products are taken in pairs along k, for eight columns: sixteen lanes.  The columns of B
lie in panels of eight.  The exponents of A are repeated for each lane; if there is only
one panel, the steps do that.

Each row of a sparse A takes other rows of B, so a pair of B has a place of its own for
each pair of A.  In panels of sixteen columns there is nothing to pair: a vector has one
product of each column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced, kernel, pointer, processor
from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
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
from fragmenta.reference.arithmetic.elements import (
    SPECIAL,
    Format,
    power_of_two,
)

#: The most products along k that are packed at a time; a power of two.
DEPTH = 256

#: The sums of a group of rows and a panel, which are computed together: as many as
#: there are registers for.
SUMS = 64 if "+avx512bw" in processor()[1].split(",") else 32

#: Rows of A in a group, which share the loads of B, for panels of eight columns.
GROUP = SUMS // LANES

#: Columns in a panel for a sparse A, and the most of k that is packed at a time.
WIDE, WIDE_DEPTH = 2 * LANES, 128

#: Exponents are clipped to this many below their base; the exponent of zero.
CLIP, NOTHING = -63, -128

# The same for the lowest bit: that of zero never loses anything.
_LOW_CLIP, _NEVER = -100, 127

# Less than every exponent.
_LOWEST = -8192

#: What is added to the exponent of a narrow element's lowest bit: it is 0 to 39 then.
BIAS = 24

#: More than the sum of two of them.
ABOVE = 79

# What zeros of A and of B have instead.  With any element of the other operand, the sum
# is not negative, or it is -44 or more: both are ABOVE - 128 or more.
_ZERO_A, _ZERO_B = 84, 84 - 128


def signs_beside(sparse: bool, sums: int) -> bool:
    """Whether signs are vectors of their own, where they are not a bit of exponents.

    With wide registers this takes less than a choice of vectors for each row.
    """
    return not sparse and sums > 32


class Packing(NamedTuple):
    """What must be known to compile a packer."""

    source: Type  #: the type of raw bits
    form: Format
    values: Type
    scaled: bool  #: whether elements have ue8m0 scales
    sparse: bool  #: whether the products of a row are at any k
    across: int = LANES  #: columns in a panel
    sixteens: bool = False  #: whether rows have whole sixteens of elements
    sums: int = SUMS  #: of a group of rows and a panel
    once: int = 0  #: products of a step, if rows are multiplied by one panel only

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
        return self.sums // self.across

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
    def beside(self) -> bool:
        """Whether the signs of wide elements are vectors of their own."""
        return self.wide and signs_beside(self.sparse, self.sums)

    @property
    def at_once(self) -> int:
        """How many elements of a row are taken apart at a time."""
        return 2 * LANES if self.as_bytes else LANES

    @property
    def as_bytes(self) -> bool:
        """Whether elements are taken apart in 8-bit integers, many at a time."""
        return self.sixteens and not self.wide

    @property
    def along(self) -> int:
        """How many exponents of a row follow each other, if they are not repeated."""
        return min(self.once, self.at_once)

    @property
    def deep(self) -> int:
        """How many rows of B are taken apart at a time."""
        return LANES if self.as_bytes else LANES // 2


class Parts(NamedTuple):
    """Some elements, taken apart; exponents are integers of any width."""

    power: Value
    low: Value
    zero: Value
    negative: Value
    special: Value  #: whether it is infinite or NaN
    magnitude: Value  #: all bits but the sign


class SplitElements(NamedTuple):
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


def _element(raw: Value, of: Packing, scale: Value | None = None) -> SplitElements:
    """Take elements apart: some eights of them."""
    eights = range(raw.type.count // LANES)
    if of.as_bytes:
        parts = _half_parts(raw) if of.source == I16 else _parts(raw, of.form)
        some = (_wider(_eight(raw, number), of) for number in eights)
        return SplitElements([_value(each, of) for each in some], parts)
    bits = _wider(raw, of)
    parts = _parts(bits, of.form)
    values = [_value(_eight(bits, number), of) for number in eights]
    if scale is None:
        return SplitElements(values, parts)
    shift = convert(scale, of.lanes) - 127
    by = (power_of_two(convert(_eight(shift, number), I32)) for number in eights)
    parts = parts._replace(
        power=parts.power + shift,
        low=parts.low + shift,
        special=parts.special | (shift == SPECIAL - 127),
    )
    return SplitElements([x * y for x, y in zip(values, by, strict=True)], parts)


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


def _relative(found: Parts, base: Value) -> tuple[Value, Value]:
    """The exponents of elements and of their lowest bits, as 8-bit integers."""
    power, low = larger(found.power - base, CLIP), larger(found.low - base, _LOW_CLIP)
    power, low = convert(power, I8), convert(low, I8)
    return select(found.zero, NOTHING, power), select(found.zero, _NEVER, low)


def _narrow(found: Parts, zero: int) -> tuple[Value, Value]:
    """The same for narrow elements, whose lowest bits come with signs."""
    power, low = convert(found.power, I8), convert(found.low + BIAS, I8)
    low = low | select(found.negative, low.lift(-128), 0)
    return select(found.zero, NOTHING, power), select(found.zero, zero, low)


# -- columns ------------------------------------------------------------------


@once
def column_packer(of: Packing) -> Traced:
    """A kernel that packs a panel: ``count`` elements of up to eight columns.

    ``lows`` of narrow elements are like ``powers``: a vector of sixteen lanes for each
    pair along k.  Of others, a pair has four vectors: those for a pair of A with the
    signs ``++``, ``-+``, ``+-`` and ``--``.  A lane whose product is not negative never
    loses bits there.  Or it has two: the lowest bits, and the signs.  If A is sparse,
    each k has two vectors, as wide as the panel: for a positive and for a negative
    element of A.

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
        def row(memory: Memory, k: Value) -> Value:
            start = k * columns
            found = code.variable(code.constant(0, memory.of).in_all_lanes())
            with code.when(left >= LANES):
                found.value = memory.lanes(start)
            with code.when(left < LANES):  # the last column is repeated
                few = code.scratch(memory.of, LANES)
                few[0] = memory[start + (left - 1)].in_all_lanes()
                with code.loop(left) as lane:
                    few[lane] = memory[start + lane]
                found.value = few.lanes(0)
            return found.value

        def elements(k: Value) -> SplitElements:
            rows = [k + number for number in range(of.deep)]
            scale = None
            if of.scaled:
                every = [row(scales, each // per_scale) for each in rows]
                scale = convert(in_a_row(every), I32, signed=False)
            return _element(in_a_row([row(bits, each) for each in rows]), of, scale)

        wrong = code.variable(code.constant(0, I1).in_all_lanes())
        most = None
        if of.wide:
            largest = code.variable(code.constant(_LOWEST, of.lanes).in_all_lanes())
            with code.loop(count, step=of.deep) as k:
                power = _ordered(elements(k).parts)
                for number in range(of.deep):
                    largest.value = larger(largest.value, _eight(power, number))
            found = select(largest.value == _LOWEST, 0, largest.value)
            base[0] = convert(found, I16)
            most = picked(found, [*range(LANES)] * of.deep)
        with code.loop(count, step=of.deep) as k:
            each, parts = elements(k)
            for number, value in enumerate(each):
                values[(k + number) * of.across] = value
            wrong.value = wrong.value | _any_eight(parts.special)
            power, *low = _signed(of, parts, most)
            if of.single:
                wide = len(low) * WIDE
                _put_eights(powers, k * WIDE, WIDE, [power])
                _put_eights(lows, k * wide, wide, low)
            else:
                powers[k * LANES] = power
                _put_lows(of, lows, k, low)
        with code.when(any_lane(wrong.value)):
            special[0] = code.constant(1, I32)

    return pack_columns


def _ordered(parts: Parts) -> Value:
    """The exponents of elements; that of zero is less than all others."""
    return select(parts.zero, _LOWEST, parts.power)


def _signed(of: Packing, parts: Parts, base: Value | None) -> tuple[Value, ...]:
    """The exponents of elements, and of lowest bits.

    Those of wide elements are two, by the sign of an element of A, or come with signs.
    """
    if base is None:
        return _narrow(parts, _ZERO_B)
    power, low = _relative(parts, base)
    if of.beside:
        return power, low, convert(parts.negative, I8)
    minus = select(parts.negative, low, _NEVER)
    plus = select(parts.negative, low.lift(_NEVER), low)
    return power, minus, plus


def _put_lows(of: Packing, to: Memory, k: Value, low: list[Value]) -> None:
    """Write the exponents of lowest bits."""
    if not of.wide:
        to[k * LANES] = low[0]
        return
    for pair in range(of.deep // 2):
        lanes = range(pair * 2 * LANES, (pair + 1) * 2 * LANES)
        first_low, second_low = (picked(each, lanes) for each in low)
        vectors = [first_low, second_low]
        if not of.beside:
            vectors = _pairs(first_low, second_low, of.sparse)
        first = (k + 2 * pair) * (len(vectors) * LANES)
        for number, vector in enumerate(vectors):
            to[first + number * 2 * LANES] = vector


def in_a_row(parts: list[Value]) -> Value:
    """Vectors of the same length, one after the other; their number is a power of two.

    A vector of all is made of pairs, so that LLVM need not take it apart.
    """
    while len(parts) > 1:
        count = parts[0].type.count
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [picked(x, range(2 * count), y) for x, y in pairs]
    return parts[0]


def _eight(x: Value, number: int) -> Value:
    """Eight lanes of a vector."""
    return picked(x, range(number * LANES, (number + 1) * LANES))


def _any_eight(x: Value) -> Value:
    """Conditions of eight lanes, from those of all eights of a vector."""
    found = _eight(x, 0)
    for number in range(1, x.type.count // LANES):
        found = found | _eight(x, number)
    return found


def _put_eights(to: Memory, first: Value, step: int, vectors: list[Value]) -> None:
    """Write eight columns of a wider panel, for some k."""
    for k in range(vectors[0].type.count // LANES):
        for number, vector in enumerate(vectors):
            to[first + (k * step + number * WIDE)] = _eight(vector, k)


def _pairs(minus: Value, plus: Value, sparse: bool) -> list[Value]:
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
    ``signs`` where their lowest bits are.  Narrow elements need no ``signs``.  Signs
    that are vectors of their own lie as ``lows`` do.
    """

    @kernel(
        bits=pointer(of.source),
        scales=pointer(I8),
        index=pointer(I8),
        values=pointer(of.values),
        powers=pointer(I8),
        lows=pointer(I8),
        signs=pointer(I8 if of.beside else I32),
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

        rows = [smaller(p.left - 1, row) for row in range(of.group)]
        starts = [row * p.depth for row in rows]

        def elements(q: Value) -> SplitElements:
            scale = None
            if of.scaled:
                at = (row * p.scales_depth + q // p.per_scale for row in rows)
                each = [scales[place].in_all_lanes(of.at_once) for place in at]
                scale = convert(in_a_row(each), I32, signed=False)
            raw = [bits.lanes(start + q, of.at_once) for start in starts]
            return _element(in_a_row(raw), of, scale)

        most = None
        if of.wide:
            found = _largest(code, of, elements, p.length)
            base[0] = convert(found, I16)
            lanes = [row for row in range(of.group) for _ in range(of.at_once)]
            most = picked(found, lanes)
        with code.loop(p.length, step=of.at_once) as q:
            some = elements(q)
            wrong.value = wrong.value | _any_eight(some.parts.special)
            _put_rows(of, to, q, some, most)
            if of.sparse:
                chosen = [index.lanes(start + q, of.at_once) for start in starts]
                _put_places(of, to, q, some.parts.negative, chosen, p)
            elif of.wide and not of.beside:
                _put_signs(of, to, q, some.parts.negative)
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
    code: Code, of: Packing, elements: Callable[[Value], SplitElements], length: Value
) -> Value:
    """The largest exponent of each row."""
    count = of.group * of.at_once
    largest = code.variable(code.constant(_LOWEST, of.lanes).in_all_lanes(count))
    with code.loop(length, step=of.at_once) as q:
        largest.value = larger(largest.value, _ordered(elements(q).parts))
    found, width = largest.value, of.at_once
    while width > 1:
        lower = [
            row * width + lane for row in range(of.group) for lane in range(width // 2)
        ]
        upper = [lane + width // 2 for lane in lower]
        found, width = larger(picked(found, lower), picked(found, upper)), width // 2
    return select(found == _LOWEST, 0, found)


def _put_rows(
    of: Packing, to: _RowMemories, q: Value, found: SplitElements, most: Value | None
) -> None:
    """Write elements of all rows of a group."""
    parts, rows, eights = found.parts, range(of.group), of.at_once // LANES
    for number, value in enumerate(found.values):
        row, eight = divmod(number, eights)
        to.values[row * of.stride + q + eight * LANES] = value
    power, low = _narrow(parts, _ZERO_A) if most is None else _relative(parts, most)
    every = _chosen(of)
    for number, chosen in enumerate(every):
        lanes = [row * of.at_once + each for row in rows for each in chosen]
        at = (q * len(every) // of.at_once + number) * len(lanes)
        to.powers[at] = picked(power, lanes)
        to.lows[at] = picked(low, lanes)
        if of.beside:
            to.signs[at] = picked(convert(parts.negative, I8), lanes)


def _put_signs(of: Packing, to: _RowMemories, q: Value, negative: Value) -> None:
    """Write which vectors of B's lowest bits belong to the pairs of all rows."""
    signs = convert(negative, I32, signed=False)
    start = convert(q, I32) * (4 * LANES)
    for row in range(of.group):
        lanes = range(row * of.at_once, (row + 1) * of.at_once)
        even, odd = (picked(signs, lanes[side::2]) for side in (0, 1))
        which = even + odd * 2 + _numbers(odd) * 4
        to.signs[row * (DEPTH // 2) + q // 2] = which * (2 * LANES) + start


def _put_places(
    of: Packing,
    to: _RowMemories,
    q: Value,
    negative: Value,
    index: list[Value],
    p: _RowNumbers,
) -> None:
    """Write where the columns of B for each element are in a panel, for all rows."""
    first = convert(q // p.stored * p.k, I32)
    for row, each in enumerate(index):
        there = (convert(each, I32, signed=False) + first) * of.across
        to.places[row * of.stride + q] = there
        if of.wide:
            lanes = range(row * of.at_once, (row + 1) * of.at_once)
            signs = convert(picked(negative, lanes), I32, signed=False)
            to.signs[row * of.stride + q] = there * 2 + signs * of.across


def _chosen(of: Packing) -> list[Sequence[int]]:
    """Which of some elements along k are in the lanes of each vector."""
    if of.once:
        starts = range(0, of.at_once, of.along)
        return [range(start, start + of.along) for start in starts]
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
