"""The clocks of mbarriers: what those who arrived in a phase had done.

An mbarrier has two clocks, for the present phase and for the last one, which lanes may
still wait for.  Its record says where they are; all mbarriers at one place use the same
two.  Compiled code does the same with the same memory:
:mod:`fragmenta.watch.races.shadow.observing` and
:mod:`fragmenta.watch.races.shadow.mbarriers`.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.compiled import address_of, aligned, sparse, zeros
from fragmenta.engine.simt.layout import RANK_BITS
from fragmenta.engine.units.mbarrier_state import Mbarrier
from fragmenta.engine.units.records import Long, Record
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.watch.races.order import Clock, Order, know
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.layout import COUNTED, MBARRIERS

ROOM = 32
"""Places in each block that have clocks from the start; there may be more."""


class MbarrierClocks(Record):
    """The clocks of the mbarriers of a cluster."""

    _count = Long(layout.MADE_COUNT)

    def __init__(self, order: Order) -> None:
        super().__init__(aligned(layout.MADE_BYTES))
        self._order, blocks = order, order.plan.blocks
        room = blocks * ROOM * order.plan.asynchronous
        shape = room, 2, *order.new_clock().shape
        self._rows = sparse(4 * prod(shape)).view(np.int32).reshape(shape)
        self._more: list[NDArray[np.int32]] = []
        """Pairs of rows for which there was no room."""
        self._places = zeros(room, np.int32)
        self._offsets = zeros(blocks * MBARRIERS, np.int32)
        for offset, number in (
            (layout.MADE_ROOM, len(self._places)),
            (layout.MADE_ROWS, address_of(self._rows)),
            (layout.MADE_PLACES, address_of(self._places)),
            (layout.MADE_OFFSETS, address_of(self._offsets)),
        ):
            self.longs[offset >> 3] = number

    def begin(self) -> None:
        """A new cluster begins."""
        self._offsets[:] = 0

    def renewed(self, resets: ResetSchedule) -> None:
        """Tell what :meth:`begin` does."""
        resets.clear(self._offsets)

    def offset(self, rank: int, slot: int) -> int | None:
        """Where the mbarrier is, or was last, that has an agent."""
        found = int(self._offsets[rank * MBARRIERS + slot])
        return found - 1 if found else None

    def agent(self, rank: int, slot: int) -> int:
        """The agent of the copies that an mbarrier counts."""
        return self._order.agent(COUNTED, rank, slot % MBARRIERS)

    def attach(self, mbarrier: Mbarrier) -> None:
        """Give a new mbarrier its clocks."""
        rank, slot = mbarrier.block.rank, mbarrier.slot % MBARRIERS
        mbarrier.agent = self.agent(rank, slot)
        if not mbarrier.clocks:
            mbarrier.clocks = address_of(self._pair(rank, mbarrier.offset))
        mbarrier.clock = mbarrier.clocks
        mbarrier.clock_last = mbarrier.clocks + self._order.plan.row_bytes
        self._offsets[rank * MBARRIERS + slot] = mbarrier.offset + 1

    def _pair(self, rank: int, offset: int) -> NDArray[np.int32]:
        """Two rows that nobody uses."""
        place = rank << RANK_BITS | offset
        if self._count < len(self._places):
            self._places[self._count] = place
            self._count += 1
            made: NDArray[np.int32] = self._rows[self._count - 1]
            return made
        self._more.append(np.zeros(self._rows.shape[1:], np.int32))
        return self._more[-1]

    def _row(self, address: int) -> Clock:
        """The row at an address."""
        first, size = address_of(self._rows), self._order.plan.row_bytes
        number, rest = divmod(address - first, size)
        if not rest and 0 <= number < 2 * len(self._places):
            found: Clock = self._rows[number >> 1, number & 1]
            return found
        for pair in self._more:
            number = (address - address_of(pair)) // size
            if number in (0, 1):
                more: Clock = pair[number]
                return more
        raise AssertionError(f"no clock is at {address:#x}")

    @property
    def rows(self) -> dict[tuple[int, int], NDArray[np.int32]]:
        """The two clocks of each place, by rank and offset."""
        places = self._places[: self._count].tolist()
        return {
            (place >> RANK_BITS, place & (1 << RANK_BITS) - 1): pair
            for place, pair in zip(places, self._rows, strict=False)
        }

    def publish(self, mbarrier: Mbarrier, clock: Clock) -> None:
        """Add to the clock of the present phase."""
        row = self._row(mbarrier.clock)
        if mbarrier.known:
            self._order.merge(row, clock)
        else:
            row[...] = clock
            mbarrier.known = True

    def over(self, mbarrier: Mbarrier) -> None:
        """A phase is over: its clock is that of the last phase."""
        now, last = mbarrier.clock, mbarrier.clock_last
        mbarrier.clock, mbarrier.clock_last = last, now
        mbarrier.known_last, mbarrier.known = mbarrier.known, False

    def at_end(self, mbarrier: Mbarrier, phase: int) -> Clock:
        """What came before the end of a phase, copies included."""
        if phase != mbarrier.phase - 1:
            row = self._order.new_clock()
        else:
            row = self._row(mbarrier.clock_last)
            if not mbarrier.known_last:
                row[...] = 0
                mbarrier.known_last = True
        know(row, mbarrier.agent, phase + 1)
        return row
