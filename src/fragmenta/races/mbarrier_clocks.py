"""The clocks of mbarriers: what those who arrived in a phase had done.

An mbarrier has two clocks, for the present phase and for the last one, which lanes may
still wait for.  Its record says where they are.  Compiled code does the same with the
same memory: :mod:`fragmenta.races.shadow.observing`.
"""

from __future__ import annotations

from fragmenta.races.order import Clock, Order, know
from fragmenta.units.mbarriers import Mbarrier

MBARRIERS = 64
"""Mbarriers of a block that have an agent of their own."""


class MbarrierClocks:
    """The clocks of the mbarriers of a cluster."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._pairs: dict[tuple[int, int], tuple[int, int]] = {}
        """Where the two clocks of an mbarrier are, by its rank and offset."""
        self._rows: dict[int, Clock] = {}

    def agent(self, rank: int, slot: int) -> int:
        """The agent of the copies that an mbarrier counts."""
        return self._order.agent("mbarrier", rank, slot % MBARRIERS)

    def attach(self, mbarrier: Mbarrier) -> None:
        """Give a new mbarrier its clocks."""
        rank, offset = mbarrier.block.rank, mbarrier.offset
        mbarrier.agent = self.agent(rank, mbarrier.slot)
        if (rank, offset) not in self._pairs:
            made = [self._order.new_clock() for _ in range(2)]
            self._rows.update({each.ctypes.data: each for each in made})
            first, second = (int(each.ctypes.data) for each in made)
            self._pairs[rank, offset] = first, second
        mbarrier.clock, mbarrier.clock_last = self._pairs[rank, offset]

    @property
    def rows(self) -> dict[tuple[int, int, int], Clock]:
        """All clocks, by rank, offset, and which of the two it is."""
        return {
            (*key, number): self._rows[each]
            for key, pair in self._pairs.items()
            for number, each in enumerate(pair)
        }

    def publish(self, mbarrier: Mbarrier, clock: Clock) -> None:
        """Add to the clock of the present phase."""
        row = self._rows[mbarrier.clock]
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
            row = self._rows[mbarrier.clock_last]
            if not mbarrier.known_last:
                row[...] = 0
                mbarrier.known_last = True
        know(row, mbarrier.agent, phase + 1)
        return row
