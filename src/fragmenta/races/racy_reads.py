"""Which executions of loads from shared memory race: each with its lanes.

A report of a race stands for all races of the same two instructions.  Whether a racy
read matters depends on the one execution: the last turn of a loop may load what nobody
uses.  So a launch with such races is watched once more, with code that tells of every
load from shared memory before it happens (:class:`ReadLog`), and every race is logged.

An execution has the same number in every run of a launch with the same schedule, so a
run that follows undefined bits finds it again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.races.probes.windows import NEAR
from fragmenta.races.shadow.detected import Detected
from fragmenta.races.shadow.problem_table import Moment, Noted
from fragmenta.simt.layout import LANES, SHARED_SLOT, SLOT_BITS
from fragmenta.units.blocks import Warp
from fragmenta.units.port import Step

if TYPE_CHECKING:
    from fragmenta.races.observer import Observer

Place: TypeAlias = tuple[str, int]
"""The function and the number of an instruction."""
FOLLOWED = (Detected.SHARED_RACE, Detected.READ_BEFORE_ARRIVAL)
"""Races in shared memory of which one side may be a load."""


class Execution(NamedTuple):
    """One execution of a load by a warp."""

    block: int
    warp: int
    place: Place
    number: int
    """How often the warp has executed it before."""


Executions: TypeAlias = dict[Execution, int]
"""Some executions, and the lanes that matter."""


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

    def overlapping(self, found: Noted) -> int:
        """The lanes that read some of the bytes of a problem."""
        some = (self.first < found.last) & (self.first + self.size > found.first)
        return self.lanes & int((some << np.arange(LANES)).sum())


class ReadLog:
    """The executions of loads from shared memory that race in a launch.

    ``ignored`` are not looked at, as if they did not happen.
    """

    def __init__(self, ignored: Executions) -> None:
        self.ignored = ignored
        self.racy: Executions = {}
        self.lost = False
        """Whether there were too many races to log."""
        self._executed = Executed()
        self._reads: dict[tuple[int, int], dict[int, list[_Read]]] = {}
        """The loads of each warp, by the observer and the cluster."""

    def told(self, observer: Observer, step: Step) -> None:
        """Lanes are about to load from shared memory."""
        warp, event, lanes = step
        self.drain(observer)
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
        self._reads.setdefault(key, {}).setdefault(agent, []).append(read)

    def drain(self, observer: Observer) -> None:
        """Find the loads that take part in the races that were logged."""
        found = observer.problems.logged()
        if found is None:
            self.lost = True
            return
        for each in found:
            reader = reader_of(each)
            if each.case not in FOLLOWED or reader is None:
                continue
            group = self._reads.get((id(observer), observer.number_of(each)), {})
            reads = group.get(reader.agent, [])
            for read in reads[-1:] if reader is each.now else reads:
                self._race(each, reader, read)

    def _race(self, found: Noted, reader: Moment, read: _Read) -> None:
        """A load takes part in a race, if it read these bytes in that epoch or later.

        Of several loads by a warp, a record of memory has the epoch of the first.
        """
        if read.epoch < reader.epoch:
            return
        lanes = read.overlapping(found)
        if found.now_write and found.now.agent == reader.agent and found.now.lane >= 0:
            lanes &= ~(1 << found.now.lane)  # a lane's own load is before its store
        if lanes:
            known = self.racy.get(read.execution, 0)
            self.racy[read.execution] = known | lanes


def reader_of(found: Noted) -> Moment | None:
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
