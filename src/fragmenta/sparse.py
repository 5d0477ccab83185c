"""Sparse matrices A: made, checked, stored and exchanged with other libraries.

prune(...)                keep the largest elements of each chunk
compress(...)             a sparse matrix -> Compressed: stored values and codes
decompress(...)           the inverse
check(...), report(...)   whether a matrix is sparse; how it fails to be
read_words(...)           what words of metadata mean
compress_registers(...)   what spcompress computes, and decompress_registers(...)
to_torch, from_torch      and others: what PyTorch, CUTLASS, Sparse-Marlin and
                          checkpoints store

>>> import numpy as np, fragmenta as fm
>>> op = fm.mma("m16n8k32", a="s8", sp="sp")
>>> A = fm.sparse.prune(op, np.arange(512).reshape(16, 32) % 100)
>>> sp = fm.sparse.compress(op, A)
>>> sp.values.shape, bool((fm.sparse.decompress(op, sp) == A).all())
((16, 16), True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.base.door import homes, opener

_HOME = homes(
    {
        "reference.sparse.pruning": "prune",
        "reference.sparse.compression": "compress decompress check report "
        "read_words Compressed Report",
        "reference.sparse.exchange": "to_nibbles from_nibbles to_torch from_torch "
        "to_marlin from_marlin "
        "to_cutlass_sm90 from_cutlass_sm90",
        "reference.sparse.checkpoint": "to_bitmask from_bitmask",
        "reference.sparse.in_registers": "compress_registers decompress_registers "
        "SparseDescriptor",
        "reference.registers.granularity": "Granularity",
        "reference.registers.metadata": "Metadata",
    }
)
__all__ = sorted(_HOME)  # noqa: PLE0605 - the keys are strings

# The imports say to type checkers what the table says; a test holds the two together.
if TYPE_CHECKING:
    from fragmenta.reference.registers.granularity import Granularity as Granularity
    from fragmenta.reference.registers.metadata import Metadata as Metadata
    from fragmenta.reference.sparse.checkpoint import from_bitmask as from_bitmask
    from fragmenta.reference.sparse.checkpoint import to_bitmask as to_bitmask
    from fragmenta.reference.sparse.compression import Compressed as Compressed
    from fragmenta.reference.sparse.compression import Report as Report
    from fragmenta.reference.sparse.compression import check as check
    from fragmenta.reference.sparse.compression import compress as compress
    from fragmenta.reference.sparse.compression import decompress as decompress
    from fragmenta.reference.sparse.compression import read_words as read_words
    from fragmenta.reference.sparse.compression import report as report
    from fragmenta.reference.sparse.exchange import (
        from_cutlass_sm90 as from_cutlass_sm90,
    )
    from fragmenta.reference.sparse.exchange import from_marlin as from_marlin
    from fragmenta.reference.sparse.exchange import from_nibbles as from_nibbles
    from fragmenta.reference.sparse.exchange import from_torch as from_torch
    from fragmenta.reference.sparse.exchange import to_cutlass_sm90 as to_cutlass_sm90
    from fragmenta.reference.sparse.exchange import to_marlin as to_marlin
    from fragmenta.reference.sparse.exchange import to_nibbles as to_nibbles
    from fragmenta.reference.sparse.exchange import to_torch as to_torch
    from fragmenta.reference.sparse.in_registers import (
        SparseDescriptor as SparseDescriptor,
    )
    from fragmenta.reference.sparse.in_registers import (
        compress_registers as compress_registers,
    )
    from fragmenta.reference.sparse.in_registers import (
        decompress_registers as decompress_registers,
    )
    from fragmenta.reference.sparse.pruning import prune as prune
else:
    __getattr__ = opener(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
