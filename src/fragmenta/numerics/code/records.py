"""The record of a site: counts, the worst element, and nodes of NaN and infinity.

What happens in few lanes is written lane by lane: all that is known of eight lanes is
put into memory, and a loop looks at those that have something to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from llvmlite import ir

from fragmenta.jit.llvm import Raw
from fragmenta.jit.trace import (
    F64,
    I32,
    I64,
    Code,
    Memory,
    Value,
    Variable,
    convert,
    ones,
    select,
)
from fragmenta.numerics.code import layout as at
from fragmenta.numerics.code.double import Double
from fragmenta.numerics.code.elements import Element, Kind
from fragmenta.numerics.code.exact import Given
from fragmenta.numerics.code.layout import Birth
from fragmenta.numerics.code.nodes import new_node
from fragmenta.simt import layout
from fragmenta.simt.library import field, pointer_at

OPERANDS = 3
"""Operands of which a record has the values."""


class Lanes:
    """The lanes that take part."""

    def __init__(self, code: Code, mask: Value, masked: bool) -> None:
        self.code, self.mask, self.masked = code, mask, masked
        self._slot: Raw = code.array(I32)
        code.builder.store(mask.raw, self._slot)

    def bits_at(self, pointer: Raw, index: Value, count: int = 8) -> Value:
        """A part of a predicate: one bit for each lane."""
        b = self.code.builder
        of = ir.IntType(count)
        place = b.gep(b.bitcast(pointer, of.as_pointer()), [index.raw])
        every = convert(Value(b, b.load(place)), I32, signed=False).in_all_lanes(count)
        own = ir.Constant(ir.VectorType(I32, count), [1 << i for i in range(count)])
        found: Value = (every & Value(b, own)) != 0
        return found

    def part(self, index: Value) -> Value | None:
        """The lanes of a part; None if all take part."""
        return self.bits_at(self._slot, index) if self.masked else None


class Record:
    """The record of the site of the present instruction."""

    def __init__(
        self, code: Code, warp: Raw, block: Raw, table: Raw, number: Value
    ) -> None:
        self.code, self.warp, self.block, self.table = code, warp, block, table
        self.number = convert(number, I64)
        place = self.number * at.RECORD + at.HEAD
        self.base = code.builder.gep(table, [place.raw])
        self._limits: dict[str, Value] = {}
        self.time: Variable = code.variable(self.number.lift(0))

    def _field(self, name: str) -> Memory:
        of = I64 if name in at.WHOLE else F64
        return field(self.code, self.base, at.AT[name], of)

    def __getitem__(self, name: str) -> Value:
        return self._field(name)[0]

    def __setitem__(self, name: str, value: Value) -> None:
        self._field(name)[0] = value

    def add(self, name: str, number: Value) -> None:
        """Add to a number."""
        self[name] = self[name] + number

    def begin(self, lanes: Lanes, count: int) -> None:
        """Count an execution, also for the warp alone."""
        code = self.code
        self.add("executions", self.number.lift(1))
        present = convert(ones(lanes.mask), I64)
        self.add("elements", present * count)
        times = pointer_at(code, self.table, at.TIMES)
        warps = field(code, self.table, at.WARPS, I64)[0]
        place = self.number * warps + self.warp_number
        entry = code.builder.gep(times, [(place * 8).raw])
        own, number = field(code, entry, 0, I32), field(code, entry, 4, I32)
        here = convert(self.block_index + 1, I32)
        before = select(own[0] == here, number[0], number[0].lift(0))
        own[0], number[0] = here, before + 1
        self.time.value = convert(before, I64)
        for name in ("worst_ulp", "worst_relative", "worst_total", "worst_cancelled"):
            self._limits[name] = self[name]

    @property
    def warp_number(self) -> Value:
        """The warp in its block."""
        return convert(field(self.code, self.warp, layout.WARP_NUMBER, I32)[0], I64)

    @property
    def block_index(self) -> Value:
        """The block in the grid."""
        return field(self.code, self.block, layout.BLOCK_INDEX, I64)[0]

    def in_lanes(self, name: str) -> Value:
        """The worst so far, as the execution began, in eight lanes."""
        return self._limits[name].in_all_lanes()


class Facts(NamedTuple):
    """All that is known of one float of a result in eight lanes."""

    kind: Kind
    opcode: str
    ftz: bool
    satfinite: bool
    held: Value
    exact: Value
    nearly: Value
    """What the instruction makes of the hardware's operands, nearly exactly."""
    error: Value
    total: Value
    ulp: Value
    cancelled: Value
    """The larger addend, where bits cancel."""
    values: list[Value]
    exacts: list[Value]
    nodes: list[Value | None]


def facts(
    given: Given,
    opcode: str,
    kind: Kind,
    *,
    exact: Double,
    local: Double,
    error: Value,
    total: Value,
    ulp: Value,
    cancelled: Value,
) -> Facts:
    """What is known of one float of a result."""
    few = list(given.elements)[:OPERANDS]
    return Facts(
        kind,
        opcode,
        bool(given.words.get("ftz")),
        bool(given.words.get("satfinite")),
        given.held,
        exact.upper,
        local.upper,
        error,
        total,
        ulp,
        cancelled,
        [each.value for each in few],
        [each.exact.upper for each in few],
        [each.node for each in few],
    )


class Notes:
    """Writes what is rare, lane by lane."""

    def __init__(
        self, code: Code, count: int, record: Record, births: Variable
    ) -> None:
        self.code, self.count, self.record, self.births = code, count, record, births
        self.nodes = code.array(ir.VectorType(I32, count))

    def _spilled(self, x: Value) -> Memory:
        """A vector in memory, so that a loop can look at its numbers."""
        b = self.code.builder
        of = x.type.element
        place = self.code.array(x.type)
        b.store(x.raw, place)
        return Memory(b, b.bitcast(place, of.as_pointer()), of)

    def write(self, some: Value, lanes: Value, facts: Facts, index: Value) -> Value:
        """Write what lanes have to say; the nodes of their results."""
        code, b = self.code, self.code.builder
        vector = ir.VectorType(I32, self.count)
        b.store(ir.Constant(vector, [0] * self.count), self.nodes)
        with code.when(some):
            lane = _Lane(self, facts, lanes, index)
            with code.loop(self.count) as number, lane.chosen(number):
                lane.write(number)
        return Value(b, b.load(self.nodes))

    def other(
        self, some: Value, lanes: Value, elements: Sequence[Element], index: Value
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


class _Lane:
    """What one lane has to say about one float of its result."""

    def __init__(
        self, notes: Notes, facts: Facts, lanes: Value, index: Value
    ) -> None:
        self.notes, self.facts, self.index = notes, facts, index
        self.code, self.record = notes.code, notes.record
        spilled = notes._spilled
        self.flags = spilled(convert(lanes, I32, signed=False))
        self.memories = {
            name: spilled(getattr(facts, name))
            for name in (
                "held",
                "exact",
                "nearly",
                "error",
                "total",
                "ulp",
                "cancelled",
            )
        }
        self.values = [spilled(each) for each in facts.values]
        self.exacts = [spilled(each) for each in facts.exacts]
        self.nodes = [None if e is None else spilled(e) for e in facts.nodes]

    def chosen(self, number: Value) -> AbstractContextManager[None]:
        """Only a lane that has something to say."""
        return self.code.when(self.flags[number] != 0)

    def write(self, number: Value) -> None:
        """Write the record."""
        code = self.code
        at_lane = {name: each[number] for name, each in self.memories.items()}
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
            for name, memory in zip("abc", self.values, strict=False):
                record[name] = memory[number]
            for name, memory in zip("abc", self.exacts, strict=False):
                record[f"exact_{name}"] = memory[number]
            record["value"], record["exact"] = at_lane["held"], at_lane["exact"]
            record["local"] = at_lane["error"]
            record["block"] = record.block_index
            record["thread"] = self.notes.thread(self.index, number)
            record["time"] = record.time.value

    def _small(self, at_lane: dict[str, Value]) -> None:
        """Underflow, flushed numbers and saturation."""
        code, record, facts = self.code, self.record, self.facts
        one = record.number.lift(1)
        held, nearly = at_lane["held"], at_lane["nearly"]
        inexact = at_lane["error"] != 0.0
        with code.when((abs(held) < facts.kind.normal) & inexact):
            with code.when(held != 0.0):
                record.add("subnormal", one)
            with code.when(held == 0.0):
                record.add("underflows", one)
                if facts.ftz:
                    with code.when(abs(nearly) >= facts.kind.least):
                        record.add("flushed", one)
        if facts.satfinite:
            largest = facts.kind.largest
            with code.when((abs(held) == largest) & (abs(nearly) > largest)):
                record.add("saturated", one)

    def _special(self, number: Value, at_lane: dict[str, Value]) -> None:
        """A result that is NaN or infinite: it was born here, or passed on."""
        code, record = self.code, self.record
        none = code.constant(0, I32)
        parent, kind = code.variable(none), code.variable(none)
        is_nan = at_lane["held"] != at_lane["held"]
        nan_given, any_given = code.variable(none), code.variable(none)
        best = code.variable(none)
        for operand, (value, node) in enumerate(
            zip(self.values, self.nodes, strict=True)
        ):
            x = value[number]
            with code.when((x - x) != 0.0):
                of = code.variable(none if node is None else node[number])
                # A NaN comes first, then what has come some way.
                rank = select(x != x, none.lift(3), none.lift(1))
                rank = rank + select(of.value != 0, none.lift(1), none)
                with code.when(of.value == 0):
                    of.value = self._node(Birth.GIVEN, none, operand, number, at_lane)
                with code.when(rank > best.value):
                    parent.value, best.value = of.value, rank
                any_given.value = none.lift(1)
                with code.when(x != x):
                    nan_given.value = none.lift(1)
        born_here = (any_given.value == 0) | (is_nan & (nan_given.value == 0))
        kind.value = select(
            born_here,
            select(
                is_nan,
                none.lift(Birth.INVALID),
                select(
                    self._divides(number),
                    none.lift(Birth.DIVISION),
                    none.lift(Birth.OVERFLOW),
                ),
            ),
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
            lane = convert(self.index * self.notes.count + number, I32)
            bit = lane.lift(1) << lane
            self.notes.births.value = self.notes.births.value | bit
        made = self._node(kind.value, parent.value, 0, number, at_lane)
        b = code.builder
        place = b.gep(
            b.bitcast(self.notes.nodes, I32.as_pointer()), [number.raw]
        )
        b.store(made.raw, place)

    def _divides(self, number: Value) -> Value:
        """Whether an infinite result comes from a division by zero."""
        opcode = self.facts.opcode
        if opcode == "div":
            zero: Value = self.values[1][number] == 0.0
            return zero
        first: Value = self.values[0][number] == 0.0
        if opcode in ("rcp", "rsqrt", "lg2"):
            return first
        return first ^ first

    def _node(
        self,
        kind: Birth | Value,
        parent: Value,
        operand: int,
        number: Value,
        at_lane: dict[str, Value],
    ) -> Value:
        """The node of a result; it is new if there is none like it."""
        record, none = self.record, at_lane["held"].lift(0.0)
        values = [each[number] for each in self.values]
        values += [none] * (OPERANDS - len(values))
        if not isinstance(kind, Value):
            kind = parent.lift(int(kind))
        return new_node(
            self.code,
            record.table,
            [
                record.number,
                convert(kind, I64),
                convert(parent, I64, signed=False),
                record.number.lift(operand),
                record.block_index,
                self.notes.thread(self.index, number),
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
