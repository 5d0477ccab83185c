"""Happens-before through words in memory: flags, counters and locks.

A thread that writes to a word after a fence, or by a store or atomic operation with
``.release``, publishes what it knew.  A thread that reads this word acquires it, if the
scopes of both include the other's thread.  A strong store without any of this ends what
was published there: who reads its value observes nothing earlier.

It is lenient in two ways.  A fence of another thread counts that happened before, for
example before a barrier.  A relaxed read needs a fence after it only in its own thread:
threads behind a barrier know what it has read, and so do those of its own cluster.
With ``strict``, they do so only of their own cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from fragmenta.engine.simt import layout
from fragmenta.ptx.ordering import Role, Scope
from fragmenta.watch.races.global_watch import GlobalWatch, Ledger
from fragmenta.watch.races.order import Clock, Plane, covers, joined, knows_lanes
from fragmenta.watch.races.report.problem_context import Narrow


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


_SCOPES = tuple(Scope)
MOST_PUBLISHED = 1024
"""What is remembered of lanes that write again and again."""
MOST_FENCES = 16
"""Fences of a warp that are remembered: others may know only of an earlier one."""


class Fence(NamedTuple):
    """What lanes of a warp knew at their last fence."""

    lanes: int
    epoch: int
    row: Clock
    scope: Scope


class Actor(NamedTuple):
    """Lanes of a warp that execute an instruction."""

    group: int
    agent: int
    lanes: int
    clocks: Clocks
    ledger: Ledger | None = None
    rank: int = 0
    """Its block in the group."""
    site: int = -1


class _Message(NamedTuple):
    """What was published at a word."""

    version: int
    row: Clock
    by: Actor
    """Who did that last."""
    held: Clock | None = None
    """What was published last: who polls publishes the same again."""

    def is_of(self, thread: Actor) -> bool:
        """Whether lanes published it themselves."""
        here = (self.by.group, self.by.agent) == (thread.group, thread.agent)
        return here and bool(self.by.lanes & thread.lanes)


class _Published(NamedTuple):
    """What lanes knew at fences when they wrote last; threads that poll write often."""

    fences: int
    """How many fences of the group there were."""
    known: bytes
    """What the lanes knew."""
    rows: dict[Scope, Clock]


class _Location:
    """What was published at one word."""

    def __init__(self) -> None:
        self.own: dict[int, dict[tuple[int, Scope], _Message]] = {}
        """By group, for that group itself: by block and scope."""
        self.rows: dict[tuple[int, Scope], _Message] = {}
        """What a group did, by group and scope: the version of this word at which that
        was published last, and all that was."""
        self.version = 0

    def add(self, group: int, row: Clock, scope: Scope, by: Actor) -> None:
        """Publish what a group did, unless that is known."""
        known = self.rows.get((group, scope))
        if known is not None:
            if known.row is row or known.held is row:
                return
            if covers(known.row, row):
                self.rows[group, scope] = known._replace(held=row)
                return
            row = row if covers(row, known.row) else joined(known.row, row)
        self.version += 1
        self.rows[group, scope] = _Message(self.version, row, by)

    def add_own(self, thread: Actor, row: Clock, scope: Scope) -> None:
        """Publish what a group did to the group itself."""
        every = self.own.setdefault(thread.group, {})
        known = every.get((thread.rank, scope))
        given = row
        if known is not None and known.held is row:
            row = known.row
        elif known is not None:
            row = known.row if covers(known.row, row) else joined(known.row, row)
        every[thread.rank, scope] = _Message(0, row, thread, given)

    def others(self, group: int) -> bool:
        """Whether another group was here."""
        return any(each != group for each, _ in self.rows)

    def forget(self, thread: Actor) -> None:
        """Lanes store a value: only what they published themselves goes on with it."""
        for every in (*self.own.values(), self.rows):
            for key in [k for k, each in every.items() if not each.is_of(thread)]:
                del every[key]


class Locations:
    """All words of a launch through which threads synchronise."""

    def __init__(self, watch: GlobalWatch, strict: bool = False) -> None:
        self._watch, self._strict = watch, strict
        self._words: dict[tuple[int, int], _Location] = {}
        self._fences: dict[int, dict[int, list[Fence]]] = {}
        """By group and agent, the latest last."""
        self._fence_counts: Counter[int] = Counter()
        """How many there were, by group."""
        self._published: dict[tuple[int, int, int, Scope], _Published] = {}
        """What lanes publish without a release, by group, agent, lanes and scope."""
        self._seen: dict[tuple[int, int, int, Scope], int] = {}
        """The version of a word that a group saw last."""
        self._relaxed: dict[tuple[int, int], int] = {}
        """By group and agent, the lanes with relaxed reads of what others published."""
        self.narrow: dict[tuple[int, int], Narrow] = {}
        """Scopes that were too small, by the two groups; the first of each."""

    def perform(
        self, thread: Actor, what: Role, addresses: Iterable[tuple[int, int]]
    ) -> None:
        """Lanes execute an instruction; ``addresses`` are pairs of lane and address.

        It acquires before it publishes: an atomic operation reads first.
        """
        if what.fence:
            self.fence(thread, what)
            return
        fenced = what.publishes and thread.group in self._fences
        publishes = what.releases or fenced
        if not publishes and not self._words:
            return
        lanes: dict[int, int] = {}
        for lane, address in addresses:
            lanes[address] = lanes.get(address, 0) | 1 << lane
        for address, mask in lanes.items():
            some = thread._replace(lanes=mask)
            if what.reads:
                self.acquire(some, address, what)
            if what.replaces and _key(address, thread.group) in self._words:
                self._words[_key(address, thread.group)].forget(some)
            if publishes:
                self.release(some, address, what)

    def fence(self, thread: Actor, what: Role) -> None:
        """Lanes execute a fence: what they publish later is what they know now.

        What they have read before by relaxed operations they know from now on.
        """
        key = thread.group, thread.agent
        read = self._relaxed.get(key, 0) & thread.lanes
        if read and what.acquires and what.scope >= Scope.GPU:
            self._relaxed[key] &= ~read
            self._stamp(thread._replace(lanes=read), True)
        epoch = thread.clocks.epoch(thread.agent)
        row = thread.clocks.release(thread.agent, thread.lanes)
        if not what.releases:
            return
        fences = self._fences.setdefault(thread.group, {})
        kept = fences.setdefault(thread.agent, [])
        kept.append(Fence(thread.lanes, epoch, row, what.scope))
        del kept[:-MOST_FENCES]
        self._fence_counts[thread.group] += 1

    def release(self, thread: Actor, address: int, what: Role) -> None:
        """Lanes write to a word: by themselves with ``.release``, or after a fence."""
        if what.releases:
            row = thread.clocks.release(thread.agent, thread.lanes)
            rows = {what.scope: row}
        else:
            rows = self._fenced(thread, what.scope)
        if not rows:
            return
        place = self._words.setdefault(_key(address, thread.group), _Location())
        for scope, row in rows.items():
            self._publish(thread, place, scope, row)

    def _publish(
        self, thread: Actor, place: _Location, scope: Scope, row: Clock
    ) -> None:
        place.add_own(thread, row, scope)
        everyone = self._watch.everyone
        if everyone is not None:
            if scope >= Scope.GPU:
                everyone.put(thread.group, row)
            if len(place.rows) < 3:  # they say only that others were here
                place.add(thread.group, row, scope, thread)
            return
        place.add(thread.group, row, scope, thread)
        if self._watch.informed(thread.group):
            # What a group has learned of others is published, too.
            for other, learned in self._watch.foreign(thread.group).rows.items():
                place.add(other, learned, scope, thread)

    def _fenced(self, thread: Actor, scope: Scope) -> dict[Scope, Clock]:
        """What lanes knew at fences, their own or others that they know of, by scope.

        All threads may execute a fence before a barrier, and one of them the atomic
        operation after it.
        """
        if thread.group not in self._fences:
            return {}
        known = thread.clocks.row(thread.agent, thread.lanes)[0]
        now = self._fence_counts[thread.group], known.tobytes()
        key = thread.group, thread.agent, thread.lanes, scope
        before = self._published.get(key)
        if before is not None and before[:2] == now:
            return before.rows
        if len(self._published) >= MOST_PUBLISHED:
            self._published.clear()
        found = self._at_fences(thread, scope, known)
        self._published[key] = _Published(*now, found)
        return found

    def _at_fences(
        self, thread: Actor, scope: Scope, known: Plane
    ) -> dict[Scope, Clock]:
        """What lanes that know something knew at fences, by scope."""
        found: dict[Scope, Clock] = {}
        for agent, several in self._fences[thread.group].items():
            covered = [0] * len(_SCOPES)
            for each in reversed(several):  # a later one says at least as much
                level = min(scope, each.scope)
                if each.lanes & ~covered[level] == 0:
                    continue
                own = agent == thread.agent and each.lanes & thread.lanes
                if own or knows_lanes(known, agent, each.lanes, each.epoch):
                    for narrower in _SCOPES[: level + 1]:
                        covered[narrower] |= each.lanes
                    before = found.get(level)
                    row = each.row if before is None else joined(before, each.row)
                    found[level] = row
        return found

    def acquire(self, thread: Actor, address: int, what: Role) -> None:
        """Lanes read a word by a strong access."""
        name = _key(address, thread.group)
        place = self._words.get(name)
        if place is None:
            return
        self._acquire_own(thread, place, what.scope)
        key = (*name, thread.group, what.scope)
        seen = self._seen.get(key, 0)
        if seen < place.version:
            self._seen[key] = place.version
            self._learn(thread, place, seen, what.scope)
        if not self._watch.informed(thread.group):
            return
        if place.others(thread.group) and what.scope >= Scope.GPU:
            if what.acquires or not self._strict:
                self._stamp(thread, what.acquires)
            if not what.acquires:
                agent = thread.group, thread.agent
                self._relaxed[agent] = self._relaxed.get(agent, 0) | thread.lanes
        if thread.ledger is not None:
            thread.ledger.knows(thread.group, self._watch.foreign(thread.group))

    def _stamp(self, thread: Actor, itself: bool) -> None:
        """Lanes know what their group has learned; or those after a barrier do."""
        epoch = thread.clocks.epoch(thread.agent)
        foreign = self._watch.foreign(thread.group)
        foreign.stamp(thread.agent, epoch, thread.lanes, itself)

    def _acquire_own(self, thread: Actor, place: _Location, scope: Scope) -> None:
        """Lanes learn what their own group has published."""
        for (rank, given), message in place.own.get(thread.group, {}).items():
            near = rank == thread.rank
            if near or min(scope, given) >= Scope.CLUSTER:
                thread.clocks.acquire(thread.agent, thread.lanes, message.row)
            else:
                self._too_narrow(thread, thread.group, given, message, scope)

    def _learn(self, thread: Actor, place: _Location, seen: int, scope: Scope) -> None:
        """A group learns what others have published since it was here."""
        group = thread.group
        for (other, given), message in place.rows.items():
            if other == group or message.version <= seen:
                continue
            if min(given, scope) < Scope.GPU:
                self._too_narrow(thread, other, given, message, scope)
                continue
            foreign = self._watch.foreign(group)
            self._watch.fenced[group] = 0
            if self._watch.everyone is None:
                foreign.put(other, message.row)

    def _too_narrow(
        self, thread: Actor, other: int, given: Scope, message: _Message, scope: Scope
    ) -> None:
        """Remember a pair of scopes that do not include each other's thread."""
        needed = Scope.CLUSTER if other == thread.group else Scope.GPU
        found = Narrow(message.by.site, given, thread.site, scope, needed)
        self.narrow.setdefault((other, thread.group), found)


def _key(address: int, group: int) -> tuple[int, int]:
    """A word; shared memory belongs to a group."""
    slot, place = divmod(address, 1 << layout.SLOT_BITS)
    if slot in (0, layout.SHARED_SLOT):
        return group, place & ~3
    return -1, address & ~3
