"""The memory in which a launch counts, and the sums of all contexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.arguments import Segment
from fragmenta.engine.simt.compiled import Compiled, address_of, aligned
from fragmenta.engine.simt.context import Context
from fragmenta.values.counters.code import layout as at


class Footprint(NamedTuple):
    """The sectors of a segment that a launch touched, each counted once."""

    name: str
    read: int
    written: int


class CounterTotals(NamedTuple):
    """What all contexts of a launch counted."""

    predicated_off: int
    divergent: int
    lanes: NDArray[np.int64]
    """The executing lanes of each code block."""
    sites: NDArray[np.int64]
    """A row of ``FIELDS`` for each site."""
    footprints: list[Footprint]


class Taken(NamedTuple):
    """What a part of a launch counted, elsewhere."""

    total: NDArray[np.int64]
    """The sum of all contexts."""
    marks: dict[int, NDArray[np.uint8]]
    """For each segment, bits of the sectors that were read, and that were written."""


class Tally:
    """The counters of a launch."""

    def __init__(self, compiled: Compiled, places: Sequence[Segment]) -> None:
        self._blocks, self._sites = len(compiled.counted), len(compiled.places)
        self._memories: list[NDArray[np.int64]] = []
        self._elsewhere: list[NDArray[np.int64]] = []
        self._places = list(places)
        self._table = aligned(layout.SLOTS * at.FOOTPRINT_BYTES).view(np.int64)
        self._marks: dict[int, NDArray[np.uint8]] = {}
        for each in self._places:
            sectors = -(-each.data.size // at.SECTOR)
            marks = np.zeros((2, max(1, sectors)), np.uint8)
            self._marks[each.slot] = marks
            row = each.slot * at.FOOTPRINT_BYTES // 8
            first = address_of(marks)
            self._table[row : row + 3] = first, first + marks.shape[1], sectors

    def attach(self, context: Context) -> None:
        """Let a context count."""
        size = at.HEAD + 8 * self._blocks + at.SITE_BYTES_EACH * self._sites
        memory = aligned(size).view(np.int64)
        memory[at.FOOTPRINTS // 8] = address_of(self._table)
        self._memories.append(memory)
        context.point(layout.BLOCK_COUNTERS, address_of(memory))

    def _total(self) -> NDArray[np.int64]:
        words = len(at.FIELDS) * self._sites
        none = np.zeros(at.HEAD // 8 + self._blocks + words, np.int64)
        total: NDArray[np.int64] = sum([*self._memories, *self._elsewhere], none)
        return total

    def taken(self) -> Taken:
        """What was counted, for a launch on another machine that this is a part of."""
        marks = {slot: np.packbits(each, axis=1) for slot, each in self._marks.items()}
        return Taken(self._total(), marks)

    def add(self, part: Taken) -> None:
        """Add what a part of the launch counted elsewhere."""
        self._elsewhere.append(part.total)
        for slot, bits in part.marks.items():
            own = self._marks[slot]
            own |= np.unpackbits(bits, axis=1, count=own.shape[1])

    def sums(self) -> CounterTotals:
        """The counts of all contexts together."""
        total, start = self._total(), at.HEAD // 8
        lanes = total[start : start + self._blocks]
        sites = total[start + self._blocks :].reshape(-1, len(at.FIELDS))
        footprints = [
            Footprint(each.name, *map(int, self._marks[each.slot].sum(1, np.int64)))
            for each in self._places
        ]
        off, divergent = (
            int(total[place // 8]) for place in (at.PREDICATED_OFF, at.DIVERGENT)
        )
        return CounterTotals(off, divergent, lanes, sites, footprints)
