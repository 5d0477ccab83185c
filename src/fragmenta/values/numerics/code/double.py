"""Double-double arithmetic: a number is the sum of two f64, about 106 bits.

Sums, products, quotients and roots have a relative error of at most 2**-100, as long as
all is in the range of f64.  If the upper part is infinite or NaN, the lower part is
zero.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.trace import F64, I32, Value, convert, fma, picked, root, select


class Double(NamedTuple):
    """A number: the sum of its parts, of which the upper one is the nearest f64."""

    upper: Value
    lower: Value

    @property
    def negative(self) -> Value:
        """Whether it is below zero."""
        below: Value = self.upper < 0.0
        return below


def whole(x: Value) -> Double:
    """A float as it is."""
    wide = convert(x, F64)
    return Double(wide, wide.lift(0.0))


def two_sum(a: Value, b: Value) -> Double:
    """The sum of two f64, and what its rounding dropped."""
    total = a + b
    part = total - a
    return Double(total, (a - (total - part)) + (b - part))


def quick_sum(a: Value, b: Value) -> Double:
    """The same if ``a`` is not the smaller one."""
    total = a + b
    return Double(total, b - (total - a))


def two_product(a: Value, b: Value) -> Double:
    """The product of two f64, exactly."""
    product = a * b
    return Double(product, fma(a, b, 0.0 - product))


def finite(x: Double, plain: Value | None = None) -> Double:
    """A number whose lower part is zero if the upper one is infinite or NaN.

    ``plain`` is the result of f64, which knows what infinities give.
    """
    top = x.upper if plain is None else plain
    inside = (top - top) == 0.0
    upper = x.upper if plain is None else select(inside, x.upper, plain)
    return Double(upper, select(inside, x.lower, 0.0))


def negated(x: Double) -> Double:
    """The number with the other sign."""
    return Double(x.upper * -1.0, x.lower * -1.0)


def plus(a: Double, b: Double) -> Double:
    """The sum."""
    upper, lower = two_sum(a.upper, b.upper), two_sum(a.lower, b.lower)
    first = quick_sum(upper.upper, upper.lower + lower.upper)
    return finite(quick_sum(first.upper, first.lower + lower.lower), upper.upper)


def minus(a: Double, b: Double) -> Double:
    """The difference."""
    return plus(a, negated(b))


def plus_float(a: Double, b: Value) -> Double:
    """The sum of a number and an f64."""
    upper = two_sum(a.upper, b)
    return finite(quick_sum(upper.upper, upper.lower + a.lower), upper.upper)


def times(a: Double, b: Double) -> Double:
    """The product."""
    product = two_product(a.upper, b.upper)
    cross = fma(a.upper, b.lower, a.lower * b.upper)
    return finite(quick_sum(product.upper, product.lower + cross), product.upper)


def times_float(a: Double, b: Value) -> Double:
    """The product of a number and an f64."""
    product = two_product(a.upper, b)
    exact = quick_sum(product.upper, fma(a.lower, b, product.lower))
    return finite(exact, product.upper)


def over(a: Double, b: Double) -> Double:
    """The quotient: two steps of a long division, and a last correction."""
    first = a.upper / b.upper
    rest = minus(a, times_float(b, first))
    second = rest.upper / b.upper
    rest = minus(rest, times_float(b, second))
    third = rest.upper / b.upper
    total = quick_sum(first, second)
    exact = plus_float(total, third)
    # Infinities and zeros: f64 knows what they give.
    usual = ((first - first) == 0.0) & ((b.upper - b.upper) == 0.0)
    return Double(select(usual, exact.upper, first), select(usual, exact.lower, 0.0))


def square_root(x: Double) -> Double:
    """The square root: that of the upper part, and one step of Newton's method."""
    first = root(x.upper)
    rest = minus(x, two_product(first, first))
    step = rest.upper / (first * 2.0)
    better = quick_sum(first, step)
    rest = minus(x, times(better, better))
    best = plus_float(better, rest.upper / (first * 2.0))
    usual = (first > 0.0) & ((first - first) == 0.0)
    return Double(select(usual, best.upper, first), select(usual, best.lower, 0.0))


def scaled(x: Double, by: Value) -> Double:
    """The number times a power of two."""
    return Double(x.upper * by, x.lower * by)


def chosen(which: Value, yes: Double, no: Double) -> Double:
    """One of two numbers."""
    return Double(
        select(which, yes.upper, no.upper), select(which, yes.lower, no.lower)
    )


def below(a: Double, b: Double) -> Value:
    """Whether one number is less than another; false if one of them is NaN."""
    less: Value = (a.upper < b.upper) | ((a.upper == b.upper) & (a.lower < b.lower))
    return less


def equal(a: Double, b: Double) -> Value:
    """Whether two numbers are the same."""
    same: Value = (a.upper == b.upper) & (a.lower == b.lower)
    return same


def rounded(x: Double) -> Value:
    """The nearest f64."""
    return x.upper + x.lower


def total(x: Value) -> Value:
    """The sum of all lanes."""
    while isinstance(x.type, ir.VectorType) and x.type.count > 1:
        half = x.type.count // 2
        x = picked(x, range(half)) + picked(x, range(half, 2 * half))
    b = x.builder
    return Value(b, b.extract_element(x.raw, ir.Constant(I32, 0)))


def largest(x: Value) -> Value:
    """The largest of all lanes; none of them is NaN."""
    while isinstance(x.type, ir.VectorType) and x.type.count > 1:
        half = x.type.count // 2
        low, high = picked(x, range(half)), picked(x, range(half, 2 * half))
        x = select(low > high, low, high)
    b = x.builder
    return Value(b, b.extract_element(x.raw, ir.Constant(I32, 0)))
