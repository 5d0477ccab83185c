"""What does ``cvt`` compute to and from floats of 8 bits and less?

Two such floats are packed into 16 bits, one in each byte, or into 8 bits for e2m1.  The
first operand, or the upper half of the operand, is the upper one of the result.
"""

from __future__ import annotations

from fragmenta.machine.trace import (
    I8,
    I16,
    I32,
    Value,
    bits_of,
    convert,
    float_of,
    select,
    shift_unsigned,
)
from fragmenta.ptx.opcodes.half import rounded, value_of
from fragmenta.ptx.opcodes.rounding import (
    FORMS,
    Form,
    encode,
    parts_of_float,
    without_negative,
)
from fragmenta.ptx.opcodes.table import Qualifiers, opcodes


def small_value(bits: Value, form: Form) -> Value:
    """The f32 value of a small float, which i32 holds with zeros above."""
    magnitude = bits & ((1 << form.sign_at) - 1)
    scaled = float_of(magnitude << (23 - form.fraction_bits)) * 2.0 ** (127 - form.bias)
    word = bits_of(scaled)
    if form.largest != form.nan:
        word = select(magnitude > form.largest, 0x7FFFFFFF, word)
    if form.exponent_bits == 5:
        word = select(magnitude == form.largest + 1, 0x7F800000, word)
    return float_of(word | ((bits >> form.sign_at) << 31))


def small_bits(q: Qualifiers, x: Value, form: Form) -> Value:
    """An f32 rounded to a small float, as i32; too large a number becomes the largest."""
    mode = q.get("rnd") or "rn"
    bits = convert(encode(parts_of_float(x), form, mode, finite=True), I32)
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
    form = FORMS[q["dtype"].removesuffix("x2")]
    first, second = small_bits(q, upper, form), small_bits(q, lower, form)
    if form.sign_at < 4:
        return convert(joined(first, second, 4), I8)
    return convert(joined(first, second, 8), I16)


@opcodes(
    """
    cvt.rn.satfinite{.relu}.dtype.f32       d:dtype, a:f32, b:f32 ; dtype = e4m3x2 e5m2x2
    """,
    large=True,
)
def small_from_single(q: Qualifiers, a: Value, b: Value) -> Value:
    """Two f32 rounded to small floats."""
    return _packed(q, float_of(a), float_of(b))


@opcodes(
    """
    cvt.rn.satfinite{.relu}.dtype.f16x2     d:dtype, a:f16x2 ; dtype = e4m3x2 e5m2x2
    """,
    large=True,
)
def small_from_half(q: Qualifiers, a: Value) -> Value:
    """Two f16 or bf16 rounded to small floats."""
    return _packed(q, *halves(a, "f16" if q.get("f16x2") else "bf16"))


@opcodes(
    """
    cvt.rn{.relu}.f16x2.atype               d:f16x2, a:atype ; atype = e4m3x2 e5m2x2
    """,
    large=True,
)
def half_from_small(q: Qualifiers, a: Value) -> Value:
    """Two small floats as f16."""
    form = FORMS[q["atype"].removesuffix("x2")]
    width = 4 if form.sign_at < 4 else 8
    word = convert(a, I32, signed=False)
    parts = word >> width, word & ((1 << width) - 1)
    bits = [rounded(small_value(part, form), "f16") for part in parts]
    if q.get("relu"):
        bits = [without_negative(each, FORMS["f16"]) for each in bits]
    upper, lower = (convert(each, I32, signed=False) for each in bits)
    return joined(upper, lower, 16)
