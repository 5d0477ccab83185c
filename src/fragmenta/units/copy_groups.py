"""Arrivals that wait for copies, and the groups of copies that no mbarrier counts.

Bulk copies are in groups of a thread, ``cp.async`` in groups of the threads of a warp.
"""

from __future__ import annotations

from collections.abc import Sequence

from fragmenta.ptx.effects import effect
from fragmenta.units.fast import task_layout as at
from fragmenta.units.machine import Cluster, Thread
from fragmenta.units.mbarriers import Mbarrier
from fragmenta.units.records import Bytes, Flag, Record, Word
from fragmenta.units.work import Work


class Arrival(Work):
    """An arrival at an mbarrier once the work before it is done."""

    effect = effect("cp.async.mbarrier.arrive")

    def __init__(
        self,
        site: int,
        thread: Thread,
        mbarrier: Mbarrier,
        count: int,
        before: Sequence[Work],
    ) -> None:
        super().__init__(site)
        self.thread = thread
        self.mbarrier, self.count, self.before = mbarrier, count, before
        self.mbarriers = (mbarrier,)
        mbarrier.count(self)

    def finish_before(self) -> None:
        """Finish the work that it waits for."""
        for each in self.before:
            each.finish()

    def signal(self) -> None:
        """Arrive."""
        self.mbarrier.discount(self)
        self.cluster.port.signal(self, self.mbarrier)
        self.mbarrier.arrive(self.count)


class BulkQueue(Record):
    """The bulk copies of one thread, and their groups.

    Each group is an epoch.  Copies that machine code issued are in the pool of the
    cluster; only Python's own are kept here.
    """

    there = Flag(at.QUEUE_THERE)
    """Whether a copy was issued."""
    epoch = Word(at.QUEUE_EPOCH)
    _first = Word(at.QUEUE_WAITED)
    _counted = Word(at.QUEUE_WORK)

    def __init__(self, cluster: Cluster, memory: Bytes) -> None:
        super().__init__(memory)
        self.cluster = cluster
        self.work: list[tuple[int, Work]] = []
        """Copies that were not waited for, and the group of each."""

    def add(self, work: Work) -> None:
        """Add a copy to the group that is open."""
        self.there = True
        self._keep([*self.work, (self.epoch, work)])

    def _keep(self, work: list[tuple[int, Work]]) -> None:
        self.work = work
        self._counted = len(work)

    def commit(self) -> None:
        """Close the group."""
        self.epoch += 1

    def waited(self, left: int, read: bool) -> tuple[list[Work], int]:
        """The copies that the thread waits for, if the newest groups are left out.

        Also the first epoch that it does not wait for.  If it only waits until the
        sources are read, it may wait again for the rest.
        """
        bound = max(self._first, self.epoch - left) if left else self.epoch
        found: list[Work] = [task for group, task in self.work if group < bound]
        found += self.cluster.pool.grouped(self.address, bound)
        if not read:
            self._first = bound
            self._keep([each for each in self.work if each[0] >= bound])
        return sorted(found, key=lambda each: each.ordinal), bound


class Queue:
    """``cp.async`` of the threads of a warp, and their groups.

    Epochs number the copies for the observer: a new one begins with every group.
    """

    def __init__(self) -> None:
        self.open: list[tuple[int, Work]] = []
        """Copies that are in no group yet, and the lanes that issued them."""
        self.closed: list[tuple[int, int, list[Work]]] = []
        """Groups: the epoch in which they began, the lanes, the copies."""
        self.epoch = self.began = 0
        self.unwaited = 0
        """Copies that no lane has waited for."""
        self.last_site = -1

    def add(self, lanes: int, task: Work) -> None:
        """Add a copy that lanes have issued."""
        self.open.append((lanes, task))
        self.unwaited += 1
        self.last_site = task.site

    def commit(self, lanes: int) -> None:
        """Close the group of some lanes."""
        chosen = [task for who, task in self.open if who & lanes]
        self.open = [each for each in self.open if each[0] & ~lanes]
        self.closed.append((self.began, lanes, chosen))
        self.mark()
        if not self.open:
            self.began = self.epoch

    def mark(self) -> None:
        """Begin a new epoch."""
        self.epoch += 1

    def waited(self, lanes: int, left: int) -> tuple[list[Work], int]:
        """The copies that lanes wait for, if the newest groups are left out.

        Also the first epoch that they do not wait for.
        """
        mine = [each for each in self.closed if each[1] & lanes]
        keep = mine[len(mine) - left :] if left else []
        done = mine[: len(mine) - len(keep)]
        found = [task for _, _, tasks in done for task in tasks]
        bound = keep[0][0] if keep else self.began
        self.closed = [each for each in self.closed if each not in done]
        self.unwaited -= len(found)
        return found, bound

    def unfinished(self) -> list[Work]:
        """Copies that are not done, in a group or not."""
        every = [task for _, _, tasks in self.closed for task in tasks]
        return [t for t in (*every, *(t for _, t in self.open)) if not t.done]
