"""Products of matrices, nearly exactly, and what the Tensor Core loses.

The exact sum of products comes from :mod:`product_operands
<fragmenta.values.numerics.code.product_operands>`; C is added in double-double.

An instruction adds to its site's record: its error, D minus the exact result of the
operands as they are given.  One row of ``EVERY`` is computed again, step by step, which
splits that error: what was cut when terms were aligned, when steps kept some bits of
their sum, and when the last result was rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

from fragmenta.base.jit.trace import (
    F64,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    any_lane,
    bits_of,
    convert,
    float_of,
    larger,
    leading_zeros,
    select,
    smaller,
)
from fragmenta.engine.planes.code.gathering import memory_at
from fragmenta.engine.planes.code.products import (
    Eight,
    ProductMatrices,
    ProductShape,
    each_eight,
)
from fragmenta.reference.arithmetic.constants import format_of, least, rounding
from fragmenta.reference.arithmetic.elements import (
    entering,
    exact_sum,
    limited,
    power_of_two,
    small_value,
    to_nearest,
    toward_zero,
)
from fragmenta.values.numerics.code import layout as sites
from fragmenta.values.numerics.code import product_layout as at
from fragmenta.values.numerics.code.double import (
    Double,
    plus,
    plus_float,
    quick_sum,
    total,
    two_sum,
)
from fragmenta.values.numerics.code.elements import MOST_SOURCES, second_words
from fragmenta.values.numerics.code.product_births import Births
from fragmenta.values.numerics.code.product_operands import Factors, Sum
from fragmenta.values.numerics.code.product_records import ErrorSums, SiteTally
from fragmenta.values.numerics.code.product_terms import StepTerms

BORN = 2
"""The bit of what a product returns: a NaN or an infinity was born in it."""


@dataclass(frozen=True)
class NumericProducts:
    """The algebra of nearly exact values, for products."""

    planes: int
    name: str = "numerics"
    most: int = 2
    numbers: bool = True
    """Second values are numbers: those of scales are wanted, and of fewer bits."""
    by_panel: bool = True
    """C and D of ``wgmma`` may be in memory panel by panel."""

    def product(self, code: Code, how: ProductShape, tiles: ProductMatrices) -> Value:
        """Write the code for an instruction: the exact D, and the site's record."""
        if how.model.form in ("integer", "bits"):
            return code.constant(0, I32)
        return _Writer(code, how, tiles).write()


class _Writer:
    """Writes the code of one instruction."""

    def __init__(self, code: Code, how: ProductShape, tiles: ProductMatrices) -> None:
        self.code, self.how, self.tiles = code, how, tiles
        table = memory_at(code, tiles.data, I64)
        self.head = memory_at(code, table[at.POINTER // 8], I64)
        table = memory_at(code, self.head[at.RECORDS // 8], I64)
        self.record = SiteTally(code, table[tiles.site])
        site = convert(tiles.site, I64)
        known = select(site < MOST_SOURCES, site + 1, 0)
        self.own = known.in_all_lanes()
        """Its site, as second values name it."""
        self.operands = Factors(code, how, tiles, self.own)
        self.before = self.record["executions"]
        own = site * sites.RECORD + (sites.HEAD + sites.AT["kept"])
        kept = memory_at(code, tiles.data, F64)[own // 8]
        self.keeps: Value = kept != 0.0
        place = site * sites.RECORD + (sites.HEAD + sites.AT["digest"])
        self.digest = memory_at(code, tiles.data + place, I64)
        depths = memory_at(code, self.head[at.DEPTHS // 8], I64)
        count = self.head[at.CHAINS // 8]
        self.place = select(tiles.chain < count, tiles.chain, count - 1)
        self.depths, self.depth = depths, depths[self.place]
        self.births = Births(self.operands, self.depth, self.before)
        self.begun = code.variable(code.constant(0, how.raw).in_all_lanes())

    def write(self) -> Value:
        """All rows; then what the whole instruction adds to the record."""
        code, record = self.code, self.record
        sums = ErrorSums(code)
        with each_eight(code, self.how) as here:
            self._row(here, sums)
        record["executions"] = self.before + 1
        sums.add(record)
        depth = self._depth()
        self._curve(sums, depth)
        self._worst(sums, depth)
        self._log(depth)
        some = convert(self.births.count.value != 0, I32, signed=False)
        return some * BORN | 1

    # ── one row ─────────────────────────────────────────────────────────────

    def _row(self, here: Eight, sums: ErrorSums) -> None:
        """Eight elements of D."""
        code, tiles = self.code, self.tiles
        raw_c, raw_d = tiles.c.lanes(here.c), tiles.d.lanes(here.c)
        self.begun.value = self.begun.value | raw_c
        c, d = self._end(raw_c, "c"), self._end(raw_d, "d")
        given = self.operands.given_sum(here)
        upper, lower = code.variable(given.upper), code.variable(given.lower)
        with code.when(self.operands.a.second | self.operands.b.second):
            exact = self.operands.exact_sum(here)
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
        apart = abs(whole - error - old) > most
        source = select(apart, self.operands.source(here), source)
        self._put(here, d, nearly, source)
        odd = ~((d - d) == 0.0)
        with code.when(any_lane(odd)):
            self.births.write(here, odd, c, d, nearly.upper)
        self.digest[0] = self.digest[0] + total(bits_of(d))
        sums.note(here, error, whole, nearly.upper, usual)
        sums.keep(raw_c, raw_d)
        chosen = ((here.row + self.before) % self.head[at.EVERY // 8]) == 0
        with code.when(chosen):
            self._split(here, c, d, error, usual, sums)

    def _end(self, bits: Value, name: str) -> Value:
        """C or D as f64."""
        kind = self.operands.kind(name)
        if kind == "f64":
            return float_of(bits)
        if kind == "f16":
            return convert(small_value(bits, format_of("f16")), F64)
        return convert(float_of(bits), F64)

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

    def _put(self, here: Eight, d: Value, nearly: Double, source: Value) -> None:
        """The second value of D; none if it is the value itself."""
        wide = self.how.words("d") > 1
        upper, lower = second_words(d, nearly, None, source, wide=wide)
        self.tiles.d2[here.c] = upper
        if lower is not None:
            self.tiles.d2[here.c + self.how.sizes["d"]] = lower

    # ── what each step loses ────────────────────────────────────────────────

    def _split(
        self,
        here: Eight,
        c: Value,
        d: Value,
        error: Value,
        usual: Value,
        sums: ErrorSums,
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
            terms = StepTerms(self.operands, here, begin)
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

    def _curve(self, sums: ErrorSums, depth: Value) -> None:
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

    def _worst(self, sums: ErrorSums, depth: Value) -> None:
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


def _difference(d: Value, c: Value, product: Sum) -> Value:
    """D - (C + products), without a rounding that counts."""
    first = two_sum(d, c * -1.0)
    second = two_sum(first.upper, product.upper * -1.0)
    return second.upper + ((second.lower + first.lower) - product.lower)


def _low_of_difference(d: Value, c: Value) -> Value:
    return two_sum(d, c * -1.0).lower
