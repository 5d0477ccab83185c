"""Arrivals that wait for ``cp.async``, and the groups of these.

They are groups of the threads of a warp.
"""

from __future__ import annotations

from collections.abc import Sequence

from fragmenta.engine.units.blocks import Thread, Warp
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.mbarrier_state import Mbarrier
from fragmenta.engine.units.records import Flag, Record, Word
from fragmenta.engine.units.tasks import InFlightCopy, TaskPool
from fragmenta.engine.units.work import Work, done_at_once
from fragmenta.ptx.effects import effect


class Arrival(Work):
    """An arrival at an mbarrier once the work before it is done."""

    effect = effect("cp.async.mbarrier.arrive")
    (follows,) = effect.after

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
        self.mbarrier, self.arrivals, self.before = mbarrier, count, before
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
        self.mbarrier.arrive(self.arrivals, self.thread.warp)


class LaneGroups(Record):
    """The groups of a warp, as machine code keeps them."""

    there = Flag(at.QUEUE_THERE)
    """Whether there was a copy or a group."""
    groups = Word(at.QUEUE_EPOCH)
    """How many are closed."""
    first = Word(at.QUEUE_WAITED)
    """The first that was not waited for."""
    taken = Flag(at.QUEUE_WORK)
    """Whether Python keeps them."""
    epoch = Word(at.LANES_MARKS)
    began = Word(at.LANES_BEGAN)
    unwaited = Word(at.LANES_UNWAITED)
    issued = Word(at.LANES_ISSUED)
    _mask = Word(at.LANES_MASK)
    _open = Word(at.LANES_OPEN)
    _site = Word(at.LANES_SITE)

    @property
    def site(self) -> int:
        """The instruction of the last copy; -1 if there was none."""
        return self._site - 1

    @property
    def mask(self) -> int:
        """The lanes that close them."""
        return self._mask & 0xFFFFFFFF

    @property
    def open(self) -> int:
        """The lanes with copies in the open group."""
        return self._open & 0xFFFFFFFF

    def began_in(self, group: int) -> int:
        """The epoch in which a group began; 0 if that is too long ago."""
        if group < self.groups - at.GROUPS:
            return 0
        return int(self.words[(at.LANES_BEGUN >> 2) + group % at.GROUPS])

    def copies_before(self, group: int) -> int:
        """How many copies there were before a group; 0 if that is too long ago."""
        if group <= max(self.groups - at.GROUPS, 0):
            return 0
        return int(self.words[(at.LANES_ENDS >> 2) + (group - 1) % at.GROUPS])

    def copies_of(self, group: int, left: Sequence[InFlightCopy]) -> list[Work]:
        """The copies of a group; ``left`` are all that are not done."""
        last = group == self.groups
        end = self.issued if last else self.copies_before(group + 1)
        here: list[Work] = [each for each in left if each.group == group]
        done = end - self.copies_before(group) - len(here)
        return here + [done_at_once(self.site) for _ in range(done)]


class CopyGroups:
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

    def take_over(self, record: LaneGroups, pool: TaskPool) -> None:
        """Keep the groups that machine code kept so far."""
        taken, record.taken = record.taken, True
        if taken or not record.there:
            return
        tasks = pool.grouped(record.address, record.groups + 1)
        lanes = record.open
        for each in record.copies_of(record.groups, tasks):
            self.open.append(
                (each.lanes if isinstance(each, InFlightCopy) else lanes, each)
            )
        for group in range(record.first, record.groups):
            some = record.copies_of(group, tasks)
            self.closed.append((record.began_in(group), record.mask, some))
        self.epoch, self.began = record.epoch, record.began
        self.unwaited, self.last_site = record.unwaited, record.site

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
        keep = mine[max(len(mine) - left, 0) :]
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


def copy_epoch(warp: Warp) -> int:
    """The epoch of the ``cp.async`` of a warp, whoever keeps their groups."""
    kept = warp.block.groups.get(warp.number)
    return (kept or LaneGroups(warp.block.lane_groups(warp.number))).epoch
