"""The rows of a timeline: what each warp and unit did, as bars over time.

Time is counted in events.  A warp has a row with its waits and arrivals; copies have
rows with their time from issue to completion; so have the products of a warpgroup, the
work on tensor memory, and the phases of an mbarrier.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import NamedTuple

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt.naming import KernelNames
from fragmenta.watch.races.report.history import Note, Recorded, moment
from fragmenta.watch.races.report.problem_context import Agent
from fragmenta.watch.races.shadow.layout import COMMITTED, COUNTED, WARPGROUP

MOST_PACKED = 10
"""The most rows of copies; further copies are drawn in the last one."""

Key = tuple[str, int, int]
"""The kind of a row, its rank, and its number."""

Awaited = tuple[str, tuple[object, ...]]
"""What ends a wait, and what it is about."""

_BEGINS = {"try": "wait", "cluster arrive": "cluster wait", "barrier arrive": "barrier"}
"""Notes that begin a wait, and those that end it."""


class Bar(NamedTuple):
    """Something that takes time."""

    start: int
    end: int
    style: str
    """``wait``, ``barrier``, ``copy``, ``product``, ``tensor``, ``even`` or ``odd``."""
    label: str
    title: str
    open: bool = False
    """Whether it had not ended when the recording ended."""
    sure: int = -1
    """When somebody knew that it had ended; -1 if that is its end."""


class Tick(NamedTuple):
    """Something that happens at one time."""

    time: int
    style: str
    """``arrive``, ``issue`` or ``event``."""
    title: str


@dataclass
class TimelineRow:
    """One line of the picture."""

    key: Key
    title: str
    bars: list[Bar] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)


@dataclass
class Band:
    """The rows of one block."""

    title: str
    rows: list[TimelineRow]


class Point(NamedTuple):
    """The row and the time of one access of a problem."""

    key: Key
    time: float
    work: int = -1
    """The number of the note of work in flight; -1 for what a warp did itself."""


class WorkBar(NamedTuple):
    """Work in flight: its row, and its bar there."""

    key: Key
    bar: Bar


class _Packed:
    """Rows for work of one kind: each piece in the first row that is free."""

    def __init__(self, kind: str, rank: int, title: str) -> None:
        self.kind, self.rank, self.title = kind, rank, title
        self.rows: list[TimelineRow] = []
        self._free: list[int] = []

    def add(self, bar: Bar) -> Key:
        """Add a piece; the key of its row."""
        end = max(bar.end, bar.sure)
        free = (i for i, until in enumerate(self._free) if until < bar.start)
        index = min(next(free, len(self._free)), MOST_PACKED - 1)
        if index == len(self.rows):
            self.rows.append(TimelineRow((self.kind, self.rank, index), self.title))
            self._free.append(0)
        self._free[index] = max(self._free[index], end)
        self.rows[index].bars.append(bar)
        return self.rows[index].key


class _Ends:
    """What ends work: waits, commits and phases, by what they are about."""

    def __init__(self, notes: Sequence[Note]) -> None:
        self._found: dict[object, list[tuple[int, int]]] = {}
        for index, each in enumerate(notes):
            known = _ended(each)
            if known is not None:
                about, until = known
                self._found.setdefault(about, []).append((index, until))

    def first(self, about: object, after: int, least: int) -> int | None:
        """The first note after another that ends what comes before ``least + 1``."""
        found = self._found.get(about, [])
        for index, until in found[bisect_left(found, (after, 0)) :]:
            if until > least:
                return index
        return None


def _ended(note: Note) -> tuple[object, int] | None:
    """What a note is the end of, and up to which epoch or phase."""
    about = note.about
    match note.what:
        case "wait":
            return ("wait", *about[:2]), about[2] + 1
        case "phase":
            return ("phase", *about[:2]), about[2]
        case "waited":
            return (about[0], note.rank, note.warp), about[1]
        case "moved":
            return ("moved", about[0]), about[1]
        case "commit":
            return ("commit", about[3]), about[4] + 1
    return None


class ClusterRows:
    """The rows of the timeline of a cluster."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded, self.notes = recorded, recorded.notes
        self.names = KernelNames(recorded.module(), recorded.compiled)
        self.last = max((each.time for each in self.notes), default=0) + 1
        acts = max((e.time for e in self.notes if e.warp >= 0), default=0)
        behind = [each.time for each in self.notes if each.time > acts]
        self.ended = min(behind, default=self.last)
        """When all threads had ended; what is in flight is done then."""
        self._ends = _Ends(self.notes)
        self.works: dict[int, WorkBar] = {}
        """Work in flight, by the number of its note."""
        self.bands = [self._band(rank) for rank in range(len(recorded.blocks))]

    # ── rows ────────────────────────────────────────────────────────────────

    def _band(self, rank: int) -> Band:
        place = ", ".join(map(str, self.recorded.blocks[rank]))
        rows = [self._warp(rank, number) for number in range(self.recorded.warps)]
        rows += self._copy_rows(rank)
        rows += self._product_rows(rank)
        rows += self._tensor_rows(rank)
        rows += self._mbarrier_rows(rank)
        return Band(f"block ({place})", rows)

    def _warp(self, rank: int, number: int) -> TimelineRow:
        row = TimelineRow(("warp", rank, number), f"warp {number}")
        begun: dict[Awaited, Note] = {}
        for each in self.notes:
            if (each.rank, each.warp) != (rank, number):
                continue
            ending = _BEGINS.get(each.what)
            if ending is not None and self._waits(each):
                begun.setdefault((ending, each.about), each)
            elif each.what in _BEGINS.values():
                first = begun.pop((each.what, each.about), None)
                if first is not None:
                    row.bars.append(self._waiting(first, each.time))
            tick = self._tick(each)
            if tick is not None:
                row.ticks.append(tick)
        for each in begun.values():
            if each.what != "cluster arrive":
                row.bars.append(self._waiting(each, self.last, True))
        return row

    def _waits(self, note: Note) -> bool:
        """Whether lanes wait from this note on: not at ``bar.arrive``."""
        if note.what != "barrier arrive":
            return True
        return "arrive" not in self.names.mnemonic(note.site)

    def _waiting(self, first: Note, end: int, unended: bool = False) -> Bar:
        style = "wait"
        if first.what == "cluster arrive":
            label = "cluster barrier"
        elif first.what == "barrier arrive":
            label = f"{self.names.mnemonic(first.site)} {first.about[0]}"
            style = "barrier"
        else:
            _, offset, phase = first.about
            label = f"{self._name(offset)} {phase}"
        title = f"waits for {label}, {self.names.place(first.site)}"
        return Bar(first.time, end, style, label, title, unended)

    def _tick(self, note: Note) -> Tick | None:
        where = self.names.place(note.site)
        match note.what:
            case "arrive":
                _, offset, phase = note.about
                what = f"arrives at {self._name(offset)}, phase {phase}"
                return Tick(note.time, "arrive", f"{what}, {where}")
            case "copy":
                return Tick(note.time, "issue", f"issues a copy, {where}")
            case "product" | "tensor" | "move":
                what = self.names.mnemonic(note.site)
                return Tick(note.time, "issue", f"issues a {what}, {where}")
            case "barrier arrive" if not self._waits(note):
                what = f"arrives at barrier {note.about[0]}"
                return Tick(note.time, "arrive", f"{what}, {where}")
            case "try" | "cluster arrive" | "barrier" | "barrier arrive":
                return None
        return Tick(note.time, "event", f"{self.names.mnemonic(note.site)}, {where}")

    def _name(self, offset: int) -> str:
        return self.names.shared(offset) or f"{offset:#x}"

    def _noted(self, rank: int, *whats: str) -> Iterator[tuple[int, Note]]:
        """The notes of a block of some kinds, with their numbers."""
        for number, each in enumerate(self.notes):
            if each.what in whats and each.rank == rank:
                yield number, each

    # ── work in flight ──────────────────────────────────────────────────────

    def _copy_rows(self, rank: int) -> list[TimelineRow]:
        ends = {e.about[0]: e.time for e in self.notes if e.what == "done"}
        packed = _Packed("copy", rank, "copies")
        for index, each in self._noted(rank, "copy"):
            number, counted, size = each.about[1:4]
            end = ends.get(number, self.last)
            sure = self._known(index, each, end)
            label, title = self._copy_words(each, counted, size)
            bar = Bar(each.time, end, "copy", label, title, number not in ends)
            bar = bar._replace(sure=sure)
            self.works[index] = WorkBar(packed.add(bar), bar)
        return packed.rows

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

    def _product_rows(self, rank: int) -> list[TimelineRow]:
        rows: dict[int, TimelineRow] = {}
        waits: dict[int, list[Note]] = {}
        for _, each in self._noted(rank, "multiplied"):
            waits.setdefault(each.warp, []).append(each)
        for index, each in self._noted(rank, "product"):
            warpgroup, group = each.warp // 4, each.about[1]
            key = (WARPGROUP, rank, warpgroup)
            row = rows.setdefault(warpgroup, TimelineRow(key, f"wgmma {warpgroup}"))
            members = range(4 * warpgroup, 4 * warpgroup + 4)
            ends = [_waited(waits.get(each, []), group, self.last) for each in members]
            title = f"wgmma of group {group}, {self.names.place(each.site)}"
            end = max(ends)
            bar = Bar(each.time, end, "product", str(group), title, end == self.last)
            row.bars.append(bar)
            self.works[index] = WorkBar(key, bar)
        return [rows[each] for each in sorted(rows)]

    def _tensor_rows(self, rank: int) -> list[TimelineRow]:
        """The work on tensor memory, until it is done or its warp has waited."""
        packed = _Packed("tensor", rank, COMMITTED)
        for index, each in self._noted(rank, "tensor", "move"):
            end = self._tensor_end(index, each)
            what = self.names.mnemonic(each.site)
            label = what.removeprefix("tcgen05.")
            label = f"{label} {each.warp}" if each.what == "move" else label
            title = f"{what} of warp {each.warp}, {self.names.place(each.site)}"
            ended = self.last if end < 0 else end
            bar = Bar(each.time, ended, "tensor", label, title, end < 0)
            self.works[index] = WorkBar(packed.add(bar), bar)
        return packed.rows

    def _known(self, index: int, copy: Note, end: int) -> int:
        """When somebody knew that a copy had ended; or no thread was left."""
        agents, _, counted = copy.about[:3]
        if counted:
            rank, offset, phase = counted[0]
            found = self._ends.first(("wait", rank, offset), index, phase)
        else:
            kind = "bulk" if len(agents) == 2 else "cp.async"
            who = kind, copy.rank, copy.warp
            found = self._ends.first(who, index, agents[0][1])
        if found is not None:
            return self.notes[found].time
        return end if end >= self.ended else self.last

    def _tensor_end(self, index: int, note: Note) -> int:
        """When work on tensor memory has ended; -1 if nothing says so."""
        ((agent, epoch),) = note.about[0]
        if note.what == "move":
            found = self._ends.first(("moved", agent), index, epoch)
        else:
            found = self._ends.first(("commit", agent), index, epoch)
            if found is not None:
                rank, offset, phase = self.notes[found].about[:3]
                found = self._ends.first(("phase", rank, offset), found, phase)
        return -1 if found is None else self.notes[found].time

    def _mbarrier_rows(self, rank: int) -> list[TimelineRow]:
        rows: dict[int, TimelineRow] = {}
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

    def _mbarrier(self, rank: int, offset: int) -> TimelineRow:
        return TimelineRow((COUNTED, rank, offset), self._name(offset))

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
        for index, each in enumerate(self.notes):
            same = each.site == agent.site and each.time == agent.time
            if same and index in self.works:
                return Point(self.works[index].key, each.time, index)
        return None

    def at_site(self, site: int, rank: int, until: int) -> Point | None:
        """The last note about an instruction, until a time."""
        for index in reversed(range(len(self.notes))):
            each = self.notes[index]
            if each.site != site or each.rank != rank or each.time > until:
                continue
            if index in self.works:
                return Point(self.works[index].key, each.time, index)
            return Point(("warp", rank, each.warp), each.time)
        return None

    def issuer(self, point: Point) -> Point:
        """Where the warp of a point has its row: that of an access, or of an issue."""
        if point.work < 0:
            return point
        note = self.notes[point.work]
        return Point(("warp", note.rank, note.warp), point.time)


def _waited(waits: list[Note], group: int, never: int) -> int:
    """The time when a warp's wait for a group of products ended."""
    index = bisect_left(waits, group + 1, key=lambda each: each.about[0])
    return waits[index].time if index < len(waits) else never


def _phase(start: int, end: int, number: int, unended: bool = False) -> Bar:
    style = "odd" if number % 2 else "even"
    return Bar(start, end, style, str(number), f"phase {number}", unended)
