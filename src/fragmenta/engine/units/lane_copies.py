"""``cp.async``: copies of 4, 8 or 16 bytes by each lane of a warp."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import RANK_BITS, SHARED_START, Fault
from fragmenta.engine.units.blocks import Thread, Warp
from fragmenta.engine.units.copy_groups import copy_epoch
from fragmenta.engine.units.events import Event, EventOperand, first, numbers
from fragmenta.engine.units.faults import WrongAddress
from fragmenta.engine.units.work import (
    Bytes,
    CopyBlock,
    Pair,
    QueueSlot,
    Range,
    Starts,
    Transfer,
    pairs,
    poisoned,
)
from fragmenta.errors import Error
from fragmenta.ptx.effects import effect


def lane_pairs(rank: int, goal: Starts, source: Starts, count: Starts) -> list[Pair]:
    """What lanes copy, of which some may copy fewer bytes than others."""
    found = []
    for size in np.unique(count[count > 0]).tolist():
        some = count == size
        to = Range("shared", rank, goal[some], size)
        found += pairs(to, Range("global", -1, source[some], size))
    return found


class WarpCopy(Transfer):
    """4, 8 or 16 bytes for each lane, from global to shared memory."""

    effect = effect("cp.async")

    def __init__(self, warp: Warp, event: Event, lanes: int) -> None:
        super().__init__(event.site)
        self.thread = Thread(warp, first(lanes))
        self.warp, self.lanes = warp, np.array(list(numbers(lanes)))
        to, of, size, *rest = event.operands
        self.size = size.place
        goal = to.lanes(warp)[self.lanes].astype(np.int64)
        self.goal = goal & ((1 << RANK_BITS) - 1)
        self.source = of.lanes(warp)[self.lanes].astype(np.int64)
        self.count = self._counts(event, rest)
        self.past = self._past()
        self.count = self.count - self.past
        self._check(goal)
        self.data: Bytes = np.empty(0, np.uint8)

    def _counts(self, event: Event, rest: list[EventOperand]) -> Starts:
        """The bytes that each lane reads; the others are zero."""
        count = np.full(self.lanes.size, self.size)
        if "L2::cache_hint" in event.words and rest:
            rest = rest[:-1]
        for each in rest:
            if each.kind == "p":
                word = int(self.warp.words[each.place >> 2])
                ignored = (word >> self.lanes & 1) ^ each.bits
                count = np.where(ignored, 0, count)
            else:
                given = each.lanes(self.warp)[self.lanes]
                count = np.minimum(given.astype(np.int64), self.size)
        return count

    def _past(self) -> Starts:
        """How many bytes past the end of an argument each lane would read."""
        slack = self.warp.block.slack
        if not self.warp.block.cluster.machine.goes_on:
            return np.zeros_like(self.count)
        given = zip(self.source.tolist(), self.count.tolist(), strict=True)
        return np.array([slack(*each) if each[1] else 0 for each in given], np.int64)

    def _check(self, goal: Starts) -> None:
        size, block, read = self.size, self.warp.block, self.count > 0
        source = self.source
        inside = (self.goal >= SHARED_START) & (self.goal + size <= block.shared.size)
        own = goal >> RANK_BITS == block.rank
        self._refuse(~(inside & own), Fault.BOUNDS, goal, -size)
        self._refuse(goal % size != 0, Fault.ALIGNMENT, goal, -size)
        known = np.zeros(source.size, bool)
        for slot, (memory, origin) in self._segments(block).items():
            there = source >> layout.SLOT_BITS == slot
            begin = source - origin
            known |= there & (begin >= 0) & (begin + self.count <= memory.size)
        self._refuse(read & ~known, Fault.BOUNDS, source, size)
        self._refuse((source % size != 0) & read, Fault.ALIGNMENT, source, size)

    def _refuse(
        self, wrong: NDArray[np.bool_], kind: Fault, given: Starts, size: int
    ) -> None:
        """Refuse lanes whose address is wrong; the size is negative for the goal."""
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            lane = 1 << int(self.lanes[at])
            raise WrongAddress(kind, int(given[at]), size, lane)

    def _firsts(self) -> list[int]:
        """One address in each segment that is read."""
        slots = self.source >> layout.SLOT_BITS
        used = self.count > 0
        return [
            int(self.source[(slots == slot) & used][0])
            for slot in np.unique(slots[used])
        ]

    def _segments(self, block: CopyBlock) -> dict[int, tuple[Bytes, int]]:
        """The memories that are read: by slot, each with the address of its start."""
        found = {}
        for address in self._firsts():
            try:
                memory, offset = block.memory(address)
            except Error:
                continue
            found[address >> layout.SLOT_BITS] = (memory, address - offset)
        return found

    @property
    def slot(self) -> QueueSlot:
        """Its place among the copies of its warp."""
        epoch = copy_epoch(self.warp)
        rank, number = self.warp.block.rank, self.warp.number
        return QueueSlot(self.effect.instruction, rank, number, epoch=epoch)

    @property
    def goals(self) -> list[Range]:
        """What it writes."""
        return [Range("shared", self.warp.block.rank, np.sort(self.goal), self.size)]

    @property
    def sources(self) -> list[Range]:
        """What it reads; all bytes of the lanes that read any."""
        used = self.count > 0
        if not used.any():
            return []
        return [Range("global", -1, np.sort(self.source[used]), self.size)]

    @property
    def pairs(self) -> list[Pair]:
        """What each lane copies."""
        rank = self.warp.block.rank
        return lane_pairs(rank, self.goal, self.source, self.count)

    def poison(self) -> None:
        """Fill what it will write."""
        places = self.goal[:, None] + np.arange(self.size)
        self.warp.block.shared[places] = poisoned(places)

    def read(self) -> None:
        """Take the source as it is now."""
        self.data = self._taken(self.warp.block)
        steps, count = np.arange(self.size), self.count[:, None]
        past = (steps >= count) & (steps < count + self.past[:, None])
        places = self.goal[:, None] + steps
        self.data = np.where(past, poisoned(places), self.data)

    def _taken(self, block: CopyBlock) -> Bytes:
        """What the lanes read, with zeros after it."""
        data = np.zeros((self.lanes.size, self.size), np.uint8)
        steps = np.arange(self.size)
        for slot, (memory, origin) in self._segments(block).items():
            chosen = (self.source >> layout.SLOT_BITS == slot) & (self.count > 0)
            inside = steps < self.count[chosen, None]
            places = np.where(inside, self.source[chosen, None] - origin + steps, 0)
            data[chosen] = np.where(inside, memory[places], 0)
        return data

    def write(self) -> None:
        """Put it into shared memory."""
        places = self.goal[:, None] + np.arange(self.size)
        self.warp.block.shared[places] = self.data

    def follow(self, shadow: CopyBlock, values: Sequence[int] = ()) -> Starts:
        """Copy the shadows; no byte of global memory is written."""
        places = self.goal[:, None] + np.arange(self.size)
        shadow.shared[places] = self._taken(shadow)
        return np.empty(0, np.int64)
