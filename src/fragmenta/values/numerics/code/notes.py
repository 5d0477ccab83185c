"""Notes: what happens in few lanes is written lane by lane.

All that is known of some lanes is put into memory, and a loop looks at those that have
something to say: the worst element, underflow, NaN and infinities.  That loop is one
routine for all instructions, so that theirs are short.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    F64,
    I8,
    I32,
    I64,
    Code,
    Memory,
    Value,
    Variable,
    convert,
    is_nan,
    select,
    shift_unsigned,
)
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.library import POINTER, Routine, define, field
from fragmenta.values.numerics.code import layout as at
from fragmenta.values.numerics.code.elements import TrackedFloat
from fragmenta.values.numerics.code.layout import Birth
from fragmenta.values.numerics.code.nodes import new_node
from fragmenta.values.numerics.code.records import CHUNK, OPERANDS, Facts, SiteRecord

NUMBERS = ("held", "exact", "nearly", "error", "total", "ulp", "cancelled")
_FLOATS = (*NUMBERS, "a", "b", "c", "exact_a", "exact_b", "exact_c")
_WORDS = ("flags", "node_a", "node_b", "node_c", "made")
_AT = {name: 8 * CHUNK * place for place, name in enumerate(_FLOATS)}
_AT |= {
    name: 8 * CHUNK * len(_FLOATS) + 4 * CHUNK * place
    for place, name in enumerate(_WORDS)
}
_SIZE = CHUNK * (8 * len(_FLOATS) + 4 * len(_WORDS))
# What the routine is told about the instruction, in one number.
_COUNT, _NODES, _FTZ, _SATURATES, _DIVIDES = 0, 2, 5, 6, 7
_ZEROES = {"div": 2, "rcp": 1, "rsqrt": 1, "lg2": 1}
"""The operand of an instruction that is zero if it divides by zero, from 1."""


class LaneNotes:
    """Memory with all that is known of some lanes: a row for each number."""

    def __init__(self, code: Code, memory: Raw | None = None) -> None:
        self.code = code
        self.memory = code.array(I8, _SIZE) if memory is None else memory

    def row(self, name: str) -> Memory:
        """The numbers of all lanes; the rows of further operands follow."""
        return field(self.code, self.memory, _AT[name], F64 if name in _FLOATS else I32)

    def _vector(self, name: str) -> Raw:
        b, of = self.code.builder, F64 if name in _FLOATS else I32
        place = b.gep(self.memory, [ir.Constant(I32, _AT[name])])
        return b.bitcast(place, ir.VectorType(of, CHUNK).as_pointer())

    def put(self, name: str, value: Value) -> None:
        """Write the row of a number."""
        self.code.builder.store(value.raw, self._vector(name)).align = 64

    def get(self, name: str) -> Value:
        """Read it."""
        b = self.code.builder
        return Value(b, b.load(self._vector(name)))


class RareWriter:
    """Writes what is rare, lane by lane."""

    def __init__(
        self, code: Code, count: int, record: SiteRecord, births: Variable
    ) -> None:
        self.code, self.count, self.record, self.births = code, count, record, births
        self._told = LaneNotes(code)

    def _spilled(self, x: Value) -> Memory:
        """A vector in memory, so that a loop can look at its numbers."""
        b = self.code.builder
        of = x.type.element
        place = self.code.array(x.type)
        b.store(x.raw, place)
        return Memory(b, b.bitcast(place, of.as_pointer()), of)

    def write(self, some: Value, lanes: Value, facts: Facts, index: Value) -> Value:
        """Write what lanes have to say; the nodes of their results."""
        code, told, record = self.code, self._told, self.record
        told.put("made", convert(lanes, I32, signed=False).lift(0))
        with code.when(some):
            told.put("flags", convert(lanes, I32, signed=False))
            for name in NUMBERS:
                told.put(name, getattr(facts, name))
            for name, value in zip("abc", facts.values, strict=False):
                told.put(name, value)
            for name, value in zip("abc", facts.exacts, strict=False):
                told.put(f"exact_{name}", value)
            for name, node in zip("abc", facts.nodes, strict=False):
                if node is not None:
                    told.put(f"node_{name}", node)
            born = _call(record, told, index, facts)
            self.births.value = self.births.value | born
        return told.get("made")

    def other(
        self, some: Value, lanes: Value, elements: Sequence[TrackedFloat], index: Value
    ) -> None:
        """Count lanes in which exact values would decide otherwise."""
        code, record = self.code, self.record
        with code.when(some):
            flags = self._spilled(convert(lanes, I32, signed=False))
            both = [self._spilled(each.value) for each in elements[:2]]
            exact = [self._spilled(each.exact.upper) for each in elements[:2]]
            with code.loop(self.count) as number, code.when(flags[number] != 0):
                with code.when(record["other_way"] == 0):
                    for name, memory in zip("ab", both, strict=False):
                        record[f"other_{name}"] = memory[number]
                    for name, memory in zip("ab", exact, strict=False):
                        record[f"other_exact_{name}"] = memory[number]
                    record["other_block"] = record.block_index
                    record["other_thread"] = self.thread(index, number)
                    record["other_time"] = record.time.value
                record.add("other_way", record.number.lift(1))

    def thread(self, index: Value, number: Value) -> Value:
        """The thread in its block."""
        place = index * self.count + number
        return self.record.warp_number * layout.LANES + place


# ── the routine ─────────────────────────────────────────────────────────────

_PARAMETERS = [*[POINTER] * 4, I32, I64, I64, I32, *[F64] * 4]


def _call(record: SiteRecord, told: LaneNotes, index: Value, facts: Facts) -> Value:
    """Call the routine; the lanes in which something was born."""
    b, kind = record.code.builder, facts.kind
    nodes = sum(1 << i for i, each in enumerate(facts.nodes) if each is not None)
    about = len(facts.values) << _COUNT | nodes << _NODES | facts.ftz << _FTZ
    about |= facts.satfinite << _SATURATES
    about |= _ZEROES.get(facts.opcode, 0) << _DIVIDES
    # Beyond what rounding alone would cut.
    limit = kind.largest * (1 + 2.0**-kind.precision)
    function = b.module.globals.get(NOTE.name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(I32, _PARAMETERS), NOTE.name)
    given = [record.warp, record.block, record.table, told.memory]
    given += [convert(record.number, I32).raw, record.time.value.raw]
    given += [(index * CHUNK).raw, ir.Constant(I32, about)]
    sizes = (kind.normal, kind.least, kind.largest, limit)
    given += [ir.Constant(F64, each) for each in sizes]
    return Value(b, b.call(function, given))


def _build(module: ir.Module) -> None:
    define(module, NOTE.name, _PARAMETERS, _trace, I32)


NOTE = Routine("numerics.note", _build)
"""Routines beside instructions call it."""


def _trace(
    code: Code, warp: Raw, block: Raw, table: Raw, told: Raw, *rest: Value
) -> Value:
    number, time, first, about, *sizes = rest
    record = SiteRecord(code, warp, block, table, number)
    record.time.value = time
    return _Note(code, record, LaneNotes(code, told), first, about, sizes).write()


class _Note:
    """The code of the routine."""

    def __init__(
        self,
        code: Code,
        record: SiteRecord,
        told: LaneNotes,
        first: Value,
        about: Value,
        sizes: Sequence[Value],
    ) -> None:
        self.code, self.record, self.told = code, record, told
        self.first, self.about = first, about
        self.normal, self.least, self.largest, self.limit = sizes
        self.births = code.variable(code.constant(0, I32))
        self.count = convert(about & 3, I64)

    def write(self) -> Value:
        """All lanes that have something to say."""
        code, flags = self.code, self.told.row("flags")
        with code.loop(CHUNK) as number, code.when(flags[number] != 0):
            self._lane(number)
        births: Value = self.births.value
        return births

    def _is(self, bit: int) -> Value:
        """What is told about the instruction."""
        found: Value = (self.about & (1 << bit)) != 0
        return found

    def _lane(self, number: Value) -> None:
        code = self.code
        at_lane = {name: self.told.row(name)[number] for name in NUMBERS}
        held = at_lane["held"]
        usual = (held - held) == 0.0
        with code.when(usual):
            self._worst(number, at_lane)
            self._small(at_lane)
        with code.when(~usual):
            self._special(number, at_lane)

    def _worst(self, number: Value, at_lane: dict[str, Value]) -> None:
        code, record = self.code, self.record
        error, total = abs(at_lane["error"]), abs(at_lane["total"])
        for name, size in (
            ("worst_added", error),
            ("worst_ulp", error / at_lane["ulp"]),
            ("worst_total", total),
            ("worst_cancelled", _ratio(at_lane["cancelled"], abs(at_lane["held"]))),
        ):
            with code.when(size > record[name]):
                record[name] = size
        relative = _ratio(total, abs(at_lane["exact"]))
        with code.when(relative > record["worst_relative"]):
            record["worst_relative"] = relative
            for name in ("a", "exact_a"):
                kept = field(code, record.base, at.AT[name], F64)
                with code.loop(self.count) as operand:
                    kept[operand] = self.told.row(name)[operand * CHUNK + number]
            record["value"], record["exact"] = at_lane["held"], at_lane["exact"]
            record["local"] = at_lane["error"]
            record["block"] = record.block_index
            record["thread"] = self._thread(number)
            record["time"] = record.time.value

    def _thread(self, number: Value) -> Value:
        return self.record.warp_number * layout.LANES + self.first + number

    def _small(self, at_lane: dict[str, Value]) -> None:
        """Underflow, flushed numbers and saturation."""
        code, record = self.code, self.record
        one = record.number.lift(1)
        held, nearly = at_lane["held"], at_lane["nearly"]
        inexact = at_lane["error"] != 0.0
        with code.when((abs(held) < self.normal) & inexact):
            with code.when(held != 0.0):
                record.add("subnormal", one)
            with code.when(held == 0.0):
                record.add("underflows", one)
                with code.when(self._is(_FTZ) & (abs(nearly) >= self.least)):
                    record.add("flushed", one)
        saturated = (abs(held) == self.largest) & (abs(nearly) > self.limit)
        with code.when(self._is(_SATURATES) & saturated):
            record.add("saturated", one)

    def _special(self, number: Value, at_lane: dict[str, Value]) -> None:
        """A result that is NaN or infinite: it was born here, or passed on."""
        code, record = self.code, self.record
        none = code.constant(0, I32)
        parent, kind = code.variable(none), code.variable(none)
        nan_here = is_nan(at_lane["held"])
        nan_given, any_given = code.variable(none), code.variable(none)
        best = code.variable(none)
        with code.loop(self.count) as operand:
            x = self.told.row("a")[operand * CHUNK + number]
            with code.when((x - x) != 0.0):
                of = code.variable(self._node_of(operand, number))
                # A NaN comes first, then what has come some way.
                rank = select(is_nan(x), none.lift(3), none.lift(1))
                rank = rank + select(of.value != 0, none.lift(1), none)
                with code.when(of.value == 0):
                    given = none.lift(Birth.GIVEN)
                    of.value = self._node(given, none, operand, number, at_lane)
                with code.when(rank > best.value):
                    parent.value, best.value = of.value, rank
                any_given.value = none.lift(1)
                with code.when(is_nan(x)):
                    nan_given.value = none.lift(1)
        born_here = (any_given.value == 0) | (nan_here & (nan_given.value == 0))
        divided = select(
            self._divides(number),
            none.lift(Birth.DIVISION),
            none.lift(Birth.OVERFLOW),
        )
        kind.value = select(
            born_here,
            select(nan_here, none.lift(Birth.INVALID), divided),
            none.lift(Birth.PASSED),
        )
        for birth, name in (
            (Birth.INVALID, "invalid"),
            (Birth.DIVISION, "divisions"),
            (Birth.OVERFLOW, "overflows"),
            (Birth.PASSED, "passed"),
        ):
            with code.when(kind.value == int(birth)):
                record.add(name, record.number.lift(1))
        with code.when(born_here):
            lane = convert(self.first + number, I32)
            self.births.value = self.births.value | (lane.lift(1) << lane)
        zero = number.lift(0)
        made = self._node(kind.value, parent.value, zero, number, at_lane)
        self.told.row("made")[number] = made

    def _node_of(self, operand: Value, number: Value) -> Value:
        """The node of an operand; 0 if it has none."""
        has = shift_unsigned(self.about, convert(operand, I32) + _NODES) & 1
        found = self.told.row("node_a")[operand * CHUNK + number]
        return select(has != 0, found, found.lift(0))

    def _divides(self, number: Value) -> Value:
        """Whether an infinite result comes from a division by zero."""
        which = shift_unsigned(self.about, _DIVIDES)
        first = (which == 1) & (self.told.row("a")[number] == 0.0)
        second = (which == 2) & (self.told.row("b")[number] == 0.0)
        found: Value = first | second
        return found

    def _node(
        self,
        kind: Value,
        parent: Value,
        operand: Value,
        number: Value,
        at_lane: dict[str, Value],
    ) -> Value:
        """The node of a result; it is new if there is none like it."""
        record, none = self.record, at_lane["held"].lift(0.0)
        rows = [self.told.row(name)[number] for name in "abc"[:OPERANDS]]
        values = [
            select(self.count > place, each, none) for place, each in enumerate(rows)
        ]
        return new_node(
            self.code,
            record.table,
            [
                record.number,
                convert(kind, I64),
                convert(parent, I64, signed=False),
                operand,
                record.block_index,
                self._thread(number),
                record.time.value,
                *values,
                at_lane["held"],
            ],
        )


def _ratio(x: Value, of: Value) -> Value:
    """A quotient; a large number if it has none."""
    huge = x.lift(1e300)
    found = x / select(of == 0.0, huge.lift(1.0), of)
    found = select(of == 0.0, select(x == 0.0, x, huge), found)
    return select(found > 1e300, huge, found)
