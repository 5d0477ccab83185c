"""What happens to one element, or to a run of them, in a fused step?

Elements become values and exponents, accumulators become float64, sums are
rounded.  Every function here is a part of the loops over blocks: those of
:mod:`fragmenta.arithmetic.floating` and :mod:`fragmenta.arithmetic.grouped`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fragmenta.arithmetic.vector import (
    Array,
    Integer,
    Real,
    bits32_of,
    bits64_of,
    cut,
    float32_of,
    float64_of,
    part,
)

#: The exponent of zero: two of them stay below every other sum of exponents.
ZERO = -8192

# Numba computes with 64 bits unless told otherwise, and half the lanes are lost.
i32 = np.int32


class Format(NamedTuple):
    """An element type, as the loops want to know it."""

    exponent_bits: int
    fraction_bits: int
    special: int  #: the least magnitude that is infinite or NaN
    infinity: int  #: the magnitude of infinity
    least: int  #: the exponent of subnormals


#: f16, the accumulator that is not f32.
HALF = Format(5, 10, 0x7C00, 0x7C00, -14)


class Rounding(NamedTuple):
    """How terms are aligned, and sums rounded."""

    fraction: int
    floor: int
    keep: int
    nearest: int
    least: int  #: the least exponent of the accumulator


class Sums(NamedTuple):
    """The accumulators of some rows of a block, row by row."""

    c: Array
    e: Array  #: the largest exponent so far
    total: Array  #: of the aligned products, in units of 2**(e - fraction)
    special: Array  #: what infinities and NaN add up to, else zero
    held: Array  #: c, while the steps start from zero


# -- one element --------------------------------------------------------------


@part
def power_of_two(exponent: Integer) -> Real:
    """2.0**exponent, for normal results."""
    return float64_of(np.int64(exponent + 1023) << 52)


@part
def small_value(bits: Integer, form: Format) -> Real:
    """The value of an element with at most 5 exponent bits, as a float32."""
    fraction_bits = i32(form.fraction_bits)
    sign_at = i32(form.exponent_bits + form.fraction_bits)
    bias = (1 << (form.exponent_bits - 1)) - 1
    hidden, offset = i32(1 << form.fraction_bits), i32(127 - bias - form.fraction_bits)
    magnitude = i32(bits & i32((1 << sign_at) - 1))
    field = i32(magnitude >> fraction_bits)
    fraction = i32(magnitude & i32(hidden - 1))
    significand = i32(fraction | hidden) if field > 0 else fraction
    scale = i32(i32(max(field, i32(1)) + offset) << i32(23))
    x = np.float32(significand) * float32_of(scale)
    odd = i32(0x7F800000) if magnitude == i32(form.infinity) else i32(0x7FFFFFFF)
    word = odd if magnitude >= i32(form.special) else bits32_of(x)
    sign = i32(i32(bits >> sign_at) << i32(31))
    return float32_of(i32(word | sign))


@part
def field_of(x: Real) -> Integer:
    """The exponent field of a float32: 255 for what is infinite or NaN."""
    return i32(i32(bits32_of(x) >> i32(23)) & i32(255))


@part
def exponent_of(x: Real, least: Integer) -> Integer:
    """The exponent that a float32 brings into a product."""
    field = field_of(x)
    power = max(i32(field - i32(127)), least)
    return i32(ZERO) if field == 255 or x == 0 else power


@part
def power_of(x: Real) -> Integer:
    """floor(log2(abs(x))) of a normal float64; 1024 if infinite or NaN."""
    return (bits64_of(x) >> 52 & 2047) - 1023


@part
def entering(x: Real, floor: Integer, least: Integer) -> Integer:
    """The exponent that an accumulator brings into a step."""
    power = power_of(x)
    return max(power, least) if x != 0 and power < 1024 else floor


@part
def exact_sum(x: Real, e: Integer, total: Real, fraction: Integer) -> Real:
    """The aligned accumulator and the aligned products, added."""
    finite = x if x - x == 0 else 0.0
    units = total + cut(finite * power_of_two(fraction - e))
    return units * power_of_two(e - fraction)


@part
def toward_zero(x: Real, keep: Integer, least: Integer) -> Real:
    """x cut to ``keep`` fraction bits; never -0."""
    drop = 52 - keep + max(0, least - power_of(x))
    kept = float64_of(bits64_of(x) & np.int64(-1) << min(drop, 63))
    return kept if drop <= 52 else 0.0


@part
def to_nearest(x: Real, keep: Integer, least: Integer) -> Real:
    """x to nearest even with ``keep`` fraction bits; never -0."""
    unit = max(power_of(x), least) - keep
    # From 2**52 units on a float64 has no room for anything below a unit.
    large = 1.5 * power_of_two(unit + 52)
    return (x + large) - large


@part
def limited(x: Real, limit: Real) -> Real:
    """x, or infinity if it is too large."""
    return np.inf * x if abs(x) >= limit else x


@part
def half_bits(x: Real) -> Integer:
    """The f16 bits of a value that f16 holds."""
    magnitude = abs(x)
    subnormal = i32(magnitude * 2.0**24)
    normal = i32((bits64_of(magnitude) >> 42) - ((1023 - 15) << 10))
    word = subnormal if magnitude < 2.0**-14 else normal
    word = word if magnitude < 65536.0 else i32(0x7C00)
    sign = i32(bits64_of(x) >> 48 & 0x8000)
    return i32(0x7FFF) if np.isnan(x) else i32(word | sign)


# -- runs of elements ---------------------------------------------------------


@part
def decode(source: Array, values: Array, exponents: Array, form: Format) -> bool:
    """Take elements apart; says whether any is infinite or NaN."""
    least, top = i32(form.least), i32(0)
    if form.exponent_bits == 8:  # the upper bits of a float32
        shift = i32(0) if source.itemsize == 4 else i32(16)
        spare = i32(23 - form.fraction_bits)
        for i in range(len(source)):
            word = i32(i32(source[i]) << shift)
            x = float32_of(i32(i32(word >> spare) << spare))
            values[i] = x
            exponents[i] = exponent_of(x, least)
            top = max(top, field_of(x))
    else:
        for i in range(len(source)):
            x = small_value(i32(source[i]), form)
            values[i] = x
            exponents[i] = exponent_of(x, least)
            top = max(top, field_of(x))
    return bool(top == 255)


@part
def scale_run(values: Array, exponents: Array, scale: Integer) -> bool:
    """Multiply elements by a ue8m0 scale; says whether the scale is NaN."""
    if scale == 255:
        values[:] = np.nan
        exponents[:] = ZERO
        return True
    power = np.int64(scale) - 127
    factor = power_of_two(power)
    for i in range(len(values)):
        values[i] *= factor
        exponents[i] = i32(exponents[i] + power) if exponents[i] != ZERO else i32(ZERO)
    return False


@part
def load(bits: Array, half: Integer, c: Array) -> None:
    """Accumulators from their bits."""
    if half:
        for i in range(len(bits)):
            c[i] = small_value(i32(bits[i]), HALF)
    else:
        for i in range(len(bits)):
            c[i] = float32_of(i32(bits[i]))


@part
def store(c: Array, half: Integer, bits: Array) -> None:
    """Accumulators to their bits; they fit exactly."""
    if half:
        for i in range(len(bits)):
            bits[i] = half_bits(c[i])
    else:
        for i in range(len(bits)):
            word = bits32_of(np.float32(c[i]))
            bits[i] = i32(0x7FFFFFFF) if np.isnan(c[i]) else word


@part
def settle(sums: Sums, p: Rounding) -> None:
    """End a step: round the sums, and begin the next one."""
    c, e, total, special = sums.c, sums.e, sums.total, sums.special
    fraction, floor, keep, least = p.fraction, p.floor, p.keep, p.least
    limit, nearest = power_of_two(2 - least), p.nearest != 0
    for i in range(len(c)):
        x = c[i]
        exact = exact_sum(x, e[i], total[i], fraction)
        if nearest:
            rounded = limited(to_nearest(exact, keep, least), limit)
        else:
            rounded = limited(toward_zero(exact, keep, least), limit)
        odd = special[i] + (0.0 if x - x == 0 else x)
        result = rounded if odd == 0 else odd
        c[i] = result
        e[i] = entering(result, floor, least)
        total[i] = 0.0
        special[i] = 0.0


@part
def add_to(c: Array, total: Array, half: Integer) -> None:
    """c + total, an ordinary addition of the accumulator's type, to nearest."""
    if half:
        for i in range(len(c)):
            exact = c[i] + total[i]
            rounded = limited(to_nearest(exact, 10, -14), 65536.0)
            c[i] = rounded if exact - exact == 0 else exact
    else:
        for i in range(len(c)):
            c[i] = np.float32(c[i]) + np.float32(total[i])
