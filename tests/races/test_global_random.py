"""The compiled check agrees with a slow one that keeps everything.

The reference keeps a record of each byte for writes, and of each word for reads (the
last read, an earlier one of another warp, or "several groups"), in plain Python, lane
by lane.  Of a word whose last
write is strong, and by one lane alone, it keeps the plain writes before, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.races.globally import ALL, Block, Machine
from tests.thinning import some

Array = NDArray[Any]
KINDS = ("read", "write", "atomic", "strong read", "strong write")
WORDS = 256


@dataclass
class Last:
    """The last access of one kind to a word."""

    block: int
    warp: int
    lane: int
    epoch: int
    site: int
    mask: int
    strong: bool
    atomic: bool = False
    several: bool = False


class Stored(NamedTuple):
    """What lanes store by one instruction, and what was there before."""

    where: Array
    lanes: int
    lane: int
    values: Array
    before: Array


@dataclass
class Reference:
    """Records of all words, and the problems as triples."""

    machine: Machine
    writes: dict[int, Last] = field(default_factory=dict)
    """By byte."""
    plain: dict[int, Last] = field(default_factory=dict)
    """By byte: what strong writes have replaced."""
    several: set[int] = field(default_factory=set)
    """The words that several lanes have written in parts."""
    reads: dict[int, Last] = field(default_factory=dict)
    found: set[tuple[str, int, int]] = field(default_factory=set)

    def access(
        self,
        block: Block,
        warp: int,
        kind: str,
        where: Array,
        lanes: int,
        site: int,
        size: int,
        values: Array,
    ) -> None:
        before = self.machine.data.copy()
        for lane in range(32):
            if not lanes >> lane & 1:
                continue
            start = int(where[lane])
            for word in range(start // 4, (start + size - 1) // 4 + 1):
                mask = 0b1111 if size >= 4 else ((1 << size) - 1) << start % 4
                now = Last(
                    block.number,
                    warp,
                    lane,
                    block.epoch(warp),
                    site,
                    mask,
                    kind not in ("read", "write"),
                    kind == "atomic",
                )
                stored = Stored(where, lanes, lane, values, before)
                self._word(block, word, now, kind, stored)

    def _equal(self, last: Last, now: Last, byte: int, stored: Stored) -> bool:
        """Whether a byte gets the value that it has, or that another lane stores."""
        where, lanes, lane, values, before = stored
        start, other = int(where[lane]), last.lane
        place = byte - start
        mine = int(values[lane]) >> 8 * place & 0xFF
        same = (last.block, last.warp, last.site) == (now.block, now.warp, now.site)
        beside = lanes >> other & 1 and int(where[other]) == start and other < lane
        if same and last.epoch == now.epoch and beside:
            return int(values[other]) >> 8 * place & 0xFF == mine
        return bool(before[byte] == mine)

    def _parts(
        self, writes: dict[int, Last], word: int, mask: int
    ) -> list[tuple[Last, list[int]]]:
        """The writes of some bytes of a word, with the bytes of each."""
        found: dict[Any, tuple[Last, list[int]]] = {}
        for byte in [4 * word + i for i in range(4) if mask >> i & 1]:
            if byte in writes:
                last = writes[byte]
                key = last.block, last.warp, last.lane, last.epoch, last.site
                found.setdefault(key, (last, []))[1].append(byte)
        return list(found.values())

    def _word(
        self, block: Block, word: int, now: Last, kind: str, stored: Stored
    ) -> None:
        read, observed = self.reads.get(word), False
        if now.strong:
            self._behind(block, word, now, kind)
        for last, bytes_ in self._parts(self.writes, word, now.mask):
            wrote = replace(last, mask=sum(1 << each % 4 for each in bytes_))
            if not self._after(block, wrote, read, now):
                equal = all(self._equal(last, now, each, stored) for each in bytes_)
                if kind.endswith("read"):
                    name = "MIXED" if wrote.atomic else "WRITE_READ"
                else:
                    same = equal and kind != "atomic"
                    name = "GLOBAL_SAME_VALUE" if same else "WRITE_WRITE"
                self.found.add((name, now.site, wrote.site))
            elif not self._ordered(block, wrote, now):
                observed = True  # a strong read that orders it is worth more
        if kind.endswith("read"):
            if not observed:
                self.reads[word] = self._second(block, read, now)
            return
        if read and not self._ordered(block, read, now):
            name = "MIXED" if now.atomic else "READ_WRITE"
            self.found.add((name, now.site, -1 if read.several else read.site))
        parts = self._parts(self.writes, word, 0b1111 & ~now.mask)
        if now.mask == 0b1111:
            self.several.discard(word)
        elif parts:
            self.several.add(word)
        self.writes |= {4 * word + i: now for i in range(4) if now.mask >> i & 1}
        if read:
            read.mask &= ~now.mask
            if not read.mask:
                del self.reads[word]

    def _behind(self, block: Block, word: int, now: Last, kind: str) -> None:
        """A strong access, and the plain writes before other strong ones."""
        bytes_ = range(4 * word, 4 * word + 4)
        last = [self.writes[each] for each in bytes_ if each in self.writes]
        if word not in self.several and last and last[0].strong:
            for wrote, own in self._parts(self.plain, word, now.mask):
                part = replace(wrote, mask=sum(1 << each % 4 for each in own))
                if not self._ordered(block, part, now):
                    name = "WRITE_READ" if kind.endswith("read") else "WRITE_WRITE"
                    self.found.add((name, now.site, wrote.site))
        elif not kind.endswith("read"):
            for each in bytes_:
                self.plain.pop(each, None)
                if each in self.writes:
                    self.plain[each] = self.writes[each]

    def _after(self, block: Block, wrote: Last, read: Last | None, now: Last) -> bool:
        """Whether an access is after a write, or after a strong read of its value."""
        if self._ordered(block, wrote, now):
            return True
        if read is None or not (wrote.strong and read.strong):
            return False
        weak = replace(now, strong=False, mask=0b1111)
        seen = not wrote.mask & now.mask & ~read.mask
        return seen and self._ordered(block, read, weak)

    def _ordered(self, block: Block, before: Last, now: Last) -> bool:
        if not before.mask & now.mask or (before.strong and now.strong):
            return True
        if before.several or before.block != now.block:
            return False
        return block.knows(now.warp, now.lane, before.warp, before.lane, before.epoch)

    def _second(self, block: Block, before: Last | None, now: Last) -> Last:
        if before is None:
            return now
        if before.several or before.block != now.block:
            both = before.strong and now.strong
            shared = before.mask & now.mask
            if not shared:
                return now
            return Last(-1, -1, 0, 0, -1, shared, both, several=True)
        row = block._clock(now.warp, False)
        thread = (before.warp, before.lane) == (now.warp, now.lane)
        known = thread or before.epoch < row[0, 0, before.warp]
        site = (before.warp, before.site, before.epoch) == (
            now.warp,
            now.site,
            now.epoch,
        )
        if now.strong and not before.strong and not known and not site:
            return before
        plain = not (now.strong or before.strong)
        if plain and not known and before.warp != now.warp:
            return before
        return now


def orders(machine: Machine, random: np.random.Generator) -> None:
    """Now and then threads of a block synchronise."""
    block, warp = machine.blocks[random.integers(2)], int(random.integers(2))
    match random.integers(8):
        case 0:
            block.sync()
        case 1:
            block.syncwarp(warp)
        case 2:
            row = block.release(1 - warp, 1 << int(random.integers(32)))
            block.acquire(warp, 1 << int(random.integers(32)), row)


@pytest.mark.long
@pytest.mark.parametrize("seed", some(range(4), 2))
def test_random_accesses(seed: int) -> None:
    random = np.random.default_rng(seed)
    machine = Machine(size=4 * WORDS, blocks=2, warps=2)
    slow = Reference(machine)
    for step in range(300):
        orders(machine, random)
        block = machine.blocks[random.integers(2)]
        warp = int(random.integers(2))
        number = int(random.choice(5, p=[0.4, 0.3, 0.1, 0.1, 0.1]))
        size = int(random.choice([1, 2, 4, 8]))
        places = 4 * WORDS // size
        where = size * random.integers(places, size=32)
        if random.random() < 0.6:  # side by side
            where = size * (int(random.integers(places - 32)) + np.arange(32))
        lanes = ALL if random.random() < 0.6 else int(random.integers(1, 1 << 32))
        values = random.integers(0, 2 if random.random() < 0.5 else 1, 32)
        site = 40 * number + step % 37
        slow.access(block, warp, KINDS[number], where, lanes, site, size, values)
        block.access(
            warp,
            KINDS[number],
            where,
            lanes=lanes,
            site=site,
            bits=8 * size,
            value=values,
        )
        if step % 10 == 9:
            noted = {each.key for each in machine.watch.found()}
            found = {(case.name, site, before) for case, site, before in noted}
            assert found == slow.found, step
    assert len(slow.found) > 40
