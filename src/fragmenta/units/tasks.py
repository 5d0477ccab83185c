"""Which copies are under way, and what has to happen before they count as done?

A :class:`Task` is a copy from its issue until it has been written and its mbarriers
know.  Copies that no mbarrier counts are in groups: of a thread for bulk copies, of
the threads of a warp for ``cp.async``.
"""

from __future__ import annotations

from typing import Any

from fragmenta.units.mbarriers import Mbarrier


class Task:
    """A copy that was issued."""

    def __init__(self, cluster: Any, copy: Any, mbarriers: list[Mbarrier]) -> None:
        self.cluster, self.copy, self.mbarriers = cluster, copy, mbarriers
        self.was_read = self.done = False
        self.number = -1
        """Its number among what was noted."""
        self.repeats = False
        """Whether another lane issued the same copy with the same instruction."""
        for each in mbarriers:
            each.work.append(self)

    def poison(self) -> None:
        """Make it visible that the bytes are not there yet."""
        self.copy.poison()

    def read(self) -> None:
        """Take the source, if that was not done before."""
        if not self.was_read:
            self.was_read = True
            self.copy.read()

    def finish(self) -> None:
        """Read, write, and tell the mbarriers."""
        if self.done:
            return
        self.read()
        self.done = True
        self.cluster.watch.finished(self)
        self.copy.write()
        if self in self.cluster.pending:
            self.cluster.pending.remove(self)
        for each in self.mbarriers:
            each.work.remove(self)
            self.cluster.watch.complete(self, each)
            each.expect(-self.copy.bytes)
            each.settle()
        self.cluster.changes += 1


class Arrival:
    """An arrival at an mbarrier once the ``cp.async`` before it are done."""

    def __init__(
        self, cluster: Any, mbarrier: Mbarrier, count: int, before: list[Any]
    ) -> None:
        self.cluster, self.mbarrier, self.count = cluster, mbarrier, count
        self.before, self.done = before, False
        mbarrier.work.append(self)

    def poison(self) -> None:
        """Nothing is written."""

    def finish(self) -> None:
        """Finish the copies, and arrive."""
        if self.done:
            return
        self.done = True
        for each in self.before:
            each.finish()
        if self in self.cluster.pending:
            self.cluster.pending.remove(self)
        self.mbarrier.work.remove(self)
        self.arriving()
        self.mbarrier.arrive(self.count)
        self.cluster.changes += 1

    def arriving(self) -> None:
        """It is about to arrive."""


class Done:
    """Copies that compiled code made when they were issued."""

    done = True

    def __init__(self, site: int) -> None:
        self.site = site

    @property
    def copy(self) -> Done:
        """It stands for the copies, too."""
        return self

    def read(self) -> None:
        """Nothing is left to be done."""

    def finish(self) -> None:
        """Nothing is left to be done."""


class Queue:
    """Copies of one thread, or of the threads of a warp, and their groups.

    Epochs number the copies for the watching: a new one begins with every group.
    """

    def __init__(self) -> None:
        self.open: list[tuple[int, Any]] = []
        """Copies that are in no group yet, and the lanes that issued them."""
        self.closed: list[tuple[int, int, list[Any]]] = []
        """Groups: the epoch in which they began, the lanes, the copies."""
        self.epoch = self.began = 0
        self.unwaited = 0
        """Copies that no lane has waited for."""
        self.last_site = -1

    def add(self, lanes: int, task: Any) -> None:
        """A copy was issued."""
        self.open.append((lanes, task))
        self.unwaited += 1
        self.last_site = task.copy.site

    def commit(self, lanes: int) -> None:
        """Some lanes close a group."""
        chosen = [task for who, task in self.open if who & lanes]
        self.open = [each for each in self.open if each[0] & ~lanes]
        self.closed.append((self.began, lanes, chosen))
        self.mark()
        if not self.open:
            self.began = self.epoch

    def mark(self) -> None:
        """A new epoch begins."""
        self.epoch += 1

    def waited(self, lanes: int, left: int) -> tuple[list[Any], int]:
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

    def unfinished(self) -> list[Any]:
        """Copies that are not done, in a group or not."""
        every = [task for _, _, tasks in self.closed for task in tasks]
        return [t for t in (*every, *(t for _, t in self.open)) if not t.done]
