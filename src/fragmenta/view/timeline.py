"""The picture of what a cluster of a launch did.

From left to right are the events of the cluster; rows are its warps, its copies, the
products of its warpgroups, and its mbarriers (:mod:`timeline_rows`).  The two accesses
of a problem are marked with its number and joined by a line.
"""

from __future__ import annotations

from html import escape
from math import ceil
from typing import NamedTuple, Protocol

from fragmenta.arrays.checks import is_whole
from fragmenta.errors import BadCall, ShapeError, one_of
from fragmenta.races.report.history import Recorded
from fragmenta.races.report.stories import story_of
from fragmenta.units.findings import Finding
from fragmenta.view.picture import Picture
from fragmenta.view.svg import Drawing, document, down, words
from fragmenta.view.timeline_rows import Band, Bar, ClusterRows, Key, Row, Tick

MOST_EVENTS = 320
"""The most events that are drawn by default."""
MOST_MARKS = 9
MOST_ROWS = 96
_LEFT, _RIGHT = 116, 972
_ROW, _STEP = 13, 17
_LETTER = 5.6  # the width of a letter of 9 pixels

_COLOURS = {"wait": "l14", "copy": "l1", "product": "l5", "even": "l9", "odd": "l10"}
_STYLE = """
svg.fm .x{stroke:#c4262e;fill:none;stroke-width:1.6}
svg.fm .xf{fill:#c4262e}
svg.fm .xt{fill:#ffffff;font-size:9px;font-weight:bold;text-anchor:middle}
svg.fm .q{font-size:9px;text-anchor:start}
svg.fm .d{fill-opacity:.55}
@media (prefers-color-scheme: dark){
svg.fm .x{stroke:#ff7b72}
svg.fm .xf{fill:#ff7b72}
svg.fm .xt{fill:#0d1017}
}
"""
_LEGEND = (
    ("wait", "waits"),
    ("copy", "copy, from issue to completion"),
    ("product", "wgmma, until it is waited for"),
    ("even", "phase of an mbarrier"),
)


class Watched(Protocol):
    """The result of a launch, with the events of some of its clusters."""

    @property
    def recorded(self) -> list[Recorded]:
        """The events, by cluster."""


class Timeline(Picture):
    """A picture of a cluster; notebooks show it."""

    what = "timeline"


def timeline(
    result: Watched,
    cluster: int | None = None,
    start: int | None = None,
    stop: int | None = None,
) -> Timeline:
    """The picture of one cluster of a launch, or of some of its events."""
    recorded = _chosen(result.recorded, cluster)
    seen = ClusterRows(recorded)
    return Timeline(_Picture(seen, _window(seen, start, stop)).draw())


def _chosen(every: list[Recorded], cluster: int | None) -> Recorded:
    if not every:
        raise BadCall(
            "there is nothing to draw: the launch was not watched (watch=False)"
        )
    if cluster is None:
        marked = [each for each in every if each.problems]
        placed = [each for each in marked if any(map(story_of, each.problems))]
        return (placed or marked or every)[0]
    for each in every:
        if each.cluster == cluster:
            return each
    have = one_of(sorted({each.cluster for each in every}), "and")
    raise BadCall(
        f"the events of cluster {cluster} were not kept; those of the first and of "
        f"some with problems are: {have}"
    )


def _window(seen: ClusterRows, start: int | None, stop: int | None) -> tuple[int, int]:
    """The events to draw: as given, or around the first problem."""
    for each in (start, stop):
        if each is not None and (not is_whole(each) or each < 0):
            raise ShapeError(f"events are counted from 0; given {each!r}")
    if start is None and stop is None and seen.last > MOST_EVENTS:
        times = [
            time for mark in seen.recorded.problems[:1] for time in _times(seen, mark)
        ]
        middle = int(sum(times) / len(times)) if times else 0
        start = max(0, min(middle - MOST_EVENTS // 2, seen.last - MOST_EVENTS))
        stop = start + MOST_EVENTS
    first = int(start or 0)
    last = seen.last if stop is None else min(int(stop), seen.last)
    if first >= last:
        raise ShapeError(
            f"the cluster has events 0 to {seen.last}; given {first} to {stop}"
        )
    return first, last


def _times(seen: ClusterRows, mark: Finding) -> list[float]:
    story = story_of(mark)
    agents = () if story is None else (story.now, story.before)
    points = [seen.point(each) for each in agents]
    return [each.time for each in points if each is not None]


class _Place(NamedTuple):
    x: float
    y: float


class _Picture:
    """Draws the rows of a cluster, between two events."""

    def __init__(self, seen: ClusterRows, window: tuple[int, int]) -> None:
        self.seen, (self.first, self.last) = seen, window
        self.middles: dict[Key, float] = {}
        """The height of each row's middle."""
        self.left_out = 0
        self._taken: set[tuple[int, int]] = set()
        """The places of the marks."""

    def x(self, time: float) -> float:
        """The horizontal place of a time."""
        share = (time - self.first) / (self.last - self.first)
        return _LEFT + min(1.0, max(0.0, share)) * (_RIGHT - _LEFT)

    def draw(self) -> str:
        """The whole picture."""
        recorded = self.seen.recorded
        title = f"cluster {recorded.cluster}, schedule {recorded.schedule}"
        if len(recorded.blocks) == 1:
            place = ", ".join(map(str, recorded.blocks[0]))
            title = f"block ({place}), schedule {recorded.schedule}"
        shown = f"events {self.first:,} to {self.last:,} of {self.seen.last:,}"
        head = down([words(title, "g t"), words(shown, "k s")], 4)
        body, height = [], 20.0
        for band in self.seen.bands:
            text, height = self._band(band, height)
            body.append(text)
        marks, listed = self._marks()
        grid = self._axis(height)
        plot = Drawing(_RIGHT, height, "".join([grid, *body, marks]))
        notes = down([*listed, self._legend()], 4)
        return document(down([head, plot, notes], 10), title, _STYLE)

    # ── rows ────────────────────────────────────────────────────────────────

    def _band(self, band: Band, y: float) -> tuple[str, float]:
        text = []
        if len(self.seen.bands) > 1:
            text.append(f'<text class="k t" x="0" y="{y + 11:g}">{band.title}</text>')
            y += 18
        group = ""
        for row in filter(self._shown, band.rows):
            if len(self.middles) >= MOST_ROWS:
                self.left_out += 1
                continue
            if group and row.key[0] != group:
                y += 6
            again = group == row.key[0] == "copy"
            group = row.key[0]
            self.middles[row.key] = y + _ROW / 2
            text.append(self._row(row, y, "" if again else row.title))
            y += _STEP
        return "".join(text), y + 8

    def _shown(self, row: Row) -> bool:
        """Whether a row has something to show; every warp has a row."""
        return row.key[0] == "warp" or any(map(self._inside, row.bars))

    def _row(self, row: Row, y: float, title: str) -> str:
        name = escape(title if len(title) <= 18 else f"{title[:17]}…")
        middle = y + _ROW - 3
        parts = [f'<text class="r t" x="{_LEFT - 8}" y="{middle:g}">{name}</text>']
        if row.key[0] == "warp":
            width = _RIGHT - _LEFT
            parts.append(
                f'<rect class="b" x="{_LEFT}" y="{y:g}" width="{width}" '
                f'height="{_ROW}" rx="2"/>'
            )
        parts += [self._bar(each, y) for each in row.bars if self._inside(each)]
        parts += [
            self._tick(each, y)
            for each in row.ticks
            if self.first <= each.time <= self.last
        ]
        return "".join(parts)

    def _inside(self, bar: Bar) -> bool:
        return bar.end >= self.first and bar.start <= self.last

    def _bar(self, bar: Bar, y: float) -> str:
        left, right = self.x(bar.start), self.x(bar.end)
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

    def _tick(self, tick: Tick, y: float) -> str:
        x = self.x(tick.time)
        title = f"<title>{escape(tick.title)}</title>"
        if tick.style == "arrive":
            shape = f"M{x:.1f} {y + 2:g}l3.5 8h-7z"
        elif tick.style == "issue":
            shape = f"M{x:.1f} {y + 2:g}l3.5 4.5l-3.5 4.5l-3.5 -4.5z"
        else:
            shape = f"M{x - 0.6:.1f} {y + 2:g}h1.2v9h-1.2z"
        return f'<path class="s" d="{shape}">{title}</path>'

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

    def _marks(self) -> tuple[str, list[Drawing]]:
        """The marks of problems, and the lines below that explain them."""
        parts, listed = [], []
        drawn: set[tuple[object, ...]] = set()
        for mark in self.seen.recorded.problems:
            lines = self._lines(mark)
            # A race is one in either order, and a line of an unrolled loop is one line.
            pair = (mark.rule, *sorted(lines))
            if mark.severity == "info" or pair in drawn or len(drawn) == MOST_MARKS:
                continue
            drawn.add(pair)
            places, number = self._places(mark), len(drawn)
            parts.append(_link(places, number))
            where = f": {' and '.join(lines)}" if lines else ""
            listed.append(words(f"{number}  {mark.rule}{where}"))
        if self.left_out:
            listed.append(words(f"{self.left_out} more rows are not drawn", "k s"))
        return "".join(parts), listed

    def _lines(self, mark: Finding) -> list[str]:
        """The lines of a problem."""
        sites = [each for each in (mark.site, mark.other) if each is not None]
        names = self.seen.names
        return [names.place(each) for each in sites if names.instruction(each)]

    def _places(self, mark: Finding) -> list[_Place]:
        story = story_of(mark)
        if story is None:
            return []
        found = []
        for agent in (story.now, story.before):
            point = self.seen.point(agent)
            if point is None or point.key not in self.middles:
                continue
            if self.first <= point.time <= self.last + 1:
                found.append(self._free(self.x(point.time), self.middles[point.key]))
        return found

    def _free(self, x: float, y: float) -> _Place:
        """A free place for a mark, to the right of others."""
        while (round(x / 13), round(y)) in self._taken:
            x += 13
        self._taken.add((round(x / 13), round(y)))
        return _Place(x, y)

    def _legend(self) -> Drawing:
        x, parts = 0.0, []
        for style, text in _LEGEND:
            parts.append(
                f'<rect class="{_COLOURS[style]}" x="{x:g}" y="0" width="18" '
                f'height="11" rx="2"/>'
                f'<text class="q s" x="{x + 23:g}" y="9">{text}</text>'
            )
            x += 23 + _LETTER * len(text) + 18
        for style, text in (
            ("arrive", "arrives"),
            ("issue", "issues"),
            ("event", "other"),
        ):
            tick = Tick(0, style, text)
            mark = self._tick(tick, -1).replace(f"M{self.x(0):.1f}", f"M{x + 4:.1f}")
            mark = mark.replace(f"M{self.x(0) - 0.6:.1f}", f"M{x + 3.4:.1f}")
            parts.append(f'{mark}<text class="q s" x="{x + 12:g}" y="9">{text}</text>')
            x += 12 + _LETTER * len(text) + 18
        return Drawing(x, 14, "".join(parts))


def _link(places: list[_Place], number: int) -> str:
    """Two places, joined; both have the number."""
    parts = []
    if len(places) == 2:
        a, b = places
        bend = 24 if abs(a.x - b.x) < 40 else 0
        middle = (a.x + b.x) / 2 + bend
        parts.append(
            f'<path class="x" d="M{a.x:.1f} {a.y:.1f}C{middle:.1f} {a.y:.1f} '
            f'{middle:.1f} {b.y:.1f} {b.x:.1f} {b.y:.1f}"/>'
        )
    parts += [
        f'<circle class="xf" cx="{each.x:.1f}" cy="{each.y:.1f}" r="6"/>'
        f'<text class="xt" x="{each.x:.1f}" y="{each.y + 3.2:.1f}">{number}</text>'
        for each in places
    ]
    return "".join(parts)


def _step(span: int) -> int:
    """A round distance between the numbers of the axis.

    >>> _step(300), _step(7)
    (50, 1)
    """
    step = 1
    while span / step > 12:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return step
