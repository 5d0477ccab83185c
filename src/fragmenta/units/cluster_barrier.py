"""``barrier.cluster``: the barrier of a cluster.

All threads of the cluster that have not ended arrive there, and wait for one another.
"""

from __future__ import annotations

from fragmenta.ptx import rules
from fragmenta.units.events import Event, carries_out
from fragmenta.units.machine import Cluster, Warp
from fragmenta.units.port import Step, Waited


class Barrier:
    """The barrier of a cluster."""

    def __init__(self) -> None:
        self.phase = 0
        self.arrived: dict[tuple[int, int], int] = {}
        """The lanes that arrived in the present phase, by block and warp."""
        self.tickets: dict[tuple[int, int], dict[int, int]] = {}
        """Lanes that arrived and have not waited, by warp and phase."""

    def settle(self, cluster: Cluster) -> None:
        """Begin the next phase, if all have arrived."""
        if not self.arrived:
            return
        for block in cluster.blocks:
            for warp in block.warps:
                key = block.rank, warp.number
                if warp.live & ~self.arrived.get(key, 0) and not block.ended:
                    return
        self.phase += 1
        self.arrived.clear()
        cluster.changes += 1


def _barrier(warp: Warp) -> Barrier:
    cluster = warp.block.cluster
    if cluster.barrier is None:
        cluster.barrier = Barrier()
    return cluster.barrier


@carries_out("barrier.cluster.arrive")
def arrive(warp: Warp, event: Event, lanes: int) -> int:
    """Arrive at the barrier."""
    barrier, key = _barrier(warp), (warp.block.rank, warp.number)
    twice = barrier.arrived.get(key, 0) & lanes
    if twice:
        warp.report(
            rules.DEADLOCK,
            event,
            twice,
            "a thread arrives at the barrier of the cluster a second time before it "
            "has waited there",
        )
    barrier.arrived[key] = barrier.arrived.get(key, 0) | lanes
    tickets = barrier.tickets.setdefault(key, {})
    tickets[barrier.phase] = tickets.get(barrier.phase, 0) | lanes
    cluster = warp.block.cluster
    cluster.port.release(Step(warp, event, lanes), barrier)
    cluster.changes += 1
    barrier.settle(cluster)
    return lanes


@carries_out("barrier.cluster.wait")
def wait(warp: Warp, event: Event, lanes: int) -> int:
    """Wait until all threads have arrived."""
    barrier, key = _barrier(warp), (warp.block.rank, warp.number)
    cluster = warp.block.cluster
    barrier.settle(cluster)
    passed = 0
    tickets = barrier.tickets.get(key, {})
    for phase in sorted(tickets):
        mine = tickets[phase] & lanes
        if mine and phase < barrier.phase:
            cluster.port.acquire(Step(warp, event, mine), Waited("cluster", phase))
            passed |= mine
            tickets[phase] &= ~mine
    for phase in [each for each, who in tickets.items() if not who]:
        del tickets[phase]
    if passed:
        cluster.changes += 1
    return passed
