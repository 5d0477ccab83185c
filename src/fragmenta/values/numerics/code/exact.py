"""What instructions compute, exactly: their meaning for nearly exact operands.

A modifier that is meant, such as ``.sat``, ``.relu`` or ``.abs``, is part of the
meaning.  Rounding, ``.ftz``, ``.satfinite`` and ``.approx`` are not: they are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fragmenta.base.jit.trace import (
    F32,
    F64,
    I32,
    I64,
    Code,
    Value,
    ceiling,
    convert,
    floor,
    fma,
    nearest,
    root,
    scalar_type,
    select,
    shift_unsigned,
    truncate,
)
from fragmenta.ptx import families
from fragmenta.ptx.opcodes.half import rounded, value_of
from fragmenta.ptx.opcodes.table import Qualifiers
from fragmenta.values.numerics.code.double import (
    Double,
    below,
    chosen,
    minus,
    negated,
    over,
    plus,
    plus_float,
    times,
    two_sum,
    whole,
)
from fragmenta.values.numerics.code.elements import PackedFloats, TrackedFloat
from fragmenta.values.numerics.code.functions import FUNCTIONS


class ExactOperands(NamedTuple):
    """What the meaning of an instruction may depend on."""

    code: Code
    words: Qualifiers
    elements: Sequence[TrackedFloat]
    """The operands."""
    held: Value
    """The result of the hardware, as f64."""

    @property
    def exact(self) -> list[Double]:
        """The operands, exactly."""
        return [each.exact for each in self.elements]

    @property
    def values(self) -> list[Value]:
        """The operands as the hardware has them."""
        return [each.value for each in self.elements]


Meaning = Callable[[ExactOperands], Double]
QUANTISED = "quantised"
"""The word of ``min`` and ``max`` that keep quantised numbers in their range: which
operand is the number."""
UNROUNDED = "unrounded"
"""The word of a conversion that cuts numbers which should be rounded: which of them."""
CLIPPED = "clipped"
"""The word of a ``min`` and ``max`` that keep numbers in a range on both sides of zero:
the change from which on a number counts as cut off."""
WRAPPED = "wrapped"
"""The word of a conversion that keeps a sum of bytes in one."""
HALF, AWAY = "half", "away"
"""The word of a conversion that cuts a sum with a half, which rounds: the half, or that
it has the sign of the number."""


def _usual(x: Value) -> Value:
    inside: Value = (x - x) == 0.0
    return inside


# ── sums and products ───────────────────────────────────────────────────────


def _fused(given: ExactOperands) -> Double:
    a, b, c = given.exact
    return plus(times(a, b), c)


def separate(
    kind: PackedFloats, words: Qualifiers, values: Sequence[Value]
) -> Value | None:
    """What a product and a sum would give that are rounded one after the other.

    As f64; None for other roundings than to nearest, and where a modifier follows.
    """
    meant = any(words.get(each) for each in ("sat", "relu", "oob"))
    if (words.get("rnd") or "rn") != "rn" or meant or len(values) != 3:
        return None
    flush = kind.normal if words.get("ftz") else 0.0
    a, b, c = (_flushed(each, flush) for each in values)
    product = _flushed(_rounded(a * b, kind), flush)
    return _flushed(_rounded(product + c, kind), flush)


def _rounded(x: Value, kind: PackedFloats) -> Value:
    """An f64 rounded to a format; sums of two are rounded once in effect."""
    if kind.format == "f64":
        return x
    single = convert(x, F32)
    if kind.format == "f32":
        return convert(single, F64)
    return convert(value_of(rounded(single, kind.format), kind.format), F64)


def _flushed(x: Value, least: float) -> Value:
    return x if not least else select(abs(x) < least, 0.0, x)


# ── choices ─────────────────────────────────────────────────────────────────


def _magnitude(x: Double) -> Double:
    return chosen(x.negative, negated(x), x)


def _extreme(given: ExactOperands, largest: bool) -> Double:
    """The largest or smallest operand; of infinities, what the hardware took."""
    words, numbers = given.words, given.exact
    if words.get(QUANTISED):  # what a range cuts off is an error
        return numbers[int(words[QUANTISED])]
    if words.get("abs") or words.get("xorsign"):
        numbers = [_magnitude(each) for each in numbers]
    found = numbers[0]
    every = _compares(given.values[0], found)
    for each, value in zip(numbers[1:], given.values[1:], strict=True):
        less = below(found, each)
        found = chosen(less if largest else ~less, each, found)
        every = every & _compares(value, each)
    taken = numbers[-1]
    for each, value in zip(numbers[:-1], given.values[:-1], strict=True):
        size = abs(value) if words.get("abs") else value
        taken = chosen(size == given.held, each, taken)
    found = chosen(every, found, taken)
    if words.get("xorsign"):
        a, b = given.exact[:2]
        found = chosen(a.negative == b.negative, found, negated(found))
    return found


def _compares(value: Value, exact: Double) -> Value:
    """Whether the exact value of an operand is compared.

    A NaN that exact arithmetic does not have is left out by the hardware: that is an
    error, which would be hidden.
    """
    known = (exact.upper <= 0.0) | (exact.upper > 0.0)
    nan = ~((value <= 0.0) | (value > 0.0))
    found: Value = _usual(value) | (nan & known)
    return found


def _selected(given: ExactOperands) -> Double:
    """``slct``: the operand that the hardware took."""
    first, second = given.exact[:2]
    return chosen(given.values[0] == given.held, first, second)


def _copysign(given: ExactOperands) -> Double:
    a, b = given.exact
    size = _magnitude(b)
    return chosen(a.negative, negated(size), size)


def _converted(given: ExactOperands) -> Double:
    """A number; where it was rounded, without the half that was added for that."""
    half, (exact,) = given.words.get(HALF), given.exact[:1]
    if not half:
        return exact
    (value,) = given.values[:1]
    if half == AWAY:
        return plus_float(exact, select(value < 0.0, 0.5, value.lift(-0.5)))
    return plus_float(exact, value.lift(-float(half)))


# ── the table ───────────────────────────────────────────────────────────────


def _function(name: str) -> Meaning:
    return lambda given: FUNCTIONS[name](given.code, given.exact[0])


def _dot(given: ExactOperands, pairs: list[tuple[int, int]]) -> Double:
    """A sum of products of packed integers, and the last operand."""
    total = given.exact[-1]
    for one, other in pairs:
        total = plus(total, times(given.exact[one], given.exact[other]))
    return total


def _dot_of_halves(given: ExactOperands) -> Double:
    """``dp2a``: two halves of a, and the lower or the upper two bytes of b."""
    first = 4 if given.words.get("half") == "hi" else 2
    return _dot(given, [(0, first), (1, first + 1)])


MEANINGS: dict[str, Meaning] = {
    "add": lambda given: plus(*given.exact),
    "sub": lambda given: minus(*given.exact),
    "mul": lambda given: times(*given.exact),
    "fma": _fused,
    "mad": _fused,
    "div": lambda given: over(*given.exact),
    "neg": lambda given: negated(given.exact[0]),
    "abs": lambda given: _magnitude(given.exact[0]),
    "slct": _selected,
    "copysign": _copysign,
    "min": lambda given: _extreme(given, largest=False),
    "max": lambda given: _extreme(given, largest=True),
    "cvt": _converted,
    "dp4a": lambda given: _dot(given, [(i, i + 4) for i in range(4)]),
    "dp2a": _dot_of_halves,
    **{name: _function(name) for name in FUNCTIONS},
}
"""What opcodes compute, exactly."""
QUICK: dict[str, Callable[..., Value]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": fma,
    "mad": fma,
    "div": lambda a, b: a / b,
    "rcp": lambda a: a.lift(1.0) / a,
    "sqrt": root,
    "rsqrt": lambda a: a.lift(1.0) / root(a),
}
"""The same of the hardware's operands, of 32 bits or less, in f64.

It is for the error of one instruction, which is far above that rounding."""
SUMS = families.SUMS | families.FUSED
"""Opcodes that may cancel and absorb."""
LOG_OF_TWO = 0.6931471805599453
LONG = frozenset({*FUNCTIONS, "div"})
"""Opcodes whose meaning takes many instructions."""


def meaning(opcode: str, given: ExactOperands) -> Double:
    """The exact result, with the modifiers that are meant."""
    return _modified(given.words, MEANINGS[opcode](given))


def quick(opcode: str, words: Qualifiers, values: Sequence[Value]) -> Double:
    """The result of the hardware's operands, nearly exact."""
    return _modified(words, whole(QUICK[opcode](*values)))


def near_power(exact: Double, step: Value) -> Value:
    """2**(x + step) from 2**x, for a step of at most 2**-6."""
    y = step * LOG_OF_TWO
    series = y.lift(1.0 / 120)
    for term in (1.0 / 24, 1.0 / 6, 0.5, 1.0):
        series = fma(series, y, y.lift(term))
    return fma(exact.upper, series * y, exact.upper)


def _modified(words: Qualifiers, x: Double) -> Double:
    if words.get("sat"):
        one, zero = whole(x.upper.lift(1.0)), whole(x.upper.lift(0.0))
        x = chosen(x.upper > 1.0, one, x)
        x = chosen(x.upper > 0.0, x, zero)
    if words.get("relu"):
        x = chosen(x.negative, whole(x.upper.lift(0.0)), x)
    return x


def of_integer(x: Value, signed: bool) -> Double:
    """An integer as a number."""
    if scalar_type(x.type).width <= 32:
        return whole(convert(x, F64, signed=signed))
    low = convert(convert(x, I32), I64, signed=False)
    high = x >> 32 if signed else shift_unsigned(x, 32)
    upper = convert(high, F64, signed=True) * 2.0**32
    return two_sum(upper, convert(low, F64, signed=True))


# ── decisions ───────────────────────────────────────────────────────────────

_ROUNDINGS = {"rni": nearest, "rzi": truncate, "rmi": floor, "rpi": ceiling}


def integral(mode: str, x: Double) -> Value:
    """A number rounded to an integer, as f64."""
    found = _ROUNDINGS[mode](x.upper)
    at_integer = found == x.upper
    down, up = (x.lower < 0.0) & at_integer, (x.lower > 0.0) & at_integer
    none = down ^ down
    if mode == "rmi":
        up = none
    elif mode == "rpi":
        down = none
    elif mode == "rzi":
        down, up = down & (x.upper > 0.0), up & (x.upper < 0.0)
    else:  # a half, which the lower part decides
        half = abs(x.upper - found) == 0.5
        above = half & (x.lower > 0.0) & (found < x.upper)
        under = half & (x.lower < 0.0) & (found > x.upper)
        down, up = under, above
    return select(down, found - 1.0, select(up, found + 1.0, found))


def compared(name: str, a: Double, b: Double) -> Value:
    """Whether a comparison of numbers that are not NaN holds."""
    less, more = below(a, b), below(b, a)
    same = ~(less | more)
    found: dict[str, Value] = {
        "eq": same,
        "ne": ~same,
        "lt": less,
        "le": less | same,
        "gt": more,
        "ge": more | same,
    }
    return found[name.removesuffix("u")]
