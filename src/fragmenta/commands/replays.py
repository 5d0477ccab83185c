"""Writes what a launch did, step by step, into a file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from fragmenta.commands.files import check_output, save_bytes
from fragmenta.commands.output import emit
from fragmenta.errors import BadCall, KernelError, shortened

if TYPE_CHECKING:
    from fragmenta.launch.result import Result
    from fragmenta.replay.recorded import Replay
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
Blocks = Annotated[
    str | None,
    typer.Option(
        "--blocks",
        metavar="NUMBERS",
        help="The blocks of the grid to record, such as 3 or 0,1; by default the "
        "first cluster, or the first one with a problem.",
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


def window_of(blocks: str | None, first: int | None) -> Window:
    """What of a launch is recorded.

    >>> window_of("0,2", 100)
    Window(blocks=(0, 2), first=100, most=200000)
    """
    from fragmenta.tracing.told import Window

    text = blocks or ""
    if not re.fullmatch(r"(\d{1,9}(,\d{1,9})*)?", text, re.ASCII):
        raise BadCall(
            "--blocks takes numbers with commas between them, such as 0,1; given "
            f"{shortened(text)}"
        )
    return Window(tuple(int(each) for each in text.split(",") if each), first or 0)


def replay_option(
    path: str | None, blocks: str | None, first: int | None, force: bool
) -> bool | Window:
    """What ``launch`` is given as ``replay``; a file that is in the way is refused."""
    if path is None:
        for name, given in (("--replay-from", first), ("--blocks", blocks)):
            if given is not None:
                raise BadCall(f"{name} needs --replay, the file to write")
        return False
    check_output(path, force, ".html", ".npz", option="--replay")
    return window_of(blocks, first)


def write_replay(path: str | None, result: Result, force: bool) -> Replay | None:
    """Write the record of a launch."""
    if path is None:
        return None
    from fragmenta.replay.files import saved
    from fragmenta.replay.making import replay_of
    from fragmenta.view.replay_page import page

    replay = replay_of(result)
    data = saved(replay) if path.endswith(".npz") else page(replay).encode()
    save_bytes(path, data, force)
    return replay


def write_fault(path: str | None, fault: KernelError, force: bool) -> None:
    """Write the record of a launch that was stopped, and name it in the message."""
    from fragmenta.launch.result import Result

    if path is None or not isinstance(fault.result, Result):
        return
    if not fault.result.steps:
        return
    replay = write_replay(path, fault.result, force)
    assert replay is not None
    said = f"{path} has every step until then"
    said += f"; {replay.left_out}" if replay.left_out else ""
    fault.args = (f"{fault.message}\n  {said}", *fault.args[1:])


def emit_replay(path: str | None, replay: Replay | None) -> None:
    """Say what is in the file, and what is not."""
    if replay is not None:
        said = [f"{len(replay):,} steps", replay.left_out]
        emit(f"\n{path}: {'; '.join(filter(None, said))}")


def replay_fields(replay: Replay | None) -> dict[str, object]:
    """The same, as fields of JSON."""
    return {} if replay is None else {"left_out": replay.left_out}
