"""The executable reference for NVIDIA Tensor Core instructions.

Who holds what, which instructions exist where, and packing in both directions::

    >>> import fragmenta as fm
    >>> op = fm.instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
    >>> print(op.a.where(3, 17))
    lane 14, register 0, bits 7:4

Every name below is loaded when it is first used, so the import costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fragmenta import wmma as wmma
    from fragmenta.banks import bank_conflicts as bank_conflicts
    from fragmenta.dtype import DType as DType
    from fragmenta.dtype import dtype as dtype
    from fragmenta.errors import AmbiguousInstruction as AmbiguousInstruction
    from fragmenta.errors import BadMetadata as BadMetadata
    from fragmenta.errors import BadOperands as BadOperands
    from fragmenta.errors import Error as Error
    from fragmenta.errors import LayoutError as LayoutError
    from fragmenta.errors import NoDevice as NoDevice
    from fragmenta.errors import NotSparse as NotSparse
    from fragmenta.errors import ShapeError as ShapeError
    from fragmenta.errors import UnknownInstruction as UnknownInstruction
    from fragmenta.errors import UnknownOperand as UnknownOperand
    from fragmenta.errors import UnknownType as UnknownType
    from fragmenta.errors import UnsupportedTarget as UnsupportedTarget
    from fragmenta.errors import ValueRangeError as ValueRangeError
    from fragmenta.exchange import from_cutlass_sm90 as from_cutlass_sm90
    from fragmenta.exchange import from_nibbles as from_nibbles
    from fragmenta.exchange import from_sparse_marlin as from_sparse_marlin
    from fragmenta.exchange import from_torch as from_torch
    from fragmenta.exchange import to_cutlass_sm90 as to_cutlass_sm90
    from fragmenta.exchange import to_nibbles as to_nibbles
    from fragmenta.exchange import to_sparse_marlin as to_sparse_marlin
    from fragmenta.exchange import to_torch as to_torch
    from fragmenta.fragment import Fragment as Fragment
    from fragmenta.fragment import Place as Place
    from fragmenta.isa.instruction import Instruction as Instruction
    from fragmenta.isa.instruction import Shape as Shape
    from fragmenta.isa.parse import catalogue as catalogue
    from fragmenta.isa.parse import find as find
    from fragmenta.isa.parse import instruction as instruction
    from fragmenta.isa.parse import mma as mma
    from fragmenta.isa.parse import search as search
    from fragmenta.isa.parse import wgmma as wgmma
    from fragmenta.isa.target import Requirement as Requirement
    from fragmenta.lane_addresses import LaneAddresses as LaneAddresses
    from fragmenta.layout import Layout as Layout
    from fragmenta.matmul import matmul as matmul
    from fragmenta.metadata import Granularity as Granularity
    from fragmenta.metadata import Metadata as Metadata
    from fragmenta.moves import ldmatrix as ldmatrix
    from fragmenta.moves import ldmatrix_addresses as ldmatrix_addresses
    from fragmenta.moves import movmatrix as movmatrix
    from fragmenta.moves import stmatrix as stmatrix
    from fragmenta.moves import stmatrix_addresses as stmatrix_addresses
    from fragmenta.pruning import prune as prune
    from fragmenta.shared_memory import AddressError as AddressError
    from fragmenta.shared_memory import Descriptor as Descriptor
    from fragmenta.shared_tiles import read_tile as read_tile
    from fragmenta.shared_tiles import shared_tile as shared_tile
    from fragmenta.sparsity import Compressed as Compressed
    from fragmenta.sparsity import check_sparse as check_sparse
    from fragmenta.sparsity import compress as compress
    from fragmenta.sparsity import decompress as decompress
    from fragmenta.sparsity import sparsity_report as sparsity_report

__version__ = "0.1.0"

# Every public name by the module it lives in.  The imports above say the same
# to type checkers; a test holds the two together.
_MODULES = {
    "isa.parse": "instruction find search catalogue mma wgmma",
    "isa.instruction": "Instruction Shape",
    "isa.target": "Requirement",
    "fragment": "Fragment Place",
    "layout": "Layout",
    "dtype": "dtype DType",
    "pruning": "prune",
    "metadata": "Granularity Metadata",
    "sparsity": "compress decompress check_sparse sparsity_report Compressed",
    "exchange": "to_nibbles from_nibbles to_torch from_torch "
    "to_sparse_marlin from_sparse_marlin to_cutlass_sm90 from_cutlass_sm90",
    "shared_memory": "Descriptor AddressError",
    "lane_addresses": "LaneAddresses",
    "shared_tiles": "shared_tile read_tile",
    "moves": "ldmatrix stmatrix movmatrix ldmatrix_addresses stmatrix_addresses",
    "banks": "bank_conflicts",
    "matmul": "matmul",
    "errors": "Error UnknownInstruction AmbiguousInstruction BadOperands "
    "UnknownOperand UnknownType UnsupportedTarget ShapeError ValueRangeError "
    "LayoutError NotSparse BadMetadata NoDevice",
}
_HOME = {name: f"{__name__}.{m}" for m, ns in _MODULES.items() for name in ns.split()}

# Rooms that are used by name: ``fm.wmma.fragment``.
_ROOMS = ("wmma",)

__all__ = ["__version__", *_ROOMS, *_HOME]  # noqa: PLE0604 - the keys are strings


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """A package whose public names win over modules of the same name.

    Importing ``fragmenta.dtype``, the module, would otherwise put it in the
    place of ``fragmenta.dtype``, the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
