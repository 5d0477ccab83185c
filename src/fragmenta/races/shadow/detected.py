"""What compiled code can detect in shared and global memory: one number for each case.

A case says which rule it breaks, and how severe it is if not as the rule says.
"""

from __future__ import annotations

from enum import IntEnum

from fragmenta.ptx import rules
from fragmenta.ptx.rules import ERROR, INFO, WARNING, Rule


class Detected(IntEnum):
    """A case, as the records of compiled code number it."""

    rule: Rule
    severity: str

    def __new__(cls, number: int, rule: Rule, severity: str = "") -> Detected:
        """A number that knows its rule."""
        made = int.__new__(cls, number)
        made._value_ = number
        made.rule, made.severity = rule, severity or rule.severity
        return made

    # Shared memory.
    SHARED_RACE = 1, rules.SHARED_RACE
    READ_BEFORE_ARRIVAL = 2, rules.READ_BEFORE_ARRIVAL
    OVERWRITE_WHILE_READ = 3, rules.OVERWRITE_WHILE_READ
    MISSING_PROXY_FENCE = 4, rules.MISSING_PROXY_FENCE
    UNINITIALISED = 5, rules.UNINITIALISED
    SAME_VALUE = 6, rules.SHARED_RACE, INFO
    """A race in which both wrote the same value."""
    ONE_STORE = 7, rules.SHARED_RACE, INFO
    """Lanes of one instruction wrote different values: the manual leaves open which
    of them stays."""

    # Global memory.
    WRITE_WRITE = 8, rules.GLOBAL_RACE
    """Written again without order."""
    READ_WRITE = 9, rules.GLOBAL_RACE
    """Written after a read, without order."""
    WRITE_READ = 10, rules.GLOBAL_RACE
    """Read after a write, without order."""
    GLOBAL_SAME_VALUE = 11, rules.GLOBAL_RACE, INFO
    """Written again without order, but with the value that was there."""
    GLOBAL_UNINITIALISED = 12, rules.UNINITIALISED, ERROR
    SCOPE = 13, rules.GLOBAL_RACE
    """Both are strong, but in the scope of different blocks."""
    GLOBAL_PROXY = 14, rules.MISSING_PROXY_FENCE, WARNING
    """Ordered, but without a proxy fence between them."""
    MIXED = 15, rules.GLOBAL_RACE, INFO
    """A plain load and an atomic operation without order.  Loops with
    compare-and-swap begin like that everywhere, and it does no harm there."""

    @property
    def same_value(self) -> bool:
        """Whether the order does not matter, because both wrote the same value."""
        return self in (Detected.SAME_VALUE, Detected.GLOBAL_SAME_VALUE)


BY_NUMBER = {int(each): each for each in Detected}
"""The cases by their numbers in records."""
