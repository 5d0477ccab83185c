"""Writes what a launch did, step by step, into a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from fragmenta.commands.files import check_output, save_bytes
from fragmenta.commands.output import emit
from fragmenta.errors import BadCall, KernelError, one_of, shortened
from fragmenta.launch.result import Result

if TYPE_CHECKING:
    from fragmenta.engine.tracing.trace import Window
    from fragmenta.inspect.replay.recorded import Replay

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
ReplayBeside = Annotated[
    list[str] | None,
    typer.Option(
        "--replay-beside",
        metavar="FILE[=NAME]",
        help="Put a run that was saved, .npz, beside this one; may be repeated.",
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


Beside: TypeAlias = "Sequence[tuple[str, Replay]]"
"""Names and records of runs."""


def window_of(blocks: str | None, first: int | None) -> Window:
    """What of a launch is recorded.

    >>> window_of("0,2", 100)
    Window(blocks=(0, 2), first=100, most=200000)
    """
    from fragmenta.engine.tracing.trace import Window

    text = blocks or ""
    if not re.fullmatch(r"(\d{1,9}(,\d{1,9})*)?", text, re.ASCII):
        raise BadCall(
            "--blocks takes numbers with commas between them, such as 0,1; given "
            f"{shortened(text)}"
        )
    return Window(tuple(int(each) for each in text.split(",") if each), first or 0)


def replay_option(
    path: str | None,
    blocks: str | None,
    first: int | None,
    beside: Sequence[str] | None,
    force: bool,
) -> tuple[bool | Window, Beside]:
    """What ``launch`` is given as ``replay``, and the runs to be put beside it.

    A file that is in the way is refused.
    """
    if path is None:
        options = {"--replay-from": first, "--blocks": blocks}
        for name, given in {**options, "--replay-beside": beside}.items():
            if given is not None:
                raise BadCall(f"{name} needs --replay, the file to write")
        return False, []
    check_output(path, force, ".html", ".npz", option="--replay")
    return window_of(blocks, first), _read_beside(beside)


def _read_beside(given: Sequence[str] | None) -> Beside:
    """The runs to be put beside one that is recorded, and their names."""
    if not given:
        return []
    from fragmenta.inspect.replay.recorded import Replay

    found = []
    for each in given:
        path, _, name = each.partition("=")
        found.append((name or Path(path).stem, Replay.load(path)))
    return found


def write_replay(
    path: str | None,
    result: Result,
    force: bool,
    beside: Beside = (),
) -> Replay | None:
    """Write the record of a launch."""
    if path is None:
        return None
    from fragmenta.inspect.replay.files import saved
    from fragmenta.inspect.replay.making import replay_of
    from fragmenta.inspect.view.replay_page import page

    replay = replay_of(result)
    for name, other in beside:
        replay = replay.beside(other, name)
    data = saved(replay) if path.endswith(".npz") else page(replay).encode()
    save_bytes(path, data, force)
    return replay


def write_fault(path: str | None, fault: KernelError, force: bool) -> None:
    """Write the record of a launch that was stopped, and name it in the message."""
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
        names = one_of([each.name for each in replay.others], "and")
        more = names and f"beside it {names}"
        said = [f"{len(replay):,} steps", more, replay.left_out]
        emit(f"\n{path}: {'; '.join(filter(None, said))}")


def replay_fields(replay: Replay | None) -> dict[str, object]:
    """The same, as fields of JSON."""
    return {} if replay is None else {"left_out": replay.left_out}
