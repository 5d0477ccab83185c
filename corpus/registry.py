"""The cases: which function of a library is called, and what it ought to return."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpus.trial import Trial

SMALL, ALL = "small", "all"
PARTS = (SMALL, ALL)
"""The part that continuous integration runs, and everything."""


@dataclass(frozen=True)
class Case:
    """A call of a library's function."""

    name: str
    run: Callable[[Trial], None]
    part: str
    target: str
    """What Triton compiles for."""
    programs: tuple[tuple[str, int], ...]
    """What ``corpus/host.py`` compiles for it, before its time is taken."""

    def belongs_to(self, part: str) -> bool:
        """Whether a part of the corpus has it."""
        return part == ALL or self.part == SMALL


CASES: dict[str, Case] = {}
"""The cases of the library that was imported, by name."""


def case(
    *,
    small: bool = False,
    target: str = "sm_90a",
    name: str = "",
    programs: Iterable[tuple[str, int]] = (),
) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    """Register a function as a case; ``small`` ones run in continuous integration."""

    def register(run: Callable[[Trial], None]) -> Callable[[Trial], None]:
        called = name or run.__name__
        if called in CASES:
            raise ValueError(f"two cases are named {called}")
        part = SMALL if small else ALL
        CASES[called] = Case(called, run, part, target, tuple(programs))
        return run

    return register
