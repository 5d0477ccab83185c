"""Stories of problems: who took part, and which waits came before.

Compiled code notes the two accesses of a problem.  When a cluster ends, the notes of
its events add who had issued a copy, and which waits came before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt.layout import RANK_BITS
from fragmenta.engine.units.findings import Finding
from fragmenta.ptx.ordering import Scope
from fragmenta.watch.races.report.history import Note, issuer, moment, waits_of
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.detected import Detected
from fragmenta.watch.races.shadow.problem_table import DetectedProblem, Moment

if TYPE_CHECKING:
    from fragmenta.watch.races.observer import Observer

LATEST = 1 << 62


class Wait(NamedTuple):
    """The last wait for an mbarrier before an access."""

    rank: int
    offset: int
    """Where the mbarrier is."""
    phase: int
    site: int
    warps: tuple[int, ...]
    lanes: int
    at_once: bool
    """Whether the phase was over when it was first asked for."""
    arrival: int = -1
    """Where those of the earlier access arrived in that phase, after the access.

    -1: they did not.
    """


class Agent(NamedTuple):
    """Who did something."""

    kind: str
    rank: int
    number: int
    """Of the warp, the warpgroup or the mbarrier."""
    lane: int
    epoch: int
    site: int
    mbarrier: tuple[int, int] | None = None
    """The mbarrier that counts a copy: rank and offset."""
    issuer: tuple[int, int, int] | None = None
    """Rank, warp and lanes of who issued a copy."""
    time: int = -1
    """When: the number of the event."""
    block: int = -1
    """Its block in the grid, if that is not one of the same cluster."""

    @property
    def is_copy(self) -> bool:
        """Whether it is a copy that an mbarrier counts."""
        return self.kind == layout.COUNTED

    @property
    def warps(self) -> list[tuple[int, int]]:
        """The warps that issued it: rank and number of each."""
        if self.kind == layout.WARPGROUP:
            return [(self.rank, 4 * self.number + i) for i in range(4)]
        if self.is_copy:
            return [] if self.issuer is None else [self.issuer[:2]]
        return [(self.rank, self.number)]


class Narrow(NamedTuple):
    """A release that was read by a thread that it does not reach, or the reverse."""

    release: int
    """The site of the write."""
    given: Scope
    """Its scope, or that of the fence before it."""
    acquire: int
    """The site of the read."""
    taken: Scope
    needed: Scope


class ProblemContext(NamedTuple):
    """Who took part in a problem, and what came before."""

    cluster: int
    now: Agent
    before: Agent | None
    wait: Wait | None
    """The last wait before the later access that the earlier one depends on."""
    narrow: Narrow | None = None
    """Scopes that were too small to order the two."""
    own_wait: int = -1
    """Where those who issued the earlier work waited for it, before the later access;
    -1 if they did not."""
    surplus: int = 0
    """Bytes that the mbarrier of the earlier copy got, and nobody expected."""
    handed: tuple[int, int] = (-1, -1)
    """An arrival after the earlier access and a wait for its phase before the later
    one, which did not order the two; -1 for a part that threads had no part in."""


@dataclass(kw_only=True)
class Collision(Finding):
    """A problem of one access of memory, and mostly of an earlier one."""

    noted: DetectedProblem
    """What the race detector noted."""
    story: ProblemContext
    unused: bool = False
    """Whether nobody uses the value that was read."""

    @property
    def owner(self) -> int:
        """The rank of the block whose shared memory it is."""
        return self.noted.first >> RANK_BITS


def context_of(found: Finding) -> ProblemContext | None:
    """The story of a problem of two accesses; None for other problems."""
    return found.story if isinstance(found, Collision) else None


class ContextFinder:
    """The stories of the problems of a cluster in shared memory."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._stories: dict[tuple[Detected, int, int], ProblemContext] = {}
        self._used = self._count = 0

    def of(self, problem: DetectedProblem) -> ProblemContext:
        """The story of a problem."""
        return self._stories[problem.key]

    def keep(self, problem: bool) -> None:
        """Keep the stories of problems that are new.

        ``problem`` says that there are others in the cluster.
        """
        observer = self.observer
        found = self._new()
        history, alone = observer.history, observer.cluster.alone
        if alone:  # several blocks have run, and one of them has notes
            history.keep_alone({observer.number_of(each.now.group) for each in found})
        else:
            number = observer.cluster.number
            tracer = observer.machine.tracer
            chosen = tracer is not None and tracer.chosen(number)
            history.keep(number, bool(found) or problem, chosen)
        for each in found:
            if each.key not in self._stories:
                number = observer.number_of(each.now.group)
                notes = history.kept.get(number, ()) if alone else history.notes
                self._stories[each.key] = self._story(each, notes)

    def _new(self) -> list[DetectedProblem]:
        """All problems, if there are more than before; otherwise none."""
        used, found = self.observer.problems.used, []
        if used != self._used:
            self._used, found = used, self.observer.shared.found()
        if len(found) <= self._count:
            return []
        self._count = len(found)
        return found

    def _story(self, found: DetectedProblem, notes: Sequence[Note]) -> ProblemContext:
        goal = found.first >> RANK_BITS
        now = self.agent(found.now, notes, goal)
        before = None
        if found.before is not None:
            before = self.agent(found.before, notes, goal)
        number = self.observer.number_of(found.now.group)
        if before is None:
            return ProblemContext(number, now, None, None)
        return ProblemContext(
            number,
            now,
            before,
            self._wait(now, before, notes),
            own_wait=_own_wait(now, before, notes),
            handed=_handed(now, before, notes),
        )

    def agent(self, access: Moment, notes: Sequence[Note], goal: int) -> Agent:
        """Who did an access of the shared memory of the block with rank ``goal``."""
        kind, rank, number = self.observer.order.describe(access.agent)
        time = moment(
            notes, access.agent, rank, number if kind == "warp" else -1, access
        )
        made = Agent(
            kind, rank, number, access.lane, access.epoch, access.site, time=time
        )
        if not made.is_copy:
            return made
        offset = self.observer.mbarrier_clocks.offset(rank, number)
        return made._replace(
            mbarrier=None if offset is None else (rank, offset),
            issuer=issuer(notes, access.agent, access, goal),
        )

    def _wait(self, now: Agent, before: Agent, notes: Sequence[Note]) -> Wait | None:
        """The last wait on the mbarrier of a copy, or else on any mbarrier."""
        warps = now.warps
        until = now.time if now.time >= 0 else LATEST

        def early(note: Note) -> bool:
            """Whether it is too early a wait to order the two accesses."""
            if not before.is_copy or note.about[2] < before.epoch:
                return True
            return now.kind == "warp" and not note.lanes >> max(0, now.lane) & 1

        waits = [
            each
            for each in waits_of(notes, warps, until, before.mbarrier)
            if early(each)
        ]
        if not waits:
            return None
        last = waits[-1]
        alike = [each for each in waits if each.about == last.about]
        lanes = 0
        for each in alike:
            lanes |= each.lanes
        tried = any(each.what == "try" and each.about == last.about for each in notes)
        arrived = [
            each.site
            for each in notes
            if each.what == "arrive"
            and each.about == last.about
            and each.time > before.time
            and (each.rank, each.warp) in before.warps
        ]
        numbers = tuple(sorted({each.warp for each in alike}))
        rank, offset, phase = last.about
        arrival = arrived[-1] if arrived else -1
        return Wait(rank, offset, phase, last.site, numbers, lanes, not tried, arrival)


def _own_wait(now: Agent, before: Agent, notes: Sequence[Note]) -> int:
    """The wait of the thread that issued the earlier work, if it came in between."""
    kind = before.kind.partition("-")[0]
    if (now.rank, now.warps, now.lane) == (before.rank, before.warps, before.lane):
        return -1  # a wait of its own would be enough
    found = [
        each.site
        for each in notes
        if each.what == "waited"
        and each.about[0] == kind
        and each.about[1] > before.epoch
        and (before.kind != "bulk-write" or not each.about[2])
        and (each.rank, each.warp) == (before.rank, before.number)
        and before.time < each.time <= now.time
    ]
    return found[0] if found else -1


def _handed(now: Agent, before: Agent, notes: Sequence[Note]) -> tuple[int, int]:
    """An arrival and a wait at one phase of an mbarrier between two accesses."""
    until = now.time if now.time >= 0 else LATEST
    waits = {
        each.about: each.site
        for each in waits_of(notes, now.warps, until, None)
        if now.lane < 0 or each.lanes >> now.lane & 1
    }
    if before.is_copy and before.mbarrier is not None:
        return -1, waits.get((*before.mbarrier, before.epoch), -1)
    if before.kind != "warp":
        return -1, -1
    for each in notes:
        mine = (each.rank, each.warp) in before.warps and each.time > before.time
        if each.what == "arrive" and mine and each.about in waits:
            return each.site, waits[each.about]
    return -1, -1
