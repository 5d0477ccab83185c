"""Writes Markdown that code hosts and the site show alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table.

    >>> print(table(["line"], [["`d|p`"]]).splitlines()[-1])
    | <code>d&#124;p</code> |
    """
    cells = [
        head,
        ("---",) * len(head),
        *([_cell(each) for each in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _cell(text: str) -> str:
    """A cell without bars, at which code hosts end it and which the site escapes."""
    if "|" not in text:
        return text
    code = re.sub(r"`([^`]*)`", r"<code>\1</code>", text)
    return re.sub(r"[|{}*_\[\]]", lambda mark: f"&#{ord(mark[0])};", code)


def anchor(title: str) -> str:
    """The name that code hosts and the site both give to a heading.

    It is also a name for a file.

    >>> anchor("`tcgen05.mma.cta_group::1.kind::f16 0x08400010`")
    'tcgen05mmacta_group1kindf16-0x08400010'
    """
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def counted(count: int, what: str) -> str:
    """A number and what is counted, in the plural where there are several."""
    return f"{count:,} {what}{'s' * (count != 1)}"
