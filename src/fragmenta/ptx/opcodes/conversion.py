"""``cvt`` between floating-point types, and to and from integers.

Conversions that kernels use all the time are a few vector instructions.  All others
take a number apart and round it with integers.
"""

from __future__ import annotations

from collections.abc import Callable

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
    ceiling,
    convert,
    float_of,
    floor,
    is_nan,
    nearest,
    select,
    to_integer,
    truncate,
)
from fragmenta.ptx.opcodes.half import rounded, value_of
from fragmenta.ptx.opcodes.rounding import (
    FORMATS,
    canonical,
    encode,
    parts_of_float,
    parts_of_integer,
    saturated,
    truncated_nan,
    without_negative,
    without_subnormals,
)
from fragmenta.ptx.opcodes.table import Qualifiers, opcodes

_WIDTHS: dict[int, Type] = {8: I8, 16: I16, 32: I32, 64: I64}


def integer_type(name: str) -> Type:
    """The type of the bits of a PTX integer or float type."""
    return _WIDTHS[int(name.lstrip("usbf"))]


def types_of(q: Qualifiers) -> tuple[str, str]:
    """The types of the result and of the operand."""
    named = [q[word] for word in q if word in FORMATS or word in ("dtype", "atype")]
    return named[0], named[-1]


def source(q: Qualifiers, a: Value, of: str) -> Value:
    """The floats of an operand, f32 or f64; ``.ftz`` flushes f32 subnormals.

    To f16 it does not: seen on an H200.
    """
    if of in ("f16", "bf16"):
        return value_of(a, of)
    if of == "f32" and q.get("ftz") and not q.get("f16"):
        a = without_subnormals(a, FORMATS["f32"])
    return float_of(a)


# ── to integers ─────────────────────────────────────────────────────────────

_TO_INTEGRAL: dict[str, Callable[[Value], Value]] = {
    "rni": nearest,
    "rzi": truncate,
    "rmi": floor,
    "rpi": ceiling,
}


@opcodes(
    """
    ; kind = converts
    cvt.irnd{.ftz}{.sat}.dtype.f32  d:dtype, a:f32 ; irnd = rni rzi rmi rpi ; dtype = u8 u16 u32 u64 s8 s16 s32 s64
    cvt.irnd{.sat}.dtype.f64        d:dtype, a:f64 ; irnd = rni rzi rmi rpi ; dtype = u8 u16 u32 u64 s8 s16 s32 s64
    cvt.irnd{.sat}.dtype.f16        d:dtype, a:f16 ; irnd = rni rzi rmi rpi ; dtype = u8 u16 u32 u64 s8 s16 s32 s64
    cvt.irnd.dtype.bf16             d:dtype, a:bf16 ; irnd = rni rzi rmi rpi ; dtype = u16 u32 u64 s16 s32 s64 ; ptx = 7.8 ; target = sm_90
""",
    fidelity="h200",
)
def to_integers(q: Qualifiers, a: Value) -> Value:
    """A float rounded to an integer; beyond the range the nearest integer in it."""
    name, of = types_of(q)
    x = source(q, a, of)
    if q["irnd"] != "rzi":  # the conversion truncates
        x = _TO_INTEGRAL[q["irnd"]](x)
    to = integer_type(name)
    result = to_integer(x, to, signed=name[0] == "s")
    # Seen on an H200: NaN becomes 0, or the highest bit alone if 64 bits are involved.
    if of == "f64" or to == I64:
        result = select(is_nan(x), -(1 << (to.width - 1)), result)
    return result


# ── from integers ───────────────────────────────────────────────────────────


@opcodes("""
    ; kind = converts
    cvt.rn{.ftz}.f32.atype          d:f32, a:atype ; atype = u8 u16 u32 s8 s16 s32
    cvt.rn.f64.atype                d:f64, a:atype ; atype = u8 u16 u32 u64 s8 s16 s32 s64
""")
def from_integers(q: Qualifiers, a: Value) -> Value:
    """An integer as the nearest f32 or f64."""
    to = F32 if q.get("f32") else F64
    return bits_of(convert(a, to, signed=q["atype"][0] == "s"))


@opcodes("""
    ; kind = converts
    cvt.rn.f16.atype                d:f16, a:atype ; atype = u8 u16 s8 s16
    cvt.rn.bf16.atype               d:bf16, a:atype ; atype = u16 s16 ; ptx = 7.8 ; target = sm_90
""")
def half_from_integers(q: Qualifiers, a: Value) -> Value:
    """A small integer, which f32 has exactly, as the nearest 16-bit float."""
    x = convert(a, F32, signed=q["atype"][0] == "s")
    return rounded(x, types_of(q)[0])


@opcodes(
    """
    ; kind = converts
    cvt.rn{.ftz}.f32.atype          d:f32, a:atype ; atype = u64 s64
    cvt.rn{.ftz}.sat.f32.atype      d:f32, a:atype ; atype = u8 u16 u32 u64 s8 s16 s32 s64
    cvt.rnd{.ftz}{.sat}.f32.atype   d:f32, a:atype ; rnd = rz rm rp ; atype = u8 u16 u32 u64 s8 s16 s32 s64
    cvt.rn.f16.atype                d:f16, a:atype ; atype = u32 u64 s32 s64
    cvt.rn.sat.dtype.atype          d:dtype, a:atype ; dtype = f16 f64 ; atype = u8 u16 u32 u64 s8 s16 s32 s64
    cvt.rnd{.sat}.dtype.atype       d:dtype, a:atype ; rnd = rz rm rp ; dtype = f16 f64 ; atype = u8 u16 u32 u64 s8 s16 s32 s64
    cvt.rn.bf16.atype               d:bf16, a:atype ; atype = u32 u64 s32 s64 ; ptx = 7.8 ; target = sm_90
    cvt.rnd.bf16.atype              d:bf16, a:atype ; rnd = rz rm rp ; atype = u16 u32 u64 s16 s32 s64 ; ptx = 7.8 ; target = sm_90
    """,
    large=True,
)
def from_integers_rounded(q: Qualifiers, a: Value) -> Value:
    """An integer as a float, in any rounding mode."""
    of, mode = types_of(q)[0], q.get("rnd") or "rn"
    signed = q["atype"][0] == "s"
    if q.get("sat"):
        positive = a > 0 if signed else a != 0
        a = select(positive, a.lift(1), 0)
    return finished(encode(parts_of_integer(a, signed=signed), FORMATS[of], mode), of)


def finished(bits: Value, of: str) -> Value:
    """64 bits cut to the width of a type."""
    return convert(bits, _WIDTHS[FORMATS[of].sign_at + 1])


# ── between f32, f64 and 16 bits ────────────────────────────────────────────


@opcodes("""
    ; kind = converts
    cvt.f32.f32                     d:f32, a:f32
    cvt.f64.f64                     d:f64, a:f64
""")
def same(q: Qualifiers, a: Value) -> Value:
    """The same bits, also of a NaN."""
    return a


@opcodes("""
    ; kind = converts
    cvt{.rnd}.f32.bf16              d:f32, a:bf16 ; rnd = rn rz rm rp ; ptx = 7.1 ; target = sm_80
""")
def single_from_bfloat(q: Qualifiers, a: Value) -> Value:
    """A bf16 as f32: zeros are appended, also to a NaN."""
    return bits_of(value_of(a, "bf16"))


@opcodes("""
    ; kind = converts
    cvt{.ftz}{.sat}.f32.f16         d:f32, a:f16
    cvt{.rnd}.ftz.f32.bf16          d:f32, a:bf16 ; rnd = rn rz rm rp ; ptx = 7.8 ; target = sm_90
    cvt{.sat}.f64.f16               d:f64, a:f16
    cvt{.rnd}.f64.bf16              d:f64, a:bf16 ; rnd = rn rz rm rp ; ptx = 7.8 ; target = sm_90
    cvt{.ftz}{.sat}.f64.f32         d:f64, a:f32
    cvt.ftz{.sat}.f32.f32           d:f32, a:f32
    cvt.sat.f32.f32                 d:f32, a:f32
    cvt.sat.f64.f64                 d:f64, a:f64
""")
def wider(q: Qualifiers, a: Value) -> Value:
    """A float as f32 or f64, exactly; an f64 keeps what a NaN holds."""
    to, of = types_of(q)
    x = source(q, a, of)
    if q.get("sat"):
        x = saturated(x)
    if of == "f32" and q.get("ftz"):
        x = float_of(canonical(x, []))
    if to == "f64":
        return canonical(convert(x, F64), [convert(x, F64)])
    bits = canonical(x, [])
    return without_subnormals(bits, FORMATS["f32"]) if q.get("ftz") else bits


def without_tiny(q: Qualifiers, x: Value, bits: Value, mode: str) -> Value:
    """The bits of f32 results for f64 values x; with ``.ftz`` tiny ones are flushed.

    Tiny is what 24 bits and any exponent do not round to the least normal number.
    """
    if not q.get("ftz"):
        return bits
    least = 2.0**-126
    below = {"rn": least - 2.0**-151, "rz": least}.get(mode)
    if below is not None:
        tiny = abs(x) < below
    else:
        last = least - 2.0**-150
        upward = x <= last if mode == "rp" else x < least
        downward = x >= -last if mode == "rm" else x > -least
        tiny = upward & downward
    return select(tiny, bits & -(1 << 31), bits)


@opcodes("""
    ; kind = converts
    cvt.rn{.ftz}{.sat}.f32.f64      d:f32, a:f64
""")
def single(q: Qualifiers, a: Value) -> Value:
    """The nearest f32."""
    x = float_of(a)
    if q.get("sat"):
        bits = bits_of(convert(saturated(x), F32))
    else:
        nan = convert(truncated_nan(x, FORMATS["f32"]), I32)
        bits = select(is_nan(x), nan, bits_of(convert(x, F32)))
    return without_tiny(q, x, bits, "rn")


@opcodes("""
    ; kind = converts
    cvt.rn{.ftz}{.sat}.f16.f32      d:f16, a:f32
    cvt.rn{.ftz}.bf16.f32           d:bf16, a:f32 ; ptx = 7.0 ; target = sm_80
    cvt.rn.relu.dtype.f32           d:dtype, a:f32 ; dtype = f16 bf16 ; ptx = 7.0 ; target = sm_80
    cvt{.sat}.f16.f16               d:f16, a:f16
    cvt.bf16.bf16                   d:bf16, a:bf16 ; ptx = 7.8 ; target = sm_90
""")
def narrow(q: Qualifiers, a: Value) -> Value:
    """The nearest 16-bit float."""
    to, of = types_of(q)
    x = source(q, a, of)
    bits = rounded(saturated(x) if q.get("sat") else x, to)
    return without_negative(bits, FORMATS[to]) if q.get("relu") else bits


@opcodes("""
    ; kind = converts
    cvt.rn{.relu}.dtype.f32         d:dtype, a:f32, b:f32 ; dtype = f16x2 bf16x2 ; ptx = 7.0 ; target = sm_80
""")
def narrow_pair(q: Qualifiers, a: Value, b: Value) -> Value:
    """Two f32 rounded to the nearest 16-bit floats, a in the upper half."""
    single = {**q, "dtype": q["dtype"].removesuffix("x2"), "f32": "f32"}
    upper, lower = (convert(narrow(single, x), I32, signed=False) for x in (a, b))
    return (upper << 16) | lower


@opcodes(
    """
    ; kind = converts
    cvt.rnd{.ftz}{.sat}.f16.f32     d:f16, a:f32 ; rnd = rz rm rp
    cvt.rnd{.ftz}.bf16.f32          d:bf16, a:f32 ; rnd = rz rm rp ; ptx = 7.0 ; target = sm_80
    cvt.rnd.relu.dtype.f32          d:dtype, a:f32 ; rnd = rz ; dtype = f16 bf16 ; ptx = 7.0 ; target = sm_80
    cvt.rnd.satfinite.f16.f32       d:f16, a:f32 ; rnd = rn rz ; ptx = 8.1
    cvt.rnd.relu.satfinite.f16.f32  d:f16, a:f32 ; rnd = rn rz ; ptx = 8.1 ; target = sm_80
    cvt.rnd{.relu}.satfinite.bf16.f32  d:bf16, a:f32 ; rnd = rn rz ; ptx = 8.1 ; target = sm_80
    cvt.rnd.satfinite.relu.dtype.f32  d:dtype, a:f32 ; rnd = rn rz ; dtype = f16 bf16 ; ptx = 8.1 ; target = sm_80
    cvt.rnd{.sat}.f16.f64           d:f16, a:f64 ; rnd = rn rz rm rp
    cvt.rnd.bf16.f64                d:bf16, a:f64 ; rnd = rn rz rm rp ; ptx = 7.8 ; target = sm_90
    cvt.rnd{.ftz}{.sat}.f32.f64     d:f32, a:f64 ; rnd = rz rm rp
    cvt{.rnd}.f16.bf16              d:f16, a:bf16 ; rnd = rn rz rm rp ; ptx = 7.8 ; target = sm_90
    cvt{.rnd}.bf16.f16              d:bf16, a:f16 ; rnd = rn rz rm rp ; ptx = 7.8 ; target = sm_90
    """,
    large=True,
)
def rounded_any(q: Qualifiers, a: Value) -> Value:
    """A float rounded to a smaller format in any mode."""
    to, of = types_of(q)
    x = source(q, a, of)
    if q.get("sat"):
        x = saturated(x)
    finite = bool(q.get("satfinite"))
    bits = encode(parts_of_float(x), FORMATS[to], q["rnd"] or "rn", finite=finite)
    if of == "f64":
        bits = select(is_nan(x), truncated_nan(x, FORMATS[to]), bits)
    word = finished(bits, to)
    if q.get("relu"):
        word = without_negative(word, FORMATS[to])
    return without_tiny(q, x, word, q["rnd"]) if to == "f32" else word


@opcodes(
    """
    ; kind = converts
    cvt.rnd{.relu}.dtype.f32        d:dtype, a:f32, b:f32 ; rnd = rz ; dtype = f16x2 bf16x2 ; ptx = 7.0 ; target = sm_80
    cvt.rnd{.relu}.satfinite.dtype.f32  d:dtype, a:f32, b:f32 ; rnd = rn rz ; dtype = f16x2 bf16x2 ; ptx = 8.1 ; target = sm_80
    cvt.rnd.satfinite.relu.dtype.f32  d:dtype, a:f32, b:f32 ; rnd = rn rz ; dtype = f16x2 bf16x2 ; ptx = 8.1 ; target = sm_80
    """,
    large=True,
)
def rounded_pair(q: Qualifiers, a: Value, b: Value) -> Value:
    """Two f32 rounded to 16-bit floats, a in the upper half."""
    single = {**q, "dtype": q["dtype"].removesuffix("x2")}
    upper, lower = (convert(rounded_any(single, x), I32, signed=False) for x in (a, b))
    return (upper << 16) | lower


# ── to integral values ──────────────────────────────────────────────────────


@opcodes("""
    ; kind = converts
    cvt.irnd{.ftz}{.sat}.f32.f32    d:f32, a:f32 ; irnd = rni rzi rmi rpi
    cvt.irnd{.sat}.f64.f64          d:f64, a:f64 ; irnd = rni rzi rmi rpi
    cvt.irnd{.sat}.f16.f16          d:f16, a:f16 ; irnd = rni rzi rmi rpi
    cvt.irnd.bf16.bf16              d:bf16, a:bf16 ; irnd = rni rzi rmi rpi ; ptx = 7.8 ; target = sm_90
""")
def integral(q: Qualifiers, a: Value) -> Value:
    """A float rounded to an integral value of the same type."""
    of = types_of(q)[0]
    x = source(q, a, of)
    result = _TO_INTEGRAL[q["irnd"]](x)
    if q.get("sat"):
        result = saturated(result)
    if of in ("f16", "bf16"):
        return rounded(result, of)
    return canonical(result, [x])


# ── tf32 ────────────────────────────────────────────────────────────────────


@opcodes(
    """
    ; kind = converts
    cvt.rnd{.relu}.tf32.f32         d:b32, a:f32 ; rnd = rn rz ; ptx = 7.8 ; target = sm_90
    cvt.rnd.satfinite{.relu}.tf32.f32  d:b32, a:f32 ; rnd = rn rz ; ptx = 8.6 ; target = sm_100
    """,
    large=True,
)
def tensor_float(q: Qualifiers, a: Value) -> Value:
    """An f32 rounded to tf32, which has the upper 19 bits of its register."""
    finite = bool(q.get("satfinite"))
    bits = encode(parts_of_float(float_of(a)), FORMATS["tf32"], q["rnd"], finite=finite)
    word = convert(bits << 13, I32)
    return without_negative(word, FORMATS["f32"]) if q.get("relu") else word


@opcodes(
    """
    ; kind = converts
    cvt.rna.tf32.f32                d:b32, a:f32 ; ptx = 7.0 ; target = sm_80
    cvt.rna.satfinite.tf32.f32      d:b32, a:f32 ; ptx = 8.1 ; target = sm_80
""",
    fidelity="h200",
)
def tensor_float_away(q: Qualifiers, a: Value) -> Value:
    """An f32 rounded to tf32, a tie away from zero.

    Seen on an H200: a NaN is cut and may become infinite, and ``.satfinite`` takes the
    last bit from whatever is infinite or NaN.
    """
    exponent = 0x7F800000
    rounded_up = select((a & exponent) == exponent, a, a + 0x1000)
    word = rounded_up & -0x2000
    if not q.get("satfinite"):
        return word
    return select((word & exponent) == exponent, word - 0x2000, word)
