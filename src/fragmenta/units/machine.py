"""The machine that runs a launch: clusters, blocks, warps, and work in flight.

A :class:`Machine` belongs to a launch.  Compiled code calls it for every event.  A
cluster of blocks runs together in one thread of the host; a block that is in no cluster
is a cluster of one.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.arrays.once import once_property
from fragmenta.errors import OutOfBounds
from fragmenta.ptx import rules
from fragmenta.ptx.rules import Rule
from fragmenta.simt import layout
from fragmenta.simt.compiled import address_of as address
from fragmenta.simt.compiled import aligned, callback_address, sparse, zeros
from fragmenta.simt.context import Context
from fragmenta.simt.layout import MIXED, RANK_BITS, Fault, Status
from fragmenta.units.barrier_state import Barrier
from fragmenta.units.bulk_groups import BulkQueue
from fragmenta.units.event_table import EventTable
from fragmenta.units.events import Event, first
from fragmenta.units.fast import layout as fast
from fragmenta.units.fast import task_layout as tasks
from fragmenta.units.fast import tensor_layout as tensors
from fragmenta.units.faults import Stop, WrongAddress
from fragmenta.units.findings import Finding
from fragmenta.units.kernel_units import Sized, kernel_units
from fragmenta.units.mbarrier_state import Mbarrier, Mbarriers
from fragmenta.units.observing import Launch, Running, Tracer, Watching
from fragmenta.units.port import Port
from fragmenta.units.records import Flag, Long, Record, Word
from fragmenta.units.renewal import Renewal
from fragmenta.units.schedule import EAGER, LAZY, Given, Schedule
from fragmenta.units.tasks import Pool

if TYPE_CHECKING:
    from fragmenta.units.copy_groups import Queue
    from fragmenta.units.findings import Problems
    from fragmenta.units.tcgen05 import Queue as TensorQueue
    from fragmenta.units.tensor_forms import TensorForms
    from fragmenta.units.tensor_ways import KnownMoves
    from fragmenta.units.tmem_allocation import Request
    from fragmenta.units.tmem_cells import TensorMemory
    from fragmenta.units.tmem_moves import Move
    from fragmenta.units.warpgroups import Warpgroup
    from fragmenta.units.wgmma_forms import Forms, Plan, Registers
    from fragmenta.units.work import Range, Work

EVENT = ctypes.CFUNCTYPE(
    ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32
)


class Thread(NamedTuple):
    """One thread of a block."""

    warp: Warp
    lane: int


class Warp:
    """A warp while it runs."""

    def __init__(self, block: Block, number: int, memory: NDArray[np.uint8]) -> None:
        self.block, self.number, self.memory = block, number, memory
        self.words = memory.view(np.uint32)
        self.address = address(memory)
        self.registers: dict[int, Registers] = {}
        """The registers of loads and stores of tensor memory, by event."""

    @property
    def live(self) -> int:
        """The lanes that have not ended."""
        return int(self.words[layout.LIVE >> 2])

    def tested(self, lanes: int) -> None:
        """Lanes tested an mbarrier without success."""
        self.words[layout.ASKED >> 2] |= np.uint32(lanes)

    def give_way(self) -> None:
        """End the turn of the warp at the next jump back."""
        self.words[layout.BUDGET >> 2] = 0

    @property
    def stuck(self) -> bool:
        """Whether no lane could go on since :meth:`look`."""
        words = self.words
        waiting = words[layout.STUCK >> 2] | words[layout.WAITING >> 2]
        return not self.live & ~int(waiting | words[layout.ASKED >> 2])

    def look(self) -> None:
        """Begin to find out which lanes wait."""
        self.words[layout.ASKED >> 2] = self.words[layout.STUCK >> 2] = 0

    def report(
        self,
        rule: Rule,
        event: Event,
        lanes: int,
        message: str,
        severity: str = "",
        *,
        other: int | None = None,
        repair: str | None = None,
        use: str = "",
        register: str = "",
    ) -> None:
        """Report a problem, and go on."""
        self.block.cluster.touch()
        made = Finding(
            rule,
            event.site,
            message,
            self.block.index,
            self.number,
            lanes,
            severity,
            other,
            repair=repair,
            use=use,
            register=register,
            time=self.block.cluster.time,
        )
        self.block.cluster.machine.problems.put(made)


class Block(Record):
    """A block while it runs."""

    def __init__(self, cluster: Cluster, rank: int, context: Context) -> None:
        super().__init__(aligned(fast.STATE_BYTES))
        self.cluster, self.rank, self.context = cluster, rank, context
        self.shared: NDArray[np.uint8] = context.parts["shared"]
        self._records = sparse(
            0 if cluster.alone else self.shared.size // 8 * fast.MBARRIER_BYTES
        )
        size = context.warp(0).size
        self.warps = [
            Warp(self, number, context.warp(number))
            for number in range(context.parts["warps"].size // size)
        ]
        first_warp = int(context.parts["warps"].ctypes.data)
        self.by_address = {
            first_warp + number * size: warp for number, warp in enumerate(self.warps)
        }
        self.warpgroups: dict[int, Warpgroup] = {}
        self._warpgroup_records = aligned(-(-len(self.warps) // 4) * fast.GROUP_BYTES)
        self.groups: dict[int, Queue] = {}
        """Groups of ``cp.async``, by warp."""
        self._bulk: dict[int, BulkQueue] = {}
        self._queues = aligned(len(self.warps) * tasks.QUEUES * tasks.QUEUE_RECORD)
        self._lane_groups = aligned(len(self.warps) * tasks.LANES_RECORD)
        self.moves: dict[tuple[str, int], list[Move]] = {}
        """Loads (``ld``) and stores (``st``) of tensor memory in flight, by warp."""
        self.queues: dict[tuple[int, int], TensorQueue] = {}
        """What each thread issued to the Tensor Cores, by warp and lane."""
        self.stores = zeros(len(self.warps), np.int32)
        """Python's stores to tensor memory that each warp has not waited for."""
        self._threads = aligned(len(self.warps) * 32 * tasks.QUEUE_RECORD)
        self.tensor: TensorMemory | None = None
        """Its tensor memory, once it has allocated some."""
        self.last_tensor: TensorMemory | None = None
        """That of the last block that has allocated some."""
        self.mbarriers = Mbarriers(self, self._records.size // fast.MBARRIER_BYTES)
        self._write_state()

    def _write_state(self) -> None:
        """Write down where compiled code finds everything."""
        for offset, number in (
            (fast.STATE_CLUSTER, self.cluster.address),
            (fast.STATE_MBARRIERS, address(self._records)),
            (fast.STATE_SHARED, address(self.shared)),
            (fast.STATE_SHARED_SIZE, self.shared.size),
            (fast.STATE_BLOCK, self.context.address),
            (fast.STATE_WARPGROUPS, address(self._warpgroup_records)),
            (fast.STATE_STORES, address(self.stores)),
            (fast.STATE_THREADS, address(self._threads)),
            (fast.STATE_QUEUES, address(self._queues)),
            (fast.STATE_LANE_QUEUES, address(self._lane_groups)),
        ):
            self.longs[offset >> 3] = number
        self.words[fast.STATE_RANK >> 2] = self.rank
        self.words[fast.STATE_WARPS >> 2] = len(self.warps)
        self.context.point(layout.BLOCK_UNITS, self.address)

    @property
    def records_of_mbarriers(self) -> NDArray[np.int32]:
        """The records of all mbarriers, as words."""
        return self._records.view(np.int32)

    def mbarrier_memory(self, offset: int) -> NDArray[np.uint8]:
        """The record of the mbarrier at an offset in shared memory."""
        size = fast.MBARRIER_BYTES
        return self._records[offset // 8 * size :][:size]

    def lane_groups(self, warp: int) -> NDArray[np.uint8]:
        """The record of the groups of ``cp.async`` of a warp."""
        size = tasks.LANES_RECORD
        return self._lane_groups[warp * size :][:size]

    def bulk_queue(self, warp: int, lane: int) -> BulkQueue:
        """The groups of bulk copies of a thread."""
        number = warp * tasks.QUEUES + lane
        if number not in self._bulk:
            size = tasks.QUEUE_RECORD
            memory = self._queues[number * size :][:size]
            self._bulk[number] = BulkQueue(self.cluster, memory)
        return self._bulk[number]

    def thread_memory(self, warp: int, lane: int) -> NDArray[np.uint8]:
        """The record of what a thread issued to the Tensor Cores."""
        size = tasks.QUEUE_RECORD
        return self._threads[(warp * 32 + lane) * size :][:size]

    def warpgroup_memory(self, number: int) -> NDArray[np.uint8]:
        """The record of a warpgroup."""
        size = fast.GROUP_BYTES
        return self._warpgroup_records[number * size :][:size]

    @property
    def started(self) -> list[Work]:
        """The work that machine code has put in flight."""
        return [work for each in self.warpgroups.values() for work in each.unknown]

    @property
    def index(self) -> int:
        """Its number in the grid."""
        return self.context.index

    def renewed(self, renewal: Renewal) -> None:
        """Tell what of its memory is renewed when another block begins."""
        renewal.clear(self._queues, self._lane_groups, self._threads, self.stores)
        renewal.clear(self.longs[fast.STATE_TENSOR >> 3 :][:1])
        renewal.copy(self.context.peers)
        renewal.zero_at_end(self.longs[fast.STATE_TENSOR >> 3 :][:1])
        for each in self.warpgroups.values():
            each.renewed(renewal)

    def begin(self) -> None:
        """A new block begins."""
        self.mbarriers.clear()
        for each in self.warpgroups.values():
            each.reset()
        self._forget_groups()
        self.tensor = None
        self.longs[fast.STATE_TENSOR >> 3] = 0

    def _forget_groups(self) -> None:
        # Work names the queue that it is in: without this it would not be freed.
        for each in (*self.groups.values(), *self.queues.values()):
            vars(each).clear()
        for bulk in self._bulk.values():
            vars(bulk).clear()
        self._bulk.clear()
        self._queues[:] = self._lane_groups[:] = self._threads[:] = 0
        self.stores[:] = 0
        for moves in self.moves.values():
            moves.clear()
        self.groups.clear()
        self.queues.clear()
        self.moves.clear()

    def close(self) -> None:
        """Free everything: the launch has ended."""
        self._forget_groups()
        for warp in self.warps:
            vars(warp).clear()
        vars(self).clear()

    @property
    def ended(self) -> bool:
        """Whether all its threads have ended."""
        return self.context.status == Status.ENDED

    def memory(self, address: int) -> tuple[NDArray[np.uint8], int]:
        """The memory that a generic or global address is in, and the place in it.

        What the kernel must not write is not writeable.
        """
        slot = address >> layout.SLOT_BITS
        offset = address & (1 << layout.SLOT_BITS) - 1
        if slot == layout.SHARED_SLOT:
            rank, place = offset >> RANK_BITS & 0xFF, offset & (1 << RANK_BITS) - 1
            if rank < len(self.cluster.blocks):
                return self.cluster.blocks[rank].shared, place
        if slot == layout.PARAM_SLOT:
            return _locked(self.cluster.machine.launch.parameters), offset
        segment = self.cluster.machine.segments.get(slot)
        if segment is not None and offset < segment.data.size:
            data = segment.data
            return data if segment.writable else _locked(data), offset
        raise OutOfBounds(f"the address {address:#x} is in no array")

    def slack(self, address: int, size: int) -> int:
        """How many of some bytes are past the end of an argument, in its granule.

        0 if they are not all there, or if the launch does not go on after that.
        """
        slot = address >> layout.SLOT_BITS
        segment = self.cluster.machine.segments.get(slot)
        argument = layout.FIRST_ARGUMENT <= slot < layout.FIRST_VARIABLE
        if not self.cluster.machine.goes_on or segment is None or not argument:
            return 0
        most, last = segment.data.size, (address & (1 << layout.SLOT_BITS) - 1) + size
        inside = last <= -(-most // layout.GRANULE) * layout.GRANULE
        return max(0, min(size, last - most)) if inside else 0

    def owner(self, address: int, event: Event, warp: Warp, lanes: int) -> Block:
        """The block in whose shared memory an address is."""
        rank = address >> RANK_BITS & 0xFF
        blocks = self.cluster.blocks
        if address >> 32 or rank >= len(blocks):
            raise Stop(
                rules.MBARRIER,
                event.site,
                warp,
                lanes,
                f"{event.mnemonic} names shared {address:#x}, which is in no block of "
                f"the cluster of {len(blocks)}",
            )
        found = blocks[rank]
        if found.ended:
            raise Stop(
                rules.SHARED_RACE,
                event.site,
                warp,
                lanes,
                f"{event.mnemonic} reaches into the shared memory of block {rank} of "
                "the cluster, whose threads have all ended",
            )
        return found


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
    ended_blocks = Word(fast.CLUSTER_ENDED)
    """The blocks that have ended, by rank."""
    number = Long(fast.CLUSTER_NUMBER)
    """Which cluster of the grid it is."""
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
        self.barrier = Barrier(len(contexts))
        self.requests: dict[int, Request] = {}
        """Requests for tensor memory of both blocks of a pair, by rank."""
        if alone:
            self.number = -1
        self._trying = False
        """Whether a fast path tries again."""
        self.port = machine.port(self)
        self.pool = Pool(self)
        self._write_state()

    def _write_state(self) -> None:
        """Write down where compiled code finds everything."""
        machine, functions = self.machine, self.port.functions
        kinds = {EAGER: fast.EAGER, LAZY: fast.LAZY}
        schedule = kinds.get(str(self.schedule.work), fast.RANDOM)
        self.words[fast.CLUSTER_SCHEDULE >> 2] = schedule
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

    def renewal(self) -> Renewal | None:
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
        made, unattended = Renewal(self), self.port.unattended
        if unattended is None or not unattended.renewed(made):
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
            if self.port.unattended is not None:
                self.port.unattended.enter()

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
        left = self.unfinished
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
            work.finish()
        self.port.over()

    def close(self) -> None:
        """Free everything: the launch has ended."""
        for block in self.blocks:
            block.close()
        vars(self).clear()


class Prepared(NamedTuple):
    """What a launch knows of products when it begins."""

    warpgroups: tuple[tuple[int, int], ...]
    """The warpgroups that issue some: rank, and number."""
    plan: Plan
    """Where they have the forms."""


class Local(threading.local):
    """What runs in each thread."""

    runner: Running | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster that runs in this thread."""
        assert self.runner is not None
        found = self.runner.cluster
        assert found is not None
        return found


class Machine:
    """Carries out the events of a launch, which compiled code raises."""

    fast = True
    """Whether fast paths carry out what they can."""

    def __init__(
        self, launch: Launch, schedule: Given, problems: Problems, strict: bool
    ) -> None:
        self.launch, self.strict = launch, strict
        self.goes_on = False
        """Whether it goes on after a mistake that hardware survives."""
        self.schedule = Schedule(schedule)
        self.grants = 0
        """How many requests for clusters that have not begun are granted."""
        self.begun = 0
        """The first cluster that has not begun."""
        self.cancelled = 0
        """How many clusters, the last of the grid, are not begun."""
        self.problems = problems
        self.kernel = kernel_units(launch.compiled)
        self.events = self.kernel.events
        self.maps = self.kernel.maps
        self._table: EventTable | None = None
        self._prepared: Prepared | None = None
        self.local = Local()
        """What runs in this thread."""
        self.blocks: dict[int, Block] = {}
        self.parted: dict[tuple[str, int, str, int], bool] = {}
        """Whether lanes at the second place have passed the first one by."""
        self.segments = {each.slot: each for each in launch.places}
        self._function = EVENT(self._call)
        self.address = callback_address(self._function)
        self.errors: dict[int, BaseException] = {}
        """The errors, by the address of the block."""
        self.watching: Watching | None = None
        """What observes the launch, if anything does."""
        self.tracer: Tracer | None = None
        """What records its steps, if anything does."""
        self.notes: dict[int, NDArray[np.uint8]] = {}
        """How each byte of global memory was written, by slot, if that is noted."""

    def grant(self) -> tuple[int, int, int] | None:
        """Cancel a cluster: the index of its first block; None: it is refused."""
        shape = self.launch.shape
        last = shape.blocks // shape.cluster_blocks - self.cancelled - 1
        if not self.grants or last < self.begun:
            return None
        self.grants -= 1
        self.cancelled += 1
        return shape.block_at(shape.members(last)[0])

    def gone(self, cluster: int) -> bool:
        """Whether a cluster was cancelled."""
        shape = self.launch.shape
        return cluster >= shape.blocks // shape.cluster_blocks - self.cancelled

    @property
    def asynchronous(self) -> bool:
        """Whether there is asynchronous work."""
        return self.kernel.asynchronous

    @once_property
    def _sized(self) -> Sized:
        shared = self.launch.compiled.shared + self.launch.dynamic
        return self.kernel.sized(self.launch.target, shared)

    def event_table(
        self, observed: Collection[int] | None, traced: bool = False
    ) -> EventTable:
        """The events in memory, as fast paths read them."""
        self._table = self._sized.table(observed, traced)
        return self._table

    @property
    def present_table(self) -> EventTable | None:
        """The events in memory, if fast paths are used."""
        return self._table

    @property
    def tensor(self) -> bool:
        """Whether the kernel uses tensor memory."""
        return self.kernel.tensor

    @property
    def forms(self) -> Forms:
        """The forms of the products of ``wgmma``."""
        return self._sized.forms

    @property
    def tensor_forms(self) -> TensorForms:
        """The forms of the products of ``tcgen05``."""
        return self._sized.tensor_forms

    @property
    def tensor_moves(self) -> KnownMoves:
        """The loads and stores of tensor memory."""
        return self._sized.tensor_moves

    @property
    def warpgroups(self) -> set[tuple[int, int]]:
        """The warpgroups that issue products in any launch: rank, and number."""
        return self._sized.warpgroups

    def prepare(self) -> Prepared:
        """What is known of products; it stays as it is for the whole launch."""
        with self._sized.lock:
            if self._prepared is None:
                known = tuple(sorted(self.warpgroups))
                self._prepared = Prepared(known, self.forms.plan)
            return self._prepared

    @property
    def settled(self) -> bool:
        """Whether clusters ran without Python in a launch like this one."""
        return (self.watching is None) in self._sized.settled

    def settle(self) -> None:
        """Note that clusters have run without Python."""
        self._sized.settled.add(self.watching is None)

    @property
    def prepared(self) -> Prepared | None:
        """The same, if it was asked for before."""
        return self._prepared

    def know_form(self, event: Event, form: int) -> None:
        """Let fast paths find the form of an event."""
        self._sized.know_form(event, form)

    def note(self, ranges: Iterable[Range], kind: int) -> None:
        """Note how bytes of global memory are written, as compiled code does."""
        for each in ranges if self.notes else ():
            for start in each.starts.tolist():
                offset = start & (1 << layout.SLOT_BITS) - 1
                notes = self.notes.get(start >> layout.SLOT_BITS)
                if notes is not None and each.space == "global":
                    part = notes[offset : offset + each.size]
                    part[:] = np.where((part == 0) | (part == kind), kind, MIXED)

    def port(self, cluster: Cluster) -> Port:
        """The observer of a cluster."""
        made = Port() if self.watching is None else self.watching.observer(cluster)
        return made if self.tracer is None else self.tracer.listen(cluster, made)

    def close(self) -> None:
        """Free everything: the launch has ended."""
        if self.watching is not None:
            self.watching.close()
        for cluster in {
            id(each.cluster): each.cluster for each in self.blocks.values()
        }.values():
            cluster.close()
        vars(self).clear()

    def _call(self, block: int, warp: int, number: int, lanes: int) -> int:
        here = self.blocks.get(block)
        if here is None:  # it is a copy: until now, machine code was enough
            here = self.local.cluster.blocks_by_address[block]
        try:
            here.cluster.touch()
            return here.cluster.event(here, warp, number, lanes)
        except BaseException as error:  # an interrupt, too: compiled code drops it
            self.failed(error, here.by_address[warp], self.events[number].site, lanes)
            return 0

    def failed(self, error: BaseException, warp: Warp, site: int, lanes: int) -> None:
        """Keep an error of Python that compiled code has called for a warp."""
        words, kind = warp.words, Fault.EVENT
        if isinstance(error, WrongAddress):
            kind = error.kind
            words[layout.FAULT_SIZE >> 2] = error.size & 0xFFFFFFFF
            wide = words.view(np.uint64)
            wide[layout.FAULT_ADDRESS >> 3] = error.address & (1 << 64) - 1
        else:
            self.errors[warp.block.context.address] = error
        site = getattr(error, "site", site)
        _note(words, kind, site, getattr(error, "lanes", 0) or lanes)

    def fail(self, stop: Stop) -> None:
        """End the kernel because work in flight failed while no warp had its turn."""
        context = stop.warp.block.context
        self.errors[context.address] = stop
        _note(stop.warp.words, Fault.EVENT, stop.site, stop.lanes or 1)
        context.fail(stop.warp.number)


def _note(words: NDArray[np.uint32], kind: Fault, site: int, lanes: int) -> None:
    """Write into the memory of a warp why it cannot go on."""
    words[layout.STATUS >> 2] = Status.FAULT
    words[layout.FAULT_KIND >> 2] = kind
    words[layout.FAULT_ID >> 2] = site
    words[layout.FAULT_LANE >> 2] = first(lanes)


def _ordinal(work: Work) -> int:
    return work.ordinal


def _vector(functions: Mapping[int, int] | None) -> NDArray[np.int64]:
    """The functions of an observer, as compiled code finds them."""
    made = zeros(fast.PORT_BYTES >> 3, np.int64)
    for offset, where in (functions or {}).items():
        made[offset >> 3] = where
    return made


def _locked(memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
    seen = memory.view()
    seen.flags.writeable = False
    return seen
