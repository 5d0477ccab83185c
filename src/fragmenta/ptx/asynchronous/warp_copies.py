"""What do the ``cp.async`` of the lanes of a warp copy?"""

from __future__ import annotations

from typing import Any

import numpy as np

from fragmenta.ptx.asynchronous.events import Event, first, numbers
from fragmenta.ptx.asynchronous.machine import Thread, Warp
from fragmenta.ptx.asynchronous.work import CopyFault, Range, Work, poisoned
from fragmenta.ptx.engine import layout
from fragmenta.ptx.engine.layout import RANK_BITS, SHARED_START


class LaneFault(CopyFault):
    """A copy that one lane cannot make."""

    def __init__(self, rule: str, message: str, lanes: int) -> None:
        super().__init__(rule, message)
        self.lanes = lanes


class WarpCopy(Work):
    """4, 8 or 16 bytes for each lane, from global to shared memory."""

    completes, proxy, bytes, mbarrier = "async_group", "cp.async", 0, None

    def __init__(self, warp: Warp, event: Event, lanes: int) -> None:
        super().__init__(event.site, Thread(warp, first(lanes)))
        self.warp, self.lanes = warp, np.array(list(numbers(lanes)))
        to, of, size, *rest = event.operands
        self.size = size.place
        goal = to.lanes(warp)[self.lanes].astype(np.int64)
        self.goal = goal & ((1 << RANK_BITS) - 1)
        self.source = of.lanes(warp)[self.lanes].astype(np.int64)
        self.count = self._counts(event, rest)
        self._check(goal)
        self.data: Any = None

    def _counts(self, event: Event, rest: list[Any]) -> Any:
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

    def _check(self, goal: Any) -> None:
        size, block = self.size, self.warp.block
        where = [block.memory(int(a)) if n else None
                 for a, n in self._firsts()]  # fmt: skip
        self.where = where
        below = self.goal < SHARED_START
        over = self.goal + size > block.shared.size
        own = goal >> RANK_BITS == block.rank
        self._refuse(
            below | over | ~own, "bounds", goal,
            f"cp.async writes {size} bytes of the block's shared memory",
        )  # fmt: skip
        self._refuse(goal % size != 0, "alignment", goal,
                     f"the address in shared memory is a multiple of {size}")  # fmt: skip
        self._refuse((self.source % size != 0) & (self.count > 0), "alignment",
                     self.source, f"the address of the source is a multiple of {size}")  # fmt: skip
        for segment, (memory, origin) in self._segments().items():
            there = self.source >> layout.SLOT_BITS == segment
            end = self.source - origin + self.count
            outside = there & (self.count > 0) & (end > memory.size)
            self._refuse(outside, "bounds", self.source,
                         f"its source has {memory.size} bytes")  # fmt: skip

    def _refuse(self, wrong: Any, rule: str, given: Any, allowed: str) -> None:
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            lane = 1 << int(self.lanes[at])
            raise LaneFault(rule, f"{allowed}; given {int(given[at]):#x}", lane)

    def _firsts(self) -> list[tuple[int, int]]:
        """One address in each segment, and whether anything is read there."""
        slots = self.source >> layout.SLOT_BITS
        used = self.count > 0
        return [
            (int(self.source[(slots == slot) & used][0]), 1)
            for slot in np.unique(slots[used])
        ]

    def _segments(self) -> dict[int, tuple[Any, int]]:
        found = {}
        for address, _ in self._firsts():
            memory, offset = self.warp.block.memory(address)
            found[address >> layout.SLOT_BITS] = (memory, address - offset)
        return found

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

    def signals(self) -> list[tuple[int, int]]:
        """None."""
        return []

    def poison(self) -> None:
        """Fill what it will write."""
        places = self.goal[:, None] + np.arange(self.size)
        self.warp.block.shared[places] = poisoned(places)

    def read(self) -> None:
        """Take the source as it is now."""
        data = np.zeros((self.lanes.size, self.size), np.uint8)
        steps = np.arange(self.size)
        for slot, (memory, origin) in self._segments().items():
            chosen = (self.source >> layout.SLOT_BITS == slot) & (self.count > 0)
            inside = steps < self.count[chosen, None]
            places = np.where(inside, self.source[chosen, None] - origin + steps, 0)
            data[chosen] = np.where(inside, memory[places], 0)
        self.data = data

    def write(self) -> None:
        """Put it into shared memory."""
        places = self.goal[:, None] + np.arange(self.size)
        self.warp.block.shared[places] = self.data
