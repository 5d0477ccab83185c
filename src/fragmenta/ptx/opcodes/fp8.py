"""``cvt`` to and from floats of 8 bits and less.

Two such floats are packed into 16 bits, one in each byte, or into 8 bits for e2m1.  The
first operand, or the upper half of the operand, is the upper one of the result.
"""

from __future__ import annotations

from fragmenta.base.jit.trace import (
    I8,
    I16,
    I32,
    Value,
    bits_of,
    convert,
    float_of,
    is_nan,
    recast,
    select,
    shift_unsigned,
)
from fragmenta.ptx.opcodes.bits import reverse_bits
from fragmenta.ptx.opcodes.half import rounded, value_of
from fragmenta.ptx.opcodes.rounding import (
    FORMATS,
    FloatFormat,
    encode,
    parts_of_float,
    without_negative,
)
from fragmenta.ptx.opcodes.table import Qualifiers, opcodes


def small_value(bits: Value, form: FloatFormat) -> Value:
    """The f32 value of a small float, which i32 holds with zeros above."""
    magnitude = bits & ((1 << form.sign_at) - 1)
    scaled = float_of(magnitude << (23 - form.fraction_bits)) * 2.0 ** (127 - form.bias)
    word = bits_of(scaled)
    if form.largest != form.nan:
        word = select(magnitude > form.largest, 0x7FFFFFFF, word)
    if form.exponent_bits == 5:
        word = select(magnitude == form.largest + 1, 0x7F800000, word)
    return float_of(word | ((bits >> form.sign_at) << 31))


def small_bits(q: Qualifiers, x: Value, form: FloatFormat) -> Value:
    """An f32 rounded to a small float, as i32; too large a number becomes the largest."""
    bits = convert(encode(parts_of_float(x), form, "rn", finite=True), I32)
    if not q.get("relu"):
        return bits
    negative = (bits >> form.sign_at) != 0
    return select(negative, 0, bits)


def halves(a: Value, of: str) -> tuple[Value, Value]:
    """The f32 values of the upper and the lower half of a pair of 16-bit floats."""
    upper = convert(shift_unsigned(a, 16), I16)
    return value_of(upper, of), value_of(convert(a, I16), of)


def joined(upper: Value, lower: Value, width: int) -> Value:
    """Two i32 values in one, ``width`` bits each."""
    return (upper << width) | lower


def _packed(q: Qualifiers, upper: Value, lower: Value) -> Value:
    form = FORMATS[q["dtype"].removesuffix("x2")]
    first, second = small_bits(q, upper, form), small_bits(q, lower, form)
    if form.sign_at < 4:
        return convert(joined(first, second, 4), I8)
    return convert(joined(first, second, 8), I16)


# ── to small floats ─────────────────────────────────────────────────────────

_BLACKWELL = (
    "target = sm_121f sm_121a sm_120f sm_120a sm_110f sm_110a sm_107f sm_107a sm_103f "
    "sm_103a sm_100f sm_100a"
)


@opcodes(
    """
    ; kind = converts
    cvt.rn.satfinite{.relu}.dtype.f32       d:dtype, a:f32, b:f32 ; dtype = e4m3x2 e5m2x2 ; ptx = 8.1 ; target = sm_89
    cvt.rn.relu.satfinite.dtype.f32         d:dtype, a:f32, b:f32 ; dtype = e4m3x2 e5m2x2 ; ptx = 8.1 ; target = sm_89
    """,
    large=True,
    fidelity="h200",
)
@opcodes(
    f"""
    cvt.rn.satfinite{{.relu}}.dtype.f32     d:dtype, a:f32, b:f32 ; dtype = e2m1x2 e2m3x2 e3m2x2 ; ptx = 8.6 ; {_BLACKWELL}
    cvt.rn.relu.satfinite.dtype.f32         d:dtype, a:f32, b:f32 ; dtype = e2m1x2 e2m3x2 e3m2x2 ; ptx = 8.6 ; {_BLACKWELL}
    """,
    large=True,
    fidelity="published",
)
def small_from_single(q: Qualifiers, a: Value, b: Value) -> Value:
    """Two f32 rounded to small floats."""
    return _packed(q, float_of(a), float_of(b))


@opcodes(
    """
    ; kind = converts
    cvt.rn.satfinite{.relu}.dtype.f16x2     d:dtype, a:f16x2 ; dtype = e4m3x2 e5m2x2 ; ptx = 8.1 ; target = sm_89
    cvt.rn.relu.satfinite.dtype.f16x2       d:dtype, a:f16x2 ; dtype = e4m3x2 e5m2x2 ; ptx = 8.1 ; target = sm_89
    """,
    large=True,
    fidelity="h200",
)
@opcodes(
    f"""
    cvt.rn.satfinite{{.relu}}.dtype.f16x2   d:dtype, a:f16x2 ; dtype = e2m1x2 e2m3x2 e3m2x2 ; ptx = 9.1 ; {_BLACKWELL}
    cvt.rn.relu.satfinite.dtype.f16x2       d:dtype, a:f16x2 ; dtype = e2m1x2 e2m3x2 e3m2x2 ; ptx = 9.1 ; {_BLACKWELL}
    cvt.rn.satfinite{{.relu}}.dtype.bf16x2  d:dtype, a:bf16x2 ; dtype = e4m3x2 e5m2x2 e2m1x2 e2m3x2 e3m2x2 ; ptx = 9.1 ; {_BLACKWELL}
    cvt.rn.relu.satfinite.dtype.bf16x2      d:dtype, a:bf16x2 ; dtype = e4m3x2 e5m2x2 e2m1x2 e2m3x2 e3m2x2 ; ptx = 9.1 ; {_BLACKWELL}
    """,
    large=True,
    fidelity="published",
)
def small_from_half(q: Qualifiers, a: Value) -> Value:
    """Two f16 or bf16 rounded to small floats."""
    return _packed(q, *halves(a, "f16" if q.get("f16x2") else "bf16"))


# ── from small floats ───────────────────────────────────────────────────────


@opcodes(
    """
    ; kind = converts
    cvt.rn{.relu}.f16x2.atype               d:f16x2, a:atype ; atype = e4m3x2 e5m2x2 ; ptx = 8.1 ; target = sm_89
    """,
    large=True,
    fidelity="h200",
)
@opcodes(
    f"""
    cvt.rn{{.relu}}.f16x2.atype             d:f16x2, a:atype ; atype = e2m1x2 e2m3x2 e3m2x2 ; ptx = 8.6 ; {_BLACKWELL}
    cvt.rn{{.satfinite}}{{.relu}}.bf16x2.atype  d:bf16x2, a:atype ; atype = e4m3x2 e5m2x2 e2m1x2 e2m3x2 e3m2x2 ; ptx = 9.2 ; {_BLACKWELL}
    cvt.rn.relu.satfinite.bf16x2.atype      d:bf16x2, a:atype ; atype = e4m3x2 e5m2x2 e2m1x2 e2m3x2 e3m2x2 ; ptx = 9.2 ; {_BLACKWELL}
    """,
    large=True,
    fidelity="published",
)
def half_from_small(q: Qualifiers, a: Value) -> Value:
    """Two small floats as f16 or bf16, which have all their values."""
    form = FORMATS[q["atype"].removesuffix("x2")]
    width = 4 if form.sign_at < 4 else 8
    word = convert(a, I32, signed=False)
    parts = word >> width, word & ((1 << width) - 1)
    to = "f16" if q.get("f16x2") else "bf16"
    bits = [rounded(small_value(part, form), to) for part in parts]
    if q.get("satfinite"):
        bits = [_finite(each, FORMATS[to]) for each in bits]
    if q.get("relu"):
        bits = [without_negative(each, FORMATS[to]) for each in bits]
    upper, lower = (convert(each, I32, signed=False) for each in bits)
    return joined(upper, lower, 16)


def _finite(bits: Value, form: FloatFormat) -> Value:
    """The bits of 16-bit floats, infinity replaced by the largest number."""
    infinite = (bits & 0x7FFF) == form.largest + 1
    return select(infinite, bits - 1, bits)


# ── exponents alone ─────────────────────────────────────────────────────────


def _exponent(q: Qualifiers, x: Value) -> Value:
    """The exponent of an f32, rounded, as the 8 bits of ue8m0; the sign is ignored."""
    magnitude = bits_of(x) & 0x7FFFFFFF
    word = magnitude >> 23
    if q["rnd"] == "rp":
        # The least value is 2**-127, which is subnormal in f32.
        up = ((magnitude & 0x7FFFFF) != 0) & (magnitude > 0x400000)
        word = select(up & (magnitude < 0x7F800000), word + 1, word)
    if q.get("satfinite"):
        word = select(word == 255, 254, word)
    return select(is_nan(x), 255, word)


@opcodes(
    f"""
    cvt.rnd{{.satfinite}}.ue8m0x2.f32       d:ue8m0x2, a:f32, b:f32 ; rnd = rz rp ; ptx = 8.6 ; {_BLACKWELL}
    """,
    fidelity="published",
)
def exponents(q: Qualifiers, a: Value, b: Value) -> Value:
    """The exponents of two f32."""
    first, second = (_exponent(q, float_of(x)) for x in (a, b))
    return convert(joined(first, second, 8), I16)


@opcodes(
    f"""
    cvt.rnd{{.satfinite}}.ue8m0x2.bf16x2    d:ue8m0x2, a:bf16x2 ; rnd = rz rp ; ptx = 8.6 ; {_BLACKWELL}
    """,
    fidelity="published",
)
def exponents_of_pair(q: Qualifiers, a: Value) -> Value:
    """The exponents of two bf16."""
    first, second = (_exponent(q, x) for x in halves(a, "bf16"))
    return convert(joined(first, second, 8), I16)


@opcodes(
    f"""
    cvt.rn.bf16x2.ue8m0x2                   d:bf16x2, a:ue8m0x2 ; ptx = 8.6 ; {_BLACKWELL}
    """,
    fidelity="published",
)
def powers(q: Qualifiers, a: Value) -> Value:
    """Two powers of two as bf16."""
    word = convert(a, I32, signed=False)
    fields = recast(joined(word >> 8, word & 255, 16), I16)
    power = select(fields == 0, 0x40, fields << 7)  # 2**-127 is subnormal
    return recast(select(fields == 255, 0x7FFF, power), I32)


# ── stochastic rounding ─────────────────────────────────────────────────────

_STOCHASTIC = "ptx = 8.7 ; target = sm_107a sm_103a sm_100a"


@opcodes(
    f"""
    cvt.rs{{.relu}}{{.satfinite}}.dtype.f32  d:dtype, a:f32, b:f32, rbits:b32 ; dtype = f16x2 bf16x2 ; {_STOCHASTIC}
    """,
    large=True,
    fidelity="modelled",
)
def stochastic_pair(q: Qualifiers, a: Value, b: Value, rbits: Value) -> Value:
    """Two f32 rounded up if random bits and the dropped bits carry.

    Each has half of ``rbits``; f16 drops 13 bits and uses as many.
    """
    of = q["dtype"].removesuffix("x2")
    unused = 3 if of == "f16" else 0
    randoms = (rbits >> 16) << (16 + unused), rbits << (16 + unused)
    upper, lower = (
        _stochastic(q, float_of(x), FORMATS[of], random)
        for x, random in zip((a, b), randoms, strict=True)
    )
    return joined(upper, lower, 16)


@opcodes(
    f"""
    cvt.rs.satfinite{{.relu}}.dtype.f32     d:dtype, a*4:f32, rbits:b32 ; dtype = e4m3x4 e5m2x4 e2m1x4 e2m3x4 e3m2x4 ; {_STOCHASTIC}
    cvt.rs.relu.satfinite.dtype.f32         d:dtype, a*4:f32, rbits:b32 ; dtype = e4m3x4 e5m2x4 e2m1x4 e2m3x4 e3m2x4 ; {_STOCHASTIC}
    """,
    large=True,
    fidelity="modelled",
)
def stochastic_four(q: Qualifiers, *given: Value | tuple[Value, ...]) -> Value:
    """Four f32 rounded to small floats, the first one on top.

    Two share a half of ``rbits``: the first of them has it in reversed order.
    """
    # What stands in braces comes as one tuple, or one by one.
    flat = [x for each in given for x in (each if isinstance(each, tuple) else [each])]
    *numbers, rbits = flat
    form = FORMATS[q["dtype"].removesuffix("x4")]
    width = 4 if form.sign_at < 4 else 8
    backward = reverse_bits(rbits)
    randoms = backward << 16, rbits, backward, rbits << 16
    word = rbits.lift(0)
    for x, random in zip(numbers, randoms, strict=True):
        upper = random & -0x10000
        word = joined(word, _stochastic(q, float_of(x), form, upper), width)
    return convert(word, I16) if width == 4 else word


def _stochastic(q: Qualifiers, x: Value, form: FloatFormat, random: Value) -> Value:
    finite = form.sign_at < 8 or bool(q.get("satfinite"))
    bits = encode(parts_of_float(x), form, "rs", finite=finite, random=random)
    word = convert(bits, I32)
    if not q.get("relu"):
        return word
    negative = ((word >> form.sign_at) != 0) & ~is_nan(x)
    return select(negative, 0, word)
