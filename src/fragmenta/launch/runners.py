"""Runners: the schedulers of blocks and of clusters.

A :class:`ClusterRunner` runs clusters of the grid one after the other.  Its blocks have
turns in one thread of the host.  If none of them can go on, asynchronous work in flight
is done.  If there is none, waits with a time limit give up.  If that does not help, the
cluster is in a deadlock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.simt.context import Context
from fragmenta.simt.layout import Status
from fragmenta.units.faults import Stop
from fragmenta.units.machine import Cluster, Warp

if TYPE_CHECKING:
    from fragmenta.launch.launch import Launch

PATIENCE = 6
"""How often waits give up without any progress before it is a deadlock."""
POLLS = 128
"""How often all lanes poll or wait without progress before it is a deadlock.

Some programs give up polling by themselves."""


class BlockRunner:
    """A context for blocks without asynchronous work.

    They run one after the other without Python between them, also if they are observed.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.failed = Context(launch.compiled, launch.shape, launch, launch.dynamic)
        assert launch.machine is not None
        self.cluster = Cluster(launch.machine, [self.failed], alone=True)
        self.halt, self.begin = self.failed.halt, self.failed.begin
        self.keep_one = self.failed.keep_one
        self.share, self.allow = self.failed.share, self.failed.allow

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each code block was executed."""
        return self.failed.counts

    @property
    def status(self) -> Status:
        """The status of the present block."""
        return self.failed.status

    @property
    def index(self) -> int:
        """The block that runs, or that was run last."""
        return self.failed.index

    @property
    def following(self) -> int:
        """The next block that nobody runs, or the first one that is not to be run."""
        return self.failed.following

    @property
    def finished(self) -> bool:
        """Whether all blocks to run have ended, or others run them."""
        return self.failed.finished

    def run(self, turn: int) -> None:
        """Run until the blocks have ended, or something else has to happen first."""
        code = self.launch.compiled.code
        code.grid(self.failed.address, code.kernel, turn)


class ClusterRunner:
    """Contexts for the blocks of a cluster; it runs one cluster after the other."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        size = launch.shape.cluster_blocks
        self.contexts = [
            Context(launch.compiled, launch.shape, launch, launch.dynamic)
            for _ in range(size)
        ]
        assert launch.machine is not None
        self.cluster = Cluster(launch.machine, self.contexts)
        self.halt = np.zeros(1, np.int32)
        self.index = self.last = 0
        self.status = Status.ENDED
        self.failed = self.contexts[0]
        """The context that failed, or that stands for all that wait."""
        self._fruitless = 0

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each code block was executed."""
        total: NDArray[np.int64] = np.sum([each.counts for each in self.contexts], 0)
        return total

    @property
    def following(self) -> int:
        """The next cluster to run."""
        return self.index + (self.status != Status.ENDED)

    @property
    def finished(self) -> bool:
        """Whether all clusters to run have ended."""
        return self.status == Status.ENDED and self.index >= self.last

    def begin(self, first: int, last: int) -> None:
        """Say which clusters are to be run next."""
        self.index, self.last = first, last

    def keep_one(self) -> None:
        """Run no other cluster after the present one."""
        self.last = self.index + 1

    def run(self, turn: int) -> None:
        """Run until the clusters have ended, or something else has to happen first."""
        while not self.halt[0]:
            if self.status == Status.ENDED:
                if self.index >= self.last:
                    return
                if self.cluster.machine.gone(self.index):
                    self.index += 1
                    continue
                self._begin()
            self._rounds(turn)
            if self.status != Status.ENDED:
                return
            try:
                self.cluster.end()
            except Stop as stop:
                self._stop(stop)
                return
            self.index += 1

    def _begin(self) -> None:
        shape, code = self.launch.shape, self.launch.compiled.code
        indices = shape.members(self.index)
        for context, index in zip(self.contexts, indices, strict=True):
            context.begin(index, index + 1)
            code.reset(context.address)
            context.status = Status.READY
        if len(self.contexts) > 1 or shape.cluster != (1, 1, 1):
            self._name_clusters()
        self.cluster.begin(self.index, indices)
        self._fruitless = 0

    def _name_clusters(self) -> None:
        """Set the special registers of clusters."""
        shape = self.launch.shape
        for rank, context in enumerate(self.contexts):
            numbers = {"%cluster_ctarank": rank, "%is_explicit_cluster": 1}
            numbers["%cluster_nctarank"] = len(self.contexts)
            for axis, name in enumerate("xyz"):
                numbers[f"%clusterid.{name}"] = shape.cluster_at(self.index)[axis]
                numbers[f"%nclusterid.{name}"] = shape.clusters[axis]
                numbers[f"%cluster_ctaid.{name}"] = shape.in_cluster(rank)[axis]
                numbers[f"%cluster_nctaid.{name}"] = shape.cluster[axis]
            context.specials(numbers)

    def _turn(self, context: Context, turn: int) -> Status:
        """Give a block its turn; its status afterwards."""
        code = self.launch.compiled.code
        code.turns(context.address, code.kernel, turn)
        return context.status

    def _rounds(self, turn: int) -> None:
        """Let the blocks have turns until all ended, or none can go on."""
        cluster = self.cluster
        while True:
            before, spent = cluster.changes, False
            for context in self.contexts:
                if context.status == Status.ENDED:
                    continue
                status = self._turn(context, turn)
                if status == Status.FAULT:
                    self.failed, self.status = context, Status.FAULT
                    return
                if status == Status.ENDED:
                    cluster.ended(context)
                spent = spent or status == Status.SPENT
            cluster.impatient = False
            if all(each.status == Status.ENDED for each in self.contexts):
                self.status = Status.ENDED
                return
            self.status = Status.SPENT
            if cluster.changes != before:
                self._fruitless = 0
                self._look()
                if spent:
                    return
                continue
            if spent:
                if not all(warp.stuck for warp in self._warps()):
                    return
                self._look()
            try:
                if cluster.relax():
                    continue
            except Stop as stop:
                self._stop(stop)
                return
            self._fruitless += 1
            if self._fruitless > (POLLS if spent else PATIENCE):
                self.failed = next(
                    each for each in self.contexts if each.status != Status.ENDED
                )
                self.status = Status.BLOCKED
                return
            cluster.impatient = True

    def _stop(self, stop: Stop) -> None:
        """Work in flight cannot be done: its block has failed."""
        assert self.launch.machine is not None
        self.launch.machine.fail(stop)
        self.failed, self.status = stop.warp.block.context, Status.FAULT

    def _warps(self) -> Iterator[Warp]:
        return (warp for block in self.cluster.blocks for warp in block.warps)

    def _look(self) -> None:
        """From now on, find out which lanes wait or poll without progress."""
        for warp in self._warps():
            warp.look()
