"""What each process of a run does."""

from __future__ import annotations

from typing import Any

from tests.fuzz.engine import Result, run
from tests.fuzz.surfaces import SURFACES

_shared: dict[str, Any] = {}


def start(done: Any) -> None:
    """Remember where to say how far it is."""
    _shared["done"] = done


def part(name: str, calls: int, seed: int, job: int, jobs: int) -> Result:
    """Every ``jobs``-th game of a surface."""

    def progress(made: int) -> None:
        _shared["done"][job] = made

    return run(SURFACES[name], calls, seed, first=job, step=jobs, progress=progress)
