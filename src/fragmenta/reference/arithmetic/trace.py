"""Computes one element of D step by step, in exact fractions.

These are the steps of the compiled loops, for a single element and in exact
fractions.  Everything is recorded: each product and its exponent, emax, what every
term loses when it is aligned, the sum, the rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.reference.arithmetic.models import GROUP, Model
from fragmenta.reference.arithmetic.operands import Bits, Operands
from fragmenta.reference.registers.dtype import dtype

#: An exact value; a float only if it is infinite or NaN.
ExactValue: TypeAlias = Fraction | float

#: The NaN that an operation makes, by the type of its result.
NAN_BITS = {"f16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0xFFF8000000000000}
_QUIET = 1 << 51


@dataclass(frozen=True, slots=True)
class ExactNumber:
    """An element as value, sign and exponent."""

    value: ExactValue
    negative: bool = False  #: zeros and NaNs have signs, too
    exponent: int | None = None  #: its part of a product's exponent; None for zero
    nan: int | None = None  #: the bits of an f64 NaN

    @property
    def finite(self) -> bool:
        """Whether it is neither infinite nor NaN."""
        return isinstance(self.value, Fraction)


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a step: a product, a group of products, or the accumulator.

    ``k`` is empty for the accumulator.  ``aligned`` and ``lost`` are None if the step
    does not align its terms.
    """

    k: tuple[int, ...]  #: the logical k of the products in it
    a: ExactValue | None
    b: ExactValue | None
    value: ExactValue
    exponent: int | None
    aligned: Fraction | None = None
    lost: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One operation that rounds."""

    operation: str  #: "fused", "fma", "add", "exact" or "convert"
    terms: tuple[Term, ...]
    emax: int | None
    total: ExactValue  #: the sum before rounding
    keep: int | None  #: fraction bits; None for integers
    rounding: str
    value: ExactValue
    type: str
    bits: int


@dataclass(frozen=True, slots=True)
class ScaledBlock:
    """Columns of k that share their scales."""

    k: range
    scale_a: ExactValue
    scale_b: ExactValue


@dataclass(frozen=True, slots=True)
class Explanation:
    """One element of D, step by step.

    With 13 fraction bits, adding 32 ones to 2**14 changes nothing:

    >>> import numpy as np
    >>> from fragmenta.reference.arithmetic import model
    >>> ones = np.full(32, 0x38, np.uint8)  # 1.0 as e4m3
    >>> how = model("sm_90", "e4m3", "e4m3", "f32", "f32", 32, unit="wgmma")
    >>> story = explain_steps(ones, ones, 0x46800000, how)
    >>> step, = story.steps
    >>> step.emax, str(step.terms[0].value), str(step.terms[0].lost)
    (14, '1', '1')
    >>> str(story.value), str(story.exact), str(story.difference)
    ('16384', '16416', '-32')
    """

    model: Model
    steps: tuple[Step, ...]
    bits: int
    value: ExactValue
    exact: ExactValue  #: the result of exact arithmetic
    blocks: tuple[ScaledBlock, ...] = ()  #: the block scales, if there are any

    @property
    def difference(self) -> ExactValue:
        """The computed value minus the exact value; NaN if one is not finite."""
        if isinstance(self.value, Fraction) and isinstance(self.exact, Fraction):
            return self.value - self.exact
        return math.nan


def explain_steps(
    a: Bits,
    b: Bits,
    c: object,
    model: Model,
    *,
    index: Bits | None = None,
    scale_a: Bits | None = None,
    scale_b: Bits | None = None,
) -> Explanation:
    """What :func:`multiply` does for one element of D, step by step.

    ``a`` is a row of A and ``b`` a column of B, as raw bits along k; ``c`` is the
    bits of one accumulator.  A sparse A and block scales are given as in
    ``multiply``.

    >>> import numpy as np
    >>> from fragmenta.reference.arithmetic import model
    >>> half = model("sm_80", "f16", "f16", "f32", "f32", 16)
    >>> ones = np.full(16, 0x3C00, np.uint16)  # 1.0 as f16
    >>> story = explain_steps(ones, ones, 0, half)
    >>> [(step.operation, str(step.value)) for step in story.steps]
    [('fused', '8'), ('fused', '16')]
    """
    row = None if index is None else np.asarray(index)[None, :]
    scales = (
        None if scale_a is None else np.asarray(scale_a)[None, :],
        None if scale_b is None else np.asarray(scale_b)[:, None],
    )
    kind = dtype(model.c).bits_dtype
    start = np.asarray(c).astype(kind).reshape(1, 1)
    given = Operands.check(
        model, np.asarray(a)[None, :], np.asarray(b)[:, None], start, row, *scales
    )
    story = _StepRecorder(given)
    story.run()
    last = story.steps[-1]
    steps, exact = tuple(story.steps), story.exact()
    return Explanation(model, steps, last.bits, last.value, exact, story.blocks())


class _StepRecorder:
    """Computes the instructions of one element and records every step."""

    def __init__(self, given: Operands) -> None:
        self.model = model = given.model
        self.steps: list[Step] = []
        #: The type of ordinary operations, and of the results of fused steps.
        self.type = "f32" if model.form == "pairs" else model.accumulator
        self.a = _bits(given.a[0, 0], model.a)
        self.b = _bits(given.b[0, :, 0], model.b)
        self.c = _number(int(given.c[0, 0, 0]), model.c, model.c_enters)
        length = model.stored * given.instructions
        self.k = (
            list(range(length))
            if given.index is None
            else [
                p // model.stored * model.k + int(q)
                for p, q in enumerate(given.index[0, 0])
            ]
        )
        self.scales = (
            [(int(x), int(y)) for x, y in zip(sa, sb, strict=True)]
            if given.scale_a is not None
            and given.scale_b is not None
            and len(sa := given.scale_a[0, 0]) == len(sb := given.scale_b[0, :, 0])
            else []
        )

    def run(self) -> None:
        """Compute all instructions; each result is the next one's accumulator."""
        model, state = self.model, self.c
        run = {
            "fused": self._fused,
            "grouped": self._fused,
            "chain": self._chain,
            "pairs": self._pairs,
            "integer": self._exact,
            "bits": self._exact,
        }[model.form]
        for first in range(0, len(self.a), model.stored):
            state = run(first, state)
            if model.d == "f16" and self.type == "f32":
                state = self._convert(state)

    def exact(self) -> ExactValue:
        """The exact sum of everything."""
        model = self.model
        if model.form == "bits":
            return self.c.value + sum(self._bit(p) for p in range(len(self.a)))
        total = self.c.value
        for p in range(len(self.a)):
            total = _add(total, self._product(p).value)
        return total

    def blocks(self) -> tuple[ScaledBlock, ...]:
        """The scales of each block of k."""
        name = str(self.model.scale)
        size = self.model.k // max(1, self.model.scale_vec)
        return tuple(
            ScaledBlock(
                range(first * size, (first + 1) * size),
                *(_number(bits, name, name).value for bits in pair),
            )
            for first, pair in enumerate(self.scales)
        )

    # -- terms ---------------------------------------------------------------

    def _numbers(self, p: int) -> tuple[ExactNumber, ExactNumber]:
        """The operands of a product, after conversion to the step's operand type."""
        model = self.model
        x, y = self.a[p], self.b[self.k[p]]
        return (
            _number(x, model.a, model.operand or model.a),
            _number(y, model.b, model.operand or model.b),
        )

    def _scale(self, p: int) -> tuple[ExactNumber, ExactNumber]:
        blocks = self.model.scale_vec * (len(self.a) // self.model.stored)
        name = str(self.model.scale)
        x, y = self.scales[p * blocks // len(self.a)]
        return _number(x, name, name), _number(y, name, name)

    def _product(self, p: int) -> Term:
        """One product, including block scales."""
        x, y = self._numbers(p)
        numbers = (x, y, *self._scale(p)) if self.scales else (x, y)
        value: ExactValue = Fraction(1)
        for number in numbers:
            value = _multiply(value, number.value)
        exponent = None
        if isinstance(value, Fraction) and value:
            exponent = sum(number.exponent or 0 for number in numbers)
        return Term((self.k[p],), x.value, y.value, value, exponent)

    def _group(self, first: int) -> Term:
        """Products that share their scales, added before they are aligned."""
        pairs = [self._numbers(p) for p in range(first, first + GROUP)]
        products = [_multiply(x.value, y.value) for x, y in pairs]
        x, y = self._scale(first)
        total: ExactValue = sum(
            (p for p in products if isinstance(p, Fraction)), Fraction()
        )
        value = _multiply(_multiply(total, x.value), y.value)
        counts = any(products) and x.exponent is not None and y.exponent is not None
        exponent = (x.exponent or 0) + (y.exponent or 0) if counts else None
        k = tuple(self.k[first : first + GROUP])
        return Term(k, None, None, value, exponent)

    def _bit(self, p: int) -> int:
        x, y = self.a[p], self.b[self.k[p]]
        return x ^ y if self.model.bitop == "xor" else x & y

    # -- forms ---------------------------------------------------------------

    def _fused(self, first: int, c: ExactNumber) -> ExactNumber:
        """Fused steps, from c or from zero."""
        model = self.model
        state = c if model.start == "c" else ExactNumber(Fraction(0))
        for positions in model.steps:
            places = [first + p for p in positions]
            if model.form == "grouped":
                terms = [self._group(p) for p in places[::GROUP]]
            else:
                terms = [self._product(p) for p in places]
            state = self._step(terms, state)
        return state if model.start == "c" else self._add(c, state)

    def _step(self, products: Sequence[Term], c: ExactNumber) -> ExactNumber:
        model = self.model
        terms = [*products, Term((), None, None, c.value, c.exponent)]
        total: ExactValue = Fraction(0)
        if not all(isinstance(term.value, Fraction) for term in terms):
            for term in terms:
                if not isinstance(term.value, Fraction):
                    total = _add(total, term.value)
            return self._note("fused", terms, None, total, model.keep, model.rounding)
        counting = [term.exponent for term in terms if term.exponent is not None]
        emax = max([*counting, model.floor])
        terms = [_align(term, Fraction(2) ** (emax - model.fraction)) for term in terms]
        for term in terms:
            total = _add(total, term.aligned or Fraction(0))
        return self._note("fused", terms, emax, total, model.keep, model.rounding)

    def _add(self, c: ExactNumber, state: ExactNumber) -> ExactNumber:
        """An ordinary addition in the accumulator's type, rounded to nearest."""
        terms = [Term((), None, None, each.value, each.exponent) for each in (c, state)]
        total = _add(c.value, state.value)
        keep = dtype(self.type).fraction_bits
        minus = c.negative and state.negative
        return self._note("add", terms, None, total, keep, "rn", minus_zero=minus)

    def _chain(self, first: int, c: ExactNumber) -> ExactNumber:
        """Fused multiply-adds, from c or from zero."""
        model = self.model
        state = c if model.start == "c" else ExactNumber(Fraction(0))
        for p in range(first, first + model.stored):
            state = self._fma(p, state)
        return state if model.start == "c" else self._add(c, state)

    def _fma(self, p: int, c: ExactNumber) -> ExactNumber:
        model = self.model
        x, y = self._numbers(p)
        product = self._product(p)
        terms = [product, Term((), None, None, c.value, c.exponent)]
        negative = (x.negative != y.negative, c.negative)
        minus = any(negative) if model.rounding == "rm" else all(negative)
        keep = dtype(self.type).fraction_bits
        nan = next((n.nan for n in (y, c, x) if n.nan is not None), None)
        total = _add(product.value, c.value)
        return self._note(
            "fma",
            terms,
            None,
            total,
            keep,
            model.rounding,
            minus,
            keep_sign=True,
            nan=nan,
        )

    def _pairs(self, first: int, c: ExactNumber) -> ExactNumber:
        """Two products at a time, in f32."""
        for p in (first, first + 2):
            x, y = self._numbers(p)
            low = _multiply(x.value, y.value)
            start = ExactNumber(low, x.negative != y.negative)
            c = self._add(c, self._fma(p + 1, start))
        return c

    def _exact(self, first: int, c: ExactNumber) -> ExactNumber:
        """Integers and single bits."""
        model = self.model
        terms = []
        for p in range(first, first + model.stored):
            term = self._product(p)
            if model.form == "bits":
                term = Term(term.k, term.a, term.b, Fraction(self._bit(p)), None)
            terms.append(term)
        terms.append(Term((), None, None, c.value, None))
        total = sum((Fraction(term.value) for term in terms), Fraction())
        whole = int(total)
        if model.satfinite:
            whole = min(max(whole, -(1 << 31)), (1 << 31) - 1)
        whole = (whole + (1 << 31)) % (1 << 32) - (1 << 31)
        rounding = "satfinite" if model.satfinite else "wrap"
        value, bits = Fraction(whole), whole % (1 << 32)
        step = Step(
            "exact", tuple(terms), None, total, None, rounding, value, "s32", bits
        )
        self.steps.append(step)
        return ExactNumber(value)

    def _convert(self, state: ExactNumber) -> ExactNumber:
        """The f32 result rounded to f16."""
        terms = [Term((), None, None, state.value, state.exponent)]
        return self._note(
            "convert",
            terms,
            None,
            state.value,
            10,
            "rn",
            state.negative,
            keep_sign=True,
            name="f16",
        )

    def _note(
        self,
        operation: str,
        terms: Sequence[Term],
        emax: int | None,
        total: ExactValue,
        keep: int,
        rounding: str,
        minus_zero: bool = False,
        *,
        keep_sign: bool = False,
        nan: int | None = None,
        name: str | None = None,
    ) -> ExactNumber:
        """Round the sum, record the step, and return the result."""
        name = name or self.type
        value = _round(total, name, keep, rounding)
        if value == 0 and total != 0:
            minus_zero = keep_sign and total < 0
        bits = _encode(value, name, minus_zero) if nan is None else nan
        step = Step(
            operation, tuple(terms), emax, total, keep, rounding, value, name, bits
        )
        self.steps.append(step)
        return _number(bits, name, name)


def _bits(array: Bits, name: str) -> list[int]:
    """Raw bits as integers; packed b1 unpacked."""
    if name == "b1" and array.dtype == np.uint32:
        words = np.ascontiguousarray(array).view(np.uint8)
        array = np.unpackbits(words, bitorder="little")
    return [int(bits) for bits in array]


@lru_cache(maxsize=1 << 14)  # steps and exact sum ask for the same ones
def _number(bits: int, name: str, operand: str) -> ExactNumber:
    """An element; its exponent is the one after conversion to ``operand``."""
    kind = dtype(name)
    parts = kind.split(np.array([bits], kind.bits_dtype))
    negative = bool(parts.sign[0])
    if parts.special[0]:
        infinite = parts.special[0] == 1
        nan = bits | _QUIET if name == "f64" and not infinite else None
        value = math.inf if infinite else math.nan
        return ExactNumber(-value if negative else value, negative, None, nan)
    scale = Fraction(2) ** int(parts.exponent[0])
    magnitude = int(parts.significand[0]) * scale
    exponent = None
    if magnitude and not kind.is_integer:
        least = 1 - dtype(operand).bias if dtype(operand).fraction_bits else -(1 << 30)
        exponent = max(_log2(magnitude), least)
    return ExactNumber(-magnitude if negative else magnitude, negative, exponent)


def _log2(x: Fraction) -> int:
    """floor(log2(abs(x))) of a binary fraction that is not zero."""
    return abs(x.numerator).bit_length() - x.denominator.bit_length()


def _multiply(x: ExactValue, y: ExactValue) -> ExactValue:
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    return math.nan if x == 0 or y == 0 else _sign(x) * _sign(y) * math.inf


def _sign(x: ExactValue) -> float:
    return math.nan if math.isnan(x) else -1.0 if x < 0 else 1.0


def _add(x: ExactValue, y: ExactValue) -> ExactValue:
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x + y
    values = (v for v in (x, y) if not isinstance(v, Fraction))
    return sum(values, 0.0)


def _align(term: Term, unit: Fraction) -> Term:
    """The term, truncated toward zero to a multiple of ``unit``."""
    value = term.value
    assert isinstance(value, Fraction)
    cut = abs(value) // unit * unit
    aligned = -cut if value < 0 else cut
    return Term(term.k, term.a, term.b, value, term.exponent, aligned, value - aligned)


def _round(total: ExactValue, name: str, keep: int, rounding: str) -> ExactValue:
    """The value with ``keep`` fraction bits, within the range of a type."""
    if not isinstance(total, Fraction) or total == 0:
        return total
    kind = dtype(name)
    unit = Fraction(2) ** (max(_log2(total), 1 - kind.bias) - keep)
    modes: dict[str, Callable[[Fraction], int]] = {
        "rz": math.trunc,
        "rm": math.floor,
        "rp": math.ceil,
        "rn": round,
    }
    whole = modes[rounding](total / unit)
    rounded = whole * unit
    limit = Fraction(2) ** (kind.bias + 1)
    if abs(rounded) < limit:
        return rounded
    sign = 1 if total > 0 else -1
    # If f64 rounds toward zero, its largest number is the limit; fused steps give
    # infinity.
    if name == "f64" and rounding not in ("rn", "rp" if sign > 0 else "rm"):
        return sign * (limit - limit / (1 << (kind.fraction_bits + 1)))
    return sign * math.inf


def _encode(value: ExactValue, name: str, minus_zero: bool) -> int:
    """The bits of a value that the type holds."""
    kind = dtype(name)
    sign = 1 << (kind.bits - 1)
    if not isinstance(value, Fraction):
        if math.isnan(value):
            return NAN_BITS[name]
        top = ((1 << kind.exponent_bits) - 1) << kind.fraction_bits
        return top | (sign if value < 0 else 0)
    if value == 0:
        return sign if minus_zero else 0
    power = max(_log2(value), 1 - kind.bias)
    significand = abs(value) / Fraction(2) ** (power - kind.fraction_bits)
    field = power + kind.bias - 1
    magnitude = (field << kind.fraction_bits) + int(significand)
    return magnitude | (sign if value < 0 else 0)
