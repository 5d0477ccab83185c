"""Compares how exact instructions are, target by target.

The same matrices are multiplied with each instruction as each target computes it.
Every element of D is compared twice: with the exact product of the operands, which
gives the error of the sum alone, and with the product of the numbers before they were
rounded or quantised to the operands, which gives the error in all.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.record import Record
from fragmenta.base.progress import Progress, bar
from fragmenta.errors import BadCall, Error, UnsupportedTarget, one_of
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.execution.matmul import matmul
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.execution.reference import (
    Wide,
    product,
    scaled_values,
    twice_as_precise,
)
from fragmenta.reference.execution.samples import Samples
from fragmenta.reference.execution.summing import summing
from fragmenta.reference.isa.families import check_multiplies
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import find
from fragmenta.reference.isa.synonyms import named_targets
from fragmenta.reference.isa.target import number
from fragmenta.reference.registers.dtype import DType

TARGETS = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
"""One target of each way to add."""


@dataclass(frozen=True)
class ErrorRow:
    """The errors of one instruction on one target at one length of the sum.

    An error is None if no element counts: those that are not finite do not, nor
    those whose exact value is zero.
    """

    instruction: str
    target: str
    k: int
    max_relative: float | None
    mean_relative: float | None
    max_ulp: float | None  #: in units in the last place of D at the exact value
    mean_ulp: float | None
    max_total: float | None  #: relative, against the numbers before rounding
    mean_total: float | None
    not_finite: int  #: elements of D that are infinite or NaN
    elements: int
    rule: str = ""  #: how the target sums, as ``show`` prints it

    @property
    def numbers(self) -> tuple[object, ...]:
        """All but the target: targets that agree in them are shown together."""
        return tuple(asdict(replace(self, target="")).values())


@dataclass(frozen=True, eq=False)
class Compared(Record):
    """The errors of instructions on targets; ``str()`` is a table."""

    rows: tuple[ErrorRow, ...]
    missing: dict[tuple[str, str], str]  #: why an instruction has no row on a target
    input: str
    shape: tuple[int, int]
    rounding: dict[str, str]  #: how each instruction's operands are made of the input

    def to_dict(self) -> dict[str, object]:
        """Everything as plain Python values."""
        missing = [
            {"instruction": op, "target": target, "why": why}
            for (op, target), why in self.missing.items()
        ]
        return {
            "input": self.input,
            "shape": list(self.shape),
            "rounding": dict(self.rounding),
            "rows": [asdict(row) for row in self.rows],
            "missing": missing,
        }

    def folded(self) -> dict[str, list[tuple[list[str], list[ErrorRow]]]]:
        """For each instruction the targets that agree, and the rows of one of them."""
        found: dict[str, list[tuple[list[str], list[ErrorRow]]]] = {}
        for op, target in dict.fromkeys((r.instruction, r.target) for r in self.rows):
            rows = [r for r in self.rows if (r.instruction, r.target) == (op, target)]
            numbers = [row.numbers for row in rows]
            for targets, others in found.setdefault(op, []):
                if [row.numbers for row in others] == numbers:
                    targets.append(target)
                    break
            else:
                found[op].append(([target], rows))
        return found

    def __str__(self) -> str:
        return f"{heading(self.shape, self.input)}\n{self.tables()}"

    def tables(self) -> str:
        """The table of each instruction, without the heading."""
        lines: list[str] = []
        folded = self.folded()
        names = dict.fromkeys([*folded, *(op for op, _ in self.missing)])
        for name in names:
            lines += ["", name]
            if name in self.rounding:
                lines += _wrapped(self.rounding[name])
            lines += _table(folded.get(name, []))
            without: dict[str, list[str]] = {}
            for (op, target), why in self.missing.items():
                if op == name:
                    without.setdefault(why, []).append(target)
            for why, targets in without.items():
                lines += _wrapped(f"{' '.join(targets)}: {why}")
        return "\n".join(lines)


def heading(shape: tuple[int, int], input: str) -> str:
    """What is compared, as all tables begin."""
    return (
        f"errors of {shape[0]} x {shape[1]} elements; {input}\n"
        "relative, ulp: of the sums, against the exact product of the operands\n"
        "mean in all: relative, against that of the numbers before rounding"
    )


def compare(
    ops: Instruction | str | Sequence[Instruction | str],
    targets: str | Sequence[str] = TARGETS,
    k: int | Sequence[int] | None = None,
    input: str | tuple[ArrayLike, ArrayLike] = "normal",
    *,
    seed: int = 0,
    progress: Progress | None = None,
    began: Callable[[str], object] | None = None,
) -> Compared:
    """How far instructions are from the exact product, on several targets.

    A target may be a word, such as hopper, which means one of each architecture.
    ``k`` is the length of the sums, or several lengths; 64, 512 and 4096 if it is left
    out.  ``input`` is ``"normal"`` (a normal distribution around zero), ``"uniform"``
    (from 0 to 1) or a pair of arrays A and B.  Random matrices are the same for all
    instructions, and A is 32 x k; random integers are of the whole range.  A target
    without the instruction is listed in ``missing``; ``sm_90`` also stands for
    ``sm_90a``.  ``began`` gets the heading of the table before anything is computed.

    All numbers are rounded to the instruction's types first, or quantised if it takes
    block scales; ``rounding`` says how.  ``max_relative``, ``mean_relative`` and those
    in ulp are the errors of the sums of these operands alone.  ``max_total`` and
    ``mean_total`` are those against the numbers as they were: what a small type costs
    in all.  A sparse instruction takes A pruned, and pruning is not counted.

    >>> ops = ["mma.m16n8k16.f32.f16", "wgmma.m64n8k32.f32.e4m3.e4m3"]
    >>> found = compare(ops, ["sm_80", "sm_90"], k=512, input="uniform")
    >>> for row in found.rows:
    ...     print(row.target, row.instruction[:5], f"{row.max_relative:.0e}")
    sm_80 mma.s 6e-06
    sm_90 mma.s 3e-06
    sm_90a wgmma 7e-03
    >>> [f"{row.mean_total:.0e}" for row in found.rows]
    ['1e-05', '1e-05', '5e-03']
    >>> print(*found.missing)
    ('wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3', 'sm_80')
    """
    for what, given in (("ops", ops), ("targets", targets)):
        if not isinstance(given, Instruction | str | list | tuple | Iterator | dict):
            kind = type(given).__name__
            raise BadCall(f"{what} is one name or a list of names; given {kind}")
    listed = [ops] if isinstance(ops, Instruction | str) else list(ops)
    found = [each if isinstance(each, Instruction) else find(each) for each in listed]
    names = targets.replace(",", " ").split() if isinstance(targets, str) else targets
    if not found or not names:
        what = "targets" if found else "instructions"
        raise BadCall(f"there are no {what} to compare; give one or more")
    for op in found:
        check_multiplies(op)
    samples = Samples.make(input, k, seed)
    pairs, missing = _pairs(found, [t for each in names for t in named_targets(each)])
    if began is not None:
        began(heading(samples.shape, samples.description))
    rows: list[ErrorRow] = []
    known: dict[tuple[str, Model], list[ErrorRow]] = {}
    rounding = {str(op): samples.operands(op, 1).how for op, _, _ in pairs}
    with bar("comparing") as shown:
        for place, (op, target, model) in enumerate(pairs):
            key = str(op), replace(model, target="", source="")
            share = partial(_part, progress or shown, place, len(pairs))
            if key not in known:
                known[key] = list(_errors(op, target, samples, share))
            rule = summing(op, target).how
            rows += [replace(row, target=target, rule=rule) for row in known[key]]
    return Compared(tuple(rows), missing, samples.description, samples.shape, rounding)


def _part(progress: Progress, place: int, count: int, done: float) -> None:
    progress((place + done) / count)


def _pairs(
    ops: Sequence[Instruction], targets: Sequence[str]
) -> tuple[list[tuple[Instruction, str, Model]], dict[tuple[str, str], str]]:
    """Instructions with the targets that have them, and why the others do not."""
    pairs, missing = [], {}
    for op in dict.fromkeys(ops):
        for target in dict.fromkeys(targets):
            have = op.requires.targets
            same = (each for each in have if number(each) == number(target))
            chosen = target if target in have else next(same, None)
            if chosen is None:
                missing[str(op), target] = f"needs {op.requires}"
                continue
            try:
                pairs.append((op, chosen, numeric_model(op, chosen)))
            except Error as why:
                missing[str(op), target] = str(why)
    if not pairs:
        needs = one_of(dict.fromkeys(f"{op} needs {op.requires}" for op in ops), "and")
        given = one_of(targets, "and")
        raise UnsupportedTarget(f"nothing to compare on {given}: {needs}")
    return pairs, missing


def _errors(
    op: Instruction, target: str, samples: Samples, progress: Progress
) -> Iterator[ErrorRow]:
    """The errors at each length."""
    for place, k in enumerate(samples.lengths):
        made = samples.operands(op, k)
        share = partial(_part, progress, place, len(samples.lengths))
        d = matmul(op, made.a, made.b, target=target, progress=share, **made.scales)
        of = op.types["d"]
        found = of.to_float64(of.encode(d))
        left = scaled_values(op, "a", made.a, made.scales.get("scale_a"))
        right = scaled_values(op, "b", made.b, made.scales.get("scale_b"))
        own = _measured(found, *_exact(op, left, right))
        whole = _measured(found * made.factor, *_exact(op, made.left, made.right))
        yield ErrorRow(
            str(op),
            target,
            k,
            *_ends(own.error / own.exact),
            *_ends(own.error / _ulp(own.exact, of)),
            *_ends(whole.error / whole.exact),
            not_finite=int(np.count_nonzero(~np.isfinite(found))),
            elements=d.size,
        )


def _exact(op: Instruction, left: Wide, right: Wide) -> tuple[Wide, Wide]:
    """The product as the sum of two float64; only that of f64 needs the second."""
    if op.types["d"].name == "f64":
        return twice_as_precise(left, right)
    high = product(op, left, right)
    return high, np.zeros(high.shape)


class _Measured(NamedTuple):
    """The absolute errors of the elements that count, and their exact values."""

    error: Wide
    exact: Wide


def _measured(found: Wide, high: Wide, low: Wide) -> _Measured:
    counted = np.isfinite(found) & (high != 0)
    with np.errstate(invalid="ignore"):
        error = np.abs((found - high) - low)[counted]
    return _Measured(error, np.abs(high[counted]))


def _ulp(exact: Wide, of: DType) -> Wide:
    """The distance of neighbours of a type at each value."""
    if of.is_integer:
        return np.ones_like(exact)
    power = np.maximum(np.frexp(exact)[1] - 1, 1 - of.bias)
    found: Wide = np.ldexp(1.0, power - of.fraction_bits)
    return found


def _ends(errors: Wide) -> tuple[float | None, float | None]:
    """The greatest and the mean; None of no errors."""
    return (float(errors.max()), float(errors.mean())) if errors.size else (None, None)


_HEADS = ("max relative", "mean relative", "max ulp", "mean ulp", "mean in all")


def _table(groups: list[tuple[list[str], list[ErrorRow]]]) -> Iterator[str]:
    if groups:
        yield f"  {'k':>8}" + "".join(f"{head:>14}" for head in _HEADS)
    for targets, rows in groups:
        yield from _wrapped(f"{' '.join(targets)}: {rows[0].rule}")
        for row in rows:
            errors = (row.max_relative, row.mean_relative, row.max_ulp, row.mean_ulp)
            shown = (*errors, row.mean_total)
            yield f"  {row.k:>8}" + "".join(f"{_short(each):>14}" for each in shown)
            if row.not_finite:
                yield f"  {row.not_finite} of {row.elements} not finite, left out"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, 80, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
