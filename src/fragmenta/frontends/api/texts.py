"""Texts that show themselves: source, tables and pictures that users get as strings.

Each is a ``str``, so it can be written, compared and cut as one.
"""

from __future__ import annotations


class Text(str):
    r"""Lines of text, which a prompt shows as they are, without quotes.

    >>> Text("row 0\nrow 1")
    row 0
    row 1
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Svg(str):
    """A picture as the text of its SVG file; a notebook shows the picture.

    >>> Svg("<svg></svg>")
    <a picture: 11 characters of SVG>
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<a picture: {len(self):,} characters of SVG>"

    def _repr_svg_(self) -> str:
        return str(self)
