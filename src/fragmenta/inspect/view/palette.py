"""The colour of each lane, in pictures, in the terminal and in the explorer.

There are eight hues for the eight groups of four lanes, and four shades for the lanes
of a group.  The hues differ for the common forms of colour blindness, too; every shade
is light enough for black text, or dark enough for white text.
"""

from __future__ import annotations

from functools import cache

# In the order of the groups: neighbours in a matrix differ in lightness too.
_HUES = (
    (0x6F, 0xA8, 0xDC),
    (0xF2, 0xA0, 0x65),
    (0x4D, 0xB8, 0x9B),
    (0xF2, 0xD3, 0x5E),
    (0xC5, 0x8F, 0xD6),
    (0xB5, 0xC2, 0x35),
    (0xF4, 0x9A, 0xAE),
    (0xA9, 0xAF, 0xB9),
)
_WHITE, _NIGHT = (255, 255, 255), (13, 16, 23)

#: How much of white, or of night, goes into the lanes 0 to 3 of a group.
_LIGHT = (0.0, 0.22, 0.42, 0.62)
_DARK = (0.53, 0.61, 0.69, 0.77)

Colour = tuple[int, int, int]


@cache
def lane_colour(lane: int, dark: bool = False) -> Colour:
    """Red, green and blue of a lane, as a background for black (dark: white) text.

    >>> lane_colour(0), lane_colour(3), lane_colour(3, dark=True)
    ((111, 168, 220), (200, 222, 242), (36, 51, 68))
    """
    hue = _HUES[lane // 4 % 8]
    other = _NIGHT if dark else _WHITE
    share = (_DARK if dark else _LIGHT)[lane % 4]
    red, green, blue = (
        round(a + (b - a) * share) for a, b in zip(hue, other, strict=True)
    )
    return red, green, blue


def hex_colour(lane: int, dark: bool = False) -> str:
    """The colour of a lane as web pages write it.

    >>> hex_colour(0), hex_colour(3, dark=True)
    ('#6fa8dc', '#243344')
    """
    return "#{:02x}{:02x}{:02x}".format(*lane_colour(lane, dark))


@cache
def ink(group: int, dark: bool = False) -> str:
    """The hue of a group of lanes as a line on the page, in light and in dark.

    On a light page it is dark enough for thin lines: WCAG requires a contrast of 3.

    >>> ink(0), ink(0, dark=True)
    ('#5c8bb7', '#6fa8dc')
    """
    hue = _HUES[group % 8]
    share = 1.0
    while contrast(found := _times(hue, share), _NIGHT if dark else _WHITE) < 3.6:
        share -= 0.01
    return "#{:02x}{:02x}{:02x}".format(*found)


def _times(colour: Colour, share: float) -> Colour:
    red, green, blue = (round(value * share) for value in colour)
    return red, green, blue


def terminal_style(lane: int) -> str:
    """The colour of a lane as rich writes it, with text that reads well on it.

    >>> terminal_style(0)
    'black on #6fa8dc'
    """
    return f"black on {hex_colour(lane)}"


def contrast(one: Colour, other: Colour) -> float:
    """The contrast of two colours, from 1 to 21, as WCAG defines it.

    >>> round(contrast((0, 0, 0), (255, 255, 255)))
    21
    """
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: Colour) -> float:
    shares = [value / 255 for value in colour]
    linear = [
        s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares
    ]
    return sum(w * s for w, s in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


# Colours of other things: the page, text, remarks, the frames of registers, the lines
# between elements, and the bands that name chunks and warps.
_REST = {
    "page": ("fill", "#ffffff", "#0d1017"),
    "text": ("fill", "#1b1f24", "#f0f3f6"),
    "small": ("fill", "#57606a", "#a6b0bb"),
    "outline": ("stroke", "#2f353d", "#d3dae1"),
    "hairline": ("stroke", "#8c959f", "#5b6570"),
    "band": ("fill", "#e6eaef", "#262c36"),
}


def inks(dark: bool = False) -> dict[str, str]:
    """The colours of everything but lanes, by name.

    >>> inks()["page"], inks(dark=True)["outline"]
    ('#ffffff', '#d3dae1')
    """
    return {name: (night if dark else day) for name, (_, day, night) in _REST.items()}


@cache
def css(scope: str) -> str:
    """The style sheet of a picture, in light and in dark.

    ``scope`` keeps the rules inside the picture; otherwise the style sheet of a picture
    would apply to its whole page.

    >>> css("svg.fm").splitlines()[0]
    'svg.fm .p{fill:#ffffff}'
    """
    # Custom properties would be shorter, but not every renderer knows them.
    day, night = _rules(scope, dark=False), _rules(scope, dark=True)
    return f"{day}\n@media (prefers-color-scheme: dark){{\n{night}\n}}"


def _rules(scope: str, dark: bool) -> str:
    # The class is the first letter of the name.
    rest = [f"{scope} .{n[0]}{{{what}:{c[dark]}}}" for n, (what, *c) in _REST.items()]
    lanes = [f"{scope} .l{lane}{{fill:{hex_colour(lane, dark)}}}" for lane in range(32)]
    return "\n".join([*rest, *lanes])
