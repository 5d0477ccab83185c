"""Approximate instructions: reciprocals, roots, powers, sines.

Each is one operation of the special function unit (:mod:`.special_unit`), alone or with
a few multiplications around it.  The sequences are those that ptxas 13.0 writes for
sm_90.  On an H200 they agree in every bit: see the page "Special functions".
"""

from __future__ import annotations

from collections.abc import Callable

from fragmenta.base.jit.trace import (
    F32,
    F64,
    I16,
    I32,
    I64,
    Number,
    Value,
    bits_of,
    compare_unsigned,
    convert,
    float_of,
    fma,
    larger,
    recast,
    scalar_type,
    select,
    smaller,
)
from fragmenta.ptx.opcodes import special_unit as unit
from fragmenta.ptx.opcodes.floating import computed
from fragmenta.ptx.opcodes.half import type_of, value_of
from fragmenta.ptx.opcodes.rounding import FORMATS, without_subnormals
from fragmenta.ptx.opcodes.table import Qualifiers, opcodes

_LEAST = 0x00800000
_LARGE = 0x7E800000
"""2**126: the reciprocal of a larger number is subnormal."""


def _float(number: float) -> int:
    """The bits of a power of two as f32."""
    mantissa, exponent = number.hex().split("p")
    assert mantissa == "0x1.0000000000000"
    return (int(exponent) + 127) << 23


def _times(x: Value, factor: Number) -> Value:
    """``FMUL``: the product of two f32, rounded to nearest."""
    return computed({}, "fmul", x, x.lift(factor))


def _times_ftz(x: Value, factor: Number) -> Value:
    """``FMUL.FTZ``: zero if the product is below the normal range.

    It is rounded to 24 bits before that is decided, not to the fewer bits of a
    subnormal number.
    """
    a, b = (without_subnormals(each, FORMATS["f32"]) for each in (x, x.lift(factor)))
    product = convert(float_of(a), F64) * convert(float_of(b), F64)  # exact
    tiny = abs(product) < 2.0**-126 - 2.0**-151
    return select(tiny, (a ^ b) & -0x80000000, _times(a, b))


def _scaled(x: Value, when: Value, factor: float) -> Value:
    """A number multiplied by a power of two where something holds."""
    return select(when, _times(x, _float(factor)), x)


def _subnormal(x: Value) -> Value:
    return (x & 0x7FFFFFFF) < _LEAST


# ── reciprocal and division ─────────────────────────────────────────────────


@opcodes(
    """
    rcp.approx{.ftz}.f32        d, a
    """,
    large=True,
    fidelity="h200",
)
def rcp(q: Qualifiers, a: Value) -> Value:
    """The reciprocal."""
    if q.get("ftz"):
        return unit.rcp(a)
    small, large = _subnormal(a), _beyond(a)
    for when, factor in ((small, 2.0**24), (large, 0.25)):
        a = _scaled(a, when, factor)
    result = unit.rcp(a)
    for when, factor in ((small, 2.0**24), (large, 0.25)):
        result = _scaled(result, when, factor)
    return result


def _beyond(x: Value) -> Value:
    """Whether a magnitude is above 2**126; false for NaN."""
    magnitude = x & 0x7FFFFFFF
    return (magnitude > _LARGE) & (magnitude <= unit.INFINITY)


@opcodes(
    """
    ; name = full
    div.approx{.ftz}.f32        d, a, b
    div.full{.ftz}.f32          d, a, b
    """,
    large=True,
    fidelity="h200",
)
def div(q: Qualifiers, a: Value, b: Value) -> Value:
    """The quotient: a multiplication by the divisor's reciprocal."""
    times = _times_ftz if q.get("ftz") else _times
    return times(*_factors(q, a, b))


# The two factors of a quotient.  They are no instructions of PTX: the assembler may
# fuse their product with a sum, see :mod:`fragmenta.ptx.ptxas.quotients`.
@opcodes(
    """
    _factors.approx{.ftz}.f32   d, p:f32, a, b
    _factors.full{.ftz}.f32     d, p:f32, a, b
    """,
    large=True,
    fidelity="h200",
)
def factors(q: Qualifiers, a: Value, b: Value) -> tuple[Value, Value]:
    """The reciprocal of the divisor, and the dividend, both scaled."""
    return _factors(q, a, b)


def _factors(q: Qualifiers, a: Value, b: Value) -> tuple[Value, Value]:
    times = _times_ftz if q.get("ftz") else _times
    scales = []
    if q.get("full"):
        scales.append((_beyond(b), 0.25))
    if not q.get("ftz"):
        scales.append((_subnormal(b), 2.0**24))
    for when, factor in scales:
        number = _float(factor)
        a = select(when, times(a, number), a)
        b = select(when, times(b, number), b)
    return unit.rcp(b), a


# ── roots, powers, logarithms ───────────────────────────────────────────────


@opcodes(
    """
    rsqrt.approx{.ftz}.f32      d, a
    """,
    large=True,
    fidelity="h200",
)
def rsqrt(q: Qualifiers, a: Value) -> Value:
    """One over the square root."""
    if q.get("ftz"):
        return unit.rsq(a)
    small = _subnormal(a)
    return _scaled(unit.rsq(_scaled(a, small, 2.0**24)), small, 2.0**12)


@opcodes(
    """
    sqrt.approx{.ftz}.f32       d, a
    """,
    large=True,
    fidelity="h200",
)
def sqrt(q: Qualifiers, a: Value) -> Value:
    """The square root."""
    if q.get("ftz"):
        return unit.sqrt(a)
    small = _subnormal(a)
    return _scaled(unit.sqrt(_scaled(a, small, 2.0**24)), small, 2.0**-12)


@opcodes(
    """
    ex2.approx{.ftz}.f32        d, a
    """,
    large=True,
    fidelity="h200",
)
def ex2(q: Qualifiers, a: Value) -> Value:
    """Two to the power of a."""
    if q.get("ftz"):
        return unit.ex2(a)
    # Where the result may be subnormal: the square of the root.
    low = float_of(a) < -126.0
    result = unit.ex2(_scaled(a, low, 0.5))
    return select(low, _times(result, result), result)


@opcodes(
    """
    lg2.approx{.ftz}.f32        d, a
    """,
    large=True,
    fidelity="h200",
)
def lg2(q: Qualifiers, a: Value) -> Value:
    """The logarithm to the base two."""
    if q.get("ftz"):
        return unit.lg2(a)
    small = _subnormal(a)
    result = unit.lg2(_scaled(a, small, 2.0**24))
    lower = computed({}, "fadd", result, bits_of(float_of(result).lift(-24.0)))
    return select(small, lower, result)


# ── sin, cos, tanh ──────────────────────────────────────────────────────────

_TURNS = float.fromhex("0x1.45f306p-3")
"""1 / (2 pi) as f32."""


def _turns(a: Value) -> Value:
    """An angle divided by 2 pi, rounded toward zero (``FMUL.RZ``)."""
    # The product is exact in f64.
    product = bits_of(convert(float_of(a), F64) * _TURNS)
    cut = float_of(product & -(1 << 29))
    return bits_of(convert(cut, F32))


@opcodes(
    """
    sin.approx{.ftz}.f32        d, a
    """,
    large=True,
    fidelity="h200",
)
def sin(q: Qualifiers, a: Value) -> Value:
    """The sine; ``.ftz`` changes nothing."""
    return unit.sin(_turns(a))


@opcodes(
    """
    cos.approx{.ftz}.f32        d, a
    """,
    large=True,
    fidelity="h200",
)
def cos(q: Qualifiers, a: Value) -> Value:
    """The cosine; ``.ftz`` changes nothing."""
    return unit.cos(_turns(a))


@opcodes(
    """
    tanh.approx.f32             d, a
    """,
    large=True,
    fidelity="h200",
)
def tanh(q: Qualifiers, a: Value) -> Value:
    """The hyperbolic tangent."""
    return unit.tanh(a)


# ── f16 and bf16 ────────────────────────────────────────────────────────────


def _half_cut(x: Value) -> Value:
    """The bits of an f32 as those of an f16, cut; beyond its range infinity."""
    magnitude = smaller(x & 0x7FFFFFFF, 0x47800000)
    normal = (magnitude - (112 << 23)) >> 13
    missing = smaller(larger(126 - (magnitude >> 23), 0), 31)
    subnormal = ((magnitude & 0x7FFFFF) | _LEAST) >> missing
    result = select(magnitude < (113 << 23), subnormal, normal)
    result = result | ((x >> 16) & 0x8000)
    return select((x & 0x7FFFFFFF) > unit.INFINITY, 0x7FFF, result)


def _narrow(q: Qualifiers, function: Callable[[Value], Value], a: Value) -> Value:
    """A function of 16-bit floats: that of f32, cut to 16 bits."""
    of, single = type_of(q), recast(a, I16)
    result = function(bits_of(value_of(single, of)))
    short = _half_cut(result) if of == "f16" else result >> 16
    return recast(convert(short, I16), scalar_type(a.type))


@opcodes(
    """
    ex2.approx.type             d, a ; type = f16 f16x2 ; ptx = 7.0
    ex2.approx.ftz.type         d, a ; type = bf16 bf16x2 ; ptx = 7.8 ; target = sm_90
    """,
    large=True,
    fidelity="h200",
)
def ex2_narrow(q: Qualifiers, a: Value) -> Value:
    """Two to the power of a 16-bit float, or of two of them."""
    return _narrow(q, unit.ex2, a)


@opcodes(
    """
    tanh.approx.type            d, a ; type = f16 f16x2 ; ptx = 7.0
    tanh.approx.type            d, a ; type = bf16 bf16x2 ; ptx = 7.8 ; target = sm_90
    """,
    large=True,
    fidelity="h200",
)
def tanh_narrow(q: Qualifiers, a: Value) -> Value:
    """The hyperbolic tangent of a 16-bit float, or of two of them."""
    return _narrow(q, unit.tanh, a)


# ── f64 ─────────────────────────────────────────────────────────────────────


def _upper(x: Value) -> Value:
    return convert(x >> 32, I32)


def _above(word: Value) -> Value:
    """An f64 whose upper word is given and whose lower word is zero."""
    return convert(word, I64) << 32


@opcodes(
    """
    rcp.approx.ftz.f64          d, a
    """,
    large=True,
    fidelity="h200",
)
def rcp_wide(q: Qualifiers, a: Value) -> Value:
    """The reciprocal of an f64's upper half."""
    return _above(unit.rcp64h(_upper(a)))


_LEAST_WIDE = 0x0010000000000000
_INFINITY_WIDE = 0x7FF0000000000000


def _refined(a: Value) -> Value:
    """The inverse root of an f64: the unit's, and one step that makes it better."""
    x, root = float_of(a), float_of(_above(unit.rsq64h(_upper(a))))
    error = fma(x, 0.0 - root * root, x.lift(1.0))
    factor = fma(error, x.lift(0.375), x.lift(0.5))
    return fma(factor, root * error, root)


@opcodes(
    """
    rsqrt.approx{.ftz}.f64      d, a
    """,
    large=True,
    fidelity="h200",
)
def rsqrt_wide(q: Qualifiers, a: Value) -> Value:
    """One over the square root of an f64; with ``.ftz``, of its upper half."""
    if q.get("ftz"):
        return _above(unit.rsq64h(_upper(a)))
    magnitude = a & ((1 << 63) - 1)
    small = magnitude < _LEAST_WIDE
    scaled = select(small, bits_of(float_of(a) * 2.0**54), a)
    found = _refined(scaled)
    result = bits_of(select(small, found * 2.0**27, found))
    result = select(magnitude == _INFINITY_WIDE, 0, result)
    result = select(a < 0, -(1 << 51), result)
    result = select(magnitude == 0, a | _INFINITY_WIDE, result)
    quiet = a | (1 << 51)
    return select(compare_unsigned(">", magnitude, _INFINITY_WIDE), quiet, result)
