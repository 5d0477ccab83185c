"""Fused steps as chains of fused multiply-adds, for elements that are finite.

A step aligns its products to a unit, ``2**(emax - F)``, truncates each of them toward
zero, and adds them.  One fused multiply-add does all of that to a product.  Let M be a
float so large that the next one is a unit away.  Rounded toward zero, ``M + p`` is M
plus the units of p, rounded down.  So the chain ``fma(a, b, fma(a', b', ... M))`` adds
up the products of a step, each rounded down.  A negative product that loses bits must
be rounded up instead: such products are counted, and so many units are added.

What is needed per product besides the fused multiply-add is done with 8-bit integers,
sixteen products at a time: its exponent, for emax; and whether it loses bits, for the
count.  See :mod:`fragmenta.reference.arithmetic.packing`.

A chain of float64 holds any sum.  A chain of float32 is enough where F is small.

The sum and the accumulator are then added as 32-bit integers, and converted to float32
in the same rounding mode.  Where exponents are extreme or the sum is too large for
this, they are added in float64, by
:func:`fragmenta.reference.arithmetic.elements.settle`.

Where an element is infinite or NaN, or too far below the largest of its row or column,
nothing is computed, and the status of the block says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple

from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Number,
    Value,
    any_lane,
    bits_of,
    compare_unsigned,
    convert,
    float_of,
    fma,
    larger,
    picked,
    recast,
    saturated_sum,
    scalar_type,
    select,
    shift_unsigned,
    size_of,
    smaller,
)
from fragmenta.reference.arithmetic.elements import (
    Rounding,
    power_of,
    power_of_two,
    settle,
    to_float32,
)
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.arithmetic.packing import (
    ABOVE,
    BIAS,
    CLIP,
    DEPTH,
    NOTHING,
    SUMS,
    WIDE,
    WIDE_DEPTH,
    in_a_row,
    signs_beside,
)

#: The most columns of a block: their packed elements stay in the L2 cache.
COLUMNS = 128

# The exponents of a step that are settled in float32: all scales are normal numbers.
_LEAST, _MOST = -100, 90

# With types of at most 5 exponent bits, sums of exponents below this are of zeros.
_NARROW = -48

_PAIR = 2 * LANES

# A chain of more bytes of A is a loop.
_UNROLLED = 128

#: The bytes of a cache line: two loads of one line take less time than of two lines.
LINE = 64


class FloorVariant(NamedTuple):
    """What must be known to compile the steps."""

    products: int  #: in one step
    values: Type  #: of the chain
    room: int  #: sums of products have fewer than 2**room units
    short: bool  #: whether results keep fewer than 23 fraction bits
    half: bool  #: whether accumulators are f16, rounded to nearest
    from_zero: bool  #: whether c is added last, by an ordinary addition
    wide: bool  #: whether exponents are relative to a base
    sparse: bool
    across: int  #: columns in a panel
    sums: int  #: of a group of rows and a panel
    once: bool  #: whether rows are multiplied by one panel only

    @property
    def group(self) -> int:
        """Rows in a group."""
        return self.sums // self.across

    @property
    def single(self) -> bool:
        """Whether exponents are those of one k, not of pairs."""
        return self.across == WIDE

    @property
    def each(self) -> int:
        """Products along k in a vector of exponents."""
        return 1 if self.single else 2

    @property
    def along(self) -> int:
        """How many exponents of a row follow each other, if they are not repeated."""
        return min(self.products, LANES if self.wide else 2 * LANES)

    @property
    def signs(self) -> int:
        """Vectors of B's lowest bits for each vector of its exponents."""
        return 1 if not self.wide else 2 if self.sparse or self.beside else 4

    @property
    def beside(self) -> bool:
        """Whether the signs of wide elements are vectors of their own."""
        return self.wide and signs_beside(self.sparse, self.sums)

    @property
    def several(self) -> int:
        """Groups of rows that are packed at a time.

        Nothing that a sparse A loads from a panel is used by two rows.  Several groups
        take it from the L1 cache.
        """
        return 4 if self.single else 1

    @property
    def stride(self) -> int:
        """Elements from one row of A to the next."""
        return WIDE_DEPTH // 2 if self.single else DEPTH

    @property
    def depth(self) -> int:
        """How far along k is packed at a time, if an instruction is not longer."""
        return WIDE_DEPTH if self.single else DEPTH

    @classmethod
    def of(
        cls,
        model: Model,
        wide: bool,
        across: int = LANES,
        sums: int = SUMS,
        once: bool = False,
    ) -> FloorVariant:
        """The variant for a model."""
        # A product has less than four times the units of its exponent.
        most = model.products << (model.fraction + 2)
        room = next(bits for bits in (22, 30, 31, 50) if most <= 1 << bits)
        values = F32 if room == 22 else F64  # float32 has 22 bits for either sign
        half, short = model.accumulator == "f16", model.keep < 23
        zero = model.start == "zero"
        about = room, short, half, zero, wide, model.sparse, across, sums, once
        return cls(model.products, values, *about)


class FloorNumbers(NamedTuple):
    """How steps align and round."""

    fraction: Value
    floor: Value
    keep: Value


class Scratch(NamedTuple):
    """The packed elements, in memory that belongs to a thread."""

    b_values: Memory
    b_powers: Memory
    b_lows: Memory
    b_base: Memory
    a_values: Memory
    a_powers: Memory
    a_lows: Memory
    a_signs: Memory
    a_places: Memory
    a_base: Memory
    sums: Memory
    special: Memory
    totals: Memory
    exponents: Memory
    held: Memory

    @classmethod
    def of(cls, memory: Memory, variant: FloorVariant) -> Scratch:
        """The parts of one piece of memory."""
        parts, at = [], 0
        for kind, count in _parts(variant):
            parts.append(memory.after(at).view(kind))
            at += _whole_lines(count * size_of(kind))
        return cls(*parts)


def _parts(v: FloorVariant) -> list[tuple[Type, int]]:
    panels, pairs, values = COLUMNS // LANES, DEPTH // 2, v.values
    rows = v.sums // LANES
    return [
        (values, panels * DEPTH * LANES),
        (I8, panels * DEPTH * LANES),
        (I8, panels * pairs * 4 * _PAIR),
        (I16, COLUMNS),
        (values, rows * DEPTH),
        (I8, pairs * rows * _PAIR),
        (I8, pairs * rows * _PAIR),
        (I8, pairs * rows * _PAIR) if v.beside else (I32, rows * DEPTH),
        (I32, rows * DEPTH),
        (I16, v.group * v.several),
        (F32, v.sums),
        (I32, LANES),
        (I64, v.sums),
        (I16, v.sums),
        (F32, v.sums),
    ]


def work_bytes(variant: FloorVariant) -> int:
    """How much memory a thread needs."""
    parts = _parts(variant)
    return sum(_whole_lines(count * size_of(kind)) for kind, count in parts)


def _whole_lines(count: int) -> int:
    """So many bytes, in whole lines of the cache."""
    return count + -count % LINE


class Panel(NamedTuple):
    """Where the parts of one panel of B begin."""

    values: Value
    powers: Value
    lows: Value
    base: Value


class FloorStep(NamedTuple):
    """What every part of a step needs."""

    code: Code
    v: FloorVariant
    n: FloorNumbers
    w: Scratch


def of_group(v: FloorVariant, w: Scratch, row: Value) -> Scratch:
    """The packed elements of the group that begins with a row."""
    if v.several == 1:
        return w
    vectors = row * (v.stride * v.across)
    return w._replace(
        a_values=starting_at(w.a_values, row * v.stride),
        a_powers=starting_at(w.a_powers, vectors),
        a_lows=starting_at(w.a_lows, vectors),
        a_signs=starting_at(w.a_signs, row * v.stride),
        a_places=starting_at(w.a_places, row * v.stride),
        a_base=starting_at(w.a_base, row),
    )


def starting_at(memory: Memory, place: Value) -> Memory:
    """The memory from a place on."""
    return Memory(memory._builder, memory._at(place, memory.of), memory.of)


# -- one step -----------------------------------------------------------------
#
# A vector of all sums has eight columns of each row of a group, or sixteen of each of
# half as many.  A vector of twice as many lanes has, for each row, the eight columns
# for the first k of a pair, then for the second.


class Exponents(NamedTuple):
    """The exponents of a step, in lanes of 16 bits."""

    e: Value  #: of each sum, that is emax
    base: Value | None
    unusual: Value  #: whether some are extreme


def add_step(step: FloorStep, at: Panel, product: Value) -> None:
    """The step that begins with a product, for a group of rows and a panel."""
    step = step._replace(w=_from(step.v, step.w, at, product))
    code, v, _, w = step
    x = w.sums.lanes(0, v.sums)
    e, base, unusual = _exponents(step, x)
    starts = [_start(each, step) for each in _rows(v, e)]
    limits = _limits(e, base, step)
    chains, counts = _chains_and_counts(step, starts, limits)
    units = in_a_row([_units(*each) for each in zip(chains, starts, strict=True)])
    large = None if v.half else _large(v, units, chains, starts)
    if large is not None:
        unusual = unusual | large
    new = code.variable(x)
    if not v.half:
        new.value = _settled(x, e, units + counts, step)
    with code.when(unusual):
        for row, count in enumerate(_rows(v, counts)):
            whole = convert(bits_of(chains[row]) - bits_of(starts[row]), I64)
            w.totals[row * v.across] = whole + convert(count, I64)
        w.exponents[0] = e
        _settle_apart(step)
        new.value = w.sums.lanes(0, v.sums)
    w.sums[0] = new.value


def _from(v: FloorVariant, w: Scratch, at: Panel, product: Value) -> Scratch:
    """The packed elements of a panel from a product on.

    What A finds by a place is counted from where the panel begins.
    """
    vectors = product // v.each * (v.group * _PAIR)
    if v.once:
        vectors = product * v.group
    along = 0 if v.sparse else product * v.across
    lows = 0 if v.wide and not v.beside else along * v.signs
    signs = product if v.sparse else product // 2
    return w._replace(
        b_values=starting_at(w.b_values, at.values + along),
        b_powers=starting_at(w.b_powers, at.powers + along),
        b_lows=starting_at(w.b_lows, at.lows + lows),
        b_base=starting_at(w.b_base, at.base),
        a_values=starting_at(w.a_values, product),
        a_powers=starting_at(w.a_powers, vectors),
        a_lows=starting_at(w.a_lows, vectors),
        a_signs=starting_at(w.a_signs, vectors if v.beside else signs),
        a_places=starting_at(w.a_places, product),
    )


def _chains_and_counts(
    step: FloorStep, starts: list[Value], limits: Value
) -> tuple[list[Value], Value]:
    """The chains of a step, and how many products lose bits.

    Some chains are loops.  Counts before one would be finished after it, and everything
    that they have loaded kept on the stack.
    """
    if step.v.sparse or step.v.products * size_of(step.v.values) > _UNROLLED:
        chains = _chain(step, starts)
        return chains, _counts(step, limits)
    counts = _counts(step, limits)
    return _chain(step, starts), counts


def _rows(v: FloorVariant, x: Value) -> list[Value]:
    """The lanes of each row."""
    starts = range(0, v.sums, v.across)
    return [picked(x, range(start, start + v.across)) for start in starts]


def _exponents(step: FloorStep, x: Value) -> Exponents:
    """The largest exponent of products and accumulator, for each row and column."""
    code, v, _, w = step
    top = convert(_tops(step), I16)
    field = _field(x)
    base = None
    if v.wide:
        each = w.b_base.lanes(0, v.across)
        columns = picked(each, [*range(v.across)] * v.group)
        rows = [row for row in range(v.group) for _ in range(v.across)]
        base = columns + picked(w.a_base.lanes(0, v.group), rows)
        e = larger(top + base, field - 127)
        odd = (e < _LEAST) | (e > _MOST) | (e - base <= CLIP)
    else:
        e = larger(top, field - 127)
        odd = compare_unsigned(">", e - _NARROW, _MOST - _NARROW)
    unusual = code.constant(1, I1) if v.half else any_lane(odd)
    chosen = code.variable(e)
    with code.when(unusual):
        chosen.value = _unusual_exponents(step, x, top, base)
    return Exponents(chosen.value, base, unusual)


def _tops(step: FloorStep) -> Value:
    """The largest sum of exponents of the products, for each row and column."""
    code, v, _, w = step
    top = code.variable(code.constant(NOTHING, I8).in_all_lanes(v.group * _PAIR))
    with _each_vector(step) as numbers:
        for number in numbers:
            x = _of_rows(v, w.a_powers, number)
            y = _of_columns(step, w.b_powers, number)
            top.value = larger(top.value, saturated_sum(x, y))
    return top.value if v.single else larger(*_halves(v, top.value))


@contextmanager
def _each_vector(step: FloorStep) -> Iterator[Iterable[Number]]:
    """The products of a step one by one, or their pairs: a loop, or all numbers."""
    count = step.v.products // step.v.each
    if step.v.once:
        yield range(count)
        return
    with step.code.loop(count) as number:
        yield [number]


def _of_rows(v: FloorVariant, a: Memory, number: Number) -> Value:
    """The exponents of A for a pair or a product, repeated for each column."""
    count = v.group * _PAIR
    if isinstance(number, Value):
        return a.lanes(number * count, count)
    along = v.along
    first, pair = divmod(2 * int(number), along)
    some = a.lanes(first * v.group * along, v.group * along)
    sides = [
        [row * along + pair + side] * LANES for row in range(v.group) for side in (0, 1)
    ]
    return picked(some, chain.from_iterable(sides))


def _of_columns(step: FloorStep, b: Memory, number: Number) -> Value:
    """The exponents of B for a pair or a product, in all rows."""
    v, w = step.v, step.w
    rows = range(v.group)
    if v.single:
        return in_a_row([_of_place(v, b, w.a_places, number, row) for row in rows])
    if v.sparse:
        return in_a_row([_of_places(b, w.a_places, row, number) for row in rows])
    return picked(b.lanes(number * _PAIR, _PAIR), [*range(_PAIR)] * v.group)


def _of_place(
    v: FloorVariant, memory: Memory, places: Memory, product: Number, row: int
) -> Value:
    """The vector for one product of a row, as wide as the panel."""
    place = convert(places[product + row * v.stride], I64)
    return memory.lanes(place, v.across)


def _of_places(memory: Memory, places: Memory, row: int, pair: Number) -> Value:
    """Two vectors of eight lanes, for the two places of a pair."""
    at = pair * 2 + row * DEPTH
    first, second = (memory.lanes(convert(places[at + side], I64)) for side in range(2))
    return picked(first, range(_PAIR), second)


def _halves(v: FloorVariant, x: Value) -> tuple[Value, Value]:
    """The lanes of the first k of a pair, and those of the second."""
    rows = [row * _PAIR for row in range(v.group)]
    low, high = (
        picked(x, [row + lane for row in rows for lane in range(side, side + LANES)])
        for side in (0, LANES)
    )
    return low, high


def _field(x: Value) -> Value:
    """The exponent fields of float32 numbers, as 16-bit integers."""
    upper = picked(recast(bits_of(x), I16), range(1, 2 * x.type.count, 2))
    return shift_unsigned(upper + upper, 8)


def _unusual_exponents(
    step: FloorStep, x: Value, top: Value, base: Value | None
) -> Value:
    """The exponents of a step where some are extreme, or of zeros."""
    code, v, n, w = step
    floor = convert(n.floor, I16)
    field = _field(x)
    own = larger(field - 127, -14 if v.half else -126)
    own = select((field != 255) & (x != 0), own, floor)
    nothing = top < (_NARROW if base is None else NOTHING + 1)
    if base is not None:
        with code.when(any_lane(~nothing & (larger(top, own - base) <= CLIP))):
            w.special[0] = code.constant(1, I32)
        top = top + base
    e = larger(larger(own, floor), select(nothing, top.lift(floor), top))
    if v.values == F32:  # beyond this, a chain of float32 has no start
        with code.when(any_lane(e > _MOST)):
            w.special[0] = code.constant(1, I32)
    return e


def _start(e: Value, step: FloorStep) -> Value:
    """The float whose last bit is a unit, and which has room for sums of both signs."""
    single = step.v.values == F32
    bias, bits, shift = (127, 23, 7) if single else (1023, 52, 4)
    one = ((bias + bits) << shift) + (1 << (shift - 1))
    zero = convert(one - (step.n.fraction << shift), I16)
    return float_of(_upper_parts((e << shift) + zero, I32 if single else I64))


def _upper_parts(x: Value, of: Type) -> Value:
    """Integers whose upper 16 bits are given; the others are zero."""
    count, parts = x.type.count, of.width // 16
    places = [
        lane if part == parts - 1 else count
        for lane in range(count)
        for part in range(parts)
    ]
    return recast(picked(x, places, x.lift(0)), of)


def _chain(step: FloorStep, starts: list[Value]) -> list[Value]:
    """The products of a step, each rounded down, for each row."""
    code, v, _, w = step
    if v.sparse:
        return _sparse_chain(step, starts)
    sums = [code.variable(start) for start in starts]
    with code.loop(v.products, step=2) as number:
        x = [w.a_values.lanes(number + row * DEPTH, 2) for row in range(v.group)]
        for side in range(2):
            y = w.b_values.lanes((number + side) * v.across, v.across)
            for row, some in enumerate(sums):
                some.value = fma(picked(x[row], [side] * v.across), y, some.value)
    return [some.value for some in sums]


def _sparse_chain(step: FloorStep, starts: list[Value]) -> list[Value]:
    """The same for a sparse A, whose rows take elements of B at places of their own."""
    code, v, _, w = step
    sums = [code.variable(start) for start in starts]
    with code.loop(v.products, step=2) as number:
        rows = [number + row * v.stride for row in range(v.group)]
        x = [w.a_values.lanes(row, 2) for row in rows]
        at_k = [[convert(w.a_places[row + k], I64) for row in rows] for k in (0, 1)]
        for k, places in enumerate(at_k):
            for place, each, some in zip(places, x, sums, strict=True):
                y = w.b_values.lanes(place, v.across)
                some.value = fma(picked(each, [k] * v.across), y, some.value)
    return [some.value for some in sums]


def _limits(e: Value, base: Value | None, step: FloorStep) -> Value:
    """A product loses bits if the exponent of its lowest bit is below this."""
    limit = e - convert(step.n.fraction, I16)
    # No product of zero is below the upper bound, and every other one is.
    if base is None:  # negative products are those below zero
        limit, most = limit + (2 * BIAS - 128), ABOVE - 128
    else:
        limit, most = limit - base, 20
    return convert(larger(smaller(limit, most), -128), I8)


def _counts(step: FloorStep, limits: Value) -> Value:
    """How many negative products lose bits, for each row and column."""
    by_sign = step.v.wide and not step.v.beside
    total = (_counts_by_sign if by_sign else _counts_at_once)(step, limits)
    if not step.v.single:
        low, high = _halves(step.v, total)
        total = low + high
    return convert(total, I32, signed=False)


def _counts_at_once(step: FloorStep, limits: Value) -> Value:
    """The same for each k of a pair, for all rows at once.

    The sign of a sum of narrow types is that of the product.
    """
    code, v, _, w = step
    if not v.single:
        rows = range(0, v.sums, LANES)
        twice = [row + lane for row in rows for _ in range(2) for lane in range(LANES)]
        limits = picked(limits, twice)
    count = code.variable(limits.lift(0))
    with _each_vector(step) as numbers:
        for number in numbers:
            x = _of_rows(v, w.a_lows, number)
            y = _of_columns(step, w.b_lows, number * v.signs)
            if v.beside:
                loses = convert(limits > saturated_sum(x, y), I8)
                signs = _of_columns(step, w.b_lows, number * v.signs + 1)
                loses = loses & (_of_rows(v, w.a_signs, number) ^ signs)
            else:
                loses = convert(limits > x + y, I8)
            count.value = count.value - loses
    return count.value


def _counts_by_sign(step: FloorStep, limits: Value) -> Value:
    """The same for wide types: the signs of A choose the vectors of B."""
    code, v, _, w = step
    each = _rows(v, limits)
    if not v.single:
        each = [picked(limit, [*range(LANES)] * 2) for limit in each]
    counts = [code.variable(limit.lift(0)) for limit in each]
    with _each_vector(step) as numbers:
        for number in numbers:
            every = _of_rows(v, w.a_lows, number)
            for row, (limit, count) in enumerate(zip(each, counts, strict=True)):
                x = picked(every, range(row * _PAIR, (row + 1) * _PAIR))
                y = _by_sign(step, number, row)
                loses = limit > saturated_sum(x, y)
                count.value = count.value - convert(loses, I8)
    return in_a_row([count.value for count in counts])


def _by_sign(step: FloorStep, number: Number, row: int) -> Value:
    """The exponents of B's lowest bits that belong to the signs of a row."""
    v, w = step.v, step.w
    if v.single:
        return _of_place(v, w.b_lows, w.a_signs, number, row)
    if v.sparse:
        return _of_places(w.b_lows, w.a_signs, row, number)
    place = convert(w.a_signs[number + row * (DEPTH // 2)], I64)
    return w.b_lows.lanes(place, _PAIR)


def _units(some: Value, start: Value) -> Value:
    """The sum in units, if it fits in 32 bits."""
    bits = bits_of(some)
    if scalar_type(bits.type) == I32:
        return bits - bits_of(start)
    return convert(bits, I32)  # the lower half of the start is zero


def _large(
    v: FloorVariant, units: Value, sums: list[Value], starts: list[Value]
) -> Value | None:
    """Whether a sum may be too large for 32 bits, once all terms are added."""
    if v.room <= 30:
        return None
    if v.room <= 31:
        upper = picked(recast(units, I16), range(1, 2 * v.sums, 2))
        return any_lane((upper + (1 << 14)) < 0)
    wholes = [bits_of(x) - bits_of(y) for x, y in zip(sums, starts, strict=True)]
    upper = in_a_row([convert(whole >> 30, I32) for whole in wholes])
    return any_lane((upper != 0) & (upper != -1))


def _settled(x: Value, e: Value, units: Value, step: FloorStep) -> Value:
    """The accumulators after a step: terms are added as 32-bit integers."""
    one = convert((step.n.fraction + 127) << 7, I16)
    bits = _upper_parts(one - (e << 7), I32)
    own = convert(x * float_of(bits), I32)
    total = convert(units + own, F32)
    if step.v.short:
        mask = step.n.keep.lift(-1) << (23 - step.n.keep)
        total = float_of(bits_of(total) & mask)
    return total * float_of((254 << 23) - bits)


def _settle_apart(step: FloorStep) -> None:
    """The same in float64, for every exponent and every sum."""
    code, v, n, w = step
    least = code.constant(-14 if v.half else -126, I64)
    fraction, floor, keep = (convert(each, I64) for each in n)
    rounding = Rounding(fraction, floor, keep, least, v.half)
    with code.loop(v.sums // LANES) as row:
        x = convert(w.sums.lanes(row * LANES), F64)
        e = convert(w.exponents.lanes(row * LANES), I32)
        total = convert(w.totals.lanes(row * LANES), F64)
        rounded = settle(x, e, total, None, rounding, nearest_by_floors)
        w.sums[row * LANES] = to_float32(rounded)


def nearest_by_floors(x: Value, keep: Value, least: Value) -> Value:
    """x rounded to nearest even with ``keep`` fraction bits, while floats round down.

    Adding and subtracting a large number rounds down to a multiple of a unit.
    """
    power = larger(power_of(x), least) - keep
    unit = power_of_two(power)
    large = 1.5 * power_of_two(power + 52)
    above = x + 0.5 * unit
    down = (above + large) - large
    even = (down + 2.0 * large) - 2.0 * large
    return select((down == above) & (even != down), down - unit, down)
