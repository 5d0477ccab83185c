"""The history of a cluster: a note for every event that its observer saw.

The notes of a cluster with a problem are kept, for the words of the report and for the
picture of the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from fragmenta.ptx.module import Module
from fragmenta.simt.compiled import Compiled
from fragmenta.units.findings import Finding

MOST = 20_000
"""Notes of one cluster; what happens later is not noted."""


MOST_KEPT = 3
"""Clusters whose notes are kept, of those that run in one thread of the host."""


class Note(NamedTuple):
    """Something that happened."""

    time: int
    """The number of the event in its cluster."""
    what: str
    """``wait``, ``try`` (a wait that fails), ``arrive``, ``phase``, ``copy``, ``done``,
    ``product`` …"""
    rank: int
    warp: int
    lanes: int
    site: int
    epoch: int
    """Of the warp, for its own accesses."""
    about: tuple[Any, ...]
    """At an mbarrier: its rank, its offset, the phase.  For work in flight:
    its agents and epochs; for a copy also its number, what it counts at, its bytes, and
    the ranks that it writes to."""


class History:
    """The notes of the cluster that runs, and those that are kept."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.kept: dict[int, list[Note]] = {}
        """The notes of clusters with a problem, and of the first one, by number."""

    def begin(self) -> None:
        """A new cluster begins."""
        self.notes = []

    def keep(self, cluster: int, problem: bool) -> None:
        """Keep the notes, if there is a problem in the cluster or it is the first."""
        if (problem and len(self.kept) < MOST_KEPT) or not self.kept:
            self.kept[cluster] = self.notes

    def add(self, note: Note) -> None:
        """Add a note, if there is room."""
        if len(self.notes) < MOST:
            self.notes.append(note)


# ── looking back ────────────────────────────────────────────────────────────


class Access(Protocol):
    """An access, by where and when it was made."""

    @property
    def site(self) -> int:
        """Its instruction."""

    @property
    def epoch(self) -> int:
        """The epoch of its agent."""


def moment(notes: list[Note], agent: int, rank: int, warp: int, access: Access) -> int:
    """The time of an access: of its issue, or after the last event of its warp.

    ``warp`` is -1 for an agent that is no warp.  The time is -1 if it is not known.
    """
    found = -1
    for each in notes:
        if warp < 0:
            if each.what in ("copy", "product", "tensor") and _is(each, agent, access):
                return each.time
        elif (each.rank, each.warp) == (rank, warp) and each.epoch <= access.epoch:
            found = each.time
    return found


def issuer(
    notes: list[Note], agent: int, access: Access, goal: int
) -> tuple[int, int, int] | None:
    """The rank, the warp and the lanes that issued a copy to the block of a rank."""
    for each in notes:
        if each.what == "copy" and _is(each, agent, access) and goal in each.about[4]:
            return each.rank, each.warp, each.lanes
    return None


def _is(note: Note, agent: int, access: Access) -> bool:
    """Whether a note is about the work that an access belongs to."""
    return note.site == access.site and (agent, access.epoch) in note.about[0]


def waits_of(
    notes: list[Note],
    warps: list[tuple[int, int]],
    until: int,
    mbarrier: tuple[int, int] | None,
) -> list[Note]:
    """The waits of some warps until a time, on one mbarrier or on any."""
    return [
        each
        for each in notes
        if each.what == "wait"
        and each.time <= until
        and (each.rank, each.warp) in warps
        and (mbarrier is None or each.about[:2] == mbarrier)
    ]


# ── what a launch keeps ─────────────────────────────────────────────────────


class Recorded(NamedTuple):
    """The history of one cluster of a launch, with the problems that it had."""

    cluster: int
    blocks: tuple[tuple[int, int, int], ...]
    """Where its blocks are in the grid, by rank."""
    warps: int
    schedule: str | int
    notes: list[Note]
    """What happened, in order."""
    problems: list[Finding]
    module: Callable[[], Module]
    compiled: Compiled
