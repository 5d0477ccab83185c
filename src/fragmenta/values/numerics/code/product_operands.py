"""A and B of a product as f64, and the exact sums of their products.

Each product of two f64 is split at a power of two that is larger than the sum of all of
them can be.  The upper parts are added without any rounding.  The lower parts are at
least 2**46 times smaller, and are added in f64.  So the sum is exact to 2**-90 of the
largest product.
"""

from __future__ import annotations

from math import ceil, log2
from typing import NamedTuple

from fragmenta.base.jit.trace import (
    F64,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    Variable,
    any_lane,
    bits_of,
    convert,
    float_of,
    fma,
    larger,
    select,
    shift_unsigned,
    smaller,
)
from fragmenta.engine.planes.code.products import Eight, ProductMatrices, ProductShape
from fragmenta.reference.arithmetic.constants import SCALE_PARTS, format_of
from fragmenta.reference.arithmetic.elements import (
    ZERO,
    power_of_two,
    small_value,
    wide_value,
)
from fragmenta.reference.registers.dtype import dtype
from fragmenta.values.numerics.code.elements import MOST_SOURCES, special_exact

_HIGH = 400
"""An exponent above those of all elements."""
PLANES_OF_SCALES = 8
"""Planes that make an f64 of the bits beside a scale."""
_SPARE = 2
"""Bits between the largest sum of products and the power of two that splits them."""


class FactorMatrix(NamedTuple):
    """A or B as f64."""

    given: Memory
    """The elements as they are, times their scales."""
    upper: Memory
    """The nearly exact ones; their memory is filled if there are any."""
    lower: Memory | None
    """What they have beside, if elements have 32 bits or more."""
    powers: Memory
    """The exponents of elements, I32; ``ZERO`` if they are zero."""
    tops: Memory
    """The largest absolute value of each row or column."""
    exact_tops: Memory
    lows: Memory
    """The last bit of any element of each row or column, as f64."""
    second: Value
    """Whether the nearly exact elements are others."""
    off: Memory
    """If they are: the largest error of an element of each row or column."""
    sources: Memory
    """The site that it comes from, as second values name it."""


class _Scales(NamedTuple):
    """The second values of block scales."""

    words: Memory
    has: Value
    off: Memory
    """Their relative errors."""


class Sum(NamedTuple):
    """A sum of products: a part without any rounding, and the rest."""

    upper: Value
    lower: Value


class Factors:
    """A and B of one instruction."""

    def __init__(
        self, code: Code, how: ProductShape, tiles: ProductMatrices, own: Value
    ) -> None:
        """``own`` names the instruction, as second values do."""
        self.code, self.how, self.tiles, self.own = code, how, tiles, own
        self.a = self._side("a", self._has("a"), tiles.a, tiles.a2)
        self.b = self._side("b", self._has("b"), tiles.b, tiles.b2)

    def kind(self, name: str) -> str:
        """The type of the elements of an operand."""
        return str(getattr(self.how.model, name))

    def _has(self, name: str) -> Value:
        """Whether elements have second values.

        Those of 4 bits in the middle of a byte were shifted there: they have none.
        """
        has: Value = getattr(self.tiles, f"has_{name}")
        apart = dtype(self.kind(name)).bits == 4 and self.how.bits(name) == 8
        return has.lift(0) if apart else has

    def _narrow(self, name: str) -> bool:
        """Whether a second value is an f32, without a node and without a source."""
        return self.how.bits(name) * self.how.planes < 64

    def node(self, name: str, place: Value) -> Value:
        """The node of an element that is NaN or infinite; 0 if it has none."""
        found = self.code.variable(place.lift(0))
        if name == "c" or not self._narrow(name):
            with self.code.when(getattr(self.tiles, f"has_{name}")):
                found.value = getattr(self.tiles, f"{name}2")[place] & 0xFFFFFFFF
        value: Value = found.value
        return value

    def _side(self, name: str, has: Value, bits: Memory, words: Memory) -> FactorMatrix:
        code, how = self.code, self.how
        count = how.sizes[name]
        depth = how.model.stored if name == "a" else how.model.k
        given, upper = code.scratch(F64, count), code.scratch(F64, count)
        wide = how.words(name) > 1
        lower = code.scratch(F64, count) if wide else None
        powers = code.scratch(I32, count)
        negated = how.negated[0 if name == "a" else 1]
        cut = self.kind(name) == "tf32"
        second = code.variable(convert(has, I32, signed=False))
        with code.loop(count, step=LANES) as place:
            raw = bits.lanes(place)
            x, power = self._decoded(raw, name)
            given[place], powers[place] = x, power
            if cut:  # the hardware does not look at the last bits of an f32
                full = float_of(raw)
                upper[place] = convert(full, F64)
                rest = any_lane((raw & 0x1FFF) != 0)
                second.value = second.value | convert(rest, I32, signed=False)
        with code.when(has), code.loop(count, step=LANES) as place:
            self._exact(place, words, given, upper, lower, negated, cut)
        if wide and cut:
            zero = code.constant(0.0, F64).in_all_lanes()
            with code.when(~has), code.loop(count, step=LANES) as place:
                assert lower is not None
                lower[place] = zero
        scales = self._exact_scales(name)
        if scales is not None:
            with code.when(scales.has & ~has), code.loop(count, step=LANES) as place:
                upper[place] = given.lanes(place)
            second.value = second.value | convert(scales.has, I32, signed=False)
        rows = count // depth
        off, sources = code.scratch(F64, rows), code.scratch(I64, rows)
        last = second.value != 0
        made = FactorMatrix(
            given, upper, lower, powers, given, upper, given, last, off, sources
        )
        if how.model.scale:
            self._scale(name, made, depth, scales)
        tops = self._tops(given, count // depth // LANES, depth)
        exact = code.scratch(F64, count // depth)
        with code.when(made.second):
            found = self._tops(upper, count // depth // LANES, depth)
            with code.loop(count // depth, step=LANES) as place:
                exact[place] = found.lanes(place)
            self._blamed(name, made, depth, scales)
        lows = self._lows(name, powers, count // depth // LANES, depth)
        return made._replace(tops=tops, exact_tops=exact, lows=lows)

    def _decoded(self, raw: Value, name: str) -> tuple[Value, Value]:
        """Elements as f64, and their exponents in a step."""
        kind, model = self.kind(name), self.how.model
        if kind == "f64":
            return float_of(raw), convert(raw, I32).lift(0)
        form = format_of(kind, model.operand)
        if form.exponent_bits == 8:
            x = wide_value(raw, 4 if kind in ("tf32", "f32") else 2, form)
        else:
            x = small_value(raw, form)
        field = (bits_of(x) >> 23) & 255
        power = larger(field - 127, form.least)
        return convert(x, F64), select(x == 0, power.lift(ZERO), power)

    def _exact(
        self,
        place: Value,
        words: Memory,
        given: Memory,
        upper: Memory,
        lower: Memory | None,
        negated: bool,
        cut: bool,
    ) -> None:
        """Nearly exact elements: their second values, or what they are."""
        count = self.how.sizes["a" if words is self.tiles.a2 else "b"]
        word = words.lanes(place)
        held = upper.lanes(place) if cut else given.lanes(place)
        usual = (held - held) == 0.0
        if self._narrow("a" if words is self.tiles.a2 else "b"):
            x = convert(float_of(convert(word, I32)), F64)
        else:
            x = select(usual, float_of(word), special_exact(word))
        x = select(word == 0, held, x * (-1.0 if negated else 1.0))
        upper[place] = x
        if lower is not None:
            rest = float_of(words.lanes(place + count))
            rest = rest * (-1.0 if negated else 1.0)
            lower[place] = select((word != 0) & usual, rest, 0.0)

    def _exact_scales(self, name: str) -> _Scales | None:
        """The second values of block scales, if they are followed."""
        tiles = self.tiles
        words = tiles.scale_a2 if name == "a" else tiles.scale_b2
        has = tiles.has_scale_a if name == "a" else tiles.has_scale_b
        if words is None or has is None or self.how.planes < PLANES_OF_SCALES:
            return None
        return _Scales(words, has, self.code.scratch(F64, self._blocks(name) * LANES))

    def _blocks(self, name: str) -> int:
        """Blocks of eight scales."""
        model = self.how.model
        depth = model.stored if name == "a" else model.k
        return self.how.sizes[name] // depth // LANES * model.scale_vec

    def _scale(
        self, name: str, side: FactorMatrix, depth: int, exact: _Scales | None
    ) -> None:
        """Multiply elements by their block scales, exactly."""
        code, model = self.code, self.how.model
        scales = self.tiles.scale_a if name == "a" else self.tiles.scale_b
        assert scales is not None
        values, exponents = SCALE_PARTS[model.scale or ""]
        table = code.table([float(each) for each in values], F64)
        shifts = code.table(exponents.tolist(), I32)
        inner = depth // model.scale_vec
        with code.loop(self._blocks(name)) as block:
            raw = [
                convert(scales[block * LANES + lane], I64, signed=False)
                & dtype(model.scale or "").mask
                for lane in range(LANES)
            ]
            by, shift = table.gather(raw), shifts.gather(raw)
            nearly = code.variable(by)
            if exact is not None:
                exact.off[block * LANES] = by.lift(0.0)
                with code.when(exact.has):
                    word = exact.words.lanes(block * LANES)
                    there = (word != 0) & ((by - by) == 0.0)
                    scale = select(there, float_of(word), by)
                    nearly.value = scale
                    apart = abs(scale - by) / abs(scale)
                    exact.off[block * LANES] = select(scale == by, 0.0, apart)
            with code.loop(inner) as row:
                place = (block * inner + row) * LANES
                side.given[place] = side.given.lanes(place) * by
                power = side.powers.lanes(place)
                side.powers[place] = select(power == ZERO, power, power + shift)
                with code.when(side.second):
                    upper = side.upper.lanes(place)
                    side.upper[place] = upper * nearly.value

    def _blamed(
        self, name: str, side: FactorMatrix, depth: int, scales: _Scales | None
    ) -> None:
        """The largest error of each of eight rows or columns, and where it is from."""
        code = self.code
        zero = code.constant(0.0, F64).in_all_lanes()
        with code.loop(self.how.sizes[name] // depth // LANES) as panel:
            most, source = code.variable(zero), code.variable(bits_of(zero))
            with code.loop(depth) as row:
                place = (panel * depth + row) * LANES
                exact = side.upper.lanes(place)
                size = abs(exact - side.given.lanes(place))
                found = self._source_of(name, place)
                if scales is not None:
                    vec = self.how.model.scale_vec
                    block = (panel * vec + row // (depth // vec)) * LANES
                    with code.when(scales.has):
                        own = scales.words.lanes(block) & MOST_SOURCES
                        more = abs(exact) * scales.off.lanes(block) > size * 0.5
                        found.value = select(more, own, found.value)
                larger_ = size > most.value
                most.value = select(larger_, size, most.value)
                source.value = select(larger_, found.value, source.value)
            side.off[panel * LANES] = most.value
            side.sources[panel * LANES] = source.value

    def _source_of(self, name: str, place: Value) -> Variable:
        """The sources of eight elements.

        What the hardware cuts off itself, of tf32, comes from the product.
        """
        code = self.code
        nobody = code.constant(0, I64).in_all_lanes()
        own = self.own if self.kind(name) == "tf32" else nobody
        found = code.variable(own)
        if not self._narrow(name):
            with code.when(self._has(name)):
                words = getattr(self.tiles, f"{name}2").lanes(place)
                found.value = select(words == 0, own, words & MOST_SOURCES)
        return found

    def _tops(self, values: Memory, panels: int, depth: int) -> Memory:
        """The largest absolute value of each of eight rows or columns."""
        code = self.code
        goal = code.scratch(F64, panels * LANES)
        with code.loop(panels) as panel:
            top = code.variable(code.constant(0.0, F64).in_all_lanes())
            with code.loop(depth) as row:
                x = abs(values.lanes((panel * depth + row) * LANES))
                top.value = select(x > top.value, x, top.value)
            goal[panel * LANES] = top.value
        return goal

    def _lows(self, name: str, powers: Memory, panels: int, depth: int) -> Memory:
        """The last bit that any element of each row or column has."""
        code, model = self.code, self.how.model
        goal = code.scratch(F64, panels * LANES)
        below = dtype(self.kind(name)).fraction_bits
        if model.scale:
            below += dtype(model.scale).fraction_bits
        with code.loop(panels) as panel:
            least_ = code.variable(code.constant(_HIGH, I32).in_all_lanes())
            with code.loop(depth) as row:
                power = powers.lanes((panel * depth + row) * LANES)
                power = select(power == ZERO, power.lift(_HIGH), power)
                least_.value = smaller(least_.value, power)
            goal[panel * LANES] = power_of_two(least_.value - below)
        return goal

    # ── sums ────────────────────────────────────────────────────────────────

    def columns(self, here: Eight, place: Value) -> Value:
        """The logical k of a stored element of A."""
        index = self.tiles.index
        if index is None:
            return place
        return convert(index[here.row * self.how.model.stored + place], I64)

    def _sum(
        self, here: Eight, a: Memory, b: Memory, tops_a: Memory, tops_b: Memory
    ) -> Sum:
        """The exact sum of products of eight elements."""
        code, stored = self.code, self.how.model.stored
        most = tops_a[here.panel_a * LANES + here.lane]
        bound = tops_b.lanes(here.panel_b * LANES) * most
        room = ceil(log2(stored)) + _SPARE
        field = shift_unsigned(bits_of(bound), 52) + room
        split = float_of(smaller(field, 2047) << 52) * 1.5
        zero = split.lift(0.0)
        upper, lower = code.variable(zero), code.variable(zero)
        with code.loop(stored) as place:
            x = a[here.a + place * LANES].in_all_lanes()
            y = b.lanes(here.b + self.columns(here, place) * LANES)
            high = fma(x, y, split) - split
            upper.value = upper.value + high
            lower.value = lower.value + fma(x, y, 0.0 - high)
        return Sum(upper.value, lower.value)

    def given_sum(self, here: Eight) -> Sum:
        """The sum of the elements as they are: in f64, if that rounds nothing."""
        code, a, b = self.code, self.a, self.b
        if self.kind("a") == "f64":
            return self._sum(here, a.given, b.given, a.tops, b.tops)
        stored = self.how.model.stored
        place, row = here.panel_b * LANES, here.panel_a * LANES + here.lane
        most = b.tops.lanes(place) * (a.tops[row] * float(2 ** ceil(log2(stored))))
        last = b.lows.lanes(place) * (a.lows[row] * 2.0**53)
        exactly = ~any_lane(~(most <= last))
        zero = most.lift(0.0)
        upper, lower = code.variable(zero), code.variable(zero)
        with code.when(exactly), code.loop(stored) as index:
            x = a.given[here.a + index * LANES].in_all_lanes()
            y = b.given.lanes(here.b + self.columns(here, index) * LANES)
            upper.value = fma(x, y, upper.value)
        with code.when(~exactly):
            found = self._sum(here, a.given, b.given, a.tops, b.tops)
            upper.value, lower.value = found.upper, found.lower
        return Sum(upper.value, lower.value)

    def exact_sum(self, here: Eight) -> Sum:
        """The same of the nearly exact elements."""
        code = self.code
        x = self._side_or_given(self.a)
        y = self._side_or_given(self.b)
        found = self._sum(here, x.given, y.given, x.tops, y.tops)
        if self.a.lower is None and self.b.lower is None:
            return found
        rest = code.variable(found.lower)
        with code.loop(self.how.model.stored) as place:
            row = here.b + self.columns(here, place) * LANES
            own = here.a + place * LANES
            a, b = x.given[own].in_all_lanes(), y.given.lanes(row)
            for side, other, at_ in ((self.a, b, own), (self.b, a, row)):
                if side.lower is None:
                    continue
                low = (
                    side.lower[at_].in_all_lanes()
                    if side is self.a
                    else side.lower.lanes(at_)
                )
                low = select(side.second, low, low.lift(0.0))
                rest.value = fma(low, other, rest.value)
        return Sum(found.upper, rest.value)

    def source(self, here: Eight) -> Value:
        """Where most of the error of A and B comes from, for eight elements."""
        code, row = self.code, here.panel_a * LANES + here.lane
        zero = code.constant(0.0, F64).in_all_lanes()
        most, found = code.variable(zero), code.variable(bits_of(zero))
        with code.when(self.b.second):
            of_b = here.panel_b * LANES
            most.value = self.b.off.lanes(of_b) * self.a.tops[row]
            found.value = self.b.sources.lanes(of_b)
        with code.when(self.a.second):
            size = self.b.tops.lanes(here.panel_b * LANES) * self.a.off[row]
            own = self.a.sources[row].in_all_lanes()
            found.value = select(size > most.value, own, found.value)
        value: Value = found.value
        return value

    def _side_or_given(self, side: FactorMatrix) -> FactorMatrix:
        """A side whose nearly exact elements are taken if there are any."""
        b = self.code.builder

        def one(x: Memory, y: Memory) -> Memory:
            return Memory(b, b.select(side.second.raw, x.raw, y.raw), F64)

        given = one(side.upper, side.given)
        return side._replace(given=given, tops=one(side.exact_tops, side.tops))
