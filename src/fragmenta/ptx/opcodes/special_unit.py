"""The special function unit, bit for bit.

These are the operations of ``MUFU`` in an H200's machine code, by their names there.
Each takes and returns the bits of numbers, i32.  A number is looked up in three steps:
the high bits of its fraction choose a segment, the low bits ``l`` go into a quadratic
polynomial with integer coefficients, and the sum is cut, never rounded.  Subnormal
numbers count as zero, also as results; only ``tanh`` passes them on.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
    F64,
    I32,
    I64,
    Memory,
    Value,
    bits_of,
    convert,
    each_lane,
    joined,
    larger,
    select,
    smaller,
)
from fragmenta.ptx.opcodes import special_tables as tables

INFINITY = 0x7F800000
NAN = 0x7FFFFFFF
_MAGNITUDE = 0x7FFFFFFF
_SIGN = -0x80000000
_FRACTION = 0x7FFFFF
_LEAST = 0x800000
"""The smallest normal f32."""


# ── the interpolation ───────────────────────────────────────────────────────


def square(low: Value) -> Value:
    """The square of a number below 2**17, divided by 2**19, without some low bits.

    The unit adds the partial products, but only their bits from 2**18 on.  A product of
    the upper eight bits with themselves has no bits below; one with the lower nine has.
    """
    upper, lower = low >> 9, low & 0x1FF
    total = (upper * upper) >> 1
    for place in range(1, 8):
        chosen = 0 - ((upper >> place) & 1)
        total = total + (chosen & (lower >> (9 - place)))
    return total


def interpolated(
    table: tables.LookupTable, segment: Value, low: Value, doubled: Value | None = None
) -> Value:
    """The polynomial of a segment as i64; ``doubled`` is what is squared, if not low."""
    columns = zip(*table.rows, strict=True)
    name = f"special.{table.name}"
    c0, c1, c2 = (
        _looked_up(f"{name}.{number}", column, I64, segment)
        for number, column in enumerate(columns)
    )
    squared = square(low if doubled is None else doubled)
    return c0 + c1 * convert(low, I64) + c2 * convert(squared, I64)


def _looked_up(name: str, numbers: Sequence[int], of: Type, place: Value) -> Value:
    """The number at a place, for each lane; the table becomes part of the module."""
    b = place.builder
    table = b.module.globals.get(name)
    if table is None:
        kind = ir.ArrayType(of, len(numbers))
        table = ir.GlobalVariable(b.module, kind, name)
        table.initializer = ir.Constant(kind, list(numbers))
        table.global_constant, table.linkage = True, "internal"

    memory = Memory(b, b.bitcast(table, of.as_pointer()), of)
    if not isinstance(place.type, ir.VectorType):
        return memory[place]
    return joined([memory[index] for index in each_lane(place)])


def _word(x: Value) -> Value:
    return convert(x, I32)


def _fields(x: Value) -> tuple[Value, Value, Value]:
    """The magnitude, the exponent's bits, and the fraction."""
    magnitude = x & _MAGNITUDE
    return magnitude, magnitude >> 23, magnitude & _FRACTION


def _cut(x: Value, point: Value | int) -> Value:
    """A non-negative i64 with so many bits after the point as f32, cut to 24 bits."""
    # An f64 holds it exactly: it has at most 53 bits.
    bits = bits_of(convert(x, F64)) >> 29
    exponent = _word(bits) - ((point + (1023 - 127)) << 23)
    return select(x == 0, 0, exponent)


def _flushed(x: Value) -> Value:
    return select(x < _LEAST, 0, x)


# ── reciprocal and roots ────────────────────────────────────────────────────


def rcp(x: Value) -> Value:
    """``MUFU.RCP``: 1 / x."""
    magnitude, exponent, fraction = _fields(x)
    result = _flushed(((252 - exponent) << 23) + _reciprocal(fraction))
    result = select(exponent == 0, INFINITY, result) | (x & _SIGN)
    return select(magnitude > INFINITY, NAN, result)


def _reciprocal(fraction: Value) -> Value:
    """1 / (1 + fraction), with 24 bits after the point."""
    low = fraction & 0xFFFF
    table = tables.RCP
    return _word(interpolated(table, fraction >> 16, low, low << 1) >> table.shift)


def _segment(odd: Value, fraction: Value) -> Value:
    """The segment of a root: there are 64 for each parity of the exponent."""
    return (odd << 6) | (fraction >> 17)


def _inverse_root(odd: Value, fraction: Value) -> Value:
    """1 / sqrt(1 + fraction) or 1 / sqrt(2 + 2 * fraction), 24 bits after the point."""
    table = tables.RSQ
    found = interpolated(table, _segment(odd, fraction), fraction & 0x1FFFF)
    # The one result that is a power of two.
    return select((fraction | odd) == 0, 1 << 24, _word(found >> table.shift))


def rsq(x: Value) -> Value:
    """``MUFU.RSQ``: 1 / sqrt(x)."""
    magnitude, exponent, fraction = _fields(x)
    root = _inverse_root((exponent + 1) & 1, fraction)
    result = ((125 - ((exponent - 127) >> 1)) << 23) + root
    result = select(magnitude == INFINITY, 0, result)
    result = select(x < 0, NAN, result)
    result = select(exponent == 0, (x & _SIGN) | INFINITY, result)
    return select(magnitude > INFINITY, NAN, result)


def sqrt(x: Value) -> Value:
    """``MUFU.SQRT``: the square root."""
    magnitude, exponent, fraction = _fields(x)
    table, odd = tables.SQRT, (exponent + 1) & 1
    found = interpolated(table, _segment(odd, fraction), fraction & 0x1FFFF)
    result = ((126 + ((exponent - 127) >> 1)) << 23) + _word(found >> table.shift)
    result = select(magnitude == INFINITY, INFINITY, result)
    result = select(x < 0, NAN, result)
    result = select(exponent == 0, x & _SIGN, result)
    return select(magnitude > INFINITY, NAN, result)


# ── exponential and logarithm ───────────────────────────────────────────────


def _fixed(exponent: Value, fraction: Value, most: int) -> Value:
    """A magnitude with 23 bits after the point, cut; ``exponent`` is not biased."""
    significand = fraction | _LEAST
    left = significand << smaller(larger(exponent, 0), most)
    right = significand >> smaller(larger(0 - exponent, 0), 31)
    return select(exponent >= 0, left, right)


def ex2(x: Value) -> Value:
    """``MUFU.EX2``: two to the power of x."""
    magnitude, biased, fraction = _fields(x)
    exponent = biased - 127
    fixed = _fixed(exponent, fraction, 6)
    # Below zero every bit is inverted, which is off by one, but not for integers.
    inverted = select((fixed & _FRACTION) == 0, 0 - fixed, ~fixed)
    fixed = select(x < 0, inverted, fixed)
    rest, table = fixed & _FRACTION, tables.EX2
    found = interpolated(table, rest >> 17, rest & 0x1FFFF) >> table.shift
    result = _flushed((((fixed >> 23) + 126) << 23) + _word(found))
    result = select(exponent >= 7, select(x < 0, x.lift(0), INFINITY), result)
    return select(magnitude > INFINITY, NAN, result)


def lg2(x: Value) -> Value:
    """``MUFU.LG2``: the logarithm to the base two."""
    magnitude, exponent, fraction = _fields(x)
    table = tables.LG2
    found = interpolated(table, fraction >> 17, fraction & 0x1FFFF) >> table.shift
    total = found + (convert(exponent - 127, I64) << 36)
    total = select(magnitude == 0x3F800000, 0, total)
    # Every bit of a negative logarithm is inverted, which is off by one.
    negative = total < 0
    result = _cut(select(negative, ~total, total), 36) | select(
        negative, x.lift(_SIGN), 0
    )
    result = select(magnitude == INFINITY, INFINITY, result)
    result = select(x < 0, NAN, result)
    result = select(exponent == 0, INFINITY | _SIGN, result)
    return select(magnitude > INFINITY, NAN, result)


# ── trigonometric and hyperbolic functions ──────────────────────────────────


def sin(x: Value) -> Value:
    """``MUFU.SIN``: the sine of x turns."""
    return _wave(x, 0, x & _SIGN)


def cos(x: Value) -> Value:
    """``MUFU.COS``: the cosine of x turns."""
    return _wave(x, 1, x.lift(0))


def _wave(x: Value, ahead: int, sign: Value) -> Value:
    """The sine of abs(x) turns and ``ahead`` quarters, with a sign put before it."""
    magnitude, exponent, fraction = _fields(x)
    # In quarter turns.  A shift by 25 leaves no part of a turn.
    fixed = _fixed(exponent - 125, fraction, 25)
    quarter = ((fixed >> 23) + ahead) & 3
    angle = fixed & _FRACTION
    angle = select((quarter & 1) == 1, angle ^ _FRACTION, angle)
    found = interpolated(tables.SIN, angle >> 17, angle & 0x1FFFF)
    result = _cut(found, 37) | (sign ^ ((quarter >> 1) << 31))
    return select(magnitude >= INFINITY, NAN, result)


# The bits of the fraction that choose a segment, for exponents from -8 to 2.
_TANH_BITS = (0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3)
_TANH_FIRST = tuple(sum(1 << n for n in _TANH_BITS[:k]) for k in range(11))


def tanh(x: Value) -> Value:
    """``MUFU.TANH``: the hyperbolic tangent."""
    magnitude, biased, fraction = _fields(x)
    exponent = biased - 127
    place = smaller(larger(exponent, -8), 2) + 8
    first = _looked_up("special.TANH.first", _TANH_FIRST, I32, place)
    chosen = _looked_up("special.TANH.bits", _TANH_BITS, I32, place)
    kept = fraction >> (6 - chosen)
    found = interpolated(tables.TANH, first + (kept >> 17), kept & 0x1FFFF)
    result = _cut(found, 48 - place)
    result = select(exponent < -8, magnitude, result)
    result = select(exponent > 2, 0x3F800000, result) | (x & _SIGN)
    return select(magnitude > INFINITY, NAN, result)


# ── the upper words of f64 ──────────────────────────────────────────────────

_WIDE_INFINITY = 0x7FF00000
_WIDE_LEAST = 0x100000


def rcp64h(x: Value) -> Value:
    """``MUFU.RCP64H``: the upper word of 1 / x, of the upper word of x."""
    magnitude = x & _MAGNITUDE
    exponent, fraction = magnitude >> 20, magnitude & 0xFFFFF
    result = ((2044 - exponent) << 20) + (_reciprocal(fraction << 3) >> 3)
    result = select(result < _WIDE_LEAST, 0, result)
    result = select(exponent == 0, _WIDE_INFINITY, result) | (x & _SIGN)
    return select(magnitude > _WIDE_INFINITY, NAN, result)


def rsq64h(x: Value) -> Value:
    """``MUFU.RSQ64H``: the upper word of 1 / sqrt(x), of the upper word of x."""
    magnitude = x & _MAGNITUDE
    exponent, fraction = magnitude >> 20, magnitude & 0xFFFFF
    root = _inverse_root((exponent + 1) & 1, fraction << 3) >> 3
    result = ((1021 - ((exponent - 1023) >> 1)) << 20) + root
    result = select(magnitude == _WIDE_INFINITY, 0, result)
    result = select(x < 0, NAN, result)
    result = select(exponent == 0, (x & _SIGN) | _WIDE_INFINITY, result)
    return select(magnitude > _WIDE_INFINITY, NAN, result)
