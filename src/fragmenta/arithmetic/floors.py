"""Fused steps as chains of fused multiply-adds, for elements that are finite.

A step aligns its products to a unit, ``2**(emax - F)``, truncates each of them toward
zero, and adds them.  One fused multiply-add does all of that to a product.  Let M be a
float so large that the next one is a unit away.  Rounded toward zero, ``M + p`` is M
plus the units of p, rounded down.  So the chain ``fma(a, b, fma(a', b', ... M))`` adds
up the products of a step, each rounded down.  A negative product that loses bits must
be rounded up instead: such products are counted, and so many units are added.

What is needed per product besides the fused multiply-add is done with 8-bit integers,
sixteen products at a time: its exponent, for emax; and whether it loses bits, for the
count.  See :mod:`fragmenta.arithmetic.packing`.

A chain of float64 holds any sum.  A chain of float32 is enough where F is small.

The sum and the accumulator are then added as 32-bit integers, and converted to float32
in the same rounding mode.  Where exponents are extreme or the sum is too large for
this, they are added in float64, by :func:`fragmenta.arithmetic.elements.settle`.

Where an element is infinite or NaN, or too far below the largest of its row or column,
nothing is computed, and the status of the block says so.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.arithmetic.chain import MODES, set_rounding
from fragmenta.arithmetic.elements import Rounding, settle, to_float32
from fragmenta.arithmetic.packing import CLIP, DEPTH, GROUP, NOTHING
from fragmenta.arrays.once import once
from fragmenta.jit.compiler import Traced, kernel, pointer
from fragmenta.jit.llvm import Type
from fragmenta.jit.trace import (
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
    Variable,
    any_lane,
    bits_of,
    call_address,
    convert,
    float_of,
    fma,
    larger,
    picked,
    recast,
    saturated_sum,
    select,
    shift_unsigned,
    size_of,
    smaller,
)

#: The most columns of a block: their packed elements stay in the L2 cache.
COLUMNS = 128

# The exponents of a step that are settled in float32: all scales are normal numbers.
_LEAST, _MOST = -100, 90

# With types of at most 5 exponent bits, sums of exponents below this are of zeros.
_NARROW = -48

_PAIR = 2 * LANES


class FloorVariant(NamedTuple):
    """What must be known to compile the steps."""

    a: Type  #: the type of raw bits
    b: Type
    products: int  #: in one step
    fraction: int
    floor: int
    keep: int
    wide: bool  #: whether exponents are relative to a base
    sparse: bool

    @property
    def values(self) -> Type:
        """The type of the chain: float32 has room for sums of up to 2**22 units."""
        return F32 if self.products << (self.fraction + 2) <= 1 << 22 else F64


class FloorSizes(NamedTuple):
    """The sizes of a product, and which of its blocks to compute."""

    rows: Value
    columns: Value
    instructions: Value
    stored: Value
    k: Value
    scale_vec: Value
    own_a: Value  #: 1 if every matrix of a batch has its own A, 0 if all share one
    own_b: Value
    own_index: Value
    own_scale_a: Value
    own_scale_b: Value
    block_rows: Value
    block_columns: Value
    across: Value  #: blocks side by side
    down: Value
    pack_rows: Value  #: addresses of the packers
    pack_columns: Value
    first: Value
    last: Value


class Work(NamedTuple):
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

    @classmethod
    def of(cls, memory: Memory, values: Type) -> Work:
        """The parts of one piece of memory."""
        parts, at = [], 0
        for kind, count in _parts(values):
            parts.append(memory.after(at).view(kind))
            at += count * size_of(kind)
        return cls(*parts)


def _parts(values: Type) -> list[tuple[Type, int]]:
    panels, pairs = COLUMNS // LANES, DEPTH // 2
    return [
        (values, panels * DEPTH * LANES),
        (I8, panels * DEPTH * LANES),
        (I8, panels * pairs * 4 * _PAIR),
        (I32, COLUMNS),
        (values, GROUP * DEPTH),
        (I8, pairs * GROUP * _PAIR),
        (I8, pairs * GROUP * _PAIR),
        (I32, GROUP * DEPTH),
        (I32, GROUP * DEPTH),
        (I32, LANES),
        (F32, GROUP * LANES),
        (I32, LANES),
    ]


def work_bytes(values: Type) -> int:
    """How much memory a thread needs."""
    return sum(count * size_of(kind) for kind, count in _parts(values))


class Panel(NamedTuple):
    """Where the parts of one panel of B begin."""

    values: Value
    powers: Value
    lows: Value
    base: Value


@once
def floor_kernel(variant: FloorVariant) -> Traced:
    """The kernel that computes some blocks of a product.

    ``d`` holds c at first.  The status of a block is 1 if it must be computed in
    another way; then its part of ``d`` is arbitrary.
    """

    @kernel(
        a=pointer(variant.a),
        b=pointer(variant.b),
        d=pointer(F32),
        index=pointer(I8),
        scale_a=pointer(I8),
        scale_b=pointer(I8),
        status=pointer(I8),
        work=pointer(I8),
        **dict.fromkeys(FloorSizes._fields, I64),
    )
    def floor_steps(
        code: Code,
        a: Memory,
        b: Memory,
        d: Memory,
        index: Memory,
        scale_a: Memory,
        scale_b: Memory,
        status: Memory,
        work: Memory,
        *numbers: Value,
    ) -> None:
        p = FloorSizes(*numbers)
        w = Work.of(work, variant.values)
        set_rounding(code, code.constant(MODES["rz"], I32))
        with code.loop(p.last, start=p.first) as number:
            _block(code, variant, p, w, (a, b, d, index, scale_a, scale_b), number)
            status[number] = convert(w.special[0], I8)
        set_rounding(code, code.constant(MODES["rn"], I32))

    return floor_steps


def _block(
    code: Code,
    v: FloorVariant,
    p: FloorSizes,
    w: Work,
    memories: tuple[Memory, ...],
    number: Value,
) -> None:
    """One block, in parts along k."""
    a, b, d, index, scale_a, scale_b = memories
    tile, rest = number // (p.across * p.down), number % (p.across * p.down)
    top, side = rest // p.across * p.block_rows, rest % p.across * p.block_columns
    rows = smaller(p.rows - top, p.block_rows)
    columns = smaller(p.columns - side, p.block_columns)
    panels = (columns + (LANES - 1)) // LANES
    depth, scales = p.instructions * p.stored, p.instructions * p.scale_vec
    w.special[0] = code.constant(0, I32)
    each = code.constant(DEPTH, I64) // p.k  # instructions at a time
    first_a = tile * p.own_a * p.rows + top
    with code.loop(p.instructions, step=each) as first:
        some = smaller(p.instructions - first, each)
        with code.loop(panels) as panel:
            column = side + panel * LANES
            at = tile * p.own_b * p.instructions * p.k + first * p.k
            at_scale = tile * p.own_scale_b * scales + first * p.scale_vec
            per_scale = p.k // larger(p.scale_vec, 1)
            place = _panel(panel)
            call_address(
                p.pack_columns,
                [
                    _from(b, at * p.columns + column),
                    _from(scale_b, at_scale * p.columns + column),
                    _from(w.b_values, place.values),
                    _from(w.b_powers, place.powers),
                    _from(w.b_lows, place.lows),
                    _from(w.b_base, place.base),
                    w.special,
                    some * p.k,
                    p.columns,
                    p.columns - column,
                    per_scale,
                ],
            )
        with code.loop(select(w.special[0] == 0, rows, 0), step=GROUP) as m:
            at = first_a + m
            row = tile * p.rows * p.own_index + top + m
            scale_row = tile * p.rows * p.own_scale_a + top + m
            call_address(
                p.pack_rows,
                [
                    _from(a, at * depth + first * p.stored),
                    _from(scale_a, scale_row * scales + first * p.scale_vec),
                    _from(index, row * depth + first * p.stored),
                    w.a_values,
                    w.a_powers,
                    w.a_lows,
                    w.a_signs,
                    w.a_places,
                    w.a_base,
                    w.special,
                    some * p.stored,
                    depth,
                    rows - m,
                    p.stored // larger(p.scale_vec, 1),
                    scales,
                    p.stored,
                    p.k,
                ],
            )
            with code.loop(select(w.special[0] == 0, panels, 0)) as panel:
                column = side + panel * LANES
                place = (tile * p.rows + top + m) * p.columns + column
                sums = Sums(d, place, p.columns, rows - m, p.columns - column)
                _load(code, w.sums, sums)
                with code.loop(some * p.stored, step=v.products) as product:
                    _step(code, v, w, _panel(panel), product)
                _store(code, w.sums, sums)


def _panel(panel: Value) -> Panel:
    return Panel(
        panel * (DEPTH * LANES),
        panel * (DEPTH * LANES),
        panel * (DEPTH // 2 * 4 * _PAIR),
        panel * LANES,
    )


def _from(memory: Memory, place: Value) -> Memory:
    return Memory(memory._builder, memory._at(place, memory.of), memory.of)


# -- accumulators -------------------------------------------------------------


class Sums(NamedTuple):
    """Where the accumulators of a group of rows and a panel are."""

    d: Memory
    place: Value
    columns: Value
    rows_left: Value
    columns_left: Value


def _load(code: Code, to: Memory, sums: Sums) -> None:
    """Copy accumulators; beyond the last row or column there are ones."""
    for row in range(GROUP):
        to[row * LANES] = code.constant(1.0, F32).in_all_lanes()
    whole = sums.columns_left >= LANES
    with code.loop(smaller(sums.rows_left, GROUP)) as row:
        at = sums.place + row * sums.columns
        with code.when(whole):
            to[row * LANES] = sums.d.lanes(at)
        with code.loop(select(whole, 0, sums.columns_left)) as column:
            to[row * LANES + column] = sums.d[at + column]


def _store(code: Code, source: Memory, sums: Sums) -> None:
    whole = sums.columns_left >= LANES
    with code.loop(smaller(sums.rows_left, GROUP)) as row:
        at = sums.place + row * sums.columns
        with code.when(whole):
            sums.d[at] = source.lanes(row * LANES)
        with code.loop(select(whole, 0, sums.columns_left)) as column:
            sums.d[at + column] = source[row * LANES + column]


# -- one step -----------------------------------------------------------------


def _step(code: Code, v: FloorVariant, w: Work, at: Panel, product: Value) -> None:
    """The step that begins with a product, for a group of rows and a panel."""
    pairs = product // 2
    tops = _tops(code, v, w, at, pairs)
    bases = [None] * GROUP
    exponents = []
    odd = code.constant(0, I16).in_all_lanes() != 0
    for row, top in enumerate(tops):
        field = _field(w.sums.lanes(row * LANES))
        wide = convert(top, I16)
        if v.wide:
            base = w.b_base.lanes(at.base) + w.a_base[row]
            bases[row] = convert(base, I16)
            wide = wide + bases[row]
        e = larger(wide, field - 127)
        exponents.append(code.variable(e))
        odd = odd | (e < (_LEAST if v.wide else _NARROW)) | (e > _MOST)
        if v.wide:
            odd = odd | (e - bases[row] <= CLIP)
    unusual = code.variable(convert(any_lane(odd), I32, signed=False))
    with code.when(unusual.value != 0):
        for row, top in enumerate(tops):
            _unusual_exponents(code, v, w, row, top, bases[row], exponents[row])
    starts = [_start(e.value, v) for e in exponents]
    sums = _chain(code, v, w, at, product, starts)
    limits = [
        _limit(e.value, base, v) for e, base in zip(exponents, bases, strict=True)
    ]
    counts = _counts(code, v, w, at, pairs, limits)
    units = [_units(some, start) for some, start in zip(sums, starts, strict=True)]
    if _may_overflow(v):
        large = code.constant(0, I32).in_all_lanes() != 0
        for some, start, unit in zip(sums, starts, units, strict=True):
            whole = bits_of(some) - bits_of(start)
            large = (
                large | (convert(whole, I32) != 0)
                if False
                else large | _large(whole, unit)
            )
        unusual.value = unusual.value | convert(any_lane(large), I32, signed=False)
    for row in range(GROUP):
        with code.when(unusual.value == 0):
            x = w.sums.lanes(row * LANES)
            new = _settled(x, exponents[row].value, units[row] + counts[row], v)
            w.sums[row * LANES] = new
    with code.when(unusual.value != 0):
        for row in range(GROUP):
            x = convert(w.sums.lanes(row * LANES), F64)
            whole = convert(bits_of(sums[row]) - bits_of(starts[row]), I64)
            total = convert(whole + convert(counts[row], I64), F64)
            numbers = (v.fraction, v.floor, v.keep, -126)
            rounding = Rounding(*(code.constant(n, I64) for n in numbers), False)
            e = convert(exponents[row].value, I32)
            w.sums[row * LANES] = to_float32(settle(x, e, total, None, rounding))


def _tops(code: Code, v: FloorVariant, w: Work, at: Panel, pairs: Value) -> list[Value]:
    """The largest sum of exponents of the products, for each row and column."""
    least = code.constant(NOTHING, I8).in_all_lanes(_PAIR)
    tops = [code.variable(least) for _ in range(GROUP)]
    with code.loop(v.products // 2) as pair:
        here = pairs + pair
        if not v.sparse:
            y = w.b_powers.lanes(at.powers + here * _PAIR, _PAIR)
        for row, top in enumerate(tops):
            if v.sparse:
                y = _of_places(w.b_powers, at.powers, w.a_places, row, here, LANES)
            x = w.a_powers.lanes((here * GROUP + row) * _PAIR, _PAIR)
            top.value = larger(top.value, saturated_sum(x, y))
    return [_halves(top.value, larger) for top in tops]


def _of_places(
    memory: Memory, start: Value, places: Memory, row: int, pair: Value, each: int
) -> Value:
    """Two vectors of eight lanes, for the two places of a pair."""
    at = pair * 2 + row * DEPTH
    halves = [
        memory.lanes(start + convert(places[at + side], I64) * each)
        for side in range(2)
    ]
    return picked(halves[0], range(_PAIR), halves[1])


def _halves(x: Value, join: object) -> Value:
    """Join the two halves of sixteen lanes."""
    low, high = (picked(x, range(s, s + LANES)) for s in (0, LANES))
    return join(low, high)  # type: ignore[operator,no-any-return]


def _field(x: Value) -> Value:
    """The exponent fields of float32 numbers, as 16-bit integers."""
    upper = picked(recast(bits_of(x), I16), range(1, 2 * LANES, 2))
    return shift_unsigned(upper + upper, 8)


def _unusual_exponents(
    code: Code,
    v: FloorVariant,
    w: Work,
    row: int,
    top: Value,
    base: Value | None,
    e: Variable,
) -> None:
    """The exponents of a step where some are extreme, or of zeros."""
    x = w.sums.lanes(row * LANES)
    field = _field(x)
    of_x = select(field == 0, field.lift(-126), field - 127)
    counts = (field != 255) & convert_lanes(x != 0)
    own = select(counts, of_x, v.floor)
    wide = convert(top, I16)
    nothing = wide == NOTHING if v.wide else wide < _NARROW
    if base is not None:
        clipped = any_lane(~nothing & (larger(wide, own - base) <= CLIP))
        with code.when(clipped):
            w.special[0] = code.constant(1, I32)
        wide = wide + base
    e.value = larger(larger(own, v.floor), select(nothing, wide.lift(v.floor), wide))
    if v.values == F32:  # beyond this, a chain of float32 has no start
        with code.when(any_lane(e.value > _MOST)):
            w.special[0] = code.constant(1, I32)


def convert_lanes(condition: Value) -> Value:
    return condition


def _start(e: Value, v: FloorVariant) -> Value:
    """The float whose last bit is a unit, and which has room for sums of both signs."""
    bias, bits, shift = (127, 23, 7) if v.values == F32 else (1023, 52, 4)
    upper = ((e + (bias + bits - v.fraction)) << shift) | (1 << (shift - 1))
    zero = upper.lift(0)
    per = size_of(v.values) // 2
    places = [
        lane if part == per - 1 else LANES
        for lane in range(LANES)
        for part in range(per)
    ]
    words = picked(upper, places, zero)
    return float_of(recast(words, I32 if v.values == F32 else I64))


def _chain(
    code: Code,
    v: FloorVariant,
    w: Work,
    at: Panel,
    product: Value,
    starts: list[Value],
) -> list[Value]:
    """The products of a step, each rounded down, for each row."""
    sums = [code.variable(start) for start in starts]
    with code.loop(v.products, step=2) as number:
        here = product + number
        x = [w.a_values.lanes(here + row * DEPTH, 2) for row in range(GROUP)]
        for side in range(2):
            if not v.sparse:
                y = w.b_values.lanes(at.values + (here + side) * LANES)
            for row, some in enumerate(sums):
                if v.sparse:
                    place = convert(w.a_places[here + (side + row * DEPTH)], I64)
                    y = w.b_values.lanes(at.values + place * LANES)
                some.value = fma(picked(x[row], [side] * LANES), y, some.value)
    return [some.value for some in sums]


def _limit(e: Value, base: Value | None, v: FloorVariant) -> Value:
    """A product loses bits if the exponent of its lowest bit is below this."""
    if base is not None:
        e = e - base
    limit = larger(smaller(e - v.fraction, 40), NOTHING + 1)
    narrow = convert(limit, I8)
    return picked(narrow, [*range(LANES), *range(LANES)])


def _counts(
    code: Code,
    v: FloorVariant,
    w: Work,
    at: Panel,
    pairs: Value,
    limits: list[Value],
) -> list[Value]:
    """How many negative products lose bits, for each row and column."""
    zero = limits[0].lift(0)
    counts = [code.variable(zero) for _ in limits]
    with code.loop(v.products // 2) as pair:
        here = pairs + pair
        for row, count in enumerate(counts):
            if v.sparse:
                y = _of_places(w.b_lows, at.lows, w.a_signs, row, here, 1)
            else:
                sign = convert(w.a_signs[here + row * (DEPTH // 2)], I64)
                y = w.b_lows.lanes(at.lows + here * (4 * _PAIR) + sign, _PAIR)
            x = w.a_lows.lanes((here * GROUP + row) * _PAIR, _PAIR)
            loses = limits[row] > saturated_sum(x, y)
            count.value = count.value - convert(loses, I8)
    both = [_halves(each.value, lambda x, y: x + y) for each in counts]
    return [convert(each, I32, signed=False) for each in both]


def _units(some: Value, start: Value) -> Value:
    """The sum in units, if it fits in 32 bits."""
    if some.type == start.type and size_of(_scalar(some)) == 4:
        return bits_of(some) - bits_of(start)
    return convert(bits_of(some), I32)  # the lower half of the start is zero


def _scalar(x: Value) -> Type:
    return x.type.element


def _may_overflow(v: FloorVariant) -> bool:
    """Whether the sum of all terms may need more than 32 bits."""
    return (v.products + 1) << (v.fraction + 2) >= 1 << 31


def _large(whole: Value, unit: Value) -> Value:
    """Whether a sum does not fit in 31 bits."""
    near = convert(whole >> 30, I32)
    return (near != 0) & (near != -1)


def _settled(x: Value, e: Value, units: Value, v: FloorVariant) -> Value:
    """The accumulators after a step: terms are added as 32-bit integers."""
    upper = ((v.fraction + 127) - e) << 7
    zero = upper.lift(0)
    places = [p for lane in range(LANES) for p in (LANES, lane)]
    bits = recast(picked(upper, places, zero), I32)
    own = convert(x * float_of(bits), I32)
    total = convert(units + own, F32)
    if v.keep < 23:
        total = float_of(bits_of(total) & -(1 << (23 - v.keep)))
    return total * float_of((254 << 23) - bits)
