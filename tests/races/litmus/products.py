"""Litmus tests: products and tensor maps."""

from __future__ import annotations

from typing import NamedTuple


class Kernel(NamedTuple):
    """A kernel of ``tests/ptx/hazards`` that is a litmus test, too."""

    source: str
    entry: str
    bug: int
    why: str


KERNELS = [
    Kernel(
        "idioms", "ring_wgmma", 0, "wgmma reads what a copy wrote, after the mbarrier"
    ),
    Kernel("pairs", "written_operands", 0, "stores, a proxy fence, a barrier, wgmma"),
    Kernel("pairs", "written_operands", 1, "the same without the proxy fence"),
    Kernel("pairs", "early_release", 1, "a stage is refilled while wgmma may read it"),
    Kernel("products", "fences", 0, "registers, wgmma.fence, wgmma"),
    Kernel("products", "fences", 1, "the same without wgmma.fence"),
    Kernel("products", "early_store", 1, "an operand is overwritten before the wait"),
    Kernel("maps", "box", 0, "a box is loaded through a tensor map, then waited for"),
    Kernel("maps", "box", 1, "the box is read before it has arrived"),
    Kernel("maps", "made_map", 0, "a map is changed, fenced and then used"),
    Kernel("maps", "made_map", 1, "the proxy fence of the map is missing"),
    Kernel("tensor", "product", 0, "tcgen05.mma, commit, wait, tcgen05.ld"),
    Kernel("tensor", "product", 1, "tcgen05.ld does not wait for the product"),
    Kernel("tensor", "written_operand", 1, "tcgen05.mma reads stores without a fence"),
]
"""What the notation is too small for."""
