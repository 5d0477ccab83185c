"""Events of barriers that two groups of warps use at the same time."""

from __future__ import annotations

from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, carries_out
from fragmenta.engine.units.port import Step


@carries_out("collides")
def collides(warp: Warp, event: Event, lanes: int) -> int:
    """Lanes arrive at a barrier that others may be using."""
    warp.block.cluster.port.fence(Step(warp, event, lanes))
    return lanes
