"""How an instruction adds its products on each target.

Targets that add in the same way are listed together.  The numbers are those of
:mod:`fragmenta.reference.arithmetic.models`, which all results are computed with.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import Error
from fragmenta.reference.arithmetic.models import GROUP, Model
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.families import check_multiplies
from fragmenta.reference.isa.instruction import Instruction

ROUNDED = {
    "rz": "toward zero",
    "rn": "to nearest even",
    "rm": "down",
    "rp": "up",
}


@dataclass(frozen=True)
class Summing:
    """How some targets add the products of one instruction; ``str()`` is a sentence.

    A number is None where it has no meaning: integers are exact, and nothing is
    aligned in a chain of fused multiply-adds.

    >>> import fragmenta as fm
    >>> ampere, hopper, blackwell = fm.mma("m16n8k16", a="f16", d="f32").sums()
    >>> ampere.steps, ampere.products, ampere.fraction, ampere.keep, ampere.rounding
    (2, 8, 24, 23, 'rz')
    >>> hopper.targets, hopper.products, hopper.source
    (('sm_90', 'sm_90a'), 16, 'measured on H200')
    """

    targets: tuple[str, ...]
    form: str  #: fused, grouped, chain, pairs, integer or bits; unknown
    steps: int | None  #: how many steps one instruction has
    products: int | None  #: how many products one step adds
    fraction: int | None  #: bits that a term keeps below the largest exponent, emax
    keep: int | None  #: fraction bits of the sum after each step
    rounding: str | None  #: rz, rn, rm or rp
    operand: str | None  #: the type to which operands are converted first
    start: str  #: "c", or "zero" if c is added last
    expanded_to: str | None  #: what the assembler writes instead, or None
    source: str  #: measured, published, assumed, by definition, or why not known

    def to_dict(self) -> dict[str, object]:
        """Everything as plain Python values."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.how}; {self.source}"

    @property
    def how(self) -> str:
        """The sentence without its source.

        >>> import fragmenta as fm
        >>> print(fm.mma("m16n8k8", a="tf32").sums()[0].how)
        2 steps of 4 products; 24 bits below emax; 23 kept, toward zero
        """
        first = f"as {self.operand}: " if self.operand else ""
        rounded = ROUNDED.get(self.rounding or "", "")
        if self.form == "unknown":
            return "not known"
        if self.form in ("integer", "bits"):
            return "a sum of integers in s32"
        if self.form == "chain":
            last = "; c is added last" if self.start == "zero" else ""
            return f"{first}a fused multiply-add for each product, {rounded}{last}"
        if self.form == "pairs":
            return f"{first}(c + (p0 + p1)) + (p2 + p3), each sum {rounded}"
        many = f"{self.steps} steps" if self.steps != 1 else "1 step"
        groups = f" in groups of {GROUP}" if self.form == "grouped" else ""
        zero = " from zero" if self.start == "zero" else ""
        last = "; then c is added, to nearest even" if zero else ""
        return (
            f"{first}{many} of {self.products} products{groups}{zero}; {self.fraction} "
            f"bits below emax; {self.keep} kept, {rounded}{last}"
        )


def sums(op: Instruction) -> tuple[Summing, ...]:
    """How each target that has the instruction adds its products.

    >>> import fragmenta as fm
    >>> for each in sums(fm.mma("m16n8k32", a="e4m3", d="f32")):
    ...     print(each.targets[0], each.steps, each.products, each.source)
    sm_89 2 16 published
    sm_90 2 16 expanded, steps measured on H200
    sm_100 2 16 expanded, steps published
    sm_120 1 32 published
    """
    check_multiplies(op)
    found: list[Summing] = []
    for target in op.requires.targets:
        one = summing(op, target)
        for place, each in enumerate(found):
            if replace(each, targets=one.targets) == one:
                found[place] = replace(each, targets=(*each.targets, target))
                break
        else:
            found.append(one)
    return tuple(found)


def summing(op: Instruction, target: str) -> Summing:
    """How one target adds; the form is unknown if it is in no publication.

    >>> import fragmenta as fm
    >>> summing(fm.mma("m16n8k32", a="s8"), "sm_80").how
    'a sum of integers in s32'
    """
    becomes = op.expanded_to(target)
    try:
        known = numeric_model(op, target)
        model: Model | None = known
        source = _source(known, becomes)
    except Error as why:
        model, source = None, f"open: {why}"
    form = model.form if model else "unknown"
    aligned = model if form in ("fused", "grouped") else None
    rounded = model if form in ("fused", "grouped", "chain", "pairs") else None
    return Summing(
        targets=(target,),
        form=form,
        steps=len(aligned.steps) if aligned else None,
        products=aligned.products if aligned else None,
        fraction=aligned.fraction if aligned else None,
        keep=aligned.keep if aligned else None,
        rounding=rounded.rounding if rounded else None,
        operand=model.operand if model else None,
        start=model.start if model else "c",
        expanded_to=becomes,
        source=source,
    )


def _source(model: Model, becomes: str | None) -> str:
    """How sure it is, in the words of the model's row."""
    source = "IEEE 754" if model.form in ("chain", "pairs") else model.source
    if becomes is None:
        return source
    steps = "steps " if model.form == "fused" else ""
    return f"expanded, {steps}{source}"
