"""Explains the value of one element of D.

One element is explained step by step: each product and its exponent, how the terms
are aligned, what each loses by it, the sum, the rounding, and the difference from
the exact result.  At the end, what was lost by alignment and by rounding.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import isfinite

from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import ShapeError
from fragmenta.reference.arithmetic.trace import ExactValue as Number
from fragmenta.reference.arithmetic.trace import (
    Explanation,
    ScaledBlock,
    Step,
    Term,
    explain_steps,
)
from fragmenta.reference.execution.losses import Loss, Losses, losses
from fragmenta.reference.execution.matmul import whole_along_k
from fragmenta.reference.execution.mma import (
    accumulator,
    check_whole,
    matrix_b,
    numeric_model,
    scale_bits,
    stored,
)
from fragmenta.reference.execution.summing import ROUNDED
from fragmenta.reference.isa.families import check_multiplies
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import chosen_target
from fragmenta.reference.sparse.compression import Compressed


@dataclass(frozen=True)
class Explained:
    """The explanation of one element of D; ``str()`` is the text."""

    op: Instruction
    target: str
    row: int
    col: int
    explanation: Explanation

    def to_dict(self) -> dict[str, object]:
        """Everything as plain Python values; exact numbers as text."""
        return {
            "instruction": str(self.op),
            "target": self.target,
            "row": self.row,
            "col": self.col,
            "steps": [_plain(asdict(step)) for step in self.explanation.steps],
            "bits": self.explanation.bits,
            "value": _text(self.explanation.value),
            "exact": _text(self.explanation.exact),
            "difference": _text(self.explanation.difference),
            "blocks": [_about_block(block) for block in self.explanation.blocks],
            "losses": None if self.losses is None else _plain(asdict(self.losses)),
        }

    @cached_property
    def losses(self) -> Losses | None:
        """What is lost by alignment and by rounding; None if a sum is not finite."""
        return losses(self.explanation, self.op.types["d"])

    def __str__(self) -> str:
        lines = [f"{self.op} on {self.target}", f"D[{self.row}, {self.col}]", ""]
        lines += _blocks(self.explanation)
        steps, fraction = self.explanation.steps, self.explanation.model.fraction
        for number, step in enumerate(steps, 1):
            lines += [
                _title(step, number, len(steps)),
                *_terms(step),
                *_sum(step, fraction),
                "",
            ]
        bits = f"0x{self.explanation.bits:0{self.op.types['d'].bits // 4}x}"
        lines += [
            f"D           {_text(self.explanation.value)}  (bits {bits})",
            f"exact       {_text(self.explanation.exact)}",
            f"difference  {_text(self.explanation.difference)}",
            *_summary(self.explanation, self.losses, self.op.types["d"].name),
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

    The matrices may have any size, as in :func:`fragmenta.matmul`.  A row such as
    ``0…7`` stands for eight equal rows.  The losses by alignment and by rounding add
    up to the difference; they are also given in units in the last place of D.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.mma("m16n8k8", a="tf32")
    >>> A, B = np.ones((16, 8), np.float32), np.ones((8, 8), np.float32)
    >>> print(explain(op, A, B, row=3, col=5))
    mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 on sm_90a
    D[3, 5]
    <BLANKLINE>
    step 1 of 1: 8 products and the accumulator in one sum
      k             a            b      product  exponent         kept      lost
      0…7           1            1            1         0            1         0
      c                                       0                      0         0
      emax 0: terms are cut below 2^-25; sum 8
      rounded to 23 fraction bits, toward zero: 8
    <BLANKLINE>
    D           8  (bits 0x41000000)
    exact       8
    difference  0
    alignment   nothing lost
    rounding    nothing lost
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
    explanation = explain_steps(
        a[row],
        b[:, col],
        c[row, col],
        numeric_model(op, where),
        index=None if index is None else index[row],
        **chosen,
    )
    return Explained(op, where, row, col, explanation)


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


def _blocks(explanation: Explanation) -> Iterator[str]:
    """The scales of each block, if there are any."""
    if not explanation.blocks:
        return
    yield f"block scales, {explanation.model.scale}"
    yield f"  {'k':<10}{'scale a':>11}  {'scale b':>11}  {'product':>11}"
    for block in explanation.blocks:
        a, b = block.scale_a, block.scale_b
        cells = [f"{_short(each):>11}" for each in (a, b, a * b)]
        yield f"  {_name(tuple(block.k)):<10}" + "  ".join(cells)
    yield ""


def _terms(step: Step) -> Iterator[str]:
    """One line for terms that are alike, and one with the number of zeros."""
    aligned = any(term.aligned is not None for term in step.terms)
    tail = f"  {'exponent':>8}  {'kept':>11}  {'lost':>8}" if aligned else ""
    shown = _folded(term for term in step.terms if term.value != 0 or not term.k)
    wide = max([3, *(len(_name(term.k)) + 1 for term in shown)])
    yield f"  {'k':<{wide}}{'a':>{_room(wide)}}  {'b':>11}  {'product':>11}{tail}"
    for term in shown:
        yield _term(term, aligned, wide)
    zeros = sum(term.value == 0 for term in step.terms if term.k)
    if zeros:
        yield f"  and {zeros} that are zero"


def _folded(terms: Iterable[Term]) -> list[Term]:
    """The terms, with equal ones at consecutive k as one term of all their k."""
    found: list[Term] = []
    for term in terms:
        last = found[-1] if found else None
        if (
            last is not None
            and len(term.k) == 1
            and last.k[-1:] == (term.k[0] - 1,)
            and replace(last, k=term.k) == term
        ):
            found[-1] = replace(last, k=last.k + term.k)
        else:
            found.append(term)
    return found


def _name(k: tuple[int, ...]) -> str:
    """The columns of a row: ``7``, ``7,9`` or ``7…12``; c is the accumulator."""
    if len(k) < 3:
        return ",".join(map(str, k)) or "c"
    return f"{k[0]}…{k[-1]}"


def _room(wide: int) -> int:
    """The width of the column a beside a column k so wide, within 80 columns."""
    return 11 - max(0, wide - 8)


def _term(term: Term, aligned: bool, wide: int) -> str:
    room = _room(wide)
    a = "" if term.a is None else _short(term.a, room)
    b = "" if term.b is None else _short(term.b)
    line = f"  {_name(term.k):<{wide}}{a:>{room}}  {b:>11}  {_short(term.value):>11}"
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


def _summary(explanation: Explanation, lost: Losses | None, of: str) -> Iterator[str]:
    """What was lost, by what, where, and how much that is in D's last place."""
    if lost is None:
        yield "lost        not counted: a sum is not finite"
        return
    if any(step.emax is not None for step in explanation.steps):
        yield from _lost("alignment", lost, lost.alignment, "terms")
    whole = explanation.steps[-1].operation == "exact"
    name = {"wrap": "wrapping", "satfinite": "saturation"}
    cause = name[explanation.steps[-1].rounding] if whole else "rounding"
    yield from _lost(cause, lost, lost.rounding, "steps")
    if (
        lost.ulp is not None
        and not whole
        and (lost.alignment.step or lost.rounding.step)
    ):
        size = lost.ulp.numerator.bit_length() - lost.ulp.denominator.bit_length()
        yield f"ulp         2^{size}, of {of} at the exact result"


def _lost(cause: str, lost: Losses, loss: Loss, places: str) -> list[str]:
    if loss.step is None:
        return [f"{cause:<11} nothing lost"]
    at = "" if loss.k is None else f" at {'k ' if loss.k else ''}{_name(loss.k)}"
    units = f" ({_short(loss.total / lost.ulp, 8)} ulp)" if lost.ulp else ""
    text = (
        f"{cause:<11} {_short(loss.total)}{units} in {loss.count} of {loss.among} "
        f"{places}, most{at} in step {loss.step}"
    )
    return textwrap.wrap(text, 80, subsequent_indent=" " * 12)


def _about_block(block: ScaledBlock) -> dict[str, object]:
    scales = {"scale_a": _text(block.scale_a), "scale_b": _text(block.scale_b)}
    return {"k": [block.k.start, block.k.stop], **scales}


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


def _plain(value: object) -> object:
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # JSON cannot express it
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value
