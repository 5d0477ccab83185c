"""Runners: the schedulers of blocks and of clusters.

A :class:`ClusterRunner` runs clusters of the grid one after the other.  Its blocks have
turns in one thread of the host.  If none of them can go on, asynchronous work in flight
is done.  If there is none, waits with a time limit give up.  If that does not help, the
cluster is in a deadlock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.compiled import address_of, aligned, zeros
from fragmenta.engine.simt.context import BlockQueue, Context
from fragmenta.engine.simt.layout import Status
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.fast import layout as fast
from fragmenta.engine.units.faults import Stop
from fragmenta.engine.units.records import Flag, Long, Record, Word
from fragmenta.engine.units.reset_schedule import ResetSchedule, routines

if TYPE_CHECKING:
    from fragmenta.launch.launch import Launch

PATIENCE = 6
"""How often waits give up without any progress before it is a deadlock."""
POLLS = 128
"""How often all lanes poll or wait without progress before it is a deadlock.

Some programs give up polling by themselves."""


class Runner(Protocol):
    """Runs blocks of a queue one after the other, or clusters."""

    launch: Launch
    halt: NDArray[np.int32]
    """Not 0 if no further block should begin."""

    @property
    def contexts(self) -> list[Context]:
        """The memory of its blocks."""

    @property
    def failed(self) -> Context:
        """The context that failed, or that stands for all that wait."""

    @property
    def cluster(self) -> Cluster | None:
        """What carries out events; None if there are none and nothing observes."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each code block was executed."""

    @property
    def status(self) -> Status:
        """The status of the present block or cluster."""

    @property
    def index(self) -> int:
        """The block or cluster that runs, or that was run last."""

    @property
    def following(self) -> int:
        """The next one that nobody runs, or the first one that is not to be run."""

    @property
    def finished(self) -> bool:
        """Whether all to run have ended, or others run them."""

    def begin(self, first: int, last: int) -> None:
        """Say which are to be run next, one after the other."""

    def keep_one(self) -> None:
        """Run no other after the present one."""

    def share(self, queue: BlockQueue) -> None:
        """Take what is to be run from a queue that several runners share."""

    def allow(self, rounds: int, goes_on: bool) -> None:
        """Set after how many rounds of turns Python has its turn.

        ``goes_on`` says whether a block has further turns in machine code.
        """

    def run(self, turn: int) -> None:
        """Run until all have ended, or something else has to happen first."""

    def close(self) -> None:
        """All has run: tell the launch what it has to know."""

    def release(self) -> None:
        """Free memory that nobody needs: all has run in this thread."""


def _contexts(launch: Launch, blocks: int) -> list[Context]:
    """The memory of so many blocks."""
    return [
        Context(launch.compiled, launch.shape, launch, launch.dynamic)
        for _ in range(blocks)
    ]


class BlockRunner:
    """A context for blocks without asynchronous work.

    They run one after the other without Python between them, also if they are observed.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch, self.contexts = launch, _contexts(launch, 1)
        self.failed = context = self.contexts[0]
        self.cluster: Cluster | None = None
        if launch.machine is not None:
            self.cluster = Cluster(launch.machine, self.contexts, alone=True)
        self.halt, self.begin = context.halt, context.begin
        self.keep_one = context.keep_one
        self.share, self.allow = context.share, context.allow

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
        if self.launch.machine is not None:
            self.launch.machine.local.runner = self
        code = self.launch.compiled.code
        code.grid(self.failed.address, code.kernel, turn)

    def settle(self) -> None:
        """Be ready to be copied."""

    settled = True
    """Whether machine code can begin blocks."""

    def close(self) -> None:
        """All has run."""

    def release(self) -> None:
        """Its memory is needed until the launch ends."""


class RunRecord(Record):
    """The record by which machine code runs clusters."""

    index = Long(fast.RUN_INDEX)
    rounds = Word(fast.RUN_ROUNDS)
    goes_on = Flag(fast.RUN_GOES_ON)
    failed = Word(fast.RUN_FAILED)
    spent = Word(fast.RUN_SPENT)
    changed = Flag(fast.RUN_CHANGED)
    ended = Word(fast.RUN_ENDED)
    traced = Word(fast.RUN_TRACED)
    room = Long(fast.RUN_ROOM)
    first = Word(fast.RUN_FIRST)

    @property
    def status(self) -> Status:
        """How the cluster stands; READY: it is to be ended."""
        return Status(int(self.words[fast.RUN_STATUS >> 2]))

    @status.setter
    def status(self, status: Status) -> None:
        self.words[fast.RUN_STATUS >> 2] = status


def _run_record(runner: ClusterRunner) -> RunRecord:
    made, shape = RunRecord(aligned(fast.RUN_BYTES)), runner.launch.shape
    made.longs[fast.RUN_HALT >> 3] = address_of(runner.halt)
    made.longs[fast.RUN_CLUSTER >> 3] = runner.cluster.address
    for axis in range(3):
        made.longs[(fast.RUN_GRID >> 3) + axis] = shape.grid[axis]
        made.longs[(fast.RUN_SHAPE >> 3) + axis] = shape.cluster[axis]
    made.status, made.room = Status.ENDED, 1
    return made


class ClusterRunner:
    """Contexts for the blocks of a cluster; it runs one cluster after the other.

    Machine code does that as long as Python has no part in it; see
    :mod:`fragmenta.engine.units.reset_schedule`.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.contexts = _contexts(launch, launch.shape.cluster_blocks)
        self.failed = self.contexts[0]
        """The context that failed, or that stands for all that wait."""
        assert launch.machine is not None
        self.cluster = Cluster(launch.machine, self.contexts)
        if launch.shape.cluster != (1, 1, 1):
            for rank, context in enumerate(self.contexts):
                context.name_cluster(rank)
        self.halt = zeros(1, np.int32)
        self._run = _run_record(self)
        self.share(BlockQueue())
        self._renewal: ResetSchedule | None = None
        self._clean = False
        """Whether the last cluster ended in machine code."""
        self._begun = 0
        """How many clusters Python has begun."""
        self._fruitless = 0

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each code block was executed."""
        total: NDArray[np.int64] = np.sum([each.counts for each in self.contexts], 0)
        return total

    @property
    def status(self) -> Status:
        """The status of the present cluster."""
        return self._run.status

    @status.setter
    def status(self, status: Status) -> None:
        self._run.status = status
        self._clean = False

    @property
    def index(self) -> int:
        """The cluster that runs, or that was run last."""
        return self._run.index

    @property
    def following(self) -> int:
        """The next cluster to run."""
        return min(self._queue.following, self._queue.last)

    @property
    def finished(self) -> bool:
        """Whether all clusters to run have ended, or others run them."""
        over = self._queue.following >= self._queue.last
        return over and self.status == Status.ENDED

    def begin(self, first: int, last: int) -> None:
        """Say which clusters are to be run next."""
        self._queue.following, self._queue.last = first, last

    def keep_one(self) -> None:
        """Run no other cluster after the present one."""
        self._queue.last = self._queue.following

    def share(self, queue: BlockQueue) -> None:
        """Run clusters of a queue that several runners share."""
        self._queue = queue
        self._run.longs[fast.RUN_QUEUE >> 3] = address_of(queue.memory)

    def allow(self, rounds: int, goes_on: bool) -> None:
        """Set after how many rounds of turns Python has its turn."""
        self._run.rounds, self._run.goes_on = rounds, goes_on

    def run(self, turn: int) -> None:
        """Run until the clusters have ended, or something else has to happen first."""
        self._go_on(turn, returned=False)

    def returned(self, turn: int) -> None:
        """Go on after machine code has run a cluster that this runner did not begin."""
        self._go_on(turn, returned=True)

    def _go_on(self, turn: int, returned: bool) -> None:
        self.cluster.machine.local.runner = self
        while returned or not self.halt[0]:
            if self.status == Status.ENDED and not self._clean and not returned:
                if not self._take():
                    return
                self._begin()
            if returned or (self._renewal is not None and not self.cluster.touched):
                if not returned:
                    self._call_code(turn)
                returned = False
                if not self._has_run(turn):
                    return
            else:
                self._rounds(turn)
            if self.status == Status.READY:
                self._end()
            if self.status != Status.ENDED:
                return
            self._run.rounds -= 1
            if self._run.rounds <= 0:
                return

    def close(self) -> None:
        """All has run."""

    def release(self) -> None:
        """Its memory is needed until the launch ends."""

    def _take(self) -> bool:
        """Take the next cluster; whether there is one."""
        while self._queue.following < self._queue.last:
            taken = routines().take(address_of(self._queue.memory))
            if taken >= self._queue.last:
                break
            if not self.cluster.machine.gone(taken):
                self._run.index = taken
                return True
        return False

    def settle(self) -> None:
        """Be ready to be copied: all clusters of the copies begin in machine code."""
        self._run.index = self.launch.cluster_count - 1
        self._begin()
        self._run.index, self._run.status = 0, Status.ENDED
        self._clean = True
        if self.cluster.port.native_run is not None:
            self.cluster.port.native_run.leave()

    @property
    def settled(self) -> bool:
        """Whether machine code can begin clusters."""
        return self._renewal is not None

    @property
    def record(self) -> RunRecord:
        """The record by which machine code runs clusters."""
        return self._run

    def _begin(self) -> None:
        """Begin a cluster in Python."""
        index, code = self._run.index, self.launch.compiled.code
        members = self.launch.shape.members(index)
        for context, member in zip(self.contexts, members, strict=True):
            context.begin(member, member + 1)
            code.reset(context.address)
            context.status = Status.READY
        known = self._is_known()
        self._begun += 1
        self.cluster.begin(index)
        self._fruitless = 0
        self.status = Status.SPENT
        self._prepare()
        self._renewal = self._renewed() if known else None
        if self._renewal is not None:
            self._renewal.write(self._run.longs)

    def _is_known(self) -> bool:
        """Whether machine code may know all that it needs for the next clusters.

        Most kernels need Python in the first cluster, and then no more.  Other threads
        know what was found there.
        """
        if self._begun:
            return self._begun == 1 or not self.cluster.touched
        # Python ends the first cluster of a launch, whose history is kept.
        if not self.index or not self.cluster.machine.settled:
            return False
        if self.cluster.machine.warpgroups:
            # What has products has loaded it.
            from fragmenta.engine.units import wgmma

            wgmma.prepare(self.cluster)
        return True

    def _prepare(self) -> None:
        """Make ready what else a cluster needs."""

    def _renewed(self) -> ResetSchedule | None:
        """What machine code needs to begin and to end clusters."""
        return self.cluster.resets()

    def _end(self) -> None:
        """All blocks have ended: end the cluster in Python."""
        try:
            self.cluster.touch()
            self.cluster.end()
        except Stop as stop:
            self._stop(stop)
            return
        self.status = Status.ENDED

    def _has_run(self, turn: int) -> bool:
        """Clusters ran in machine code; whether Python has to go on with one."""
        status = self.status
        self._clean = status == Status.ENDED
        if self._clean:
            assert self.cluster.port.native_run is not None
            self.cluster.port.native_run.leave()
            self.cluster.machine.settle()
            return False
        if status == Status.FAULT:
            self.cluster.touch()
            self.failed = self._failed()
        return self._follow(turn) if status == Status.SPENT else True

    def _call_code(self, turn: int) -> None:
        code = self.launch.compiled.code
        routines().clusters(self._run.address, code.kernel, turn)

    def _failed(self) -> Context:
        """The block that failed in machine code."""
        return self.contexts[self._run.failed]

    def _follow(self, turn: int) -> bool:
        """Go on with a cluster that has not ended in machine code, if Python has to."""
        if self._run.changed:
            return False
        self.cluster.touch()
        if self._goes_on(False, bool(self._run.spent)):
            self._rounds(turn)
        return True

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
                self.status = Status.READY
                return
            self.status = Status.SPENT
            changed = cluster.changes != before
            if changed:
                self._look()
            if not self._goes_on(changed, spent):
                return

    def _goes_on(self, changed: bool, spent: bool) -> bool:
        """Whether blocks that have not ended have turns now, after a round."""
        if changed:
            self._fruitless = 0
            return not spent
        if spent:
            if not all(warp.stuck for warp in self._warps()):
                return False
            self._look()
        try:
            if self.cluster.relax():
                return True
        except Stop as stop:
            self._stop(stop)
            return False
        self._fruitless += 1
        if self._fruitless > (POLLS if spent else PATIENCE):
            self.failed = next(
                each for each in self.contexts if each.status != Status.ENDED
            )
            self.status = Status.BLOCKED
            return False
        self.cluster.impatient = True
        return True

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
