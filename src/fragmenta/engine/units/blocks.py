"""Blocks and warps while they run, and what each of them has in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.compiled import address_of as address
from fragmenta.engine.simt.compiled import aligned, sparse, zeros
from fragmenta.engine.simt.context import Context
from fragmenta.engine.simt.layout import RANK_BITS, Status
from fragmenta.engine.units.bulk_groups import BulkQueue
from fragmenta.engine.units.events import Event
from fragmenta.engine.units.fast import layout as fast
from fragmenta.engine.units.fast import task_layout as tasks
from fragmenta.engine.units.faults import Stop
from fragmenta.engine.units.findings import Finding
from fragmenta.engine.units.mbarrier_state import Mbarriers
from fragmenta.engine.units.records import Record
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.errors import OutOfBounds
from fragmenta.ptx import rules
from fragmenta.ptx.rules import Rule

if TYPE_CHECKING:
    from fragmenta.engine.units.clusters import Cluster
    from fragmenta.engine.units.copy_groups import CopyGroups
    from fragmenta.engine.units.tcgen05 import IssueQueue as TensorQueue
    from fragmenta.engine.units.tmem_cells import TensorMemory
    from fragmenta.engine.units.tmem_moves import TmemMove
    from fragmenta.engine.units.warpgroups import Warpgroup
    from fragmenta.engine.units.wgmma_forms import Registers
    from fragmenta.engine.units.work import Work


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
        """Whether no lane could go on since :meth:`look`, or may poll what is late."""
        if self.block.cluster.polled:
            return True
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
        self.groups: dict[int, CopyGroups] = {}
        """Groups of ``cp.async``, by warp."""
        self._bulk: dict[int, BulkQueue] = {}
        self._queues = aligned(len(self.warps) * tasks.QUEUES * tasks.QUEUE_RECORD)
        self._lane_groups = aligned(len(self.warps) * tasks.LANES_RECORD)
        self.registers = zeros(len(self.warps) * fast.REGISTERS_BYTES // 4, np.int32)
        """What each warp has asked for by ``setmaxnreg`` (``REGISTERS_...``)."""
        self.moves: dict[tuple[str, int], list[TmemMove]] = {}
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
            (fast.STATE_REGISTERS, address(self.registers)),
            (fast.STATE_THREADS, address(self._threads)),
            (fast.STATE_QUEUES, address(self._queues)),
            (fast.STATE_LANE_QUEUES, address(self._lane_groups)),
        ):
            self.longs[offset >> 3] = number
        self.words[fast.STATE_RANK >> 2] = self.rank
        self.words[fast.STATE_WARPS >> 2] = len(self.warps)
        self.context.point(layout.BLOCK_UNITS, self.address)

    @property
    def lack_of_registers(self) -> NDArray[np.int32]:
        """How many more registers its warps have than at first; then, if above 0."""
        return self.words[fast.STATE_SURPLUS >> 2 : (fast.STATE_SHORT >> 2) + 1]

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

    def renewed(self, resets: ResetSchedule) -> None:
        """Tell what of its memory is renewed when another block begins."""
        resets.clear(self._queues, self._lane_groups, self._threads, self.stores)
        resets.clear(self.registers, self.lack_of_registers)
        resets.clear(self.longs[fast.STATE_TENSOR >> 3 :][:1])
        resets.copy(self.context.peers)
        resets.zero_at_end(self.longs[fast.STATE_TENSOR >> 3 :][:1])
        for each in self.warpgroups.values():
            each.renewed(resets)

    def begin(self) -> None:
        """A new block begins."""
        self.mbarriers.clear()
        self.registers[:] = self.lack_of_registers[:] = 0
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


def _locked(memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
    seen = memory.view()
    seen.flags.writeable = False
    return seen
