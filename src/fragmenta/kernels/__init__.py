"""Matrix multiplication kernels for Hopper GPUs, with a sparse or a dense A.

    config    which kernel for this product?
    packing   how is a sparse A stored, so that one copy brings a tile?
    source    what does the compiler see?
    prepare   how is a weight compressed on the GPU?
    quantize  how do rows of numbers become 8-bit elements and scales?
    tuning    which tile was measured to be the fastest on this GPU?
    arguments what is a kernel launched with?
    launch    how is a kernel run?
    emulate   which bits does a kernel compute, without a GPU?

``gemm.cu`` is the kernel itself; ``docs/kernels.md`` shows how to use it.
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
