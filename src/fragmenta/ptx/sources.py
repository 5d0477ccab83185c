"""The text of the sources that a kernel was compiled from."""

from __future__ import annotations

import linecache
import os

from fragmenta.ptx.languages import PTX, Words

UNNAMED = "source.cu"
"""What a source is called that is no file."""


def source_lines(file: str, language: Words) -> list[str]:
    """The lines of a file that a kernel was compiled from here, if it is there.

    PTX that is given as text may come from a stranger: it opens no file that it names.

    >>> source_lines("/etc/passwd", PTX)
    []
    """
    if not file or file == UNNAMED or language.language == PTX.language:
        return []
    path = os.path.abspath(file)  # linecache would look for other names elsewhere, too
    linecache.checkcache(path)
    return linecache.getlines(path)
