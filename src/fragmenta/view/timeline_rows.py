"""The rows of a timeline: what each warp and unit did, as bars over time.

Time is counted in events.  A warp has a row with its waits and arrivals; copies have
rows with their time from issue to completion; so have the products of a warpgroup, and
the phases of an mbarrier.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

from fragmenta.arrays.lazy_dataclass import dataclass
from fragmenta.races.report.history import Note, Recorded, moment
from fragmenta.races.report.stories import Agent
from fragmenta.simt.naming import Names

MOST_COPIES = 10
"""The most rows of copies; further copies are drawn in the last one."""

Key = tuple[str, int, int]
"""The kind of a row, its rank, and its number."""

Awaited = tuple[bool, tuple[object, ...]]
"""Whether a wait is for the cluster's barrier, and what else it is for."""


class Bar(NamedTuple):
    """Something that takes time."""

    start: int
    end: int
    style: str
    """``wait``, ``copy``, ``product``, ``even`` or ``odd``."""
    label: str
    title: str
    open: bool = False
    """Whether it had not ended when the recording ended."""


class Tick(NamedTuple):
    """Something that happens at one time."""

    time: int
    style: str
    """``arrive``, ``issue`` or ``event``."""
    title: str


@dataclass
class Row:
    """One line of the picture."""

    key: Key
    title: str
    bars: list[Bar] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)


@dataclass
class Band:
    """The rows of one block."""

    title: str
    rows: list[Row]


class Point(NamedTuple):
    """The row and the time of one access of a problem."""

    key: Key
    time: float


class ClusterRows:
    """The rows of the timeline of a cluster."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded, self.notes = recorded, recorded.notes
        self.names = Names(recorded.module(), recorded.compiled)
        self.last = max((each.time for each in self.notes), default=0) + 1
        self._warps: dict[tuple[int, int], Row] = {}
        self._copies: dict[int, Key] = {}
        """The row of each copy, by its number."""
        self.bands = [self._band(rank) for rank in range(len(recorded.blocks))]

    # ── rows ────────────────────────────────────────────────────────────────

    def _band(self, rank: int) -> Band:
        place = ", ".join(map(str, self.recorded.blocks[rank]))
        rows = [self._warp(rank, number) for number in range(self.recorded.warps)]
        rows += self._copy_rows(rank)
        rows += self._product_rows(rank)
        rows += self._mbarrier_rows(rank)
        return Band(f"block ({place})", rows)

    def _warp(self, rank: int, number: int) -> Row:
        row = Row(("warp", rank, number), f"warp {number}")
        begun: dict[Awaited, Note] = {}
        for each in self.notes:
            if (each.rank, each.warp) != (rank, number):
                continue
            if each.what in ("try", "cluster arrive"):
                begun.setdefault(_awaited(each), each)
            elif each.what in ("wait", "cluster wait"):
                first = begun.pop(_awaited(each), None)
                if first is not None:
                    row.bars.append(self._waiting(first, each.time))
            tick = self._tick(each)
            if tick is not None:
                row.ticks.append(tick)
        for each in begun.values():
            if each.what == "try":
                row.bars.append(self._waiting(each, self.last, True))
        return row

    def _waiting(self, first: Note, end: int, unended: bool = False) -> Bar:
        if first.what == "cluster arrive":
            label = "cluster barrier"
        else:
            _, offset, phase = first.about
            label = f"{self._name(offset)} {phase}"
        title = f"waits for {label}, {self.names.place(first.site)}"
        return Bar(first.time, end, "wait", label, title, unended)

    def _tick(self, note: Note) -> Tick | None:
        where = self.names.place(note.site)
        match note.what:
            case "arrive":
                _, offset, phase = note.about
                what = f"arrives at {self._name(offset)}, phase {phase}"
                return Tick(note.time, "arrive", f"{what}, {where}")
            case "copy":
                return Tick(note.time, "issue", f"issues a copy, {where}")
            case "product":
                return Tick(note.time, "issue", f"issues a wgmma, {where}")
            case "try" | "cluster arrive":
                return None
        return Tick(note.time, "event", f"{self.names.mnemonic(note.site)}, {where}")

    def _name(self, offset: int) -> str:
        return self.names.shared(offset) or f"{offset:#x}"

    def _copy_rows(self, rank: int) -> list[Row]:
        ends = {e.about[0]: e.time for e in self.notes if e.what == "done"}
        rows: list[Row] = []
        free: list[int] = []
        for each in self.notes:
            if each.what != "copy" or each.rank != rank:
                continue
            number, counted, size = each.about[1:4]
            end = ends.get(number, self.last)
            index = next((i for i, t in enumerate(free) if t < each.time), len(free))
            index = min(index, MOST_COPIES - 1)
            if index == len(free):
                rows.append(Row(("copy", rank, index), "copies"))
                free.append(0)
            free[index] = max(free[index], end)
            self._copies[number] = rows[index].key
            label, title = self._copy_words(each, counted, size)
            bar = Bar(each.time, end, "copy", label, title, number not in ends)
            rows[index].bars.append(bar)
        return rows

    def _copy_words(
        self, note: Note, counted: Sequence[tuple[int, int, int]], size: int
    ) -> tuple[str, str]:
        what = self.names.mnemonic(note.site)
        for_whom = ""
        if counted:
            _, offset, phase = counted[0]
            for_whom = f" {self._name(offset)} {phase}"
        where = self.names.place(note.site)
        title = f"{what} of warp {note.warp}, {size:,} bytes,{for_whom} {where}"
        return for_whom.strip() or f"{size:,} B", title

    def _product_rows(self, rank: int) -> list[Row]:
        rows: dict[int, Row] = {}
        waits: dict[int, list[Note]] = {}
        for each in self.notes:
            if each.what == "multiplied" and each.rank == rank:
                waits.setdefault(each.warp, []).append(each)
        for each in self.notes:
            if each.what != "product" or each.rank != rank:
                continue
            warpgroup, group = each.warp // 4, each.about[1]
            key = ("wgmma", rank, warpgroup)
            row = rows.setdefault(warpgroup, Row(key, f"wgmma {warpgroup}"))
            members = range(4 * warpgroup, 4 * warpgroup + 4)
            ends = [_waited(waits.get(each, []), group, self.last) for each in members]
            title = f"wgmma of group {group}, {self.names.place(each.site)}"
            end = max(ends)
            row.bars.append(
                Bar(each.time, end, "product", str(group), title, end == self.last)
            )
        return [rows[each] for each in sorted(rows)]

    def _mbarrier_rows(self, rank: int) -> list[Row]:
        rows: dict[int, Row] = {}
        begun: dict[int, tuple[int, int]] = {}
        for each in self.notes:
            if each.what == "init" and each.rank == rank:
                begun[each.about[1]] = (each.time, 0)
            if each.what == "phase" and each.rank == rank:
                offset, phase = each.about[1:]
                start, number = begun.get(offset, (0, 0))
                rows.setdefault(offset, self._mbarrier(rank, offset)).bars.append(
                    _phase(start, each.time, number)
                )
                begun[offset] = (each.time, phase)
        for offset, (start, number) in begun.items():
            row = rows.setdefault(offset, self._mbarrier(rank, offset))
            row.bars.append(_phase(start, self.last, number, True))
        return [rows[each] for each in sorted(rows)]

    def _mbarrier(self, rank: int, offset: int) -> Row:
        return Row(("mbarrier", rank, offset), self._name(offset))

    # ── problems ────────────────────────────────────────────────────────────

    def point(self, agent: Agent | None) -> Point | None:
        """The place of an access in the picture."""
        if agent is None:
            return None
        if agent.kind == "warp":
            time = agent.time
            if time < 0:
                time = moment(self.notes, 0, agent.rank, agent.number, agent)
            return Point(("warp", agent.rank, agent.number), max(time, 0) + 0.5)
        for each in self.notes:
            same = each.site == agent.site and each.time == agent.time
            if same and each.what == "product":
                return Point(("wgmma", agent.rank, agent.number), each.time)
            if same and each.what == "copy":
                return Point(self._copies[each.about[1]], each.time)
        return None


def _waited(waits: list[Note], group: int, never: int) -> int:
    """The time when a warp's wait for a group of products ended."""
    index = bisect_left(waits, group + 1, key=lambda each: each.about[0])
    return waits[index].time if index < len(waits) else never


def _awaited(note: Note) -> Awaited:
    return note.what.startswith("cluster"), note.about


def _phase(start: int, end: int, number: int, unended: bool = False) -> Bar:
    style = "odd" if number % 2 else "even"
    return Bar(start, end, style, str(number), f"phase {number}", unended)
