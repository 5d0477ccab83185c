"""Writes what a launch did, step by step, into a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fragmenta.commands.files import check_output, save_bytes
from fragmenta.commands.output import emit
from fragmenta.errors import BadCall

if TYPE_CHECKING:
    from fragmenta.launch.result import Result
    from fragmenta.tracing.told import Window

ReplayFile = Annotated[
    str | None,
    typer.Option(
        "--replay",
        metavar="PATH",
        help="Record every step: a page, .html, or .npz. Implies --problems report.",
        show_default=False,
    ),
]
ReplayFrom = Annotated[
    int | None,
    typer.Option(
        "--replay-from",
        metavar="STEP",
        help="Keep the steps that are recorded from this one on.",
        show_default=False,
    ),
]


def replay_option(path: str | None, first: int | None, force: bool) -> bool | Window:
    """What ``launch`` is given as ``replay``; a file that is in the way is refused."""
    if path is None:
        if first is not None:
            raise BadCall("--replay-from needs --replay, the file to write")
        return False
    check_output(path, force, ".html", ".npz", option="--replay")
    if first is None:
        return True
    from fragmenta.tracing.told import Window

    return Window(first=first)


def write_replay(path: str | None, result: Result, force: bool) -> str:
    """Write the record of a launch; what was left out, in words."""
    if path is None:
        return ""
    from fragmenta.replay.files import saved
    from fragmenta.replay.making import replay_of
    from fragmenta.view.replay_page import page

    replay = replay_of(result)
    data = saved(replay) if path.endswith(".npz") else page(replay).encode()
    save_bytes(path, data, force)
    return replay.left_out


def emit_left_out(path: str | None, left_out: str) -> None:
    """Say what the record of a launch does not have."""
    if left_out:
        emit(f"\n{path}: {left_out}")
