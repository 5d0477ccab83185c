"""Shadow bits of memory while a launch is run to follow undefined bits.

A block has a shadow: a block whose memories are the shadows of its own.  Compiled code
accesses them with the routines of ordinary loads and stores.

Copies, ``wgmma`` and ``tcgen05`` do to shadows what they do to memory, as soon as they
are issued.  In a kernel without a race that makes no difference: their sources stay as
they are until they are done, and nothing reads what they write before that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from fragmenta.arrays.once import once
from fragmenta.planes.memory import unseen
from fragmenta.ptx import rules
from fragmenta.races.probes import undefined_bits
from fragmenta.races.probes.windows import GLOBAL, NEAR
from fragmenta.races.racy_reads import shared_addresses
from fragmenta.races.undefined_products import (
    UNSET,
    WARPS,
    Words,
    loaded,
    stored,
    tensor_work,
    warpgroup_product,
)
from fragmenta.registers.tensor_fragment import COLUMNS
from fragmenta.registers.tensor_fragment import LANES as TENSOR_LANES
from fragmenta.shared.tensor_map import BYTES as MAP_BYTES
from fragmenta.simt import empties, layout
from fragmenta.simt.compiled import aligned
from fragmenta.simt.context import Context
from fragmenta.simt.layout import LANES, SHARED_START
from fragmenta.simt.loaded import Loaded
from fragmenta.simt.wgmma_operands import Located
from fragmenta.units.events import Event, Operand
from fragmenta.units.findings import Problems
from fragmenta.units.lane_copies import WarpCopy
from fragmenta.units.machine import Cluster, Machine, Warp
from fragmenta.units.mbarrier_state import Mbarrier
from fragmenta.units.port import ChangedMap, Columns, Port, Step
from fragmenta.units.tcgen05 import Queued
from fragmenta.units.tmem_moves import Load, Move, Store
from fragmenta.units.warpgroups import Wgmma
from fragmenta.units.work import Copy, Range, Work


@once
def _renew() -> int:
    """The address of what a block begins with; loaded once."""
    return Loaded([undefined_bits.RENEW]).address(undefined_bits.RENEW)


class Raced(Protocol):
    """The loads of a launch that race."""

    def shared(self, warp: Warp, site: int) -> int:
        """The lanes that race in the present execution of a load."""

    def far(self, warp: Warp, site: int, address: NDArray[np.uint64], size: int) -> int:
        """The lanes that race in global memory."""


class ToldBits(NamedTuple):
    """What followed some clusters knows, for what follows others elsewhere."""

    stored: dict[tuple[str, int, int, int], int]
    copied: list[tuple[tuple[str, int, int, int], NDArray[np.int64]]]
    changed: list[tuple[int, NDArray[np.int64], NDArray[np.uint8]]]
    """The bytes of memory whose shadows changed: slot, places, and the shadows."""


class DefinedWatch:
    """Follows undefined bits in all clusters of a launch."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self.launch, self.seed = machine.launch, seed
        self.stored: dict[tuple[str, int, int, int], int] = {}
        """A checksum of the undefined values that each warp stored, by instruction."""
        self.raced: Raced | None = None
        """Which loads race, if what they read is undefined."""
        self.left: tuple[int, ...] = ()
        """Checksums of what it left in its arrays; none if it came to no end."""
        self.twins = {at: of for at, of, *_ in self.launch.compiled.shadows}
        """Where the shadow of a register is, by where the register is."""
        self._copied: list[tuple[tuple[str, int, int, int], NDArray[np.int64]]] = []
        """Undefined bytes that copies stored: by whom, and their addresses."""
        self.unwritten = np.array(self.launch.compiled.undefined, np.int64).reshape(-1)
        self.segments = self.launch.segments.copy()
        self.observers: list[DefinedObserver] = []
        self.shadows: dict[int, NDArray[np.uint8]] = {}
        self._unset: dict[int, NDArray[np.uint8]] = {}
        """What the shadows of arrays with unwritten bytes were at first."""
        self.given: dict[int, NDArray[np.uint8]] = {}
        """What these arrays held before undefined bits were made random."""
        for each in self.launch.places:
            marks = empties.marks(each.data) if each.writable else None
            # Memory that is never touched costs nothing.
            shadow = np.zeros(each.data.size, np.uint8)
            if marks is not None:
                shadow[marks != 0] = 0xFF
                self._unset[each.slot] = shadow.copy()
                self.given[each.slot] = each.data.copy()
                if seed:
                    numbers = np.random.default_rng(seed)
                    count = int(np.count_nonzero(marks))
                    each.data[marks != 0] = numbers.integers(0, 256, count, np.uint8)
            self.shadows[each.slot] = shadow
            self.segments[each.slot, :3] = shadow.ctypes.data, shadow.size, 0
        self._given = np.zeros(max(self.launch.parameters.size, 1), np.uint8)
        self.segments[layout.PARAM_SLOT, 0] = self._given.ctypes.data

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

    def told(self) -> ToldBits:
        """What was stored here, and which bits of memory are undefined now."""
        changed = []
        for slot, shadow in self.shadows.items():
            places = np.flatnonzero(shadow != self._unset.get(slot, 0))
            changed.append((slot, places, shadow[places]))
        return ToldBits(self.stored, self._copied, changed)

    def take(self, told: ToldBits) -> None:
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

    def memory(self, address: int) -> tuple[NDArray[np.uint8], int]:
        """The shadow of the global memory that an address is in, and the place."""
        slot = address >> layout.SLOT_BITS
        offset = address & (1 << layout.SLOT_BITS) - 1
        if slot == layout.PARAM_SLOT:
            return self._given, offset
        return self.shadows[slot], offset

    def shadow_of(self, warp: Warp, operand: Operand) -> Words | None:
        """The shadows of a register in all lanes; None if it is always defined."""
        place = self.twins.get(operand.place) if operand.kind == "r" else None
        if place is None:
            return None
        return operand._replace(place=place).lanes(warp)

    def observer(self, cluster: Cluster) -> DefinedObserver:
        """A new observer that follows a cluster."""
        made = DefinedObserver(self, cluster)
        self.observers.append(made)
        return made

    def close(self) -> None:
        """Free everything: the launch has ended."""
        for each in self.observers:
            for shadow in each.shadows:
                vars(shadow).clear()
            vars(each).clear()
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


class ShadowCluster(NamedTuple):
    """The shadow of a cluster."""

    blocks: list[Shadow]


class Shadow:
    """The shadow of one block."""

    def __init__(self, watch: DefinedWatch, context: Context) -> None:
        launch, parts = watch.launch, context.parts
        warps = launch.shape.warps
        self.context, self.watch, self.rank = context, watch, 0
        self.cluster = ShadowCluster([self])
        self.tensor: NDArray[np.uint32] | None = None
        """Which bits of tensor memory are undefined; at first, all."""
        self.shared = aligned(parts["shared"].size)
        self.local = aligned(parts["local"].size)
        self.segments = watch.segments.copy()
        self.peers = np.zeros((layout.MOST_RANKS, 2), np.int64)
        self.block = aligned(
            undefined_bits.WARPS_AT + warps * undefined_bits.WARP_BYTES
        )
        self.block[: layout.BLOCK_BYTES] = parts["block"]
        where = self.shared.ctypes.data + SHARED_START
        self.segments[layout.SHARED_SLOT, 0] = where
        wide = self.block.view(np.int64)
        for offset, number in (
            (layout.BLOCK_SHARED, self.shared.ctypes.data),
            (layout.BLOCK_SEGMENTS, self.segments.ctypes.data),
            (layout.BLOCK_PEERS, self.peers.ctypes.data),
            (undefined_bits.POISON_AT, launch.compiled.poisoned[0]),
            (undefined_bits.POISON_BYTES, launch.compiled.poisoned[1]),
            (undefined_bits.SEED, watch.seed),
            (undefined_bits.UNWRITTEN, watch.unwritten.ctypes.data),
            (undefined_bits.UNWRITTEN_COUNT, watch.unwritten.size // 2),
        ):
            wide[offset // 8] = number
        size = parts["local"].size // warps
        for warp in range(warps):
            at = (
                undefined_bits.WARPS_AT
                + warp * undefined_bits.WARP_BYTES
                + layout.LOCAL_BASE
            )
            wide[at // 8] = self.local.ctypes.data + warp * size
        assert size % LANES == 0
        context.point(layout.BLOCK_SHADOW, self.block.ctypes.data)
        context.point(layout.BLOCK_RESET, _renew())

    def join(self, shadows: list[Shadow], rank: int) -> None:
        """Become the shadow of the block of this rank of a cluster."""
        self.rank, self.cluster = rank, ShadowCluster(shadows)
        wide = self.block.view(np.int64)
        wide[layout.BLOCK_RANK // 8] = rank << layout.RANK_BITS
        for place, each in enumerate(shadows):
            self.peers[place] = each.shared.ctypes.data, each.shared.size

    def memory(self, address: int) -> tuple[NDArray[np.uint8], int]:
        """The shadow of the memory that an address is in, and the place there."""
        if address >> layout.SLOT_BITS == layout.SHARED_SLOT:
            offset = address & (1 << layout.SLOT_BITS) - 1
            rank, place = divmod(offset, 1 << layout.RANK_BITS)
            return self.cluster.blocks[rank & 0xFF].shared, place
        return self.watch.memory(address)

    @property
    def cells(self) -> NDArray[np.uint32]:
        """The shadow of tensor memory: (128 lanes, 512 columns)."""
        if self.tensor is None:
            self.tensor = np.full((TENSOR_LANES, COLUMNS), UNSET, np.uint32)
        return self.tensor


class DefinedObserver(Port):
    """Follows a cluster: does to shadows what is done beside its threads."""

    def __init__(self, watch: DefinedWatch, cluster: Cluster) -> None:
        self.watch = watch
        self.functions = unseen()
        self.shadows = [Shadow(watch, each) for each in cluster.contexts]
        for rank, each in enumerate(self.shadows):
            each.join(self.shadows, rank)
        self._rows: dict[
            int, list[tuple[NDArray[np.uint8], int, NDArray[np.uint8]]]
        ] = {}
        """The shadows of rows that a warp is loading, as they were."""

    def begin(self) -> None:
        """A new cluster begins."""
        for each in self.shadows:
            each.tensor = None

    def _written(self, rank: int, start: int, size: int) -> None:
        """Bytes of shared memory are defined."""
        self.shadows[rank].shared[start : start + size] = 0

    def change(self, step: Step, what: Mbarrier | Columns | ChangedMap) -> None:
        """An instruction has written an mbarrier, a tensor map, or allocated."""
        if isinstance(what, Mbarrier):
            self._written(step.warp.block.rank, what.offset, 8)
        elif isinstance(what, ChangedMap):
            self._tensor_map(step, what.address)
        elif what.place is None:
            part = slice(what.first, what.first + what.columns)
            self.shadows[step.warp.block.rank].cells[:, part] = UNSET
        else:
            self._written(step.warp.block.rank, what.place, 4)
            self._scramble(step.warp, what)

    def touch(self, step: Step, product: Located | None = None) -> None:
        """Lanes store undefined values, or load what may be undefined by a race."""
        if step.event.words[0] == "undefined":
            self.watch.note(*step)
        elif step.event.words[0] == "raced":
            self.watch.load(*step)
        elif step.event.words[0] == "raced-rows":
            self._racy_rows(*step)

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

    def issue(self, step: Step, work: Work) -> None:
        """Work was issued: it is done to shadows at once."""
        warp, event, _ = step
        if isinstance(work, Queued):
            tensor_work(work, [self.shadows[each.rank] for each in work.blocks])
        elif isinstance(work, Move):
            self._move(work, warp, event)
        elif isinstance(work, Wgmma):
            self._multiply(work, warp)
        elif isinstance(work, Copy | WarpCopy):
            self._copy(step, work)

    def _copy(self, step: Step, copy: Copy | WarpCopy) -> None:
        warp, event, lanes = step
        values: list[int] = []
        if "registers" in copy.effect.reads:
            given = event.operands[1]
            items = given.items if given.kind == "v" else (given,)
            shadows = [self.watch.shadow_of(warp, each) for each in items]
            lane = copy.thread.lane
            values = [0 if each is None else int(each[lane]) for each in shadows]
        used = copy.map_range
        shadow = self.shadows[warp.block.rank]
        if used is not None and _undefined_map(shadow, used):
            warp.report(rules.UNINITIALISED, event, lanes, "", use="operand")
        found = copy.follow(shadow, values)
        if found.size:
            use = "atomic" if copy.combines else "store"
            self.watch.copied(step, found, use)

    def _tensor_map(self, step: Step, address: int) -> None:
        """A tensor map was changed: it counts as written."""
        if address >> layout.SLOT_BITS:
            memory, place = self.shadows[step.warp.block.rank].memory(address)
        else:
            rank, place = divmod(address, 1 << layout.RANK_BITS)
            memory = self.shadows[rank].shared
        memory[place : place + MAP_BYTES] = 0

    # ── wgmma ───────────────────────────────────────────────────────────────

    def _multiply(self, work: Wgmma, warp: Warp) -> None:
        """All four warps have issued a product."""
        first = warp.number // WARPS * WARPS
        warps = warp.block.warps[first : first + WARPS]
        shared = self.shadows[warp.block.rank].shared
        warpgroup_product(work, warps, self.watch.twins, shared)

    # ── tensor memory ───────────────────────────────────────────────────────

    def _scramble(self, warp: Warp, columns: Columns) -> None:
        """Fill what was allocated with random bits, if there is a seed."""
        if self.watch.seed:
            part = slice(None), slice(columns.first, columns.first + columns.columns)
            unset = self.shadows[warp.block.rank].cells[part] != 0
            numbers = np.random.default_rng(self.watch.seed)
            some = numbers.integers(0, 1 << 32, unset.shape, np.uint32)
            assert warp.block.tensor is not None  # it has just allocated
            image = warp.block.tensor.image
            image[part] = np.where(unset, some, image[part])

    def _move(self, task: Move, warp: Warp, event: Event) -> None:
        """A warp issued a load or a store of tensor memory."""
        cells = self.shadows[warp.block.rank].cells
        if isinstance(task, Load):
            loaded(task, warp, self.watch.twins, cells)
        elif isinstance(task, Store):
            source = event.operands[-1]
            items = source.items if source.kind == "v" else (source,)
            stored(task, [self.watch.shadow_of(warp, each) for each in items], cells)


def _undefined_map(shadow: Shadow, used: Range) -> bool:
    """Whether a tensor map in memory has undefined bytes."""
    if used.space == "shared":
        memory, place = shadow.cluster.blocks[used.rank].shared, int(used.start)
    else:
        memory, place = shadow.memory(int(used.start))
    return bool(memory[place : place + used.size].any())
