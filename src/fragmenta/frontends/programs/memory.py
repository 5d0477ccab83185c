"""Device memory that a program and the server share.

Each allocation is a segment of its own, as each array of a launch is: its address has
the number of its slot in the upper bits, and no access reaches past its ends.  A slot
is used again only after all others, so that a pointer to freed memory points to
nothing.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt import empties, layout, untouched
from fragmenta.engine.simt.arguments import Segment
from fragmenta.errors import Error
from fragmenta.frontends.programs.places import CallSite

MOST_POISONED = 1 << 28
"""Larger memory is not filled, and does not count as unwritten: that takes too long."""
PAGE = mmap.PAGESIZE


class AllocationKind(IntEnum):
    """What memory was allocated as; the numbers are those of ``client/core.h``."""

    DEVICE = 0
    MANAGED = 1
    HOST = 2
    POOLED = 3


class NoMemory(Error):
    """Memory that cannot be allocated, as on a card that has no more."""


@dataclass(eq=False)
class MappedMemory:
    """Memory that can be mapped by another process, through a file without a name."""

    size: int
    file: int
    data: NDArray[np.uint8]

    @classmethod
    def make(cls, size: int) -> MappedMemory:
        """Zeroed memory."""
        file = os.memfd_create("fragmenta", os.MFD_CLOEXEC)
        try:
            os.ftruncate(file, -(-max(size, 1) // PAGE) * PAGE)
            # An array keeps the mapping; it ends with the last array.
            data = np.frombuffer(mmap.mmap(file, 0), np.uint8)[:size]
        except BaseException:
            os.close(file)
            raise
        untouched.of_file(data, file)
        return cls(size, file, data)

    def close(self) -> None:
        """Close the file; arrays still reach the memory."""
        if self.file >= 0:
            untouched.forget(self.data)
            os.close(self.file)
            self.file = -1


@dataclass(eq=False)
class Allocation:
    """Memory that a program allocated."""

    slot: int
    kind: AllocationKind
    memory: MappedMemory
    number: int
    """How many were allocated before."""
    unwritten: NDArray[np.uint8] | None = None
    """Its words, as long as some of them count as unwritten."""

    def missing(self, start: int, size: int) -> NDArray[np.uint8]:
        """Which bytes of a part nobody has written: 1 for each of them."""
        found = np.zeros(size, np.uint8)
        if self.unwritten is not None:
            marks = empties.marks(self.memory.data)
            if marks is not None:
                found[:] = marks[start : start + size]
        return found

    def look(self) -> None:
        """Look whether all of it is written now: then no launch looks again."""
        words = self.unwritten
        if words is not None and not empties.any_unwritten(words):
            empties.count_as_written(words)
            self.unwritten = None

    @property
    def address(self) -> int:
        """Its first address, for kernels and for the program."""
        return self.slot << layout.SLOT_BITS

    @property
    def name(self) -> str:
        """What reports call it."""
        said = _ALLOCATED_BY[self.kind]
        return f"allocation {self.number} ({said}, {self.memory.size:,} bytes)"


_ALLOCATED_BY = {
    AllocationKind.DEVICE: "cudaMalloc",
    AllocationKind.MANAGED: "cudaMallocManaged",
    AllocationKind.HOST: "cudaMallocHost",
    AllocationKind.POOLED: "cudaMallocAsync",
}


class Freed(NamedTuple):
    """Memory that was freed."""

    name: str
    size: int
    when: str
    call: CallSite


_NOBODY = CallSite()


class ProgramMemory:
    """All allocations of a program."""

    def __init__(self, most: int) -> None:
        self.most, self.used, self._made = most, 0, 0
        self.held: dict[int, Allocation] = {}
        self.freed: dict[int, Freed] = {}
        """What was in a slot that is free."""
        self._next = layout.FIRST_ARGUMENT
        self._taken: set[int] = set()
        """Slots where the program has something else."""

    def allocate(self, size: int, kind: AllocationKind) -> Allocation:
        """Memory for a program; what it did not write counts as unwritten."""
        if size > layout.FIRST_SLOT or self.used + size > self.most:
            raise NoMemory("")
        memory, unwritten = MappedMemory.make(size), None
        if (
            kind in (AllocationKind.DEVICE, AllocationKind.POOLED)
            and size <= MOST_POISONED
        ):
            whole = size // 4 * 4
            memory.data[:whole].view(np.uint32)[:] = layout.POISON
            unwritten = memory.data[:whole]
            empties.count_as_empty(unwritten)
        made = Allocation(self._slot(), kind, memory, self._made, unwritten)
        self._made += 1
        self.used += size
        self.held[made.slot] = made
        self.freed.pop(made.slot, None)
        return made

    def _slot(self) -> int:
        slots = range(layout.FIRST_ARGUMENT, layout.FIRST_VARIABLE)
        for step in range(len(slots)):
            at = (self._next - slots.start + step) % len(slots)
            slot = slots[at]
            if slot not in self.held and slot not in self._taken:
                self._next = slot + 1
                return slot
        raise NoMemory(
            f"a program has at most {len(slots):,} allocations at a time; it asked for "
            "one more"
        )

    def free(
        self,
        address: int,
        taken: bool = False,
        when: str = "",
        call: CallSite = _NOBODY,
    ) -> bool:
        """Free an allocation; with ``taken``, its slot is not used again."""
        slot = address >> layout.SLOT_BITS
        found = self.held.get(slot)
        if found is None or found.address != address:
            return False
        del self.held[slot]
        self.freed[slot] = Freed(found.name, found.memory.size, when, call)
        self.used -= found.memory.size
        found.memory.close()
        if taken:
            self._taken.add(slot)
        return True

    def was(self, address: int) -> Freed | None:
        """What was freed at an address; None if it never was anything."""
        return self.freed.get(address >> layout.SLOT_BITS)

    def close(self) -> None:
        """Free all."""
        for each in list(self.held.values()):
            self.free(each.address)

    def segments(self, names: dict[int, str]) -> Iterator[Segment]:
        """The memory that a kernel reaches; ``names`` are those of some slots."""
        for slot, each in self.held.items():
            each.look()
            name = names.get(slot, each.name)
            yield Segment(name, each.memory.data, True, slot)
