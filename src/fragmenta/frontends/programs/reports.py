"""What a server tells about a process of a program, for the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fragmenta.ptx.checking.problem import Problem


class LaunchReport(NamedTuple):
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
    orders: dict[str, Any] | None = None
    """What all orders of it show, if they were explored."""


class Refused(NamedTuple):
    """A function of CUDA that is not there, or a launch that cannot be recorded."""

    why: str


class Recorded(NamedTuple):
    """A launch that was written to a file."""

    kernel: str
    path: str
    fault: str
    """The error of CUDA that ended it, if one did."""


class Called(NamedTuple):
    """A call of the program that does what it must not do with memory."""

    problem: Problem


Told = LaunchReport | Refused | Recorded | Called
Tell = Callable[[Told], None]
