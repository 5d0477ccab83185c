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

from fragmenta.inspect.debugging.places import Place, SourceLines
from fragmenta.inspect.replay.files import packed
from fragmenta.inspect.replay.recorded import Replay
from fragmenta.inspect.view.replay_products import products_record

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
    of = f"-{number}" if number else ""
    found = _script("json", f"head{of}", _json(head))
    found += _script("octet-stream", f"data{of}", base64.b64encode(data).decode())
    for name, made in (("products", products_record), ("inlined", inlined_record)):
        own = made(replay)
        if own if not number else own != made(first):
            found += _script("json", f"{name}{of}", _json(own))
    return found


def inlined_record(replay: Replay) -> dict[int, list[Place]]:
    """For each instruction of an inlined function its lines, outermost first."""
    return {
        site: list(places)
        for site, places in enumerate(SourceLines(replay).frames)
        if len(places) > 1
    }


def _script(kind: str, name: str, text: str) -> str:
    return f'<script type="application/{kind}" id="replay-{name}">{text}</script>\n'


def _json(record: object) -> str:
    """As a script may have it: no text of a kernel ends it, or begins another one.

    A ``<`` stands only in texts, where JSON has another way to write it.
    """
    return json.dumps(record, separators=(",", ":")).replace("<", "\\u003c")


def _built(replay: Replay) -> str:
    """The page without a record."""
    built = files("fragmenta").joinpath("inspect", "view", "replay.html")
    if built.is_file():
        return built.read_text(encoding="utf-8")
    title = html.escape(f"{replay.kernel}: replay")
    return _PLAIN.format(
        title=title, steps=len(replay), left_out=html.escape(replay.left_out)
    )


def write(replay: Replay, path: str | PathLike[str]) -> None:
    """Write the page into a file."""
    Path(path).write_text(page(replay), encoding="utf-8")
