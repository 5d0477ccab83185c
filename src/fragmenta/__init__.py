"""The executable reference for NVIDIA Tensor Core instructions.

Who holds what, which instructions exist where, and packing in both directions::

    >>> import fragmenta as fm
    >>> op = fm.instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
    >>> print(op.a.where(3, 17))
    lane 14, register 0, bits 7:4

Every name below is loaded when it is first used, so the import costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fragmenta.door import homes, opener

if TYPE_CHECKING:
    from fragmenta import ptx as ptx
    from fragmenta import tensor_memory as tensor_memory
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
    from fragmenta.api.fragments import TensorFragment as TensorFragment
    from fragmenta.api.instructions import Instruction as Instruction
    from fragmenta.api.instructions import LdMatrix as LdMatrix
    from fragmenta.api.instructions import Mma as Mma
    from fragmenta.api.instructions import MovMatrix as MovMatrix
    from fragmenta.api.instructions import StMatrix as StMatrix
    from fragmenta.api.instructions import TensorMma as TensorMma
    from fragmenta.api.instructions import Wgmma as Wgmma
    from fragmenta.api.instructions import instruction as instruction
    from fragmenta.api.loops import MatrixLoop as MatrixLoop
    from fragmenta.api.loops import ldmatrix_addresses as ldmatrix_addresses
    from fragmenta.api.loops import ldmatrix_loop as ldmatrix_loop
    from fragmenta.api.loops import stmatrix_addresses as stmatrix_addresses
    from fragmenta.api.loops import stmatrix_loop as stmatrix_loop
    from fragmenta.api.loops import suggest_swizzle as suggest_swizzle
    from fragmenta.api.weights import shuffle as shuffle
    from fragmenta.arithmetic.quantization import Quantized as Quantized
    from fragmenta.arithmetic.quantization import dequantize as dequantize
    from fragmenta.arithmetic.quantization import quantize as quantize
    from fragmenta.arithmetic.quantization_report import (
        QuantizationReport as QuantizationReport,
    )
    from fragmenta.arithmetic.quantization_report import (
        quantization_report as quantization_report,
    )
    from fragmenta.errors import AddressError as AddressError
    from fragmenta.errors import AlignmentError as AlignmentError
    from fragmenta.errors import AmbiguousInstruction as AmbiguousInstruction
    from fragmenta.errors import BadCall as BadCall
    from fragmenta.errors import BadMetadata as BadMetadata
    from fragmenta.errors import BadOperands as BadOperands
    from fragmenta.errors import CompileError as CompileError
    from fragmenta.errors import Error as Error
    from fragmenta.errors import KernelFault as KernelFault
    from fragmenta.errors import KernelHazard as KernelHazard
    from fragmenta.errors import LayoutError as LayoutError
    from fragmenta.errors import LimitReached as LimitReached
    from fragmenta.errors import MissingPackage as MissingPackage
    from fragmenta.errors import NoDevice as NoDevice
    from fragmenta.errors import NotSparse as NotSparse
    from fragmenta.errors import OutOfBounds as OutOfBounds
    from fragmenta.errors import PtxSyntaxError as PtxSyntaxError
    from fragmenta.errors import ShapeError as ShapeError
    from fragmenta.errors import UnknownInstruction as UnknownInstruction
    from fragmenta.errors import UnknownOperand as UnknownOperand
    from fragmenta.errors import UnknownType as UnknownType
    from fragmenta.errors import UnsupportedTarget as UnsupportedTarget
    from fragmenta.errors import ValueRangeError as ValueRangeError
    from fragmenta.evidence.testing import assert_same_bits as assert_same_bits
    from fragmenta.execution.matmul import matmul as matmul
    from fragmenta.isa.instruction import Shape as Shape
    from fragmenta.isa.instruction_descriptor import (
        InstructionDescriptor as InstructionDescriptor,
    )
    from fragmenta.isa.target import Requirement as Requirement
    from fragmenta.registers.dtype import DType as DType
    from fragmenta.registers.dtype import dtype as dtype
    from fragmenta.registers.fragment import Place as Place
    from fragmenta.registers.granularity import Granularity as Granularity
    from fragmenta.registers.layout import Layout as Layout
    from fragmenta.registers.metadata import Metadata as Metadata
    from fragmenta.registers.tensor import Cell as Cell
    from fragmenta.registers.tensor import TensorAddress as TensorAddress
    from fragmenta.shared.addresses import LaneAddresses as LaneAddresses
    from fragmenta.shared.banks import bank_conflicts as bank_conflicts
    from fragmenta.shared.descriptor import Descriptor as Descriptor
    from fragmenta.shared.moves import ldmatrix as ldmatrix
    from fragmenta.shared.moves import movmatrix as movmatrix
    from fragmenta.shared.moves import stmatrix as stmatrix
    from fragmenta.shared.swizzles import XorSwizzle as XorSwizzle
    from fragmenta.shared.tiles import read_tile as read_tile
    from fragmenta.shared.tiles import shared_tile as shared_tile
    from fragmenta.shared.zero_columns import ZeroColumnMask as ZeroColumnMask
    from fragmenta.sparse.checkpoint import from_bitmask as from_bitmask
    from fragmenta.sparse.checkpoint import to_bitmask as to_bitmask
    from fragmenta.sparse.compress import Compressed as Compressed
    from fragmenta.sparse.compress import check_sparse as check_sparse
    from fragmenta.sparse.compress import compress as compress
    from fragmenta.sparse.compress import decompress as decompress
    from fragmenta.sparse.compress import sparsity_report as sparsity_report
    from fragmenta.sparse.exchange import from_cutlass_sm90 as from_cutlass_sm90
    from fragmenta.sparse.exchange import from_nibbles as from_nibbles
    from fragmenta.sparse.exchange import from_sparse_marlin as from_sparse_marlin
    from fragmenta.sparse.exchange import from_torch as from_torch
    from fragmenta.sparse.exchange import to_cutlass_sm90 as to_cutlass_sm90
    from fragmenta.sparse.exchange import to_nibbles as to_nibbles
    from fragmenta.sparse.exchange import to_sparse_marlin as to_sparse_marlin
    from fragmenta.sparse.exchange import to_torch as to_torch
    from fragmenta.sparse.prune import prune as prune
    from fragmenta.tensor_memory.scaled_mm import ScaledMM as ScaledMM
    from fragmenta.tensor_memory.scaled_mm import from_scaled_mm as from_scaled_mm
    from fragmenta.tensor_memory.scaled_mm import to_scaled_mm as to_scaled_mm
    from fragmenta.view.swizzle_picture import swizzle_picture as swizzle_picture
    from fragmenta.weights.marlin import Marlin24 as Marlin24
    from fragmenta.weights.marlin import from_marlin_24 as from_marlin_24
    from fragmenta.weights.shuffle import Shuffle as Shuffle

__version__ = "0.1.0"

# Every public name by the module it lives in.  The imports above say the same
# to type checkers; a test holds the two together.
_MODULES = {
    "api.catalogue": "find search from_sass mma wgmma tcgen05 catalogue",
    "api.instructions": "instruction Instruction Mma Wgmma TensorMma LdMatrix StMatrix "
    "MovMatrix",
    "isa.instruction": "Shape",
    "isa.instruction_descriptor": "InstructionDescriptor",
    "isa.target": "Requirement",
    "api.fragments": "Fragment TensorFragment",
    "registers.fragment": "Place",
    "registers.layout": "Layout",
    "registers.dtype": "dtype DType",
    "sparse.prune": "prune",
    "registers.granularity": "Granularity",
    "registers.metadata": "Metadata",
    "registers.tensor": "Cell TensorAddress",
    "sparse.compress": "compress decompress check_sparse sparsity_report Compressed",
    "sparse.exchange": "to_nibbles from_nibbles to_torch from_torch "
    "to_sparse_marlin from_sparse_marlin to_cutlass_sm90 from_cutlass_sm90",
    "sparse.checkpoint": "to_bitmask from_bitmask",
    "api.weights": "shuffle",
    "weights.shuffle": "Shuffle",
    "weights.marlin": "from_marlin_24 Marlin24",
    "shared.descriptor": "Descriptor",
    "shared.addresses": "LaneAddresses",
    "shared.tiles": "shared_tile read_tile",
    "shared.zero_columns": "ZeroColumnMask",
    "shared.moves": "ldmatrix stmatrix movmatrix",
    "api.loops": "ldmatrix_loop stmatrix_loop ldmatrix_addresses stmatrix_addresses "
    "MatrixLoop suggest_swizzle",
    "shared.swizzles": "XorSwizzle",
    "shared.banks": "bank_conflicts",
    "view.swizzle_picture": "swizzle_picture",
    "arithmetic.quantization": "quantize dequantize Quantized",
    "arithmetic.quantization_report": "quantization_report QuantizationReport",
    "tensor_memory.scaled_mm": "to_scaled_mm from_scaled_mm ScaledMM",
    "execution.matmul": "matmul",
    "api.comparison": "compare",
    "evidence.testing": "assert_same_bits",
    "errors": "Error UnknownInstruction AmbiguousInstruction BadOperands BadCall "
    "UnknownOperand UnknownType UnsupportedTarget ShapeError ValueRangeError "
    "LayoutError NotSparse BadMetadata AddressError AlignmentError OutOfBounds "
    "PtxSyntaxError KernelFault KernelHazard LimitReached CompileError NoDevice "
    "MissingPackage",
}
_HOME = homes(_MODULES)

# Rooms that are used by name: ``fm.wmma.fragment``.
_ROOMS = ("ptx", "tensor_memory", "wmma")

__all__ = ["__version__", *_ROOMS, *_HOME]  # noqa: PLE0604 - the keys are strings

_find = opener(__name__, _HOME)


def __getattr__(name: str) -> Any:
    return import_module(f"{__name__}.{name}") if name in _ROOMS else _find(name)


def __dir__() -> list[str]:
    return sorted(__all__)
