"""The variants of a ``wgmma``: where A is, and its immediates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from itertools import product

from fragmenta.base.arrays.checks import is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadFile, one_of
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.tables.wgmma import operands_from
from fragmenta.reference.shared.descriptor import MajorAxis


@dataclass(frozen=True)
class Variant:
    """How an instruction is run: where A is, its immediates, and a turn.

    ``turn`` decides which kinds of input and which swizzles its tiles begin
    with, so that cases of few tiles do not all have the same.
    """

    a_registers: bool
    selector: int | None = None
    scale_a: int = 1
    scale_b: int = 1
    trans_a: int = 0
    trans_b: int = 0
    turn: int = 0

    def immediates(self, op: Instruction) -> dict[str, int]:
        """Those that the instruction has.

        >>> import fragmenta as fm
        >>> Variant(True).immediates(fm.wgmma("m64n8k8", a="tf32"))
        {'imm_scale_a': 1, 'imm_scale_b': 1}
        """
        listed = operands_from(op, registers=self.a_registers)
        names = [each.name for each in listed if each.ptx == "immediate"]
        # Recordings have the names of the fields.
        fields = {name: name.removeprefix("imm_") for name in names}
        return {name: int(getattr(self, fields[name]) or 0) for name in names}

    def major(self, operand: str) -> MajorAxis:
        """``"mn"`` where the operand is transposed."""
        return "mn" if (self.trans_a if operand == "A" else self.trans_b) else "k"


def variants(op: Instruction) -> list[Variant]:
    """All places of A, selectors and transpositions an instruction has.

    >>> import fragmenta as fm
    >>> len(variants(fm.wgmma("m64n8k32", a="f16", d="f32", sp="sp")))
    12
    """
    found = []
    transposed = (0, 1) if op.types["a"].bits == 16 else (0,)
    for registers, selector in product((False, True), op.selectors or (None,)):
        for trans_a in (0,) if registers else transposed:
            for trans_b in transposed:
                variant = Variant(registers, selector, trans_a=trans_a, trans_b=trans_b)
                found.append(variant)
    return found


def checked_variant(op: Instruction, given: object) -> Variant:
    """The variant of an instruction that these names and values are.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k8", a="tf32")
    >>> checked_variant(op, asdict(Variant(False))) == Variant(False)
    True
    >>> checked_variant(op, asdict(Variant(False, trans_a=1)))
    Traceback (most recent call last):
    fragmenta.errors.BadFile: wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 has \
no such variant: {'a_registers': False, 'selector': None, 'trans_a': 1, 'trans_b': 0}
    """
    names = [each.name for each in fields(Variant)]
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise BadFile(f"a variant has {one_of(names, 'and')}; given {given!r:.60}")
    free = {"scale_a": (1, -1), "scale_b": (1, -1), "turn": range(1 << 31)}
    for name, allowed in free.items():
        if not is_whole(given[name]) or given[name] not in allowed:
            raise BadFile(f"{name} of a variant is not {given[name]!r:.40}")
    fixed = {name: given[name] for name in names if name not in free}
    listed = [asdict(each) for each in variants(op)]
    # repr distinguishes 1, True and 1.0, on which the inputs depend.
    if repr(fixed) not in {repr({name: x[name] for name in fixed}) for x in listed}:
        raise BadFile(f"{op} has no such variant: {fixed!r:.120}")
    return Variant(**given)
