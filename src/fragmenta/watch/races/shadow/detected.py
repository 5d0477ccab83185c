"""The cases that compiled code detects in shared and global memory, by number.

A case names the rule that it breaks, and its severity if the rule has another one.
"""

from __future__ import annotations

from enum import IntEnum

from fragmenta.ptx import rules
from fragmenta.ptx.rules import ERROR, INFO, WARNING, Rule


class Detected(IntEnum):
    """A case, as the table of problems numbers it."""

    space: str
    """The memory that it is detected in: ``shared`` or ``global``."""
    rule: Rule
    severity: str

    def __new__(
        cls, number: int, space: str, rule: Rule, severity: str = ""
    ) -> Detected:
        """A number with its memory and its rule."""
        made = int.__new__(cls, number)
        made._value_ = number
        made.space, made.rule = space, rule
        made.severity = severity or rule.severity
        return made

    SHARED_RACE = 1, "shared", rules.SHARED_RACE
    READ_BEFORE_ARRIVAL = 2, "shared", rules.READ_BEFORE_ARRIVAL
    OVERWRITE_WHILE_READ = 3, "shared", rules.OVERWRITE_WHILE_READ
    MISSING_PROXY_FENCE = 4, "shared", rules.MISSING_PROXY_FENCE
    UNINITIALISED = 5, "shared", rules.UNINITIALISED
    SAME_VALUE = 6, "shared", rules.SHARED_RACE, INFO
    """A race in which both wrote the same value."""
    ONE_STORE = 7, "shared", rules.SHARED_RACE
    """Lanes of one instruction wrote different values: the manual leaves open which
    of them stays."""
    ROUNDED = 16, "shared", rules.SHARED_RACE, WARNING
    """The same, but the lanes hold one reduction, each with a rounding of its own; the
    text says so (:mod:`fragmenta.watch.races.rounded_copies`)."""
    WRITE_WRITE = 8, "global", rules.GLOBAL_RACE
    """Written again without order."""
    READ_WRITE = 9, "global", rules.GLOBAL_RACE
    """Written after a read, without order."""
    WRITE_READ = 10, "global", rules.GLOBAL_RACE
    """Read after a write, without order."""
    GLOBAL_SAME_VALUE = 11, "global", rules.GLOBAL_RACE, INFO
    """Written again without order, but with the value that was there."""
    GLOBAL_UNINITIALISED = 12, "global", rules.UNINITIALISED, ERROR
    SCOPE = 13, "global", rules.GLOBAL_RACE
    """Both are strong, but in the scope of different blocks."""
    GLOBAL_PROXY = 14, "global", rules.MISSING_PROXY_FENCE, WARNING
    """Ordered, but without a proxy fence between them."""
    MIXED = 15, "global", rules.GLOBAL_RACE, INFO
    """A plain load and an atomic operation without order.  Loops with
    compare-and-swap begin like that everywhere, and it does no harm there."""

    NOT_COHERENT = 17, "global", rules.GLOBAL_RACE
    """Read after a write, in order, but by ``ld.global.nc``: it need not see it."""

    VOLATILE = 18, "shared", rules.SHARED_RACE, WARNING
    """Lanes of a warp pass values on by ``.volatile`` accesses alone: only with
    ``strict``."""

    @property
    def same_value(self) -> bool:
        """Whether the order does not matter, because both wrote the same value."""
        return self in (Detected.SAME_VALUE, Detected.GLOBAL_SAME_VALUE)


BY_NUMBER = {int(each): each for each in Detected}
"""The cases by their numbers in the table of problems."""
