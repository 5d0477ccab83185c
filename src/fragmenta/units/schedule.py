"""Schedules: when asynchronous work is done.

``eager``: when it is issued.  ``lazy``: not before lanes wait for it.  A number is
the seed of a random order: each piece of work is done some time between the two.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import TYPE_CHECKING

from fragmenta.arrays.checks import is_among, is_whole
from fragmenta.errors import BadCall

if TYPE_CHECKING:
    from fragmenta.units.work import Work

EAGER, LAZY = "eager", "lazy"


class Schedule:
    """When pieces of work are done.

    >>> Schedule("lazy").eager, Schedule(3).random is None
    (False, False)
    """

    def __init__(self, given: str | int) -> None:
        seed = is_whole(given) and not isinstance(given, bool)
        if not seed and not is_among(given, (EAGER, LAZY)):
            raise BadCall(
                "a schedule is 'eager', 'lazy', or the seed of a random order, a whole "
                f"number; given {given!r}"
            )
        self.given = given
        self.eager = given == EAGER
        self.random = random.Random(int(given)) if seed else None

    def fork(self, number: int) -> Schedule:
        """The schedule of one cluster: random orders differ from cluster to cluster."""
        made = Schedule(self.given)
        if made.random is not None:
            made.random = random.Random(f"{self.given} {number}")
        return made

    def some(self, pending: Collection[Work]) -> list[Work]:
        """Random pieces of work, to be done now."""
        if self.random is None or not pending:
            return []
        return [each for each in pending if self.random.random() < 0.2]
