"""The picture of what some clusters of a launch did, one below the other.

From left to right are the events of the cluster; rows are its warps, its copies, the
products of its warpgroups, its work on tensor memory, and its mbarriers
(:mod:`timeline_rows`).  The two accesses of a problem are marked with its number and
joined by a line; what may still be in flight is hatched, and what is missing is a
dashed box (:mod:`timeline_marks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import ceil
from typing import NamedTuple, Protocol

from fragmenta.base.arrays.checks import is_whole
from fragmenta.engine.units.schedule import EAGER, LAZY
from fragmenta.errors import BadCall, ShapeError, one_of
from fragmenta.inspect.view.picture import Picture
from fragmenta.inspect.view.svg import Drawing, document, down, words
from fragmenta.inspect.view.timeline_marks import (
    Ghost,
    ProblemMark,
    Watched,
    marks,
    numbered,
    numbers,
)
from fragmenta.inspect.view.timeline_rows import (
    Band,
    Bar,
    ClusterRows,
    Key,
    Tick,
    TimelineRow,
)
from fragmenta.ptx import rules
from fragmenta.watch.races.report.history import Recorded
from fragmenta.watch.races.report.problem_context import Agent, context_of
from fragmenta.watch.races.shadow.layout import COUNTED

MOST_EVENTS = 320
"""The most events that are drawn by default."""
AROUND = 60
"""Events before and after a problem that are drawn, if not all are."""
MOST_ROWS = 96
MOST_RUNS = 2
"""How often a launch is run for the blocks of its first problem."""
MOST_CLUSTERS = 6
"""Clusters that are drawn one below the other."""
MOST_AGAIN = 5_000_000
"""Warp instructions of a launch that is run once more for its picture."""
_LEFT, _RIGHT = 116, 972
_ROW, _STEP = 13, 17
_LETTER = 5.6  # the width of a letter of 9 pixels
_COPIES = COUNTED, "cp.async", "bulk-read", "bulk-write"
"""Agents whose work is done at once in the schedule eager."""

_COLOURS = {
    "wait": "l14",
    "barrier": "l18",
    "copy": "l1",
    "product": "l5",
    "tensor": "l21",
    "even": "l9",
    "odd": "l10",
}
_HATCH = (
    '<pattern id="fm-late" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path class="x" d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5" style="stroke-width:1"/>'
    "</pattern>"
)
_STYLE = """
svg.fm .x{stroke:#c4262e;fill:none;stroke-width:1.6}
svg.fm .xd{stroke:#c4262e;stroke-width:1.2;stroke-dasharray:4 3}
svg.fm .xf{fill:#c4262e}
svg.fm .xq{fill:#c4262e;font-size:9px;font-weight:bold}
svg.fm .xt{fill:#ffffff;font-size:9px;font-weight:bold;text-anchor:middle}
svg.fm .q{font-size:9px;text-anchor:start}
svg.fm .d{fill-opacity:.55}
@media (prefers-color-scheme: dark){
svg.fm .x,svg.fm .xd{stroke:#ff7b72}
svg.fm .xf,svg.fm .xq{fill:#ff7b72}
svg.fm .xt{fill:#0d1017}
}
"""
_LEGEND = {
    "wait": "waits",
    "barrier": "at a barrier",
    "copy": "copy, from issue to completion",
    "product": "wgmma, until it is waited for",
    "tensor": "tcgen05, until it is done",
    "even": "phase of an mbarrier",
}
_TICKS = {"arrive": "arrives", "issue": "issues", "event": "other"}
_SCHEDULES = {
    EAGER: "schedule eager: copies and products are done as soon as they are issued",
    LAZY: "schedule lazy: copies and products are done as late as they may be",
}


class Relaunch(Protocol):
    """Makes a launch once more, with another schedule; None if that cannot be.

    It keeps the events of some blocks.
    """

    def __call__(
        self, schedule: str | int | None, blocks: tuple[int, ...] = ()
    ) -> Watched | None:
        """The result of the launch."""


class Timeline(Picture):
    """A picture of clusters; notebooks show it."""

    what = "timeline"


def timeline(
    result: Watched,
    cluster: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    again: Relaunch | None = None,
    blocks: Sequence[int] | None = None,
) -> Timeline:
    """The picture of some clusters of a launch, or of some of their events.

    ``again`` runs the launch once more: with the schedule lazy if a problem is about a
    copy, which the schedule eager has done before anybody looks; and if the events of
    a block that is drawn were not kept.
    """
    known = numbers(result)
    run = _late(result, again)
    here = numbered(run, known)
    if run is not result and 1 not in [*here.values()]:
        run, here = result, numbered(result, known)
    main = _chosen(run.recorded, here)
    asked = _asked(main, cluster, blocks)
    wanted = asked or _of_problem(main, here)
    if asked:
        run = _complete(run, main, wanted, again, must=True)
    for _ in range(0 if asked else MOST_RUNS):
        more = _complete(run, main, wanted, again)
        found_there = numbered(more, known)
        if more is run or 1 not in found_there.values():
            break  # with the arrays as they are now, it may not show
        # Other blocks may be the first that it finds, if threads ran them before.
        run, here = more, found_there
        main = _chosen(run.recorded, here)
        wanted = _of_problem(main, here)
    kept = {
        each.cluster: each
        for each in _same_schedule(run.recorded, main)
        if len(each.notes) or each.cluster == main.cluster
    }
    every = [kept[each] for each in wanted if each in kept]
    drawn = [ClusterRows(each) for each in every[:MOST_CLUSTERS]]
    pictures = []
    for seen in drawn:
        found = marks(seen, run.found, known)
        window = _window(seen, found, start, stop)
        pictures.append(_Picture(seen, window, found, MOST_ROWS // len(drawn)))
    left = _left_out(main, [each.seen.recorded for each in pictures], wanted)
    return Timeline(_document(pictures, run is not result, left))


def _late(result: Watched, again: Relaunch | None) -> Watched:
    """The run to draw: another one with the schedule lazy, if only that shows it."""
    schedules = {str(each.schedule) for each in result.recorded}
    long = result.instructions > MOST_AGAIN
    if again is None or long or schedules != {EAGER} or not _is_about_copies(result):
        return result
    return again(LAZY) or result


# ── which clusters ──────────────────────────────────────────────────────────


def _asked(
    main: Recorded, cluster: int | None, blocks: Sequence[int] | None
) -> list[int]:
    """The clusters that somebody asks for; none if nobody does."""
    shape = main.shape
    assert shape is not None  # of a launch
    size = shape.cluster_blocks
    if blocks is not None and cluster is not None:
        raise BadCall("timeline takes a cluster or blocks; given both")
    if cluster is not None:
        if not is_whole(cluster) or not 0 <= cluster < shape.blocks // size:
            last = shape.blocks // size - 1
            raise BadCall(f"the launch has clusters 0 to {last}; given {cluster!r}")
        return [int(cluster)]
    if blocks is not None and (not isinstance(blocks, Iterable) or not [*blocks]):
        raise BadCall(
            f"blocks are numbers in the grid, such as [0, 3]; given {blocks!r}"
        )
    found: list[int] = []
    for each in blocks or ():
        if not is_whole(each) or not 0 <= each < shape.blocks:
            last = shape.blocks - 1
            raise BadCall(f"the grid has blocks 0 to {last}; given {each!r}")
        found.append(shape.cluster_of(int(each)))
    return list(dict.fromkeys(found))


def _of_problem(main: Recorded, here: dict[object, int]) -> list[int]:
    """The cluster with the first problem, and the one of its earlier access."""
    assert main.shape is not None
    mine = [each for each in main.problems if each.key in here]
    first = min(mine, key=lambda each: here[each.key], default=None)
    story = None if first is None else context_of(first)
    agents = (story.before, story.now) if story else ()
    blocks = {each.block for each in agents if each is not None and each.block >= 0}
    return sorted({main.cluster, *map(main.shape.cluster_of, blocks)})


def _same_schedule(every: Iterable[Recorded], main: Recorded) -> list[Recorded]:
    return [each for each in every if each.schedule == main.schedule]


def _complete(
    run: Watched,
    main: Recorded,
    wanted: list[int],
    again: Relaunch | None,
    must: bool = False,
) -> Watched:
    """A run with the events of all wanted clusters, if there can be one."""

    def lacks(some: Watched) -> list[int]:
        kept = _same_schedule(some.recorded, main)
        have = {each.cluster for each in kept if len(each.notes)}
        return [each for each in wanted if each not in have]

    if not lacks(run):
        return run
    assert main.shape is not None
    blocks = [each for number in wanted for each in main.shape.members(number)]
    long = run.instructions > MOST_AGAIN
    made = None if again is None or long else again(main.schedule, tuple(blocks))
    if made is not None and not lacks(made):
        return made
    if must and (missing := [e for e in lacks(run) if e != main.cluster]):
        have = one_of(sorted({each.cluster for each in run.recorded}), "and")
        raise BadCall(
            f"the events of cluster {missing[0]} were not kept, and the launch cannot "
            f"be run again; those of some were: {have}"
        )
    return run


def _left_out(main: Recorded, drawn: list[Recorded], wanted: list[int]) -> str:
    """What is not drawn, in words; empty if all is."""
    assert main.shape is not None
    count = sum(len(each.blocks) for each in drawn)
    missing = [each for each in wanted if each not in {e.cluster for e in drawn}]
    said, all_ = "", main.shape.blocks
    if count < all_:
        said = (
            f"{count:,} of {all_:,} blocks are drawn; timeline(blocks=) draws others."
        )
    if missing:
        of = one_of([str(each) for each in missing], "and")
        why = "too many" if len(drawn) == MOST_CLUSTERS else "its events were not kept"
        said += f" Not drawn: cluster {of}, {why}."
    return said.strip()


def _is_about_copies(result: Watched) -> bool:
    """Whether a problem is about a copy."""

    def copies(agent: Agent | None) -> bool:
        return agent is not None and agent.kind in _COPIES

    for _, each in result.found:
        story = context_of(each)
        if each.severity != rules.INFO and (
            each.rule is rules.LEAK
            or (story is not None and (copies(story.now) or copies(story.before)))
        ):
            return True
    return False


def _chosen(every: list[Recorded], here: dict[object, int]) -> Recorded:
    """The cluster with the first problem; of several schedules, a lazy one."""
    if not every:
        raise BadCall(
            "there is nothing to draw: the launch was not watched (watch=False)"
        )

    def worth(each: Recorded) -> tuple[object, ...]:
        marked = [here[of.key] for of in each.problems if of.key in here]
        eager = not str(each.schedule).startswith(LAZY)
        lowest = min(marked, default=len(here) + 1)
        return lowest, not each.notes, eager and bool(marked)

    return min(every, key=worth)


def _window(
    seen: ClusterRows, found: list[ProblemMark], start: int | None, stop: int | None
) -> tuple[int, int]:
    """The events to draw: as given, or around the first problem."""
    for each in (start, stop):
        if each is not None and (not is_whole(each) or each < 0):
            raise ShapeError(f"events are counted from 0; given {each!r}")
    if start is None and stop is None and seen.last > MOST_EVENTS:
        times = [each.time for mark in found[:1] for each in mark.points] or [0]
        first = max(0, int(min(times)) - AROUND)
        length = min(MOST_EVENTS, max(3 * AROUND, int(max(times)) + AROUND - first))
        start = max(0, min(first, seen.last - length))
        stop = start + length
    first = int(start or 0)
    last = seen.last if stop is None else min(int(stop), seen.last)
    if first >= last:
        raise ShapeError(
            f"the cluster has events 0 to {seen.last}; given {first} to {stop}"
        )
    return first, last


class _Position(NamedTuple):
    x: float
    y: float


def _document(pictures: list[_Picture], again: bool, left: str) -> str:
    """The clusters one below the other, and what is said below them."""
    parts = [part for each in pictures for part in each.draw()]
    notes = [*_listed(pictures), words(pictures[0].said(again), "k s")]
    if left:
        notes.append(words(left, "k s"))
    used = set().union(*(each.used for each in pictures))
    below = down([*notes, _legend(used)], 4)
    return document(down([*parts, below], 10), pictures[0].title, _STYLE)


def _listed(pictures: list[_Picture]) -> list[Drawing]:
    """The words about problems, each once, and about rows that are not drawn."""
    told: dict[int, ProblemMark] = {}
    for mark in (mark for each in pictures for mark in each.found):
        if mark.own or mark.number not in told:
            told[mark.number] = mark
    found = [
        words(line, "k t" if not number else "k s")
        for _, mark in sorted(told.items())
        for number, line in enumerate(mark.lines)
    ]
    if left := sum(each.left_out for each in pictures):
        found.append(words(f"{left} more rows are not drawn", "k s"))
    return found


class _Picture:
    """Draws the rows of a cluster, between two events."""

    def __init__(
        self,
        seen: ClusterRows,
        window: tuple[int, int],
        found: list[ProblemMark],
        most: int,
    ) -> None:
        self.seen, (self.first, self.last) = seen, window
        self.found, self._most = found, most
        self.late = {
            seen.works[each.work].bar: each
            for each in reversed(found)
            if each.work in seen.works
        }
        """The work that may still be in flight, with the first problem of each."""
        self._counted = self._phases_of_late()
        self._above: list[str] = []
        """What is drawn above the lines of problems."""
        self.used: set[str] = set()
        """The styles that the legend has to explain."""
        self.middles: dict[Key, float] = {}
        """The height of each row's middle."""
        self.left_out = 0
        self._taken: set[tuple[int, int]] = set()
        """The places of the marks."""

    def _phases_of_late(self) -> dict[tuple[int, int, str], list[Bar]]:
        """The copies that may still be in flight, by the phases that count them.

        A phase is named by the rank and the offset of its mbarrier, and its number.
        """
        found: dict[tuple[int, int, str], list[Bar]] = {}
        for number, (_, bar) in self.seen.works.items():
            note = self.seen.notes[number]
            if bar in self.late and note.what == "copy":
                for rank, offset, phase in note.about[2]:
                    found.setdefault((rank, offset, str(phase)), []).append(bar)
        return found

    def until(self, bar: Bar) -> float:
        """Where a bar ends; what may still be in flight until somebody has waited."""
        if bar not in self.late:
            return bar.end
        points = self.late[bar].points
        return max(bar.end, bar.sure, *(each.time + 0.5 for each in points))

    def bars(self, row: TimelineRow) -> list[tuple[Bar, float, float]]:
        """The bars of a row, each with where it begins and ends.

        A phase does not end before a copy that it counts, also if that is hatched.
        """
        found, begin = [], 0.0
        for bar in row.bars:
            start, end = float(bar.start), self.until(bar)
            if row.key[0] == COUNTED:
                copies = self._counted.get((*row.key[1:], bar.label), [])
                own = [e for e in copies if bar.start <= e.start <= bar.end]
                end = max(end, begin, *map(self.until, own))
                start, begin = max(start, begin), end
            found.append((bar, start, end))
        return found

    def x(self, time: float) -> float:
        """The horizontal place of a time."""
        share = (time - self.first) / (self.last - self.first)
        return _LEFT + min(1.0, max(0.0, share)) * (_RIGHT - _LEFT)

    @property
    def title(self) -> str:
        """Which cluster it is, or which block."""
        recorded = self.seen.recorded
        if len(recorded.blocks) == 1:
            place = ", ".join(map(str, recorded.blocks[0]))
            return f"block ({place}), schedule {recorded.schedule}"
        return f"cluster {recorded.cluster}, schedule {recorded.schedule}"

    def draw(self) -> list[Drawing]:
        """The head and the rows."""
        shown = f"events {self.first:,} to {self.last:,} of {self.seen.last:,}"
        head = down([words(self.title, "g t"), words(shown, "k s")], 4)
        body, height = [], 20.0
        for band in self.seen.bands:
            text, height = self._band(band, height)
            body.append(text)
        lines, marked = self._marks()
        grid = self._axis(height)
        plot = Drawing(
            _RIGHT, height, "".join([_HATCH, grid, *body, lines, *self._above, marked])
        )
        return [head, plot]

    # ── rows ────────────────────────────────────────────────────────────────

    def _band(self, band: Band, y: float) -> tuple[str, float]:
        text = []
        if len(self.seen.bands) > 1:
            text.append(f'<text class="k t" x="0" y="{y + 11:g}">{band.title}</text>')
            y += 18
        group = ""
        for row in filter(self._shown, band.rows):
            if len(self.middles) >= self._most:
                self.left_out += 1
                continue
            if group and row.key[0] != group:
                y += 6
            again = group == row.key[0] and group in ("copy", "tensor")
            group = row.key[0]
            self.middles[row.key] = y + _ROW / 2
            text.append(self._row(row, y, "" if again else row.title))
            y += _STEP
            for each in self._ghosts(row.key):
                self._above.append(self._ghost(each, y))
                y += _STEP
        return "".join(text), y + 8

    def _shown(self, row: TimelineRow) -> bool:
        """Whether a row has something to show; every warp has a row."""
        bars = self.bars(row)
        return row.key[0] == "warp" or any(self._inside(*each[1:]) for each in bars)

    def _row(self, row: TimelineRow, y: float, title: str) -> str:
        name = escape(title if len(title) <= 18 else f"{title[:17]}…")
        middle = y + _ROW - 3
        parts = [f'<text class="r t" x="{_LEFT - 8}" y="{middle:g}">{name}</text>']
        if row.key[0] == "warp":
            width = _RIGHT - _LEFT
            parts.append(
                f'<rect class="b" x="{_LEFT}" y="{y:g}" width="{width}" '
                f'height="{_ROW}" rx="2"/>'
            )
        shown = [each for each in self.bars(row) if self._inside(*each[1:])]
        shown.sort(key=lambda each: each[0] in self.late)
        parts += [self._bar(*each, y) for each in shown]
        parts += [
            self._tick(each, y)
            for each in row.ticks
            if self.first <= each.time <= self.last
        ]
        return "".join(parts)

    def _inside(self, start: float, end: float) -> bool:
        return end >= self.first and start <= self.last

    def _bar(self, bar: Bar, start: float, end: float, y: float) -> str:
        self.used.add("even" if bar.style == "odd" else bar.style)
        left, right = self.x(start), self.x(end)
        if bar in self.late:
            return self._late(bar, left, right, y)
        width = max(3.0, right - left)
        faded = " d" if bar.open else ""
        text = (
            f'<rect class="{_COLOURS[bar.style]}{faded}" x="{left:.1f}" y="{y:g}" '
            f'width="{width:.1f}" height="{_ROW}" rx="2">'
            f"<title>{escape(bar.title)}</title></rect>"
        )
        room = int((width - 5) / _LETTER)
        if len(bar.label) <= room:
            place = f'x="{left + 3:.1f}" y="{y + _ROW - 3.5:g}"'
            text += f'<text class="q t" {place}>{escape(bar.label)}</text>'
        return text

    def _late(self, bar: Bar, left: float, right: float, y: float) -> str:
        """Work of a problem: hatched until somebody has waited for it."""
        mark = self.late[bar]
        width = max(6.0, right - left)
        place = f'x="{left:.1f}" y="{y:g}" width="{width:.1f}" height="{_ROW}" rx="2"'
        text = (
            f'<rect class="{_COLOURS[bar.style]} d" {place}/>'
            f'<rect {place} style="fill:url(#fm-late)">'
            f"<title>{escape(bar.title)}; {escape(mark.memory)}</title></rect>"
        )
        for label in (mark.memory, "may still be in flight", "late"):
            if len(label) * _LETTER <= width - 24:
                size = len(label) * _LETTER + 8
                x = left + (width - size) / 2
                text += (
                    f'<rect class="p" x="{x:.1f}" y="{y + 1:g}" width="{size:.1f}" '
                    f'height="{_ROW - 2}" rx="2"/><text class="q t" x="{x + 4:.1f}" '
                    f'y="{y + _ROW - 3.5:g}">{escape(label)}</text>'
                )
                break
        return text

    def _ghosts(self, key: Key) -> list[tuple[str, Ghost]]:
        """What is missing in a row, with the numbers of the problems."""
        found: dict[tuple[str, int], tuple[list[str], Ghost]] = {}
        for mark in self.found:
            ghost = mark.ghost
            if ghost is None or ghost.point.key != key:
                continue
            if self.first <= ghost.point.time <= self.last + 1:
                # One wait is enough for all that the same work is about.
                about = ghost.words, mark.work
                found.setdefault(about, ([], ghost))[0].append(str(mark.number))
        return [(", ".join(of), ghost) for of, ghost in found.values()]

    def _ghost(self, of: tuple[str, Ghost], y: float) -> str:
        """A dashed box that ends, or begins, where the instruction is missing."""
        number, ghost = of
        label = f"{number}  missing here: {ghost.words}"
        width = len(label) * _LETTER + 12
        at = self.x(ghost.point.time)
        left = at if ghost.after else at - width
        left = min(max(_LEFT, left), _RIGHT - width)
        edge = min(max(at, left), left + width)
        return (
            f'<path class="x" d="M{edge:.1f} {y:g}V{y - _STEP + _ROW:g}"/>'
            f'<rect class="p xd" x="{left:.1f}" y="{y:g}" width="{width:.1f}" '
            f'height="{_ROW}" rx="2"/><text class="xq" x="{left + 6:.1f}" '
            f'y="{y + _ROW - 3.5:g}">{escape(label)}</text>'
        )

    def _tick(self, tick: Tick, y: float) -> str:
        self.used.add(tick.style)
        x = self.x(tick.time)
        title = f"<title>{escape(tick.title)}</title>"
        return f'<path class="s" d="{_shape(tick.style, x, y)}">{title}</path>'

    def _axis(self, height: float) -> str:
        step = _step(self.last - self.first)
        parts = []
        time = ceil(self.first / step) * step
        while time <= self.last:
            x = self.x(time)
            parts.append(
                f'<text class="m s" x="{x:.1f}" y="9">{time:,}</text>'
                f'<path class="h" d="M{x:.1f} 14V{height:g}"/>'
            )
            time += step
        return "".join(parts)

    # ── problems and legend ─────────────────────────────────────────────────

    def _marks(self) -> tuple[str, str]:
        """The lines and the marks of problems."""
        lines, parts = [], []
        for mark in self.found:
            places = self._places(mark)
            lines.append(_link(places))
            parts += [_numbered(each, mark.number) for each in places]
        return "".join(lines), "".join(parts)

    def said(self, again: bool) -> str:
        """Which run it is."""
        schedule = str(self.seen.recorded.schedule)
        said = _SCHEDULES.get(schedule, f"schedule {schedule}")
        if again:
            said += "; run once more for this picture"
        return f"{said}. Time is counted in events."

    def _places(self, mark: ProblemMark) -> list[_Position]:
        return [
            self._free(self.x(point.time), self.middles[point.key])
            for point in mark.points
            if point.key in self.middles and self.first <= point.time <= self.last + 1
        ]

    def _free(self, x: float, y: float) -> _Position:
        """A free place for a mark, to the right of others."""
        while (round(x / 13), round(y)) in self._taken:
            x += 13
        self._taken.add((round(x / 13), round(y)))
        return _Position(x, y)


def _legend(used: set[str]) -> Drawing:
    """The styles that are in the picture."""
    x, parts = 0.0, []
    for style, text in _LEGEND.items():
        if style not in used:
            continue
        parts.append(
            f'<rect class="{_COLOURS[style]}" x="{x:g}" y="0" width="18" '
            f'height="11" rx="2"/>'
            f'<text class="q s" x="{x + 23:g}" y="9">{text}</text>'
        )
        x += 23 + _LETTER * len(text) + 14
    for style, text in _TICKS.items():
        if style not in used:
            continue
        mark = f'<path class="s" d="{_shape(style, x + 4, -1)}"/>'
        parts.append(f'{mark}<text class="q s" x="{x + 12:g}" y="9">{text}</text>')
        x += 12 + _LETTER * len(text) + 14
    return Drawing(x, 14, "".join(parts))


def _shape(style: str, x: float, y: float) -> str:
    """The outline of a tick."""
    if style == "arrive":
        return f"M{x:.1f} {y + 2:g}l3.5 8h-7z"
    if style == "issue":
        return f"M{x:.1f} {y + 2:g}l3.5 4.5l-3.5 4.5l-3.5 -4.5z"
    return f"M{x - 0.6:.1f} {y + 2:g}h1.2v9h-1.2z"


def _link(places: list[_Position]) -> str:
    """The line between two places."""
    if len(places) != 2:
        return ""
    a, b = places
    if a.y == b.y:
        middle = (a.x + b.x) / 2
        curve = f"Q{middle:.1f} {a.y - 22:.1f} {b.x:.1f} {b.y:.1f}"
        return f'<path class="x" d="M{a.x:.1f} {a.y:.1f}{curve}"/>'
    bend = 24 if abs(a.x - b.x) < 40 else 0
    middle = (a.x + b.x) / 2 + bend
    return (
        f'<path class="x" d="M{a.x:.1f} {a.y:.1f}C{middle:.1f} {a.y:.1f} '
        f'{middle:.1f} {b.y:.1f} {b.x:.1f} {b.y:.1f}"/>'
    )


def _numbered(place: _Position, number: int) -> str:
    """The number of a problem at a place."""
    return (
        f'<circle class="xf" cx="{place.x:.1f}" cy="{place.y:.1f}" r="6"/>'
        f'<text class="xt" x="{place.x:.1f}" y="{place.y + 3.2:.1f}">{number}</text>'
    )


def _step(span: int) -> int:
    """A round distance between the numbers of the axis.

    >>> _step(300), _step(7)
    (50, 1)
    """
    step = 1
    while span / step > 12:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return step
