"""Products of matrices, nearly exactly, and what the Tensor Core loses.

The exact sum of products: each product of two f64 is split at a power of two that is
larger than the sum of all of them can be.  The upper parts are added without any
rounding.  The lower parts are at least 2**46 times smaller, and are added in f64.  So
the sum is exact to 2**-90 of the largest product.  C is added in double-double.

An instruction adds to its site's record: its error, D minus the exact result of the
operands as they are given.  One row of ``EVERY`` is computed again, step by step, which
splits that error: what was cut when terms were aligned, when steps kept some bits of
their sum, and when the last result was rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, log2
from typing import NamedTuple

from fragmenta.arithmetic.constants import SCALE_PARTS, format_of, least, rounding
from fragmenta.arithmetic.elements import (
    ZERO,
    entering,
    exact_sum,
    limited,
    power_of_two,
    small_value,
    to_nearest,
    toward_zero,
    wide_value,
)
from fragmenta.arithmetic.models import GROUP
from fragmenta.jit.trace import (
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
    each_lane,
    float_of,
    fma,
    is_nan,
    larger,
    leading_zeros,
    select,
    shift_unsigned,
    smaller,
    truncate,
)
from fragmenta.numerics.code import layout as sites
from fragmenta.numerics.code import product_layout as at
from fragmenta.numerics.code.double import (
    Double,
    plus,
    plus_float,
    quick_sum,
    total,
    two_sum,
)
from fragmenta.numerics.code.elements import LEAST_BITS, MOST_SOURCES, special_exact
from fragmenta.numerics.code.layout import Birth
from fragmenta.numerics.code.nodes import new_node
from fragmenta.planes.code.gathering import memory_at
from fragmenta.planes.code.products import Eight, Product, Tiles, each_eight
from fragmenta.registers.dtype import dtype
from fragmenta.simt.library import POINTER

_HIGH = 400
"""An exponent above those of all elements."""
_SPARE = 2
"""Bits between the largest sum of products and the power of two that splits them."""


@dataclass(frozen=True)
class NumericProducts:
    """The algebra of nearly exact values, for products."""

    planes: int
    name: str = "numerics"
    most: int = 2
    by_panel: bool = True
    """C and D of ``wgmma`` may be in memory panel by panel."""

    def product(self, code: Code, how: Product, tiles: Tiles) -> Value:
        """Write the code for an instruction: the exact D, and the site's record."""
        if how.model.form in ("integer", "bits"):
            return code.constant(0, I32)
        return _Writer(code, how, tiles).write()


class _Side(NamedTuple):
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


class _Sum(NamedTuple):
    """A sum of products: a part without any rounding, and the rest."""

    upper: Value
    lower: Value


class _Writer:
    """Writes the code of one instruction."""

    def __init__(self, code: Code, how: Product, tiles: Tiles) -> None:
        self.code, self.how, self.tiles = code, how, tiles
        table = memory_at(code, tiles.data, I64)
        self.head = memory_at(code, table[at.POINTER // 8], I64)
        table = memory_at(code, self.head[at.RECORDS // 8], I64)
        self.record = _Record(code, table[tiles.site])
        self.a = self._side("a", tiles.has_a, tiles.a, tiles.a2)
        self.b = self._side("b", tiles.has_b, tiles.b, tiles.b2)
        self.before = self.record["executions"]
        site = convert(tiles.site, I64)
        known = select(site < MOST_SOURCES, site + 1, 0)
        own = site * sites.RECORD + (sites.HEAD + sites.AT["kept"])
        kept = memory_at(code, tiles.data, F64)[own // 8]
        self.keeps: Value = kept != 0.0
        place = site * sites.RECORD + (sites.HEAD + sites.AT["digest"])
        self.digest = memory_at(code, tiles.data + place, I64)
        self.own = known.in_all_lanes()
        """Its site, as second values name it."""
        depths = memory_at(code, self.head[at.DEPTHS // 8], I64)
        count = self.head[at.CHAINS // 8]
        self.place = select(tiles.chain < count, tiles.chain, count - 1)
        self.depths, self.depth = depths, depths[self.place]
        self.begun = code.variable(code.constant(0, how.raw).in_all_lanes())

    def write(self) -> Value:
        """All rows; then what the whole instruction adds to the record."""
        code, record = self.code, self.record
        sums = _Sums(code)
        with each_eight(code, self.how) as here:
            self._row(here, sums)
        record["executions"] = self.before + 1
        sums.add(record)
        depth = self._depth()
        self._curve(sums, depth)
        self._worst(sums, depth)
        self._log(depth)
        return code.constant(1, I32)

    # ── operands ────────────────────────────────────────────────────────────

    def _side(self, name: str, has: Value, bits: Memory, words: Memory) -> _Side:
        code, how = self.code, self.how
        count = how.sizes[name]
        depth = how.model.stored if name == "a" else how.model.k
        given, upper = code.scratch(F64, count), code.scratch(F64, count)
        wide = how.words(name) > 1
        lower = code.scratch(F64, count) if wide else None
        powers = code.scratch(I32, count)
        negated = how.negated[0 if name == "a" else 1]
        cut = self._kind(name) == "tf32"
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
        made = _Side(
            given, upper, lower, powers, given, upper, given, second.value != 0
        )
        if how.model.scale:
            self._scale(name, made, depth)
        tops = self._tops(given, count // depth // LANES, depth)
        exact = code.scratch(F64, count // depth)
        with code.when(made.second):
            found = self._tops(upper, count // depth // LANES, depth)
            with code.loop(count // depth, step=LANES) as place:
                exact[place] = found.lanes(place)
        lows = self._lows(name, powers, count // depth // LANES, depth)
        return made._replace(tops=tops, exact_tops=exact, lows=lows)

    def _kind(self, name: str) -> str:
        return str(getattr(self.how.model, name))

    def _decoded(self, raw: Value, name: str) -> tuple[Value, Value]:
        """Elements as f64, and their exponents in a step."""
        kind, model = self._kind(name), self.how.model
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
        x = select(usual, float_of(word), special_exact(word))
        x = select(word == 0, held, x * (-1.0 if negated else 1.0))
        upper[place] = x
        if lower is not None:
            rest = float_of(words.lanes(place + count))
            rest = rest * (-1.0 if negated else 1.0)
            lower[place] = select((word != 0) & usual, rest, 0.0)

    def _scale(self, name: str, side: _Side, depth: int) -> None:
        """Multiply elements by their block scales, exactly."""
        code, model = self.code, self.how.model
        scales = self.tiles.scale_a if name == "a" else self.tiles.scale_b
        assert scales is not None
        values, exponents = SCALE_PARTS[model.scale or ""]
        table = code.table([float(each) for each in values], F64)
        shifts = code.table(exponents.tolist(), I32)
        panels = self.how.sizes[name] // depth // LANES
        inner = depth // model.scale_vec
        with code.loop(panels * model.scale_vec) as block:
            raw = [
                convert(scales[block * LANES + lane], I64, signed=False)
                & dtype(model.scale or "").mask
                for lane in range(LANES)
            ]
            by, shift = table.gather(raw), shifts.gather(raw)
            with code.loop(inner) as row:
                place = (block * inner + row) * LANES
                side.given[place] = side.given.lanes(place) * by
                power = side.powers.lanes(place)
                side.powers[place] = select(power == ZERO, power, power + shift)
                with code.when(side.second):
                    side.upper[place] = side.upper.lanes(place) * by

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
        below = dtype(self._kind(name)).fraction_bits
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

    # ── one row ─────────────────────────────────────────────────────────────

    def _row(self, here: Eight, sums: _Sums) -> None:
        """Eight elements of D."""
        code, tiles = self.code, self.tiles
        raw_c, raw_d = tiles.c.lanes(here.c), tiles.d.lanes(here.c)
        self.begun.value = self.begun.value | raw_c
        c, d = self._end(raw_c, "c"), self._end(raw_d, "d")
        given = self._given_sum(here)
        upper, lower = code.variable(given.upper), code.variable(given.lower)
        with code.when(self.a.second | self.b.second):
            exact = self._exact_sum(here)
            upper.value, lower.value = exact.upper, exact.lower
        before = self._exact_c(here, c)
        product = quick_sum(upper.value, lower.value)
        nearly = plus(product, before)
        nearly = self._kept(nearly, _difference(d, c, given))
        usual = ((d - d) == 0.0) & ((nearly.upper - nearly.upper) == 0.0)
        error = _difference(d, c, given)
        error = select(usual, error, 0.0)
        whole = select(usual, (d - nearly.upper) - nearly.lower, 0.0)
        old = (c - before.upper) - before.lower
        source = select(abs(error) >= abs(old), self.own, self._from_c(here))
        most = select(abs(error) >= abs(old), abs(error), abs(old))
        source = select(abs(whole - error - old) > most, self._from_sides(here), source)
        self._put(here, d, nearly, usual, source)
        odd = ~((d - d) == 0.0)
        with code.when(any_lane(odd)):
            _Births(self, here, c, d, nearly.upper).write(odd)
        self.digest[0] = self.digest[0] + total(bits_of(d))
        sums.note(here, error, whole, nearly.upper, usual)
        sums.keep(raw_c, raw_d)
        chosen = ((here.row + self.before) % self.head[at.EVERY // 8]) == 0
        with code.when(chosen):
            self._split(here, c, d, error, usual, sums)

    def _end(self, bits: Value, name: str) -> Value:
        """C or D as f64."""
        kind = self._kind(name)
        if kind == "f64":
            return float_of(bits)
        if kind == "f16":
            return convert(small_value(bits, format_of("f16")), F64)
        return convert(float_of(bits), F64)

    def _columns(self, here: Eight, place: Value) -> Value:
        """The logical k of a stored element of A."""
        index = self.tiles.index
        if index is None:
            return place
        return convert(index[here.row * self.how.model.stored + place], I64)

    def _sum(
        self, here: Eight, a: Memory, b: Memory, tops_a: Memory, tops_b: Memory
    ) -> _Sum:
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
            y = b.lanes(here.b + self._columns(here, place) * LANES)
            high = fma(x, y, split) - split
            upper.value = upper.value + high
            lower.value = lower.value + fma(x, y, 0.0 - high)
        return _Sum(upper.value, lower.value)

    def _given_sum(self, here: Eight) -> _Sum:
        """The sum of the elements as they are: in f64, if that rounds nothing."""
        code, a, b = self.code, self.a, self.b
        if self._kind("a") == "f64":
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
            y = b.given.lanes(here.b + self._columns(here, index) * LANES)
            upper.value = fma(x, y, upper.value)
        with code.when(~exactly):
            found = self._sum(here, a.given, b.given, a.tops, b.tops)
            upper.value, lower.value = found.upper, found.lower
        return _Sum(upper.value, lower.value)

    def _exact_sum(self, here: Eight) -> _Sum:
        """The same of the nearly exact elements."""
        code = self.code
        x = self._side_or_given(self.a)
        y = self._side_or_given(self.b)
        found = self._sum(here, x.given, y.given, x.tops, y.tops)
        if self.a.lower is None and self.b.lower is None:
            return found
        rest = code.variable(found.lower)
        with code.loop(self.how.model.stored) as place:
            row = here.b + self._columns(here, place) * LANES
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
        return _Sum(found.upper, rest.value)

    def _side_or_given(self, side: _Side) -> _Side:
        """A side whose nearly exact elements are taken if there are any."""
        b = self.code.builder

        def one(x: Memory, y: Memory) -> Memory:
            return Memory(b, b.select(side.second.raw, x.raw, y.raw), F64)

        given = one(side.upper, side.given)
        return side._replace(given=given, tops=one(side.exact_tops, side.tops))

    def _exact_c(self, here: Eight, c: Value) -> Double:
        """C nearly exactly: its second value, or what it is."""
        code, tiles, count = self.code, self.tiles, self.how.sizes["c"]
        upper, lower = code.variable(c), code.variable(c.lift(0.0))
        with code.when(tiles.has_c):
            word = tiles.c2.lanes(here.c)
            there = (word != 0) & ((c - c) == 0.0)
            upper.value = select(there, float_of(word), c)
            if self.how.words("c") > 1:
                rest = float_of(tiles.c2.lanes(here.c + count))
                lower.value = select(there, rest, 0.0)
        return quick_sum(upper.value, lower.value)

    def _kept(self, nearly: Double, error: Value) -> Double:
        """The exact value, with the error of the instruction if it is to be kept."""
        code = self.code
        upper, lower = code.variable(nearly.upper), code.variable(nearly.lower)
        with code.when(self.keeps):
            good = ((error - error) == 0.0) & ((nearly.upper - nearly.upper) == 0.0)
            found = plus_float(nearly, select(good, error, 0.0))
            upper.value, lower.value = found.upper, found.lower
        return Double(upper.value, lower.value)

    def _from_c(self, here: Eight) -> Value:
        """Where most of the error of C comes from."""
        code, tiles = self.code, self.tiles
        found = code.variable(self.own.lift(0))
        with code.when(tiles.has_c):
            found.value = tiles.c2.lanes(here.c) & MOST_SOURCES
        value: Value = found.value
        return value

    def _from_sides(self, here: Eight) -> Value:
        """Where most of the error of the first element of A, or of B, comes from."""
        code, tiles = self.code, self.tiles
        found = code.variable(self.own.lift(0))
        with code.when(self.b.second):
            found.value = tiles.b2.lanes(here.b) & MOST_SOURCES
        with code.when(self.a.second):
            found.value = (tiles.a2[here.a] & MOST_SOURCES).in_all_lanes()
        value: Value = found.value
        return value

    def _put(
        self, here: Eight, d: Value, nearly: Double, usual: Value, source: Value
    ) -> None:
        """The second value of D; none if it is the value itself."""
        tiles, count = self.tiles, self.how.sizes["d"]
        wide = self.how.words("d") > 1
        same = (nearly.upper == d) & (nearly.lower == 0.0 if wide else usual)
        bits = (bits_of(nearly.upper) & ~MOST_SOURCES) | source
        upper = select(bits == 0, bits.lift(LEAST_BITS), bits)
        tiles.d2[here.c] = select(same | ~usual, upper.lift(0), upper)
        if wide:
            rest = (nearly.upper - float_of(upper)) + nearly.lower
            lower = bits_of(rest)
            tiles.d2[here.c + count] = select(same | ~usual, lower.lift(0), lower)

    # ── what each step loses ────────────────────────────────────────────────

    def _split(
        self, here: Eight, c: Value, d: Value, error: Value, usual: Value, sums: _Sums
    ) -> None:
        """Compute eight elements again, step by step."""
        code, model = self.code, self.how.model
        zero = c.lift(0.0)
        if model.form not in ("fused", "grouped"):
            sums.split(zero, zero, error, usual)
            return
        kept = code.variable(zero)
        fraction, floor, keep, low = (
            code.constant(each, I64) for each in rounding(model)
        )
        starts = model.start == "c"
        x = code.variable(c if starts else zero)
        first = code.constant(least(model.c_enters), I64)
        e = code.variable(entering(x.value, floor, first if starts else low))
        rounds = to_nearest if model.rounding == "rn" else toward_zero
        with code.loop(model.stored, step=model.products) as begin:
            terms = _Terms(self, here, begin)
            top = terms.largest(e.value)
            total = terms.aligned(top, fraction, sums)
            exact = exact_sum(x.value, top, total, fraction)
            rounded = limited(rounds(exact, keep, low), power_of_two(2 - low))
            kept.value = kept.value + (rounded - exact)
            x.value = rounded
            e.value = entering(x.value, floor, low)
        last = d - x.value if starts else (d - c) - x.value
        if not starts:
            last = last + _low_of_difference(d, c)
        final = select(usual, last, 0.0)
        kept_ = select(usual & ((kept.value - kept.value) == 0.0), kept.value, 0.0)
        finite = usual & ((final - final) == 0.0)
        if starts and model.d != "f16":
            sums.differ(usual & (final != 0.0))
        sums.split(kept_, select(finite, final, 0.0), error, finite)

    # ── the whole instruction ───────────────────────────────────────────────

    def _depth(self) -> Value:
        """How many products its accumulator has, before this instruction."""
        begun = any_lane(self.begun.value != 0)
        before = select(begun, self.depth, self.depth.lift(0))
        self.depths[self.place] = before + self.how.model.k
        deepest = self.record["deepest"]
        self.record["deepest"] = larger(deepest, before + self.how.model.k)
        return before

    def _curve(self, sums: _Sums, depth: Value) -> None:
        """Add to the bin of the curve over k."""
        number = depth // self.how.model.k
        octave = 63 - leading_zeros(number | 1)
        part = (number >> larger(octave - 3, 0)) & 7
        wide = (octave - 3) * 8 + part + 8
        place = smaller(select(number < 16, number, wide), at.BINS - 1)
        bin_ = self.record.bin(place)
        for name, value in sums.of_bin().items():
            bin_[name] = bin_[name] + value
        worst = sums.largest("worst_total")
        bin_["worst"] = select(worst > bin_["worst"], worst, bin_["worst"])

    def _worst(self, sums: _Sums, depth: Value) -> None:
        """Keep the worst element, with its operands."""
        code, record, model = self.code, self.record, self.how.model
        worst = sums.largest("worst")
        with code.when(worst > record["worst"]):
            record["worst"] = worst
            row, panel, lane = sums.place_of_worst(worst)
            m = self.how.op.shape[0]
            matrix = row // m
            record["worst_row"] = row
            panels = self.how.columns // LANES
            column = (panel - matrix * panels) * LANES + lane
            record["worst_column"] = column
            record["worst_depth"], record["worst_block"] = depth, self.tiles.block
            record["worst_warp"] = self.tiles.warp
            record["worst_exact"] = sums.of_worst("exact", lane)
            record["worst_c"] = sums.of_worst("c", lane)
            record["worst_d"] = sums.of_worst("d", lane)
            panel_a = matrix * (m // LANES) + ((row - matrix * m) >> 3)
            own = row & (LANES - 1)
            self._keep("a", self.tiles.a, panel_a, own, model.stored)
            self._keep("b", self.tiles.b, panel, lane, model.k)
            if self.tiles.index is not None:
                goal = record.operand("index")
                with code.loop(model.stored) as place:
                    found = self.tiles.index[row * model.stored + place]
                    goal[place] = convert(found, I64)
            for name, scales, where, at_ in (
                ("scale_a", self.tiles.scale_a, panel_a, own),
                ("scale_b", self.tiles.scale_b, panel, lane),
            ):
                if scales is not None:
                    self._keep(name, scales, where, at_, model.scale_vec)

    def _keep(
        self, name: str, memory: Memory, panel: Value, lane: Value, count: int
    ) -> None:
        goal = self.record.operand(name)
        with self.code.loop(count) as place:
            found = memory[(panel * count + place) * LANES + lane]
            goal[place] = convert(found, I64, signed=False)

    def _log(self, depth: Value) -> None:
        """Log the operands of row 0 and columns 0 to 7, for one accumulator."""
        code, head, model, tiles = self.code, self.head, self.how.model, self.tiles
        if model.scale or self.how.raw == I64 or tiles.index is not None:
            return
        owner, used = head[at.LOG_OWNER // 8], head[at.LOG_USED // 8]
        closed = head[at.LOG_CLOSED // 8]
        mine = tiles.chain + 1
        with code.when((owner == 0) & (depth == 0)):
            head[at.LOG_OWNER // 8] = mine
        with code.when((owner == mine) & (depth == 0)):
            head[at.LOG_CLOSED // 8] = owner.lift(1)
        size = model.k * (1 + LANES)
        fits = used + size <= head[at.LOG_SIZE // 8]
        takes = (head[at.LOG_OWNER // 8] == mine) & (head[at.LOG_CLOSED // 8] == 0)
        with code.when(takes & ~fits):
            head[at.LOG_CLOSED // 8] = closed.lift(1)
        with code.when(takes & fits):
            log = memory_at(code, head[at.LOG // 8], I32).after(used)
            with code.loop(model.k) as place:
                log[place] = tiles.a[place * LANES]
            with code.loop(model.k) as place:
                log[place * LANES + model.k] = tiles.b.lanes(place * LANES)
            head[at.LOG_USED // 8] = used + size
            head[at.LOG_SITE // 8] = tiles.site


def _difference(d: Value, c: Value, product: _Sum) -> Value:
    """D - (C + products), without a rounding that counts."""
    first = two_sum(d, c * -1.0)
    second = two_sum(first.upper, product.upper * -1.0)
    return second.upper + ((second.lower + first.lower) - product.lower)


def _low_of_difference(d: Value, c: Value) -> Value:
    return two_sum(d, c * -1.0).lower


class _Births:
    """Elements of D that are NaN or infinite: where each comes from."""

    def __init__(
        self, writer: _Writer, here: Eight, c: Value, d: Value, exact: Value
    ) -> None:
        self.writer, self.here, self.code = writer, here, writer.code
        self.tiles, self.how = writer.tiles, writer.how
        self.c, self.d = self._spilled(c), self._spilled(d)
        self.exact = self._spilled(exact)

    def _spilled(self, x: Value) -> Memory:
        held = self.code.scratch(F64, LANES)
        held[0] = x
        return held

    def write(self, odd: Value) -> None:
        """Give each of them a node, which is in its second value."""
        code, flags = self.code, self.code.scratch(I32, LANES)
        flags[0] = convert(odd, I32, signed=False)
        with code.loop(LANES) as lane, code.when(flags[lane] != 0):
            node = self._node(lane)
            upper = bits_of(self.exact[lane]) & -(1 << 32)
            place, count = self.here.c + lane, self.how.sizes["d"]
            self.tiles.d2[place] = upper | convert(node, I64, signed=False)
            if self.how.words("d") > 1:
                self.tiles.d2[place + count] = upper.lift(0)

    def _second(self, has: Value, words: Memory, place: Value) -> Value:
        """The node of an operand; 0 if it has none."""
        found = self.code.variable(place.lift(0))
        with self.code.when(has):
            found.value = words[place] & 0xFFFFFFFF
        return found.value

    def _node(self, lane: Value) -> Value:
        """The node: what was born here, or what came with an operand."""
        code, tiles, here = self.code, self.tiles, self.here
        c, d = self.c[lane], self.d[lane]
        zero = lane.lift(0)
        kind, parent = code.variable(zero), code.variable(zero)
        k, x, y = code.variable(zero), code.variable(c), code.variable(c)
        x.value, y.value = c.lift(0.0), c.lift(0.0)
        with code.when(~((c - c) == 0.0)):
            self._passed(kind, parent, tiles.has_c, tiles.c2, here.c + lane)
        worst = code.variable(zero)
        with code.loop(self.how.model.stored) as place:
            own = here.a + place * LANES
            column = self.writer._columns(here, place)
            row = here.b + column * LANES + lane
            a, b = self.writer.a.given[own], self.writer.b.given[row]
            nan = is_nan(a) | is_nan(b)
            product = a * b
            odd = ~((product - product) == 0.0)
            # A NaN says more than an infinity, and one that is born most.
            rank = select(odd, zero.lift(1), 0)
            rank = select(nan, rank.lift(2), rank)
            rank = select(is_nan(product) & ~nan, rank.lift(3), rank)
            with code.when((rank > worst.value) & ((kind.value == 0) | (rank == 3))):
                worst.value = rank
                k.value, x.value, y.value = column, a, b
                with code.when(rank < 3):
                    left = ~((a - a) == 0.0)
                    self._passed(kind, parent, tiles.has_b, tiles.b2, row)
                    with code.when(left):
                        self._passed(kind, parent, tiles.has_a, tiles.a2, own)
                    kind.value = select(worst.value < 2, zero, kind.value)
        born = select(is_nan(d), zero.lift(int(Birth.INVALID)), int(Birth.OVERFLOW))
        came = (worst.value == 1) & ~is_nan(d)
        passed = select(parent.value == 0, zero.lift(int(Birth.GIVEN)), _PASSED)
        found = select(came, passed, born)
        found = select((kind.value != 0) & (worst.value < 3), kind.value, found)
        parent.value = select(found == int(Birth.INVALID), zero, parent.value)
        left_ = ~((x.value - x.value) == 0.0)
        operand = select(left_, zero, zero.lift(1))
        depth = select((c == 0.0) | is_nan(c), zero, self.writer.depth)
        operand = select(found == int(Birth.INVALID), k.value + depth, operand)
        operand = select(found == int(Birth.OVERFLOW), zero, operand)
        third = (worst.value == 0) & (kind.value != 0)
        operand = select(third, operand.lift(2), operand)
        given = [tiles.site, found, parent.value, operand, tiles.block]
        given += [tiles.warp * 32, self.writer.before]
        table = self.code.builder.inttoptr(tiles.data.raw, POINTER)
        return new_node(code, table, [*given, x.value, y.value, c, d])

    def _passed(
        self,
        kind: Variable,
        parent: Variable,
        has: Value,
        words: Memory,
        place: Value,
    ) -> None:
        node = self._second(has, words, place)
        parent.value = node
        given = node.lift(int(Birth.GIVEN))
        kind.value = select(node == 0, given, _PASSED)


_PASSED = int(Birth.PASSED)


class _Terms:
    """The terms of one step: products, or groups of them with shared scales."""

    def __init__(self, writer: _Writer, here: Eight, begin: Value) -> None:
        self.writer, self.here, self.begin = writer, here, begin
        self.code, self.how = writer.code, writer.how
        self.model = writer.how.model

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
        here, writer = self.here, self.writer
        own = here.a + place * LANES
        row = here.b + writer._columns(here, place) * LANES
        value = writer.b.given.lanes(row) * writer.a.given[own].in_all_lanes()
        power = writer.b.powers.lanes(row) + writer.a.powers[own].in_all_lanes()
        return value, power, convert(value != 0.0, F64, signed=False)

    def _group(self, place: Value) -> tuple[Value, Value, Value]:
        """Products that share scales: their exponent is that of the scales."""
        code, here, writer, model = self.code, self.here, self.writer, self.model
        zero = code.constant(0.0, F64).in_all_lanes()
        total, count = code.variable(zero), code.variable(zero)
        with code.loop(GROUP) as inner:
            value, _, one = self._product(self.begin + place + inner)
            total.value, count.value = total.value + value, count.value + one
        tiles = writer.tiles
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

    def aligned(self, top: Value, fraction: Value, sums: _Sums) -> Value:
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


class _Record:
    """The record of a site."""

    def __init__(self, code: Code, address: Value) -> None:
        self.code, self.address = code, address

    def _memory(self, place: int, of: object) -> Memory:
        return memory_at(self.code, self.address + place, of)  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Value:
        of = I64 if name in at.WHOLE else F64
        return self._memory(at.AT[name], of)[0]

    def __setitem__(self, name: str, value: Value) -> None:
        of = I64 if name in at.WHOLE else F64
        self._memory(at.AT[name], of)[0] = value

    def bin(self, number: Value) -> _Bin:
        """A bin of the curve."""
        width = 8 * len(at.BIN_FIELDS)
        start = self.address + at.CURVE + number * width
        return _Bin(memory_at(self.code, start, F64))

    def operand(self, name: str) -> Memory:
        """Where an operand of the worst element is kept."""
        place = at.OPERAND_FIELDS.index(name)
        return self._memory(at.OPERANDS + 8 * at.MOST_K * place, I64)


class _Bin:
    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def __getitem__(self, name: str) -> Value:
        return self.memory[at.BIN_FIELDS.index(name)]

    def __setitem__(self, name: str, value: Value) -> None:
        self.memory[at.BIN_FIELDS.index(name)] = value


_SUMS = at.FIELDS[1 : at.FIELDS.index("worst")]
"""What is summed over the elements of an instruction."""


class _Sums:
    """Sums over the elements of an instruction, eight columns at a time."""

    def __init__(self, code: Code) -> None:
        self.code = code
        zero = code.constant(0.0, F64).in_all_lanes()
        self.zero = zero
        self._of: dict[str, Variable] = {name: code.variable(zero) for name in _SUMS}
        self._worst = {
            name: code.variable(zero) for name in ("worst", "worst_total", "exact")
        }
        whole = code.constant(0, I64).in_all_lanes()
        self._row, self._panel = code.variable(whole), code.variable(whole)
        self._worst |= {name: code.variable(whole) for name in "cd"}
        self._more = whole

    def _add(self, name: str, value: Value) -> None:
        self._of[name].value = self._of[name].value + value

    def note(
        self, here: Eight, error: Value, total: Value, exact: Value, usual: Value
    ) -> None:
        """Eight elements."""
        one = self.zero.lift(1.0)
        self._add("elements", select(usual, one, 0.0))
        self._add("odd", select(usual, self.zero, one))
        self._add("added", error)
        self._add("size", abs(error))
        self._add("total", abs(total))
        self._add("values", select(usual, abs(exact), 0.0))
        more = abs(error) > self._worst["worst"].value
        for variable, new in (
            (self._worst["worst"], abs(error)),
            (self._worst["exact"], exact),
            (self._row, here.row.in_all_lanes()),
            (self._panel, here.panel_b.in_all_lanes()),
        ):
            variable.value = select(more, new, variable.value)
        self._more = more
        most = self._worst["worst_total"]
        most.value = select(abs(total) > most.value, abs(total), most.value)

    def keep(self, c: Value, d: Value) -> None:
        """The bits of C and D of the same elements, where one is the worst so far."""
        for name, bits in (("c", c), ("d", d)):
            wide = convert(bits, I64, signed=False)
            variable = self._worst[name]
            variable.value = select(self._more, wide, variable.value)

    def split(self, keep: Value, last: Value, error: Value, usual: Value) -> None:
        """What eight elements lose, by cause."""
        rest = select(usual, (error - keep) - last, 0.0)
        for name, value in (("alignment", rest), ("keep", keep), ("rounding", last)):
            self._add(name, value)
            self._add(f"{name}_size", abs(value))
        self._add("sampled", select(usual, self.zero.lift(1.0), 0.0))

    def differ(self, those: Value) -> None:
        """Elements whose steps do not give the hardware's D."""
        self._add("differing", select(those, self.zero.lift(1.0), 0.0))

    def count(self, products: Value, gone: Value) -> None:
        """Products that are not zero, and those that vanish."""
        self._add("nonzero", products)
        self._add("vanished", gone)

    def _total(self, name: str) -> Value:
        found = each_lane(self._of[name].value)
        total = found[0]
        for each in found[1:]:
            total = total + each
        return total

    def add(self, record: _Record) -> None:
        """Add everything to a record."""
        for name in _SUMS:
            total = self._total(name)
            if name in at.WHOLE:
                total = convert(total, I64)
            record[name] = record[name] + total
        worst = self.largest("worst_total")
        before = record["worst_total"]
        record["worst_total"] = select(worst > before, worst, before)

    def of_bin(self) -> dict[str, Value]:
        """What a bin of the curve gets."""
        names = ("elements", "size", "total", "values", "nonzero", "vanished")
        return {name: self._total(name) for name in names}

    def largest(self, name: str) -> Value:
        """The largest of eight."""
        found = each_lane(self._worst[name].value)
        top = found[0]
        for each in found[1:]:
            top = select(each > top, each, top)
        return top

    def place_of_worst(self, worst: Value) -> tuple[Value, Value, Value]:
        """The row, the panel and the lane of the worst element."""
        lanes = each_lane(self._worst["worst"].value)
        rows, panels = each_lane(self._row.value), each_lane(self._panel.value)
        row, panel = rows[0], panels[0]
        lane = row.lift(0)
        for number in range(1, LANES):
            here = lanes[number] == worst
            row = select(here, rows[number], row)
            panel = select(here, panels[number], panel)
            lane = select(here, lane.lift(number), lane)
        return row, panel, lane

    def of_worst(self, name: str, lane: Value) -> Value:
        """The nearly exact value of the worst element, or the bits of its C or D."""
        found = each_lane(self._worst[name].value)
        value = found[0]
        for number in range(1, LANES):
            value = select(lane == number, found[number], value)
        return value
