"""What does a chain of IEEE 754 operations give?

f64 instructions are fused multiply-adds, one k after the other.  And so is the
f16 instruction of k = 4 where the hardware lost it: f32 operations in software.

To nearest, the machine's own fused multiply-add does it.  For the other modes
the exact error of that operation decides whether to step to a neighbour.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fragmenta.arithmetic.vector import (
    Array,
    Integer,
    Real,
    bits64_of,
    compiled,
    cut,
    float64_of,
    fma32,
    fma64,
    part,
)

#: Rounding modes as numbers.
MODES = {"rn": 0, "rz": 1, "rm": 2, "rp": 3}
RZ, RM, RP = MODES["rz"], MODES["rm"], MODES["rp"]

# The NaN that f64 makes of infinities, and the bit that makes a NaN quiet.
_DEFAULT_NAN = np.int64(-(1 << 51))
_QUIET = np.int64(1 << 51)

# A term smaller than the other by this power of two decides only on which side
# of the larger the sum lies.
_FAR = 200


class Plan(NamedTuple):
    """The sizes that the chains work by."""

    rows: int
    columns: int
    k: int
    a_batches: int
    b_batches: int
    mode: int  #: a rounding mode
    pairs: int


@part
def significand(x: Real) -> Real:
    """x scaled to [1, 2), with its sign; x is finite and not zero."""
    normal = x * 2.0**54 if abs(x) < 2.0**-1022 else x
    bits = bits64_of(normal)
    return float64_of((bits & ~(np.int64(2047) << 52)) | (np.int64(1023) << 52))


@part
def exponent(x: Real) -> Integer:
    """floor(log2(abs(x))) of a finite x that is not zero."""
    if abs(x) < 2.0**-1022:
        return (bits64_of(x * 2.0**54) >> 52 & 2047) - 1023 - 54
    return (bits64_of(x) >> 52 & 2047) - 1023


@part
def scaled(x: Real, power: Integer) -> Real:
    """x * 2**power, rounded at most once."""
    half = power // 2
    return (
        x
        * float64_of(np.int64(half + 1023) << 52)
        * float64_of(np.int64(power - half + 1023) << 52)
    )


@part
def two_sum(x: Real, y: Real) -> tuple[Real, Real]:
    """x + y to nearest, and the exact rest."""
    s = x + y
    back = s - x
    return s, (x - (s - back)) + (y - back)


@part
def fma_and_error(x: Real, y: Real, z: Real) -> tuple[Real, Real]:
    """x * y + z to nearest, and a number with the sign of the exact rest.

    The error of a fused multiply-add takes two floats (Boldo and Muller); the
    larger of them, if not zero, has its sign.
    """
    r = fma64(x, y, z)
    product = x * y
    rest = fma64(x, y, -product)
    a, low = two_sum(z, rest)
    b, middle = two_sum(product, a)
    g = (b - r) + middle
    error = g + low
    return r, error


@part
def directed(x: Real, y: Real, z: Real, mode: Integer) -> Real:
    """x * y + z, rounded toward zero, down or up."""
    r = fma64(x, y, z)
    if not (abs(x) < np.inf and abs(y) < np.inf and abs(z) < np.inf):
        return r
    if x == 0 or y == 0:
        return exact_zero(x * y, z, mode)
    product_at = exponent(x) + exponent(y)
    at, near = product_at, 0.0
    if z != 0:
        distance = exponent(z) - product_at
        if distance > _FAR:
            at = exponent(z) - _FAR
        distance = min(max(distance, -_FAR), _FAR)
        near = significand(z) * float64_of(np.int64(distance + 1023) << 52)
    r, error = fma_and_error(significand(x), significand(y), near)
    if r == 0:  # then it is exact
        return exact_zero(x * y, z, mode)
    power = exponent(r)
    if abs(significand(r)) == 1 and error != 0 and (error < 0) == (r > 0):
        power -= 1  # r was rounded up to a power of two: units below are halves
    unit = max(power, -1022 - at) - 52
    units = scaled(r, -unit)
    whole = cut(units)
    rest = units - whole if units != whole else error
    return step(whole, rest, unit + at, mode)


@part
def exact_zero(product: Real, z: Real, mode: Integer) -> Real:
    """product + z where it is exact: one is zero, or both cancel."""
    if z != 0 and abs(product) != abs(z):
        return product + z
    negative = bits64_of(product) < 0 and bits64_of(z) < 0
    if mode == RM:
        negative = bits64_of(product) < 0 or bits64_of(z) < 0
    return -0.0 if negative else 0.0


@part
def step(whole: Real, rest: Real, unit: Integer, mode: Integer) -> Real:
    """(whole + something with the sign of rest) * 2**unit, rounded."""
    negative = whole < 0 or (whole == 0 and rest < 0)
    if rest > 0 and (mode == RP or (mode == RZ and whole < 0)):
        whole += 1
    if rest < 0 and (mode == RM or (mode == RZ and whole > 0)):
        whole -= 1
    if abs(whole) * 2.0**-53 >= scaled(1.0, min(971 - unit, 1000)):
        infinite = mode == (RM if negative else RP)
        limit = np.inf if infinite else 1.7976931348623157e308
        return -limit if negative else limit
    if whole == 0:
        return -0.0 if negative else 0.0
    return scaled(whole, unit)


@part
def fma_with_nan(x: Real, y: Real, z: Real, mode: Integer) -> Real:
    """x * y + z, where a NaN of y goes before one of z, and that before one of x."""
    r = directed(x, y, z, mode) if mode else fma64(x, y, z)
    if not np.isnan(r):
        return r
    bits = _DEFAULT_NAN
    for nan in (x, z, y):
        if np.isnan(nan):
            bits = bits64_of(nan) | _QUIET
    return float64_of(bits)


@compiled
def chain64(
    a: Array, b: Array, d: Array, p: Plan, first_row: Integer, last_row: Integer
) -> None:
    """f64: some rows of d in place; d holds c when this begins."""
    k, columns = p.k, p.columns
    for row in range(first_row, last_row):
        x_at = (row if p.a_batches > 1 else row % p.rows) * k
        y_at = row // p.rows * k * columns if p.b_batches > 1 else 0
        x = a[x_at : x_at + k]
        out = d[row * columns : (row + 1) * columns]
        c = out.copy()
        if not p.mode:
            for i in range(k):
                y = b[y_at + i * columns : y_at + (i + 1) * columns]
                for n in range(columns):
                    out[n] = fma64(x[i], y[n], out[n])
        for n in range(columns):
            if p.mode or np.isnan(out[n]):
                total = c[n]
                for i in range(k):
                    y_in = b[y_at + i * columns + n]
                    total = fma_with_nan(x[i], y_in, total, p.mode)
                out[n] = total


@compiled
def chain32(
    a: Array, b: Array, d: Array, p: Plan, first_row: Integer, last_row: Integer
) -> None:
    """f16 with k = 4 as the software does it: one instruction, all in f32."""
    for row in range(first_row, last_row):
        x_at = (row if p.a_batches > 1 else row % p.rows) * 4
        y_at = row // p.rows * 4 * p.columns if p.b_batches > 1 else 0
        x = a[x_at : x_at + 4]
        out = d[row * p.columns : (row + 1) * p.columns]
        for n in range(p.columns):
            y = b[y_at + n : y_at + 3 * p.columns + n + 1 : p.columns]
            if p.pairs:
                low = fma32(x[1], y[1], x[0] * y[0])
                high = fma32(x[3], y[3], x[2] * y[2])
                out[n] = (out[n] + low) + high
            else:
                total = np.float32(0)
                for j in range(4):
                    total = fma32(x[j], y[j], total)
                out[n] = out[n] + total
