"""What brings data into tensor memory, as users have it."""

from __future__ import annotations

from fragmenta.api.fragments import TensorFragment
from fragmenta.api.instructions import Instruction, kept
from fragmenta.api.returning import returning
from fragmenta.isa.instruction import Instruction as Record
from fragmenta.tensor_memory import copying, scales


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
