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

All of that takes long, and most racy reads are used.  So a launch is run again only if
neither the text (:mod:`certain_uses`) nor an earlier launch of the kernel shows that a
read is used; and then, at first, only up to the cluster in which it was seen.  That
nobody uses a read holds for later launches, too, of which fewer and fewer are looked at
again.

A product that reads what a copy writes meanwhile is followed like a load: rows of D
that are made from it need not be used, if a tile is smaller than the instruction.

A race of a copy or of an atomic operation stays an error.

A plain load without order to an atomic operation is a note at first: loops with
compare-and-swap begin like that (:func:`optimistic`).  Any other such load is an error,
too, if its value is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.compiled import Compiled
from fragmenta.engine.simt.layout import LANES, SLOT_BITS
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import once_per_kernel
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.work import Work
from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.families import LOADS, ROW_LOADS, TENSOR_MEMORY, WARPGROUP
from fragmenta.ptx.rules import ERROR, INFO, UNINITIALISED
from fragmenta.watch.races.definedness_watch import DefinedWatch
from fragmenta.watch.races.global_watch import SplitWords
from fragmenta.watch.races.launch_watch import LaunchWatch
from fragmenta.watch.races.probes.certain_uses import certain_uses
from fragmenta.watch.races.probes.optimistic_reads import optimistic
from fragmenta.watch.races.probes.undefined_flow import can_follow
from fragmenta.watch.races.racy_reads import (
    OF_PRODUCTS,
    Executed,
    Execution,
    Executions,
    Place,
    ReadLog,
    issuer,
    reader_of,
)
from fragmenta.watch.races.report.problem_context import Collision
from fragmenta.watch.races.shadow.detected import Detected
from fragmenta.watch.races.shadow.global_records import ID_SHIFT, MASK_BITS, WORD
from fragmenta.watch.races.suspicions import FinishedRun, Slices, place_of

MOST = 20_000_000
"""Warp instructions of a launch that is run again for this."""
MOST_SHARED = 4_000_000
"""The same if reads of shared memory race: Python sees each load."""
ROUNDS = 4
"""How often a launch is watched again without the loads that nobody uses."""
Part: TypeAlias = tuple[int, int] | None
"""The clusters that are run again, as a range; None: all of them."""
_GLOBAL = Detected.MIXED, Detected.WRITE_READ, Detected.READ_WRITE
_PRODUCTS = WARPGROUP | TENSOR_MEMORY
"""Opcodes of products, and the agents that read for them."""


class Writers(NamedTuple):
    """Who wrote each word of global memory last in a watched launch."""

    records: dict[int, NDArray[np.int32]]
    """The records of writes, by slot."""
    threads: NDArray[np.int64]
    """1 + the warp of each access in the table, in the grid; 0 if it is no warp."""
    split: SplitWords
    """The records of words that several lanes have written."""

    def racy(self, warp: int, address: NDArray[np.uint64], size: int) -> int:
        """The lanes of a warp that read words whose last writer is another thread."""
        bytes_ = address.astype(np.int64)[:, None] + np.arange(size)
        slots, places = bytes_ >> SLOT_BITS, bytes_ & (1 << SLOT_BITS) - 1
        owners = np.zeros(bytes_.shape, np.int32)
        for slot in {*slots[:, 0].tolist()} & self.records.keys():
            records = self.records[slot]
            here = (slots == slot) & (places < records.size * WORD)
            words, parts = np.divmod(places[here], WORD)
            owners[here] = self.split.parts(records[words])[
                np.arange(len(words)), parts
            ]
        own = self.threads[owners >> ID_SHIFT] * LANES + (owners >> MASK_BITS & 31)
        mine = (warp + 1) * LANES + np.arange(len(address))
        others = ((owners != 0) & (own != mine[:, None])).any(1)
        return int(others @ (1 << np.arange(len(address))))


class Settled(Exception):
    """All racy loads are known to be used: the run need not go on."""


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
        self._machine: Machine | None = None
        self._uses = 0

    @property
    def unseen(self) -> set[Place]:
        """The loads that were not executed as they should have been."""
        return self._unasked | {each.place for each in self._left}

    def follow(self, machine: Machine) -> None:
        """End the run of a machine once all loads are known to be used."""
        self._machine = machine

    def _end_if_settled(self) -> None:
        machine = self._machine
        if machine is None or len(machine.problems) == self._uses:
            return
        self._uses = len(machine.problems)
        if _used(cast("FinishedRun", machine.launch), self._places) >= self._places:
            raise Settled

    def shared(self, warp: Warp, site: int) -> int:
        """The lanes that race in the present execution of a load."""
        self._end_if_settled()
        if not self._left:
            return 0
        execution = self._executed.next(warp, site)
        self._left.discard(execution)
        return self._executions.get(execution, 0)

    def product(self, warp: Warp, work: Work) -> int:
        """The words that race in the present execution of a product."""
        if not self._left:
            return 0
        execution = self._executed.next(issuer(warp, work), work.site)
        self._left.discard(execution)
        return self._executions.get(execution, 0)

    def far(self, warp: Warp, site: int, address: NDArray[np.uint64], size: int) -> int:
        """The lanes that race in global memory."""
        self._end_if_settled()
        launch = warp.block.cluster.machine.launch
        function, index = launch.compiled.places[site]
        if (function, index) not in self._places:
            return 0
        self._unasked.discard((function, index))
        number = warp.block.index * launch.shape.warps + warp.number
        return self._writers.racy(number, address, size)


class Rerun(NamedTuple):
    """Runs a launch again.  None is returned if it could not be brought to its end."""

    watched: Callable[[Callable[[Machine], None], Part], FinishedRun | None]
    """Watched, with code that tells of every load."""
    followed: Callable[[Callable[[Machine], None], Part], FinishedRun | None]
    """With code that follows undefined bits, which asks about every load."""


class RacyLoadUses:
    """What launches of a kernel have shown about its racy loads."""

    def __init__(self) -> None:
        self.used: set[Place] = set()
        """The loads whose values are used."""
        self.unused: Counter[object] = Counter()
        """How often launches had the same races with loads that nobody uses."""

    def due(self, races: object) -> bool:
        """Whether a launch with such races is looked at again.

        >>> known = RacyLoadUses()
        >>> [known.due("a") for _ in range(8)]
        [True, True, True, True, True, True, True, True]
        >>> known.unused["a"] = 1
        >>> [known.due("a") for _ in range(8)]
        [True, False, True, False, False, False, True, False]
        """
        count = self.unused[races]
        if count:
            self.unused[races] += 1
        return not self.unused[races] & count


@once_per_kernel
def known_of(compiled: Compiled) -> RacyLoadUses:
    """What is known about the racy loads of a kernel; nothing at first."""
    return RacyLoadUses()


# ── the races ───────────────────────────────────────────────────────────────


def racy_reads(launch: FinishedRun, instructions: int) -> list[Collision]:
    """Races of a load with a write whose values can be followed.

    There are none if the launch is too long to be run again.
    """
    watch = None if launch.machine is None else launch.machine.watching
    if not isinstance(watch, LaunchWatch) or watch.memory.full or watch.spread:
        return []
    if launch.compiled.recursive:  # its registers are not followed
        return []
    used = known_of(launch.compiled).used
    used |= _certain(launch, found := _collisions(launch))
    _raise_used(launch, found)
    found = [each for each in found if _place(launch, each) not in used]
    most = MOST_SHARED if any(map(_near, found)) else MOST
    return found if instructions <= most else []


def _collisions(launch: FinishedRun) -> list[Collision]:
    return [each for each in _raced(launch) if _followable(launch, each)]


def _raced(launch: FinishedRun) -> list[Collision]:
    return [
        each
        for each in (launch.machine.problems if launch.machine else ())
        if isinstance(each, Collision)
        and (each.severity == ERROR or each.noted.case is Detected.MIXED)
        and each.noted.case in (*_GLOBAL, *OF_PRODUCTS)
        and each.rule is each.noted.case.rule  # not a read of an mbarrier
    ]


def seen_elsewhere(launch: FinishedRun, instructions: int) -> bool:
    """Whether races were seen by other processes, which alone have the shadow memory.

    It is of no use to know of them if the launch is too long to be run again.
    """
    watch = None if launch.machine is None else launch.machine.watching
    spread = isinstance(watch, LaunchWatch) and watch.spread
    return spread and instructions <= MOST and bool(_raced(launch))


def judge_elsewhere(
    launch: FinishedRun, whole: FinishedRun, instructions: int, again: Rerun
) -> FinishedRun | None:
    """Like :func:`judge`; ``whole`` is a watched run of it by this process alone."""

    def about(found: Collision) -> tuple[object, ...]:
        return found.rule, found.noted.case, found.site, found.other

    by_place = {about(each): each for each in _raced(whole)}
    found = racy_reads(whole, instructions)
    hidden = judge(whole, found, again) if found else None
    for each in _raced(launch):
        judged = by_place.get(about(each), each)
        each.severity, each.unused = judged.severity, judged.unused
    return hidden


def _certain(launch: FinishedRun, found: list[Collision]) -> set[Place]:
    """The loads of which the text shows that they are used."""
    functions = launch.module().functions
    places = {_place(launch, each) for each in found}
    return {
        (of, at)
        for of, at in places
        if functions[of].instructions[at].opcode in LOADS | ROW_LOADS
        and at in certain_uses(functions[of])
    }


def _raise_used(launch: FinishedRun, found: list[Collision]) -> None:
    """Make errors of notes about loads that are used."""
    used = known_of(launch.compiled).used
    for each in found:
        if each.noted.case is Detected.MIXED and _place(launch, each) in used:
            each.severity = ERROR


def _near(found: Collision) -> bool:
    return found.noted.case.space == "shared"


def _followable(launch: FinishedRun, found: Collision) -> bool:
    reader = reader_of(found.noted)
    if reader is None:  # several groups have read, or both write
        return False
    assert launch.machine is not None
    watch = launch.machine.watching
    assert isinstance(watch, LaunchWatch)
    function, index = place_of(launch, reader.site)
    load = launch.module().functions[function].instructions[index]
    kind = watch.observers[0].order.describe(reader.agent)[0]
    if kind in _PRODUCTS:
        return load.opcode in _PRODUCTS
    if found.noted.case is Detected.OVERWRITE_WHILE_READ:
        return False
    if found.noted.case is Detected.MIXED and optimistic(
        launch.module().functions[function], index
    ):
        return False
    narrow = all(map(can_follow, effects(load).writes))
    return kind == "warp" and load.opcode in LOADS | ROW_LOADS and narrow


def _cluster(found: Collision) -> int:
    """The cluster of the thread that reads."""
    reader = reader_of(found.noted)
    assert reader is not None
    return found.story.cluster if _near(found) else reader.group


def _place(launch: FinishedRun, found: Collision) -> Place:
    reader = reader_of(found.noted)
    assert reader is not None
    return place_of(launch, reader.site)


def _writers(launch: FinishedRun) -> Writers:
    """Who wrote what in global memory, for the runs that follow racy reads."""
    assert launch.machine is not None
    watch, shape = launch.machine.watching, launch.machine.launch.shape
    assert isinstance(watch, LaunchWatch)
    memory = watch.memory
    blocks = np.array([shape.members(g) for g in range(memory.groups)])
    # Memory that is never touched costs nothing.
    threads = np.zeros(memory.table.size, np.int64)
    for part in memory.lines:
        groups, agents = memory.table["group"][part], memory.table["agent"][part]
        ranks, numbers = np.divmod(agents.astype(np.int64), shape.warps)
        safe = np.minimum(ranks, blocks.shape[1] - 1)
        found = blocks[groups, safe] * shape.warps + numbers
        threads[part] = np.where(ranks < blocks.shape[1], found + 1, 0)
    return Writers(memory.records, threads, memory.split)


# ── their use ───────────────────────────────────────────────────────────────


def _log(log: ReadLog, machine: Machine) -> None:
    assert isinstance(machine.watching, LaunchWatch)
    machine.watching.reads = log


def _ask(loads: RacyLoads, machine: Machine) -> None:
    assert isinstance(machine.watching, DefinedWatch)
    machine.watching.raced = loads
    loads.follow(machine)


class _Unknown(Exception):
    """A run did not come to its end: what happens then is not known."""


def judge(
    launch: FinishedRun, found: list[Collision], again: Rerun
) -> FinishedRun | None:
    """Make races notes whose reads have no effect.

    If loads that nobody uses hid other races, the run that shows these is returned.
    """
    known = known_of(launch.compiled)
    races = _races(launch, found)
    if not known.due(races):
        _settle(found)
        return None
    count = max(1, known.unused.pop(races, 0))
    judging = _Judge(launch, again, known.used)
    try:
        left = judging.sampled(found)
        hidden = judging.verdict(left) if left else None
    except _Unknown:
        return None
    finally:
        _raise_used(launch, found)
    if hidden is None and all(each.unused for each in found):
        known.unused[races] = count
    return hidden


def _races(launch: FinishedRun, found: list[Collision]) -> object:
    """What launches with the same races have in common."""
    assert launch.machine is not None
    pairs = frozenset(_pair(launch, each) for each in found)
    return pairs, launch.machine.launch.shape


def _settle(unused: list[Collision]) -> None:
    for each in unused:
        each.severity, each.unused = INFO, True


class _Judge:
    """Judges the racy reads of a launch."""

    def __init__(self, launch: FinishedRun, again: Rerun, used: set[Place]) -> None:
        self.launch, self.again = launch, again
        self.used = used
        """The loads that are known to be used."""
        self.writers = _writers(launch)
        self.executions: Executions = {}

    def sampled(self, found: list[Collision]) -> list[Collision]:
        """Run the clusters in which races were seen; those that may not matter.

        What blocks read in global memory depends on those before them.
        """
        far = not all(map(_near, found))
        for last in sorted({_cluster(each) for each in found}):
            here = [each for each in found if _cluster(each) == last]
            places = self._places(here) - self.used
            if not places:
                continue
            part = 0 if far else last, last + 1
            near = self._places([each for each in here if _near(each)]) & places
            self.executions = self._racy(part, wanted=near).racy if near else {}
            self.used |= places - self._unused(places, part)
        self.executions = {}
        return [each for each in found if _place(self.launch, each) not in self.used]

    def verdict(self, found: list[Collision]) -> FinishedRun | None:
        """Change the severities of those that do not matter."""
        if not any(map(_near, found)):
            self._settle(found, self._unused(self._places(found)))
            return None
        seen, unused = self._places(found), set[Place]()
        for _ in range(ROUNDS):
            ignored = self.executions.items()
            log = self._racy(None, {e: n for e, n in ignored if e.place in unused})
            known = self.executions
            new = {
                e: lanes for e, lanes in log.racy.items() if lanes & ~known.get(e, 0)
            }
            if not new:
                self._settle(found, unused)
                assert log.run is not None
                return log.run if self._hidden(log.run) else None
            self.executions |= {e: lanes | known.get(e, 0) for e, lanes in new.items()}
            seen |= {each.place for each in new}
            unused = self._unused(seen - self.used)
            if not unused:
                return None
        raise _Unknown

    def _racy(
        self,
        part: Part,
        ignored: Executions | None = None,
        wanted: Collection[Place] = (),
    ) -> ReadLog:
        """Watch the launch again: which executions of loads race."""
        log = ReadLog(ignored or {}, wanted)
        log.run = self.again.watched(partial(_log, log), part)
        if log.run is None or log.lost:
            raise _Unknown
        return log

    def _places(self, found: list[Collision]) -> set[Place]:
        return {_place(self.launch, each) for each in found}

    def _settle(self, found: list[Collision], unused: set[Place]) -> None:
        _settle([each for each in found if _place(self.launch, each) in unused])
        self.used |= self._places(found) - unused

    def _unused(self, places: set[Place], part: Part = None) -> set[Place]:
        """The loads of which no value has an effect.

        A value that went through memory is not known by the load that it came from.  So
        loads that are known to be used are left out, until nothing has an effect.
        """
        left = set(places)
        while left:
            loads = RacyLoads(left, self.writers, self.executions)
            try:
                run = self.again.followed(partial(_ask, loads), part)
            except Settled:
                return set()
            if run is None:
                raise _Unknown
            used = _used(run, left) | loads.unseen
            if not used:
                return left
            left -= used
        return left

    def _hidden(self, run: FinishedRun) -> list[Collision]:
        """Drop what is known from the problems of a run; the races that are left."""
        assert run.machine is not None
        known = {_pair(self.launch, each) for each in _all(self.launch)}
        problems = run.machine.problems
        problems.drop(
            lambda each: (
                not isinstance(each, Collision)
                or each.noted.case not in OF_PRODUCTS
                or _pair(run, each) in known
            )
        )
        return _all(run)


def _all(launch: FinishedRun) -> list[Collision]:
    assert launch.machine is not None
    return [each for each in launch.machine.problems if isinstance(each, Collision)]


def _pair(launch: FinishedRun, found: Collision) -> tuple[str, Place, Place | None]:
    """What two problems of the same instructions have in common."""
    other = None if found.other is None else place_of(launch, found.other)
    return found.rule.name, place_of(launch, found.site), other


def _used(again: FinishedRun, places: set[Place]) -> set[Place]:
    """The loads whose values had an effect; all of them, if it is not known which."""
    assert again.machine is not None
    slices, used = Slices(again), set()
    for use in again.machine.problems:
        if use.rule == UNINITIALISED:
            used |= slices.origins(use)[0] & places or places
    return used
