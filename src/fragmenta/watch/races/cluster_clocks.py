"""The clocks of a cluster's barrier: what those who arrived in a phase had done.

Lanes may wait for the last phases only, so that a few rows are enough.  Compiled code
does the same with the same memory: :mod:`fragmenta.watch.races.shadow.cluster_phases`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fragmenta.engine.simt.compiled import address_of, aligned, zeros
from fragmenta.engine.units.mbarrier_state import Mbarrier
from fragmenta.engine.units.records import Record
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.watch.races.order import Clock, Order
from fragmenta.watch.races.shadow import layout


class ClusterClocks(Record):
    """The clocks of the barrier of a cluster."""

    def __init__(self, order: Order) -> None:
        rows = layout.PHASES * order.plan.row_bytes
        super().__init__(aligned(layout.PHASES_ROWS + rows))
        self._merge = order.merge
        shape = layout.PHASES, *order.new_clock().shape
        self._rows = self.words[layout.PHASES_ROWS >> 2 :].reshape(shape)
        first, known = layout.PHASES_NUMBERS >> 3, layout.PHASES_KNOWN >> 2
        self._phases = self.longs[first : first + layout.PHASES]
        self._known = self.words[known : known + layout.PHASES]
        self._make_room(64)

    def begin(self) -> None:
        """A new cluster begins."""
        self._known[:] = 0
        self._forget_fenced()

    def renewed(self, resets: ResetSchedule) -> None:
        """Tell what :meth:`begin` does."""
        fenced = self.longs[layout.PHASES_FENCED_COUNT >> 3 :][:1]
        resets.clear(self._known, fenced)

    def publish(self, phase: int, clock: Clock | None) -> None:
        """Add to the clock of a phase, if there is anything to add."""
        place = phase % layout.PHASES
        if self._phases[place] != phase:
            self._phases[place], self._known[place] = phase, 0
        if clock is None:
            return
        if self._known[place]:
            self._merge(self._rows[place], clock)
        else:
            self._rows[place], self._known[place] = clock, 1

    def at_end(self, phase: int) -> Clock | None:
        """What came before the end of a phase, if anything is known; lanes pass."""
        place = phase % layout.PHASES
        self._known[self._phases < phase - 1] = 0
        known = self._known[place] and self._phases[place] == phase
        found: Clock = self._rows[place]
        return found if known else None

    # ── mbarriers ───────────────────────────────────────────────────────────

    def fence(self, mbarriers: Iterable[Mbarrier]) -> None:
        """A fence orders the making of mbarriers before the next passing."""
        new = [each.address for each in mbarriers]
        count = int(self.longs[layout.PHASES_FENCED_COUNT >> 3])
        old = self._fenced[:count].tolist()
        if count + len(new) > self._fenced.size:
            self._make_room(2 * (count + len(new)))
        self._fenced[: count + len(new)] = old + new
        self.longs[layout.PHASES_FENCED_COUNT >> 3] = count + len(new)

    def _make_room(self, most: int) -> None:
        """Make room for so many mbarriers that were fenced; there are none yet."""
        self._fenced = zeros(most, np.int64)
        self.longs[layout.PHASES_FENCED >> 3] = address_of(self._fenced)
        self.longs[layout.PHASES_FENCED_ROOM >> 3] = most

    def passed(self, mbarriers: Iterable[Mbarrier]) -> None:
        """Lanes have passed: all blocks know of the mbarriers that were fenced."""
        for each in mbarriers:
            each.public = each.public or each.fenced
        self._forget_fenced()

    def _forget_fenced(self) -> None:
        self.longs[layout.PHASES_FENCED_COUNT >> 3] = 0
