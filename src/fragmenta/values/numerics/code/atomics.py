"""Atomic operations with floats: exact values of memory, lane after lane.

The lanes of a warp change memory in the order of their numbers, and so they change its
second values here, before the hardware changes its values.  A lane that has the address
of a lane before it begins with what that one left.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Value, convert
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import POINTER, Routine, define
from fragmenta.engine.simt.memory import (
    AddressRange,
    addresses,
    generic,
    has,
    inside,
    lane_of,
    peer,
    pointer,
    shared,
    spill,
)
from fragmenta.values.numerics.code.elements import INTEGERS
from fragmenta.values.numerics.code.routines import Form, routines_of

WIDTH = 8 * LANES
"""Bytes of a scratch register of any width."""


class AtomicForm(NamedTuple):
    """An atomic operation on one element of each lane."""

    form: Form
    """The instruction that computes the new value: of the old one, and of the given."""
    space: str
    address: int
    """Bits of the register with the address."""
    planes: int
    followed: bool
    """Whether what is given has planes."""
    returns: bool
    """Whether the old second value goes to a register."""

    @property
    def bits(self) -> int:
        """The bits of an element."""
        return self.form.results[0].bits

    @property
    def name(self) -> str:
        """The name of the routine."""
        words = self.space, self.address, self.planes, self.followed, self.returns
        return f"{self.form.name}|atomic|{'.'.join(map(str, words))}"


def scratch_bytes(planes: int) -> int:
    """What a warp needs: an old and a new value, and their planes."""
    return WIDTH * (2 + 2 * planes)


def atomic(form: AtomicForm) -> tuple[Routine, Routine]:
    """The routine of an atomic operation, and the one that it calls."""
    inner = routines_of(form.form).masked

    def build(module: ir.Module) -> None:
        count = 2 + form.followed + form.returns
        given = [POINTER] * (3 + 2 * form.planes + 1)
        parameters = [*given, I64, I32, I32, *[I64] * count]
        define(module, form.name, parameters, _trace(form, inner.name), I32)

    return Routine(form.name, build), inner


def _trace(form: AtomicForm, inner: str):  # type: ignore[no-untyped-def]
    def trace(code: Code, *given: Raw | Value) -> Value:
        pointers = [each for each in given if not isinstance(each, Value)]
        numbers = [each for each in given if isinstance(each, Value)]
        return _Atomic(code, form, inner, pointers, numbers).write()

    return trace


class _Atomic:
    """The code of one routine."""

    def __init__(
        self,
        code: Code,
        form: AtomicForm,
        inner: str,
        pointers: list[Raw],
        numbers: list[Value],
    ) -> None:
        self.code, self.form, self.inner = code, form, inner
        self.warp, self.block, self.table, *rest = pointers
        self.memories = list(zip(rest[0:-1:2], rest[1:-1:2], strict=True))
        """Warp and block of the shadows of each plane."""
        self.register = rest[-1]
        offset, self.lanes, self.number, *places = numbers
        self.offset = offset
        self.old, self.new = places[0], places[0] + WIDTH
        self.old_planes = places[0] + 2 * WIDTH
        self.new_planes = places[0] + (2 + form.planes) * WIDTH
        self.source = places[1]
        self.source_planes = places[2] if form.followed else None
        self.goal = places[-1] if form.returns else None
        self.births = code.variable(code.constant(0, I32))

    def write(self) -> Value:
        """All lanes, one after the other; those in which something was born."""
        code, form = self.code, self.form
        every = addresses(code, self.register, form.address, self.offset)
        spilled = spill(code, every)
        with code.loop(LANES) as lane, code.when(has(self.lanes, lane)):
            address = lane_of(code, spilled, lane)
            here = self._where(self.warp, self.block, address, lane)
            size = form.bits // 8
            good = inside(here, address, size) & ((address & (size - 1)) == 0)
            with code.when(good):
                self._lane(here, address, lane, spilled)
        found: Value = self.births.value
        return found

    def _where(
        self, warp: Raw, block: Raw, address: Value, lane: Value
    ) -> AddressRange:
        if self.form.space == "shared":
            return shared(self.code, block)
        if self.form.space == "cluster":
            return peer(self.code, block, address)
        return generic(self.code, warp, block, address, lane)

    def _cell(self, place: Value, lane: Value) -> Raw:
        """Where a lane of a register is."""
        b = self.code.builder
        start = b.gep(self.warp, [place.raw])
        of = INTEGERS[self.form.bits]
        return b.gep(b.bitcast(start, of.as_pointer()), [lane.raw])

    def _lane(
        self, here: AddressRange, address: Value, lane: Value, spilled: Raw
    ) -> None:
        code, form, b = self.code, self.form, self.code.builder
        of = INTEGERS[form.bits]
        old = code.variable(Value(b, b.load(pointer(code, here, address, of))))
        with code.loop(lane) as before, code.when(has(self.lanes, before)):
            same = lane_of(code, spilled, before) == address
            with code.when(same):
                old.value = Value(b, b.load(self._cell(self.new, before)))
        b.store(old.value.raw, self._cell(self.old, lane))
        step = form.bits // 8 * LANES
        cells = []
        for plane, (warp, block) in enumerate(self.memories):
            where = self._where(warp, block, address, lane)
            cell = pointer(code, where, address, of)
            cells.append(cell)
            word = b.load(cell)
            b.store(word, self._cell(self.old_planes + plane * step, lane))
            if self.goal is not None:
                b.store(word, self._cell(self.goal + plane * step, lane))
        self._compute(lane)
        for plane, cell in enumerate(cells):
            word = b.load(self._cell(self.new_planes + plane * step, lane))
            b.store(word, cell)
        self._update(old.value, lane)

    def _compute(self, lane: Value) -> None:
        """Call the routine beside the instruction, for one lane."""
        b, module = self.code.builder, self.code.builder.module
        places = [self.new_planes, self.old, self.source, self.old_planes]
        if self.source_planes is not None:
            places.append(self.source_planes)
        one = convert(lane, I32)
        mask = one.lift(1) << one
        given = [self.warp, self.block, self.table, self.number.raw]
        given += [each.raw for each in (*places, mask)]
        function = module.globals.get(self.inner)
        if function is None:
            kind = ir.FunctionType(I32, [each.type for each in given])
            function = ir.Function(module, kind, self.inner)
        born = Value(b, b.call(function, given))
        self.births.value = self.births.value | born

    def _update(self, old: Value, lane: Value) -> None:
        """The new value, for lanes after this one that have the same address."""
        b, form = self.code.builder, self.form.form
        emit = form.match.syntax.emit
        assert emit is not None
        value = Value(b, b.load(self._cell(self.source, lane)))
        found = emit(form.words, old.in_all_lanes(8), value.in_all_lanes(8))
        made = b.extract_element(found.raw, ir.Constant(I32, 0))
        b.store(made, self._cell(self.new, lane))
