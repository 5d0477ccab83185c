"""Which thread has learned something of another through a word in memory?

A thread that writes to a word after a fence, or by a store or atomic operation with
``.release``, publishes what it knew.  A thread that reads this word by a strong load or
an atomic operation acquires all that was published there.  This is lenient in two ways:
a strong load needs no fence behind it, and what was published at a word stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fragmenta.ptx.module import Function, Instruction
from fragmenta.ptx.watching.global_watch import GlobalWatch, Ledger, joined
from fragmenta.ptx.watching.watch import Watch

Row = NDArray[np.int32]
"""What a thread knows of the agents of its group: the arrays base, extra and mask."""


class Clocks(Protocol):
    """The clocks of one group."""

    def release(self, agent: int, lanes: int) -> Row:
        """What lanes of a warp know and did until now; a new epoch begins."""

    def acquire(self, agent: int, lanes: int, row: Row) -> None:
        """Lanes of a warp learn something."""

    def epoch(self, agent: int) -> int:
        """The present epoch of a warp."""

    def row(self, agent: int, lanes: int) -> Row:
        """What lanes of a warp know, without a new epoch."""


class ClusterClocks:
    """The clocks of a cluster that is watched, as they are needed here.

    ``live`` says which lanes of a warp have not ended: (rank of the block, warp).
    """

    def __init__(self, watch: Watch, live: Callable[[int, int], int]) -> None:
        self._watch, self._live = watch, live

    def _place(self, agent: int) -> tuple[int, int]:
        _, rank, number = self._watch.describe(agent)
        return rank, number

    def _flat(self, clock: NDArray[np.int32]) -> Row:
        return clock.reshape(-1, self._watch.plan.row)

    def release(self, agent: int, lanes: int) -> Row:
        """What lanes of a warp know and did until now; a new epoch begins."""
        place = self._place(agent)
        return self._flat(self._watch.publish(*place, lanes, self._live(*place)))

    def acquire(self, agent: int, lanes: int, row: Row) -> None:
        """Lanes of a warp learn something."""
        place = self._place(agent)
        clock = np.ascontiguousarray(row).reshape(-1, 3, self._watch.plan.row)
        self._watch.acquire(*place, lanes, self._live(*place), clock)

    def epoch(self, agent: int) -> int:
        """The present epoch of a warp."""
        return self._watch.epoch(*self._place(agent))

    def row(self, agent: int, lanes: int) -> Row:
        """What lanes of a warp know, without a new epoch."""
        return self._flat(self._watch.row(*self._place(agent), lanes))


class Role(NamedTuple):
    """How an instruction can take part in synchronisation."""

    fence: bool = False
    publishes: bool = False
    releases: bool = False
    """Whether it publishes without a fence before it."""
    acquires: bool = False
    cta: bool = False
    """Whether its scope is the block."""


_STRONG = frozenset({"relaxed", "volatile", "mmio", "acquire", "release", "acq_rel"})
_ORDERED = frozenset({"acquire", "release", "acq_rel"})
_NOT_SHARED = frozenset({"local", "param", "param::entry", "param::func", "const"})


def role(instruction: Instruction) -> Role | None:
    """How an instruction can synchronise; None if it cannot."""
    words = set(instruction.qualifiers)
    opcode, cta = instruction.opcode, "cta" in words
    if opcode == "membar":
        return None if "proxy" in words else Role(fence=True, cta=cta)
    if opcode == "fence":
        if words & {"proxy", "mbarrier_init"}:
            return None
        return Role(fence=True, cta=cta)
    if words & _NOT_SHARED or any(each.startswith("mbarrier") for each in words):
        return None
    releases = bool(words & {"release", "acq_rel"})
    if opcode in ("atom", "red") and "async" not in words:
        return Role(publishes=True, releases=releases, acquires=opcode == "atom",
                    cta=cta)  # fmt: skip
    if opcode in ("ld", "st") and words & _STRONG and "async" not in words:
        stores = opcode == "st"
        return Role(publishes=stores, releases=releases, acquires=not stores, cta=cta)
    return None


def orders(functions: Iterable[Function]) -> bool:
    """Whether functions have a fence, or any access that is ordered by itself."""
    for function in functions:
        for each in function.instructions:
            found = role(each)
            if found and (found.fence or _ORDERED & set(each.qualifiers)):
                return True
    return False


def synchronises(function: Function, ordered: bool | None = None) -> set[int]:
    """The numbers of the instructions of a function that can synchronise.

    Without a fence nothing that is relaxed can.  ``ordered`` says whether there is one
    anywhere in the program; by default only the function itself is looked at.
    """
    if not (orders((function,)) if ordered is None else ordered):
        return set()
    return {
        number
        for number, each in enumerate(function.instructions)
        if role(each) is not None
    }


class _Fence(NamedTuple):
    """What lanes of a warp knew at their last fence."""

    lanes: int
    epoch: int
    row: Row
    cta: bool


class _Location:
    """What was published at one word."""

    def __init__(self) -> None:
        self.own: dict[int, Row] = {}
        """By group, for that group itself."""
        self.log: list[tuple[int, Row, bool]] = []
        """Group, what it or others did, and whether its scope was the block."""
        self.rows: dict[tuple[int, bool], Row] = {}
        """What the log says last, by group and scope."""

    def add(self, group: int, row: Row, cta: bool) -> None:
        """Publish what a group did, unless that was the last that is known of it."""
        if self.rows.get((group, cta)) is not row:
            self.rows[group, cta] = row
            self.log.append((group, row, cta))


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
        self._fences: dict[tuple[int, int], list[_Fence]] = {}
        self._read: dict[tuple[int, int, int, bool], int] = {}

    def perform(
        self, thread: Thread, what: Role, addresses: Iterable[tuple[int, int]]
    ) -> None:
        """Lanes execute an instruction; ``addresses`` are pairs of lane and address.

        It acquires before it publishes: an atomic operation reads first.
        """
        if what.fence:
            self.fence(thread, what.cta)
            return
        lanes: dict[int, int] = {}
        for lane, address in addresses:
            lanes[address] = lanes.get(address, 0) | 1 << lane
        for address, mask in lanes.items():
            some = thread._replace(lanes=mask)
            if what.acquires:
                self.acquire(some, address, what.cta)
            if what.publishes:
                self.release(some, address, what.releases, what.cta)

    def fence(self, thread: Thread, cta: bool = False) -> None:
        """Lanes execute a fence: what they publish later is what they know now."""
        epoch = thread.clocks.epoch(thread.agent)
        row = thread.clocks.release(thread.agent, thread.lanes)
        kept = self._fences.setdefault((thread.group, thread.agent), [])
        kept[:] = [each for each in kept if each.lanes & ~thread.lanes]
        kept.append(_Fence(thread.lanes, epoch, row, cta))

    def release(
        self, thread: Thread, address: int, itself: bool = False, cta: bool = False
    ) -> None:
        """Lanes write to a word: ``itself`` with ``.release``, or after a fence."""
        if itself:
            row: Row | None = thread.clocks.release(thread.agent, thread.lanes)
        else:
            row, cta = self._fenced(thread, cta)
        if row is None:
            return
        place = self._place(address, thread.group)
        known = place.own.get(thread.group)
        place.own[thread.group] = row if known is None else joined(known, row)
        everyone = self._watch.everyone
        if everyone is not None:
            everyone.put(thread.group, row)
            if len({each for each, *_ in place.log}) > 1:
                return  # the log says only that others were here
        place.add(thread.group, row, cta)
        if everyone is None and self._watch.informed(thread.group):
            # What a group has learned of others is published, too.
            for other, learned in self._watch.foreign(thread.group).rows.items():
                place.add(other, learned, cta)

    def _fenced(self, thread: Thread, cta: bool) -> tuple[Row | None, bool]:
        """What lanes knew at fences, their own or others that they know of.

        All threads may execute a fence before a barrier, and one of them the atomic
        operation behind it.
        """
        found: Row | None = None
        knows = thread.clocks.row(thread.agent, thread.lanes)
        narrow = True
        for (group, agent), fences in self._fences.items():
            if group != thread.group:
                continue
            for each in fences:
                own = agent == thread.agent and each.lanes & thread.lanes
                base, extra, mask = (int(n) for n in knows[:3, agent])
                named = each.epoch < extra and each.lanes & ~mask == 0
                if own or each.epoch < base or named:
                    found = each.row if found is None else joined(found, each.row)
                    narrow = narrow and each.cta
        return found, cta or narrow

    def acquire(self, thread: Thread, address: int, cta: bool = False) -> None:
        """Lanes read a word by a strong access."""
        place = self._words.get(self._key(address, thread.group))
        if place is None:
            return
        own = place.own.get(thread.group)
        if own is not None:
            thread.clocks.acquire(thread.agent, thread.lanes, own)
        key = (*self._key(address, thread.group), thread.group, cta)
        start = self._read.get(key, 0)
        self._read[key] = len(place.log)
        epoch = thread.clocks.epoch(thread.agent)
        for group, row, narrow in place.log[start:]:
            # Both must say .cta before it is sure that the scope is too small.
            if group == thread.group or (narrow and cta):
                continue
            foreign = self._watch.foreign(thread.group)
            self._watch.fenced.discard(thread.group)
            if self._watch.everyone is None:
                foreign.put(group, row)
        if self._watch.informed(thread.group) and thread.ledger is not None:
            foreign = self._watch.foreign(thread.group)
            if any(group != thread.group for group, *_ in place.log):
                foreign.stamp(thread.agent, epoch, thread.lanes)
            thread.ledger.knows(thread.group, foreign)

    def _place(self, address: int, group: int) -> _Location:
        return self._words.setdefault(self._key(address, group), _Location())

    def _key(self, address: int, group: int) -> tuple[int, int]:
        """A word; shared memory belongs to a group."""
        own = address < 1 << 36 or address >> 36 == 8
        return (group if own else -1, address & ~3)
