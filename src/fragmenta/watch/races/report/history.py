"""The history of a cluster: a note for every event that its observer saw.

The notes of a cluster with a problem are kept, for the words of the report and for the
picture of the launch.  Compiled code writes notes, too: :mod:`races.shadow.notes`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.compiled import Compiled, sparse
from fragmenta.engine.simt.context import Grid
from fragmenta.engine.simt.layout import RANK_BITS
from fragmenta.engine.units.findings import Finding
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.engine.units.work import ranks
from fragmenta.ptx.module import Module
from fragmenta.watch.races.shadow import notes as log
from fragmenta.watch.races.shadow.layout import MBARRIERS

WORK = "copy", "product", "tensor", "move"
"""What is in flight after it was noted."""
MOST_KEPT = 3
"""Clusters whose notes are kept, of those that run in one thread of the host."""


class Note(NamedTuple):
    """Something that happened."""

    time: int
    """The number of the event in its cluster."""
    what: str
    """``wait``, ``try`` (a wait that fails), ``arrive``, ``phase``, ``copy``, ``done``,
    ``product``, ``barrier arrive`` …"""
    rank: int
    warp: int
    lanes: int
    site: int
    epoch: int
    """Of the warp, for its own accesses."""
    about: tuple[Any, ...]
    """At an mbarrier: its rank, its offset, the phase.  For work in flight:
    its agents and epochs; for a copy also its number, what it counts at, its bytes, and
    the ranks that it writes to.  For a ``commit``: its mbarrier as above, and the agent
    and the epoch whose work it covers."""


# ── notes in memory ─────────────────────────────────────────────────────────

_NUMBERS = {what: number for number, what in enumerate(log.WHATS)}
_FIRST = struct.Struct("<qiiiIii")
"""A note in memory, without what it is about."""


def _mbarrier(number: int, place: int, phase: int, *_: int) -> tuple[Any, ...]:
    return place >> RANK_BITS, place & (1 << RANK_BITS) - 1, phase


def _product(number: int, agent: int, group: int, *_: int) -> tuple[Any, ...]:
    return [(agent, group)], group


def _copy(
    number: int, agents: int, epoch: int, place: int, moved: int
) -> tuple[Any, ...]:
    """A load that an mbarrier counts in each block; without one, a store in a group.

    A load to several blocks names them in the upper half of its agents; the lower half
    is the agent that block 0 has.

    For ``cp.async``, the place is -2 less the rank.
    """
    first, second = agents & 0xFFFFFFFF, agents >> 32
    if place < -1:
        return [(first, epoch)], number, (), moved, (-2 - place,)
    if place < 0:
        both = [(first, epoch), (second, epoch)]
        return both, number, (), moved, (-1,) if moved else ()
    rank, offset, _ = _mbarrier(number, place, epoch)
    blocks = ranks(int(second)) or [rank]
    who = [(first + each * MBARRIERS * bool(second), epoch) for each in blocks]
    counted = tuple((each, offset, epoch) for each in blocks)
    return who, number, counted, moved, tuple({*blocks})


_ABOUT: dict[str, Callable[..., tuple[Any, ...]]] = {
    "init": _mbarrier,
    "arrive": _mbarrier,
    "wait": _mbarrier,
    "try": _mbarrier,
    "phase": _mbarrier,
    "product": _product,
    "copy": _copy,
    "tensor": lambda _, agent, epoch, *rest: ([(agent, epoch)],),
    "move": lambda _, agent, epoch, *rest: ([(agent, epoch)],),
    "moved": lambda _, agent, until, *rest: (agent, until),
    "commit": lambda _, agent, epoch, place, phase: (
        *_mbarrier(0, place, phase),
        agent,
        epoch,
    ),
    "barrier arrive": lambda _, number, *rest: (number,),
    "barrier": lambda _, number, *rest: (number,),
    "done": lambda _, copy, *rest: (copy,),
    "waited": lambda _, until, how, *rest: (
        "cp.async" if how == log.LANES_WAITED else "bulk",
        until,
        how == 1,
    ),
    "multiplied": lambda _, until, *rest: (until,),
    "cluster arrive": lambda _, phase, *rest: (phase,),
    "cluster wait": lambda _, phase, *rest: (phase,),
}
"""What the numbers mean that compiled code writes, by what is noted.

The first argument is the number of the note."""


class Notes(Sequence[Note]):
    """The notes of one cluster, read from memory when they are needed."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory = memory
        self._count = memory[:8].view(np.int64)
        self._about: dict[int, tuple[Any, ...]] = {}
        """What Python's notes are about, by their number."""
        self._read: list[Note] = []

    def __len__(self) -> int:
        return int(self._count[0])

    @overload
    def __getitem__(self, place: int) -> Note: ...

    @overload
    def __getitem__(self, place: slice) -> list[Note]: ...

    def __getitem__(self, place: int | slice) -> Note | list[Note]:
        return self._all()[place]

    def __iter__(self) -> Iterator[Note]:
        return iter(self._all())

    def __reversed__(self) -> Iterator[Note]:
        return iter(self._all()[::-1])

    def __reduce__(self) -> tuple[type[list[Note]], tuple[list[Note]]]:
        return list, (list(self._all()),)

    def add(self, note: Note) -> None:
        """Add a note, if there is room."""
        count = len(self)
        if count < log.MOST:
            place = log.NOTES_AT + count * log.NOTE.itemsize
            number = _NUMBERS[note.what]
            _FIRST.pack_into(self._memory.data, place, note.time, number, *note[2:7])
            self._about[count] = note.about
            self._count[0] = count + 1

    def freeze(self) -> None:
        """Keep a copy: the memory is used for the next cluster."""
        used = log.NOTES_AT + len(self) * log.NOTE.itemsize
        self._memory = self._memory[:used].copy()
        self._count = self._memory[:8].view(np.int64)

    def _all(self) -> list[Note]:
        known, count = len(self._read), len(self)
        if known < count:
            records = self._memory[log.NOTES_AT :][: count * log.NOTE.itemsize]
            new = records.view(log.NOTE)[known:].tolist()
            self._read += [self._note(known + i, *each) for i, each in enumerate(new)]
        return self._read

    def _note(self, place: int, time: int, what: int, *rest: Any) -> Note:
        *who, numbers = rest
        name, about = log.WHATS[what], self._about.get(place)
        if about is None:
            about = _ABOUT[name](place, *numbers)
        rank, warp, lanes, site, epoch = who
        return Note(time, name, rank, warp, lanes, site, epoch, about)


class History:
    """The notes of the cluster that runs, and those that are kept."""

    def __init__(self) -> None:
        self.memory = self._memory = sparse(log.LOG_BYTES)
        self.notes = Notes(self._memory)
        self.kept: dict[int, Notes] = {}
        """The notes of clusters with a problem, and of the first one, by number."""

    @property
    def address(self) -> int:
        """Where compiled code finds the log."""
        return int(self._memory.ctypes.data)

    @property
    def owner(self) -> int:
        """The block whose notes they are, if blocks run one after the other."""
        return int(self._memory[log.OWNER :][:8].view(np.int64)[0])

    def begin(self) -> None:
        """A new cluster begins."""
        if any(each is self.notes for each in self.kept.values()):
            self.notes.freeze()
        self._memory[:8] = 0
        self.notes = Notes(self._memory)

    def renewed(self, resets: ResetSchedule) -> None:
        """Tell that the log of a cluster is empty when it begins."""
        resets.clear(self._memory[:8])

    def keep(self, cluster: int, problem: bool, wanted: bool = False) -> None:
        """Keep the notes, if there is a problem, or if they are wanted or the first."""
        if (problem and len(self.kept) < MOST_KEPT) or wanted or not cluster:
            self.kept[cluster] = self.notes

    def keep_alone(self, wrong: set[int]) -> None:
        """Keep the notes of the one block that has them, after others have run.

        It is the first in which something is wrong, or else the last.
        """
        for number in sorted(wrong)[:MOST_KEPT]:
            self.kept[number] = Notes(np.zeros(log.NOTES_AT, np.uint8))
        head = self._memory[: log.NOTES_AT].view(np.int64)
        if head[log.ENDED // 8]:
            head[log.COUNT // 8] = head[log.ENDED // 8] - 1
        self.notes = Notes(self._memory)
        self.kept[self.owner] = self.notes

    def add(self, note: Note) -> None:
        """Add a note, if there is room."""
        self.notes.add(note)


# ── looking back ────────────────────────────────────────────────────────────


class TimedAccess(Protocol):
    """An access, by where and when it was made."""

    @property
    def site(self) -> int:
        """Its instruction."""

    @property
    def epoch(self) -> int:
        """The epoch of its agent."""


def moment(
    notes: Sequence[Note], agent: int, rank: int, warp: int, access: TimedAccess
) -> int:
    """The time of an access: of its issue, or after the last event of its warp.

    ``warp`` is -1 for an agent that is no warp.  The time is -1 if it is not known.
    """
    found = -1
    for each in notes:
        if warp < 0:
            if each.what in WORK and _is(each, agent, access):
                return each.time
        elif (each.rank, each.warp) == (rank, warp) and each.epoch <= access.epoch:
            found = each.time
    return found


def issuer(
    notes: Sequence[Note], agent: int, access: TimedAccess, goal: int
) -> tuple[int, int, int] | None:
    """The rank, the warp and the lanes that issued a copy to the block of a rank."""
    for each in notes:
        if each.what == "copy" and _is(each, agent, access) and goal in each.about[4]:
            return each.rank, each.warp, each.lanes
    return None


def _is(note: Note, agent: int, access: TimedAccess) -> bool:
    """Whether a note is about the work that an access belongs to."""
    return note.site == access.site and (agent, access.epoch) in note.about[0]


def waits_of(
    notes: Sequence[Note],
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
    notes: Sequence[Note]
    """What happened, in order."""
    problems: list[Finding]
    module: Callable[[], Module]
    compiled: Compiled
    members: tuple[int, ...] = ()
    """The numbers of its blocks in the grid, by rank."""
    shape: Grid | None = None
    """The shape of the launch."""
