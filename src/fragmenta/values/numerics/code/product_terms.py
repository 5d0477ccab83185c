"""The terms of one step of a product, aligned as the hardware aligns them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fragmenta.base.jit.trace import (
    F64,
    I32,
    I64,
    LANES,
    Value,
    convert,
    each_lane,
    float_of,
    larger,
    select,
    smaller,
    truncate,
)
from fragmenta.engine.planes.code.products import Eight
from fragmenta.reference.arithmetic.constants import SCALE_PARTS
from fragmenta.reference.arithmetic.elements import ZERO
from fragmenta.reference.arithmetic.models import GROUP
from fragmenta.reference.registers.dtype import dtype
from fragmenta.values.numerics.code.product_operands import Factors
from fragmenta.values.numerics.code.product_records import ErrorSums


class StepTerms:
    """The terms of one step: products, or groups of them with shared scales."""

    def __init__(self, operands: Factors, here: Eight, begin: Value) -> None:
        self.operands, self.here, self.begin = operands, here, begin
        self.code, self.how = operands.code, operands.how
        self.model = operands.how.model

    @contextmanager
    def _each(self) -> Iterator[tuple[Value, Value, Value]]:
        """The value of each term, its exponent, and how many products it has."""
        model, code = self.model, self.code
        if model.form == "grouped":
            with code.loop(model.products, step=GROUP) as place:
                yield self._group(place)
            return
        with code.loop(model.products) as place:
            yield self._product(self._position(place))

    def _position(self, place: Value) -> Value:
        """The stored position of a product."""
        model = self.model
        number = self.begin + place
        if not model.reordered:
            return number
        return convert(self.code.table(list(model.order), I32)[number], I64)

    def _product(self, place: Value) -> tuple[Value, Value, Value]:
        here, operands = self.here, self.operands
        own = here.a + place * LANES
        row = here.b + operands.columns(here, place) * LANES
        value = operands.b.given.lanes(row) * operands.a.given[own].in_all_lanes()
        power = operands.b.powers.lanes(row) + operands.a.powers[own].in_all_lanes()
        return value, power, convert(value != 0.0, F64, signed=False)

    def _group(self, place: Value) -> tuple[Value, Value, Value]:
        """Products that share scales: their exponent is that of the scales."""
        code, here, operands, model = self.code, self.here, self.operands, self.model
        zero = code.constant(0.0, F64).in_all_lanes()
        total, count = code.variable(zero), code.variable(zero)
        with code.loop(GROUP) as inner:
            value, _, one = self._product(self.begin + place + inner)
            total.value, count.value = total.value + value, count.value + one
        tiles = operands.tiles
        assert tiles.scale_a is not None
        assert tiles.scale_b is not None
        _, exponents = SCALE_PARTS[model.scale or ""]
        table = code.table(exponents.tolist(), I32)
        mask = dtype(model.scale or "").mask
        vec = model.scale_vec
        block = (self.begin + place) * vec // model.stored
        own = tiles.scale_a[(here.panel_a * vec + block) * LANES + here.lane]
        x = table[convert(own, I64, signed=False) & mask]
        first = (here.panel_b * vec + block) * LANES
        raw = [
            convert(each, I64, signed=False) & mask
            for each in each_lane(tiles.scale_b.lanes(first))
        ]
        power = table.gather(raw) + x.in_all_lanes()
        counts = count.value != 0.0
        return total.value, select(counts, power, power.lift(2 * ZERO)), count.value

    def largest(self, e: Value) -> Value:
        """The largest exponent of the accumulators and all terms."""
        top = self.code.variable(e)
        with self._each() as (_, power, _):
            top.value = larger(top.value, power)
        return top.value

    def aligned(self, top: Value, fraction: Value, sums: ErrorSums) -> Value:
        """The sum of the aligned terms, in units; counts those that vanish."""
        shift = fraction - convert(top, I64)
        # Out of range, every term is zero or cut to zero.
        scale = float_of(smaller(larger(shift + 1023, 1), 2046) << 52)
        zero = scale.lift(0.0)
        total = self.code.variable(zero)
        with self._each() as (value, _, count):
            units = truncate(value * scale)
            total.value = total.value + units
            gone = (units == 0.0) & (value != 0.0)
            sums.count(count, select(gone, count, 0.0))
        return total.value
