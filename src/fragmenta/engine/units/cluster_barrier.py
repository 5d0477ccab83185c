"""``barrier.cluster``: the barrier of a cluster.

All threads of the cluster that have not ended arrive there, and wait for one another.
"""

from __future__ import annotations

from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, carries_out
from fragmenta.engine.units.port import Step, Waited
from fragmenta.ptx import rules


@carries_out("barrier.cluster.arrive")
def arrive(warp: Warp, event: Event, lanes: int) -> int:
    """Arrive at the barrier."""
    cluster = warp.block.cluster
    barrier = cluster.barrier
    twice = barrier.entry(warp.block.rank, warp.number).arrived & lanes
    if twice:
        warp.report(
            rules.DEADLOCK,
            event,
            twice,
            "a thread arrives at the barrier of the cluster a second time before it "
            "has waited there",
        )
    barrier.arrive(warp, lanes)
    cluster.port.release(Step(warp, event, lanes), barrier)
    cluster.changes += 1
    barrier.settle(cluster)
    return lanes


@carries_out("barrier.cluster.wait")
def wait(warp: Warp, event: Event, lanes: int) -> int:
    """Wait until all threads have arrived."""
    cluster, passed = warp.block.cluster, 0
    barrier = cluster.barrier
    barrier.settle(cluster)
    for phase, mine in barrier.waited(warp, lanes):
        cluster.port.acquire(Step(warp, event, mine), Waited("cluster", phase))
        passed |= mine
    if passed:
        cluster.changes += 1
    return passed
