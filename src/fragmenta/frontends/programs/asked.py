"""What is asked of a program: how its launches are run, or which are recorded.

The server of a program is loaded after the program was started; this is all that is
needed before.
"""

from __future__ import annotations

import re
from dataclasses import field
from pathlib import Path

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.units.schedule import EAGER, Given
from fragmenta.frontends.programs.cards import USUAL, ProgramCard, card
from fragmenta.launch.limits import Limits
from fragmenta.ptx.module import demangled


@dataclass(frozen=True)
class Wanted:
    """Which launches are recorded, and where."""

    folder: Path
    kernels: str = ""
    """An expression that the names of kernels have a match of."""
    launches: int = 1
    """How many of each kernel, in each process."""

    def has(self, name: str) -> bool:
        """Whether a kernel is wanted, by its name in the PTX."""
        return any(re.search(self.kernels, each) for each in (name, demangled(name)))


@dataclass(frozen=True)
class Explored:
    """Which launches are explored in all orders, and how far."""

    states: int
    """The most states of a launch."""
    launches: int | None = None
    """How many of each kernel, in each process; None: all."""


@dataclass(frozen=True)
class ProgramOptions:
    """How the launches of a program are run."""

    card: ProgramCard = field(default_factory=lambda: card(USUAL))
    target: str = ""
    watch: bool = True
    strict: bool = False
    schedules: tuple[Given, ...] = (EAGER,)
    kernels: str = ""
    """An expression; kernels whose names it does not match are run unwatched."""
    limits: Limits = field(default_factory=Limits)
    replay: Wanted | None = None
    """Which launches are recorded."""
    numerics: bool = False
    """Whether it is found out where bits are lost."""
    orders: Explored | None = None
    """How the orders of watched launches are explored; None: they are not."""
    tolerance: tuple[float, float] | None = None
    """The relative errors of outputs that are a warning and an error, with numerics."""

    @property
    def arithmetic(self) -> str:
        """The target whose arithmetic is used."""
        return self.target or self.card.target


Asked = ProgramOptions | Wanted
"""How the launches of a program are run here, or which are recorded on a card."""
