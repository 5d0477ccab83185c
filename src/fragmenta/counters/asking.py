"""Asks launches that are counted to count how results differ, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ASKED: ContextVar[bool] = ContextVar("results of instructions", default=False)
"""Whether launches that are counted say how the results of instructions differ."""


@contextmanager
def with_results() -> Iterator[None]:
    """Launches with ``counters=True`` count results, too: :class:`report.Reached`."""
    before = ASKED.set(True)
    try:
        yield
    finally:
        ASKED.reset(before)
