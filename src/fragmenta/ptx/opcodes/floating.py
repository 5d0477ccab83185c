"""Instructions for f32 and f64.

Rounding to nearest is the host's own arithmetic, which follows IEEE 754.  What IEEE 754
leaves open was seen on an H200: which NaN is written, and what ``.ftz`` flushes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from fragmenta.base.jit.trace import (
    I32,
    I64,
    Value,
    bits_of,
    float_of,
    fma,
    is_nan,
    recast,
    root,
    scalar_type,
    select,
)
from fragmenta.ptx.opcodes.rounding import (
    FORMATS,
    FloatFormat,
    canonical,
    directed,
    saturated,
    without_subnormals,
)
from fragmenta.ptx.opcodes.table import Qualifiers, opcodes

Emit: TypeAlias = Callable[..., Value]

_NEAREST: dict[str, Emit] = {
    "fadd": lambda x, y: x + y,
    "fsub": lambda x, y: x - y,
    "fmul": lambda x, y: x * y,
    "fdiv": lambda x, y: x / y,
    "fma": fma,
    "sqrt": root,
}

# Which operand's NaN an f64 result has: the last of these that is NaN.  Seen on an H200.
_NAN_ORDER = {
    "fadd": (0, 1),
    "fsub": (0, 1),
    "fmul": (0, 1),
    "fdiv": (1, 0),
    "fma": (0, 2, 1),
    "sqrt": (0,),
}


def format_of(bits: Value) -> FloatFormat:
    """The format of a scalar f32 or f64 operand, by its width."""
    return FORMATS["f32" if scalar_type(bits.type) == I32 else "f64"]


def computed(q: Qualifiers, operation: str, *given: Value) -> Value:
    """An operation with the instruction's rounding, ``.ftz`` and ``.sat``."""
    if "f32x2" in q:
        single = {name: word for name, word in q.items() if name != "f32x2"}
        pairs = [recast(x, I32) for x in given]
        return recast(computed(single, operation, *pairs), I64)
    form = format_of(given[0])
    if q.get("ftz"):
        given = tuple(without_subnormals(x, form) for x in given)
    floats = [float_of(x) for x in given]
    mode = q.get("rnd") or "rn"
    result = _in_mode(mode, operation, floats)
    if q.get("sat"):
        bits = bits_of(saturated(result))
    else:
        bits = canonical(result, [floats[place] for place in _NAN_ORDER[operation]])
    if not q.get("ftz"):
        return bits
    if operation not in _SCALED:
        return without_subnormals(bits, form)
    return select(_tiny(mode, operation, floats), bits & -(1 << form.sign_at), bits)


def _in_mode(mode: str, operation: str, floats: list[Value]) -> Value:
    if mode == "rn":
        return _NEAREST[operation](*floats)
    return directed(mode, operation, *floats)


def _tiny(mode: str, operation: str, floats: list[Value]) -> Value:
    """Whether ``.ftz`` flushes a result.

    Seen on an H200: it does if the result, rounded to 24 bits whatever its exponent,
    is below the least normal number.  A number just below is rounded up to it only
    because a subnormal has fewer bits.  So the result is computed again, 2**32 times
    as large; where that is infinite, the result is not tiny.
    """
    scaled = [
        x * 2.0**32 if place in _SCALED[operation] else x
        for place, x in enumerate(floats)
    ]
    return abs(_in_mode(mode, operation, scaled)) < 2.0 ** (32 - 126)


# Which operands make a result larger.  Sums that are tiny are exact.
_SCALED = {"fmul": (0,), "fma": (0, 2), "fdiv": (0,)}


# ── add, sub, mul, fma ──────────────────────────────────────────────────────


@opcodes("""
    add{.rnd}{.ftz}{.sat}.f32   d, a, b ; rnd = rn rz rm rp
    add{.rnd}.f64               d, a, b ; rnd = rn rz rm rp
    add{.rnd}{.ftz}.f32x2       d, a, b ; rnd = rn rz rm rp ; ptx = 8.6 ; target = sm_100
""")
def add(q: Qualifiers, a: Value, b: Value) -> Value:
    """The sum."""
    return computed(q, "fadd", a, b)


@opcodes("""
    sub{.rnd}{.ftz}{.sat}.f32   d, a, b ; rnd = rn rz rm rp
    sub{.rnd}.f64               d, a, b ; rnd = rn rz rm rp
    sub{.rnd}{.ftz}.f32x2       d, a, b ; rnd = rn rz rm rp ; ptx = 8.6 ; target = sm_100
""")
def sub(q: Qualifiers, a: Value, b: Value) -> Value:
    """The difference."""
    return computed(q, "fsub", a, b)


@opcodes("""
    mul{.rnd}{.ftz}{.sat}.f32   d, a, b ; rnd = rn rz rm rp
    mul{.rnd}.f64               d, a, b ; rnd = rn rz rm rp
    mul{.rnd}{.ftz}.f32x2       d, a, b ; rnd = rn rz rm rp ; ptx = 8.6 ; target = sm_100
""")
def mul(q: Qualifiers, a: Value, b: Value) -> Value:
    """The product."""
    return computed(q, "fmul", a, b)


@opcodes("""
    fma.rnd{.ftz}{.sat}.f32     d, a, b, c ; rnd = rn rz rm rp
    fma.rnd.f64                 d, a, b, c ; rnd = rn rz rm rp
    fma.rnd{.ftz}.f32x2         d, a, b, c ; rnd = rn rz rm rp ; ptx = 8.6 ; target = sm_100
    mad.rnd{.ftz}{.sat}.f32     d, a, b, c ; rnd = rn rz rm rp
    mad.rnd.f64                 d, a, b, c ; rnd = rn rz rm rp
""")
def multiply_add(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """Product plus c with one rounding; ``mad`` is the same since sm_20."""
    return computed(q, "fma", a, b, c)


# ── div, rcp, sqrt ──────────────────────────────────────────────────────────


@opcodes("""
    div.rnd{.ftz}.f32           d, a, b ; rnd = rn rz rm rp
    div.rnd.f64                 d, a, b ; rnd = rn rz rm rp
""")
def div(q: Qualifiers, a: Value, b: Value) -> Value:
    """The quotient."""
    return computed(q, "fdiv", a, b)


@opcodes("""
    rcp.rnd{.ftz}.f32           d, a ; rnd = rn rz rm rp
    rcp.rnd.f64                 d, a ; rnd = rn rz rm rp
""")
def rcp(q: Qualifiers, a: Value) -> Value:
    """The reciprocal."""
    return computed(q, "fdiv", bits_of(float_of(a).lift(1.0)), a)


@opcodes("""
    sqrt.rnd{.ftz}.f32          d, a ; rnd = rn rz rm rp
    sqrt.rnd.f64                d, a ; rnd = rn rz rm rp
""")
def sqrt(q: Qualifiers, a: Value) -> Value:
    """The square root."""
    return computed(q, "sqrt", a)


# ── signs ───────────────────────────────────────────────────────────────────


def _unary(q: Qualifiers, a: Value, bits: Value) -> Value:
    if q.get("ftz"):
        bits = without_subnormals(bits, format_of(a))
    return canonical(float_of(bits), [float_of(a)])


@opcodes("""
    neg{.ftz}.f32               d, a
    neg.f64                     d, a
""")
def neg(q: Qualifiers, a: Value) -> Value:
    """The number with the other sign."""
    return _unary(q, a, a ^ -(1 << format_of(a).sign_at))


@opcodes("""
    abs{.ftz}.f32               d, a
    abs.f64                     d, a
""")
def absolute(q: Qualifiers, a: Value) -> Value:
    """The number without its sign."""
    return _unary(q, a, a & ((1 << format_of(a).sign_at) - 1))


@opcodes("""
    copysign.type               d, a, b ; type = f32 f64
""")
def copysign(q: Qualifiers, a: Value, b: Value) -> Value:
    """b with the sign of a."""
    sign = 1 << format_of(a).sign_at
    return (a & -sign) | (b & (sign - 1))


@opcodes("""
    testp.op.type               p:pred, a ; op = finite infinite number notanumber normal subnormal ; type = f32 f64
""")
def testp(q: Qualifiers, a: Value) -> Value:
    """Whether a number is of a kind."""
    form = format_of(a)
    magnitude = a & ((1 << form.sign_at) - 1)
    infinity, least = form.largest + 1, 1 << form.fraction_bits
    tests: dict[str, Callable[[], Value]] = {
        "finite": lambda: magnitude < infinity,
        "infinite": lambda: magnitude == infinity,
        "number": lambda: magnitude <= infinity,
        "notanumber": lambda: magnitude > infinity,
        # Zero counts as normal.
        "normal": lambda: (
            (magnitude < infinity) & (magnitude >= least) | (magnitude == 0)
        ),
        "subnormal": lambda: (magnitude < least) & (magnitude > 0),
    }
    return tests[q["op"]]()


# ── min and max ─────────────────────────────────────────────────────────────


def extreme(name: str, x: Value, y: Value, *, nan: bool) -> Value:
    """The smaller or larger of two f32 or f64 values, as bits; -0 is below +0.

    Of a number and a NaN it is the number; with ``nan`` it is NaN.
    """
    a, b = bits_of(x), bits_of(y)
    both, first = (a | b, x < y) if name == "min" else (a & b, x > y)
    # Equal numbers have equal bits, unless they are zeros.
    result = select(first, a, select(x == y, both, b))
    result = select(is_nan(x if nan else y), a, result)
    return canonical(float_of(result), [x, y])


def _extreme(q: Qualifiers, name: str, a: Value, b: Value) -> Value:
    form = format_of(a)
    if q.get("ftz"):
        a, b = without_subnormals(a, form), without_subnormals(b, form)
    sign = -(1 << form.sign_at)
    signs = (a ^ b) & sign
    if q.get("xorsign") or q.get("abs"):
        a, b = a & ~sign, b & ~sign
    result = extreme(name, float_of(a), float_of(b), nan=bool(q.get("NaN")))
    if not q.get("xorsign"):
        return result
    return select(is_nan(float_of(result)), result, result | signs)


@opcodes("""
    min{.ftz}.f32                      d, a, b
    min{.ftz}.NaN.f32                  d, a, b ; ptx = 7.0 ; target = sm_80
    min{.ftz}{.NaN}.xorsign.abs.f32    d, a, b ; ptx = 7.2 ; target = sm_86
    min{.ftz}{.NaN}{.abs}.f32          d, a, b, c ; ptx = 8.8 ; target = sm_100
    min.f64                            d, a, b
""")
def minimum(q: Qualifiers, a: Value, *more: Value) -> Value:
    """The smallest operand."""
    for other in more:
        a = _extreme(q, "min", a, other)
    return a


@opcodes("""
    max{.ftz}.f32                      d, a, b
    max{.ftz}.NaN.f32                  d, a, b ; ptx = 7.0 ; target = sm_80
    max{.ftz}{.NaN}.xorsign.abs.f32    d, a, b ; ptx = 7.2 ; target = sm_86
    max{.ftz}{.NaN}{.abs}.f32          d, a, b, c ; ptx = 8.8 ; target = sm_100
    max.f64                            d, a, b
""")
def maximum(q: Qualifiers, a: Value, *more: Value) -> Value:
    """The largest operand."""
    for other in more:
        a = _extreme(q, "max", a, other)
    return a
