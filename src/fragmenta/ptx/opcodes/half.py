"""Instructions for f16 and bf16, alone, in pairs and with f32.

Sums and products are computed in f32 and rounded again.  That is exact: f32 has more
than twice the precision of both formats, and two bits more.  A fused product and sum
needs f64, and for bf16 a last bit that says whether the sum is exact.
"""

from __future__ import annotations

from collections.abc import Callable

from fragmenta.base.jit.trace import (
    F32,
    F64,
    I16,
    Value,
    bits_of,
    convert,
    float_of,
    recast,
    scalar_type,
    select,
)
from fragmenta.ptx.opcodes.floating import computed, extreme
from fragmenta.ptx.opcodes.rounding import (
    FORMATS,
    bfloat_bits,
    bfloat_value,
    half_bits,
    half_value,
    saturated,
    without_negative,
    without_subnormals,
)
from fragmenta.ptx.opcodes.table import Qualifiers, opcodes

_OUTSIDE = 0x7FF7
_TYPES = ("f16", "f16x2", "bf16", "bf16x2")


def type_of(q: Qualifiers) -> str:
    """``f16`` or ``bf16``: the format of an instruction for 16-bit operands."""
    word = q.get("type") or next(word for word in _TYPES if q.get(word))
    return word.removesuffix("x2")


def value_of(bits: Value, of: str) -> Value:
    """The f32 values of 16-bit floats."""
    return half_value(bits) if of == "f16" else bfloat_value(bits)


def rounded(x: Value, of: str) -> Value:
    """f32 values rounded to 16-bit floats, as i16."""
    return convert(half_bits(x) if of == "f16" else bfloat_bits(x), I16)


def elementwise(emit: Callable[..., Value]) -> Callable[..., Value]:
    """The function for single operands and for pairs, which are twice as many."""

    def each(q: Qualifiers, *given: Value) -> Value:
        of = type_of(q)
        single = [recast(x, I16) for x in given]
        if q.get("ftz"):
            single = [without_subnormals(x, FORMATS[of]) for x in single]
        return recast(emit(q, of, *single), scalar_type(given[0].type))

    each.__doc__ = emit.__doc__
    return each


# ── add, sub, mul ───────────────────────────────────────────────────────────


def _finished(q: Qualifiers, of: str, x: Value) -> Value:
    """An f32 value rounded, with ``.sat``, ``.relu`` and ``.ftz``."""
    bits = rounded(saturated(x) if q.get("sat") else x, of)
    if q.get("relu"):
        bits = without_negative(bits, FORMATS[of])
    if not q.get("ftz"):
        return bits
    # Seen on an H200: flushed is what 11 bits and any exponent do not round up.
    tiny = abs(x) < 2.0**-14 - 2.0**-26
    return select(tiny, bits & -0x8000, bits)


@opcodes(
    """
    add{.rnd}{.ftz}{.sat}.type  d, a, b ; rnd = rn ; type = f16 f16x2
    add{.rnd}.type              d, a, b ; rnd = rn ; type = bf16 bf16x2 ; ptx = 7.8 ; target = sm_90
    """,
    large=True,
)
@elementwise
def add(q: Qualifiers, of: str, a: Value, b: Value) -> Value:
    """The sum."""
    return _finished(q, of, value_of(a, of) + value_of(b, of))


@opcodes(
    """
    sub{.rnd}{.ftz}{.sat}.type  d, a, b ; rnd = rn ; type = f16 f16x2
    sub{.rnd}.type              d, a, b ; rnd = rn ; type = bf16 bf16x2 ; ptx = 7.8 ; target = sm_90
    """,
    large=True,
)
@elementwise
def sub(q: Qualifiers, of: str, a: Value, b: Value) -> Value:
    """The difference."""
    return _finished(q, of, value_of(a, of) - value_of(b, of))


@opcodes(
    """
    mul{.rnd}{.ftz}{.sat}.type  d, a, b ; rnd = rn ; type = f16 f16x2
    mul{.rnd}.type              d, a, b ; rnd = rn ; type = bf16 bf16x2 ; ptx = 7.8 ; target = sm_90
    """,
    large=True,
)
@elementwise
def mul(q: Qualifiers, of: str, a: Value, b: Value) -> Value:
    """The product."""
    return _finished(q, of, value_of(a, of) * value_of(b, of))


# ── fma ─────────────────────────────────────────────────────────────────────


def odd_sum(x: Value, y: Value) -> Value:
    """x + y of f64 values; if it is not exact, the neighbour whose last bit is 1."""
    total = x + y
    part = total - x
    error = (x - (total - part)) + (y - part)
    bits = bits_of(total)
    inexact = ((error > 0.0) | (error < 0.0)) & ((bits & 1) == 0)
    outward = (error > 0.0) == (total > 0.0)
    moved = select(outward, bits + 1, bits - 1)
    return float_of(select(inexact, moved, bits))


def odd_single(x: Value) -> Value:
    """An f64 value as f32; if that is not exact, the neighbour whose last bit is 1."""
    near = convert(x, F32)
    back = convert(near, F64)
    bits = bits_of(near)
    lower = select(abs(back) > abs(x), bits - 1, bits) | 1
    inexact = (back < x) | (back > x)
    return float_of(select(inexact, lower, bits))


@opcodes(
    """
    fma.rnd{.ftz}{.sat}.type    d, a, b, c ; rnd = rn ; type = f16 f16x2
    fma.rnd{.ftz}.relu.type     d, a, b, c ; rnd = rn ; type = f16 f16x2 ; ptx = 7.0 ; target = sm_80
    fma.rnd{.relu}.type         d, a, b, c ; rnd = rn ; type = bf16 bf16x2 ; ptx = 7.0 ; target = sm_80
    fma.rnd.oob{.relu}.type     d, a, b, c ; rnd = rn ; type = f16 f16x2 bf16 bf16x2 ; ptx = 8.1 ; target = sm_90
    """,
    large=True,
)
@elementwise
def fma(q: Qualifiers, of: str, a: Value, b: Value, c: Value) -> Value:
    """Product plus c with one rounding."""
    x, y, z = (convert(value_of(each, of), F64) for each in (a, b, c))
    # The sum of an f16 and a product of two is exact in f64, or far from a tie.
    total = x * y + z if of == "f16" else odd_sum(x * y, z)
    result = _finished(q, of, odd_single(total))
    if not q.get("oob"):
        return result
    # The NaN that a copy engine writes outside a tensor, in a or b.
    outside = ((a & 0x7FFF) == _OUTSIDE) | ((b & 0x7FFF) == _OUTSIDE)
    return select(outside, 0, result)


# ── neg, abs, min, max ──────────────────────────────────────────────────────


def _canonical(bits: Value, of: str) -> Value:
    infinity = FORMATS[of].largest + 1
    return select((bits & 0x7FFF) > infinity, 0x7FFF, bits)


@opcodes(
    """
    neg{.ftz}.type              d, a ; type = f16 f16x2
    neg.type                    d, a ; type = bf16 bf16x2 ; ptx = 7.0 ; target = sm_80
    """,
    large=True,
)
@elementwise
def neg(q: Qualifiers, of: str, a: Value) -> Value:
    """The number with the other sign."""
    return _canonical(a ^ -0x8000, of)


@opcodes(
    """
    abs{.ftz}.type              d, a ; type = f16 f16x2 ; ptx = 6.5
    abs.type                    d, a ; type = bf16 bf16x2 ; ptx = 7.0 ; target = sm_80
    """,
    large=True,
)
@elementwise
def absolute(q: Qualifiers, of: str, a: Value) -> Value:
    """The number without its sign."""
    return _canonical(a & 0x7FFF, of)


def _extreme(q: Qualifiers, of: str, name: str, given: tuple[Value, ...]) -> Value:
    signs = (given[0] ^ given[1]) & -0x8000
    if q.get("abs"):
        given = tuple(x & 0x7FFF for x in given)
    first, *others = (value_of(x, of) for x in given)
    for other in others:
        bits = extreme(name, first, other, nan=bool(q.get("NaN")))
        first = float_of(bits)
    result = rounded(first, of)
    return _canonical(result | signs, of) if q.get("xorsign") else result


@opcodes(
    """
    min{.ftz}{.NaN}.type              d, a, b ; type = f16 f16x2 ; ptx = 7.0 ; target = sm_80
    min{.ftz}{.NaN}.xorsign.abs.type  d, a, b ; type = f16 f16x2 ; ptx = 7.2 ; target = sm_86
    min{.NaN}.type                    d, a, b ; type = bf16 bf16x2 ; ptx = 7.0 ; target = sm_80
    min{.NaN}.xorsign.abs.type        d, a, b ; type = bf16 bf16x2 ; ptx = 7.2 ; target = sm_86
    """,
    large=True,
)
@elementwise
def minimum(q: Qualifiers, of: str, *given: Value) -> Value:
    """The smallest operand."""
    return _extreme(q, of, "min", given)


@opcodes(
    """
    max{.ftz}{.NaN}.type              d, a, b ; type = f16 f16x2 ; ptx = 7.0 ; target = sm_80
    max{.ftz}{.NaN}.xorsign.abs.type  d, a, b ; type = f16 f16x2 ; ptx = 7.2 ; target = sm_86
    max{.NaN}.type                    d, a, b ; type = bf16 bf16x2 ; ptx = 7.0 ; target = sm_80
    max{.NaN}.xorsign.abs.type        d, a, b ; type = bf16 bf16x2 ; ptx = 7.2 ; target = sm_86
    """,
    large=True,
)
@elementwise
def maximum(q: Qualifiers, of: str, *given: Value) -> Value:
    """The largest operand."""
    return _extreme(q, of, "max", given)


# ── f32 with 16-bit operands ────────────────────────────────────────────────


def _wide(bits: Value, of: str) -> Value:
    return bits_of(value_of(bits, of))


@opcodes("""
    add{.rnd}{.sat}.f32.atype       d:f32, a:atype, c:f32 ; rnd = rn rz rm rp ; atype = f16 bf16 ; ptx = 8.6 ; target = sm_100
""")
def add_mixed(q: Qualifiers, a: Value, c: Value) -> Value:
    """The sum of a 16-bit float and an f32."""
    return computed(q, "fadd", _wide(a, q["atype"]), c)


@opcodes("""
    sub{.rnd}{.sat}.f32.atype       d:f32, a:atype, c:f32 ; rnd = rn rz rm rp ; atype = f16 bf16 ; ptx = 8.6 ; target = sm_100
""")
def sub_mixed(q: Qualifiers, a: Value, c: Value) -> Value:
    """A 16-bit float less an f32."""
    return computed(q, "fsub", _wide(a, q["atype"]), c)


@opcodes("""
    fma.rnd{.sat}.f32.abtype        d:f32, a:abtype, b:abtype, c:f32 ; rnd = rn rz rm rp ; abtype = f16 bf16 ; ptx = 8.6 ; target = sm_100
""")
def fma_mixed(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """The product of 16-bit floats plus an f32, with one rounding."""
    return computed(q, "fma", _wide(a, q["abtype"]), _wide(b, q["abtype"]), c)
