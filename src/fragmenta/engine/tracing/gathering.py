"""Gathers what units and barriers did into the record of a launch.

Machine code writes notes of it (:mod:`fragmenta.engine.tracing.code.notes`), and the
recorder hears of what Python carries out.  Both are kept as they are while the launch
runs, and read in the order in which it happened when somebody asks for the record.
"""

from __future__ import annotations

from collections import deque

from fragmenta.engine.tracing.effect_records import Reader
from fragmenta.engine.tracing.holding import put_where_held
from fragmenta.engine.tracing.log import Words
from fragmenta.engine.tracing.trace import (
    CopiedBytes,
    Late,
    Mark,
    Moved,
    PythonCall,
    Trace,
    Unit,
    Wait,
)

WARPS = 4
"""Warps of a warpgroup."""
_COMMITTED = ("tcgen05.mma", "tcgen05.cp", "tcgen05.shift")


class Gathering:
    """What is known so far, while a record is gathered."""

    def __init__(self, told: Trace) -> None:
        self.told = told
        self._units: dict[int, Unit] = {}
        """The units of the present cluster: those of machine code by their ordinals."""
        self._open: list[Unit] = []
        """Units that nobody has waited for."""
        self._phases: dict[tuple[int, int], int] = {}
        """The phases of mbarriers."""

    def at(self, time: int, step: int) -> None:
        """An event, by its number in the cluster, and the step at which it was."""
        times = self.told.times
        if not times or times[-1][0] != time:
            times.append((time, step))

    def ended(self) -> None:
        """The cluster has ended."""
        self._units.clear()
        self._open.clear()
        self._phases.clear()

    # ── units ───────────────────────────────────────────────────────────────

    def phase(self, block: int, offset: int) -> int:
        """The phase of an mbarrier."""
        return self._phases.get((block, offset), 0)

    def issued(self, key: int, made: Unit) -> None:
        """Work is in flight from now on."""
        made.number = len(self.told.units)
        made.bytes = sum(each.size * len(each.starts) for each in made.goals)
        if made.kind == "tcgen05.commit":
            self._commit(made)
        self.told.units.append(made)
        self._units[key] = made
        self._open.append(made)

    def _commit(self, commit: Unit) -> None:
        """What a thread has issued to the Tensor Cores is signalled by its commit."""
        for each in self._open:
            mine = each.warp == commit.warp and each.lanes == commit.lanes
            if mine and not each.signals and each.kind in _COMMITTED:
                each.signals = commit.signals

    def _number(self, key: int) -> int:
        found = self._units.get(key)
        return -1 if found is None else found.number

    def moved(self, key: int, moved: list[Moved]) -> None:
        """A unit has read or written bytes; -1: it was no unit."""
        number = self._number(key)
        self.told.moved += [(number, each) for each in moved]

    def copied(self, key: int, copied: list[CopiedBytes]) -> None:
        """A unit has copied bytes."""
        number = self._number(key)
        self.told.copied += [(number, each) for each in copied if number >= 0]

    def done(self, key: int, step: int) -> None:
        """A unit has written its results."""
        if key in self._units:
            self._units[key].done = step

    def late(self, key: int, step: int, site: int, warp: int, words: Words) -> None:
        """A unit has written registers of a warp, or has hidden them."""
        self.told.late.append(Late(step, site, self._number(key), warp, words))

    # ── barriers ────────────────────────────────────────────────────────────

    def mark(self, mark: Mark) -> None:
        """Something happened at a barrier."""
        if mark.kind == "mbarrier":
            self._phases[mark.block, mark.offset] = mark.phase
        self.told.marks.append(mark)

    def waited(self, wait: Wait) -> None:
        """Lanes have waited for something."""
        now, until, warp = wait.step, wait.until, wait.warp
        if wait.block >= 0:
            self.mark(Mark(now, "wait", wait.block, wait.offset, until, 0, 0, warp))
        elif wait.done_by == "cluster":
            self.mark(Mark(now, "cluster wait", -1, 0, until, 0, 0, warp))
        left = []
        for each in self._taken(wait):
            each.taken = now
        for each in self._open:
            if self._is_over(each, wait):
                each.waited = now
            else:
                left.append(each)
        self._open = left

    def _taken(self, wait: Wait) -> list[Unit]:
        """The units whose sources have been read by a wait that waits for no more."""
        if not wait.read:
            return []
        return [
            each
            for each in self._open
            if (each.done_by, each.warp) == (wait.done_by, wait.warp)
            and each.group < wait.until
            and each.done < 0
            and each.taken < 0
        ]

    def _is_over(self, unit: Unit, wait: Wait) -> bool:
        """Whether a wait is one for a unit."""
        if wait.block >= 0:
            place = wait.block, wait.offset
            return any(
                each[:2] == place and each[2] <= wait.until for each in unit.signals
            )
        if unit.done_by != wait.done_by or wait.read:
            return False
        if wait.done_by == "wgmma_group":
            same = self._warpgroup(unit.warp) == self._warpgroup(wait.warp)
            return same and unit.group < wait.until
        return unit.warp == wait.warp and (unit.group < wait.until or unit.group < 0)

    def _warpgroup(self, warp: int) -> tuple[int, int]:
        """The block of a warp, and its warpgroup there."""
        place, own = self.told.warps[warp]
        return place, own // WARPS


def gather(told: Trace) -> None:
    """Read what was noted and heard, if that was not done before."""
    raw, told.raw = told.raw, None
    if raw is None:
        return
    gathering = Gathering(told)
    reader = Reader(raw.known, gathering)
    left = deque(raw.heard)

    def hear(until: int | None) -> None:
        """What Python did before a note of machine code."""
        while left and (until is None or left[0].note <= until):
            each: PythonCall = left.popleft()
            getattr(gathering, each.name)(*each.given)

    for notes in raw.notes:
        for number in range(len(notes.rows)):
            hear(notes.base + number)
            reader.read(notes, number)
    hear(None)
    put_where_held(told)
