"""Line plots, such as errors over the length of a sum.

Lines differ in colour and in the shape of their marks.  Both axes are logarithmic
unless linear ones are requested.  An error of zero has a place of its own, below the
least one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import NamedTuple

from fragmenta.errors import ShapeError, ValueRangeError
from fragmenta.inspect.view.palette import ink
from fragmenta.inspect.view.picture import Picture
from fragmenta.inspect.view.svg import Drawing, document, down, words
from fragmenta.reference.execution.compare import Compared

_WIDTH, _HEIGHT = 640, 300
_LEFT, _BOTTOM = 52, 36
_GROUPS = (0, 1, 2, 4, 7, 6, 3, 5)  # hues that differ most come first
_STYLE = """
svg.fm .w{fill:none;stroke-width:1.8}
svg.fm .q{font-size:10px;text-anchor:middle}
svg.fm .y{font-size:10px;text-anchor:end}
"""


class _Line(NamedTuple):
    label: str
    points: list[tuple[float, float]]


class _Axis(NamedTuple):
    """An axis: the values at both ends, and the places of its numbers."""

    low: float
    high: float
    ticks: list[tuple[float, str]]
    base: int = 0  #: of the logarithm; 0: linear

    def share(self, value: float) -> float:
        """How far along the axis a value is, from 0 to 1; 0 is at the low end."""
        if self.base:
            value = math.log(value, self.base) if value else self.low
        return (value - self.low) / (self.high - self.low)


def line_plot(
    lines: Mapping[str, Mapping[float, float]],
    title: str,
    note: str = "",
    x: str = "products in a sum",
    log: bool = True,
) -> Picture:
    """Lines by their labels, each with its numbers by their place along x.

    ``x`` is the label of the axis, the title says what the numbers are, and ``note``
    how they were made.

    >>> picture = line_plot({"f32": {64: 3e-7, 256: 1e-6}}, "relative error")
    >>> str(picture)[:4], str(picture).count("<polyline")
    ('<svg', 1)
    """
    found = [_Line(label, sorted(at.items())) for label, at in lines.items()]
    numbers = [value for line in found for point in line.points for value in point]
    if not numbers:
        raise ShapeError("there is nothing to plot: no line has a point")
    if wrong := [n for n in numbers if not math.isfinite(n) or (log and n < 0)]:
        what = "logarithmic axes take finite numbers from 0" if log else "finite only"
        raise ValueRangeError(f"{what}; given {wrong[0]!r}")
    if log and not all(place for line in found for place, _ in line.points):
        raise ShapeError("logarithmic axes take places above 0; given 0")
    head = down([words(title, "g t"), *([words(note, "k s")] if note else [])], 4)
    legend = down((_key(place, line.label) for place, line in enumerate(found)), 2)
    body = down([head, _plot(found, x, log), legend], 10)
    return Picture(document(body, title, _STYLE + _colours()))


def error_plot(compared: Compared) -> str:
    """The plot of a comparison: mean relative errors over k.

    >>> import fragmenta as fm
    >>> told = fm.compare("mma.m16n8k16.f32.f16", "sm_80,sm_90", k=[64, 256])
    >>> picture = error_plot(told)
    >>> picture[:4], picture.count("<polyline"), "sm_80  mma.sync" in picture
    ('<svg', 2, True)
    """
    lines = {}
    for op, groups in compared.folded().items():
        for targets, rows in groups:
            errors = {float(r.k): r.mean_relative for r in rows}
            known = {k: error for k, error in errors.items() if error is not None}
            lines[f"{' '.join(targets)}  {op}"] = known
    title = "mean relative error by the length of the sum"
    return str(line_plot(lines, title, compared.input))


# ── axes ────────────────────────────────────────────────────────────────────


def _lengths(values: Iterable[float]) -> _Axis:
    """A logarithmic axis with a number at each value."""
    values = sorted(set(values))
    ticks = [(value, f"{value:g}") for value in values]
    low, high = math.log2(values[0]), math.log2(values[-1])
    return _Axis(low - 0.4, high + 0.4, ticks, 2)


def _powers(values: Iterable[float]) -> _Axis:
    """A logarithmic axis with powers of ten; 0 is one power below the least."""
    values = list(values)
    some = [math.log10(value) for value in values if value] or [0.0]
    least, most = math.floor(min(some)), math.ceil(max(some))
    least, most = least - (0 in values), max(most, least + 1)
    step = max(1, (most - least) // 8)
    shown = range(least, most + 1, step)
    plain = least >= -3 and most <= 3  # 0.01 rather than 1e-2
    names = (f"{10.0**n:g}" if plain else f"1e{n}" if n else "1" for n in shown)
    ticks = [(10.0**n, name) for n, name in zip(shown, names, strict=True)]
    if 0 in values:
        ticks[0] = (0.0, "0")
    return _Axis(least, most, ticks, 10)


def _steps(values: Iterable[float]) -> _Axis:
    """A linear axis with round numbers."""
    values = list(values)
    span = max(values) - min(values) or abs(values[0]) or 1.0
    ten = 10.0 ** math.floor(math.log10(span))
    step = next(s * ten for s in (0.1, 0.2, 0.5, 1, 2) if span / (s * ten) <= 10)
    first = math.floor(min(values) / step + 1e-9)
    last = max(math.ceil(max(values) / step - 1e-9), first + 1)
    ticks = [(n * step, f"{round(n * step, 12):g}") for n in range(first, last + 1)]
    return _Axis(first * step, last * step, ticks)


# ── drawing ─────────────────────────────────────────────────────────────────


def _plot(lines: list[_Line], name: str, log: bool) -> Drawing:
    places = [place for line in lines for place, _ in line.points]
    numbers = [number for line in lines for _, number in line.points]
    x = _lengths(places) if log else _steps(places)
    y = _powers(numbers) if log else _steps(numbers)

    def at(place: float, number: float) -> tuple[float, float]:
        across = _LEFT + x.share(place) * (_WIDTH - _LEFT)
        return across, (1 - y.share(number)) * (_HEIGHT - _BOTTOM)

    parts = [*_grid(x, y, name)]
    for place, line in enumerate(lines):
        ends = [at(*point) for point in line.points]
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in ends)
        parts.append(f'<polyline class="w c{place % 8}" points="{path}"/>')
        for end, (where, number) in zip(ends, line.points, strict=True):
            title = f"{escape(line.label)}: {escape(name)} {where:g}, {number:.3g}"
            parts.append(_mark(place, *end, f"<title>{title}</title>"))
    room = 12  # for half of the last number
    return Drawing(_WIDTH + room, _HEIGHT, "\n".join(parts))


def _grid(x: _Axis, y: _Axis, name: str) -> Iterator[str]:
    """Thin lines, and the numbers at their ends."""
    foot = _HEIGHT - _BOTTOM
    for value, text in y.ticks:
        at = (1 - y.share(value)) * foot
        yield f'<path class="h" d="M{_LEFT} {at:.1f}H{_WIDTH}"/>'
        yield f'<text class="y s" x="{_LEFT - 6}" y="{at + 3.5:.1f}">{text}</text>'
    last = -math.inf
    for value, text in x.ticks:
        at = _LEFT + x.share(value) * (_WIDTH - _LEFT)
        yield f'<path class="h" d="M{at:.1f} 0V{foot}"/>'
        if at - last > 40:  # room for the number
            yield f'<text class="q s" x="{at:.1f}" y="{foot + 16}">{text}</text>'
            last = at
    middle = (_LEFT + _WIDTH) / 2
    yield f'<text class="q s" x="{middle:g}" y="{foot + 32}">{escape(name)}</text>'


def _mark(place: int, x: float, y: float, title: str = "") -> str:
    """A point of a line: a disc, a square, a diamond or a triangle."""
    shape = (
        "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
        "m-3.5 -3.5h7v7h-7z",
        "m0 -5l5 5l-5 5l-5 -5z",
        "m0 -4.5l5 8.5h-10z",
    )[place % 4]
    return f'<path class="f c{place % 8}" d="M{x:.1f} {y:.1f}{shape}">{title}</path>'


def _key(place: int, label: str) -> Drawing:
    text = words(label, "k t")
    mark = f'<path class="w c{place % 8}" d="M0 8H24"/>{_mark(place, 12, 8)}'
    return Drawing(text.width + 32, text.height, mark + text.at(32, 0))


def _colours() -> str:
    """Dark lines on a light page, light ones on a dark page."""

    def rules(dark: bool) -> str:
        inks = [ink(group, dark) for group in _GROUPS]
        return "".join(
            f"svg.fm .w.c{n}{{stroke:{c}}}svg.fm .f.c{n}{{fill:{c}}}\n"
            for n, c in enumerate(inks)
        )

    dark = f"@media (prefers-color-scheme: dark){{\n{rules(dark=True)}}}"
    return f"{rules(dark=False)}{dark}"
