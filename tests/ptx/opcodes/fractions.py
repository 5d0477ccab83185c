"""The meaning of floating-point instructions, in exact fractions.

An independent statement, one number at a time: a number is decoded, the exact result is
computed as a fraction and rounded once.  What IEEE 754 leaves open is stated here as it
was seen on an H200.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

MODES = ("rn", "rz", "rm", "rp")


class Format(NamedTuple):
    exponent: int
    fraction: int
    nan: int
    infinite: bool = True

    @property
    def width(self):
        return 1 + self.exponent + self.fraction

    @property
    def least(self):
        """The exponent of the least normal number."""
        return 2 - (1 << (self.exponent - 1))

    @property
    def sign(self):
        return 1 << (self.width - 1)

    @property
    def infinity(self):
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def largest(self):
        if self.infinite:
            return self.infinity - 1
        return self.nan - 1 if self.exponent == 4 else self.sign - 1


FORMATS = {
    "f64": Format(11, 52, 0xFFF8 << 48),
    "f32": Format(8, 23, 0x7FFFFFFF),
    "tf32": Format(8, 10, 0x3FFFF),
    "f16": Format(5, 10, 0x7FFF),
    "bf16": Format(8, 7, 0x7FFF),
    "e5m2": Format(5, 2, 0x7F),
    "e4m3": Format(4, 3, 0x7F, False),
    "e3m2": Format(3, 2, 0x1F, False),
    "e2m3": Format(2, 3, 0x1F, False),
    "e2m1": Format(2, 1, 0x7, False),
}


class Number(NamedTuple):
    """A number: NaN has no value, infinity has ``math.inf``; zeros have signs."""

    negative: bool
    value: Fraction | float | None
    bits: int = 0

    @property
    def finite(self):
        return isinstance(self.value, Fraction)


def decoded(bits, of, flush=False):
    """The number that some bits stand for."""
    form = FORMATS[of]
    negative, magnitude = bool(bits & form.sign), bits & (form.sign - 1)
    if form.infinite and magnitude >= form.infinity:
        value = math.inf if magnitude == form.infinity else None
        return Number(negative, value, bits)
    if form.exponent == 4 and magnitude == form.nan:
        return Number(negative, None, bits)
    field, fraction = magnitude >> form.fraction, magnitude % (1 << form.fraction)
    if field:
        fraction += 1 << form.fraction
    elif flush:
        fraction = 0
    scale = max(field, 1) - 1 + form.least - form.fraction
    return Number(negative, Fraction(fraction) * Fraction(2) ** scale, bits)


def integral(x, mode, negative=False):
    """A fraction rounded to an integer; the sign is that of a magnitude."""
    whole = x.numerator // x.denominator
    rest = x - whole
    if mode == "rn":
        return whole + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2))
    away = {"rz": False, "rm": negative, "rp": not negative}[mode]
    return whole + (away and rest > 0)


def power(x):
    """The exponent of the leading bit of a positive fraction."""
    found = x.numerator.bit_length() - x.denominator.bit_length()
    return found - (Fraction(2) ** found > x)


def rounded(x, of, mode, *, finite=False, flush=False):
    """The bits of a number that is not NaN, rounded to a format."""
    form = FORMATS[of]
    sign = form.sign if x.negative else 0
    largest = form.largest
    if x.value == math.inf:
        return sign | (largest if finite else form.infinity)
    if x.value == 0:
        return sign
    exponent = power(x.value)
    if flush:  # what stays tiny with all bits of a normal number
        unit = Fraction(2) ** (exponent - form.fraction)
        if (
            integral(x.value / unit, mode, x.negative) * unit
            < Fraction(2) ** form.least
        ):
            return sign
    unit = Fraction(2) ** (max(exponent, form.least) - form.fraction)
    units = integral(x.value / unit, mode, x.negative)
    field = max(exponent, form.least) - form.least
    magnitude = (field << form.fraction) + units
    if magnitude > largest:
        up = mode in ("rn", "rm" if x.negative else "rp")
        magnitude = form.infinity if up and form.infinite and not finite else largest
    return sign | magnitude


# ── arithmetic ──────────────────────────────────────────────────────────────


def signed(x):
    return -x.value if x.negative else x.value


def number(value, zero_negative):
    if value == 0:
        return Number(zero_negative, Fraction(0))
    if isinstance(value, float):
        return Number(value < 0, math.inf)
    return Number(value < 0, abs(value))


def total(x, y, mode):
    """x + y; NaN if it is infinity less infinity."""
    if math.inf in (x.value, y.value):
        if x.value == y.value and x.negative != y.negative:
            return Number(False, None)
        return x if x.value == math.inf else y
    zero = x.negative and y.negative
    if x.negative != y.negative or signed(x) + signed(y) != 0:
        zero = zero or mode == "rm"
    return number(signed(x) + signed(y), zero)


def product(x, y):
    negative = x.negative != y.negative
    if math.inf in (x.value, y.value):
        return Number(negative, None if 0 in (x.value, y.value) else math.inf)
    return Number(negative, x.value * y.value)


def quotient(x, y):
    negative = x.negative != y.negative
    if x.value == math.inf:
        return Number(negative, None if y.value == math.inf else math.inf)
    if y.value == math.inf:
        return Number(negative, Fraction(0))
    if y.value == 0:
        return Number(negative, None if x.value == 0 else math.inf)
    return Number(negative, x.value / y.value)


def square_root(x):
    if x.value == 0 or (x.value == math.inf and not x.negative):
        return x
    if x.negative:
        return Number(False, None)
    # 160 bits of it, and a half of the last one if that is not all.
    shift = 160 - power(x.value) // 2
    scaled = x.value * Fraction(4) ** shift
    root = math.isqrt(scaled.numerator // scaled.denominator)
    more = Fraction(root * root != scaled, 2)
    return Number(False, (root + more) / Fraction(2) ** shift)


def computed(opcode, given, mode):
    """The exact result of an operation on numbers, none of them NaN."""
    match opcode:
        case "add":
            return total(given[0], given[1], mode)
        case "sub":
            return total(given[0], negated(given[1]), mode)
        case "mul":
            return product(given[0], given[1])
        case "fma" | "mad":
            part = product(given[0], given[1])
            return part if part.value is None else total(part, given[2], mode)
        case "div":
            return quotient(given[0], given[1])
        case "rcp":
            return quotient(Number(False, Fraction(1)), given[0])
        case "sqrt":
            return square_root(given[0])
    raise KeyError(opcode)


def negated(x):
    return Number(not x.negative, x.value, x.bits)


# The operand whose NaN an f64 result has: the first of these that is NaN.
NAN_ORDER = {
    "add": (1, 0),
    "sub": (1, 0),
    "mul": (1, 0),
    "div": (0, 1),
    "rcp": (0,),
    "sqrt": (0,),
    "fma": (1, 2, 0),
    "mad": (1, 2, 0),
    "min": (1, 0),
    "max": (1, 0),
}


def nan_of(opcode, given, of):
    """The bits of a NaN result."""
    if of == "f64":
        for place in NAN_ORDER[opcode]:
            if given[place].value is None:
                return given[place].bits | 1 << 51
    return FORMATS[of].nan


def arithmetic(opcode, q, of, words, kinds=None):
    """The bits of a result of add, sub, mul, fma, mad, div, rcp or sqrt."""
    flush, mode = bool(q.get("ftz")), q.get("rnd") or "rn"
    kinds = kinds or [of] * len(words)
    given = [decoded(w, k, flush) for w, k in zip(words, kinds, strict=True)]
    if q.get("oob") and any(w & 0x7FFF == 0x7FF7 for w in words[:2]):
        return 0
    unknown = any(x.value is None for x in given)
    result = Number(False, None) if unknown else computed(opcode, given, mode)
    if q.get("sat"):
        if result.value is None or result.negative:
            return 0
        result = Number(False, min(result.value, Fraction(1)))
    if result.value is None:
        return nan_of(opcode, given, of)
    if q.get("relu") and result.negative:
        return 0
    return rounded(result, of, mode, flush=flush)


def extreme(opcode, q, of, words):
    """The bits of min or max."""
    form, flush = FORMATS[of], bool(q.get("ftz"))
    given = [decoded(w, of, flush) for w in words]
    sign = given[0].negative != given[1].negative
    if q.get("abs"):
        given = [Number(False, x.value, x.bits & (form.sign - 1)) for x in given]
    numbers = [x for x in given if x.value is not None]
    if not numbers or (q.get("NaN") and len(numbers) < len(given)):
        return nan_of(opcode, given, of)
    pick = min if opcode == "min" else max
    best = pick(numbers, key=lambda x: (signed(x), not x.negative))
    if q.get("xorsign"):
        best = Number(sign, best.value)
    return rounded(best, of, "rn")


def signs(opcode, q, of, words):
    """The bits of neg, abs and copysign."""
    form = FORMATS[of]
    if opcode == "copysign":
        return words[0] & form.sign | words[1] & (form.sign - 1)
    x = decoded(words[0], of, bool(q.get("ftz")))
    if x.value is None:
        return words[0] | 1 << 51 if of == "f64" else form.nan
    negative = opcode == "neg" and not x.negative
    return rounded(Number(negative, x.value), of, "rn")


def tested(q, of, words):
    """Whether testp holds."""
    x, least = decoded(words[0], of), Fraction(2) ** FORMATS[of].least
    return int(
        {
            "finite": x.finite,
            "infinite": x.value == math.inf,
            "number": x.value is not None,
            "notanumber": x.value is None,
            "normal": x.finite and (x.value == 0 or x.value >= least),
            "subnormal": x.finite and 0 < x.value < least,
        }[q["op"]]
    )
