"""The routines that run beside instructions which compute with floats.

A routine loads the operands and their second values, computes the hardware's result
again with the table's own function, and the exact result.  It stores the second value
of the result, and adds what was lost to the record of the site.  That is done for eight
lanes at a time.  What is rare, such as a NaN, is done lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    F64,
    I32,
    I64,
    Code,
    Value,
    Variable,
    any_lane,
    bits_of,
    convert,
    float_of,
    select,
)
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import POINTER, Routine, define, field
from fragmenta.ptx.families import FUSED, PRODUCTS
from fragmenta.ptx.opcodes.table import Match
from fragmenta.values.numerics.code.double import (
    Double,
    largest,
    plus_float,
    total,
    whole,
)
from fragmenta.values.numerics.code.elements import (
    INTEGERS,
    MOST_SOURCES,
    PackedFloats,
    TrackedFloat,
    element,
    packed,
    spread,
    value,
)
from fragmenta.values.numerics.code.exact import (
    CLIPPED,
    LONG,
    QUANTISED,
    QUICK,
    SUMS,
    UNROUNDED,
    WRAPPED,
    ExactOperands,
    compared,
    integral,
    meaning,
    near_power,
    of_integer,
    quick,
    separate,
)
from fragmenta.values.numerics.code.notes import RareWriter
from fragmenta.values.numerics.code.records import CHUNK, Lanes, SiteRecord, facts

MASKED = "|masked"
EXTREMES = ("min", "max")
ROUNDS, DECIDES, MAGIC, COMPARES = "rounds", "decides", "magic", "compares"


class RoutineSlot(NamedTuple):
    """An operand of an instruction."""

    register: int
    """The bits of its register."""
    bits: int
    """The bits of its type."""
    kind: PackedFloats | None = None
    """The floats in it; None for integers and predicates."""
    planes: int = 0
    """The planes of its second value; 0 if it has none."""
    signed: bool = False


class Form(NamedTuple):
    """An instruction, as its routine is made for it."""

    mnemonic: str
    match: Match
    extra: tuple[tuple[str, str], ...]
    results: tuple[RoutineSlot, ...]
    operands: tuple[RoutineSlot | None, ...]
    """None: it was not written."""
    sources: tuple[tuple[tuple[int, int], ...], ...]
    """For each float of the result: the operands that it comes from, and the place of
    the float in each."""
    way: str = ROUNDS
    """Whether it rounds, decides, or compares."""

    @property
    def name(self) -> str:
        """The name of the routine."""

        def shown(each: RoutineSlot | None) -> str:
            if each is None:
                return "-"
            kind = "" if each.kind is None else "".join(map(str, each.kind))
            sign = "s" * each.signed
            return f"{each.bits}:{each.register}{sign}{kind}'{each.planes}"

        places = ",".join(map(shown, (*self.results, *self.operands)))
        more = "".join(f" {name}={word}" for name, word in self.extra)
        return f"numerics.{self.way}|{self.mnemonic}|{len(self.results)}|{places}{more}"

    @property
    def words(self) -> dict[str, str]:
        """The qualifiers."""
        return {**self.match.qualifiers, **dict(self.extra)}


class Routines(NamedTuple):
    """The routines beside an instruction: for all lanes, and for some of them."""

    full: Routine
    masked: Routine


Write = Callable[[Code, "Form", SiteRecord, list[Raw], Lanes], Value]
"""Writes a routine; it returns the lanes in which something was born."""


def routines_of(form: Form) -> Routines:
    """The routines beside an instruction."""
    return made_of(form, _write)


def made_of(form: Form, write: Write) -> Routines:
    """The routines of a form: for all lanes, and for some of them."""

    def build(module: ir.Module, *, masked: bool) -> None:
        _define(module, form, masked, write)

    return Routines(
        Routine(form.name, partial(build, masked=False)),
        Routine(form.name + MASKED, partial(build, masked=True)),
    )


def _define(module: ir.Module, form: Form, masked: bool, write: Write) -> None:
    goals = [each for each in form.results if each.planes]
    given = [each for each in form.operands if each is not None]
    twins = [each for each in given if each.planes]
    offsets = [I64] * (len(goals) + len(given) + len(twins))
    parameters = [POINTER, POINTER, POINTER, I32, *offsets, *[I32] * masked]

    def trace(code: Code, warp: Raw, block: Raw, table: Raw, *rest: Value) -> Value:
        number, *places = rest
        active = field(code, warp, layout.ACTIVE, I32)
        mask = places.pop() if masked else active[0]
        pointers = [code.builder.gep(warp, [each.raw]) for each in places]
        record = SiteRecord(code, warp, block, table, number)
        return write(code, form, record, pointers, Lanes(code, mask, masked))

    define(module, form.name + MASKED * masked, parameters, trace, I32)


def _write(
    code: Code, form: Form, record: SiteRecord, pointers: list[Raw], lanes: Lanes
) -> Value:
    """Exact values of results, part by part."""
    record.begin(lanes, len(form.sources) if form.sources else 1)
    work = RoutineWriter(code, form, record, pointers, lanes)
    with code.loop(LANES // CHUNK) as index:
        work.chunk(index)
    return work.end()


class RoutineWriter:
    """The code of one routine."""

    def __init__(
        self,
        code: Code,
        form: Form,
        record: SiteRecord,
        pointers: list[Raw],
        lanes: Lanes,
    ) -> None:
        self.code, self.form, self.record, self.lanes = code, form, record, lanes
        rest = iter(pointers)
        self.goals = [next(rest) if each.planes else None for each in form.results]
        self.given = [None if each is None else next(rest) for each in form.operands]
        self.twins = [
            next(rest) if each is not None and each.planes else None
            for each in form.operands
        ]
        zeros = code.constant(0.0, F64).in_all_lanes(CHUNK)
        self.added = code.variable(zeros)
        none = code.constant(0, I64).in_all_lanes(CHUNK)
        self.counts = {
            name: code.variable(none)
            for name in ("inexact", "absorbed", "cancelled", "restarted", "digest")
        }
        self.contracted: Variable | None = None
        """The largest difference that a contraction makes, in ulp."""
        if form.match.syntax.opcode in FUSED:
            self.counts["contracted"] = code.variable(none)
            self.contracted = code.variable(zeros)
        for name in (UNROUNDED, CLIPPED, WRAPPED):
            if form.words.get(name):
                self.counts[name] = code.variable(none)
        self.keeps: Value = record["kept"] != 0.0
        self.births = code.variable(code.constant(0, I32))
        self.notes = RareWriter(code, CHUNK, record, self.births)

    def chunk(self, index: Value) -> None:
        """Eight lanes."""
        form = self.form
        registers, planes = self.loaded(index)
        lanes = self.lanes.part(index)
        if form.way == COMPARES:
            self._compare(registers, planes, lanes, index)
            return
        emit = form.match.syntax.emit
        assert emit is not None
        found = emit(form.words, *registers)
        found = found if isinstance(found, tuple) else (found,)
        if form.way == DECIDES:
            self._decide(found[0], registers, planes, lanes, index)
            return
        made: list[list[tuple[Value, Value | None]]] = [[] for _ in form.results]
        parts = [
            (number, place)
            for number, each in enumerate(form.results)
            for place in range(each.kind.many if each.kind else 0)
        ]
        for (number, place), sources in zip(parts, form.sources, strict=True):
            goal = form.results[number]
            assert goal.kind is not None
            elements = [
                self._element(registers[i], planes[i], i, where) for i, where in sources
            ]
            held = value(found[number], goal.kind, place)
            part = self._part(goal.kind, number, elements, held, lanes, index)
            if goal.planes:
                made[number].append(packed(held, *part, goal.kind, goal.planes))
        for number, goal in enumerate(form.results):
            if goal.planes and goal.kind is not None:
                words = spread(made[number], goal.kind, goal.planes, goal.register)
                self.store(self.goals[number], goal, words, lanes, index)

    # ── registers ───────────────────────────────────────────────────────────

    def loaded(
        self, index: Value
    ) -> tuple[list[Value | None], list[list[Value] | None]]:
        """The operands, and the planes of those that have any."""
        given = self.form.operands
        registers = [
            None if each is None else self._load(self.given[i], each, index)
            for i, each in enumerate(given)
        ]
        planes = [
            None
            if each is None or not each.planes
            else self._planes(self.twins[i], each, index)
            for i, each in enumerate(given)
        ]
        return registers, planes

    def _place(self, pointer: Raw, bits: int, index: Value) -> Raw:
        b = self.code.builder
        wide = ir.VectorType(INTEGERS[bits], CHUNK)
        return b.gep(b.bitcast(pointer, wide.as_pointer()), [index.raw])

    def _load(self, pointer: Raw | None, place: RoutineSlot, index: Value) -> Value:
        assert pointer is not None
        if place.bits == 1:
            return self.lanes.bits_at(pointer, index)
        loaded = self._vector(pointer, place.register, index)
        return convert(loaded, INTEGERS.get(place.bits, INTEGERS[8]))

    def _vector(self, pointer: Raw, bits: int, index: Value) -> Value:
        b = self.code.builder
        loaded = b.load(self._place(pointer, bits, index))
        loaded.align = 8
        return Value(b, loaded)

    def _planes(
        self, pointer: Raw | None, place: RoutineSlot, index: Value
    ) -> list[Value]:
        b, step = self.code.builder, place.register // 8 * LANES
        assert pointer is not None
        return [
            self._vector(
                b.gep(pointer, [ir.Constant(I32, step * number)]), place.register, index
            )
            for number in range(place.planes)
        ]

    def store(
        self,
        pointer: Raw | None,
        place: RoutineSlot,
        words: list[Value],
        lanes: Value,
        index: Value,
    ) -> None:
        """Put planes beside a register."""
        assert pointer is not None
        b, step = self.code.builder, place.register // 8 * LANES
        for number, word in enumerate(words):
            start = b.gep(pointer, [ir.Constant(I32, step * number)])
            where = self._place(start, place.register, index)
            raw = word.raw
            if self.lanes.masked:
                before = b.load(where)
                before.align = 8
                raw = b.select(lanes.raw, raw, before)
            b.store(raw, where).align = 8

    def _element(
        self,
        register: Value | None,
        planes: list[Value] | None,
        operand: int,
        place: int,
    ) -> TrackedFloat:
        held = self.form.operands[operand]
        assert held is not None
        assert register is not None
        if held.kind is None:
            exact = of_integer(register, held.signed)
            return TrackedFloat(exact.upper, exact)
        return element(register, planes, held.kind, place)

    # ── one float of the result ─────────────────────────────────────────────

    def _part(
        self,
        kind: PackedFloats,
        number: int,
        elements: list[TrackedFloat],
        held: Value,
        lanes: Value,
        index: Value,
    ) -> tuple[Double, Value | None, Value | None]:
        """The exact value, its node, and where most of its error comes from."""
        form, words = self.form, self.form.words
        opcode = form.match.syntax.opcode
        given = ExactOperands(self.code, words, elements, held)
        if opcode == "ex2" and elements[0].present is not None:
            exact = self._meaning(opcode, number, given)
            local = self._local_power(given, exact)
        else:
            local = self._local(opcode, number, given, kind)
            exact = self._exact(opcode, number, given, local)
        if form.way == MAGIC:  # rounding to an integer is what is meant
            self._meant(given, exact, held, kind, lanes, index)
            return whole(held), None, None
        meant = words.get("abs") or words.get("xorsign") or words.get(QUANTISED)
        if opcode in EXTREMES and not meant:
            self._chosen(given, exact, lanes, index)
        if words.get(CLIPPED):
            change = abs(given.values[int(words[QUANTISED])] - held)
            self._add(CLIPPED, (change >= float(words[CLIPPED])) & lanes)
        if words.get(WRAPPED):
            self._add(WRAPPED, (abs(given.values[0] - held) > 0.0) & lanes)
        node = self._count(kind, opcode, given, local, exact, lanes, index)
        source = self._source(opcode, given, local, exact)
        return self._kept(held, local, exact), node, source

    def _kept(self, held: Value, local: Double, exact: Double) -> Double:
        """The exact value, with the error that is added here if it is to be kept."""
        code = self.code
        upper, lower = code.variable(exact.upper), code.variable(exact.lower)
        with code.when(self.keeps):
            error = (held - local.upper) - local.lower
            good = ((error - error) == 0.0) & ((exact.upper - exact.upper) == 0.0)
            found = plus_float(exact, select(good, error, 0.0))
            upper.value, lower.value = found.upper, found.lower
        return Double(upper.value, lower.value)

    def _source(
        self, opcode: str, given: ExactOperands, local: Double, exact: Double
    ) -> Value:
        """The site that most of the error of a result comes from."""
        held = given.held
        number = select(self.record.number < MOST_SOURCES, self.record.number + 1, 0)
        best = number.in_all_lanes(CHUNK)
        followed = [each for each in given.elements if each.source is not None]
        if not followed:
            return best
        most = abs((held - local.upper) - local.lower)
        if opcode == "div":
            most = most * abs(given.values[1])
        for size, source in _parts(opcode, given, local, exact):
            best = select(size > most, source, best)
            most = select(size > most, size, most)
        return best

    def _meaning(self, opcode: str, number: int, given: ExactOperands) -> Double:
        if opcode != "_factors":
            return meaning(opcode, given)
        # Dividend and divisor were scaled by the same power of two.
        a, b = given.elements
        if number == 0:
            return meaning("rcp", given._replace(elements=[b]))
        return a.exact

    def _local_power(self, given: ExactOperands, exact: Double) -> Double:
        """2**x of the hardware's x: from that of the exact one, if both are near."""
        code, (one,) = self.code, given.elements
        step = (one.value - one.exact.upper) - one.exact.lower
        near = (abs(step) <= 2.0**-6) & (exact.upper < 2.0**1000)
        upper = code.variable(near_power(exact, step))
        lower = code.variable(exact.upper.lift(0.0))
        with code.when(any_lane(~near)):
            plain = [TrackedFloat(one.value, whole(one.value))]
            found = meaning("ex2", given._replace(elements=plain))
            upper.value, lower.value = found.upper, found.lower
        return Double(upper.value, lower.value)

    def _local(
        self, opcode: str, number: int, given: ExactOperands, kind: PackedFloats
    ) -> Double:
        """What the instruction makes of the hardware's operands, nearly exactly."""
        narrow = all(
            each is None or each.kind is None or each.kind.bits < 64
            for each in self.form.operands
        )
        if opcode in QUICK and narrow and kind.bits < 64:
            return quick(opcode, given.words, given.values)
        plain = [
            TrackedFloat(
                each.value, each.exact if each.present is None else whole(each.value)
            )
            for each in given.elements
        ]
        return self._meaning(opcode, number, given._replace(elements=plain))

    def _exact(
        self, opcode: str, number: int, given: ExactOperands, local: Double
    ) -> Double:
        followed = [e.present for e in given.elements if e.present is not None]
        if opcode in QUICK and self._narrow(given):
            # 53 bits are all that its second value has.
            tops = [each.upper for each in given.exact]
            return quick(opcode, given.words, tops)
        if opcode in QUICK or (followed and opcode not in LONG):
            return self._meaning(opcode, number, given)
        if not followed:
            return local
        some = followed[0]
        for each in followed[1:]:
            some = some | each
        upper = self.code.variable(local.upper)
        lower = self.code.variable(local.lower)
        with self.code.when(any_lane(some)):
            found = self._meaning(opcode, number, given)
            upper.value, lower.value = found.upper, found.lower
        return Double(upper.value, lower.value)

    def _narrow(self, given: ExactOperands) -> bool:
        """Whether all floats have 16 bits or less."""
        places = [*self.form.operands, *self.form.results]
        kinds = [each.kind for each in places if each is not None]
        return all(each is not None and each.bits <= 16 for each in kinds)

    def _count(
        self,
        kind: PackedFloats,
        opcode: str,
        given: ExactOperands,
        local: Double,
        exact: Double,
        lanes: Value,
        index: Value,
    ) -> Value:
        """Count what was lost; the nodes of results that are NaN or infinite."""
        held, record = given.held, self.record
        usual = (held - held) == 0.0
        error = (held - local.upper) - local.lower
        total = (held - exact.upper) - exact.lower
        good = usual & ((exact.upper - exact.upper) == 0.0)
        good = good & lanes
        error = select(good & ((error - error) == 0.0), error, 0.0)
        total = select(good, total, 0.0)
        size, whole_size = abs(error), abs(total)
        self.added.value = self.added.value + size
        bits = bits_of(held)
        bits = select(lanes, bits, 0)
        self.counts["digest"].value = self.counts["digest"].value + bits
        self._add("inexact", size != 0.0)
        ulp = _ulp(held, kind)
        trigger = size > ulp * record.in_lanes("worst_ulp")
        trigger = trigger | (
            whole_size > abs(exact.upper) * record.in_lanes("worst_relative")
        )
        trigger = trigger | (whole_size > record.in_lanes("worst_total"))
        rare = ~usual | ((abs(held) < kind.normal) & (size != 0.0))
        if given.words.get("satfinite"):
            rare = rare | ((abs(held) == kind.largest) & (size != 0.0))
        ratio = held.lift(0.0)
        if self.contracted is not None:
            self._contraction(kind, given, ulp, lanes)
        if opcode in SUMS:
            ratio, rarely = self._sums(opcode, given, usual, lanes)
            trigger = trigger | rarely
        rare = rare & lanes
        return self.notes.write(
            any_lane(trigger | rare),
            (trigger | rare) & lanes,
            facts(
                given,
                opcode,
                kind,
                exact=exact,
                local=local,
                error=error,
                total=total,
                ulp=ulp,
                cancelled=ratio,
            ),
            index,
        )

    def _contraction(
        self, kind: PackedFloats, given: ExactOperands, ulp: Value, lanes: Value
    ) -> None:
        """Compare with a product that is rounded before it is added."""
        other = separate(kind, given.words, given.values)
        if other is None:
            return
        assert self.contracted is not None
        apart = abs(given.held - other)
        differ = (apart > 0.0) & ((apart - apart) == 0.0)
        differ = differ & lanes
        self._add("contracted", differ)
        most, size = self.contracted, select(differ, apart / ulp, 0.0)
        most.value = select(size > most.value, size, most.value)

    def _sums(
        self, opcode: str, given: ExactOperands, usual: Value, lanes: Value
    ) -> tuple[Value, Value]:
        """Addends that vanish whole, and bits that cancel."""
        held, values = given.held, given.values
        first, second = (
            values if len(values) == 2 else (values[0] * values[1], values[2])
        )
        vanishes = ((held == first) & (second != 0.0)) | (
            (abs(held) == abs(second)) & (first != 0.0)
        )
        if opcode == "sub":
            vanishes = vanishes & (abs(first) != abs(second))
        vanishes = vanishes & lanes
        self._add("absorbed", vanishes & usual)
        larger = select(abs(first) > abs(second), abs(first), abs(second))
        doubtful = None
        for each in given.elements:
            if each.present is not None:
                doubtful = each.present if doubtful is None else doubtful | each.present
        if doubtful is None:
            return held.lift(0.0), usual ^ usual
        gone = doubtful & usual & (larger > abs(held) * 1024.0)
        gone = gone & lanes
        self._add("cancelled", gone)
        more = gone & (larger > abs(held) * self.record.in_lanes("worst_cancelled"))
        return select(gone, larger, 0.0), more

    def _add(self, name: str, where: Value) -> None:
        counter = self.counts[name]
        counter.value = counter.value + convert(where, I64, signed=False)

    # ── decisions ───────────────────────────────────────────────────────────

    def _meant(
        self,
        given: ExactOperands,
        exact: Double,
        held: Value,
        kind: PackedFloats,
        lanes: Value,
        index: Value,
    ) -> None:
        """A rounding that is meant: does the exact value round to the same number?"""
        step = _ulp(held, kind)
        mode = given.words.get("rnd") or "rn"
        away = (exact.upper - held) + exact.lower
        low, high = {"rn": (-0.5, 0.5), "rm": (0.0, 1.0), "rp": (-1.0, 0.0)}.get(
            mode, (-1.0, 1.0)
        )
        other = (away < step * low) | (away > step * high)
        self._other_way(other & ((held - held) == 0.0), given.elements, lanes, index)

    def _chosen(
        self, given: ExactOperands, exact: Double, lanes: Value, index: Value
    ) -> None:
        """The least or the largest operand: would exact values choose the same?"""
        if all(each.present is None for each in given.elements):
            return
        never = given.held != given.held
        taken, same = never ^ never, never ^ never
        for each in given.elements:
            here = each.value == given.held
            equal = (each.exact.upper == exact.upper) & (
                each.exact.lower == exact.lower
            )
            taken, same = taken | here, same | (here & equal)
        usual = (exact.upper - exact.upper) == 0.0
        other = taken & ~same & usual
        self._other_way(other, given.elements, lanes, index)

    def _decide(
        self,
        found: Value,
        registers: Sequence[Value | None],
        planes: Sequence[list[Value] | None],
        lanes: Value,
        index: Value,
    ) -> None:
        """A float becomes an integer: would the exact value become the same?"""
        form = self.form
        goal = form.results[0]
        zeros: list[tuple[Value, Value | None]] = []
        places = [(place, sources) for place, sources in enumerate(form.sources)]
        for place, ((operand, where),) in places:
            one = self._element(registers[operand], planes[operand], operand, where)
            if goal.kind is None:
                made = convert(found, F64, signed=goal.signed)
                low, high = _range(goal)
            else:
                made = value(found, goal.kind, place)
                low, high = -goal.kind.largest, goal.kind.largest
            exact = integral(form.words["irnd"], one.exact)
            if form.words.get("sat") and goal.kind is not None:
                low, high = 0.0, 1.0
            exact = select(exact < low, exact.lift(low), exact)
            exact = select(exact > high, exact.lift(high), exact)
            usual = ((one.value - one.value) == 0.0) & ((exact - exact) == 0.0)
            self._other_way((exact != made) & usual, [one], lanes, index)
            self._unrounded(one.value, made, (low, high), lanes)
            nothing = bits_of(one.value.lift(0.0))
            zeros.append((nothing, nothing))
        if goal.planes and goal.kind is not None:
            words = spread(zeros, goal.kind, goal.planes, goal.register)
            self.store(self.goals[0], goal, words, lanes, index)

    def _unrounded(
        self,
        given: Value,
        made: Value,
        range_: tuple[float, float],
        lanes: Value,
    ) -> None:
        """Count numbers that are cut, where the nearest integer is another."""
        which = self.form.words.get(UNROUNDED)
        if which is None:
            return
        low, high = range_
        off = (abs(given - made) > 0.5) & (made > low) & (made < high)
        if which == "negative":
            off = off & (made < 0.0)
        self._add("unrounded", off & lanes)

    def _compare(
        self,
        registers: Sequence[Value | None],
        planes: Sequence[list[Value] | None],
        lanes: Value,
        index: Value,
    ) -> None:
        """A comparison: would it hold for the exact values?"""
        form = self.form
        name = form.words["CmpOp"]
        for sources in form.sources:
            pair = [
                self._element(registers[i], planes[i], i, where) for i, where in sources
            ]
            if len(pair) == 1:  # with zero
                pair.append(
                    TrackedFloat(
                        pair[0].value.lift(0.0), whole(pair[0].value.lift(0.0))
                    )
                )
            usual = None
            for each in pair:
                inside = (each.value - each.value) == 0.0
                inside = inside & (each.exact.upper == each.exact.upper)
                usual = inside if usual is None else usual & inside
            assert usual is not None
            plain = [whole(each.value) for each in pair]
            here = compared(name, *plain)
            there = compared(name, *(each.exact for each in pair))
            self._other_way((here ^ there) & usual, pair, lanes, index)

    def _other_way(
        self,
        other: Value,
        elements: Sequence[TrackedFloat],
        lanes: Value,
        index: Value,
    ) -> None:
        other = other & lanes
        self.notes.other(any_lane(other), other, elements, index)

    def end(self) -> Value:
        """Add the sums of all lanes; the lanes in which something was born."""
        self.record.add("added", total(self.added.value))
        for name, counter in self.counts.items():
            self.record.add(name, total(counter.value))
        if self.contracted is not None:
            most = largest(self.contracted.value)
            before = self.record["worst_contracted"]
            self.record["worst_contracted"] = select(most > before, most, before)
        births: Value = self.births.value
        return births


def _parts(
    opcode: str, given: ExactOperands, local: Double, exact: Double
) -> list[tuple[Value, Value]]:
    """What each operand adds to the error of a result, and where that comes from."""
    errors = [
        abs((each.value - each.exact.upper) - each.exact.lower)
        for each in given.elements
    ]
    sources = [each.source for each in given.elements]
    values = given.values
    if len(errors) == 1:  # what the instruction itself has not added
        errors = [abs((exact.upper - local.upper) + (exact.lower - local.lower))]
    elif opcode in PRODUCTS | FUSED:
        errors[0], errors[1] = errors[0] * abs(values[1]), errors[1] * abs(values[0])
    elif opcode == "div":
        errors[1] = errors[1] * abs(given.held)
    elif opcode in EXTREMES:
        errors = [
            select(value == given.held, error, 0.0)
            for value, error in zip(values, errors, strict=True)
        ]
    return [
        (error, source)
        for error, source in zip(errors, sources, strict=True)
        if source is not None
    ]


def _range(goal: RoutineSlot) -> tuple[float, float]:
    """The least and the largest integer of a type, as f64."""
    bits = goal.bits
    if goal.signed:
        return -(2.0 ** (bits - 1)), float(2 ** (bits - 1) - 1)
    return 0.0, float(2**bits - 1)


def _ulp(held: Value, kind: PackedFloats) -> Value:
    """The distance of a value from the next one of its format."""
    power = float_of(bits_of(held) & (2047 << 52))
    ulp = power * 2.0 ** (1 - kind.precision)
    return select(ulp > kind.least, ulp, ulp.lift(kind.least))
