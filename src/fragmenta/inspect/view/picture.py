"""A picture: SVG text that notebooks show and ``save`` writes."""

from __future__ import annotations

from pathlib import Path

from fragmenta.inspect.view.svg import convert


class Picture:
    """An SVG.  ``str`` is its text; a notebook shows it.

    >>> Picture("<svg/>")
    <a picture: 6 characters of SVG>
    """

    what = "picture"

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def _repr_svg_(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<a {self.what}: {len(self._text):,} characters of SVG>"

    def save(self, path: str | Path) -> None:
        """Write it to a file: SVG, PNG or PDF, as the ending of its name says."""
        ending = Path(path).suffix.lstrip(".").lower()
        Path(path).write_bytes(convert(self._text, ending or "svg"))
