"""Lists where one element of D loses precision.

A sum loses bits in two places: where terms are aligned to the largest exponent, and
where a step rounds.  The two losses add up to D minus the exact result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.reference.arithmetic.trace import Explanation
from fragmenta.reference.registers.dtype import DType


@dataclass(frozen=True)
class Loss:
    """What one cause adds to D, in how many places, and where it adds the most."""

    total: Fraction
    count: int  #: terms or steps that lose something
    among: int  #: terms that are not zero, or steps
    step: int | None = None  #: counted from 1; None if nothing is lost
    k: tuple[int, ...] | None = None  #: of that term; empty for the accumulator


@dataclass(frozen=True)
class Losses:
    """What an element of D loses by alignment and by rounding.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="e4m3", d="f32")
    >>> C = np.full((64, 8), 2.0**14, np.float32)
    >>> lost = op.explain(np.ones((64, 32)), np.ones((32, 8)), C, row=0, col=0).losses
    >>> str(lost.alignment.total), str(lost.rounding.total), str(lost.ulp)
    ('-32', '0', '1/512')
    >>> lost.alignment.count, lost.alignment.among, lost.alignment.k
    (32, 33, (0,))
    """

    alignment: Loss
    rounding: Loss
    ulp: Fraction | None  #: of D at the exact result; None at zero and of integers


def losses(explanation: Explanation, of: DType) -> Losses | None:
    """The losses of an element of this type; None if a sum is not finite."""
    values = [(step.total, step.value) for step in explanation.steps]
    if not all(isinstance(each, Fraction) for pair in values for each in pair):
        return None
    if not isinstance(explanation.exact, Fraction):
        return None
    rounded = [
        (Fraction(value) - Fraction(total), number, None)
        for number, (total, value) in enumerate(values, 1)
    ]
    return Losses(
        _loss(list(_cut(explanation))),
        _loss(rounded),
        unit(explanation.exact or Fraction(explanation.value), of),
    )


def unit(value: Fraction, of: DType) -> Fraction | None:
    """The distance from this value to the next one; None at zero and of integers.

    >>> import fragmenta as fm
    >>> str(unit(Fraction(1000), fm.dtype("f16"))), unit(Fraction(0), fm.dtype("f16"))
    ('1/2', None)
    """
    if of.is_integer or not value:
        return None
    size = abs(value)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    power -= size < Fraction(2) ** power
    return Fraction(2) ** (max(power, 1 - of.bias) - of.fraction_bits)


_Change = tuple[Fraction, int, tuple[int, ...] | None]


def _cut(explanation: Explanation) -> Iterator[_Change]:
    """What alignment adds to each term that is not zero."""
    for number, step in enumerate(explanation.steps, 1):
        for term in step.terms:
            if term.lost is not None and term.value != 0:
                yield -term.lost, number, term.k


def _loss(changes: Sequence[_Change]) -> Loss:
    total = sum((change for change, _, _ in changes), Fraction())
    lossy = [each for each in changes if each[0]]
    if not lossy:
        return Loss(total, 0, len(changes))
    _, step, k = max(lossy, key=lambda each: abs(each[0]))
    return Loss(total, len(lossy), len(changes), step, k)
