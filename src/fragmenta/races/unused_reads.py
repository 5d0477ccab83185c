"""Racy reads whose values nobody uses.

Triton lets several warps load what one of them stores, if a tile is smaller than the
block; the stores of the others are disabled.  Kernels with a pipeline load fragments of
the next tile from shared memory, also after the last one.  Such a read races, and its
value goes nowhere.

So a launch with a race between a load and a write is run again with code that follows
undefined bits (:mod:`definedness_watch`).  What a racy load reads is undefined there.
In global memory, that is in each lane that is not the last writer of the word; in
shared memory, in each execution that races (:mod:`racy_reads`).  If nothing undefined
reaches global memory, a branch or an address, the race is a note.  A value that goes
through shared memory, other lanes or products is followed, too.

A load that nobody uses may hide another one, since shadow memory keeps the last access.
So the launch is watched again without these loads.

A race of a copy, a product or an atomic operation stays an error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.rules import ERROR, INFO, UNINITIALISED
from fragmenta.races.definedness_watch import DefinedWatch
from fragmenta.races.global_watch import SplitWords
from fragmenta.races.launch_watch import LaunchWatch
from fragmenta.races.probes.undefined_flow import can_follow
from fragmenta.races.racy_reads import (
    FOLLOWED,
    Executed,
    Execution,
    Executions,
    Place,
    ReadLog,
    reader_of,
)
from fragmenta.races.report.stories import Collision
from fragmenta.races.shadow.detected import Detected
from fragmenta.races.shadow.global_records import FIRST_ID, ID_SHIFT, MASK_BITS, WORD
from fragmenta.races.suspicions import Run, Slices, place_of
from fragmenta.simt.layout import LANES, SLOT_BITS
from fragmenta.units.blocks import Warp
from fragmenta.units.machine import Machine

MOST = 20_000_000
"""Warp instructions of a launch that is run again for this."""
MOST_SHARED = 4_000_000
"""The same if reads of shared memory race: Python sees each load."""
ROUNDS = 4
"""How often a launch is watched again without the loads that nobody uses."""
_GLOBAL = Detected.WRITE_READ, Detected.READ_WRITE
_LOADS = ("ld", "ldu", "ldmatrix")


class Writers(NamedTuple):
    """Who wrote each word of global memory last in a watched launch."""

    records: dict[int, NDArray[np.int32]]
    """The records of writes, by slot."""
    threads: NDArray[np.int64]
    """The warp of each access in the table, in the grid; -1 if it is no warp."""
    split: SplitWords
    """The records of words that several lanes have written."""

    def racy(self, warp: int, address: NDArray[np.uint64], size: int) -> int:
        """The lanes of a warp that read words whose last writer is another thread."""
        found = 0
        for lane, start in enumerate(address.astype(np.int64).tolist()):
            records = self.records.get(start >> SLOT_BITS)
            place = start & (1 << SLOT_BITS) - 1
            if records is None:
                continue
            first = place // WORD
            words = records[first : (place + size - 1) // WORD + 1]
            begin = place - first * WORD
            some = self.split.parts(words).ravel()[begin : begin + size]
            some = some[some != 0]
            own = self.threads[some >> ID_SHIFT] * LANES + (some >> MASK_BITS & 31)
            found |= int((own != warp * LANES + lane).any()) << lane
        return found


class RacyLoads:
    """Says which lanes of a load read what others write at the same time."""

    def __init__(
        self, places: set[Place], writers: Writers, executions: Executions
    ) -> None:
        self._places, self._writers = places, writers
        self._executions = {e: executions[e] for e in executions if e.place in places}
        self._executed = Executed()
        near = {each.place for each in self._executions}
        self._left: set[Execution] = set(self._executions)
        self._unasked = places - near

    @property
    def unseen(self) -> set[Place]:
        """The loads that were not executed as they should have been."""
        return self._unasked | {each.place for each in self._left}

    def shared(self, warp: Warp, site: int) -> int:
        """The lanes that race in the present execution of a load."""
        execution = self._executed.next(warp, site)
        self._left.discard(execution)
        return self._executions.get(execution, 0)

    def far(self, warp: Warp, site: int, address: NDArray[np.uint64], size: int) -> int:
        """The lanes that race in global memory."""
        launch = warp.block.cluster.machine.launch
        function, index = launch.compiled.places[site]
        if (function, index) not in self._places:
            return 0
        self._unasked.discard((function, index))
        number = warp.block.index * launch.shape.warps + warp.number
        return self._writers.racy(number, address, size)


class Again(NamedTuple):
    """Runs a launch again.  None is returned if it could not be brought to its end."""

    watched: Callable[[Callable[[Machine], None]], Run | None]
    """Watched, with code that tells of every load."""
    followed: Callable[[Callable[[Machine], None]], Run | None]
    """With code that follows undefined bits, which asks about every load."""


# ── the races ───────────────────────────────────────────────────────────────


def racy_reads(launch: Run, instructions: int) -> list[Collision]:
    """Races of a load with a write whose values can be followed.

    There are none if the launch is too long to be run again.
    """
    watch = None if launch.machine is None else launch.machine.watching
    if not isinstance(watch, LaunchWatch) or watch.memory.full or watch.spread:
        return []
    if launch.compiled.recursive:  # its registers are not followed
        return []
    found = _collisions(launch)
    most = MOST_SHARED if any(map(_near, found)) else MOST
    return found if instructions <= most else []


def _collisions(launch: Run) -> list[Collision]:
    return [
        each
        for each in (launch.machine.problems if launch.machine else ())
        if isinstance(each, Collision)
        and each.severity == ERROR
        and each.noted.case in (*_GLOBAL, *FOLLOWED)
        and each.rule is each.noted.case.rule  # not a read of an mbarrier
        and _followable(launch, each)
    ]


def _near(found: Collision) -> bool:
    return found.noted.case.space == "shared"


def _followable(launch: Run, found: Collision) -> bool:
    reader = reader_of(found.noted)
    if reader is None:  # several groups have read, or both write
        return False
    assert launch.machine is not None
    watch = launch.machine.watching
    assert isinstance(watch, LaunchWatch)
    function, index = place_of(launch, reader.site)
    load = launch.module().functions[function].instructions[index]
    kind = watch.observers[0].order.describe(reader.agent)[0]
    narrow = all(map(can_follow, effects(load).writes))
    return kind == "warp" and load.opcode in _LOADS and narrow


def _place(launch: Run, found: Collision) -> Place:
    reader = reader_of(found.noted)
    assert reader is not None
    return place_of(launch, reader.site)


def _writers(launch: Run) -> Writers:
    """Who wrote what in global memory, for the runs that follow racy reads."""
    assert launch.machine is not None
    watch, shape = launch.machine.watching, launch.machine.launch.shape
    assert isinstance(watch, LaunchWatch)
    memory = watch.memory
    groups, agents = memory.table["group"], memory.table["agent"].astype(np.int64)
    ranks, numbers = agents // shape.warps, agents % shape.warps
    blocks = np.array([shape.members(g) for g in range(memory.groups)])
    safe = np.minimum(ranks, blocks.shape[1] - 1)
    threads = blocks[groups, safe] * shape.warps + numbers
    threads[ranks >= blocks.shape[1]] = -1
    threads[:FIRST_ID] = -1
    return Writers(memory.records, threads, memory.split)


# ── their use ───────────────────────────────────────────────────────────────


def _log(log: ReadLog, machine: Machine) -> None:
    assert isinstance(machine.watching, LaunchWatch)
    machine.watching.reads = log


def _ask(loads: RacyLoads, machine: Machine) -> None:
    assert isinstance(machine.watching, DefinedWatch)
    machine.watching.raced = loads


class _Unknown(Exception):
    """A run did not come to its end: what happens then is not known."""


def judge(launch: Run, found: list[Collision], again: Again) -> Run | None:
    """Make races notes whose reads have no effect.

    If loads that nobody uses hid other races, the run that shows these is returned.
    """
    try:
        return _Judge(launch, found, again).verdict()
    except _Unknown:
        return None


class _Judge:
    """Judges the racy reads of a launch."""

    def __init__(self, launch: Run, found: list[Collision], again: Again) -> None:
        self.launch, self.found, self.again = launch, found, again
        self.writers = _writers(launch)
        self.executions: Executions = {}

    def verdict(self) -> Run | None:
        """Change the severities of those that do not matter."""
        near = [each for each in self.found if _near(each)]
        if not near:
            self._settle(self._unused(self._places(self.found)))
            return None
        seen, unused = self._places(self.found), set[Place]()
        for _ in range(ROUNDS):
            log = ReadLog(
                {e: lanes for e, lanes in self.executions.items() if e.place in unused}
            )
            run = self.again.watched(partial(_log, log))
            if run is None or log.lost:
                raise _Unknown
            known = self.executions
            new = {
                e: lanes for e, lanes in log.racy.items() if lanes & ~known.get(e, 0)
            }
            if not new:
                self._settle(unused)
                return run if self._hidden(run) else None
            self.executions |= {e: lanes | known.get(e, 0) for e, lanes in new.items()}
            seen |= {each.place for each in new}
            unused = self._unused(seen)
            if not unused:
                return None
        raise _Unknown

    def _places(self, found: list[Collision]) -> set[Place]:
        return {_place(self.launch, each) for each in found}

    def _settle(self, unused: set[Place]) -> None:
        for each in self.found:
            if _place(self.launch, each) in unused:
                each.severity, each.unused = INFO, True

    def _unused(self, places: set[Place]) -> set[Place]:
        """The loads of which no value has an effect.

        A value that went through memory is not known by the load that it came from.  So
        loads that are known to be used are left out, until nothing has an effect.
        """
        left = set(places)
        while left:
            loads = RacyLoads(left, self.writers, self.executions)
            run = self.again.followed(partial(_ask, loads))
            if run is None:
                raise _Unknown
            used = _used(run, left) | loads.unseen
            if not used:
                return left
            left -= used
        return left

    def _hidden(self, run: Run) -> list[Collision]:
        """Drop what is known from the problems of a run; the races that are left."""
        assert run.machine is not None
        known = {_pair(self.launch, each) for each in _all(self.launch)}
        problems = run.machine.problems
        problems.drop(
            lambda each: (
                not isinstance(each, Collision)
                or each.noted.case not in FOLLOWED
                or _pair(run, each) in known
            )
        )
        return _all(run)


def _all(launch: Run) -> list[Collision]:
    assert launch.machine is not None
    return [each for each in launch.machine.problems if isinstance(each, Collision)]


def _pair(launch: Run, found: Collision) -> tuple[str, Place, Place | None]:
    """What two problems of the same instructions have in common."""
    other = None if found.other is None else place_of(launch, found.other)
    return found.rule.name, place_of(launch, found.site), other


def _used(again: Run, places: set[Place]) -> set[Place]:
    """The loads whose values had an effect; all of them, if it is not known which."""
    assert again.machine is not None
    slices, used = Slices(again), set()
    for use in again.machine.problems:
        if use.rule == UNINITIALISED:
            used |= slices.origins(use)[0] & places or places
    return used
