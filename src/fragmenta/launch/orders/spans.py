"""The bytes that agents access, as far as two of them could race there.

Bytes that nobody writes, and bytes that one agent alone uses, are left out.  So are
bytes that all access with strong operations: those do not race with one another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.layout import SLOT_BITS
from fragmenta.engine.units.work import Range
from fragmenta.watch.orders.program import Span

MOST_BYTES = 1 << 28
"""Bytes of memory whose users are looked at."""
MOST_SPANS = 1 << 20
NOBODY, SEVERAL = -1, -2
WRITTEN, WEAK = 1, 2


class Spans(NamedTuple):
    """Pieces of one size in one memory."""

    space: str
    starts: NDArray[np.int64]
    size: int


def piece(found: Range, block: int) -> Iterable[Spans]:
    """The pieces that work touches; ``block`` is that of its shared memory."""
    if found.space == "shared":
        yield Spans(f"shared:{block}", found.starts, found.size)
    else:
        yield from in_global(found.starts, found.size)


def in_global(addresses: NDArray[np.int64], size: int) -> Iterable[Spans]:
    """Pieces of global memory, by the array that they are in."""
    slots = addresses >> SLOT_BITS
    for slot in np.unique(slots).tolist():
        yield Spans(f"global:{slot}", addresses[slots == slot], size)


class Users:
    """Who uses each byte of the memories of a launch."""

    def __init__(self) -> None:
        self._who: dict[str, NDArray[np.int32]] = {}
        self._used: dict[str, NDArray[np.uint8]] = {}
        """How: bits of ``WRITTEN`` and ``WEAK``."""
        self._bases: dict[str, int] = {}
        self._total = self.spans = 0
        self.full = ""
        """Why not all bytes are compared; nothing if they are."""

    def add(self, found: Spans, write: bool, agent: int, strong: bool = False) -> None:
        """An agent accesses some bytes."""
        places = self._places(found, grow=True)
        if places is None:
            return
        who = self._who[found.space]
        before = who[places]
        kept = (before == NOBODY) | (before == agent)
        who[places] = np.where(kept, agent, SEVERAL)
        self._used[found.space][places] |= write * WRITTEN | (not strong) * WEAK

    def _places(self, found: Spans, grow: bool) -> NDArray[np.int64] | None:
        """The bytes of a piece, as places in the arrays of its memory."""
        base = self._bases.setdefault(
            found.space, (int(found.starts.min()) >> SLOT_BITS) << SLOT_BITS
        )
        last = int(found.starts.max()) + found.size - base
        known = self._who.get(found.space)
        have = 0 if known is None else known.size
        if last > have:
            if not grow or self._total + last - have > MOST_BYTES:
                self.full = self.full or (
                    f"accesses of more than {MOST_BYTES >> 20} MiB are not compared"
                )
                return None
            size = max(last, min(2 * have, MOST_BYTES))
            self._total += size - have
            who = np.full(size, NOBODY, np.int32)
            used = np.zeros(size, np.uint8)
            if known is not None:
                who[:have], used[:have] = known, self._used[found.space]
            self._who[found.space], self._used[found.space] = who, used
        places = (found.starts - base)[:, None] + np.arange(found.size)
        return places.ravel()

    def contested(self, found: Iterable[Spans]) -> tuple[Span, ...]:
        """The bytes that several agents use, not all strongly, and that one writes."""
        made: list[Span] = []
        by_space: dict[str, list[NDArray[np.int64]]] = {}
        for each in found:
            places = self._places(each, grow=False)
            if places is None:
                continue
            who, used = self._who[each.space], self._used[each.space]
            several = who[places] == SEVERAL
            chosen = places[several & (used[places] == WRITTEN | WEAK)]
            if chosen.size:
                by_space.setdefault(each.space, []).append(chosen)
        for space, several in sorted(by_space.items()):
            every = np.unique(np.concatenate(several)) + self._bases[space]
            breaks = np.flatnonzero(np.diff(every) != 1) + 1
            edges = np.concatenate(([0], breaks, [every.size]))
            firsts, lasts = every[edges[:-1]].tolist(), every[edges[1:] - 1].tolist()
            made += [Span(space, a, b + 1) for a, b in zip(firsts, lasts, strict=True)]
        self.spans += len(made)
        if self.spans > MOST_SPANS:
            self.full = self.full or (
                f"accesses of more than {MOST_SPANS:,} places are not compared"
            )
            return ()
        return tuple(made)
