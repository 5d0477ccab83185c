"""The words of programming languages for what reports advise.

A report on a kernel says what repairs it.  It speaks of barriers and atomic operations
as the language of the kernel does: ``__syncthreads()`` in CUDA C++.  A front end brings
the words of its language.  Here are those of PTX, and of languages that can be told
from the PTX alone.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.ptx.rules import ATOMIC, FENCED


class Words(NamedTuple):
    """What a language calls the means against races."""

    language: str
    warp_barrier: str
    """What the threads of a warp wait at."""
    block_barrier: str
    """What the threads of a block wait at."""
    atomic: str
    """What accumulates in memory."""
    flag: str
    """What tells another block that something is done."""

    def spoken(self, text: str) -> str:
        """A repair, written with the words of PTX, in the words of this language.

        >>> CUDA.spoken(f"Let {PTX.block_barrier} come between the two.")
        'Let __syncthreads() come between the two.'
        """
        for ours, theirs in zip(PTX[1:], self[1:], strict=True):
            text = text.replace(ours, theirs)
        return text


PTX = Words("ptx", "bar.warp.sync", "a barrier (bar.sync)", ATOMIC, FENCED)
CUDA = Words(
    "cuda",
    "__syncwarp()",
    "__syncthreads()",
    "atomicAdd",
    "__threadfence() and an atomic flag",
)
NUMBA = Words(
    "numba",
    "cuda.syncwarp()",
    "cuda.syncthreads()",
    "cuda.atomic.add",
    "cuda.threadfence() and an atomic flag",
)

CUTE = Words(
    "cute",
    "cute.arch.sync_warp()",
    "cute.arch.sync_threads()",
    "cute.arch.atomic_add",
    "cute.arch.fence_acq_rel_gpu() and an atomic flag",
)

_CPP = frozenset({"cu", "cuh", "h", "hpp", "hxx", "cc", "cpp", "cxx", "inl"})
_BY_NAME = {"_ZN6cudapy": NUMBA, "kernel_cutlass_": CUTE}
"""How the names of kernels begin that a front end makes."""
_NVRTC = "default_program"
"""What NVRTC calls a source that was given no name."""


def told_from(kernel: str, file: str) -> Words:
    """The language of a kernel, by its name and the file of one of its lines.

    >>> told_from("f", "f.cu").language, told_from("f", "f.py").language
    ('cuda', 'ptx')
    >>> told_from("f", "default_program").language
    'cuda'
    """
    for prefix, words in _BY_NAME.items():
        if kernel.startswith(prefix):
            return words
    name = file.rpartition("/")[2]
    cpp = name == _NVRTC or name.rpartition(".")[2].lower() in _CPP
    return CUDA if cpp else PTX
