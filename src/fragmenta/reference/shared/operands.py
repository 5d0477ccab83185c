"""The part of a matrix that an instruction reads from shared memory.

``wgmma`` and the four families of ``tcgen05.mma`` take descriptors.  Of ``tcgen05`` the
mnemonic does not have the shape, the types and the major sides: they are in its
instruction descriptor.
"""

from __future__ import annotations

from functools import lru_cache

from fragmenta.errors import AddressError, BadCall
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.shared.elements import MAJORS, MajorAxis
from fragmenta.reference.shared.fields import Family


def family_of(op: Instruction) -> Family | None:
    """The family whose descriptors an instruction takes; None if it takes none.

    >>> import fragmenta as fm
    >>> family_of(fm.tcgen05("m128n64k8", a="tf32", d="f32"))
    'tcgen05'
    """
    if op.warpgroup:
        return "wgmma"
    return "tcgen05" if op.tensor_memory else None


def check_belongs(family: Family, op: Instruction) -> None:
    """Refuse a descriptor of a family that is not the instruction's.

    >>> import fragmenta as fm
    >>> check_belongs("tcgen05", fm.wgmma("m64n8k16", a="f16", d="f32"))
    Traceback (most recent call last):
    fragmenta.errors.AddressError: wgmma takes a descriptor of its own; given one of \
tcgen05; .to_wgmma() converts it
    """
    right = family_of(op)
    if right not in (None, family):
        raise AddressError(
            f"{right} takes a descriptor of its own; given one of {family}; "
            f".to_{right}() converts it"
        )


def major_of(
    op: Instruction, operand: str, major: MajorAxis | None = None
) -> MajorAxis:
    """Which side of an operand is adjacent in memory.

    Of ``tcgen05`` the instruction descriptor says it, and ``major`` must not say
    something else.  Of ``wgmma`` it is ``major``, by default K.

    >>> import fragmenta as fm
    >>> major_of(fm.wgmma("m64n8k16", a="f16", d="f32"), "B")
    'k'
    """
    if family_of(op) != "tcgen05":
        return "k" if major is None else major
    extent(op, operand)
    descriptor = op.descriptor
    assert descriptor is not None  # or there were no extent
    mine = MAJORS[descriptor.transpose_a if operand == "A" else descriptor.transpose_b]
    if major not in (None, mine):
        bit = 15 if operand == "A" else 16
        raise AddressError(
            f"{operand} of {op} is {mine.upper()}-major: bit {bit} of its instruction "
            f"descriptor is {MAJORS.index(mine)}; given major={major!r}"
        )
    return mine


def extent(op: Instruction, operand: str) -> tuple[int, int]:
    """Rows (m or n) and stored k of an operand in the shared memory of one block.

    With ``.cta_group::2``, each of the two blocks has half of the rows of A and half
    of the columns of B.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n24k32", a="f16", d="f32", sp="sp")
    >>> extent(op, "A"), extent(op, "B")
    ((64, 16), (24, 32))
    >>> op = fm.tcgen05("m256n96k16", a="f16", d="f32", cta_group=2)
    >>> extent(op, "A"), extent(op, "B")
    ((128, 16), (48, 16))
    """
    family = family_of(op)
    if family is None:
        raise BadCall(
            f"{op} does not take descriptors; wgmma.mma_async and tcgen05.mma do"
        )
    if not isinstance(operand, str) or operand not in ("A", "B"):
        raise BadCall(f"operand must be 'A' or 'B'; given {operand!r}")
    if family == "tcgen05" and op.descriptor is None:
        raise BadCall(
            f"{op} has no instruction descriptor, which has the shape and the types; "
            "write it behind the mnemonic, as in 'tcgen05.mma… 0x08400010'"
        )
    return _extent(op, operand)


@lru_cache(maxsize=1024)
def _extent(op: Instruction, operand: str) -> tuple[int, int]:
    blocks = op.cta_group or 1
    if operand == "B":
        return op.shape.n // blocks, op.shape.k
    if op.warpgroup:
        rows, k = op.fragments["A"].shape
        return rows, k
    return op.shape.m // blocks, op.stored_k
