"""What a server tells about a process of a program, for the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fragmenta.ptx.checking.problem import Problem


class Launched(NamedTuple):
    """What came of a launch."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    instructions: int
    seconds: float
    watched: bool
    complete: bool
    problems: list[Problem]
    """Errors, and what the launch showed."""
    fault: str = ""
    """Why it could not be run, if nothing else says so."""


class Refused(NamedTuple):
    """A function of CUDA that is not there, or a launch that cannot be recorded."""

    why: str


class Recorded(NamedTuple):
    """A launch that was written to a file."""

    kernel: str
    path: str
    fault: str
    """The error of CUDA that ended it, if one did."""


Told = Launched | Refused | Recorded
Tell = Callable[[Told], None]
