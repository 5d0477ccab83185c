"""Matrix multiplication on Hopper GPUs that makes sparsity pay.

    config    which kernel for this product?
    packing   how does a sparse A lie in memory, so that one copy brings a tile?
    source    what does the compiler see?
    prepare   how is a weight compressed on the GPU?
    tuning    which tile is the fastest here, measured?
    launch    how is it run?
    emulate   what are its bits, without a GPU?

``gemm.cu`` is the kernel itself; ``docs/kernels.md`` tells how it came about.
"""

from fragmenta.kernels.config import Kernel, Tile, choose
from fragmenta.kernels.packing import Packed, pack, unpack

__all__ = [
    "Kernel",
    "Packed",
    "Tile",
    "choose",
    "pack",
    "unpack",
]
