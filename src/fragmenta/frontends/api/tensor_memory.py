"""What brings data into tensor memory, as users have it."""

from __future__ import annotations

from fragmenta.frontends.api.fragments import TensorFragment
from fragmenta.frontends.api.instructions import Instruction, kept
from fragmenta.frontends.api.returning import returning
from fragmenta.reference.isa.instruction import Instruction as Record
from fragmenta.reference.tensor_memory import copying, scales


class Copied(TensorFragment, copying.Copied):
    """Where a ``tcgen05.cp`` writes each word of its source.

    >>> import fragmenta as fm
    >>> fm.tensor_memory.copies("tcgen05.cp.cta_group::1.4x256b").shape
    (4, 8)
    """


def _kept(op: Record) -> Instruction:
    return kept(op)


copies = returning(copying.copies, Copied.of, "TensorFragment", __name__)
scale_copy = returning(scales.scale_copy, _kept, "Instruction", __name__)
