"""Which modules carry out events?"""

from __future__ import annotations

from fragmenta.ptx.asynchronous import (
    cancelling,
    clusters,
    copying,
    fencing,
    locating,
    mbarriers,
    parting,
    products,
    tensor_allocation,
    tensor_fills,
    tensor_moves,
    tensor_products,
    undefined,
    unwritten,
)

PARTS = (
    cancelling, clusters, copying, fencing, locating, mbarriers, parting, products,
    tensor_allocation, tensor_fills, tensor_moves, tensor_products, undefined,
    unwritten,
)  # fmt: skip
