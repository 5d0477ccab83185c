"""The limits of a launch: time, memory, printed text, instructions and stacks.

A kernel can ask for any amount of them: a loop that never ends, gigabytes of variables,
``printf`` with a width of two billion.  The limits are checked whenever its code comes
back to Python, and before memory is allocated.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from fragmenta.base.arrays.checks import is_whole
from fragmenta.errors import BadCall, LimitReached

SECONDS = 3600.0
"""The default limit of time."""
OUTPUT = 1 << 24
"""The default limit of printed characters."""
STACK, MOST_STACK = 1 << 16, 1 << 20
"""Bytes of the stack of each thread, and the most of them."""
LINES_A_SECOND, BYTES_A_LINE = 20_000, 1024
"""What LLVM needs at most for a line of its language; measured, with some reserve."""
BETWEEN = 0.05
"""Seconds between two looks at the memory of the process."""


class Limits(NamedTuple):
    """What a launch may take; None for no limit.

    A launch that needs more is stopped with a :class:`LimitReached`, and with a
    :class:`KernelFault` if it executes too many instructions.

    >>> from fragmenta import ptx
    >>> limits = ptx.Limits(seconds=10, instructions=1_000_000)
    >>> limits.seconds, limits.memory
    (10, None)
    """

    seconds: float | None = SECONDS
    """How long the launch may take."""
    memory: int | None = None
    """Bytes of memory; by default as many as the machine has."""
    output: int | None = OUTPUT
    """Characters that the kernel may print."""
    instructions: int | None = None
    """Warp instructions that may be executed."""
    stack: int = STACK
    """Bytes of the stack of each thread."""


def check_limits(limits: Limits) -> Limits:
    """The limits of a launch; what is not a number is refused.

    >>> check_limits(Limits(2, 1 << 30, None)).seconds
    2.0
    """
    if not isinstance(limits, Limits):
        raise BadCall(f"limits is ptx.Limits(seconds=, memory=, ...); given {limits!r}")
    seconds, memory, output, instructions, stack = limits
    if seconds is not None:
        number = isinstance(seconds, (int, float)) or is_whole(seconds)
        if not number or isinstance(seconds, bool) or not 0 < seconds < math.inf:
            raise BadCall(
                "seconds is how long a launch may take, more than 0, or None for no "
                f"limit; given {seconds!r}"
            )
        seconds = float(seconds)
    for name, what, given in (
        ("memory", "bytes that a launch may use", memory),
        ("output", "characters that a kernel may print", output),
        ("instructions", "warp instructions that a kernel may execute", instructions),
    ):
        if given is not None and (not is_whole(given) or given < 0):
            raise BadCall(
                f"{name} is the {what}, a whole number or None; given {given!r}"
            )
    if not is_whole(stack) or not 0 <= stack <= MOST_STACK:
        raise BadCall(
            f"stack is the bytes of each thread's stack, 0 to {MOST_STACK:,}; given "
            f"{stack!r}"
        )
    return Limits(
        seconds,
        machine_memory() if memory is None else int(memory),
        None if output is None else int(output),
        None if instructions is None else int(instructions),
        int(stack),
    )


@cache
def machine_memory() -> int | None:
    """The memory of this machine, or the part that this process may have; in bytes."""
    found: list[int] = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            found += [int(word) for word in file.read().split() if word.isdecimal()]
    except OSError:
        pass
    return min(found, default=None)


def resident() -> int:
    """The memory that this process uses now, or has used at most; 0 if unknown."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def size_text(size: int) -> str:
    """A number of bytes as people read it.

    >>> size_text(1 << 37), size_text(3 << 19), size_text(100)
    ('128 GiB', '1.5 MiB', '100 bytes')
    """
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            whole = size % unit == 0 or size > 99 * unit
            return f"{size // unit:,} {name}" if whole else f"{size / unit:.3g} {name}"
    return f"{size} bytes"


class Meter:
    """Measures what a launch takes, and stops it at its limits."""

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        memory: Callable[[], int] = resident,
    ) -> None:
        self.limits = limits
        self._clock, self._memory = clock, memory
        self._start = clock()
        self._before = memory()
        self._look = self._start + BETWEEN
        self._printed = 0

    @property
    def most_output(self) -> int | None:
        """The characters that the kernel may print; None for no limit."""
        return self.limits.output

    def check(self) -> None:
        """Raise if the time or the memory is used up."""
        now, seconds = self._clock(), self.limits.seconds
        if seconds is not None and now - self._start > seconds:
            raise LimitReached(
                f"the launch took longer than {seconds:g} s{how_to_raise('seconds')}",
                "seconds",
            )
        if now < self._look:
            return
        self._look = now + BETWEEN
        most, grown = self.limits.memory, self._memory() - self._before
        if most is not None and grown > most:
            self._too_much(f"the launch uses {size_text(grown)} of memory")

    def room(self, size: int, what: str) -> None:
        """Raise if something needs more memory than the whole launch may have."""
        if self.limits.memory is not None and size > self.limits.memory:
            self._too_much(f"{what} need {size_text(size)} of memory")

    def _too_much(self, what: str) -> None:
        most = size_text(self.limits.memory or 0)
        raise LimitReached(
            f"{what}; {most} are allowed{how_to_raise('memory')}", "memory"
        )

    def code(self, lines: int) -> None:
        """Raise if so much code takes longer to compile than the launch may take."""
        seconds = self.limits.seconds
        if seconds is not None and lines > seconds * LINES_A_SECOND:
            raise LimitReached(
                f"the kernel is so long that it takes more than {seconds:g} s to "
                f"compile: over {lines:,} lines of LLVM's language"
                + how_to_raise("seconds"),
                "seconds",
            )
        self.room(lines * BYTES_A_LINE, f"{lines:,} lines of LLVM's language")

    def print(self, characters: int) -> None:
        """Raise if a kernel prints more than it may."""
        self._printed += characters
        most = self.limits.output
        if most is not None and self._printed > most:
            raise LimitReached(
                f"the kernel prints more than {most:,} characters"
                + how_to_raise("output"),
                "output",
            )
        self.check()


def default_meter() -> Meter:
    """A meter with the default limits."""
    return Meter(check_limits(Limits()))


def how_to_raise(name: str) -> str:
    """How a limit is raised."""
    others = {"output": "printed", "instructions": "limit"}  # --output is a file
    option = others.get(name, name)
    more = f"launch(..., limits=Limits({name}=)) allows more"
    return f"; {more}, --{option} on the command line"


def no_memory(why: MemoryError) -> LimitReached:
    """The error for memory that the system does not give."""
    said = f": {why}" if str(why) else ""
    return LimitReached(f"the system has no memory left for the launch{said}", "memory")
