"""Copies in flight that machine code issued, as Python sees them.

An :class:`InFlightCopy` is work like any other: it can be finished, and its source can
be read.  Its state is a record of the :class:`TaskPool` of its cluster, where machine
code finds it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.engine.simt.compiled import address_of, aligned, sparse
from fragmenta.engine.units import event_table
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.records import Long, Record, Word
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.engine.units.work import Work

if TYPE_CHECKING:
    from fragmenta.engine.units.clusters import Cluster


class _Routines(NamedTuple):
    """The machine code that finishes tasks, and that reads their sources."""

    finish: Callable[[int, int], int]
    take: Callable[[int, int, int], None]


@once
def _routines() -> _Routines:
    # Tracing takes a while to import.
    from fragmenta.engine.units.fast import tasks

    code, pointer = event_table.code(), ctypes.c_void_p
    return _Routines(
        code.function(tasks.FINISH, pointer, pointer, returns=ctypes.c_int32),
        code.function(tasks.TAKE, pointer, pointer, pointer, returns=None),
    )


class TaskFields(Record):
    """The record of a task."""

    state = Word(at.TASK_STATE)
    kind = Word(at.TASK_KIND)
    flags = Word(at.TASK_FLAGS)
    event = Long(at.TASK_EVENT)
    form = Long(at.TASK_FORM)
    rank = Word(at.TASK_RANK)
    number = Word(at.TASK_NUMBER)
    arrivals = Word(at.TASK_ARRIVALS)
    ordinal = Long(at.TASK_ORDINAL)
    signals = Word(at.TASK_SIGNALS)
    mbarrier = Word(at.TASK_MBARRIER)
    queue = Long(at.TASK_QUEUE)
    group = Word(at.TASK_GROUP)
    lanes = Word(at.TASK_LANES)
    next = Word(at.TASK_NEXT)
    shared = Word(at.TASK_SHARED)
    lines = Word(at.TASK_LINES)
    pitch = Word(at.TASK_PITCH)


UNBLOCK: dict[int, Callable[[Cluster, TaskFields], None]] = {}
"""What Python does with a task that machine code cannot finish, by its kind."""


class TaskPool(Record):
    """The records of the tasks of a cluster, and which of them are in flight."""

    count = Word(at.POOL_COUNT)
    """How many are in flight."""
    _free = Word(at.POOL_FREE)
    _first = Word(at.POOL_FIRST)
    _last = Word(at.POOL_LAST)
    _taken = Word(at.POOL_TAKEN)
    _used = Long(at.POOL_USED)
    _arena = Long(at.POOL_ARENA)
    _blocked = Word(at.POOL_BLOCKED)

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(aligned(at.POOL_TASKS if cluster.alone else at.POOL_BYTES))
        self._cluster, self._owner = cluster.address, cluster
        self._image_memory = sparse(0 if cluster.alone else at.ARENA_BYTES)
        self._records = self.raw[at.POOL_TASKS :].reshape(-1, at.TASK_RECORD)
        self._arena = address_of(self._image_memory)
        self.images: dict[int, NDArray[np.uint8]] = {}
        """Images of tasks for which there was no room, by ordinal."""
        self._empty()

    def _empty(self) -> None:
        words, count = self._records.view(np.int32), len(self._records)
        words[:, at.TASK_STATE >> 2] = at.FREE
        words[:, at.TASK_INDEX >> 2] = np.arange(count)
        words[:, at.TASK_NEXT >> 2] = np.arange(1, count + 1)
        words[-1:, at.TASK_NEXT >> 2] = -1
        self._free, self._first, self._last = 0 if count else -1, -1, -1
        self.count = self._taken = self._used = 0
        self.images.clear()

    def renewed(self, resets: ResetSchedule) -> None:
        """Tell what has to be so at the end: nothing is in flight."""
        resets.zero_at_end(self.words[at.POOL_COUNT >> 2 :][:1])

    def begin(self) -> None:
        """Another cluster begins: nothing is in flight."""
        if self.count:  # the last one failed
            self._empty()

    def _entries(self) -> Iterator[TaskFields]:
        now = self._first
        while now >= 0:
            entry = TaskFields(self._records[now])
            now = entry.next
            yield entry

    def in_flight(self) -> list[InFlightCopy]:
        """All tasks in flight, the oldest first."""
        if not self.count:
            return []
        return [InFlightCopy(self, each) for each in self._entries()]

    def counted(self, rank: int, offset: int) -> list[InFlightCopy]:
        """The tasks that the mbarrier at a place of a block counts."""
        found = self._entries() if self.count else ()
        return [
            InFlightCopy(self, each)
            for each in found
            if each.signals >> rank & 1 and each.mbarrier == offset
        ]

    def grouped(self, queue: int, bound: int) -> list[InFlightCopy]:
        """The tasks of the groups at an address that are in a group before a bound."""
        found = self._entries() if self.count else ()
        return [
            InFlightCopy(self, each)
            for each in found
            if each.queue == queue and each.group < bound
        ]

    def issued(self, thread: int) -> list[InFlightCopy]:
        """Products and commits of a thread, whose record is at this address."""
        found = self._entries() if self.count else ()
        return [
            InFlightCopy(self, each)
            for each in found
            if each.queue == thread or (each.kind == at.COMMIT and each.form == thread)
        ]

    def stores(self, rank: int, warp: int) -> list[InFlightCopy]:
        """Stores of a warp to tensor memory."""
        found = self._entries() if self.count else ()
        return [
            InFlightCopy(self, each)
            for each in found
            if each.kind == at.CELLS and (each.rank, each.number) == (rank, warp)
        ]

    def finish(self, entry: TaskFields) -> None:
        """Do what is left of a task."""
        while _routines().finish(self._cluster, entry.address):
            blocked = TaskFields(self._records[self._blocked])
            UNBLOCK[blocked.kind](self._owner, blocked)
        self.images.pop(entry.ordinal, None)

    def take(self, entry: TaskFields) -> None:
        """Read the source of a task, if that was not done before."""
        size = entry.shared % at.PATTERN + entry.lines * entry.pitch
        made = self.images.setdefault(entry.ordinal, aligned(size))
        _routines().take(self._cluster, entry.address, address_of(made))


class InFlightCopy(Work):
    """A copy in flight that machine code issued."""

    def __init__(self, pool: TaskPool, entry: TaskFields) -> None:
        super().__init__(-1)
        self._pool, self._entry = pool, entry
        self.ordinal, self.group = entry.ordinal, entry.group
        self.lanes = entry.lanes & 0xFFFFFFFF

    @property
    def done(self) -> bool:  # type: ignore[override]
        """Whether it is done."""
        entry = self._entry  # the record may be that of another task now
        return entry.state == at.FREE or entry.ordinal != self.ordinal

    def take(self) -> None:
        """Read the source, if that was not done before."""
        if not self.done and self._entry.state == at.IN_FLIGHT:
            self._pool.take(self._entry)

    def finish(self) -> None:
        """Do all that is left; nothing if it is done."""
        if not self.done:
            self._pool.finish(self._entry)
