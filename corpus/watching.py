"""Collects what is launched: every kernel, its time, and the reports about it.

Every launch, of any front end, is a request that :meth:`fragmenta.ptx.Kernel.run`
carries out, so that is where launches are seen.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fragmenta.errors import Error
from fragmenta.launch.instruments import Watch as Watching
from fragmenta.launch.kernel import Kernel
from fragmenta.launch.request import LaunchRequest
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.rules import INFO

FILE = re.compile(r'(?m)^\s*\.file\s+(\d+)\s+"([^"]*)"')
LOC = re.compile(r"(?m)^\s*\.loc\s+(\d+)\s+(\d+)")


@dataclass
class Seen:
    """The launches of one kernel."""

    name: str
    file: str
    """The source that it was compiled from; empty if the PTX does not say."""
    text: str
    launches: int = 0
    instructions: int = 0
    seconds: float = 0.0
    problems: dict[tuple[str, str, str], Problem] = field(default_factory=dict)
    counts: set[str] = field(default_factory=set)
    """The mnemonics that were executed."""


Before = Callable[[Kernel, LaunchRequest], Callable[[], None]]
"""Is called before a launch; what it returns is called after it."""


class Watch:
    """Collects what is launched."""

    def __init__(self, before: Before | None = None) -> None:
        self.kernels: dict[tuple[str, str], Seen] = {}
        self.before = before

    def restart(self) -> None:
        """Forget times and counts: those of the next call are wanted."""
        for each in self.kernels.values():
            each.launches, each.instructions, each.seconds = 0, 0, 0.0

    def seen(self, kernel: Kernel) -> Seen:
        """The record of a kernel."""
        text = kernel.loaded.module.text
        file = _file(text, kernel.name)
        key = kernel.name, file
        if key not in self.kernels:
            self.kernels[key] = Seen(kernel.name, file, text)
        return self.kernels[key]

    def add(self, kernel: Kernel, result: Any, seconds: float) -> None:
        """Keep what a launch did."""
        seen = self.seen(kernel)
        seen.launches += 1
        seen.seconds += seconds
        seen.instructions += result.instructions
        seen.counts |= set(result.counts)
        for each in result.hazards:
            if each.severity != INFO:
                key = each.rule, each.severity, place(each)
                seen.problems.setdefault(key, each)


@contextmanager
def watched(watch: Watch) -> Iterator[Watch]:
    """In this block, launches are collected."""
    run = Kernel.run

    def collecting(kernel: Kernel, request: LaunchRequest) -> Any:
        after = watch.before(kernel, request) if watch.before else None
        start = time.perf_counter()
        try:
            result = run(kernel, reporting(request))
        except Error:
            watch.seen(kernel).launches += 1
            raise
        watch.add(kernel, result, time.perf_counter() - start)
        stopped = any(each.rule == "fault" for each in result.hazards)
        if after and not stopped:
            after()
        return result

    Kernel.run = collecting  # type: ignore[method-assign]
    try:
        yield watch
    finally:
        Kernel.run = run  # type: ignore[method-assign]


def reporting(request: LaunchRequest) -> LaunchRequest:
    """The launch, watched, and without an exception for what is found."""
    others = [e for e in request.instruments if not isinstance(e, Watching)]
    return replace(request, instruments=(Watching("report"), *others))


def place(problem: Problem) -> str:
    """The line of the kernel itself that a problem is about."""
    source = problem.source
    while source is not None and source.caller is not None:
        source = source.caller
    return str(source or "")


def _file(text: str, name: str) -> str:
    """The source file of a kernel: that of its first line."""
    start = re.search(rf"\.entry\s+{re.escape(name)}\b", text)
    first = LOC.search(text, start.end() if start else 0)
    files = dict(FILE.findall(text))
    return files.get(first[1], "") if first else ""
