"""Why does this element of D have the value it has?

One element is explained step by step: each product and its exponent, how the terms
are aligned, what each loses by it, the sum, the rounding, and the difference from
the exact result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import Any

from numpy.typing import ArrayLike

from fragmenta.arithmetic.trace import ExactValue as Number
from fragmenta.arithmetic.trace import Explanation, Step, Term, explain_steps
from fragmenta.arrays.checks import is_whole
from fragmenta.errors import ShapeError
from fragmenta.execution.matmul import whole_along_k
from fragmenta.execution.mma import (
    accumulator,
    check_whole,
    chosen_target,
    matrix_b,
    numeric_model,
    scale_bits,
    stored,
)
from fragmenta.execution.summing import ROUNDED
from fragmenta.isa.instruction import Instruction, check_multiplies
from fragmenta.sparse.compress import Compressed


@dataclass(frozen=True)
class Explained:
    """The explanation of one element of D; ``str()`` is the text."""

    op: Instruction
    target: str
    row: int
    col: int
    told: Explanation

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values; exact numbers as text."""
        return {
            "instruction": str(self.op),
            "target": self.target,
            "row": self.row,
            "col": self.col,
            "steps": [_plain(asdict(step)) for step in self.told.steps],
            "bits": self.told.bits,
            "value": _text(self.told.value),
            "exact": _text(self.told.exact),
            "difference": _text(self.told.difference),
        }

    def __str__(self) -> str:
        lines = [f"{self.op} on {self.target}", f"D[{self.row}, {self.col}]", ""]
        steps, fraction = self.told.steps, self.told.model.fraction
        for number, step in enumerate(steps, 1):
            lines += [
                _title(step, number, len(steps)),
                *_terms(step),
                *_sum(step, fraction),
                "",
            ]
        bits = f"0x{self.told.bits:0{self.op.types['d'].bits // 4}x}"
        lines += [
            f"D           {_text(self.told.value)}  (bits {bits})",
            f"exact       {_text(self.told.exact)}",
            f"difference  {_text(self.told.difference)}",
        ]
        return "\n".join(lines)


def explain(
    op: Instruction,
    A: ArrayLike | Compressed,
    B: ArrayLike,
    C: ArrayLike | None = None,
    *,
    row: int,
    col: int,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    target: str | None = None,
) -> Explained:
    """How D[row, col] = A[row] B[:, col] + C[row, col] is computed.

    The matrices may have any size, as in :func:`fragmenta.matmul`.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.mma("m16n8k8", a="tf32")
    >>> A, B = np.ones((16, 8), np.float32), np.ones((8, 8), np.float32)
    >>> print(explain(op, A, B, row=3, col=5))
    mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 on sm_90a
    D[3, 5]
    <BLANKLINE>
    step 1 of 1: 8 products and the accumulator in one sum
      k            a            b      product  exponent         kept      lost
      0            1            1            1         0            1         0
      1            1            1            1         0            1         0
      2            1            1            1         0            1         0
      3            1            1            1         0            1         0
      4            1            1            1         0            1         0
      5            1            1            1         0            1         0
      6            1            1            1         0            1         0
      7            1            1            1         0            1         0
      c                                      0                      0         0
      emax 0: terms are cut below 2^-25; sum 8
      rounded to 23 fraction bits, toward zero: 8
    <BLANKLINE>
    D           8  (bits 0x41000000)
    exact       8
    difference  0
    """
    check_multiplies(op)
    where = chosen_target(op, target)
    given = stored(op, A)
    b = matrix_b(op, B)
    a, b, index = whole_along_k(op, given, b)
    if a.ndim != 2 or b.ndim != 2:
        raise ShapeError(
            "one element is explained at a time, so A and B have two axes and no batch "
            f"axes; given {a.ndim} and {b.ndim} axes"
        )
    size = (a.shape[0], b.shape[1])
    for name, value, count in zip(("row", "col"), (row, col), size, strict=True):
        if not is_whole(value) or not 0 <= value < count:
            raise ShapeError(f"{name} {value} is out of range; it is 0 to {count - 1}")
    c = accumulator(op, C, size)
    scales = scale_bits(op, scale_a, scale_b)
    check_whole(op, (*size, len(b)), c, scales)
    chosen = {n: s[row] if n == "scale_a" else s[:, col] for n, s in scales.items()}
    told = explain_steps(
        a[row],
        b[:, col],
        c[row, col],
        numeric_model(op, where),
        index=None if index is None else index[row],
        **chosen,
    )
    return Explained(op, where, row, col, told)


def _title(step: Step, number: int, count: int) -> str:
    products = sum(len(term.k) for term in step.terms)
    sizes = {len(term.k) for term in step.terms if term.k}
    groups = f" in groups of {max(sizes)}" if sizes and max(sizes) > 1 else ""
    what = {
        "fused": f"{products} products{groups} and the accumulator in one sum",
        "fma": "a fused multiply-add",
        "add": "an ordinary addition",
        "exact": f"{products} products, exactly",
        "convert": "a conversion",
    }[step.operation]
    return f"step {number} of {count}: {what}"


def _terms(step: Step) -> Iterator[str]:
    """One line for each term that is not zero, and one with the number of zeros."""
    aligned = any(term.aligned is not None for term in step.terms)
    tail = f"  {'exponent':>8}  {'kept':>11}  {'lost':>8}" if aligned else ""
    yield f"  {'k':<3}{'a':>11}  {'b':>11}  {'product':>11}{tail}"
    zeros = 0
    for term in step.terms:
        if term.value == 0 and term.k:
            zeros += 1
            continue
        yield _term(term, aligned)
    if zeros:
        yield f"  and {zeros} that are zero"


def _term(term: Term, aligned: bool) -> str:
    name = (
        ",".join(map(str, term.k)) if len(term.k) < 3 else f"{term.k[0]}…{term.k[-1]}"
    )
    a, b = (_short(x) if x is not None else "" for x in (term.a, term.b))
    line = f"  {name or 'c':<3}{a:>11}  {b:>11}  {_short(term.value):>11}"
    if aligned:
        exponent = "" if term.exponent is None else str(term.exponent)
        kept = "" if term.aligned is None else _short(term.aligned)
        lost = "" if term.lost is None else _short(term.lost, 8)
        line += f"  {exponent:>8}  {kept:>11}  {lost:>8}"
    return line.rstrip()


def _sum(step: Step, fraction: int) -> Iterator[str]:
    total = _short(step.total, 24)
    if step.emax is None:
        yield f"  sum {total}"
    else:
        cut = f"terms are cut below 2^{step.emax - fraction}"
        yield f"  emax {step.emax}: {cut}; sum {total}"
    if step.keep is not None:
        how = ROUNDED.get(step.rounding, step.rounding)
        yield f"  rounded to {step.keep} fraction bits, {how}: {_short(step.value, 22)}"


def _short(value: Number, width: int = 11) -> str:
    """A number as text of at most ``width`` characters, exact if it fits."""
    text = _text(value)
    if len(text) <= width:
        return text
    number = _decimal(value)
    for digits in range(width, 0, -1):
        text = f"{number:.{digits}g}"
        if len(text) <= width:
            return text
    return text


def _text(value: Number) -> str:
    """An exact number as decimal text; marked if it had to be rounded."""
    if not isinstance(value, Fraction):
        return str(value) if not isfinite(value) else f"{value:g}"
    if value.denominator == 1 and abs(value.numerator) < 10**15:
        return str(value.numerator)
    exact = _decimal(value)
    if isinstance(exact, Decimal):
        return f"{exact:.17g} (rounded)"
    if Fraction(exact) == value:
        return repr(exact)
    return f"{exact!r} (rounded)"


def _decimal(value: Number) -> float | Decimal:
    """A number that can be formatted, even if it is too large for a float64."""
    try:
        return float(value)
    except OverflowError:
        exact = Fraction(value)
        return Decimal(exact.numerator) / Decimal(exact.denominator)


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # JSON cannot express it
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value
