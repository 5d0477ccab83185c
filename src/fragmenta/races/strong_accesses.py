"""Happens-before through words in memory: flags, counters and locks.

A thread that writes to a word after a fence, or by a store or atomic operation with
``.release``, publishes what it knew.  A thread that reads this word by a strong load or
an atomic operation acquires all that was published there.  This is lenient in two ways:
a strong load needs no fence after it, and what was published at a word stays there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from fragmenta.ptx.ordering import Role
from fragmenta.races.global_watch import GlobalWatch, Ledger
from fragmenta.races.order import Clock, covers, joined, knows_lanes
from fragmenta.simt import layout


class Clocks(Protocol):
    """The clocks of one group."""

    def release(self, agent: int, lanes: int) -> Clock:
        """What lanes of a warp know and did until now; a new epoch begins."""

    def acquire(self, agent: int, lanes: int, row: Clock) -> None:
        """Lanes of a warp learn something."""

    def epoch(self, agent: int) -> int:
        """The present epoch of a warp."""

    def row(self, agent: int, lanes: int) -> Clock:
        """What lanes of a warp know, without a new epoch."""


MOST_FENCES = 16
"""Fences of a warp that are remembered: others may know only of an earlier one."""


class _Fence(NamedTuple):
    """What lanes of a warp knew at their last fence."""

    lanes: int
    epoch: int
    row: Clock
    cta: bool


class _Location:
    """What was published at one word."""

    def __init__(self) -> None:
        self.own: dict[int, Clock] = {}
        """By group, for that group itself."""
        self.rows: dict[tuple[int, bool], tuple[int, Clock]] = {}
        """What a group did, by group and whether the scope was the block: the version
        of this word at which that was published last, and all that was."""
        self.version = 0

    def add(self, group: int, row: Clock, cta: bool) -> None:
        """Publish what a group did, unless that is known."""
        _, known = self.rows.get((group, cta), (0, None))
        if known is row:
            return
        if known is not None:
            if covers(known, row):
                return
            row = row if covers(row, known) else joined(known, row)
        self.version += 1
        self.rows[group, cta] = self.version, row

    def others(self, group: int) -> bool:
        """Whether another group was here."""
        return any(each != group for each, _ in self.rows)


class Thread(NamedTuple):
    """Lanes of a warp that execute an instruction."""

    group: int
    agent: int
    lanes: int
    clocks: Clocks
    ledger: Ledger | None = None


class Locations:
    """All words of a launch through which threads synchronise."""

    def __init__(self, watch: GlobalWatch) -> None:
        self._watch = watch
        self._words: dict[tuple[int, int], _Location] = {}
        self._fences: dict[int, dict[int, list[_Fence]]] = {}
        """By group and agent, the latest last."""
        self._seen: dict[tuple[int, int, int, bool], int] = {}
        """The version of a word that a group saw last."""

    def perform(
        self, thread: Thread, what: Role, addresses: Iterable[tuple[int, int]]
    ) -> None:
        """Lanes execute an instruction; ``addresses`` are pairs of lane and address.

        It acquires before it publishes: an atomic operation reads first.
        """
        if what.fence:
            self.fence(thread, what.cta)
            return
        publishes = what.releases or (what.publishes and thread.group in self._fences)
        if not publishes and not self._words:
            return
        lanes: dict[int, int] = {}
        for lane, address in addresses:
            lanes[address] = lanes.get(address, 0) | 1 << lane
        for address, mask in lanes.items():
            some = thread._replace(lanes=mask)
            if what.acquires:
                self.acquire(some, address, what.cta)
            if publishes:
                self.release(some, address, what.releases, what.cta)

    def fence(self, thread: Thread, cta: bool = False) -> None:
        """Lanes execute a fence: what they publish later is what they know now."""
        epoch = thread.clocks.epoch(thread.agent)
        row = thread.clocks.release(thread.agent, thread.lanes)
        fences = self._fences.setdefault(thread.group, {})
        kept = fences.setdefault(thread.agent, [])
        kept.append(_Fence(thread.lanes, epoch, row, cta))
        del kept[:-MOST_FENCES]

    def release(
        self, thread: Thread, address: int, itself: bool = False, cta: bool = False
    ) -> None:
        """Lanes write to a word: ``itself`` with ``.release``, or after a fence."""
        if itself:
            row: Clock | None = thread.clocks.release(thread.agent, thread.lanes)
        else:
            row, cta = self._fenced(thread, cta)
        if row is None:
            return
        place = self._words.setdefault(_key(address, thread.group), _Location())
        known = place.own.get(thread.group)
        place.own[thread.group] = row if known is None else joined(known, row)
        everyone = self._watch.everyone
        if everyone is not None:
            everyone.put(thread.group, row)
            if len(place.rows) < 3:  # they say only that others were here
                place.add(thread.group, row, cta)
            return
        place.add(thread.group, row, cta)
        if self._watch.informed(thread.group):
            # What a group has learned of others is published, too.
            for other, learned in self._watch.foreign(thread.group).rows.items():
                place.add(other, learned, cta)

    def _fenced(self, thread: Thread, cta: bool) -> tuple[Clock | None, bool]:
        """What lanes knew at fences, their own or others that they know of.

        All threads may execute a fence before a barrier, and one of them the atomic
        operation after it.
        """
        fences = self._fences.get(thread.group)
        if fences is None:
            return None, cta
        found: Clock | None = None
        known = thread.clocks.row(thread.agent, thread.lanes)[0]
        narrow = True
        for agent, several in fences.items():
            covered = 0
            for each in reversed(several):  # a later one says at least as much
                if each.lanes & ~covered == 0:
                    continue
                own = agent == thread.agent and each.lanes & thread.lanes
                if own or knows_lanes(known, agent, each.lanes, each.epoch):
                    covered |= each.lanes
                    found = each.row if found is None else joined(found, each.row)
                    narrow = narrow and each.cta
        return found, cta or narrow

    def acquire(self, thread: Thread, address: int, cta: bool = False) -> None:
        """Lanes read a word by a strong access."""
        name = _key(address, thread.group)
        place = self._words.get(name)
        if place is None:
            return
        own = place.own.get(thread.group)
        if own is not None:
            thread.clocks.acquire(thread.agent, thread.lanes, own)
        key = (*name, thread.group, cta)
        seen = self._seen.get(key, 0)
        if seen < place.version:
            self._seen[key] = place.version
            self._learn(thread.group, place, seen, cta)
        if self._watch.informed(thread.group) and thread.ledger is not None:
            foreign = self._watch.foreign(thread.group)
            if place.others(thread.group):
                epoch = thread.clocks.epoch(thread.agent)
                foreign.stamp(thread.agent, epoch, thread.lanes)
            thread.ledger.knows(thread.group, foreign)

    def _learn(self, group: int, place: _Location, seen: int, cta: bool) -> None:
        """A group learns what others have published since it was here."""
        for (other, narrow), (version, row) in place.rows.items():
            # Both must say .cta before it is sure that the scope is too small.
            if other == group or version <= seen or (narrow and cta):
                continue
            foreign = self._watch.foreign(group)
            self._watch.fenced[group] = 0
            if self._watch.everyone is None:
                foreign.put(other, row)


def _key(address: int, group: int) -> tuple[int, int]:
    """A word; shared memory belongs to a group."""
    slot, place = divmod(address, 1 << layout.SLOT_BITS)
    if slot in (0, layout.SHARED_SLOT):
        return group, place & ~3
    return -1, address & ~3
