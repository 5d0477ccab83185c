"""The page of a recorded run: one file, with the record in it.

The page is ``replay.html``, which is built from ``explorer/``.  A record is two
elements of it: its head as JSON, and its columns, deflated, in base64.  Runs beside it
have two more each, with what is not the same.
"""

from __future__ import annotations

import base64
import html
import json
from importlib.resources import files
from os import PathLike
from pathlib import Path

from fragmenta.replay.files import packed
from fragmenta.replay.recorded import Replay

PLACE = "<!-- replay -->"
"""Where the page has the record."""
_PLAIN = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1><p>{steps:,} steps. {left_out}</p>
<!-- replay -->
</body></html>
"""


def page(replay: Replay) -> str:
    """The text of the page."""
    records = [_record(each, number, replay) for number, each in enumerate(replay.runs)]
    before, _, after = _built(replay).partition(PLACE)
    return before + "".join(records) + after


def _record(replay: Replay, number: int, first: Replay) -> str:
    """A run as elements of the page; those beside the first one have numbers."""
    head, data = packed(replay, first)
    # A script ends at its first end tag, wherever that is.
    small = json.dumps(head, separators=(",", ":")).replace("</", "<\\/")
    large = base64.b64encode(data).decode()
    of = f"-{number}" if number else ""
    return (
        f'<script type="application/json" id="replay-head{of}">{small}</script>\n'
        f'<script type="application/octet-stream" id="replay-data{of}">{large}'
        "</script>\n"
    )


def _built(replay: Replay) -> str:
    """The page without a record."""
    built = files("fragmenta").joinpath("view", "replay.html")
    if built.is_file():
        return built.read_text(encoding="utf-8")
    title = html.escape(f"{replay.kernel}: replay")
    return _PLAIN.format(
        title=title, steps=len(replay), left_out=html.escape(replay.left_out)
    )


def write(replay: Replay, path: str | PathLike[str]) -> None:
    """Write the page into a file."""
    Path(path).write_text(page(replay), encoding="utf-8")
