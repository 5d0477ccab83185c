"""The list of the units.  Importing it fills the table of what carries out events."""

from __future__ import annotations

from fragmenta.engine.units import (  # noqa: F401 - each carries out some events
    async_release,
    cluster_barrier,
    cluster_launch_control,
    copy_events,
    divergence,
    fencing,
    mbarriers,
    membermasks,
    named_barriers,
    past_the_end,
    sparsity,
    strong_accesses,
    tcgen05,
    tmem_allocation,
    tmem_copies,
    tmem_moves,
    undefined,
    unwritten,
    wgmma,
)
from fragmenta.engine.units.events import refusal

__all__ = ["refusal"]
