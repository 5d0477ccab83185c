"""How do errors grow with the length of a sum?

A plot of mean relative errors over k, both axes logarithmic: a line for each
instruction and each way in which targets add it.  Lines differ in colour and in the
shape of their marks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from fragmenta.execution.compare import Compared
from fragmenta.view.palette import hex_colour
from fragmenta.view.svg import Drawing, document, down, words

_WIDTH, _HEIGHT = 600, 300
_LEFT, _BOTTOM = 46, 34
_HUES, _STEP = 8, 4  # hues of lanes are four lanes apart


class _Line(NamedTuple):
    label: str
    points: list[tuple[int, float]]


class _Axes(NamedTuple):
    """The powers at both ends: of two along k, of ten for errors."""

    k: tuple[float, float]
    error: tuple[int, int]
    zero: bool  #: whether the bottom is no error at all

    def at(self, k: int, error: float) -> tuple[float, float]:
        """Where a point is; no error is at the bottom."""
        low, high = self.k
        x = _LEFT + (math.log2(k) - low) / (high - low) * (_WIDTH - _LEFT)
        least, most = self.error
        power = math.log10(error) if error else float(least)
        return x, (most - max(power, least)) / (most - least) * (_HEIGHT - _BOTTOM)


def error_plot(compared: Compared) -> str:
    """The plot of a comparison.

    >>> import fragmenta as fm
    >>> told = fm.compare("mma.m16n8k16.f32.f16", "sm_80,sm_90", k=[64, 256])
    >>> picture = error_plot(told)
    >>> picture[:4], picture.count("<polyline"), "sm_80  mma.sync" in picture
    ('<svg', 2, True)
    """
    lines = list(_lines(compared))
    title = "mean relative error by the length of the sum"
    head = down([words(title, "g t"), words(compared.input, "k s")], 4)
    legend = down((_key(place, line.label) for place, line in enumerate(lines)), 2)
    body = down([head, _plot(lines, _axes(lines)), legend], 10)
    return document(body, title, _style())


def _lines(compared: Compared) -> Iterator[_Line]:
    for op, groups in compared.folded().items():
        for targets, rows in groups:
            points = [(r.k, r.mean_relative) for r in rows]
            known = [(k, error) for k, error in points if error is not None]
            yield _Line(f"{' '.join(targets)}  {op}", known)


def _axes(lines: list[_Line]) -> _Axes:
    lengths = [k for line in lines for k, _ in line.points] or [1]
    errors = [e for line in lines for _, e in line.points if e] or [1.0]
    some = any(e == 0 for line in lines for _, e in line.points)
    low, high = math.log2(min(lengths)), math.log2(max(lengths))
    least, most = (
        math.floor(math.log10(min(errors))),
        math.ceil(math.log10(max(errors))),
    )
    return _Axes((low - 0.5, high + 0.5), (least - some, max(most, least + 1)), some)


def _plot(lines: list[_Line], axes: _Axes) -> Drawing:
    parts = [*_grid(axes, sorted({k for line in lines for k, _ in line.points}))]
    for place, line in enumerate(lines):
        at = [axes.at(*point) for point in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        colour = f"c{place % _HUES}"
        parts.append(f'<polyline class="w {colour}" points="{path}"/>')
        for (x, y), (k, error) in zip(at, line.points, strict=True):
            title = f"<title>{escape(line.label)}: k {k}, {error:.3g}</title>"
            parts.append(_mark(place, x, y, title))
    return Drawing(_WIDTH, _HEIGHT, "\n".join(parts))


def _grid(axes: _Axes, lengths: list[int]) -> Iterator[str]:
    """Lines and labels: a power of ten, a length."""
    foot = _HEIGHT - _BOTTOM
    least, most = axes.error
    for power in range(least, most + 1, max(1, (most - least) // 8)):
        _, y = axes.at(1, 10.0**power)
        yield f'<path class="h" d="M{_LEFT} {y:.1f}H{_WIDTH}"/>'
        text = "0" if axes.zero and power == least else f"1e{power}"
        yield f'<text class="r s" x="{_LEFT - 6}" y="{y + 3:.1f}">{text}</text>'
    last = -math.inf
    for k in lengths:
        x, _ = axes.at(k, 1.0)
        yield f'<path class="h" d="M{x:.1f} 0V{foot}"/>'
        if x - last > 40:  # room for the number
            yield f'<text class="m s" x="{x:.1f}" y="{foot + 14}">{k}</text>'
            last = x
    middle = (_LEFT + _WIDTH) / 2
    yield f'<text class="m s" x="{middle:g}" y="{foot + 28}">products in a sum</text>'


def _mark(place: int, x: float, y: float, title: str = "") -> str:
    """A point of a line: a disc, a square, a diamond or a triangle."""
    shape = (
        "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
        "m-3.5 -3.5h7v7h-7z",
        "m0 -5l5 5l-5 5l-5 -5z",
        "m0 -4.5l5 8.5h-10z",
    )[place % 4]
    colour = f"c{place % _HUES}"
    return f'<path class="f {colour}" d="M{x:.1f} {y:.1f}{shape}">{title}</path>'


def _key(place: int, label: str) -> Drawing:
    text = words(label, "k t")
    mark = f'<path class="w c{place % _HUES}" d="M0 8H24"/>{_mark(place, 12, 8)}'
    return Drawing(text.width + 32, text.height, mark + text.at(32, 0))


def _style() -> str:
    """Dark lines on a light page, light ones on a dark page."""
    rules = [
        "svg.fm .w{fill:none;stroke-width:1.6}",
        *(_colour(place, dark=True) for place in range(_HUES)),
        "@media (prefers-color-scheme: dark){",
        *(_colour(place, dark=False) for place in range(_HUES)),
        "}",
    ]
    return "\n".join(rules)


def _colour(place: int, dark: bool) -> str:
    colour = hex_colour(place * _STEP, dark)
    both = f"svg.fm .w.c{place}{{stroke:{colour}}}"
    return f"{both}\nsvg.fm .f.c{place}{{fill:{colour}}}"
