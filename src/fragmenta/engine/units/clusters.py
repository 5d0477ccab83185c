"""Clusters: blocks that run together, and their work in flight."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.compiled import address_of as address
from fragmenta.engine.simt.compiled import aligned, zeros
from fragmenta.engine.simt.context import Context
from fragmenta.engine.units.barrier_state import ClusterBarrierRecord
from fragmenta.engine.units.blocks import Block, Warp
from fragmenta.engine.units.events import Event
from fragmenta.engine.units.fast import layout as fast
from fragmenta.engine.units.fast import tensor_layout as tensors
from fragmenta.engine.units.mbarrier_state import Mbarrier
from fragmenta.engine.units.records import Flag, Long, Record, Word
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.engine.units.schedule import EAGER, LAZY
from fragmenta.engine.units.tasks import TaskPool

if TYPE_CHECKING:
    from fragmenta.engine.units.machine import Machine
    from fragmenta.engine.units.tmem_allocation import AllocationRequest
    from fragmenta.engine.units.work import Work


class Cluster(Record):
    """Blocks that run together, in one thread of the host.

    It is used for one cluster of the grid after the other.
    """

    time = Long(fast.CLUSTER_TIME)
    """How many events there were."""
    changes = Long(fast.CLUSTER_CHANGES)
    """A count of what happened that lanes may wait for."""
    wakes = Long(fast.CLUSTER_WAKES)
    """A count of what let waiting lanes go on."""
    impatient = Flag(fast.CLUSTER_IMPATIENT)
    """Whether waits return without success, because nothing else can happen."""
    hasty = Flag(fast.CLUSTER_HASTY)
    """Whether the first wait of a warp for a phase gives up at once."""
    ended_blocks = Word(fast.CLUSTER_ENDED)
    """The blocks that have ended, by rank."""
    number = Long(fast.CLUSTER_NUMBER)
    """Which cluster of the grid it is."""
    fair = Flag(fast.CLUSTER_FAIR)
    """Whether warps give way to others at waits."""
    touched = Word(fast.CLUSTER_TOUCHED)
    """Whether Python had a part in it since it began."""
    _pending = Word(fast.CLUSTER_PENDING)
    _ordinal = Long(fast.CLUSTER_ORDINAL)

    def __init__(
        self, machine: Machine, contexts: list[Context], alone: bool = False
    ) -> None:
        super().__init__(aligned(fast.CLUSTER_BYTES))
        self.machine, self.alone = machine, alone
        self.contexts = contexts
        self.blocks = [Block(self, rank, each) for rank, each in enumerate(contexts)]
        for rank, each in enumerate(contexts):
            each.join(contexts, rank)
            machine.blocks[each.address] = self.blocks[rank]
        self.schedule = machine.schedule
        self.in_flight: dict[Work, None] = {}
        """Python's work that was issued and is not done, the oldest first."""
        self.barrier = ClusterBarrierRecord(len(contexts))
        self.requests: dict[int, AllocationRequest] = {}
        """Requests for tensor memory of both blocks of a pair, by rank."""
        if alone:
            self.number = -1
        self._trying = False
        """Whether a fast path tries again."""
        self.port = machine.port(self)
        self.pool = TaskPool(self)
        self._write_state()

    def _write_state(self) -> None:
        """Write down where compiled code finds everything."""
        machine, functions = self.machine, self.port.functions
        kinds = {EAGER: fast.EAGER, LAZY: fast.LAZY}
        schedule = kinds.get(str(self.schedule.work), fast.RANDOM)
        self.words[fast.CLUSTER_SCHEDULE >> 2] = schedule
        self.words[fast.CLUSTER_HASTY >> 2] = self.schedule.plan.hasty
        self.fair = self.schedule.eager and not self.schedule.plan.stepped
        self.words[fast.CLUSTER_BLOCKS >> 2] = len(self.blocks)
        first = fast.CLUSTER_PEERS >> 3
        self.longs[first : first + len(self.blocks)] = [
            each.address for each in self.blocks
        ]
        self.longs[fast.CLUSTER_PYTHON >> 3] = machine.address
        self.longs[fast.CLUSTER_TASKS >> 3] = self.pool.address
        self.longs[fast.CLUSTER_BARRIER >> 3] = self.barrier.address
        self.longs[fast.CLUSTER_MAPS >> 3] = machine.maps.address
        entry = machine.address
        fast_paths = machine.fast and not machine.notes  # which Python writes
        if functions is not None and not self.alone and fast_paths:
            traced = bool(self.longs[fast.CLUSTER_TRACE >> 3])
            observed = functions.keys() if functions else None
            table = machine.event_table(observed, traced)
            self.longs[fast.CLUSTER_EVENTS >> 3] = table.address
            self._functions = _vector(functions)
            if functions:
                self.longs[fast.CLUSTER_PORT >> 3] = address(self._functions)
            entry = table.dispatch
        self._counts_events = entry == machine.address
        for each in self.contexts:
            each.point(layout.BLOCK_EVENT, entry)

    def observe_with(self, functions: Mapping[int, int] | None) -> None:
        """Let the port have other functions in machine code; None: see every event.

        The cluster has just begun.
        """
        if functions is not self.port.functions:
            self.port.functions = functions
            self._write_state()

    def record_with(self, function: int) -> None:
        """Let fast paths tell the recorder at an address what they do; 0: nobody.

        The cluster has just begun.
        """
        if function != self.longs[fast.CLUSTER_TRACE >> 3]:
            self.longs[fast.CLUSTER_TRACE >> 3] = function
            self._write_state()

    @property
    def blocks_by_address(self) -> dict[int, Block]:
        """The blocks, by where compiled code has them."""
        return {each.context.address: each for each in self.blocks}

    @cached_property
    def scratch(self) -> NDArray[np.uint8]:
        """Memory for the operands of products of ``tcgen05``."""
        return aligned(tensors.SCRATCH)

    def begin(self, number: int) -> None:
        """Another cluster of the grid begins."""
        self.number = number
        self.machine.begun = max(self.machine.begun, number + 1)
        self.schedule = self.machine.schedule.fork(number)
        self.in_flight.clear()
        self.pool.begin()
        self.barrier.reset()
        self.requests.clear()
        self._pending = self.changes = self.time = self.ended_blocks = self.wakes = 0
        self.touched = 0
        self.impatient = False
        for block in self.blocks:
            block.begin()
            block.context.join(self.contexts, block.rank)
        self.port.begin()

    def resets(self) -> ResetSchedule | None:
        """What machine code does if another cluster begins, and if it ends.

        The cluster has just begun, and its memory is as it has to be then.  None:
        Python has to begin and to end every cluster.
        """
        machine = self.machine
        granted = machine.grants or machine.cancelled  # Python leaves clusters out
        if self.schedule.random is not None or machine.tensor or granted:
            return None
        if machine.tracer is not None:
            return None
        made, native_run = ResetSchedule(self), self.port.native_run
        if native_run is None or not native_run.renewed(made):
            return None
        first, last = fast.CLUSTER_TIME >> 3, fast.CLUSTER_IMPATIENT >> 3
        made.clear(self.longs[first:last])
        for place in (fast.CLUSTER_PENDING, fast.CLUSTER_ENDED, fast.CLUSTER_IMPATIENT):
            made.clear(self.words[place >> 2 :][:1])
        made.clear(self.longs[fast.CLUSTER_WAKES >> 3 :][:1], self.barrier.raw)
        made.zero_at_end(self.words[fast.CLUSTER_PENDING >> 2 :][:1])
        self.pool.renewed(made)
        for block in self.blocks:
            block.renewed(made)
        return made

    def touch(self) -> None:
        """Python takes part in what happens: it has to end the cluster, too."""
        if not self.touched:
            self.touched = 1
            if self.port.native_run is not None:
                self.port.native_run.enter()

    def again(self, warp: Warp, event: Event, lanes: int) -> int | None:
        """Let a fast path try again, of whose instruction Python knows more now.

        The result are the lanes that may go on; None if there is no fast path, or if
        this is its second try.
        """
        table = self.machine.present_table
        if table is None or self._trying or self.schedule.random is not None:
            return None
        if self.port.functions is None:
            return None
        self._trying = True
        try:
            return table.call(event, warp.block.context.address, warp.address, lanes)
        finally:
            self._trying = False

    def event(self, block: Block, warp: int, number: int, lanes: int) -> int:
        """Carry out an event, and return the lanes that may go on."""
        self.time += self._counts_events
        if self.alone and self.number != self.contexts[0].index:
            # A block that runs alone begins in compiled code.
            self.number = self.contexts[0].index
            self.port.begin()
        if self.schedule.random is not None:
            for each in self.schedule.some(self.in_flight):
                each.finish()
        here = block.by_address[warp]
        event = self.machine.events[number]
        return event.run(here, event, lanes)

    # ── work in flight ──────────────────────────────────────────────────────

    def start(self, work: Work) -> None:
        """Do work now, or keep it in flight, as the schedule says."""
        work.cluster, work.started = self, True
        self._ordinal += 1
        work.ordinal = self._ordinal
        if self.machine.notes:
            self.machine.note(work.goals, work.noted)
        if self.schedule.eager:
            work.finish()
        else:
            work.poison()
            self.in_flight[work] = None
            self._pending = len(self.in_flight)
            self.port.wrote(work)

    def finished(self, work: Work) -> None:
        """A piece of work is done: it is no longer in flight."""
        self.in_flight.pop(work, None)
        self._pending = len(self.in_flight)
        self.changes += 1
        self.wakes += 1
        self.port.done(work)

    def wanted(self, mbarrier: Mbarrier) -> None:
        """Lanes wait for an mbarrier: do what it counts, unless the order is random."""
        if self.schedule.random is None:
            found = list(mbarrier.work)
            if mbarrier.tasks:
                found += self.pool.counted(mbarrier.block.rank, mbarrier.offset)
            for task in sorted(found, key=_ordinal):
                task.finish()

    def relax(self) -> bool:
        """Finish some work because no lane can go on; whether there was any."""
        left = self.polled or self.unfinished
        if not left:
            return False
        if self.schedule.random is not None:
            self.schedule.random.choice(left).finish()
        else:
            for work in left:
                work.finish()
        return True

    @property
    def unfinished(self) -> list[Work]:
        """All work in flight, the oldest first, also what machine code has started."""
        found = [work for block in self.blocks for work in block.started]
        found += self.pool.in_flight()
        return sorted([*self.in_flight, *found], key=_ordinal)

    @property
    def polled(self) -> list[Work]:
        """Work in flight for which nothing waits: threads poll what it writes."""
        return [each for each in self.in_flight if each.role is not None]

    @property
    def ordinal(self) -> int:
        """How many pieces of work were put in flight, in all clusters so far."""
        return self._ordinal

    def ended(self, context: Context) -> None:
        """All threads of a block have ended: its shared memory is out of bounds."""
        self.changes += 1
        self.wakes += 1
        rank = self.contexts.index(context)
        self.ended_blocks |= 1 << rank
        tensor = self.blocks[rank].tensor
        if tensor is not None:
            tensor.report(self.blocks[rank])
        if len(self.contexts) > 1:
            self.port.end(self.blocks[rank])
            for each in self.contexts:
                each.peers[rank, 1] = 0  # no byte of it is in bounds

    def end(self) -> None:
        """All threads have ended."""
        self.port.end()
        for work in self.unfinished:
            self.time += 1  # it is an event of its own, after all that threads did
            work.finish()
        self.port.over()

    def close(self) -> None:
        """Free everything: the launch has ended."""
        for block in self.blocks:
            block.close()
        vars(self).clear()


def _ordinal(work: Work) -> int:
    return work.ordinal


def _vector(functions: Mapping[int, int] | None) -> NDArray[np.int64]:
    """The functions of an observer, as compiled code finds them."""
    made = zeros(fast.PORT_BYTES >> 3, np.int64)
    for offset, where in (functions or {}).items():
        made[offset >> 3] = where
    return made
