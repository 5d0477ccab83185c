"""What happened in a cluster, in order?

An :class:`Observer` notes every event here.  Of a cluster in which a problem was found
the notes are kept: for the words of the report, and for the picture of the launch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

MOST = 20_000
"""Notes of one cluster; what happens later is not noted."""


MOST_KEPT = 3
"""Clusters whose notes are kept, of those that run in one thread of the host."""


class Note(NamedTuple):
    """Something that happened."""

    time: int
    """The number of the event in its cluster."""
    what: str
    """``wait``, ``vain``, ``arrive``, ``phase``, ``copy``, ``done``, ``product`` …"""
    rank: int
    warp: int
    lanes: int
    site: int
    epoch: int
    """Of the warp, for its own accesses."""
    about: tuple[Any, ...]


class History:
    """The notes of the cluster that runs, and those that are kept."""

    def __init__(self) -> None:
        self.notes: list[tuple[Any, ...]] = []
        self.kept: dict[int, list[tuple[Any, ...]]] = {}
        """The notes of clusters with a problem, and of the first one, by number."""

    def begin(self) -> None:
        """A new cluster begins."""
        self.notes = []

    def keep(self, cluster: int, problem: bool) -> None:
        """Keep the notes, if there is a problem in the cluster or it is the first."""
        if (problem and len(self.kept) < MOST_KEPT) or not self.kept:
            self.kept[cluster] = self.notes

    def add(self, *note: Any) -> None:
        """Note something: the fields of a :class:`Note`."""
        if len(self.notes) < MOST:
            self.notes.append(note)

    def told(self) -> list[Note]:
        """The notes of the cluster that runs."""
        return [Note(*each) for each in self.notes]


# ── looking back ────────────────────────────────────────────────────────────


def moment(notes: list[Note], agent: int, rank: int, warp: int, access: Any) -> int:
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
    notes: list[Note], agent: int, access: Any, goal: int
) -> tuple[int, int, int] | None:
    """The rank, the warp and the lanes that issued a copy to the block of a rank."""
    for each in notes:
        if each.what == "copy" and _is(each, agent, access) and goal in each.about[4]:
            return each.rank, each.warp, each.lanes
    return None


def _is(note: Note, agent: int, access: Any) -> bool:
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


class Mark(NamedTuple):
    """A problem in a cluster."""

    rule: str
    severity: str
    site: int
    other: int | None
    block: int
    """The number of the block in the grid."""
    story: Any
    """The two accesses: a ``seen.Story``, or nothing."""


class Recorded(NamedTuple):
    """What happened in one cluster of a launch."""

    cluster: int
    blocks: tuple[tuple[int, int, int], ...]
    """Where its blocks are in the grid, by rank."""
    warps: int
    schedule: str | int
    raw: list[tuple[Any, ...]]
    marks: list[Mark]
    module: Any
    """Gives the module."""
    compiled: Any

    @property
    def notes(self) -> list[Note]:
        """What happened, in order."""
        return [Note(*each) for each in self.raw]
