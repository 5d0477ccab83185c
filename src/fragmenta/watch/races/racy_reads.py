"""Which executions of loads from shared memory race: each with its lanes.

Products of Tensor Cores that read what a copy writes meanwhile race by words.

A report of a race stands for all races of the same two instructions.  Whether a racy
read matters depends on the one execution: the last turn of a loop may load what nobody
uses.  So a launch with such races is watched once more, with code that tells of every
load from shared memory before it happens (:class:`ReadLog`), and every race is logged.

An execution has the same number in every run of a launch with the same schedule, so a
run that follows undefined bits finds it again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.layout import LANES, RANK_BITS, SHARED_SLOT, SLOT_BITS
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.port import Step
from fragmenta.engine.units.work import Work
from fragmenta.watch.races.probes.windows import NEAR
from fragmenta.watch.races.shadow.detected import Detected
from fragmenta.watch.races.shadow.global_records import WORD
from fragmenta.watch.races.shadow.problem_table import (
    NOW_WRITES,
    WAS_WRITE,
    DetectedProblem,
    Moment,
)

if TYPE_CHECKING:
    from fragmenta.watch.races.observer import Observer
    from fragmenta.watch.races.suspicions import FinishedRun

Place: TypeAlias = tuple[str, int]
"""The function and the number of an instruction."""
FOLLOWED = (Detected.SHARED_RACE, Detected.READ_BEFORE_ARRIVAL)
"""Races in shared memory of which one side may be a load."""
OF_PRODUCTS = (*FOLLOWED, Detected.OVERWRITE_WHILE_READ)
"""Races in shared memory of which one side may be a product."""

ENOUGH = 2
"""How many racy executions of a load show whether it is used, at first."""


class Execution(NamedTuple):
    """One execution of a load by a warp."""

    block: int
    warp: int
    place: Place
    number: int
    """How often the warp has executed it before."""


Executions: TypeAlias = dict[Execution, int]
"""Some executions, and the lanes that matter; of products: the words of shared memory.

Those of block ``rank`` of a cluster begin at bit ``rank * WORDS``.
"""
WORDS = 1 << 16
"""More words than the shared memory of a block has."""
WARPS = 4


def issuer(warp: Warp, work: Work) -> Warp:
    """The warp that stands for the issuer of a product: the first of a warpgroup."""
    return work.fills[0] if work.fills else warp


class Executed:
    """Counts the executions of loads."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, int, Place]] = Counter()

    def next(self, warp: Warp, site: int) -> Execution:
        """A warp executes a load: which execution that is."""
        function, index = warp.block.cluster.machine.launch.compiled.places[site]
        key = warp.block.index, warp.number, (function, index)
        number = self._counts[key]
        self._counts[key] = number + 1
        return Execution(*key, number)


class _Read(NamedTuple):
    """A load from shared memory, as it was told."""

    execution: Execution
    epoch: int
    lanes: int
    first: NDArray[np.int64]
    size: int


def _overlapping(reads: list[_Read], spans: NDArray[np.int64]) -> list[int]:
    """For each of some loads, the lanes that read any byte of some spans.

    >>> place = "f", 0
    >>> read = _Read(Execution(0, 0, place, 0), 1, 3, 4 * np.arange(LANES), 4)
    >>> _overlapping([read], np.array([[0, 2], [4, 8]]))
    [3]
    """
    starts, ends = np.sort(spans[:, 0]), np.sort(spans[:, 1])
    first = np.stack([each.first for each in reads])
    last = first + np.array([each.size for each in reads])[:, None]
    # A span overlaps if it has begun before the end, and has not ended before.
    hit = np.searchsorted(starts, last) > np.searchsorted(ends, first, "right")
    masks = (hit.astype(np.int64) << np.arange(LANES)).sum(axis=1).tolist()
    return [mask & each.lanes for mask, each in zip(masks, reads, strict=True)]


class ReadLog:
    """The executions of loads from shared memory that race in a launch.

    ``ignored`` are not looked at, as if they did not happen.  With ``wanted``, it is
    enough to know some executions of each of these loads.
    """

    def __init__(self, ignored: Executions, wanted: Collection[Place] = ()) -> None:
        self.ignored = ignored
        self.racy: Executions = {}
        self.told_of = 0
        """Of how many loads it was told, before it knew enough."""
        self._short = dict.fromkeys(wanted, ENOUGH)
        """How many executions of each load are still wanted."""
        self._over = False
        self.run: FinishedRun | None = None
        """The run that was logged, when it has ended."""
        self.lost = False
        """Whether there were too many races to log."""
        self._executed = Executed()
        self._reads: dict[tuple[int, int], dict[int, list[_Read]]] = {}
        """The loads of each warp, by the observer and the cluster."""
        self._products: dict[tuple[int, int, int, int], list[Execution]] = {}
        """Products, by the observer, the cluster, the agent and the epoch."""

    def told(self, observer: Observer, step: Step) -> None:
        """Lanes are about to load from shared memory."""
        self.drain(observer)
        if self._over:
            return
        self.told_of += 1
        warp, event, lanes = step
        (address,) = event.operands
        first, inside = shared_addresses(address.lanes(warp), event.words[2])
        lanes &= inside
        execution = self._executed.next(warp, event.site)
        rank, number = warp.block.rank, warp.number
        ignored = self.ignored.get(execution, 0)
        observer.order.ignore(rank, number, ignored)
        read = _Read(
            execution,
            observer.order.epoch(rank, number),
            lanes & ~ignored,
            first,
            int(event.words[1]),
        )
        agent = observer.order.agent("warp", rank, number)
        key = id(observer), observer.cluster.number
        if key not in self._reads:  # races of those before it are known
            self._reads = {e: of for e, of in self._reads.items() if e[0] != key[0]}
        self._reads.setdefault(key, {}).setdefault(agent, []).append(read)

    def drain(self, observer: Observer) -> None:
        """Find the loads that take part in the races that were logged."""
        found = observer.problems.logged()
        if found is None:
            self.lost = not self._over
            return
        if self._over or not found.size:
            return
        self._overwritten(observer, found)
        writes, wrote = (found["flags"] & each != 0 for each in (NOW_WRITES, WAS_WRITE))
        some = np.isin(found["case"], FOLLOWED)
        if self._short:  # enough is known of the others
            places = observer.launch_watch.places
            sites = [i for i, (of, at) in enumerate(places) if (of, at) in self._short]
            readers = np.where(writes, found["before"]["site"], found["now"]["site"])
            some &= np.isin(readers, sites)
            if not some.any():
                return
        # A lane's own load is before its store.
        same = found["now"]["agent"] == found["before"]["agent"]
        own = np.where(same, found["now"]["lane"], -1)
        late, early = some & ~writes, some & writes & ~wrote
        early &= found["before"]["site"] >= 0
        for group in np.unique(found["now"]["group"]).tolist():
            key = id(observer), observer.number_of(group)
            for agent, reads in self._reads.get(key, {}).items():
                here = found["now"]["group"] == group
                now = here & late & (found["now"]["agent"] == agent)
                before = here & early & (found["before"]["agent"] == agent)
                if now.any():
                    self._race(reads[-1:], found[now], -1)
                for epoch, lane in np.unique(
                    np.stack([found["before"]["epoch"], own], axis=1)[before], axis=0
                ).tolist():
                    alike = before & (found["before"]["epoch"] == epoch) & (own == lane)
                    # Of several loads by a warp, a record has the epoch of the first.
                    start = bisect_left(reads, epoch, key=lambda each: each.epoch)
                    self._race(reads[start:], found[alike], lane)

    # ── products ────────────────────────────────────────────────────────────

    def issued(
        self, observer: Observer, warp: Warp, work: Work, who: tuple[int, int]
    ) -> Execution:
        """A product is about to read shared memory: an agent, in an epoch."""
        self.drain(observer)
        made = self._executed.next(issuer(warp, work), work.site)
        key = id(observer), observer.cluster.number, *who
        self._products.setdefault(key, []).append(made)
        return made

    def looked_at(
        self, execution: Execution, rank: int, starts: NDArray[np.uint32], size: int
    ) -> NDArray[np.uint32]:
        """The parts of an operand that are looked at: all, unless some are ignored."""
        ignored = self.ignored.get(execution, 0) >> rank * WORDS
        if not ignored:
            return starts
        part = (1 << size // WORD) - 1
        kept = [not ignored >> int(first) // WORD & part for first in starts]
        return np.asarray(starts[kept], np.uint32)

    def has_read(self, observer: Observer, execution: Execution, rank: int) -> None:
        """A product has read from a block: log the words that race."""
        found = observer.problems.logged()
        if found is None:
            self.lost = not self._over
            return
        some = np.isin(found["case"], FOLLOWED) & (found["flags"] & NOW_WRITES == 0)
        words = 0
        for each in found[some]:
            words |= _words(each, rank)
        if words and not self._over:
            self._add(execution, words)

    def _overwritten(self, observer: Observer, found: NDArray[np.void]) -> None:
        """Find the products that still read what was written."""
        if not self._products:
            return
        late = found["flags"] & (NOW_WRITES | WAS_WRITE) == NOW_WRITES
        places = observer.launch_watch.places
        for each in found[late & np.isin(found["case"], OF_PRODUCTS)]:
            before = each["before"]
            number = observer.number_of(int(each["now"]["group"]))
            who = int(before["agent"]), int(before["epoch"])
            for product in self._products.get((id(observer), number, *who), ()):
                if product.place == tuple(places[int(before["site"])]):
                    rank = int(each["first"]) >> RANK_BITS
                    self._add(product, _words(each, rank))

    def _race(self, reads: list[_Read], found: NDArray[np.void], own: int) -> None:
        """Loads take part in races, if they read these bytes; one lane does not."""
        if not reads:
            return
        spans = np.unique(np.stack([found["first"], found["last"]], axis=1), axis=0)
        besides = ~(1 << own) if own >= 0 else -1
        for read, lanes in zip(reads, _overlapping(reads, spans), strict=True):
            if lanes & besides:
                self._add(read.execution, lanes & besides)

    def _add(self, execution: Execution, lanes: int) -> None:
        known, place = self.racy.get(execution, 0), execution.place
        self.racy[execution] = known | lanes
        if not known and place in self._short:
            self._short[place] -= 1
            if not self._short[place]:
                del self._short[place]
                self._over = not self._short


def _words(found: np.void, rank: int) -> int:
    """The words of a race in the shared memory of a block."""
    start = rank << RANK_BITS
    first, last = (int(found[end]) - start for end in ("first", "last"))
    return (1 << -(-last // WORD)) - (1 << first // WORD) << rank * WORDS


def reader_of(found: DetectedProblem) -> Moment | None:
    """The side of a race that reads; None if both write."""
    if found.now_write and found.was_write:
        return None
    return found.before if found.now_write else found.now


def shared_addresses(
    given: NDArray[np.unsignedinteger], window: str
) -> tuple[NDArray[np.int64], int]:
    """Addresses in shared memory, and the lanes whose addresses are there.

    >>> shared_addresses(np.array([0x400, 5], np.uint64), "shared")[1]
    3
    """
    addresses = given.astype(np.int64)
    if window == NEAR:
        return addresses, (1 << len(addresses)) - 1
    inside = (addresses >> SLOT_BITS) == SHARED_SLOT
    lanes = int((inside.astype(np.int64) << np.arange(len(addresses))).sum())
    return addresses & (1 << SLOT_BITS) - 1, lanes
