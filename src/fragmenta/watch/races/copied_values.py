"""Compares what a bulk store writes with what another one wrote.

Two bulk stores without an order are a race, unless both write the same bytes: Triton
lets two warpgroups store one tile.  A store in flight has not written yet.  So the
earlier one is finished first, which it may be at any time.  What the later one is going
to write is found by a copy of the source as it is now to memory of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.layout import SLOT_BITS
from fragmenta.engine.units.blocks import Block
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.work import Bytes, Transfer
from fragmenta.watch.races.global_watch import Who
from fragmenta.watch.races.order import Order
from fragmenta.watch.races.shadow.global_records import WORD, Flags


class _Scratch(NamedTuple):
    """Blocks with the shared memory of a cluster, and with other global memory."""

    block: Block
    made: dict[int, Bytes]
    """The other memory, by slot; what is never written there costs nothing."""

    @property
    def cluster(self) -> Cluster:
        """The cluster."""
        return self.block.cluster

    @property
    def rank(self) -> int:
        """The place of the block in its cluster."""
        return self.block.rank

    @property
    def shared(self) -> Bytes:
        """The shared memory of the block."""
        return self.block.shared

    def memory(self, address: int) -> tuple[Bytes, int]:
        """Global memory that is written instead of that at an address."""
        data, index = self.block.memory(address)
        slot = address >> SLOT_BITS
        if slot not in self.made:
            self.made[slot] = np.zeros(data.size + WORD, np.uint8)
        return self.made[slot][: data.size], index


class CopiedValues:
    """What one bulk store is going to write."""

    def __init__(self, order: Order, copy: Transfer, block: Block) -> None:
        self._order, self._copy, self._block = order, copy, block
        self._new: dict[int, Bytes] = {}

    def same(self, before: Who, words: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of the words gets what an earlier bulk store wrote there."""
        if before.flags & Flags.ATOMIC or not before.flags & Flags.ASYNC:
            return np.zeros(words.size, np.bool_)
        self._finish(before)
        if not self._new:
            self._copy.follow(_Scratch(self._block, self._new))
        slot = int(words[0]) >> SLOT_BITS
        places = (words & (1 << SLOT_BITS) - 1)[:, None] + np.arange(WORD)
        old, index = self._block.memory(int(words[0]))
        assert index == places[0, 0]
        written = self._written(places, slot)
        # The last word of an array may be longer than the array.
        inside = np.minimum(places, old.size - 1)
        equal = (self._new[slot][places] == old[inside]) | ~written
        return np.asarray(equal.all(axis=1))

    def _written(self, places: NDArray[np.int64], slot: int) -> NDArray[np.bool_]:
        """Which bytes the store writes."""
        marks = np.zeros(self._new[slot].size, np.bool_)
        for each in self._copy.goals:
            starts = each.starts & (1 << SLOT_BITS) - 1
            marks[starts[:, None] + np.arange(each.size)] = True
        return np.asarray(marks[places])

    def _finish(self, before: Who) -> None:
        """Finish the stores of an earlier access; those of other clusters are done."""
        cluster = self._block.cluster
        kind, rank, number = self._order.describe(before.agent)
        if before.group != cluster.number or kind != "bulk-write":
            return
        queue = cluster.blocks[rank].bulk_queue(number, before.lane)
        found = [work for group, work in queue.work if group <= before.epoch]
        found += cluster.pool.grouped(queue.address, before.epoch + 1)
        for work in sorted(found, key=lambda each: each.ordinal):
            if work is not self._copy:
                work.finish()
