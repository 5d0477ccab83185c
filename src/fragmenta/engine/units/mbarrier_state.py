"""The mbarriers of a block: what they count, and where they are.

A phase is over when no arrival and no byte is pending.  Phases are counted up for ever
here; an instruction sees only whether the number is even or odd.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from fragmenta.engine.simt.compiled import address_of, zeros
from fragmenta.engine.simt.layout import RANK_BITS
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.records import Flag, Long, Record, Word, signed
from fragmenta.ptx.languages import PTX

if TYPE_CHECKING:
    from fragmenta.engine.units.blocks import Block, Warp
    from fragmenta.engine.units.work import Work

_STEP = layout.MBARRIER_BYTES >> 2
"""The words of a record."""
WHEN_DONE = (
    f"Let {PTX.block_barrier} come before it, which all threads reach when they are "
    "done with the mbarrier."
)
"""What repairs an ``mbarrier.inval`` that comes too early."""


class Mbarrier(Record):
    """An mbarrier in the shared memory of a block."""

    alive = Flag(layout.MBARRIER_ALIVE)
    slot = Word(layout.MBARRIER_SLOT)
    """Its number among those of the block, for the observer."""
    expected = Word(layout.MBARRIER_EXPECTED)
    pending = Word(layout.MBARRIER_PENDING)
    bytes = Word(layout.MBARRIER_TX)
    phase = Long(layout.MBARRIER_PHASE)
    fenced = Flag(layout.MBARRIER_FLAGS, layout.FENCED)
    """Whether a fence orders its making."""
    public = Flag(layout.MBARRIER_FLAGS, layout.PUBLIC)
    """Whether all know of its making."""
    observed = Long(layout.MBARRIER_OBSERVED)
    """The last phase whose end lanes have seen."""
    copied = Long(layout.MBARRIER_COPIED)
    """The last phase that counts a copy."""
    again = Flag(layout.MBARRIER_AGAIN)
    """Whether an mbarrier was here before."""
    tasks = Word(layout.MBARRIER_TASKS)
    """How many copies in flight it counts that machine code issued."""
    known = Flag(layout.MBARRIER_KNOWN)
    """Whether the observer's clock of this phase holds anything."""
    known_last = Flag(layout.MBARRIER_KNOWN_LAST)
    """The same of the last phase that is over, which lanes may still wait for."""
    agent = Word(layout.MBARRIER_AGENT)
    """The observer's name for the copies that it counts."""
    clock = Long(layout.MBARRIER_CLOCK)
    """Where the observer's clock of this phase is."""
    clock_last = Long(layout.MBARRIER_CLOCK_LAST)
    """The same of the last phase."""
    clocks = Long(layout.MBARRIER_CLOCKS)
    """Where the observer's two clocks of all mbarriers at this place are."""
    remote = Flag(layout.MBARRIER_REMOTE)
    """Whether threads of other blocks of the cluster have arrived at it."""
    held = Word(layout.MBARRIER_HELD)
    """The phase after whose end its driver gave way, plus 1."""
    held_count = Word(layout.MBARRIER_HELD_COUNT)
    """How often it did."""
    _driver = Word(layout.MBARRIER_DRIVER)
    _place = Word(layout.MBARRIER_PLACE)
    _counted = Word(layout.MBARRIER_WORK)
    _copier = Word(layout.MBARRIER_COPIER)
    _copy_site = Word(layout.MBARRIER_COPY_SITE)

    def __init__(self, block: Block, offset: int) -> None:
        super().__init__(block.mbarrier_memory(offset))
        self.block, self.offset = block, offset
        self.work: list[Work] = []
        """Work in flight that it counts."""

    def make(self, count: int, slot: int, again: bool) -> None:
        """Begin the first phase of a new mbarrier."""
        clocks = self.clocks
        self.raw[:] = 0
        self.clocks = clocks
        self.expected = self.pending = count
        self.slot, self.alive, self.again = slot, True, again
        self._place = self.block.rank << RANK_BITS | self.offset
        self.birth = (-1, -1, -1, -1)
        self.observed = self.copied = -1
        self.write()

    @property
    def birth(self) -> tuple[int, int, int, int]:
        """Who made it: agent, lane, epoch and site; the observer's."""
        first = layout.MBARRIER_BIRTH >> 2
        agent, lane, epoch, site = self.words[first : first + 4].tolist()
        return agent, lane, epoch, site

    @birth.setter
    def birth(self, given: tuple[int, int, int, int]) -> None:
        first = layout.MBARRIER_BIRTH >> 2
        self.words[first : first + 4] = given

    @property
    def copier(self) -> tuple[Warp, int] | None:
        """The warp and the site of the last copy that it counts."""
        if not self._copier:
            return None
        rank, number = divmod(self._copier - 1, 1 << 16)
        block = self.block.cluster.blocks[rank]
        return block.warps[number], self._copy_site

    @copier.setter
    def copier(self, given: tuple[Warp, int]) -> None:
        warp, self._copy_site = given
        self._copier = _name(warp)

    @property
    def waiting(self) -> dict[int, int]:
        """The phase that warps wait for, by their number."""
        phases = self.words[layout.MBARRIER_WAITING >> 2 :][: layout.MBARRIER_WARPS]
        found = np.flatnonzero(phases)
        return {int(warp): (int(phases[warp]) & 0xFFFFFFFF) - 1 for warp in found}

    def waits(self, warp: int, phase: int | None) -> bool:
        """Note which phase a warp waits for; whether it did not wait for it before."""
        place = (layout.MBARRIER_WAITING >> 2) + warp
        # A state that is none may name any phase.
        new = 0 if phase is None else signed(min(phase + 1, 0xFFFFFFFF))
        before, self.words[place] = int(self.words[place]), new
        return before != new

    def waited_for(self, warp: int, phase: int) -> bool:
        """Whether a warp has waited for a phase before."""
        noted = int(self.words[(layout.MBARRIER_WAITING >> 2) + warp])
        return noted == signed(min(phase + 1, 0xFFFFFFFF))

    def saw(self, warp: int, phase: int) -> None:
        """Note that a warp has seen the end of a phase.

        One of the same parity as the next that it waits for is taken for that.
        """
        next_ = self.seen(warp) + 1
        taken = next_ if phase > next_ and (phase - next_) % 2 == 0 else phase
        place = (layout.MBARRIER_SEEN >> 2) + warp
        self.words[place] = signed(min(taken + 1, 0xFFFFFFFF))

    def seen(self, warp: int) -> int:
        """The last phase that a warp takes for over, since it waited; -1: none."""
        return (int(self.words[(layout.MBARRIER_SEEN >> 2) + warp]) & 0xFFFFFFFF) - 1

    def seen_in(self, warp: int, epoch: int) -> None:
        """Note when a warp has seen the end of a phase: the observer's epoch."""
        self.words[(layout.MBARRIER_WAITED >> 2) + warp] = epoch + 1

    @property
    def waited(self) -> dict[int, int]:
        """The epoch in which each warp last saw the end of a phase."""
        epochs = self.words[layout.MBARRIER_WAITED >> 2 :][: layout.MBARRIER_WARPS]
        return {int(n): int(epochs[n]) - 1 for n in np.flatnonzero(epochs)}

    def driven_by(self, warp: Warp) -> bool:
        """Whether an instruction of this warp has ended the last phase."""
        return self._driver == _name(warp)

    def count(self, work: Work) -> None:
        """Count work that is in flight from now on."""
        self.work.append(work)
        self._counted = len(self.work)

    def discount(self, work: Work) -> None:
        """The work is done."""
        self.work.remove(work)
        self._counted = len(self.work)

    def busy(self) -> str:
        """Why it must not be made invalid now; nothing if it may be."""
        if self.work or self.tasks:
            return "copies are in flight that it counts"
        if self.waiting:
            return "somebody waits for it"
        if self.pending != self.expected or self.bytes:
            return f"its phase {self.phase} is under way"
        return ""

    def __str__(self) -> str:
        return f"the mbarrier at {self.offset:#x}"

    def state(self) -> int:
        """Its 64 bits.  The hardware's are not known; no valid kernel reads them."""
        return (
            (self.phase & 0xFFFFFF) << 40
            | (self.bytes & 0xFFFFF) << 20
            | (self.pending & 0xFFFFF)
        )

    def write(self) -> None:
        """Put its bits into shared memory."""
        data = (self.state() ^ layout.MARK).to_bytes(8, "little")
        self.block.shared[self.offset : self.offset + 8] = list(data)
        self.block.cluster.port.wrote(self)

    def intact(self) -> bool:
        """Whether its bits are in shared memory as it left them."""
        there = self.block.shared[self.offset : self.offset + 8].tobytes()
        return int.from_bytes(there, "little") == self.state() ^ layout.MARK

    def arrive(self, count: int, by: Warp) -> None:
        """Count arrivals in the present phase."""
        self.pending -= count
        self.settle(by)

    def expect(self, count: int) -> None:
        """Expect more bytes in the present phase; fewer, if the count is negative."""
        self.bytes += count

    def settle(self, by: Warp) -> None:
        """Begin the next phase, if nothing is pending; a warp has done or issued it."""
        while self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self._driver = _name(by)
            self.pending = self.expected
            self.block.cluster.port.done(self)
            self.block.cluster.changes += 1
            self.block.cluster.wakes += 1
            if self.expected == 0:
                break
        self.write()


def _name(warp: Warp) -> int:
    """A warp of the cluster as a number that is not 0."""
    return (warp.block.rank << 16 | warp.number) + 1


class Mbarriers(Mapping[int, Mbarrier]):
    """The mbarriers of a block, by their offset in its shared memory.

    Machine code makes and ends them, too: a list in memory has their offsets, in the
    order in which they were made.
    """

    def __init__(self, block: Block, most: int) -> None:
        self._block = block
        self._alive = block.records_of_mbarriers[layout.MBARRIER_ALIVE >> 2 :: _STEP]
        self._offsets = zeros(most, np.int32)
        self._kept: dict[int, Mbarrier] = {}
        block.longs[layout.STATE_MADE >> 3] = address_of(self._offsets)

    def __len__(self) -> int:
        return int(self._block.words[layout.STATE_MADE_COUNT >> 2])

    def __iter__(self) -> Iterator[int]:
        return iter(self._offsets[: len(self)].tolist())

    def __contains__(self, offset: object) -> bool:
        if not isinstance(offset, int) or offset % 8:
            return False
        return 0 <= offset >> 3 < self._alive.size and bool(self._alive[offset >> 3])

    def __getitem__(self, offset: int) -> Mbarrier:
        if offset not in self:
            raise KeyError(offset)
        found = self._kept.get(offset)
        if found is None:
            found = self._kept[offset] = Mbarrier(self._block, offset)
        return found

    def make(self, offset: int, count: int) -> Mbarrier:
        """Make an mbarrier, perhaps where one is."""
        old, words = self.get(offset), self._block.words
        if old is None:
            self._offsets[len(self)] = offset
            words[layout.STATE_MADE_COUNT >> 2] += 1
        slot = int(words[layout.STATE_MADE_EVER >> 2])
        words[layout.STATE_MADE_EVER >> 2] += 1
        made = self._kept[offset] = Mbarrier(self._block, offset)
        made.make(count, slot, old is not None)
        return made

    def retire(self, mbarrier: Mbarrier) -> None:
        """End an mbarrier."""
        mbarrier.alive = False
        left = [each for each in self if each != mbarrier.offset]
        self._offsets[: len(left)] = left
        self._block.words[layout.STATE_MADE_COUNT >> 2] = len(left)
        self._kept.pop(mbarrier.offset, None)

    def clear(self) -> None:
        """End all of them: another block begins."""
        for offset in self:
            self._alive[offset >> 3] = 0
        for place in (layout.STATE_MADE_COUNT, layout.STATE_MADE_EVER):
            self._block.words[place >> 2] = 0
        self._kept.clear()
