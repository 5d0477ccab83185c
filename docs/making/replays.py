"""Replays of the kernels on hazards: wrong with several schedules, and repaired."""

from __future__ import annotations

import sys
from pathlib import Path

from fragmenta.errors import Error
from tests.ptx.hazards import pages

BEFORE = "## The repair\n"
"""The heading before which a page links to its replay."""
WORDS = (
    "[Step through it]({name}): eager, lazy or in a random order, and with the repair."
)


def written(rule: str, folder: Path) -> str:
    """Write the replay of a page into a folder; its name, or nothing without nvcc."""
    name = f"{rule}-replay.html"
    try:
        pages.replay(rule).to_html(folder / name)
    except Error as why:
        print(f"no replay of {rule}: {why}", file=sys.stderr)
        return ""
    return name


def linked(text: str, name: str) -> str:
    """A page with a link to its replay."""
    return text.replace(BEFORE, f"{WORDS.format(name=name)}\n\n{BEFORE}", 1)
