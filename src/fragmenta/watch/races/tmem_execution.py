"""What a relaxed barrier of the cluster orders: execution, and no memory.

``barrier.cluster.arrive.relaxed`` publishes no access of memory.  But who has passed
the barrier knows that all threads have arrived, and work of ``tcgen05`` that a thread
has waited for is done then.  That is enough to give tensor memory back: nothing is
read or written by ``tcgen05.dealloc``.  DeepGEMM's kernels for two CTAs end so.
"""

from __future__ import annotations

from typing import TypeVar

from fragmenta.engine.units.blocks import Warp
from fragmenta.watch.races.order import Clock, Order

Key = TypeVar("Key")


class Execution:
    """What threads had done when they arrived at a relaxed barrier of the cluster."""

    def __init__(self) -> None:
        self._arrived: dict[int, Clock] = {}
        """What those who arrived knew, by phase."""
        self._passed: dict[tuple[int, int], Clock] = {}
        """What a warp knows by such barriers, by rank and number."""

    def begin(self) -> None:
        """A new cluster begins."""
        self._arrived.clear()
        self._passed.clear()

    def arrive(self, order: Order, warp: Warp, lanes: int, phase: int) -> None:
        """Lanes arrive with ``.relaxed``."""
        row = order.row(warp.block.rank, warp.number, lanes)
        _join(order, self._arrived, phase, row)

    def wait(self, order: Order, warp: Warp, phase: int) -> None:
        """A warp has passed the barrier."""
        arrived = self._arrived.get(phase)
        if arrived is not None:
            _join(order, self._passed, (warp.block.rank, warp.number), arrived)

    def row(self, warp: Warp) -> Clock | None:
        """What a warp knows to be done, if it passed such a barrier."""
        return self._passed.get((warp.block.rank, warp.number))


def _join(order: Order, rows: dict[Key, Clock], key: Key, row: Clock) -> None:
    if key in rows:
        order.merge(rows[key], row)
    else:
        rows[key] = row.copy()
