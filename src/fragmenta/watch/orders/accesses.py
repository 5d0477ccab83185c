"""Which accesses of a program collide: one bit for each access, one mask for each bit.

A mask of bits is what an agent knows: the accesses that happened before.  Two accesses
collide if they share a byte, one of them writes, and they are not both strong enough
for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fragmenta.ptx.ordering import Scope
from fragmenta.watch.orders.program import Proxy, Span

PAGE = 1024
"""Spans are found by the pages that they touch."""
WIDE = 64
"""Spans of more pages than this are compared with all others."""


class Home(NamedTuple):
    """Where an agent runs."""

    block: int
    cluster: int


def reaches(scope: Scope, one: Home, other: Home) -> bool:
    """Whether a scope around one agent includes another.

    >>> reaches(Scope.CLUSTER, Home(0, 0), Home(1, 0))
    True
    """
    if scope == Scope.CTA:
        return one.block == other.block
    return scope > Scope.CLUSTER or one.cluster == other.cluster


class EventAccesses(NamedTuple):
    """The reads or the writes of one event."""

    spans: tuple[Span, ...]
    writes: bool
    proxy: Proxy
    scope: Scope | None
    home: Home


def overlap(first: Sequence[Span], second: Sequence[Span]) -> Span | None:
    """Some bytes that are in both.

    >>> overlap([Span("global", 0, 8)], [Span("global", 4, 16)])
    Span(space='global', start=4, stop=8)
    """
    for a in first:
        for b in second:
            if a.space == b.space and a.start < b.stop and b.start < a.stop:
                return Span(a.space, max(a.start, b.start), min(a.stop, b.stop))
    return None


def strong(one: EventAccesses, other: EventAccesses) -> bool:
    """Whether both are strong, and each is in the scope of the other."""
    if one.scope is None or other.scope is None:
        return False
    return reaches(min(one.scope, other.scope), one.home, other.home)


class Accesses:
    """All accesses of a program that are known so far."""

    def __init__(self) -> None:
        self.sides: list[EventAccesses] = []
        self.collides: list[int] = []
        """For each access the mask of those that it collides with."""
        self._pages: dict[tuple[str, int], list[int]] = {}
        self._wide: dict[str, list[int]] = {}
        self._spaces: dict[str, list[int]] = {}

    def add(self, side: EventAccesses) -> int:
        """Give an access its number."""
        number = len(self.sides)
        mask = 0
        for other in self._candidates(side):
            each = self.sides[other]
            if not (side.writes or each.writes) or strong(side, each):
                continue
            if overlap(side.spans, each.spans):
                mask |= 1 << other
                self.collides[other] |= 1 << number
        self.sides.append(side)
        self.collides.append(mask)
        for span in side.spans:
            self._spaces.setdefault(span.space, []).append(number)
            if (span.stop - span.start) // PAGE > WIDE:
                self._wide.setdefault(span.space, []).append(number)
            else:
                for page in range(span.start // PAGE, (span.stop - 1) // PAGE + 1):
                    self._pages.setdefault((span.space, page), []).append(number)
        return number

    def _candidates(self, side: EventAccesses) -> set[int]:
        found: set[int] = set()
        for span in side.spans:
            if (span.stop - span.start) // PAGE > WIDE:
                found.update(self._spaces.get(span.space, ()))
                continue
            found.update(self._wide.get(span.space, ()))
            for page in range(span.start // PAGE, (span.stop - 1) // PAGE + 1):
                found.update(self._pages.get((span.space, page), ()))
        return found


def bits(mask: int) -> list[int]:
    """The numbers of the bits of a mask.

    >>> bits(0b1010)
    [1, 3]
    """
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
