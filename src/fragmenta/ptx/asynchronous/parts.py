"""Which modules carry out events?"""

from __future__ import annotations

from fragmenta.ptx.asynchronous import (
    clusters,
    copying,
    fencing,
    locating,
    mbarriers,
    parting,
    products,
    tensor_allocation,
    tensor_moves,
    tensor_products,
    unwritten,
)

PARTS = (
    clusters, copying, fencing, locating, mbarriers, parting, products,
    tensor_allocation, tensor_moves, tensor_products, unwritten,
)  # fmt: skip
