"""The least time of a call."""

from __future__ import annotations

import time
from collections.abc import Callable


def least(
    call: Callable[[], object],
    rounds: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The least time of several calls in seconds, after one to warm up."""
    call()
    times = []
    for _ in range(rounds):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)
