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

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from fragmenta.arithmetic.chain import MODES, set_rounding
from fragmenta.arithmetic.elements import (
    Rounding,
    add_ordinary,
    power_of,
    power_of_two,
    settle,
    to_float32,
)
from fragmenta.arithmetic.models import Model
from fragmenta.arithmetic.packing import CLIP, DEPTH, GROUP, NOTHING
from fragmenta.arrays.once import once
from fragmenta.jit.compiler import Traced, kernel, pointer
from fragmenta.jit.llvm import Type
from fragmenta.jit.trace import (
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
    Value,
    any_lane,
    bits_of,
    call_address,
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

#: The most columns of a block: their packed elements stay in the L2 cache.
COLUMNS = 128

# The exponents of a step that are settled in float32: all scales are normal numbers.
_LEAST, _MOST = -100, 90

# With types of at most 5 exponent bits, sums of exponents below this are of zeros.
_NARROW = -48

_PAIR = 2 * LANES
_ALL = GROUP * LANES


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

    @classmethod
    def of(cls, model: Model, wide: bool) -> FloorVariant:
        """The variant for a model."""
        # A product has less than four times the units of its exponent.
        most = model.products << (model.fraction + 2)
        room = next(bits for bits in (22, 30, 31, 50) if most <= 1 << bits)
        values = F32 if room == 22 else F64  # float32 has 22 bits for either sign
        half, short = model.accumulator == "f16", model.keep < 23
        zero = model.start == "zero"
        return cls(model.products, values, room, short, half, zero, wide, model.sparse)


class FloorNumbers(NamedTuple):
    """How steps align and round."""

    fraction: Value
    floor: Value
    keep: Value


class FloorSizes(NamedTuple):
    """The sizes of a product and of its blocks."""

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
    add: Value  #: the address of what adds c last
    a_size: Value  #: bytes of an element
    b_size: Value


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
    totals: Memory
    exponents: Memory
    held: Memory

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
        (I16, COLUMNS),
        (values, GROUP * DEPTH),
        (I8, pairs * GROUP * _PAIR),
        (I8, pairs * GROUP * _PAIR),
        (I32, GROUP * DEPTH),
        (I32, GROUP * DEPTH),
        (I16, LANES),
        (F32, _ALL),
        (I32, LANES),
        (I64, _ALL),
        (I16, _ALL),
        (F32, _ALL),
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
        a=pointer(I8),
        b=pointer(I8),
        d=pointer(F32),
        index=pointer(I8),
        scale_a=pointer(I8),
        scale_b=pointer(I8),
        status=pointer(I8),
        **dict.fromkeys(FloorNumbers._fields, I32),
        **dict.fromkeys(FloorSizes._fields, I64),
        work=pointer(I8),
        first=I64,
        last=I64,
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
        *others: Any,
    ) -> None:
        *numbers, work, start, stop = others
        n, p = FloorNumbers(*numbers[:3]), FloorSizes(*numbers[3:])
        w = Work.of(work, variant.values)
        step = Step(code, variant, n, w)
        set_rounding(code, code.constant(MODES["rz"], I32))
        with code.loop(stop, start=start) as number:
            _block(step, p, (a, b, d, index, scale_a, scale_b), number)
            status[number] = convert(w.special[0], I8)
        set_rounding(code, code.constant(MODES["rn"], I32))

    return floor_steps


class Step(NamedTuple):
    """What every part of a step needs."""

    code: Code
    v: FloorVariant
    n: FloorNumbers
    w: Work


def _block(
    step: Step, p: FloorSizes, memories: tuple[Memory, ...], number: Value
) -> None:
    """One block, in parts along k."""
    code, w = step.code, step.w
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
            to = _panel(panel, some * p.k)
            call_address(
                p.pack_columns,
                [
                    starting_at(b, (at * p.columns + column) * p.b_size),
                    starting_at(scale_b, at_scale * p.columns + column),
                    starting_at(w.b_values, to.values),
                    starting_at(w.b_powers, to.powers),
                    starting_at(w.b_lows, to.lows),
                    starting_at(w.b_base, to.base),
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
                    starting_at(a, (at * depth + first * p.stored) * p.a_size),
                    starting_at(scale_a, scale_row * scales + first * p.scale_vec),
                    starting_at(index, row * depth + first * p.stored),
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
                _instructions(step, p, _panel(panel, some * p.k), some)
                _store(code, w.sums, sums)


def _instructions(step: Step, p: FloorSizes, at: Panel, count: Value) -> None:
    """The steps of some instructions."""
    code, v, _, w = step
    if not v.from_zero:
        with code.loop(count * p.stored, step=v.products) as product:
            add_step(step, at, product)
        return
    with code.loop(count) as instruction:
        held = w.sums.lanes(0, _ALL)
        w.held[0] = held
        w.sums[0] = held.lift(0.0)
        with code.loop(p.stored, step=v.products) as product:
            add_step(step, at, instruction * p.stored + product)
        set_rounding(code, code.constant(MODES["rn"], I32))
        call_address(p.add, [w.held, w.sums])
        set_rounding(code, code.constant(MODES["rz"], I32))


@once
def ordinary_adder(half: bool) -> Traced:
    """A kernel that adds c to the sums of an instruction.

    It is compiled apart from the steps, which round in another mode.
    """

    @kernel(held=pointer(F32), sums=pointer(F32))
    def add_last(code: Code, held: Memory, sums: Memory) -> None:
        with code.loop(_ALL, step=LANES) as lane:
            x, y = (convert(each.lanes(lane), F64) for each in (held, sums))
            sums[lane] = to_float32(add_ordinary(x, y, half))

    return add_last


def _panel(panel: Value, depth: Value) -> Panel:
    """A panel of so many elements along k.

    Panels follow each other: in the cache, those of a few elements do not collide.
    """
    first = panel * depth
    return Panel(first * LANES, first * LANES, first * (2 * _PAIR), panel * LANES)


def starting_at(memory: Memory, place: Value) -> Memory:
    """The memory from a place on."""
    return Memory(memory._builder, memory._at(place, memory.of), memory.of)


# -- accumulators -------------------------------------------------------------


class Sums(NamedTuple):
    """Where the accumulators of a group of rows and a panel are."""

    d: Memory
    place: Value
    columns: Value
    rows_left: Value
    columns_left: Value

    @property
    def whole(self) -> Value:
        """Whether the group and the panel are not at an edge."""
        return (self.rows_left >= GROUP) & (self.columns_left >= LANES)


def _load(code: Code, to: Memory, sums: Sums) -> None:
    """Copy accumulators; beyond the last row or column there are ones."""
    with code.when(sums.whole):
        for row in range(GROUP):
            to[row * LANES] = sums.d.lanes(sums.place + sums.columns * row)
    with code.when(~sums.whole):
        to[0] = code.constant(1.0, F32).in_all_lanes(_ALL)
        with _each_left(code, sums) as (there, here):
            to[here] = sums.d[there]


def _store(code: Code, source: Memory, sums: Sums) -> None:
    with code.when(sums.whole):
        for row in range(GROUP):
            sums.d[sums.place + sums.columns * row] = source.lanes(row * LANES)
    with code.when(~sums.whole), _each_left(code, sums) as (there, here):
        sums.d[there] = source[here]


@contextmanager
def _each_left(code: Code, sums: Sums) -> Iterator[tuple[Value, Value]]:
    """The accumulators at the edge: where they are in d, and in a group."""
    rows = code.loop(smaller(sums.rows_left, GROUP))
    with rows as row, code.loop(smaller(sums.columns_left, LANES)) as column:
        yield sums.place + row * sums.columns + column, row * LANES + column


# -- one step -----------------------------------------------------------------
#
# A vector of 32 lanes has the eight columns of each of four rows.  A vector of 64 lanes
# has, for each row, the eight columns for the first k of a pair, then for the second.


class Exponents(NamedTuple):
    """The exponents of a step, in 32 lanes of 16 bits."""

    e: Value  #: of each sum, that is emax
    base: Value | None
    unusual: Value  #: whether some are extreme


def add_step(step: Step, at: Panel, product: Value) -> None:
    """The step that begins with a product, for a group of rows and a panel."""
    code, v, _, w = step
    e, base, unusual = _exponents(step, at, product)
    starts = [_start(_row(e, row), step) for row in range(GROUP)]
    sums, counts = _sums_and_counts(step, at, product, starts, _limits(e, base, step))
    units = _joined([_units(*each) for each in zip(sums, starts, strict=True)])
    large = None if v.half else _large(v, units, sums, starts)
    if large is not None:
        unusual = unusual | large
    x = w.sums.lanes(0, _ALL)
    new = code.variable(x)
    if not v.half:
        new.value = _settled(x, e, units + counts, step)
    with code.when(unusual):
        for row in range(GROUP):
            whole = convert(bits_of(sums[row]) - bits_of(starts[row]), I64)
            w.totals[row * LANES] = whole + convert(_row(counts, row), I64)
        w.exponents[0] = e
        _settle_apart(step)
        new.value = w.sums.lanes(0, _ALL)
    w.sums[0] = new.value


def _sums_and_counts(
    step: Step, at: Panel, product: Value, starts: list[Value], limits: Value
) -> tuple[list[Value], Value]:
    """The sums of a step, and how many products lose bits.

    The chain of a sparse step is a loop.  Counts before it would be finished after it,
    and everything that they have loaded kept on the stack.
    """
    if step.v.sparse:
        sums = _chain(step, at, product, starts)
        return sums, _counts(step, at, product, limits)
    counts = _counts(step, at, product, limits)
    return _chain(step, at, product, starts), counts


def _row(x: Value, row: int) -> Value:
    """The lanes of one row."""
    return picked(x, range(row * LANES, (row + 1) * LANES))


def _joined(parts: list[Value]) -> Value:
    """Vectors of the same length, one after the other."""
    while len(parts) > 1:
        count = parts[0].type.count
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [picked(x, range(2 * count), y) for x, y in pairs]
    return parts[0]


def _exponents(step: Step, at: Panel, product: Value) -> Exponents:
    """The largest exponent of products and accumulator, for each row and column."""
    code, v, _, w = step
    top = convert(_tops(step, at, product), I16)
    field = _field(w.sums.lanes(0, _ALL))
    base = None
    if v.wide:
        columns = picked(w.b_base.lanes(at.base), [*range(LANES)] * GROUP)
        rows = [row for row in range(GROUP) for _ in range(LANES)]
        base = columns + picked(w.a_base.lanes(0, GROUP), rows)
        e = larger(top + base, field - 127)
        odd = (e < _LEAST) | (e > _MOST) | (e - base <= CLIP)
    else:
        e = larger(top, field - 127)
        odd = compare_unsigned(">", e - _NARROW, _MOST - _NARROW)
    unusual = code.constant(1, I1) if v.half else any_lane(odd)
    chosen = code.variable(e)
    with code.when(unusual):
        chosen.value = _unusual_exponents(step, top, base)
    return Exponents(chosen.value, base, unusual)


def _tops(step: Step, at: Panel, product: Value) -> Value:
    """The largest sum of exponents of the products, for each row and column."""
    code, v, _, w = step
    top = code.variable(code.constant(NOTHING, I8).in_all_lanes(2 * _ALL))
    with code.loop(v.products // 2) as number:
        pair = product // 2 + number
        if v.sparse:
            y = _joined(
                [
                    _of_places(w.b_powers, at.powers, w.a_places, row, pair)
                    for row in range(GROUP)
                ]
            )
        else:
            one = w.b_powers.lanes(at.powers + pair * _PAIR, _PAIR)
            y = picked(one, [*range(_PAIR)] * GROUP)
        x = w.a_powers.lanes(pair * (GROUP * _PAIR), GROUP * _PAIR)
        top.value = larger(top.value, saturated_sum(x, y))
    return larger(*_halves(top.value))


def _of_places(
    memory: Memory, start: Value, places: Memory, row: int, pair: Value
) -> Value:
    """Two vectors of eight lanes, for the two places of a pair."""
    at = pair * 2 + row * DEPTH
    first, second = (
        memory.lanes(start + convert(places[at + side], I64)) for side in range(2)
    )
    return picked(first, range(_PAIR), second)


def _halves(x: Value) -> tuple[Value, Value]:
    """The lanes of the first k of a pair, and those of the second."""
    rows = [row * _PAIR for row in range(GROUP)]
    low, high = (
        picked(x, [row + lane for row in rows for lane in range(side, side + LANES)])
        for side in (0, LANES)
    )
    return low, high


def _field(x: Value) -> Value:
    """The exponent fields of float32 numbers, as 16-bit integers."""
    upper = picked(recast(bits_of(x), I16), range(1, 2 * x.type.count, 2))
    return shift_unsigned(upper + upper, 8)


def _unusual_exponents(step: Step, top: Value, base: Value | None) -> Value:
    """The exponents of a step where some are extreme, or of zeros."""
    code, v, n, w = step
    floor = convert(n.floor, I16)
    x = w.sums.lanes(0, _ALL)
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


def _start(e: Value, step: Step) -> Value:
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


def _chain(step: Step, at: Panel, product: Value, starts: list[Value]) -> list[Value]:
    """The products of a step, each rounded down, for each row."""
    code, v, _, w = step
    sums = [code.variable(start) for start in starts]
    with code.loop(v.products, step=2) as number:
        here = product + number
        x = [w.a_values.lanes(here + row * DEPTH, 2) for row in range(GROUP)]
        for side in range(2):
            y = w.b_values.lanes(at.values + (here + side) * LANES)
            for row, some in enumerate(sums):
                if v.sparse:
                    place = convert(w.a_places[here + (side + row * DEPTH)], I64)
                    y = w.b_values.lanes(at.values + place)
                some.value = fma(picked(x[row], [side] * LANES), y, some.value)
    return [some.value for some in sums]


def _limits(e: Value, base: Value | None, step: Step) -> Value:
    """A product loses bits if the exponent of its lowest bit is below this."""
    limit = e - convert(step.n.fraction, I16)
    if base is not None:
        limit = limit - base
    # No product of zero is below the upper bound, and every other one is.
    return convert(larger(smaller(limit, 100 if base is None else 20), -128), I8)


def _counts(step: Step, at: Panel, product: Value, limits: Value) -> Value:
    """How many negative products lose bits, for each row and column."""
    code, v, _, w = step
    twice = [picked(_row(limits, row), [*range(LANES)] * 2) for row in range(GROUP)]
    counts = [code.variable(each.lift(0)) for each in twice]
    with code.loop(v.products // 2) as number:
        pair = product // 2 + number
        for row, count in enumerate(counts):
            if v.sparse:
                y = _of_places(w.b_lows, at.lows, w.a_signs, row, pair)
            else:
                place = convert(w.a_signs[pair + row * (DEPTH // 2)], I64)
                y = w.b_lows.lanes(at.lows + place, _PAIR)
            x = w.a_lows.lanes((pair * GROUP + row) * _PAIR, _PAIR)
            loses = twice[row] > saturated_sum(x, y)
            count.value = count.value - convert(loses, I8)
    low, high = _halves(_joined([count.value for count in counts]))
    return convert(low + high, I32, signed=False)


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
        upper = picked(recast(units, I16), range(1, 2 * _ALL, 2))
        return any_lane((upper + (1 << 14)) < 0)
    wholes = [bits_of(x) - bits_of(y) for x, y in zip(sums, starts, strict=True)]
    upper = _joined([convert(whole >> 30, I32) for whole in wholes])
    return any_lane((upper != 0) & (upper != -1))


def _settled(x: Value, e: Value, units: Value, step: Step) -> Value:
    """The accumulators after a step: terms are added as 32-bit integers."""
    one = convert((step.n.fraction + 127) << 7, I16)
    bits = _upper_parts(one - (e << 7), I32)
    own = convert(x * float_of(bits), I32)
    total = convert(units + own, F32)
    if step.v.short:
        mask = step.n.keep.lift(-1) << (23 - step.n.keep)
        total = float_of(bits_of(total) & mask)
    return total * float_of((254 << 23) - bits)


def _settle_apart(step: Step) -> None:
    """The same in float64, for every exponent and every sum."""
    code, v, n, w = step
    least = code.constant(-14 if v.half else -126, I64)
    fraction, floor, keep = (convert(each, I64) for each in n)
    rounding = Rounding(fraction, floor, keep, least, v.half)
    with code.loop(GROUP) as row:
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
