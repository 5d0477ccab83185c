"""Which modules carry out events?"""

from __future__ import annotations

from fragmenta.units import (
    cluster_launch_control,
    clusters,
    copy_events,
    divergence,
    fencing,
    mbarriers,
    strong_accesses,
    tcgen05,
    tmem_allocation,
    tmem_copies,
    tmem_moves,
    undefined,
    unwritten,
    wgmma,
)

PARTS = (
    cluster_launch_control, clusters, copy_events, fencing, strong_accesses, mbarriers, divergence, wgmma,
    tmem_allocation, tmem_copies, tmem_moves, tcgen05, undefined,
    unwritten,
)  # fmt: skip
