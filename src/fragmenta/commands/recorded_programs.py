"""Recording launches of programs, on a card and here."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from fragmenta.commands.output import complain
from fragmenta.errors import BadCall
from fragmenta.frontends.programs import running
from fragmenta.frontends.programs.asked import Wanted
from fragmenta.frontends.programs.reports import Recorded
from fragmenta.frontends.programs.running import Outcome

FOLDER = "recorded"
"""Where recordings of a program are written, unless a folder is named."""

ReplayFolder = Annotated[
    str | None,
    typer.Option(
        "--replay",
        metavar="PATH",
        help="Write a launch of each kernel to a folder; fragmenta replay runs them.",
        show_default=False,
    ),
]


class LaunchFilter(NamedTuple):
    """Which launches are recorded."""

    kernels: str
    launches: int


def wanted(folder: str, chosen: LaunchFilter) -> Wanted:
    """What is recorded, if the folder is new or empty."""
    check_regex(chosen.kernels)
    if chosen.launches < 1:
        raise BadCall(f"--launches is 1 or more; given {chosen.launches}")
    path = Path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadCall(f"{folder} is there, and is no empty folder; name another one")
    return Wanted(path.absolute(), chosen.kernels, chosen.launches)


def check_regex(text: str) -> None:
    """Refuse what is no regular expression."""
    try:
        re.compile(text)
    except re.error as why:
        raise BadCall(f"--kernels takes a regular expression: {why}") from why


def record_program(
    words: Sequence[str], output: str | None, chosen: LaunchFilter
) -> None:
    """Run a program on the GPU, and write chosen launches."""
    if not words:
        raise BadCall("name a program: fragmenta record -- ./program")
    asked = wanted(output or FOLDER, chosen)
    sys.stdout.flush()
    outcome = running.record(words, asked)
    complain("\n".join(_lines(asked, outcome)))
    status = outcome.status
    if status or outcome.crashes:
        raise typer.Exit(status if status > 0 else 128 - status if status else 1)


def _lines(asked: Wanted, outcome: Outcome) -> list[str]:
    """What is said after the program has ended."""
    count = len(outcome.recorded)
    plural = "es" if count != 1 else ""
    lines = [f"fragmenta: {count} launch{plural} recorded in {asked.folder.name}"]
    lines += recorded_lines(outcome.recorded)
    if outcome.status < 0:
        name = signal.Signals(-outcome.status).name
        lines.append(f"the program was ended by {name}")
    lines += [f"the recorder failed: {each}" for each in outcome.crashes]
    lines += dict.fromkeys(outcome.refused)
    if not count and not outcome.refused and not outcome.crashes:
        lines.append("the program launched no kernel that --kernels matches")
    return lines


def recorded_lines(recorded: Sequence[Recorded]) -> list[str]:
    """A line for each file."""
    return [
        f"  {Path(each.path).name}  {each.kernel}"
        + (f", ended by {each.fault}" if each.fault else "")
        for each in recorded
    ]
