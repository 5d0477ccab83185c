"""The modules that carry out events.  Importing them fills the table of handlers."""

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

MODULES = (
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
