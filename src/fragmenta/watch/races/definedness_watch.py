"""Undefined bits while a launch is run to follow them.

They are in one plane beside all registers and memory: a bit is 1 where that of the
value is undefined.  See :mod:`fragmenta.engine.planes.shadows` for what moves them
along.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.planes.shadows import Follower, Planes, Shadow
from fragmenta.engine.simt import empties, layout
from fragmenta.engine.simt.compiled import address_of
from fragmenta.engine.simt.context import Context
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.wgmma_operands import Located
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.events import Event
from fragmenta.engine.units.findings import Problems
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.mbarrier_state import Mbarrier
from fragmenta.engine.units.port import ChangedMap, Columns, Step
from fragmenta.engine.units.tcgen05 import QueuedMma
from fragmenta.engine.units.warpgroups import Wgmma
from fragmenta.engine.units.work import Range, Transfer, Work
from fragmenta.ptx import rules
from fragmenta.watch.races.probes import undefined_bits
from fragmenta.watch.races.probes.windows import GLOBAL, NEAR
from fragmenta.watch.races.racy_reads import WORDS, shared_addresses
from fragmenta.watch.races.shadow.global_records import WORD
from fragmenta.watch.races.undefined_products import (
    UNSET,
    tensor_work,
    warpgroup_product,
)


class Raced(Protocol):
    """The loads of a launch that race."""

    def shared(self, warp: Warp, site: int) -> int:
        """The lanes that race in the present execution of a load."""

    def product(self, warp: Warp, work: Work) -> int:
        """The words that race in the present execution of a product."""

    def far(self, warp: Warp, site: int, address: NDArray[np.uint64], size: int) -> int:
        """The lanes that race in global memory."""


class DefinedBits(NamedTuple):
    """What followed some clusters knows, for what follows others elsewhere."""

    stored: dict[tuple[str, int, int, int], int]
    copied: list[tuple[tuple[str, int, int, int], NDArray[np.int64]]]
    changed: list[tuple[int, NDArray[np.int64], NDArray[np.uint8]]]
    """The bytes of memory whose shadows changed: slot, places, and the shadows."""


class DefinedWatch(Planes):
    """Follows undefined bits in all clusters of a launch: in one plane."""

    fill = 0xFF
    renew = undefined_bits.RENEW

    def __init__(self, machine: Machine, seed: int) -> None:
        super().__init__(machine, 1)
        self.seed = seed
        self.stored: dict[tuple[str, int, int, int], int] = {}
        """A checksum of the undefined values that each warp stored, by instruction."""
        self.raced: Raced | None = None
        """Which loads race, if what they read is undefined."""
        self.left: tuple[int, ...] = ()
        """Checksums of what it left in its arrays; none if it came to no end."""
        self.places = {at: of for at, (of,) in self.twins.items()}
        """Where the shadow of a register is, by where the register is."""
        self._copied: list[tuple[tuple[str, int, int, int], NDArray[np.int64]]] = []
        """Undefined bytes that copies stored: by whom, and their addresses."""
        self.unwritten = np.array(self.launch.compiled.undefined, np.int64).reshape(-1)
        self.observers: list[DefinedObserver] = []
        self.shadows = {slot: of for slot, (of,) in self.memories.items()}
        self._unset: dict[int, NDArray[np.uint8]] = {}
        """What the shadows of arrays with unwritten bytes were at first."""
        self.given: dict[int, NDArray[np.uint8]] = {}
        """What these arrays held before undefined bits were made random."""
        for each in self.launch.places:
            marks = empties.marks(each.data) if each.writable else None
            if marks is not None:
                shadow = self.shadows[each.slot]
                shadow[marks != 0] = 0xFF
                self._unset[each.slot] = shadow.copy()
                self.given[each.slot] = each.data.copy()
                if seed:
                    numbers = np.random.default_rng(seed)
                    places = np.flatnonzero(marks)
                    bits = numbers.integers(0, 256, places.size, np.uint8)
                    may, must = (
                        (word >> 8 * (places % 4) & 0xFF).astype(np.uint8)
                        for word in (undefined_bits.FINITE, undefined_bits.NEAR_ONE)
                    )
                    each.data.reshape(-1)[places] = bits & may | must

    def attach(self, context: Context, shadow: Shadow) -> None:
        """Let the code of a block find what begins undefined."""
        start, size = self.compiled.poisoned
        for offset, number in (
            (undefined_bits.POISON_AT, start),
            (undefined_bits.POISON_BYTES, size),
            (undefined_bits.SEED, self.seed),
            (undefined_bits.UNWRITTEN, address_of(self.unwritten)),
            (undefined_bits.UNWRITTEN_COUNT, self.unwritten.size // 2),
        ):
            shadow.point(offset, number)

    def leave(self) -> None:
        """The launch has ended: keep a checksum of what it left in each array.

        What is undefined there does not count.
        """
        self.left = tuple(
            crc32(np.where(self.shadows[each.slot] == 0, each.data, 0).tobytes())
            for each in self.launch.places
            if each.writable
        )
        memory = {each.slot: each.data for each in self.launch.places}
        for key, addresses in self._copied:
            for slot, places in _by_slot(addresses):
                data = memory[slot][places].tobytes()
                self.stored[key] = crc32(data, self.stored.get(key, 0))

    def copying(self) -> None:
        """Each cluster has to be observed in Python."""

    def told(self) -> DefinedBits:
        """What was stored here, and which bits of memory are undefined now."""
        changed = []
        for slot, shadow in self.shadows.items():
            places = np.flatnonzero(shadow != self._unset.get(slot, 0))
            changed.append((slot, places, shadow[places]))
        return DefinedBits(self.stored, self._copied, changed)

    def take(self, told: DefinedBits) -> None:
        """Add what happened in another process."""
        self.stored |= told.stored
        self._copied += told.copied
        for slot, places, shadows in told.changed:
            self.shadows[slot][places] = shadows

    def note(self, warp: Warp, event: Event, lanes: int) -> None:
        """Lanes store undefined values."""
        key = self._key(warp, event)
        (value,) = event.operands
        some = value.lanes(warp)[lanes >> np.arange(LANES) & 1 == 1]
        self.stored[key] = crc32(some.tobytes(), self.stored.get(key, 0))

    def racy(self, warp: Warp, event: Event) -> int:
        """The lanes of a load that read what others may write at the same time."""
        assert self.raced is not None
        site, (_, size, window) = event.site, event.words
        addresses = event.operands[0].lanes(warp)
        found = 0
        if window != GLOBAL:
            _, inside = shared_addresses(addresses, window)
            found = self.raced.shared(warp, site) & inside
        if window != NEAR:
            given = addresses.astype(np.uint64)
            found |= self.raced.far(warp, site, given, int(size))
        return found

    def load(self, warp: Warp, event: Event, lanes: int) -> None:
        """Lanes load from memory: what others write meanwhile is undefined."""
        if self.raced is None:
            return
        _, *goals = event.operands
        racy = self.racy(warp, event) & lanes
        chosen = racy >> np.arange(LANES) & 1 == 1
        for each in goals:
            if each.kind == "r":
                shadow = each.lanes(warp)
                shadow[chosen] = np.iinfo(shadow.dtype).max
            elif each.kind == "p":
                each.put(warp, racy, 1)

    def copied(self, step: Step, addresses: NDArray[np.int64], use: str) -> None:
        """A copy has put undefined bytes to global memory: report it once."""
        warp, event, lanes = step
        warp.report(rules.UNINITIALISED, event, lanes, "", use=use)
        self._copied.append((self._key(warp, event), addresses))
        for slot, places in _by_slot(addresses):
            self.shadows[slot][places] = 0

    def _key(self, warp: Warp, event: Event) -> tuple[str, int, int, int]:
        function, index = self.launch.compiled.places[event.site]
        return function, index, warp.block.index, warp.number

    def observer(self, cluster: Cluster) -> DefinedObserver:
        """A new observer that follows a cluster."""
        made = DefinedObserver(self, cluster)
        self.observers.append(made)
        return made

    def close(self) -> None:
        """Free everything: the launch has ended."""
        for each in self.observers:
            each.close()
        vars(self).clear()

    def collect(self, problems: Problems) -> None:
        """Add nothing: everything was reported when it was seen."""


def _by_slot(
    addresses: NDArray[np.int64],
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Addresses by the array that they are in, as places there."""
    slots = addresses >> layout.SLOT_BITS
    for slot in np.unique(slots):
        yield int(slot), addresses[slots == slot] & (1 << layout.SLOT_BITS) - 1


class DefinedObserver(Follower):
    """Follows a cluster: does to shadows what is done beside its threads."""

    watch: DefinedWatch

    def __init__(self, watch: DefinedWatch, cluster: Cluster) -> None:
        super().__init__(watch, cluster)
        (self.shadows,) = self.planes
        self._rows: dict[
            int, list[tuple[NDArray[np.uint8], int, NDArray[np.uint8]]]
        ] = {}
        """The shadows of rows that a warp is loading, as they were."""

    def change(self, step: Step, what: Mbarrier | Columns | ChangedMap) -> None:
        """An instruction has written an mbarrier, a tensor map, or allocated."""
        super().change(step, what)
        if isinstance(what, Columns) and what.place is not None:
            self._scramble(step.warp, what)

    def touch(self, step: Step, product: Located | None = None) -> None:
        """Lanes store undefined values, or load what may be undefined by a race."""
        if step.event.words[0] == "undefined":
            self.watch.note(*step)
        elif step.event.words[0] == "raced":
            self.watch.load(*step)
        elif step.event.words[0] == "raced-rows":
            self._racy_rows(*step)
        elif step.event.words[0] == "membermask" and self.watch.seed:
            scramble(*step, self.watch.seed)

    def _racy_rows(self, warp: Warp, event: Event, lanes: int) -> None:
        """Rows are loaded: those that others write meanwhile are undefined for it.

        The event comes before the load, and again after it, without a size.
        """
        if self.watch.raced is None:
            return
        if event.words[1] == "":
            for shadow, first, before in reversed(self._rows.pop(warp.address)):
                shadow[first : first + before.size] = before
            return
        racy, kept = self.watch.racy(warp, event) & lanes, []
        addresses, _ = shared_addresses(event.operands[0].lanes(warp), event.words[2])
        for lane in np.flatnonzero(racy >> np.arange(LANES) & 1):
            rank, first = divmod(int(addresses[lane]), 1 << layout.RANK_BITS)
            shadow = self.shadows[rank].shared
            part = shadow[first : first + int(event.words[1])]
            kept.append((shadow, first, part.copy()))
            part[:] = 0xFF
        self._rows[warp.address] = kept

    # ── copies ──────────────────────────────────────────────────────────────

    def copy(self, step: Step, copy: Transfer) -> None:
        """A copy was issued: undefined bits go along, and are reported if they stay."""
        warp, event, lanes = step
        (values,) = self.values(step, copy)
        used = copy.map_range
        shadow = self.shadows[warp.block.rank]
        if used is not None and _undefined_map(shadow, used):
            warp.report(rules.UNINITIALISED, event, lanes, "", use="operand")
        found = copy.follow(shadow, values)
        if found.size:
            use = "atomic" if copy.combines else "store"
            self.watch.copied(step, found, use)

    def multiply(self, step: Step, work: QueuedMma | Wgmma) -> None:
        """A product was issued; of ``wgmma``, by all four warps.

        What a copy writes meanwhile is undefined for it.
        """
        raced = self.watch.raced
        words = 0 if raced is None else raced.product(step.warp, work)
        kept = [(each.shared, each.shared.copy()) for each in self.shadows if words]
        for rank, (shared, _) in enumerate(kept):
            own = words >> rank * WORDS & (1 << WORDS) - 1
            bits = np.frombuffer(own.to_bytes(WORDS // 8, "little"), np.uint8)
            racy = np.repeat(np.unpackbits(bits, bitorder="little") != 0, WORD)
            shared[racy[: shared.size]] = 0xFF
        self._multiply(work, step.warp)
        for shared, before in kept:
            shared[:] = before

    def _multiply(self, work: QueuedMma | Wgmma, warp: Warp) -> None:
        if isinstance(work, QueuedMma):
            tensor_work(work, [self.shadows[each.rank] for each in work.blocks])
        else:
            shared = self.shadows[warp.block.rank].shared
            warps = self.warpgroup(warp)
            warpgroup_product(work, warps, self.watch.places, shared)

    # ── tensor memory ───────────────────────────────────────────────────────

    def _scramble(self, warp: Warp, columns: Columns) -> None:
        """Fill what was allocated with random bits, if there is a seed."""
        if self.watch.seed:
            part = slice(None), slice(columns.first, columns.first + columns.columns)
            unset = self.shadows[warp.block.rank].cells[part] != 0
            numbers = np.random.default_rng(self.watch.seed)
            some = numbers.integers(0, 1 << 32, unset.shape, np.uint32)
            some &= np.uint32(undefined_bits.FINITE)
            assert warp.block.tensor is not None  # it has just allocated
            image = warp.block.tensor.image
            image[part] = np.where(unset, some, image[part])

    def reduced(self, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """What is combined is undefined if any of it is."""
        return np.where(words.any(axis=0), np.uint32(UNSET), np.uint32(0))


def scramble(warp: Warp, event: Event, lanes: int, seed: int) -> None:
    """Give lanes a random value for what a shuffle read of lanes that take no part."""
    result = event.operands[1]
    if result.kind == "r":
        numbers = np.random.default_rng((seed, event.site))
        chosen = lanes >> np.arange(LANES) & 1 == 1
        some = numbers.integers(0, 1 << 32, LANES, np.uint32)
        some &= np.uint32(undefined_bits.FINITE)
        some |= np.uint32(undefined_bits.NEAR_ONE)
        result.lanes(warp)[chosen] = some[chosen]


def _undefined_map(shadow: Shadow, used: Range) -> bool:
    """Whether a tensor map in memory has undefined bytes."""
    if used.space == "shared":
        memory, place = shadow.cluster.blocks[used.rank].shared, int(used.start)
    else:
        memory, place = shadow.memory(int(used.start))
    return bool(memory[place : place + used.size].any())
