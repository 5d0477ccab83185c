"""Routines that load, store and copy in all planes at once.

An address is checked once.  The planes of a memory are equally far apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import I32, I64, Code, Number, Value, convert, picked
from fragmenta.engine.planes.code import layout as at
from fragmenta.engine.simt.lane_copies import copy
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import Routine, field
from fragmenta.engine.simt.memory import (
    INTEGERS,
    AccessForm,
    AddressRange,
    ElementMove,
    accessing,
    pointer,
)


class AccessRegister(NamedTuple):
    """A register of an access: whether it is followed, and the bytes of a plane."""

    followed: bool
    size: int


def access(
    what: AccessForm, stores: bool, held: tuple[AccessRegister, ...], planes: int
) -> Routine:
    """The routine of a load or a store in all planes.

    Its registers are the first planes of those that are followed.  Others are not
    loaded, and zeros are stored for them.
    """
    words = "".join(f"{each.size}" if each.followed else "-" for each in held)
    what = what._replace(signed=False)
    name = f"planes.{stores:d}.{planes}.{what.name}.{words}"
    mover = partial(_PlaneMove, held=held, planes=planes)
    given = sum(each.followed for each in held)
    return accessing(name, what, stores, mover, given)


class _PlaneMove(ElementMove):
    """Moves the elements of one lane, or of all, in all planes."""

    def __init__(
        self,
        code: Code,
        access: AccessForm,
        stores: bool,
        registers: tuple[Raw, ...],
        block: Raw,
        *,
        held: tuple[AccessRegister, ...],
        planes: int,
    ) -> None:
        super().__init__(code, access, stores, registers, block)
        self.held, self.planes = held, planes

    @property
    def side_by_side(self) -> bool:
        """Neighbours are moved at once, whatever they are."""
        return True

    def _planes(self, where: AddressRange, address: Value, of: Type) -> Iterable[Raw]:
        """Where the element at an address is, plane by plane."""
        step = self._step(where)
        for plane in range(self.planes):
            yield pointer(self.code, where, address + step * plane, of)

    def _step(self, where: AddressRange) -> Value:
        if self.access.space == "global":
            return where.notes
        near = self.access.space in ("shared", "cluster")
        place = at.SHARED_STEP if near else at.LOCAL_STEP
        return field(self.code, self.block, place, I64)[0]

    def _registers(self, plane: int) -> list[Raw | None]:
        """A plane of each register; None if it is not followed."""
        given, b = iter(self.registers), self.code.builder
        return [
            b.gep(next(given), [ir.Constant(I32, plane * each.size)])
            if each.followed
            else None
            for each in self.held
        ]

    def lane(self, where: AddressRange, address: Value, lane: Value) -> None:
        """The elements of one lane."""
        b, access = self.code.builder, self.access
        of, wide = INTEGERS[access.bits], INTEGERS[access.register]
        for plane, memory in enumerate(self._planes(where, address, of)):
            for index, register in enumerate(self._registers(plane)):
                element = b.gep(memory, [ir.Constant(I32, index)])
                if register is None:
                    if self.stores:
                        b.store(ir.Constant(of, 0), element).align = 1
                    continue
                place = b.gep(b.bitcast(register, wide.as_pointer()), [lane.raw])
                if self.stores:
                    value = convert(Value(b, b.load(place)), of)
                    b.store(value.raw, element).align = 1
                else:
                    loaded = b.load(element)
                    loaded.align = 1
                    value = convert(Value(b, loaded), wide, signed=False)
                    b.store(value.raw, place)

    def whole(self, where: AddressRange, address: Value) -> None:
        """The elements of all lanes, which are side by side."""
        b, access = self.code.builder, self.access
        of, count = INTEGERS[access.bits], access.elements
        every = ir.VectorType(of, LANES * count)
        for plane, memory in enumerate(self._planes(where, address, every)):
            registers = self._registers(plane)
            if self.stores:
                b.store(self._joined(registers).raw, memory).align = 1
                continue
            loaded = b.load(memory)
            loaded.align = 1
            for index, register in enumerate(registers):
                if register is not None:
                    places = range(index, LANES * count, count)
                    own = Value(b, loaded)
                    part = picked(own, places) if count > 1 else own
                    self._put(register, part)

    def _put(self, register: Raw, value: Value) -> None:
        b = self.code.builder
        wide = convert(value, INTEGERS[self.access.register], signed=False)
        b.store(wide.raw, b.bitcast(register, wide.type.as_pointer())).align = 16

    def _joined(self, registers: list[Raw | None]) -> Value:
        """The elements of all registers, in their order in memory."""
        b, of = self.code.builder, INTEGERS[self.access.bits]
        held = ir.VectorType(INTEGERS[self.access.register], LANES)
        parts = []
        for register in registers:
            if register is None:
                parts.append(Value(b, ir.Constant(ir.VectorType(of, LANES), None)))
                continue
            loaded = b.load(b.bitcast(register, held.as_pointer()))
            loaded.align = 16
            parts.append(convert(Value(b, loaded), of))
        return _interleaved(parts)


def _interleaved(parts: list[Value]) -> Value:
    """One vector: the first of each part, the second of each, and so on."""
    while len(parts) > 1:
        half = len(parts) // 2
        pairs = zip(parts[:half], parts[half:], strict=True)
        parts = [_zipped(one, other) for one, other in pairs]
    return parts[0]


def _zipped(one: Value, other: Value) -> Value:
    count = one.type.count
    places = [place for i in range(count) for place in (i, count + i)]
    return picked(one, places, other)


def lane_copies(size: int, to_bits: int, of_bits: int, planes: int) -> Routine:
    """``cp.async`` in all planes."""
    made: Callable[..., Routine] = copy
    steps = partial(_steps, planes=planes)
    return made(size, to_bits, of_bits, name=f".planes.{planes}", steps=steps)


def _steps(
    code: Code, block: Raw, source: AddressRange, planes: int
) -> Iterable[tuple[Number, Number]]:
    """How far behind the first plane the others are, of the goal and of the source."""
    step = field(code, block, at.SHARED_STEP, I64)[0]
    for plane in range(planes):
        yield step * plane, source.notes * plane
