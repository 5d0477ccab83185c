"""Which mutants are no mistakes?

``equivalent.toml`` lists them, each with a reason that can be checked by hand.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.ptx.hopper.mutants import Mutant


@dataclass(frozen=True)
class Equivalent:
    """Mutants that behave as the original, and why."""

    change: str
    where: str
    """A part of the statement in the source."""
    reason: str
    only: tuple[str, ...] = ("",)
    """Parts of the names of the launches for which this holds."""
    line: int = 0
    """The line of a recorded PTX text; 0 for any."""

    def covers(self, name: str, mutant: Mutant) -> bool:
        """Whether a mutant of a launch is one of these."""
        return (
            mutant.change == self.change
            and self.where in mutant.where
            and self.line in (0, mutant.line)
            and any(part in name for part in self.only)
        )


@cache
def equivalents() -> list[Equivalent]:
    """Those of ``equivalent.toml``."""
    read = tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text())
    return [
        Equivalent(**{**each, "only": tuple(each.get("only", [""]))})
        for each in read.get("equivalent", [])
    ]


def excused(name: str, mutant: Mutant) -> bool:
    """Whether a mutant is known to be as good as the original."""
    return any(each.covers(name, mutant) for each in equivalents())
