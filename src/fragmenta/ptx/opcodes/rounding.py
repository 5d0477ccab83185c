"""Rounds numbers to floating-point formats.

There are two methods for any rounding mode.  Arithmetic in the host's own formats is
done by the host, with its rounding mode set (:func:`directed`).  Every other value is
taken apart into sign, significand and exponent (:class:`Parts`), and rounded with
integers (:func:`encode`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
    F32,
    F64,
    I32,
    I64,
    Value,
    bits_of,
    compare_unsigned,
    convert,
    float_of,
    in_memory,
    intrinsic,
    is_nan,
    larger,
    leading_zeros,
    scalar_type,
    select,
    shift_unsigned,
    smaller,
)

# ── formats ─────────────────────────────────────────────────────────────────


class FloatFormat(NamedTuple):
    """A floating-point format."""

    exponent_bits: int
    fraction_bits: int
    nan: int
    """The NaN that the hardware writes; the largest number if there is no NaN."""
    largest: int
    """The largest finite magnitude."""

    @property
    def bias(self) -> int:
        """What is added to an exponent."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def sign_at(self) -> int:
        """The place of the sign bit."""
        return self.exponent_bits + self.fraction_bits


def _ieee(exponent_bits: int, fraction_bits: int, nan: int) -> FloatFormat:
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    return FloatFormat(exponent_bits, fraction_bits, nan, infinity - 1)


FORMATS = {
    "f64": _ieee(11, 52, 0xFFF8000000000000),
    "f32": _ieee(8, 23, 0x7FFFFFFF),
    "tf32": _ieee(8, 10, 0x3FFFF),
    "f16": _ieee(5, 10, 0x7FFF),
    "bf16": _ieee(8, 7, 0x7FFF),
    "e5m2": _ieee(5, 2, 0x7F),
    "e4m3": FloatFormat(4, 3, 0x7F, 0x7E),
    "e3m2": FloatFormat(3, 2, 0x1F, 0x1F),
    "e2m3": FloatFormat(2, 3, 0x1F, 0x1F),
    "e2m1": FloatFormat(2, 1, 0x7, 0x7),
}
"""The formats by their PTX names; tf32 without the 13 low bits of its register."""


# ── numbers in parts ────────────────────────────────────────────────────────


class Parts(NamedTuple):
    """A number: ``significand * 2**exponent`` with a sign, or infinite, or NaN."""

    negative: Value
    significand: Value
    """64 bits, unsigned."""
    exponent: Value
    infinite: Value | None = None
    nan: Value | None = None


def parts_of_float(x: Value) -> Parts:
    """The parts of an f32 or f64 value."""
    bits = bits_of(convert(x, F64))
    magnitude = bits & ((1 << 63) - 1)
    field = magnitude >> 52
    fraction = magnitude & ((1 << 52) - 1)
    significand = select(field > 0, fraction | (1 << 52), fraction)
    limit = 2047 << 52
    return Parts(
        bits < 0,
        significand,
        larger(field, 1) - 1075,
        magnitude == limit,
        magnitude > limit,
    )


def parts_of_integer(x: Value, *, signed: bool) -> Parts:
    """The parts of an integer."""
    wide = convert(x, I64, signed=signed)
    negative = (wide if signed else wide.lift(0)) < 0
    return Parts(negative, select(negative, 0 - wide, wide), wide.lift(0))


def encode(
    x: Parts,
    form: FloatFormat,
    mode: str,
    *,
    finite: bool = False,
    random: Value | None = None,
) -> Value:
    """The bits of a number in a format, as i64; ``finite``: no overflow to infinity.

    ``mode`` is ``rn``, ``rz``, ``rm``, ``rp`` or ``rs``: round up if ``random`` and
    the dropped bits carry.  Bit 31 of ``random`` is added to the first dropped bit.
    """
    zeros = smaller(leading_zeros(x.significand), 63)
    normal = x.significand << zeros
    exponent = x.exponent + 63 - zeros
    least = 1 - form.bias
    drop = 63 - form.fraction_bits + larger(least - exponent, 0)
    kept = _shifted_right(normal, drop)
    # The dropped bits, the first one as bit 63.
    rest = select(drop > 64, _shifted_right(normal, drop - 64), normal)
    rest = select(drop > 64, rest | 1, _shifted_left(rest, 64 - drop))
    rest = select(normal == 0, 0, rest)
    field = larger(exponent, least) - least
    word = select(normal == 0, 0, (field << form.fraction_bits) + kept)
    word = word + convert(
        _away(mode, x.negative, kept, rest, random), I64, signed=False
    )
    word = _limited(x, word, form, mode, finite)
    signed = select(x.negative, word | _sign(form), word)
    return signed if x.nan is None else select(x.nan, _word(form.nan), signed)


def _word(bits: int) -> int:
    """64 bits as a signed number."""
    return bits - (1 << 64) if bits >> 63 else bits


def _sign(form: FloatFormat) -> int:
    return _word(1 << form.sign_at)


def _shifted_right(x: Value, by: Value) -> Value:
    """x shifted right; 0 if nothing is left."""
    inside = compare_unsigned("<", by, 64)
    return select(inside, shift_unsigned(x, select(inside, by, 0)), 0)


def _shifted_left(x: Value, by: Value) -> Value:
    """x shifted left; 0 if nothing is left."""
    inside = compare_unsigned("<", by, 64)
    return select(inside, x << select(inside, by, 0), 0)


def _away(
    mode: str, negative: Value, kept: Value, rest: Value, random: Value | None
) -> Value:
    """Whether to round away from zero; ``rest`` has the first dropped bit on top."""
    half = rest.lift(_word(1 << 63))
    inexact: Value = rest != 0
    away: Value
    if mode == "rs":
        assert random is not None
        bits = convert(random, I64, signed=False) << 32
        away = compare_unsigned("<", rest + bits, rest)
    elif mode == "rn":
        tie = (rest == half) & ((kept & 1) != 0)
        away = compare_unsigned(">", rest, half) | tie
    elif mode == "rz":
        away = rest.lift(0) < 0
    else:
        away = inexact & (negative if mode == "rm" else ~negative)
    return away


def _limited(
    x: Parts, word: Value, form: FloatFormat, mode: str, finite: bool
) -> Value:
    """A magnitude, or what stands for one that is too large."""
    infinity = form.largest + 1
    over = compare_unsigned(">", word, form.largest)
    if finite:
        word = select(over, form.largest, word)
        return word if x.infinite is None else select(x.infinite, form.largest, word)
    beyond = word.lift(infinity)
    if mode == "rz":
        beyond = word.lift(form.largest)
    elif mode in ("rm", "rp"):
        away = x.negative if mode == "rm" else ~x.negative
        beyond = select(away, word.lift(infinity), form.largest)
    word = select(over, beyond, word)
    return word if x.infinite is None else select(x.infinite, infinity, word)


# ── quick ways between f32 and the 16-bit formats ───────────────────────────


def half_value(bits: Value) -> Value:
    """The f32 value of an f16; a NaN stays one."""
    # As an f32 with these bits the number is 2**-112 times as large.
    moved = (convert(bits, I32) << 13) & _word32(0x8FFFE000)
    scaled = bits_of(float_of(moved) * 2.0**112)
    special = (moved & 0x7FFFFFFF) >= 0x0F800000
    return float_of(select(special, scaled | 0x7F800000, scaled))


def bfloat_value(bits: Value) -> Value:
    """The f32 value of a bf16."""
    return float_of(convert(bits, I32) << 16)


def half_bits(x: Value) -> Value:
    """An f32 rounded to the nearest f16, as i32 with zeros above."""
    bits = bits_of(x)
    magnitude = bits & 0x7FFFFFFF
    odd = (magnitude >> 13) & 1
    normal = (smaller(magnitude, 0x47800000) + odd + (0xFFF - (112 << 23))) >> 13
    # An f32 between 0.5 and 1 has units of 2**-24, as a subnormal f16 has.
    low = bits_of(float_of(magnitude) + 0.5) - 0x3F000000
    word = select(magnitude < 0x38800000, low, normal)
    signed = word | ((bits >> 16) & 0x8000)
    return select(is_nan(x), 0x7FFF, signed)


def bfloat_bits(x: Value) -> Value:
    """An f32 rounded to the nearest bf16, as i32 with zeros above."""
    bits = bits_of(x)
    word = shift_unsigned(bits + (0x7FFF + (shift_unsigned(bits, 16) & 1)), 16)
    return select(is_nan(x), 0x7FFF, word)


def _word32(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


# ── arithmetic of the host in another rounding mode ─────────────────────────

_MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}


def directed(mode: str, operation: str, *given: Value) -> Value:
    """``fadd``, ``fsub``, ``fmul``, ``fdiv``, ``fma`` or ``sqrt`` of floats in a mode.

    It is a function of its own, because the compiler may move ordinary operations
    into the part that runs in the other mode.
    """
    shape = next((x for x in given if x.type != scalar_type(x.type)), given[0])
    raws = [shape.lift(x).raw for x in given]
    builder, of = shape.builder, raws[0].type
    name = f"fragmenta.{operation}.{mode}.{_suffix(of)}"
    function = builder.module.globals.get(name)
    if function is None:
        function = _directed_function(builder.module, name, mode, operation, raws)
    return Value(builder, builder.call(function, raws))


def _suffix(of: Type) -> str:
    kind = {F32: "f32", F64: "f64"}[scalar_type(of)]
    return f"v{of.count}{kind}" if isinstance(of, ir.VectorType) else kind


def _directed_function(
    module: Any, name: str, mode: str, operation: str, raws: list[Any]
) -> Any:
    of = raws[0].type
    kind = ir.FunctionType(of, [of] * len(raws))
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    words = [
        ir.MetaDataString(module, text) for text in ("round.dynamic", "fpexcept.strict")
    ]
    intrinsic(b, "llvm.set.rounding", ir.VoidType(), [ir.Constant(I32, _MODES[mode])])
    constrained = f"llvm.experimental.constrained.{operation}.{_suffix(of)}"
    result = intrinsic(b, constrained, of, [*function.args, *words])
    intrinsic(b, "llvm.set.rounding", ir.VoidType(), [ir.Constant(I32, _MODES["rn"])])
    b.ret(result)
    return function


# ── what all floating-point instructions share ──────────────────────────────


def without_subnormals(bits: Value, form: FloatFormat) -> Value:
    """The bits of floats, subnormals replaced by a zero of the same sign: ``.ftz``."""
    exponent = ((1 << form.exponent_bits) - 1) << form.fraction_bits
    sign = -(1 << form.sign_at)
    return select((bits & exponent) == 0, bits & sign, bits)


def canonical(x: Value, given: Sequence[Value]) -> Value:
    """The bits of f32 or f64 results, with the NaN that the hardware writes.

    For f32 it is always the same one.  For f64 it is the last operand of ``given``
    that is NaN, made quiet, or else a negative NaN without payload.
    """
    if scalar_type(x.type) == F32:
        bits = bits_of(x)
        return select(is_nan(x), in_memory(bits, 0x7FFFFFFF), bits)
    nan = bits_of(x).lift(-(1 << 51))
    for each in given:
        nan = select(is_nan(each), bits_of(each) | (1 << 51), nan)
    return select(is_nan(x), nan, bits_of(x))


def saturated(x: Value) -> Value:
    """f32 or f64 values limited to [0, 1]; NaN becomes +0, and so does -0."""
    # With integers: LLVM makes a maximum of a select, and that treats NaN otherwise.
    bits, one = bits_of(x), bits_of(x.lift(1.0))
    infinity = bits_of(x.lift(float("inf")))
    return float_of(select(bits > infinity, 0, smaller(larger(bits, 0), one)))


def truncated_nan(x: Value, form: FloatFormat) -> Value:
    """The f64 NaN x in a smaller format: sign and upper bits, made quiet; i64."""
    magnitude = bits_of(x) & ((1 << 63) - 1)
    fraction = (magnitude >> (52 - form.fraction_bits)) & (
        (1 << form.fraction_bits) - 1
    )
    quiet = form.largest + 1 + (1 << (form.fraction_bits - 1))
    word = fraction | quiet
    return select(bits_of(x) < 0, word | (1 << form.sign_at), word)


def without_negative(bits: Value, form: FloatFormat) -> Value:
    """The bits of floats, negative ones replaced by +0: ``.relu``; NaN stays NaN."""
    magnitude = bits & ((1 << form.sign_at) - 1)
    infinity = ((1 << form.exponent_bits) - 1) << form.fraction_bits
    keeps = (bits >= 0) | (magnitude > infinity)
    return select(keeps, bits, 0)
