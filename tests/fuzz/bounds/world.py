"""What an address names, said a second time, and hostile numbers around it.

:class:`World` is the memory that a launch was given, as the kernel's addresses name it.
It knows nothing of how compiled code finds it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import layout
from fragmenta.errors import Error
from fragmenta.reference.shared.descriptor import UNIT, Descriptor
from fragmenta.reference.shared.fields import MODES_OF
from tests.fuzz.bounds.forms import COLUMNS, Form, Reads, Touch, column

Numbers = NDArray[np.uint64]
WRAP = (1 << 64) - 1
SIZE = 2008
"""Bytes of the array that a kernel reads and writes."""


class Region(NamedTuple):
    """Bytes that may be accessed."""

    start: int
    size: int
    writable: bool
    data: NDArray[np.uint8] | None
    """What they hold; None if that is zero."""


class World:
    """The memory of a launch."""

    def __init__(self, launch: Any, shared: int, local: int, hidden: Any) -> None:
        """``hidden`` is an array that hostile numbers keep away from."""
        blocks = launch.shape.cluster_blocks
        near = [rank << layout.RANK_BITS for rank in range(blocks)]
        self.regions: dict[str, list[Region]] = {
            "cluster": [_shared(first, shared) for first in near],
            "local": [Region(0, local, True, None)],
            "generic": [
                *(
                    Region(s.slot << layout.SLOT_BITS, s.data.size, s.writable, s.data)
                    for s in launch.places
                    if not np.shares_memory(s.data, hidden)
                ),
                Region(
                    layout.PARAM_WINDOW,
                    launch.parameters.size,
                    False,
                    launch.parameters,
                ),
                *(_shared(layout.SHARED_WINDOW + first, shared) for first in near),
                Region(layout.LOCAL_WINDOW, local, True, None),
            ],
        }

    def of(self, touch: Touch, rank: int) -> list[Region]:
        """Where an access of a block of a cluster may go."""
        if touch.space != "shared":
            return self.regions[touch.space]
        return [self.regions["cluster"][rank]]

    def allows(self, touch: Touch, address: Numbers, rank: int) -> NDArray[np.bool_]:
        """Which accesses are in bounds, aligned, and allowed."""
        found = np.zeros(address.shape, bool)
        for region in self.of(touch, rank):
            if region.size >= touch.bytes and (region.writable or not touch.writes):
                last = np.uint64(region.size - touch.bytes)
                found |= address - np.uint64(region.start) <= last
        return found & (address % np.uint64(touch.bytes) == 0)

    def held(self, touch: Touch, address: Numbers, rank: int) -> NDArray[np.uint8]:
        """The bytes that accesses in bounds read."""
        found = np.zeros((*address.shape, touch.bytes), np.uint8)
        for region in self.of(touch, rank):
            if region.data is None or region.size < touch.bytes:
                continue
            begin = address - np.uint64(region.start)
            there = begin <= np.uint64(region.size - touch.bytes)
            places = begin[there][:, None].astype(np.int64) + np.arange(touch.bytes)
            found[there] = region.data[places]
        return found

    def holds(self, reads: Reads, word: int) -> bool:
        """Whether all that a descriptor names is shared memory."""
        (own, *_) = self.regions["cluster"]
        try:
            of = Descriptor.decode(word, reads.family)
            row, k = np.ogrid[: reads.rows, : reads.k]
            found = of.address(row, k, reads.type, reads.major, reads.kind)
        except Error:
            return False
        first, last = int(found.min()), int(found.max())
        return first >= own.start and last // UNIT * UNIT + UNIT <= own.start + own.size

    def anchors(self, hosts: list[int]) -> Numbers:
        """Numbers near which something begins or ends."""
        found = {0, 1 << 31, 1 << 32, 1 << 36, 1 << 47, 1 << 63, WRAP, 0x400, 0xE00000}
        for regions in self.regions.values():
            for each in regions:
                found |= {each.start, each.start + each.size}
                found |= {each.start + each.size // 2, each.start + (1 << 32)}
        for rank in (1, 2, 15, 16, 255):
            first = rank << layout.RANK_BITS
            found |= {first, first + 1024, layout.SHARED_WINDOW + first + 1024}
        for slot in (*range(8, 16), layout.SLOTS - 1, layout.SLOTS):
            found.add(slot << layout.SLOT_BITS)
        return np.array(sorted(n & WRAP for n in (*found, *hosts)), np.uint64)


def _shared(first: int, size: int) -> Region:
    start = layout.SHARED_START
    return Region(first + start, size - start, True, None)


# ── hostile numbers ─────────────────────────────────────────────────────────

_LITTLE = (0, 1, 2, 3, 4, 8, 16, 31, 32, 64, 128, 255, 4096, 65535, (1 << 32) - 1)


_FIELDS = np.array(
    [
        0x3FFF,
        0x3FFF_3FFF,
        0x3FFF_3FFF_3FFF,
        0xC00E_3FFF_3FFF_3FFF,
        0x01FF,
        0x007F_01FF,
        0x0060_003F,
        0xE00E_7FFF_3FFF_3FFF,
    ],
    np.uint64,
)
"""Bits that descriptors of shared memory and addresses of tensor memory have."""


class Draw:
    """Draws numbers for the threads of some blocks: (blocks, lanes)."""

    def __init__(self, seed: int, world: World, hosts: list[int], lanes: int) -> None:
        self.random, self.world, self.lanes = np.random.default_rng(seed), world, lanes
        self.anchors = world.anchors(hosts)
        self.rank = 0

    def row(self, form: Form, blocks: int, rank: int) -> Numbers:
        """What each register of a form is given: (blocks, lanes, columns)."""
        self.rank = rank
        touch = form.touch or Touch("generic", "%d1", 0, 16, False)
        found = np.empty((blocks, self.lanes, COLUMNS), np.uint64)
        for number in range(COLUMNS):
            found[..., number] = self._mixed(touch, blocks)
        own, _ = column(touch.register)
        found[..., own] -= np.uint64(touch.offset & WRAP)
        # The last columns are sizes, strides and masks, too.
        little = self.random.choice(_LITTLE, (blocks, 1, COLUMNS)).astype(np.uint64)
        often = self.random.random((blocks, 1, COLUMNS)) < 0.4
        often &= (np.arange(COLUMNS) >= 3) & (np.arange(COLUMNS) != own)
        found = np.where(often, little, found)
        for place, kind in form.likes:
            right = self._right(kind, blocks)
            often = self.random.random((blocks, 1)) < 0.85
            found[..., place] = np.where(often, right, found[..., place])
        if form.uniform:  # descriptors and addresses of tensor memory
            known = self.random.choice(_FIELDS, found.shape)
            there = self.random.random((blocks, 1, COLUMNS)) < 0.7
            found = np.where(there, self._odd(blocks)[..., None] & known, found)
        for place, number in form.given:
            often = self.random.random((blocks, 1)) < 0.9
            found[..., place] = np.where(often, np.uint64(number), found[..., place])
        for reads in form.reads:
            words = [self._descriptor(reads) for _ in range(blocks)]
            often = self.random.random((blocks, 1)) < 0.9
            right = np.array(words, np.uint64)[:, None]
            found[..., reads.column] = np.where(often, right, found[..., reads.column])
        return found

    def _descriptor(self, reads: Reads) -> int:
        """A descriptor near shared memory, or such a one with a bit changed."""
        draw, own = self.random, self.world.regions["cluster"][0]
        first, last = own.start // UNIT, (own.start + own.size) // UNIT
        step = int(draw.choice([0, 0, 1, 8, 16, 32, 64, draw.integers(1 << 14)]))
        other = int(draw.choice([0, 0, 1, 8, 16, 32, 64, draw.integers(1 << 14)]))
        modes = [each for each in MODES_OF[reads.family] if each is not None]
        base = int(draw.integers(8)) if draw.random() < 0.1 else 0
        found = Descriptor(
            UNIT * int(draw.integers(first - 4, last + 4)),
            UNIT * step,
            UNIT * other,
            modes[int(draw.integers(len(modes)))],
            base,
            reads.family,
        ).encode()
        if draw.random() < 0.2:
            found ^= 1 << int(draw.integers(64))
        return found

    def _mixed(self, touch: Touch, blocks: int) -> Numbers:
        """Blocks whose lanes are all in bounds, and blocks with hostile lanes."""
        found = self._inside(touch, blocks)
        odd = self._odd(blocks)
        share = self.random.choice([0, 0, 0, 0.01, 0.04, 1], (blocks, 1))
        return np.where(self.random.random(found.shape) < share, odd, found)

    def _inside(self, touch: Touch, blocks: int) -> Numbers:
        """Lanes side by side, or anywhere in one region; sometimes beyond its end."""
        draw, size = self.random, touch.bytes
        regions = [r for r in self.world.of(touch, self.rank) if r.size >= size]
        chosen = draw.integers(0, len(regions), (blocks, 1))
        starts = np.array([r.start for r in regions], np.uint64)[chosen]
        places = np.array([r.size // size for r in regions], np.int64)[chosen]
        line = draw.integers(0, np.maximum(places - self.lanes, 0) + 1)
        line = line + np.arange(self.lanes) * draw.integers(0, 2, (blocks, 1))
        free = draw.integers(0, places, (blocks, self.lanes))
        index = np.where(draw.random((blocks, 1)) < 0.5, line, free)
        over = draw.random((blocks, 1)) < 0.1  # the last lane is one too far
        index = np.where(over, places - self.lanes + 1 + np.arange(self.lanes), index)
        return starts + (index * size).astype(np.uint64)

    def _right(self, kind: str, blocks: int) -> Numbers:
        """An address of memory, of an mbarrier or of a tensor map."""
        own = self.world.regions["cluster"][self.rank].start
        own = np.uint64(own + layout.SHARED_WINDOW * kind.startswith("generic"))
        step = 16 * self.random.integers(0, 66, (blocks, self.lanes)).astype(np.uint64)
        even = self.random.random((blocks, 1)) < 0.5  # maps and boxes need that
        step = np.where(even, step & np.uint64(-128 & WRAP), step)
        if kind.endswith("mbarrier"):
            return np.full((blocks, self.lanes), own, np.uint64)
        if "shared" in kind:
            return own + step
        data = next(r.start for r in self.world.regions["generic"] if r.size == SIZE)
        if kind.startswith("map"):
            place = data + 128 * (int(kind.split()[1]) - 1)
            return np.full((blocks, self.lanes), place, np.uint64)
        return np.uint64(data) + step

    def _odd(self, blocks: int) -> Numbers:
        draw, shape = self.random, (blocks, self.lanes)
        step = draw.integers(-40, 40, shape, endpoint=True).astype(np.uint64)
        near = draw.choice(self.anchors, shape) + step
        wild = draw.integers(0, WRAP, shape, np.uint64, endpoint=True)
        return np.where(draw.random(shape) < 0.8, near, wild)
