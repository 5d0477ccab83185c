"""Single elements in a fused step: decoding, aligning, rounding.

Elements are decoded to values and exponents, accumulators are float64, and sums are
rounded.  The functions are parts of the loops of
:mod:`fragmenta.reference.arithmetic.floating` and
:mod:`fragmenta.reference.arithmetic.grouped`: they work on traced values
(:mod:`fragmenta.base.jit`), eight columns at a time.  Only :func:`decoder` is a kernel
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced, kernel, pointer
from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    bits_of,
    convert,
    float_of,
    is_nan,
    larger,
    select,
    smaller,
    truncate,
)

#: The exponent of zero: the sum of two is less than every other sum of exponents.
ZERO = -8192

#: The exponent field of a float32 that is infinite or NaN, and the ue8m0 that is NaN.
SPECIAL = 255


class Format(NamedTuple):
    """An element type, as :func:`decoder` needs it."""

    exponent_bits: int
    fraction_bits: int
    special: int  #: the least magnitude that is infinite or NaN
    infinity: int  #: the magnitude of infinity
    least: int  #: the exponent of subnormals


class Rounding(NamedTuple):
    """How terms are aligned, and sums rounded.

    In a kernel the numbers are traced values; only ``nearest`` is a Python value.
    """

    fraction: Value
    floor: Value  #: the least exponent of a step
    keep: Value
    least: Value  #: the least exponent of the accumulator
    nearest: bool


# -- accumulators and sums ----------------------------------------------------


def power_of_two(exponent: Value) -> Value:
    """2.0**exponent, if that is a normal number."""
    return float_of((convert(exponent, I64) + 1023) << 52)


def power_of(x: Value) -> Value:
    """floor(log2(abs(x))) of a normal float64; 1024 if x is infinite or NaN."""
    return ((bits_of(x) >> 52) & 2047) - 1023


def is_finite(x: Value) -> Value:
    """Whether x is neither infinite nor NaN: then x - x is zero, otherwise NaN."""
    finite: Value = x - x == 0
    return finite


def entering(x: Value, floor: Value, least: Value) -> Value:
    """The exponent of an accumulator when a step begins."""
    power = power_of(x)
    counts = (x != 0) & (power < 1024)
    return convert(select(counts, larger(power, least), floor), I32)


def exact_sum(x: Value, e: Value, total: Value, fraction: Value) -> Value:
    """The sum of the aligned accumulator and the aligned products."""
    finite = select(is_finite(x), x, 0.0)
    shift = fraction - convert(e, I64)
    units = total + truncate(finite * power_of_two(shift))
    return units * power_of_two(-1 * shift)


def toward_zero(x: Value, keep: Value, least: Value) -> Value:
    """x truncated to ``keep`` fraction bits; never -0."""
    drop = 52 - keep + larger(least - power_of(x), 0)
    ones = drop.lift(-1)
    kept = float_of(bits_of(x) & (ones << smaller(drop, 63)))
    return select(drop <= 52, kept, 0.0)


def to_nearest(x: Value, keep: Value, least: Value) -> Value:
    """x rounded to nearest even with ``keep`` fraction bits; never -0."""
    unit = larger(power_of(x), least) - keep
    # From 2**52 units on, a float64 cannot hold fractions of a unit.
    large = 1.5 * power_of_two(unit + 52)
    return (x + large) - large


def limited(x: Value, limit: Value) -> Value:
    """x, or infinity if it is too large."""
    return select(abs(x) >= limit, x * float("inf"), x)


def settle(
    x: Value,
    e: Value,
    total: Value,
    special: Value | None,
    p: Rounding,
    nearest: Callable[[Value, Value, Value], Value] = to_nearest,
) -> Value:
    """The accumulator after a step.

    ``total`` is the sum of the aligned products in units of ``2**(e - fraction)``.
    ``special`` is the sum of the infinite and NaN products, if there may be any.
    ``nearest`` rounds to nearest, in the rounding mode of the loop.
    """
    exact = exact_sum(x, e, total, p.fraction)
    rounded = (nearest if p.nearest else toward_zero)(exact, p.keep, p.least)
    rounded = limited(rounded, power_of_two(2 - p.least))
    odd = select(is_finite(x), 0.0, x)
    if special is not None:
        odd = special + odd
    return select(odd == 0, rounded, odd)


def to_float32(x: Value) -> Value:
    """An accumulator as a float32, exactly; a NaN has the bits that hardware writes."""
    single = convert(x, F32)
    return float_of(
        select(is_nan(x), bits_of(single).lift(0x7FFFFFFF), bits_of(single))
    )


def to_half(x: Value) -> Value:
    """The bits of float32 numbers rounded to f16, to nearest, as 16-bit integers.

    A NaN has the bits that hardware writes.
    """
    wide = abs(convert(x, F64))
    keep, least = (bits_of(wide).lift(number) for number in (10, -14))
    rounded = limited(to_nearest(wide, keep, least), wide.lift(65536.0))
    single = convert(rounded, F32)
    # A normal number has the upper bits of a float32, but for the bias of its exponent.
    # A subnormal one is so many times 2**-24.
    normal = (bits_of(single) >> 13) - ((127 - 15) << 10)
    magnitude = select(rounded < 2.0**-14, convert(single * 2.0**24, I32), normal)
    number = select(rounded < 65536.0, magnitude, 0x7C00)
    signed = number | ((bits_of(x) >> 16) & 0x8000)
    half = select(is_nan(x), number.lift(0x7FFF), signed)
    return convert(half, I16)


def add_ordinary(x: Value, y: Value, half: bool) -> Value:
    """x + y by an ordinary addition in the accumulator's type, rounded to nearest."""
    if not half:
        return convert(convert(x, F32) + convert(y, F32), F64)
    exact = x + y
    keep, least = (convert(bits_of(x), I64).lift(number) for number in (10, -14))
    rounded = limited(to_nearest(exact, keep, least), exact.lift(65536.0))
    return select(is_finite(exact), rounded, exact)


# -- products -----------------------------------------------------------------


def row_of(b_at: Value, offsets: Memory | None, place: Value) -> Value:
    """Where the row of B of a product begins in a panel of eight columns.

    Without offsets, the rows are taken one after the other.
    """
    if offsets is None:
        return b_at + place * LANES
    return b_at + convert(offsets[place], I64)


# -- elements -----------------------------------------------------------------


def small_value(bits: Value, form: Format) -> Value:
    """The value of an element with at most 5 exponent bits, as a float32."""
    one = bits.lift(1)
    fraction_bits, sign_at = form.fraction_bits, form.exponent_bits + form.fraction_bits
    bias = (one << (form.exponent_bits - 1)) - 1
    hidden, offset = one << fraction_bits, 127 - bias - fraction_bits
    magnitude = bits & ((one << sign_at) - 1)
    field, fraction = magnitude >> fraction_bits, magnitude & (hidden - 1)
    significand = select(field > 0, fraction | hidden, fraction)
    x = convert(significand, F32) * float_of((larger(field, 1) + offset) << 23)
    odd = select(magnitude == form.infinity, one.lift(0x7F800000), 0x7FFFFFFF)
    word = select(magnitude >= form.special, odd, bits_of(x))
    return float_of(word | ((bits >> sign_at) << 31))


def wide_value(bits: Value, size: int, form: Format) -> Value:
    """The value of an element with 8 exponent bits, the upper bits of a float32."""
    word = bits << (0 if size == 4 else 16)
    spare = 23 - form.fraction_bits
    return float_of((word >> spare) << spare)


def powers(x: Value, form: Format) -> tuple[Value, Value]:
    """The exponent of an element's value, and the exponent field of the float32.

    The field is 255 if the value is infinite or NaN.
    """
    field = (bits_of(x) >> 23) & 255
    power = larger(field - 127, form.least)
    return select((field == SPECIAL) | (x == 0), power.lift(ZERO), power), field


@once
def decoder(source: Type, values: Type, wide: bool) -> Traced:
    """A kernel that decodes elements to values and exponents.

    ``found[0]`` is set to 1 if an element is infinite or NaN.  ``wide`` is for types
    with 8 exponent bits.
    """

    @kernel(
        bits=pointer(source),
        values=pointer(values),
        exponents=pointer(I32),
        found=pointer(I32),
        count=I64,
        exponent_bits=I32,
        fraction_bits=I32,
        special=I32,
        infinity=I32,
        least=I32,
    )
    def decode(
        code: Code,
        bits: Memory,
        out: Memory,
        exponents: Memory,
        found: Memory,
        count: Value,
        *form: Value,
    ) -> None:
        of = Format(*form)  # type: ignore[arg-type]
        top = code.variable(code.constant(0, I32))
        with code.loop(count) as i:
            word = convert(bits[i], I32, signed=False)
            x = (
                wide_value(word, source.width // 8, of)
                if wide
                else small_value(word, of)
            )
            power, field = powers(x, of)
            out[i] = convert(x, values)
            exponents[i] = power
            top.value = larger(top.value, field)
        with code.when(top.value == SPECIAL):
            found[0] = code.constant(1, I32)

    return decode


def scaled(x: Value, power: Value, scale: Value) -> tuple[Value, Value]:
    """An element's value (a float64) and exponent, times a ue8m0 scale."""
    odd = scale == SPECIAL
    shift = scale - 127
    by = power_of_two(shift)
    nothing = (power == ZERO) | odd
    return x * select(odd, float("nan"), by), select(nothing, ZERO, power + shift)


@kernel(
    values=pointer(F64),
    exponents=pointer(I32),
    scales=pointer(I8),
    out=pointer(F64),
    out_exponents=pointer(I32),
    tiles=I64,
    blocks=I64,
    inner=I64,
    lanes=I64,
    values_tile=I64,
    scales_tile=I64,
)
def scale_elements(
    code: Code,
    values: Memory,
    exponents: Memory,
    scales: Memory,
    out: Memory,
    out_exponents: Memory,
    tiles: Value,
    blocks: Value,
    inner: Value,
    lanes: Value,
    values_tile: Value,
    scales_tile: Value,
) -> None:
    """Elements times their ue8m0 scales.

    A tile has ``blocks`` of ``inner`` rows of elements; each row has ``lanes``
    elements.  A block has one row of scales.
    """
    with code.loop(tiles) as tile, code.loop(blocks) as block, code.loop(inner) as i:
        row = (block * inner + i) * lanes
        with code.loop(lanes) as lane:
            at = tile * values_tile + row + lane
            scale = scales[tile * scales_tile + block * lanes + lane]
            by = convert(scale, I32, signed=False)
            x, power = scaled(values[at], exponents[at], by)
            to = (tile * blocks * inner) * lanes + row + lane
            out[to] = x
            out_exponents[to] = power
