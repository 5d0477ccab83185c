"""How do the blocks of a cluster run?

A :class:`Team` runs clusters of the grid one after the other.  Its blocks have turns in
one thread of the host.  If none of them can go on, work that is under way is done; if
there is none, waits give up; and if that does not help, it is a deadlock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import Error
from fragmenta.simt.context import Context, Shape
from fragmenta.simt.layout import Status
from fragmenta.units.faults import Stop
from fragmenta.units.machine import Cluster, Warp

if TYPE_CHECKING:
    from fragmenta.launch.launching import Launch

PATIENCE = 6
"""How often waits give up in vain before it is a deadlock."""
POLLS = 128
"""How often every lane asks in vain, or waits, before it is one: some ask so often that
they give up by themselves."""


class Single:
    """A context for blocks that nothing asynchronous happens to.

    They run one after the other without Python between them, though they are watched.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.failed = Context(launch.compiled, launch.shape, launch, launch.dynamic)
        assert launch.machine is not None
        self.cluster = Cluster(launch.machine, [self.failed], alone=True)
        self.halt, self.begin = self.failed.halt, self.failed.begin

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each code block was executed."""
        return self.failed.counts

    @property
    def status(self) -> Status:
        """How the present block stands."""
        return self.failed.status

    @property
    def index(self) -> int:
        """The block that runs, or the next one."""
        return self.failed.index

    @property
    def last(self) -> int:
        """The first block that is not to be run."""
        return self.failed.last

    def run(self, turn: int) -> None:
        """Run until the blocks have ended, or something else has to happen first."""
        code = self.launch.compiled.code
        code.grid(self.failed.address, code.kernel, turn)


class Team:
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
        self._vain = 0

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each code block was executed."""
        total: NDArray[np.int64] = np.sum([each.counts for each in self.contexts], 0)
        return total

    def begin(self, first: int, last: int) -> None:
        """Say which clusters are to be run next."""
        self.index, self.last = first, last

    def run(self, turn: int) -> None:
        """Run until the clusters have ended, or something else has to happen first."""
        while not self.halt[0]:
            if self.status == Status.ENDED:
                if self.index >= self.last:
                    return
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
        self._vain = 0

    def _name_clusters(self) -> None:
        """Give the special registers of clusters their values."""
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
        """Let a block have its turn; what came of it."""
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
                self._vain = 0
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
            self._vain += 1
            if self._vain > (POLLS if spent else PATIENCE):
                self.failed = next(
                    each for each in self.contexts if each.status != Status.ENDED
                )
                self.status = Status.BLOCKED
                return
            cluster.impatient = True

    def _stop(self, stop: Stop) -> None:
        """Work that was under way cannot be done."""
        assert self.launch.machine is not None
        self.launch.machine.fail(stop)
        self.failed, self.status = stop.warp.block.context, Status.FAULT

    def _warps(self) -> Iterator[Warp]:
        return (warp for block in self.cluster.blocks for warp in block.warps)

    def _look(self) -> None:
        """From now on, find out which lanes wait or ask in vain."""
        for warp in self._warps():
            warp.look()


def check_cluster(kernel: Any, shape: Shape, given: Any) -> tuple[int, int, int]:
    """The blocks of a cluster along each axis: given, or said by the kernel."""
    told = kernel.directives.get("reqnctapercluster")
    wanted = tuple(int(n) for n in (*told, 1, 1)[:3]) if told else None
    if given is None:
        found = wanted or (1, 1, 1)
    else:
        several = isinstance(given, (tuple, list))
        numbers = tuple(given) if several else (given,)
        if not 1 <= len(numbers) <= 3 or not all(
            isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 1
            for n in numbers
        ):
            raise Error(
                f"cluster is one to three whole numbers from 1; given {given!r}"
            )
        found = tuple(int(n) for n in (*numbers, 1, 1)[:3])
    if wanted is not None and found != wanted:
        raise Error(f"{kernel.shown} needs clusters of {wanted}; given {found}")
    x, y, z = found
    if x * y * z > 16:
        raise Error(f"a cluster has at most 16 blocks; given {found}")
    if any(of % by for of, by in zip(shape.grid, found, strict=True)):
        raise Error(f"the grid {shape.grid} cannot be divided into clusters of {found}")
    return x, y, z
