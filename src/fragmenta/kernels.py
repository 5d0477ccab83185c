"""Matrix multiplication kernels for Hopper GPUs, with a sparse or a dense A.

How to use it is in ``docs/kernels.md``.
"""

from fragmenta.hopper.kernels.choosing import choose
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.kernels.four_bits import (
    PackedIntegers,
    pack_integers,
    quantize_groups,
    unpack_integers,
)
from fragmenta.hopper.kernels.packing import Packed, pack, unpack

__all__ = [
    "Kernel",
    "Packed",
    "PackedIntegers",
    "Tile",
    "choose",
    "pack",
    "pack_integers",
    "quantize_groups",
    "unpack",
    "unpack_integers",
]
