"""Measures one call: CPU time, after a call to warm up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

ROUNDS, ENOUGH, SLOW, LEAST = 5, 3.0, 2.0, 0.02
"""Repetitions, the CPU seconds after which two of them are enough, those of a first
call after which there is no second one to warm up, and those of a repetition: shorter
calls are made several times in each."""


class Times(NamedTuple):
    """The seconds of a call."""

    first: float
    """CPU time of the first call: compilers, imports, caches."""
    cpu: float
    """The least CPU time of later calls, of all threads together."""
    wall: float
    """The least time that passed."""
    rounds: int


def measure(call: Callable[[], object]) -> Times:
    """Call it until its time is known."""
    start = time.process_time()
    call()
    first = time.process_time() - start
    once = first
    if first < SLOW:
        start = time.process_time()
        call()
        once = time.process_time() - start
    calls = max(1, round(LEAST / max(once, 1e-6)))
    spent: list[tuple[float, float]] = []
    while len(spent) < ROUNDS and (len(spent) < 2 or _total(spent) * calls < ENOUGH):
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(calls):
            call()
        used = time.process_time() - cpu, time.perf_counter() - wall
        spent.append((used[0] / calls, used[1] / calls))
    return Times(
        first, min(cpu for cpu, _ in spent), min(wall for _, wall in spent), len(spent)
    )


def _total(spent: list[tuple[float, float]]) -> float:
    return sum(cpu for cpu, _ in spent)
