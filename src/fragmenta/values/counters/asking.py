"""Asks launches that are counted to count how results differ, too."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar

from fragmenta.base.arrays.context import held

ASKED: ContextVar[bool] = ContextVar("results of instructions", default=False)
"""Whether launches that are counted say how the results of instructions differ."""


def with_results() -> AbstractContextManager[None]:
    """Launches with ``counters=True`` count results, too: :class:`report.Reached`."""
    return held(ASKED, True)
