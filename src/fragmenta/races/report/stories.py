"""What happened before a problem, as far as it explains it.

Compiled code notes who took part in a problem, and no more.  When a cluster ends, the
notes of its events say who had issued a copy, and which waits came before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from fragmenta.races.report.history import Note, issuer, moment, waits_of
from fragmenta.simt.layout import RANK_BITS
from fragmenta.units.findings import Finding

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
    def warps(self) -> list[tuple[int, int]]:
        """The warps that issued it: rank and number of each."""
        if self.kind == "wgmma":
            return [(self.rank, 4 * self.number + i) for i in range(4)]
        if self.kind == "mbarrier":
            return [] if self.issuer is None else [self.issuer[:2]]
        return [(self.rank, self.number)]


class Story(NamedTuple):
    """Who took part in a problem, and what came before."""

    cluster: int
    now: Agent
    before: Agent | None
    wait: Wait | None
    """Of whoever did the later access, for what concerns the earlier one."""


NOBODY = Story(-1, Agent("warp", 0, 0, -1, 0, -1), None, None)


@dataclass
class Collision(Finding):
    """A problem of one access of memory, and mostly of an earlier one."""

    space: str = "shared"
    story: Story = NOBODY
    owner: int = 0
    """The rank of the block whose shared memory it is."""
    first: int = 0
    """The first address."""
    last: int = 0
    """The address after the last."""
    now_write: bool = False
    was_write: bool = False
    same_value: bool = False
    """Whether both wrote the same value."""
    one_store: bool = False
    """Whether both are lanes of one instruction."""
    partly: bool = False
    """Whether a part of what was read was written."""


Key = tuple[int, int, int]


def key(found: Any) -> Key:
    """By what a problem is known."""
    return found.case, found.now.site, -1 if found.before is None else found.before.site


class Seen:
    """The stories of a cluster's problems."""

    def __init__(self, observer: Any) -> None:
        self.observer = observer
        self.stories: dict[Key, Story] = {}
        self._noted = 0

    def keep(self, problem: bool) -> None:
        """Write down the stories of problems that are new.

        ``problem`` says that there are others in the cluster.
        """
        observer = self.observer
        new = observer.watch.noted != self._noted
        self._noted = observer.watch.noted
        found = observer.watch.found() if new else []
        if observer.cluster.alone:  # nothing is noted, and several blocks have run
            numbers = {observer.number_of(each) for each in found} or {0}
            for number in sorted(numbers):
                observer.history.keep(number, True)
        else:
            observer.history.keep(observer.cluster.number, new or problem)
        notes = observer.history.told() if found else []
        for each in found:
            if key(each) not in self.stories:
                self.stories[key(each)] = self._story(each, notes)

    def _story(self, found: Any, notes: list[Note]) -> Story:
        goal = found.first >> RANK_BITS
        now = self.agent(found.now, notes, goal)
        before = None
        if found.before is not None:
            before = self.agent(found.before, notes, goal)
        wait = None if before is None else self._wait(now, before, notes)
        return Story(self.observer.number_of(found), now, before, wait)

    def agent(self, access: Any, notes: list[Note], goal: int) -> Agent:
        """Who did an access of the shared memory of the block with rank ``goal``."""
        watch = self.observer.watch
        kind, rank, number = watch.describe(access.agent)
        time = moment(
            notes, access.agent, rank, number if kind == "warp" else -1, access
        )
        made = Agent(
            kind, rank, number, access.lane, access.epoch, access.site, time=time
        )
        if kind != "mbarrier":
            return made
        offset = self.observer.offsets.get((rank, number))
        return made._replace(
            mbarrier=None if offset is None else (rank, offset),
            issuer=issuer(notes, access.agent, access, goal),
        )

    def _wait(self, now: Agent, before: Agent, notes: list[Note]) -> Wait | None:
        """The last wait on the mbarrier of a copy, or else on any mbarrier."""
        warps = now.warps
        until = now.time if now.time >= 0 else LATEST

        def early(note: Note) -> bool:
            """Whether it came before: one that is enough came too late."""
            if before.kind != "mbarrier" or note.about[2] < before.epoch:
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
        tried = any(each.what == "vain" and each.about == last.about for each in notes)
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
