"""The executable reference for NVIDIA Tensor Core instructions.

Who holds what, which instructions exist where, and packing in both directions::

    >>> import fragmenta as fm
    >>> op = fm.instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
    >>> print(op.a.where(3, 17))
    lane 14, register 0, bits 7:4

More is in rooms::

    fm.sparse          prune, compress, exchange with other libraries
    fm.quant           quantize, dequantize, what it cost
    fm.weights         orders of quantised weights
    fm.shared          tiles, descriptors, swizzles, bank conflicts, ldmatrix
    fm.tensor_memory   the memory of tcgen05
    fm.wmma            CUDA C++'s nvcuda::wmma
    fm.ptx             whole kernels: check and launch them without a GPU
    fm.errors          what can go wrong
    fm.judge           verdicts about kernels that machines write
    fm.kernels         multiplication on Hopper GPUs
    fm.torch           the same in PyTorch, if that is installed
    fm.triton          Triton kernels without a GPU, if that is installed

Every name is loaded when it is first used, so the import costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.door import homes, opener

__version__ = "0.1.0"

_HOME = homes(
    {
        "api.instructions": "instruction Instruction Mma Wgmma TensorMma LdMatrix "
        "StMatrix MovMatrix",
        "api.catalogue": "find search catalogue from_sass mma wgmma tcgen05",
        "api.fragments": "Fragment",
        "registers.fragment": "Place",
        "registers.layout": "Layout",
        "registers.dtype": "dtype DType",
        "isa.instruction": "Shape",
        "isa.target": "Requirement",
        "execution.matmul": "matmul",
        "api.comparison": "compare",
        "evidence.testing": "assert_same_bits assert_same_bits_for_all_inputs",
        "errors": "Error",
    }
)

# Rooms that are always there, and those that need a package or a GPU to be of use.
_ROOMS = (
    "errors",
    "ptx",
    "quant",
    "shared",
    "sparse",
    "tensor_memory",
    "weights",
    "wmma",
)
_MORE = ("judge", "kernels", "torch", "triton")

__all__ = ["__version__", *_ROOMS, *_HOME]  # noqa: PLE0604 - the keys are strings

# The imports say to type checkers what the tables say; a test holds them together.
if TYPE_CHECKING:
    from fragmenta import errors as errors
    from fragmenta import ptx as ptx
    from fragmenta import quant as quant
    from fragmenta import shared as shared
    from fragmenta import sparse as sparse
    from fragmenta import tensor_memory as tensor_memory
    from fragmenta import weights as weights
    from fragmenta import wmma as wmma
    from fragmenta.api.catalogue import catalogue as catalogue
    from fragmenta.api.catalogue import find as find
    from fragmenta.api.catalogue import from_sass as from_sass
    from fragmenta.api.catalogue import mma as mma
    from fragmenta.api.catalogue import search as search
    from fragmenta.api.catalogue import tcgen05 as tcgen05
    from fragmenta.api.catalogue import wgmma as wgmma
    from fragmenta.api.comparison import compare as compare
    from fragmenta.api.fragments import Fragment as Fragment
    from fragmenta.api.instructions import Instruction as Instruction
    from fragmenta.api.instructions import LdMatrix as LdMatrix
    from fragmenta.api.instructions import Mma as Mma
    from fragmenta.api.instructions import MovMatrix as MovMatrix
    from fragmenta.api.instructions import StMatrix as StMatrix
    from fragmenta.api.instructions import TensorMma as TensorMma
    from fragmenta.api.instructions import Wgmma as Wgmma
    from fragmenta.api.instructions import instruction as instruction
    from fragmenta.errors import Error as Error
    from fragmenta.evidence.testing import assert_same_bits as assert_same_bits
    from fragmenta.evidence.testing import (
        assert_same_bits_for_all_inputs as assert_same_bits_for_all_inputs,
    )
    from fragmenta.execution.matmul import matmul as matmul
    from fragmenta.isa.instruction import Shape as Shape
    from fragmenta.isa.target import Requirement as Requirement
    from fragmenta.registers.dtype import DType as DType
    from fragmenta.registers.dtype import dtype as dtype
    from fragmenta.registers.fragment import Place as Place
    from fragmenta.registers.layout import Layout as Layout
else:
    __getattr__ = opener(__name__, _HOME, (*_ROOMS, *_MORE))


def __dir__() -> list[str]:
    return sorted(__all__)
