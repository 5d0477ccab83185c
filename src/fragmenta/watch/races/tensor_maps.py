"""The race detector of tensor maps that a kernel changes.

A map that a kernel changes is written through the generic proxy and read through the
tensormap proxy.  The writer has to release it and the user to acquire it, by
``tensormap.cp_fenceproxy`` or ``fence.proxy.tensormap``; and a map must not be changed
while a copy may still read it.  A map that ordinary stores or copies write is read like
other global memory: the shadow of global memory knows who wrote it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.compiled import address_of, aligned, zeros
from fragmenta.engine.simt.layout import FIRST_ARGUMENT, SHARED_SLOT, SLOT_BITS
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, first
from fragmenta.engine.units.port import Step
from fragmenta.engine.units.records import Bytes, Flag, Long, Record, Word
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.engine.units.work import Range, Transfer
from fragmenta.ptx import rules
from fragmenta.watch.races.global_watch import Who
from fragmenta.watch.races.map_history import ACQUIRE, WAIT_FOR_COPY
from fragmenta.watch.races.order import Clock, knows, knows_all
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.global_records import Flags

if TYPE_CHECKING:
    from fragmenta.watch.races.observer import Observer

_MAPS, _USERS = 8, 16
"""For how many maps, and copies that use each of them, there is memory at first."""
_USER = layout.USER_BYTES // 4


class _Map(Record):
    """A map that the kernel has changed."""

    place = Long(layout.CHANGED_ADDRESS)
    agent = Word(layout.CHANGED_AGENT)
    lane = Word(layout.CHANGED_LANE)
    epoch = Word(layout.CHANGED_EPOCH)
    site = Word(layout.CHANGED_SITE)
    acquired = Flag(layout.CHANGED_ACQUIRED)
    count = Word(layout.CHANGED_USERS)

    def __init__(self, memory: Bytes, users: NDArray[np.int32]) -> None:
        super().__init__(memory)
        self._users = users

    def change(self, *who: int) -> None:
        """It is changed: by an agent, its lane, in an epoch, at a site."""
        self.agent, self.lane, self.epoch, self.site = who
        self.acquired, self.count = False, 0

    @property
    def users(self) -> list[tuple[int, int, int]]:
        """Copies that read it: agent, epoch, site."""
        return [(a, b, c) for a, b, c in self._users[: self.count].tolist()]

    @property
    def full(self) -> bool:
        """Whether there is no memory for another copy."""
        return self.count == len(self._users)

    def use(self, *who: int) -> None:
        """A copy reads it: its agent, epoch and site."""
        self._users[self.count] = who
        self.count += 1


class Maps:
    """The tensor maps of a cluster that the kernel has changed.

    They are in memory, because compiled code changes and uses maps, too:
    :mod:`fragmenta.watch.races.shadow.changed_maps`.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._record = Record(aligned(layout.MAPS_FIRST))
        self._users = np.zeros((0, 0, _USER), np.int32)
        self._give_room(_MAPS, _USERS)

    def _give_room(self, maps: int, users: int) -> None:
        """Have memory for so many maps and users of each; what is there stays."""
        memory = aligned(layout.MAPS_FIRST + maps * layout.CHANGED_BYTES)
        memory[: self._record.raw.size] = self._record.raw
        noted = zeros((maps, users, _USER), np.int32)
        noted[: self._users.shape[0], : self._users.shape[1]] = self._users
        self._record, self._users = Record(memory), noted
        self._record.words[layout.MAPS_ROOM >> 2] = maps
        every = self._entries
        every.view(np.int32)[:, layout.CHANGED_ROOM >> 2] = users
        where = address_of(noted) + np.arange(maps) * noted.strides[0]
        every.view(np.int64)[:, layout.CHANGED_LIST >> 3] = where
        for block in self.observer.cluster.blocks:
            head = self.observer.order.head(block.rank, np.int64)
            head[layout.HEAD_MAPS // 8] = self._record.address

    @property
    def _entries(self) -> NDArray[np.uint8]:
        first = self._record.raw[layout.MAPS_FIRST :]
        return first.reshape(-1, layout.CHANGED_BYTES)

    def _map(self, number: int) -> _Map:
        return _Map(self._entries[number], self._users[number])

    @property
    def _count(self) -> int:
        return int(self._record.words[layout.MAPS_COUNT >> 2])

    @_count.setter
    def _count(self, count: int) -> None:
        self._record.words[layout.MAPS_COUNT >> 2] = count

    @property
    def all(self) -> list[tuple[object, ...]]:
        """All that is known: who changed each map, and which copies use it."""
        every = map(self._map, range(self._count))
        return [
            (e.place, e.agent, e.lane, e.epoch, e.site, e.acquired, e.users)
            for e in every
        ]

    def begin(self) -> None:
        """A new cluster begins."""
        self._count = 0
        self._record.words[layout.MAPS_ACQUIRED >> 2] = 0

    def renewed(self, resets: ResetSchedule) -> None:
        """Tell what :meth:`begin` does, and that no map was changed at the end."""
        words = self._record.words
        count = words[layout.MAPS_COUNT >> 2 :][:1]
        resets.clear(count, words[layout.MAPS_ACQUIRED >> 2 :][:1])
        resets.zero_at_end(count)

    def end(self) -> None:
        """The cluster has ended: later launches are to know which maps it changed."""
        history = self.observer.launch_watch.maps
        for each in map(self._map, range(self._count)):
            history.change(each.place)
            if each.count:
                history.acquired(each.place)

    def _find(self, address: int) -> _Map | None:
        """The map at an address, if it was changed."""
        there = self._entries[: self._count].view(np.int64)
        found = np.flatnonzero(there[:, layout.CHANGED_ADDRESS >> 3] == address)
        return self._map(int(found[0])) if found.size else None

    def changed(self, warp: Warp, event: Event, lanes: int, address: int) -> None:
        """A thread changes a map, or writes a whole one."""
        if address >> SLOT_BITS in (0, SHARED_SLOT):  # shared memory: only prepared
            return
        order, block = self.observer.order, warp.block
        agent = order.agent("warp", block.rank, warp.number)
        epoch = order.epoch(block.rank, warp.number)
        found = self._find(address)
        if found is not None:
            self._check_users(found, warp, event, lanes)
        else:
            if self._count == len(self._entries):
                self._give_room(2 * self._count, self._users.shape[1])
            found = self._map(self._count)
            found.place = address
            self._count += 1
        found.change(agent, first(lanes), epoch, event.site)

    def _check_users(self, old: _Map, warp: Warp, event: Event, lanes: int) -> None:
        clock = self.observer.row(warp, lanes)
        for agent, epoch, site in old.users:
            if not knows_all(clock[0], agent, epoch):
                warp.report(
                    rules.OVERWRITE_WHILE_READ,
                    event,
                    lanes,
                    "a tensor map is changed while a copy that was issued with it may "
                    "still read it",
                    other=site,
                    repair=WAIT_FOR_COPY,
                )
                return

    def fence(self, warp: Warp, event: Event, lanes: int) -> None:
        """``fence.proxy.tensormap``: an acquire counts; a release changes nothing."""
        if "acquire" not in event.words:
            return
        self._record.words[layout.MAPS_ACQUIRED >> 2] = 1
        address = event.operands[0].value(warp, first(lanes))
        found = self._find(address)
        if found is not None:
            found.acquired = True

    def used(self, step: Step, copy: Transfer, where: Range, clock: Clock) -> None:
        """A copy uses the map that is in some bytes."""
        warp, event, lanes = step
        found = self._find(int(where.starts[0]))
        if found is None:
            self._read(step, copy, where, clock)
            return
        own = self.observer.order.agent("warp", warp.block.rank, warp.number)
        ordered = knows(clock[0], found.agent, found.lane, found.epoch)
        if not (ordered or (own == found.agent and lanes >> found.lane & 1)):
            self._report(step, found.site, "nothing orders the two")
        elif not found.acquired:
            why = "no fence.proxy.tensormap::generic.acquire is in between"
            self._report(step, found.site, why)
        agent, epoch = self._reader(copy, warp)
        if found.full:
            self._give_room(len(self._entries), 2 * found.count)
            found = self._find(found.place)
            assert found is not None
        found.use(agent, epoch, event.site)

    def _read(self, step: Step, copy: Transfer, where: Range, clock: Clock) -> None:
        """A copy reads a map that no instruction for maps has changed.

        The map may be in memory that threads store to, or other copies.
        """
        address, memory = int(where.starts[0]), self.observer.launch_watch.memory
        if address >> SLOT_BITS < FIRST_ARGUMENT:  # parameters do not change
            return
        warp, event, _ = step
        agent, epoch = self._reader(copy, warp)
        group, lane = self.observer.cluster.number, copy.thread.lane
        who = Who(event.site, group, agent, lane, epoch, Flags(0))
        known = partial(knows, clock[0])
        writer = memory.written(address, where.size)
        memory.touch_rows(who, where.starts, where.size, known)
        history = self.observer.launch_watch.maps
        if self._record.words[layout.MAPS_ACQUIRED >> 2]:
            history.acquired(address)
        elif writer is None:
            said = history.use(address)
            if said:
                step.warp.report(
                    rules.MISSING_PROXY_FENCE, event, step.lanes, said, repair=ACQUIRE
                )
        elif memory.ordered(who, writer, known):
            why = "no fence.proxy.tensormap::generic.acquire is in between"
            self._report(step, writer.site, why)

    def _reader(self, copy: Transfer, warp: Warp) -> tuple[int, int]:
        """The agent and the epoch of the read of a map."""
        order = self.observer.order
        if copy.mbarriers:
            mbarrier = copy.mbarriers[0]
            return mbarrier.agent, mbarrier.phase
        queue = warp.block.bulk_queue(warp.number, copy.thread.lane)
        return order.agent("bulk-read", warp.block.rank, warp.number), queue.epoch

    def _report(self, step: Step, site: int, why: str) -> None:
        step.warp.report(
            rules.MISSING_PROXY_FENCE,
            step.event,
            step.lanes,
            f"a copy uses a tensor map that the kernel has changed, and {why}",
            other=site,
            repair=ACQUIRE if "acquire" in why else None,
        )
