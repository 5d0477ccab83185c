"""Groups of bulk copies that no mbarrier counts; they are groups of a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.records import Bytes, Flag, Record, Word

if TYPE_CHECKING:
    from fragmenta.engine.units.clusters import Cluster
    from fragmenta.engine.units.work import Work


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
