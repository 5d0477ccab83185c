"""What the tests have instead of the wall clock.

How fast the machine is, and what else runs on it, must not decide whether a test
passes.  So tests

- move a clock by hand (:class:`ByHand`) where the package looks at one;
- count work, not seconds (:func:`work`), where something must not take long;
- wait for what happens, not for a while; only what never happens ends (:data:`HANG`).

``tests/test_clock_rules.py`` finds the tests that look at another clock.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import cache

from fragmenta.base import progress

HANG = 1800.0
"""Seconds after which a process hangs: the one time-out of all tests.

Nothing takes as long on any machine, so no result depends on it.
"""


class ByHand(progress.Clock):
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = 0.0
        self.due: list[tuple[float, Callable[[], object]]] = []

    def now(self) -> float:
        """The time that it was moved to."""
        return self.time

    def after(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """Call when the clock is moved so far; at once if that is now."""
        entry = (self.time + seconds, call)
        self.due.append(entry)
        self.move(0)
        return lambda: self.due.remove(entry) if entry in self.due else None

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds
        for entry in [each for each in self.due if each[0] <= self.time]:
            self.due.remove(entry)
            entry[1]()


def work() -> float:
    """How much work this thread has done, in seconds of an idle core.

    It is the time that the processor spent on this thread, not counting what it spent
    on others, divided by how much slower it is than :data:`_NOMINAL` says.
    """
    slowness = _slowness()
    return time.thread_time() / slowness


_NOMINAL = 0.010
"""Seconds that :func:`_known_work` takes on an idle core of the year 2023."""


@cache
def _slowness() -> float:
    """How many times slower this core is, as it is now; at least 1."""
    took = []
    for _ in range(5):
        start = time.thread_time()
        _known_work()
        took.append(time.thread_time() - start)
    return max(1.0, sorted(took)[2] / _NOMINAL)


def _known_work() -> None:
    """Python and a regular expression, about half of the time each."""
    sum(number * number for number in range(60_000))
    re.findall(r"\w+\s", "ab " * 15_000)
