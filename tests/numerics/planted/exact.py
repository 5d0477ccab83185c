"""What the planted kernels compute in exact arithmetic, independently of any engine.

Sums, products and quotients are fractions, other functions have 40 digits.  Results are
f64: the error of that is 2^-53, far below the errors that are looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal, localcontext
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
DIGITS = 40
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def decimal(value: Any) -> Decimal:
    """A number with 40 digits."""
    number = value if isinstance(value, Fraction) else Fraction(float(value))
    with localcontext() as context:
        context.prec = DIGITS
        return Decimal(number.numerator) / Decimal(number.denominator)


def fractions(values: Any) -> list[Fraction]:
    """The numbers of an array, exactly."""
    return [Fraction(float(each)) for each in np.asarray(values).reshape(-1)]


def array(values: Iterable[Any], *shape: int) -> Array:
    """Exact numbers as f64."""
    found = np.array([float(each) for each in values], np.float64)
    return found.reshape(shape) if shape else found


def power(exponent: Any) -> Decimal:
    """Two to a power."""
    with localcontext() as context:
        context.prec = DIGITS
        return (decimal(exponent) * Decimal(2).ln()).exp()


def root(value: Any) -> Decimal:
    """The square root."""
    with localcontext() as context:
        context.prec = DIGITS
        return decimal(value).sqrt()


def sine(angle: Any) -> float:
    """The sine, with the angle reduced exactly."""
    with localcontext() as context:
        context.prec = DIGITS + 20
        x = Decimal(Fraction(angle).numerator) / Decimal(Fraction(angle).denominator)
        x -= 2 * PI * floor(x / (2 * PI))
        term, total, k = x, x, 1
        while abs(term) > Decimal(10) ** -DIGITS:
            term *= -x * x / ((k + 1) * (k + 2))
            total, k = total + term, k + 2
        return float(total)


def softmax(scores: Array, seen: Array | None = None) -> Array:
    """Rows of powers of two over their sums; a row without a key is zero."""
    seen = np.ones(scores.shape, np.int32) if seen is None else seen
    rows = []
    for row, of in zip(scores, seen.reshape(scores.shape), strict=True):
        some = [power(x) if s else Decimal(0) for x, s in zip(row, of, strict=True)]
        total = sum(some, Decimal(0)) or Decimal(1)
        rows.append([float(each / total) for each in some])
    return np.array(rows)


def decode(q: Array, k: Array, v: Array, lengths: Array) -> Array:
    """Attention of queries to the first keys; zero where there is none."""
    rows = []
    for query, length in zip(q, lengths, strict=True):
        own = fractions(query)
        scores = [sum(map(_times, own, fractions(key))) for key in k[:length]]
        weights = [power(each) for each in scores]
        total = sum(weights, Decimal(0)) or Decimal(1)
        sums = [
            sum((w * decimal(x) for w, x in zip(weights, column, strict=True)), 0)
            for column in v[:length].T
        ]
        rows.append([float(each / total) for each in sums])
    return np.array(rows)


def _times(a: Fraction, b: Fraction) -> Fraction:
    return a * b


def dots(a: Array, b: Array) -> Array:
    """All products of rows of a with rows of b, as whole numbers of one small unit."""
    (left, one), (right, other) = _whole(a), _whole(b)
    unit = Fraction(1, one * other)
    return array([each * unit for each in (left @ right.T).reshape(-1)], len(a), len(b))


def _whole(x: Array) -> tuple[Array, int]:
    """Floats as whole numbers, and how many of their unit are one."""
    values = fractions(x)
    unit = max(each.denominator for each in values)  # a power of two
    found = [int(each * unit) for each in values]
    return np.array(found, object).reshape(x.shape), unit


def sums(x: Array) -> Array:
    """The sum of each row."""
    return array(sum(fractions(row)) for row in x)


def centred(row: Array) -> tuple[list[Fraction], Fraction]:
    """A row without its mean, and its variance."""
    values = fractions(row)
    mean = sum(values, Fraction(0)) / len(values)
    apart = [each - mean for each in values]
    return apart, sum((each * each for each in apart), Fraction(0)) / len(values)


def variances(x: Array) -> Array:
    """The variance of each row."""
    return array(centred(row)[1] for row in x)


def norms(x: Array, epsilon: float) -> Array:
    """Rows without their mean, over the root of their variance plus epsilon."""
    rows = []
    for row in x:
        apart, spread = centred(row)
        below = root(spread + Fraction(float(epsilon)))
        rows.append([float(decimal(each) / below) for each in apart])
    return np.array(rows)


def root_mean_squares(x: Array) -> Array:
    """Rows over the root of the mean of their squares."""
    rows = []
    for row in x:
        values = fractions(row)
        below = root(sum((each * each for each in values), Fraction(0)) / len(values))
        rows.append([float(decimal(each) / below) for each in values])
    return np.array(rows)


def each(function: Callable[[Fraction], Any], x: Array) -> Array:
    """A function of every element."""
    return array((function(one) for one in fractions(x)), *x.shape)


def log_sums(scores: Array) -> Array:
    """log2 of the sum of powers of two of each row."""
    found = []
    with localcontext() as context:
        context.prec = DIGITS
        for row in scores:
            total = sum((power(each) for each in row), Decimal(0))
            found.append(total.ln() / Decimal(2).ln())
    return array(found)


def log_products(x: Array) -> Array:
    """log2 of the product of all elements."""
    with localcontext() as context:
        context.prec = DIGITS
        logarithms = [decimal(each).ln() for each in x]
        return array([sum(logarithms, Decimal(0)) / Decimal(2).ln()])


def lengths(x: Array) -> Array:
    """The length of each row."""
    return array(root(sum((v * v for v in fractions(row)), Fraction(0))) for row in x)


def muller(steps: int) -> Array:
    """Muller's sequence that starts with 4 and 4.25."""
    before, now = Fraction(4), Fraction(17, 4)
    for _ in range(steps - 1):
        before, now = now, 108 - (815 - 1500 / before) / now
    return array([now])
