"""Pieces that the pictures at the top of pages are made of.

They are 768 pixels wide, have no text below 11 pixels, and follow the reader's choice
of light or dark, as all pictures of :mod:`fragmenta.inspect.view.svg` do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from fragmenta.inspect.view.svg import Drawing, document, down, words

WIDTH = 740
LETTER = 6.8
"""The width of a letter of 11 pixels."""
STYLE = """
svg.fm .k{font-size:11px}
svg.fm .y{font-size:11px;text-anchor:end}
svg.fm .c{font-size:11px;text-anchor:middle}
svg.fm .good{fill:#1a9f78} svg.fm .bad{fill:#d55e00} svg.fm .blue{fill:#3d8fc9}
svg.fm .pink{fill:#c9719f} svg.fm .sand{fill:#c99700} svg.fm .grey{fill:#848d97}
svg.fm .box{stroke-width:1;fill-opacity:0}
svg.fm .way{fill:none;stroke:#3d8fc9;stroke-width:1.6}
svg.fm .dots{fill:none;stroke:#3d8fc9;stroke-width:2.4;stroke-linecap:round}
svg.fm .cut{fill:none;stroke:#d55e00;stroke-width:2;stroke-dasharray:5 3}
svg.fm .dash{stroke-dasharray:4 3;fill:none}
"""
Parts = Sequence[tuple[str, float]]
"""The colour and the size of each part of a bar."""


def text(x: float, y: float, said: str, style: str = "k t") -> str:
    """One line of text, its foot at ``y``."""
    return f'<text class="{style}" x="{x:.4g}" y="{y:.4g}">{escape(said)}</text>'


def block(x: float, y: float, width: float, height: float, style: str) -> str:
    """A rectangle."""
    size = f'width="{max(width, 0.5):.4g}" height="{height:.4g}"'
    return f'<rect class="{style}" x="{x:.4g}" y="{y:.4g}" {size}/>'


def dot(x: float, y: float, style: str, size: float = 4) -> str:
    """A point of a chart."""
    return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="{size:g}"/>'


def picture(title: str, parts: Iterable[Drawing], gap: float = 12) -> str:
    """A picture with its title above."""
    return document(down([words(title, "g t"), *parts], gap), title, STYLE)


def key(meanings: dict[str, str]) -> Drawing:
    """What each colour means."""
    body, x = [], 0.0
    for style, said in meanings.items():
        body += [block(x, 1, 11, 11, style), text(x + 16, 11, said, "k s")]
        x += 34 + LETTER * len(said)
    return Drawing(x, 14, "".join(body))


def bars(
    rows: Iterable[tuple[str, Parts, str]], left: float, most: float, right: float = 150
) -> Drawing:
    """A bar of several parts for each row: its name, the bar, what is said after it.

    ``left`` and ``right`` are the room for words; ``most`` is as long as the rest.
    """
    space = WIDTH - left - right
    lines = []
    for name, parts, said in rows:
        x, body = left, [text(left - 8, 12, name, "y t")]
        for style, size in parts:
            if size:
                body.append(block(x, 1, space * size / most, 14, style))
                x += space * size / most
        body.append(text(x + 6, 12, said, "k s"))
        lines.append(Drawing(WIDTH, 16, "".join(body)))
    return down(lines, 3)


def decades(low: float, high: float) -> list[int]:
    """The powers of ten from one number to another.

    >>> decades(0.02, 50)
    [-2, -1, 0, 1, 2]
    """
    return list(range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1))


def steps(boxes: Sequence[Sequence[str]], width: float = WIDTH) -> Drawing:
    """Boxes from left to right with arrows; the first line of each is its name."""
    gap = 26
    wide = (width - gap * (len(boxes) - 1)) / len(boxes)
    high = 16 + 16 * max(map(len, boxes))
    body = []
    for place, lines in enumerate(boxes):
        x = place * (wide + gap)
        body.append(block(x, 0, wide, high, "b"))
        for number, said in enumerate(lines):
            body.append(text(x + 8, 20 + 16 * number, said, "k s" if number else "k t"))
        if place:
            body.append(arrow(x - gap + 3, high / 2, x - 3))
    return Drawing(width, high, "".join(body))


def arrow(x: float, y: float, to: float) -> str:
    """An arrow to the right."""
    return f'<path class="way" d="M{x:g} {y:g}H{to:g}m-6 -4l6 4l-6 4"/>'
