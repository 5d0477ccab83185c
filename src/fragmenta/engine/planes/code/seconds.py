"""Second values in compiled code: 64 bits of an element, collected from its planes.

The planes of a half, or of a register of 16 bits, have 64 bits in planes 0 to 3, and
again 64 in planes 4 to 7 if there are as many.  An element of 32 bits has two halves:
its second value is that of its upper half and that of its lower one.  See
:mod:`fragmenta.engine.planes.elements` for the same in arrays.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I8,
    I16,
    I32,
    I64,
    Code,
    Value,
    convert,
    shift_unsigned,
)
from fragmenta.engine.planes.code.routines import load_plane, plane_of
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.moving import store_lanes

GROUP = 4
"""Planes whose halves are one number of 64 bits."""
_TYPES = {8: I8, 16: I16, 32: I32, 64: I64}


def load_second(
    code: Code, base: Raw, bits: int, first: int, width: int = 16, plane: int = 0
) -> Value:
    """64 bits of the second values of all lanes.

    ``base`` is plane 0 of a register of so many bits.  The part of it that begins with
    bit ``first`` and has ``width`` bits is taken of as many planes as give 64 bits,
    beginning with ``plane``; the first plane has the lowest bits.
    """
    total: Value | None = None
    for number in range(64 // width):
        value = load_plane(code, base, bits, plane + number)
        part = _part(value, bits, first, width)
        moved = part << (width * number) if number else part
        total = moved if total is None else total | moved
    assert total is not None
    return total


def _part(value: Value, bits: int, first: int, width: int) -> Value:
    """Some bits of each lane, as a number of 64 bits."""
    moved = shift_unsigned(value, first) if first else value
    if width < bits:
        moved = convert(moved, ir.IntType(width))
    return convert(moved, I64, signed=False)


def store_second(
    code: Code,
    base: Raw,
    bits: int,
    parts: list[Value],
    lanes: Value,
    width: int = 16,
    plane: int = 0,
) -> None:
    """Put second values into all parts of a register: the lowest part first.

    There is one number of 64 bits for each part of ``width`` bits.
    """
    kind = _TYPES[bits]
    for number in range(64 // width):
        total: Value | None = None
        for place, each in enumerate(parts):
            own = shift_unsigned(each, width * number) if number else each
            part = convert(convert(own, ir.IntType(width)), kind, signed=False)
            moved = part << (width * place) if place else part
            total = moved if total is None else total | moved
        assert total is not None
        store_lanes(code, plane_of(code, base, bits, plane + number), total, lanes)


def halves(code: Code, base: Raw, plane: int = 0) -> tuple[Value, Value]:
    """The second values of the lower and the upper half of a register of 32 bits.

    Of a float of 32 bits these are its second and its first number, of a pair of
    halves those of elements 0 and 1.
    """
    low, high = (load_second(code, base, 32, at, 16, plane) for at in (0, 16))
    return low, high


def put_halves(
    code: Code, base: Raw, low: Value, high: Value, lanes: Value, plane: int = 0
) -> None:
    """Put second values into both halves of a register of 32 bits."""
    store_second(code, base, 32, [low, high], lanes, 16, plane)


def vector(code: Code, pointer: Raw) -> Value:
    """A number of 64 bits for each lane, from memory."""
    b = code.builder
    of = ir.VectorType(I64, LANES)
    loaded = b.load(b.bitcast(pointer, of.as_pointer()))
    loaded.align = 8
    return Value(b, loaded)
