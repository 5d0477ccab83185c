"""Which modules carry out events?"""

from __future__ import annotations

from fragmenta.ptx.asynchronous import (
    clusters,
    copying,
    fencing,
    mbarriers,
    products,
    unwritten,
)

PARTS = (clusters, copying, fencing, mbarriers, products, unwritten)
