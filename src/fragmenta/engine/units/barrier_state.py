"""What the barrier of a cluster knows: which lanes arrived, and in which phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.engine.simt.compiled import aligned
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.records import Long, Record, Word, signed

if TYPE_CHECKING:
    from fragmenta.engine.units.blocks import Warp
    from fragmenta.engine.units.clusters import Cluster


class WarpArrivals(Record):
    """What the barrier knows of a warp."""

    _arrived = Word(at.ENTRY_ARRIVED)
    _lanes = Word(at.ENTRY_LANES)
    phase = Long(at.ENTRY_PHASE)
    """The phase in which the lanes arrived that have not waited."""

    @property
    def arrived(self) -> int:
        """The lanes that arrived in the present phase."""
        return self._arrived & 0xFFFFFFFF

    @arrived.setter
    def arrived(self, lanes: int) -> None:
        self._arrived = signed(lanes)

    @property
    def lanes(self) -> int:
        """The lanes that arrived and have not waited."""
        return self._lanes & 0xFFFFFFFF

    @lanes.setter
    def lanes(self, lanes: int) -> None:
        self._lanes = signed(lanes)


class ClusterBarrierRecord(Record):
    """The barrier of a cluster."""

    phase = Long(at.BARRIER_PHASE)
    _arrived = Word(at.BARRIER_ARRIVED)
    _mixed = Word(at.BARRIER_MIXED)

    def __init__(self, blocks: int) -> None:
        size = blocks * at.ENTRIES * at.ENTRY_BYTES
        super().__init__(aligned(at.BARRIER_WARPS + size))
        self.older: dict[tuple[int, int], dict[int, int]] = {}
        """Lanes that arrived, by warp and phase; they arrived again since then."""

    def reset(self) -> None:
        """A new cluster begins."""
        self.raw[:] = 0
        self.older.clear()

    def entry(self, rank: int, warp: int) -> WarpArrivals:
        """What is known of a warp."""
        first = at.BARRIER_WARPS + (rank * at.ENTRIES + warp) * at.ENTRY_BYTES
        return WarpArrivals(self.raw[first : first + at.ENTRY_BYTES])

    def arrive(self, warp: Warp, lanes: int) -> None:
        """Lanes arrive."""
        entry = self.entry(warp.block.rank, warp.number)
        if entry.lanes and entry.phase != self.phase:
            key = warp.block.rank, warp.number
            self.older.setdefault(key, {})[entry.phase] = entry.lanes
            self._mixed, entry.lanes = 1, 0
        entry.arrived |= lanes
        entry.lanes |= lanes
        entry.phase = self.phase
        self._arrived += lanes.bit_count()

    def waited(self, warp: Warp, lanes: int) -> list[tuple[int, int]]:
        """The phases that are over in which lanes arrived, each with these lanes."""
        older = self.older.get((warp.block.rank, warp.number), {})
        found = [(phase, older[phase] & lanes) for phase in sorted(older)]
        for phase, mine in found:
            older[phase] &= ~mine
        entry = self.entry(warp.block.rank, warp.number)
        if entry.phase < self.phase:
            found.append((entry.phase, entry.lanes & lanes))
            entry.lanes &= ~lanes
        return [each for each in found if each[1]]

    def settle(self, cluster: Cluster) -> None:
        """Begin the next phase, if all have arrived."""
        if not self._arrived:
            return
        for block in cluster.blocks:
            for warp in block.warps:
                here = self.entry(block.rank, warp.number).arrived
                if warp.live & ~here and not block.ended:
                    return
        self.phase += 1
        self._arrived = 0
        for block in cluster.blocks:
            for warp in block.warps:
                self.entry(block.rank, warp.number).arrived = 0
        cluster.changes += 1
        cluster.wakes += 1
