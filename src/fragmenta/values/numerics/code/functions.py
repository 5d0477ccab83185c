"""Powers, logarithms, sines and tangents in double-double arithmetic.

Each reduces its argument with a table of some dozen exact values, and adds a short
series: its first terms in double-double, the others in f64.  The tables are computed
with Python's decimal numbers.  The relative error is at most 2**-62, that of powers and
of the square root less; ``tests/numerics/test_functions.py`` compares them with decimal
numbers of 60 digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal, localcontext
from functools import cache
from math import factorial

from fragmenta.base.jit.trace import (
    F64,
    I64,
    Code,
    Value,
    bits_of,
    convert,
    each_lane,
    float_of,
    fma,
    is_nan,
    nearest,
    select,
)
from fragmenta.values.numerics.code.double import (
    Double,
    chosen,
    finite,
    minus,
    over,
    plus,
    plus_float,
    square_root,
    times,
    two_product,
    whole,
)

DIGITS = 60
_STEPS = 32
"""Entries of the tables of powers and logarithms."""
_TURN = 64
"""Entries of the table of sines: parts of a turn."""
FARTHEST = 2.0**31
"""The largest angle that is reduced."""


def _pair(x: Decimal) -> tuple[float, float]:
    upper = float(x)
    return upper, float(x - Decimal(upper))


def _three(x: Decimal) -> tuple[float, float, float]:
    """A number as the sum of three f64."""
    upper, middle = _pair(x)
    return upper, middle, float(x - Decimal(upper) - Decimal(middle))


@cache
def _log_of_two() -> Decimal:
    with localcontext() as context:
        context.prec = DIGITS
        return Decimal(2).ln()


@cache
def _pi() -> Decimal:
    """Pi, by Machin's formula."""
    with localcontext() as context:
        context.prec = DIGITS + 5

        def inverse(n: int) -> Decimal:
            total, power, k = Decimal(0), Decimal(1) / n, 0
            while power > Decimal(10) ** -(DIGITS + 5):
                total += power / (2 * k + 1) * (-1) ** k
                power /= n * n
                k += 1
            return total

        return 4 * (4 * inverse(5) - inverse(239))


def _sine(x: Decimal) -> Decimal:
    total, term, n = Decimal(0), x, 1
    while abs(term) > Decimal(10) ** -(DIGITS + 5):
        total += term
        term *= -x * x / ((n + 1) * (n + 2))
        n += 2
    return total


@cache
def _powers() -> list[tuple[float, float]]:
    """2**(j / 32)."""
    with localcontext() as context:
        context.prec = DIGITS
        return [_pair((_log_of_two() * j / _STEPS).exp()) for j in range(_STEPS)]


@cache
def _logarithms() -> list[tuple[float, float, float]]:
    """For m around 1 + (j + 1/2) / 32: a short c near 1 / m, and -log2(c)."""
    found = []
    with localcontext() as context:
        context.prec = DIGITS
        for j in range(_STEPS):
            middle = 1 + (j + 0.5) / _STEPS
            short = round(256 / middle) / 256
            if j == 0:
                short = 1.0
            if j == _STEPS - 1:  # just below 2, whose logarithm is 1
                short = 0.5
            exact = -Decimal(short).ln() / _log_of_two()
            found.append((short, *_pair(exact)))
    return found


@cache
def _sines() -> list[tuple[float, float]]:
    """sin(2 pi j / 64), and a quarter of a turn more for cosines."""
    with localcontext() as context:
        context.prec = DIGITS + 5
        unit = 2 * _pi() / _TURN
        exact = [_sine(unit * j) for j in range(_TURN // 4 + 1)]
        half = exact + exact[-2::-1]
        turn = half + [-each for each in half[1:-1]]
        return [_pair(each) for each in [*turn, *turn[: _TURN // 4]]]


def _looked_up(
    code: Code, table: Iterable[tuple[float, ...]], places: Value
) -> list[Value]:
    """The columns of a table at the places of all lanes."""
    columns = zip(*table, strict=True)
    indices = each_lane(places)
    return [code.table(each, F64).gather(indices) for each in columns]


def _series(x: Value, terms: Iterable[float]) -> Value:
    """A polynomial in f64, the coefficient of the highest power first."""
    first, *rest = terms
    total = x.lift(first)
    for each in rest:
        total = fma(total, x, x.lift(each))
    return total


def _power_of_two(n: Value) -> Value:
    """2**n for whole numbers, as f64; n is at least -1022 and at most 1023."""
    return float_of((convert(n, I64) + 1023) << 52)


# ── powers and logarithms ───────────────────────────────────────────────────


def power(code: Code, x: Double) -> Double:
    """Two to the power of a number."""
    top = x.upper
    inside = (top > -1000.0) & (top < 1000.0)
    safe = chosen(inside, x, whole(top.lift(0.0)))
    steps = nearest(safe.upper * float(_STEPS))
    number = convert(steps, I64)
    rest = plus_float(safe, steps * (-1.0 / _STEPS))
    y = times(rest, _constant(top, _pair(_log_of_two())))
    small = y.upper
    # y + y*y/2 in double-double, the rest in f64.
    square = times(y, y)
    tail = (
        small
        * small
        * small
        * _series(small, [1.0 / factorial(n) for n in range(10, 2, -1)])
    )
    less = plus(y, Double(square.upper * 0.5, square.lower * 0.5))
    less = plus_float(less, tail)
    entry = Double(*_looked_up(code, _powers(), number & (_STEPS - 1)))
    made = plus(entry, times(entry, less))
    whole_steps = number >> 5  # 32 steps
    # In two factors: a result may be subnormal.
    half = whole_steps >> 1
    for part in (half, whole_steps - half):
        scale = _power_of_two(part)
        made = Double(made.upper * scale, made.lower * scale)
    outside = select(top >= 1000.0, top.lift(float("inf")), top.lift(0.0))
    outside = select(is_nan(top), top, outside)
    return finite(chosen(inside, made, whole(outside)))


def _part(number: int) -> tuple[float, float]:
    """One over a number."""
    with localcontext() as context:
        context.prec = DIGITS
        return _pair(Decimal(1) / number)


def _constant(of: Value, pair: tuple[float, float]) -> Double:
    return Double(of.lift(pair[0]), of.lift(pair[1]))


def logarithm(code: Code, x: Double) -> Double:
    """The logarithm to the base two."""
    top = x.upper
    usual = (top > 0.0) & (top < float("inf"))
    safe = chosen(usual, x, whole(top.lift(1.0)))
    small = safe.upper < 2.0**-1000  # subnormal
    scale = select(small, top.lift(2.0**200), top.lift(1.0))
    safe = Double(safe.upper * scale, safe.lower * scale)
    bits = bits_of(safe.upper)
    exponent = ((bits >> 52) & 2047) - 1023
    place = (bits >> 47) & (_STEPS - 1)
    down = _power_of_two(convert(0 - exponent, F64))
    m = Double(safe.upper * down, safe.lower * down)  # from 1 to 2
    short, upper, lower = _looked_up(code, _logarithms(), place)
    product = two_product(m.upper, short)
    t = plus_float(Double(product.upper, product.lower), product.upper.lift(-1.0))
    t = plus_float(t, m.lower * short)
    # t - t*t/2 + t*t*t/3 in double-double, the rest in f64.
    square = times(t, t)
    cube = times(square, t)
    third = times(cube, _constant(top, _part(3)))
    tail = (
        square.upper
        * square.upper
        * _series(t.upper, [(-1.0) ** (n + 1) / n for n in range(15, 3, -1)])
    )
    total = plus(t, Double(square.upper * -0.5, square.lower * -0.5))
    total = plus_float(plus(total, third), tail)
    with localcontext() as context:
        context.prec = DIGITS
        base = _pair(1 / _log_of_two())
    result = times(total, _constant(top, base))
    shift = convert(exponent, F64) - select(small, top.lift(200.0), top.lift(0.0))
    # Near 1 and near 2 nothing but the series is left: it is added last.
    head = plus_float(Double(upper, lower), shift)
    result = plus(head, result)
    special = select(top == 0.0, top.lift(float("-inf")), top.lift(float("nan")))
    special = select(top == float("inf"), top, special)
    return finite(chosen(usual, result, whole(special)))


# ── angles ──────────────────────────────────────────────────────────────────


def _angle(code: Code, x: Double) -> tuple[Double, Double, Double, Double]:
    """The sine and the cosine of a near angle of the table, and of the rest."""
    with localcontext() as context:
        context.prec = DIGITS
        unit = 2 * _pi() / _TURN
        first, second, third = _three(unit)
        per = float(1 / unit)
    inside = abs(x.upper) < FARTHEST
    safe = chosen(inside, x, whole(x.upper.lift(0.0)))
    steps = nearest(safe.upper * per)
    rest = safe
    for part in (first, second, third):
        product = two_product(steps, steps.lift(-part))
        rest = plus(rest, product)
    number = convert(steps, I64) & (_TURN - 1)
    sine = Double(*_looked_up(code, _sines(), number))
    cosine = Double(*_looked_up(code, _sines(), number + _TURN // 4))
    return sine, cosine, *_small_angle(rest)


def _small_angle(r: Double) -> tuple[Double, Double]:
    """The sine of an angle below pi / 64, and its cosine less 1."""
    square = times(r, r)
    z = square.upper
    sixth = times(times(square, r), _constant(z, _part(-6)))
    signs = [(-1.0) ** n / factorial(2 * n + 1) for n in range(7, 1, -1)]
    tail = z * z * r.upper * _series(z, signs)
    sine = plus_float(plus(r, sixth), tail)
    signs = [(-1.0) ** n / factorial(2 * n) for n in range(7, 1, -1)]
    less = Double(square.upper * -0.5, square.lower * -0.5)
    return sine, plus_float(less, z * z * _series(z, signs))


def sine(code: Code, x: Double) -> Double:
    """The sine; NaN beyond the angles that are reduced."""
    s, c, sin_rest, cos_less = _angle(code, x)
    total = plus(s, plus(times(c, sin_rest), times(s, cos_less)))
    return _inside(x, total)


def cosine(code: Code, x: Double) -> Double:
    """The cosine; NaN beyond the angles that are reduced."""
    s, c, sin_rest, cos_less = _angle(code, x)
    total = plus(c, minus(times(c, cos_less), times(s, sin_rest)))
    return _inside(x, total)


def _inside(x: Double, result: Double) -> Double:
    near = abs(x.upper) < FARTHEST
    return finite(chosen(near, result, whole(x.upper.lift(float("nan")))))


# ── others ──────────────────────────────────────────────────────────────────


def tangent(code: Code, x: Double) -> Double:
    """The hyperbolic tangent."""
    top = x.upper
    sign = select(top < 0.0, top.lift(-1.0), top.lift(1.0))
    size = Double(x.upper * sign, x.lower * sign)
    far = size.upper > 40.0
    size = chosen(far, whole(top.lift(40.0)), size)
    with localcontext() as context:
        context.prec = DIGITS
        factor = _pair(-2 / _log_of_two())
    e = power(code, times(size, _constant(top, factor)))
    one = whole(top.lift(1.0))
    usual = over(minus(one, e), plus(one, e))
    # Near 0 the difference cancels: x - x*x*x/3 + 2/15 x**5 - 17/315 x**7.
    square = times(size, size)
    cube = times(square, size)
    tail = (
        cube.upper
        * square.upper
        * _series(square.upper, [62.0 / 2835, -17.0 / 315, 2.0 / 15])
    )
    near = plus_float(plus(size, times(cube, _constant(top, _part(-3)))), tail)
    result = chosen(size.upper < 2.0**-9, near, usual)
    result = Double(result.upper * sign, result.lower * sign)
    return finite(chosen(is_nan(top), whole(top), result))


def reciprocal(code: Code, x: Double) -> Double:
    """One over a number."""
    return over(whole(x.upper.lift(1.0)), x)


def inverse_root(code: Code, x: Double) -> Double:
    """One over the square root."""
    return over(whole(x.upper.lift(1.0)), square_root(x))


def of_root(code: Code, x: Double) -> Double:
    """The square root."""
    return square_root(x)


FUNCTIONS: dict[str, Callable[[Code, Double], Double]] = {
    "ex2": power,
    "lg2": logarithm,
    "sin": sine,
    "cos": cosine,
    "tanh": tangent,
    "rcp": reciprocal,
    "sqrt": of_root,
    "rsqrt": inverse_root,
}
"""The functions of one operand, by opcode."""
