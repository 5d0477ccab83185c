"""Floats in registers: their values, and their second values in the planes beside them.

A register has so many planes, each as wide as the register.  A 32-bit element has a
double-double: the upper halves of four planes are the upper f64, the lower halves the
lower one.  So the upper half of an f32, as a bf16, still has the upper f64.  A smaller
element has one f64, or an f32 if its bits are few.  An f64 has the second value of its
upper word.

All bits zero mean that the second value is the value itself.  If the value is NaN or
infinite, the upper word of the upper f64 is that of the exact value, and the other word
is the number of a node.

The lowest bits of the upper f64 name the instruction that most of the error comes from;
the lower f64 is what is left, so that both together are the exact value.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    Value,
    bits_of,
    convert,
    float_of,
    scalar_type,
    select,
    shift_unsigned,
)
from fragmenta.ptx.opcodes.fp8 import small_value
from fragmenta.ptx.opcodes.half import value_of
from fragmenta.ptx.opcodes.rounding import FORMATS
from fragmenta.values.numerics.code.double import (
    Double,
    chosen,
    finite,
    quick_sum,
    whole,
)

INTEGERS: dict[int, Type] = {8: I8, 16: I16, 32: I32, 64: I64}
LEAST_BITS = 1
"""The bits of a second value that is zero: the least f64, as no bits mean none."""
SOURCE_BITS = 14
"""The lowest bits of the upper f64: the site where most of the error comes from.

The lower f64 makes up for them.  A number alone has 39 bits that are right."""
MOST_SOURCES = (1 << SOURCE_BITS) - 1


INTEGRAL = frozenset({"s64", "u64", "s32", "u32", "s16", "u16", "s8", "u8"})
"""Formats of integers that stand for numbers: what was quantised.

With eight planes, a byte of each is one of an f64, beside the lowest byte of the
integer.  So it goes wherever that byte goes: to memory, into a word and back.

With four planes, which are enough if there are no bytes, it is an f32.  Bits 8 to 15 of
integers of 16 and 32 bits have :data:`MARK` in plane 0, and the source in the others.
Above them, an integer of 32 bits has an f64, a half of a word in each plane.
"""
MARK = 0x5A
"""Like the parts of a source, it has no bit that is a sign."""
BYTE_PLANES = 8
"""Planes with which a byte has an f64."""
_SOURCE_BITS = 7
"""The bits of a source in a plane."""


class PackedFloats(NamedTuple):
    """The floats in an operand."""

    format: str
    many: int = 1
    bits: int = 32
    """The bits of each."""

    @property
    def whole(self) -> bool:
        """Whether it is an integer."""
        return self.format in INTEGRAL

    @property
    def precision(self) -> int:
        """The bits of a significand; integers are exact."""
        if self.format in INTEGRAL:
            return 53
        return 1 if self.format == "ue8m0" else FORMATS[self.format].fraction_bits + 1

    @property
    def least(self) -> float:
        """The least positive number."""
        if self.format in INTEGRAL:
            return 1.0
        if self.format == "ue8m0":
            return 2.0**-127
        form = FORMATS[self.format]
        return float(2.0 ** (1 - form.bias - form.fraction_bits))

    @property
    def normal(self) -> float:
        """The least normal number."""
        if self.format in INTEGRAL:
            return 0.0
        if self.format == "ue8m0":
            return 2.0**-127
        return float(2.0 ** (1 - FORMATS[self.format].bias))

    @property
    def largest(self) -> float:
        """The largest finite number."""
        if self.format in INTEGRAL:
            return 2.0**self.bits
        if self.format == "ue8m0":
            return 2.0**127
        form = FORMATS[self.format]
        fraction = form.largest & ((1 << form.fraction_bits) - 1)
        exponent = (form.largest >> form.fraction_bits) - form.bias
        return float((1 + fraction / (1 << form.fraction_bits)) * 2.0**exponent)


def _kinds() -> dict[str, PackedFloats]:
    found = {
        "f64": PackedFloats("f64", 1, 64),
        "f32": PackedFloats("f32"),
        "tf32": PackedFloats("tf32"),
        "f32x2": PackedFloats("f32", 2, 32),
        "ue8m0x2": PackedFloats("ue8m0", 2, 8),
    }
    for name in ("f16", "bf16"):
        found[name] = PackedFloats(name, 1, 16)
        found[f"{name}x2"] = PackedFloats(name, 2, 16)
    for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1"):
        bits = 4 if name == "e2m1" else 8
        for count in (2, 4):
            found[f"{name}x{count}"] = PackedFloats(name, count, bits)
    return found


KINDS = _kinds()
"""The types of PTX that hold floats."""
WHOLE_KINDS = {name: PackedFloats(name, 1, int(name[1:])) for name in sorted(INTEGRAL)}
"""Types of integers, where they stand for numbers."""


class TrackedFloat(NamedTuple):
    """One float of an operand in some lanes."""

    value: Value
    """What the hardware has, as f64."""
    exact: Double
    node: Value | None = None
    """The number of the node of a value that is NaN or infinite; 0: none."""
    present: Value | None = None
    """Whether it has a second value."""
    source: Value | None = None
    """Where most of its error comes from: the number of a site and 1, or 0."""


def _unsigned(register: Value, low: int, bits: int, to: Type) -> Value:
    """Some bits of a register as an integer with zeros above."""
    width = scalar_type(register.type).width
    part = shift_unsigned(register, low) if low else register
    if bits < width:
        part = part & ((1 << bits) - 1)
    return convert(part, to, signed=False)


def _integer(register: Value, kind: PackedFloats, low: int) -> Value:
    """An integer in a register, as one of 64 bits."""
    bits = min(kind.bits, int(kind.format[1:]))
    part = _unsigned(register, low, bits, I64)
    if kind.format[0] == "u" or bits == 64:
        return part
    sign = 1 << bits - 1
    return (part ^ sign) - sign


def value(register: Value, kind: PackedFloats, place: int) -> Value:
    """The value of a float in a register, as f64."""
    low = place * kind.bits
    if kind.format == "f64":
        return float_of(register)
    if kind.whole:
        return convert(_integer(register, kind, low), F64, signed=True)
    if kind.bits == 32:
        return convert(float_of(_unsigned(register, low, 32, I32)), F64)
    word = _unsigned(register, low, kind.bits, I32)
    if kind.bits == 16:
        return convert(value_of(convert(word, I16), kind.format), F64)
    if kind.format == "ue8m0":
        power = float_of((convert(word, I64) + (1023 - 127)) << 52)
        return select(word == 255, power.lift(float("nan")), power)
    return convert(small_value(word, FORMATS[kind.format]), F64)


def pieces(
    planes: list[Value], kind: PackedFloats, place: int
) -> tuple[Value, Value | None]:
    """The bits of a second value: its upper number, and its lower one if it has one."""
    if kind.bits >= 32:
        low = 32 if kind.bits == 64 else 32 * place
        words = [_unsigned(each, low, 32, I32) for each in planes[:4]]
        return _joined(*_halves(words, upper=True)), _joined(
            *_halves(words, upper=False)
        )
    total = None
    for number, each in enumerate(planes):
        if number * kind.bits >= 64:
            break
        part = _unsigned(each, place * kind.bits, kind.bits, I64)
        part = part << (number * kind.bits) if number else part
        total = part if total is None else total | part
    assert total is not None
    return total, None


def _halves(words: list[Value], upper: bool) -> tuple[Value, Value]:
    """The low and the high word of a number in halves of four words."""
    a, b, c, d = words
    if upper:
        return shift_unsigned(a, 16) | (b & -0x10000), shift_unsigned(c, 16) | (
            d & -0x10000
        )
    return (a & 0xFFFF) | (b << 16), (c & 0xFFFF) | (d << 16)


def _joined(low: Value, high: Value) -> Value:
    return convert(low, I64, signed=False) | (convert(high, I64, signed=False) << 32)


def room(kind: PackedFloats, planes: int) -> int:
    """The bits of the upper number of a second value."""
    return 64 if kind.bits >= 16 else min(64, kind.bits * planes)


def element(
    register: Value, planes: list[Value] | None, kind: PackedFloats, place: int
) -> TrackedFloat:
    """A float with its second value."""
    held = value(register, kind, place)
    if planes is None:
        return TrackedFloat(held, whole(held))
    if kind.whole:
        return _counted(held, planes, kind, place)
    upper, lower = pieces(planes, kind, place)
    if room(kind, len(planes)) < 64:  # an f32, and no NaN
        present = upper != 0
        number = convert(float_of(convert(upper, I32)), F64)
        return TrackedFloat(held, whole(select(present, number, held)), None, present)
    present = upper != 0
    usual = (held - held) == 0.0
    top = select(usual, float_of(upper), special_exact(upper))
    exact = whole(top)
    if lower is not None:
        bottom = select(present & usual, float_of(lower), 0.0)
        exact = quick_sum(top, bottom)
    exact = finite(chosen(present, exact, whole(held)))
    node = convert(select(usual, upper.lift(0), upper), I32)
    source = select(usual, upper & MOST_SOURCES, 0)
    return TrackedFloat(held, exact, node, present, source)


def _counted(
    held: Value, planes: list[Value], kind: PackedFloats, place: int
) -> TrackedFloat:
    """An integer with the number that it stands for."""
    low = place * kind.bits
    if len(planes) >= BYTE_PLANES:
        upper = _of_bytes([_unsigned(each, low, 8, I64) for each in planes[:8]], 8)
        present = upper != 0
        exact = select(present, float_of(upper), held)
        source = select(present, upper & MOST_SOURCES, 0)
        return TrackedFloat(held, whole(exact), None, present, source)
    word = _of_bytes([_unsigned(each, low, 8, I32) for each in planes[:4]], 8)
    near = convert(float_of(word), F64)
    present = word != 0
    if kind.bits < 16:
        return TrackedFloat(held, whole(select(present, near, held)), None, present)
    above = [_unsigned(each, low + 8, 8, I64) for each in planes[:4]]
    marked = above[0] == MARK
    source = select(marked & present, _of_bytes(above[1:], _SOURCE_BITS), 0)
    exact = select(present, near, held)
    if kind.bits >= 32:
        upper = _of_bytes([_unsigned(each, 16, 16, I64) for each in planes[:4]], 16)
        exact = select(marked & (upper != 0), float_of(upper), exact)
    return TrackedFloat(held, whole(exact), None, present, source)


def _of_bytes(parts: list[Value], bits: int) -> Value:
    """A number of parts of so many bits, the lowest first."""
    total = parts[0]
    for number, each in enumerate(parts[1:], 1):
        total = total | (each << bits * number)
    return total


def _stands_for(held: Value, exact: Double) -> Value:
    """Whether an integer stands for another number."""
    number = exact.upper + exact.lower
    differs: Value = ((number - number) == 0.0) & (number != held)
    return differs


def _as_integer(
    held: Value, exact: Double, source: Value | None, kind: PackedFloats
) -> list[Value]:
    """The planes beside an integer; all are 0 if it is the number."""
    number, differs = exact.upper + exact.lower, _stands_for(held, exact)
    single = convert(bits_of(convert(number, F32)), I64, signed=False)
    single = select(single == 0, LEAST_BITS, single)
    made = []
    for plane in range(4):
        word = shift_unsigned(single, 8 * plane) & 0xFF
        if kind.bits >= 16:
            mark = word.lift(MARK)
            if plane:
                named = word.lift(0) if source is None else source
                mark = shift_unsigned(named, _SOURCE_BITS * (plane - 1)) & 0x7F
            word = word | (mark << 8)
        if kind.bits >= 32:
            part = shift_unsigned(bits_of(number), 16 * plane) & 0xFFFF
            word = word | (part << 16)
        made.append(select(differs, word, 0))
    return made


def special_exact(upper: Value) -> Value:
    """The exact value of what is NaN or infinite: the upper word of an f64."""
    return float_of(upper & -(1 << 32))


def packed(
    held: Value,
    exact: Double,
    node: Value | None,
    source: Value | None,
    kind: PackedFloats,
    planes: int,
) -> tuple[Value, Value | None]:
    """The bits of a second value; none if it is the value itself."""
    if kind.whole and planes >= BYTE_PLANES:
        bits = bits_of(exact.upper + exact.lower)
        if source is not None:
            bits = (bits & ~MOST_SOURCES) | source
        bits = select(bits == 0, LEAST_BITS, bits)
        return select(_stands_for(held, exact), bits, 0), None
    if kind.whole:
        a, b, c, d = _as_integer(held, exact, source, kind)
        return a | (b << 32), c | (d << 32)
    if room(kind, planes) < 64:
        single = bits_of(convert(exact.upper, F32))
        word = select(single == 0, LEAST_BITS, single)
        word = select(exact.upper == held, 0, word)
        return convert(word, I64, signed=False), None
    return second_words(held, exact, node, source, wide=kind.bits >= 32)


def second_words(
    held: Value,
    exact: Double,
    node: Value | None,
    source: Value | None,
    *,
    wide: bool,
) -> tuple[Value, Value | None]:
    """A second value as numbers of 64 bits: two if it is ``wide``, otherwise one.

    A value that is NaN or infinite keeps the upper word of the exact value, and its
    node.  An exact value that is NaN or infinite names no source.
    """
    usual = (held - held) == 0.0
    known = (exact.upper - exact.upper) == 0.0
    same = exact.upper == held
    bits = bits_of(exact.upper)
    named = bits & -(1 << 32)
    if node is not None:
        named = named | convert(node, I64, signed=False)
    if source is not None:
        bits = select(known, (bits & ~MOST_SOURCES) | source, bits)
    upper = select(bits == 0, LEAST_BITS, bits)
    lower = None
    if wide:
        same = same & (exact.lower == 0.0)
        rest = (exact.upper - float_of(upper)) + exact.lower
        lower = select(usual & known & ~same, bits_of(rest), 0)
    upper = select(usual, select(same, 0, upper), named)
    return upper, lower


def spread(
    parts: list[tuple[Value, Value | None]],
    kind: PackedFloats,
    planes: int,
    register: int,
) -> list[Value]:
    """The planes of a register whose elements have these second values."""
    of = INTEGERS[register]
    found: list[Value | None] = [None] * planes
    for place, (upper, lower) in enumerate(parts):
        if kind.whole and planes >= BYTE_PLANES:
            words = [shift_unsigned(upper, 8 * n) & 0xFF for n in range(BYTE_PLANES)]
            low = kind.bits * place
        elif kind.whole:
            assert lower is not None
            low_half = (1 << 32) - 1
            both = (
                (each & low_half, shift_unsigned(each, 32)) for each in (upper, lower)
            )
            words, low = [word for pair in both for word in pair], 0
        elif kind.bits >= 32:
            assert lower is not None
            words = _words(upper, lower)
            low = 32 if kind.bits == 64 else 32 * place
        else:
            words = []
            for number in range(min(planes, 64 // kind.bits)):
                part = shift_unsigned(upper, number * kind.bits) if number else upper
                words.append(part & ((1 << kind.bits) - 1))
            low = kind.bits * place
        for number, word in enumerate(words):
            wide = convert(word, of, signed=False)
            wide = wide << low if low else wide
            before = found[number]
            found[number] = wide if before is None else before | wide
    first = found[0]
    assert first is not None
    return [first.lift(0) if each is None else each for each in found]


def _words(upper: Value, lower: Value) -> list[Value]:
    """Two numbers of 64 bits as four words: a half of each is one of theirs."""
    made = []
    tops = convert(upper, I32), convert(shift_unsigned(upper, 32), I32)
    bottoms = convert(lower, I32), convert(shift_unsigned(lower, 32), I32)
    for top, bottom in zip(tops, bottoms, strict=True):
        made.append((top << 16) | (bottom & 0xFFFF))
        made.append((top & -0x10000) | shift_unsigned(bottom, 16))
    return made
