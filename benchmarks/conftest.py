"""Benchmarks, each measured against copying the same bytes.

An absolute time says more about the machine than about the code, so each
benchmark is set against `np.copyto` of as many bytes, timed in the same run
right before and right after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest


@dataclass(frozen=True)
class Line:
    """One line of the closing table."""

    name: str
    seconds: float
    copy: float
    limit: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.copy


LINES: list[Line] = []


def copy_seconds(nbytes: int, rounds: int = 5) -> float:
    """The least time that `np.copyto` needs for these bytes."""
    source = np.ones(nbytes, np.uint8)
    target = np.zeros(nbytes, np.uint8)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.fixture
def within_copies(
    benchmark: Any, request: pytest.FixtureRequest
) -> Callable[[Callable[[], object], int, float], None]:
    """Benchmark a call; fail if it takes more than ``limit`` copies of its input."""

    def measure(call: Callable[[], object], nbytes: int, limit: float) -> None:
        before = copy_seconds(nbytes)
        benchmark.pedantic(call, rounds=9, warmup_rounds=1)
        copy = min(before, copy_seconds(nbytes))
        line = Line(request.node.name, benchmark.stats.stats.min, copy, limit)
        LINES.append(line)
        benchmark.extra_info["copies"] = line.ratio
        assert line.ratio <= limit

    return measure


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print every ratio, whether it passed or not, and what was left out."""
    left_out = terminalreporter.stats.get("skipped", [])
    if left_out:
        terminalreporter.section(f"left out: {len(left_out)} benchmarks")
        for report in left_out:
            terminalreporter.line(f"{report.nodeid}: {report.longrepr[2]}")
    terminalreporter.section("beside other tools")
    terminalreporter.line(
        "make bench-peers: Triton's interpreter, MMA-Sim, numba-cuda's simulator, in "
        "an environment of their own"
    )
    if not LINES:
        return
    terminalreporter.section("in copies of the same bytes")
    terminalreporter.line(f"{'':<42}{'ms':>8}{'copy ms':>9}{'copies':>8}{'limit':>7}")
    for line in LINES:
        terminalreporter.line(
            f"{line.name:<42}{1e3 * line.seconds:8.2f}{1e3 * line.copy:9.2f}"
            f"{line.ratio:8.2f}{line.limit:7.1f}"
        )
