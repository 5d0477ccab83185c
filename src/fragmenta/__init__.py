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

from fragmenta.base.door import homes, opener

__version__ = "0.1.0"

_HOME = homes(
    {
        "frontends.api.instructions": "instruction Instruction Mma Wgmma TensorMma "
        "LdMatrix StMatrix MovMatrix",
        "frontends.api.catalogue": "find search catalogue from_sass mma wgmma tcgen05",
        "frontends.api.fragments": "Fragment",
        "reference.registers.fragment": "Place",
        "reference.registers.layout": "Layout",
        "reference.registers.dtype": "dtype DType",
        "reference.isa.instruction": "Shape",
        "reference.isa.target": "Requirement",
        "reference.execution.matmul": "matmul",
        "frontends.api.comparison": "compare",
        "inspect.evidence.testing": "assert_same_bits assert_same_bits_for_all_inputs",
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
    from fragmenta.errors import Error as Error
    from fragmenta.frontends.api.catalogue import catalogue as catalogue
    from fragmenta.frontends.api.catalogue import find as find
    from fragmenta.frontends.api.catalogue import from_sass as from_sass
    from fragmenta.frontends.api.catalogue import mma as mma
    from fragmenta.frontends.api.catalogue import search as search
    from fragmenta.frontends.api.catalogue import tcgen05 as tcgen05
    from fragmenta.frontends.api.catalogue import wgmma as wgmma
    from fragmenta.frontends.api.comparison import compare as compare
    from fragmenta.frontends.api.fragments import Fragment as Fragment
    from fragmenta.frontends.api.instructions import Instruction as Instruction
    from fragmenta.frontends.api.instructions import LdMatrix as LdMatrix
    from fragmenta.frontends.api.instructions import Mma as Mma
    from fragmenta.frontends.api.instructions import MovMatrix as MovMatrix
    from fragmenta.frontends.api.instructions import StMatrix as StMatrix
    from fragmenta.frontends.api.instructions import TensorMma as TensorMma
    from fragmenta.frontends.api.instructions import Wgmma as Wgmma
    from fragmenta.frontends.api.instructions import instruction as instruction
    from fragmenta.inspect.evidence.testing import assert_same_bits as assert_same_bits
    from fragmenta.inspect.evidence.testing import (
        assert_same_bits_for_all_inputs as assert_same_bits_for_all_inputs,
    )
    from fragmenta.reference.execution.matmul import matmul as matmul
    from fragmenta.reference.isa.instruction import Shape as Shape
    from fragmenta.reference.isa.target import Requirement as Requirement
    from fragmenta.reference.registers.dtype import DType as DType
    from fragmenta.reference.registers.dtype import dtype as dtype
    from fragmenta.reference.registers.fragment import Place as Place
    from fragmenta.reference.registers.layout import Layout as Layout
else:
    __getattr__ = opener(__name__, _HOME, (*_ROOMS, *_MORE))


def __dir__() -> list[str]:
    return sorted(__all__)
