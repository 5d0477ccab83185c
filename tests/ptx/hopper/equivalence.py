"""Explains the mutants that are not reported.

``equivalent.toml`` lists those that are no mistakes, and those that are missed, each
with a reason that can be checked by hand.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from tests.ptx.hopper.descriptors import of_descriptor


class Changed(Protocol):
    """A mutant, or its row in the report."""

    @property
    def change(self) -> str: ...
    @property
    def where(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def copy(self) -> int: ...


@dataclass(frozen=True)
class Explained:
    """Mutants that are silent, and why."""

    kind: str
    """``equivalent`` or ``missed``."""
    changes: tuple[str, ...]
    reason: str
    where: tuple[str, ...] = ()
    """Parts of the statements of the source; each has to be in one of them."""
    only: tuple[str, ...] = ("",)
    """Parts of the names of the kernels for which this holds."""
    unless: tuple[str, ...] = ()
    """Parts of the names of those for which it does not."""
    copies: tuple[int, ...] = ()
    """Which copies of the statement; all if there are none."""
    lines: tuple[int, ...] = ()
    """Which lines of a recorded PTX text; all if there are none."""

    def covers(self, name: str, mutant: Changed) -> bool:
        """Whether a mutant of a kernel is one of these."""
        return (
            mutant.change in self.changes
            and all(part in mutant.where for part in self.where)
            and any(part in name for part in self.only)
            and not any(part in name for part in self.unless)
            and (not self.copies or mutant.copy in self.copies)
            and (not self.lines or mutant.line in self.lines)
        )


@cache
def explanations() -> list[Explained]:
    """Those of ``equivalent.toml``."""
    read = tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text())
    return [
        Explained(kind, **{x: y if x == "reason" else tuple(y) for x, y in row.items()})
        for kind in ("equivalent", "missed")
        for row in read.get(kind, [])
    ]


def explained(name: str, mutant: Changed) -> Explained | None:
    """Why a mutant is silent, if it is known."""
    return next((x for x in explanations() if x.covers(name, mutant)), None)


def understood(name: str, mutant: Changed, way: str) -> str:
    """What came of a mutant, with what is known of those that are silent.

    A wrong descriptor that changes no bit is no mistake.  One that changes the product
    has to be reported: other bits alone are not enough.
    """
    if of_descriptor(mutant.change):
        way = {"silent": "equivalent", "bits": "silent"}.get(way, way)
    known = explained(name, mutant) if way == "silent" else None
    return known.kind if known else way
