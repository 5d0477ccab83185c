"""The record of a site: counts, the worst element, and what is known of a result."""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
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
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.library import field, pointer_at
from fragmenta.values.numerics.code import layout as at
from fragmenta.values.numerics.code.double import Double
from fragmenta.values.numerics.code.elements import PackedFloats
from fragmenta.values.numerics.code.exact import ExactOperands

CHUNK = 16
"""Lanes that are computed at a time."""
OPERANDS = 3
"""Operands of which a record has the values."""


class Lanes:
    """The lanes that take part.

    If they are all that the warp still has, results of others are written, too: nobody
    reads them.  They count for nothing, as of threads that a block does not have.
    """

    def __init__(self, code: Code, mask: Value, masked: bool) -> None:
        self.code, self.mask, self.masked = code, mask, masked
        self._slot: Raw = code.array(I32)
        code.builder.store(mask.raw, self._slot)

    def bits_at(self, pointer: Raw, index: Value, count: int = CHUNK) -> Value:
        """A part of a predicate: one bit for each lane."""
        b = self.code.builder
        of = ir.IntType(count)
        place = b.gep(b.bitcast(pointer, of.as_pointer()), [index.raw])
        every = convert(Value(b, b.load(place)), I32, signed=False).in_all_lanes(count)
        own = ir.Constant(ir.VectorType(I32, count), [1 << i for i in range(count)])
        found: Value = (every & Value(b, own)) != 0
        return found

    def part(self, index: Value) -> Value:
        """The lanes of a part."""
        return self.bits_at(self._slot, index)


class SiteRecord:
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
            # What is as bad as the worst is no news, however it is rounded.
            self._limits[name] = self[name] * (1 + 2.0**-40)

    @property
    def warp_number(self) -> Value:
        """The warp in its block."""
        return convert(field(self.code, self.warp, layout.WARP_NUMBER, I32)[0], I64)

    @property
    def block_index(self) -> Value:
        """The block in the grid."""
        return field(self.code, self.block, layout.BLOCK_INDEX, I64)[0]

    def in_lanes(self, name: str) -> Value:
        """The worst so far, as the execution began, in all lanes of a part."""
        return self._limits[name].in_all_lanes(CHUNK)


class Facts(NamedTuple):
    """All that is known of one float of a result in eight lanes."""

    kind: PackedFloats
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
    given: ExactOperands,
    opcode: str,
    kind: PackedFloats,
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
