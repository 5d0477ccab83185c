"""Elements of registers in compiled code: values and hashes, some lanes at a time.

Plane p of a register is p times its bytes after plane 0.  A second value is collected
from the planes of an element: see :mod:`fragmenta.engine.planes.elements`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import (
    I8,
    I16,
    I32,
    I64,
    Code,
    Value,
    convert,
    select,
    shift_unsigned,
)
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import as_signed
from fragmenta.values.expressions.code import hashing
from fragmenta.values.expressions.code.hashing import Hash

CHUNK = 8
"""Lanes that are computed at a time."""
LOW_WORD = 0x9E3779B97F4A7C15 & ~3
"""What the hash of an f64 is mixed with in its lower word."""
_TYPES: dict[int, Type] = {8: I8, 16: I16, 32: I32, 64: I64}


# ── the hash of an element ──────────────────────────────────────────────────


def element(bits: int, raw: Value, words: Sequence[Value]) -> tuple[Hash, Value]:
    """The hash of elements as operands, and which of them are constants.

    ``words`` are those of their second values; halves without one are constants.
    """
    known = words[0]
    for each in words[1:]:
        known = known | each
    if bits == 64:
        return _of_words(raw, words), known == 0
    if bits == 32:
        return _of_halves(raw, words[0], words[1]), known == 0
    u = select(words[0] == 0, hashing.constant(raw), words[0])
    return hashing.widened(u), known == 0


def _of_words(raw: Value, words: Sequence[Value]) -> Hash:
    """The hash of 64 bits: that of both words, if they are not those of one f64."""
    high = _of_halves(shift_unsigned(raw, 32), words[0], words[1])
    low = _of_halves(raw & 0xFFFFFFFF, words[2], words[3])
    twin = lower_word(high)
    alike = (low.u == twin.u) & (low.v == twin.v) & ((words[0] | words[1]) != 0)
    mixed = hashing.operation("pair of words", [high, low])
    return Hash(select(alike, high.u, mixed.u), select(alike, high.v, mixed.v))


def _of_halves(raw: Value, upper: Value, lower: Value) -> Hash:
    """The hash of 32 bits.  Where only a half has one, the other is a constant.

    A zero lower half stays zero: then it is a bf16 that was widened.
    """
    high, low = shift_unsigned(raw, 16), raw & 0xFFFF
    widened = (upper != 0) & (low == 0)
    v = select(widened, lower, hashing.constant(low))
    u = select(upper == 0, hashing.constant(high), upper)
    return Hash(u, select(lower == 0, v, lower))


def lower_word(high: Hash) -> Hash:
    """What the lower word of an f64 has beside the hash of its upper word."""
    flip = hashing.number(high.u, LOW_WORD)
    return Hash(high.u ^ flip, high.v ^ flip)


def stored(bits: int, found: Hash) -> tuple[Value, ...]:
    """The words of a second value that hold a hash; the highest part first."""
    if bits == 64:
        return (*found, *lower_word(found))
    return (found.u, found.v) if bits == 32 else (found.u,)


def zero_of(bits: int, zero: Value) -> Hash:
    """The hash of +0 as an operand; ``zero`` gives the shape."""
    found, _ = element(bits, zero, [zero] * 4)
    return found


# ── registers ───────────────────────────────────────────────────────────────


class RegisterOperand(NamedTuple):
    """An operand in a register: the bits of the register and of its elements."""

    register: int
    bits: int
    followed: bool = False
    negated: bool = False

    @property
    def many(self) -> int:
        """How many elements a register has."""
        return max(1, self.register // self.bits)


def chunk(code: Code, pointer: Raw, bits: int, index: Value) -> Value:
    """Some lanes of a register of so many bits."""
    b = code.builder
    wide = ir.VectorType(_TYPES[bits], CHUNK)
    loaded = b.load(b.gep(b.bitcast(pointer, wide.as_pointer()), [index.raw]))
    loaded.align = bits // 8
    return Value(b, loaded)


def put_chunk(
    code: Code, pointer: Raw, bits: int, index: Value, value: Value, mask: Value
) -> None:
    """Write some lanes of a register, those in a mask."""
    b = code.builder
    before = chunk(code, pointer, bits, index)
    wide = ir.VectorType(_TYPES[bits], CHUNK)
    place = b.gep(b.bitcast(pointer, wide.as_pointer()), [index.raw])
    b.store(select(mask, value, before).raw, place).align = bits // 8


def plane(code: Code, base: Raw, bits: int, number: int) -> Raw:
    """Where a plane of a register begins."""
    return code.builder.gep(base, [ir.Constant(I32, number * bits // 8 * LANES)])


def piece(value: Value, bits: int, first: int, width: int) -> Value:
    """Some bits of each lane, as numbers of 64 bits."""
    moved = shift_unsigned(value, first) if first else value
    if width < bits:
        moved = convert(moved, ir.IntType(width))
    return convert(moved, I64, signed=False)


class RegisterPlanes:
    """The planes and the value of a register, in some lanes."""

    def __init__(
        self,
        code: Code,
        held: RegisterOperand,
        value: Raw,
        base: Raw | None,
        index: Value,
    ) -> None:
        self.held, self.bits = held, held.register
        self.value = chunk(code, value, self.bits, index)
        self.planes: list[Value] = []
        if base is not None:
            many = 8 if held.bits == 8 else 4
            self.planes = [
                chunk(code, plane(code, base, self.bits, each), self.bits, index)
                for each in range(many)
            ]

    def any(self) -> Value | None:
        """Bits that are not zero in lanes with a second value."""
        if not self.planes:
            return None
        total = self.planes[0]
        for each in self.planes[1:]:
            total = total | each
        return convert(total, I64, signed=False)

    def words(self, number: int) -> list[Value]:
        """The words of the second value of an element, the highest part first."""
        width = min(self.held.bits, 16)
        start = number * self.held.bits
        firsts = range(start + self.held.bits - width, start - 1, -width)
        return [self._collected(first, width) for first in firsts]

    def _collected(self, first: int, width: int) -> Value:
        total = piece(self.value, self.bits, 0, self.bits).lift(0)
        for place, each in enumerate(self.planes[: 64 // width]):
            part = piece(each, self.bits, first, width)
            total = total | (part << (width * place) if place else part)
        return total

    def raw(self, number: int) -> Value:
        """The bits of an element."""
        place = number if self.held.many > 1 else 0
        bits = self.held.bits
        return self._signed(piece(self.value, self.bits, place * bits, bits))

    def plain(self, number: int) -> Hash:
        """The hash of an element without the sign of the operand."""
        place = number if self.held.many > 1 else 0
        return element(self.held.bits, self.raw(number), self.words(place))[0]

    def element(self, number: int) -> tuple[Hash, Value]:
        """The hash of an element; a register with one element repeats it."""
        held = self.held
        place = number if held.many > 1 else 0
        found, known = element(held.bits, self.raw(number), self.words(place))
        if held.negated:
            minus = hashing.negated(found)
            u, v = select(known, found.u, minus.u), select(known, found.v, minus.v)
            found = Hash(u, v)
        return found, known

    def _signed(self, raw: Value) -> Value:
        """The bits of a constant, negated if the operand is."""
        if not self.held.negated:
            return raw
        return raw ^ as_signed(1 << (self.held.bits - 1), 64)


def put_words(
    code: Code,
    base: Raw,
    held: RegisterOperand,
    index: Value,
    words: Sequence[Sequence[Value]],
    mask: Value,
) -> None:
    """Put second values into the planes: for each element its words, lowest first."""
    width = min(held.bits, 16)
    parts = [each for of in words for each in reversed(of)]
    kind = _TYPES[held.register]
    for number in range(64 // width):
        total: Value | None = None
        for place, each in enumerate(parts):
            own = shift_unsigned(each, width * number) if number else each
            narrow = convert(convert(own, ir.IntType(width)), kind, signed=False)
            moved = narrow << (width * place) if place else narrow
            total = moved if total is None else total | moved
        assert total is not None
        at = plane(code, base, held.register, number)
        put_chunk(code, at, held.register, index, total, mask)
