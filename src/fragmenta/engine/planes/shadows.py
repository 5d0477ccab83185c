"""Shadows of memory while a launch runs, which code and units keep in step with it.

A block has a shadow in each plane: a block whose memories are those of the plane.
Compiled code accesses them with the routines of ordinary loads and stores.

Copies, ``wgmma`` and ``tcgen05`` do to planes what they do to memory, as soon as they
are issued.  In a kernel without a race that makes no difference: their sources stay as
they are until they are done, and nothing reads what they write before that.

What planes hold is not known here: second values, or which bits are undefined.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.engine.planes.code import layout as at
from fragmenta.engine.planes.code import routines
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.compiled import address_of, aligned, sparse
from fragmenta.engine.simt.context import Context
from fragmenta.engine.simt.layout import LANES, SHARED_START
from fragmenta.engine.simt.library import Routine
from fragmenta.engine.simt.loaded import LoadedRoutines
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.events import EventOperand
from fragmenta.engine.units.fast import layout as fast
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.mbarrier_state import Mbarrier
from fragmenta.engine.units.port import ChangedMap, Columns, Port, Step
from fragmenta.engine.units.tcgen05 import QueuedMma
from fragmenta.engine.units.tmem_copies import Fill
from fragmenta.engine.units.tmem_moves import TmemLoad, TmemStore
from fragmenta.engine.units.warpgroups import Wgmma
from fragmenta.engine.units.work import Transfer, Work
from fragmenta.reference.registers.tensor_fragment import COLUMNS
from fragmenta.reference.registers.tensor_fragment import LANES as TENSOR_LANES
from fragmenta.reference.shared.descriptor import Descriptor
from fragmenta.reference.shared.tensor_map import BYTES as MAP_BYTES
from fragmenta.reference.tensor_memory.copying import copy as tensor_copy

Bytes = NDArray[np.uint8]
WARPS = 4
"""The warps of a warpgroup."""
UNSEEN = (
    fast.PORT_USED,
    fast.PORT_RELEASE,
    fast.PORT_ACQUIRE,
    fast.PORT_STALL,
    fast.PORT_PHASE,
    fast.PORT_ARRIVE,
    fast.PORT_PASS,
    fast.PORT_PROXY,
    fast.PORT_MOVED,
    fast.PORT_TENSOR_FENCE,
    fast.PORT_ACQUIRE_MAP,
    fast.PORT_INIT_FENCE,
)
"""What changes no plane: instructions that need only these are not Python's."""


@once
def quiet() -> int:
    """The address of what answers calls that change no plane; loaded once."""
    return LoadedRoutines([routines.QUIET]).address(routines.QUIET)


def unseen() -> dict[int, int]:
    """What answers the calls of the port that change no plane."""
    return dict.fromkeys(UNSEEN, quiet())


@once
def _address(routine: Routine) -> int:
    """The address of what a block begins with; loaded once."""
    return LoadedRoutines([routine]).address(routine)


class Planes:
    """The planes of all memory of a launch."""

    fill = 0
    """The byte with which the planes of shared and of tensor memory begin."""
    renew = routines.RENEW
    """What a block begins with."""

    def __init__(self, machine: Machine, planes: int) -> None:
        self.launch, self.planes = machine.launch, planes
        self.compiled = self.launch.compiled
        self.twins = {at: tuple(of) for at, *of in self.compiled.shadows}
        """Where the planes of a register are, by where the register is."""
        self._indices: dict[
            tuple[int, ...], tuple[NDArray[np.bool_], NDArray[np.int64]]
        ] = {}
        self.memories: dict[int, Bytes] = {}
        """The planes of global memory, by slot: (planes, bytes)."""
        self.segments = [self.launch.segments.copy() for _ in range(planes)]
        self._given = np.zeros(max(self.launch.parameters.size, 1), np.uint8)
        for each in self.launch.places:
            # Memory that is never touched costs nothing.
            step = _step(each.data.size)
            made = sparse(planes * step).reshape(planes, step)
            self.memories[each.slot] = made[:, : each.data.size]
            for plane, table in enumerate(self.segments):
                place = address_of(made) + plane * step
                table[each.slot] = place, each.data.size, 0, step
        for table in self.segments:
            table[layout.PARAM_SLOT, 0] = address_of(self._given)

    def attach(self, context: Context, shadow: Shadow) -> None:
        """Add what else the code of a block finds in its shadow, in plane 0."""

    def memory(self, plane: int, address: int) -> tuple[Bytes, int]:
        """The plane of the global memory that an address is in, and the place."""
        slot = address >> layout.SLOT_BITS
        offset = address & (1 << layout.SLOT_BITS) - 1
        if slot == layout.PARAM_SLOT:
            return self._given, offset
        return self.memories[slot][plane], offset

    def registers(
        self, warps: Sequence[Warp], places: Sequence[int]
    ) -> NDArray[np.uint32]:
        """The planes of registers of 32 bits: (planes, lanes of all warps, registers).

        ``places`` is where the registers are in a warp.
        """
        shape = self.planes, len(warps) * LANES, len(places)
        found = np.zeros(shape, np.uint32)
        there, index = self._index(tuple(places))
        for number, warp in enumerate(warps):
            part = found[:, LANES * number : LANES * (number + 1)]
            part[:, :, there] = warp.words[index]
        return found

    def put_registers(
        self,
        warps: Sequence[Warp],
        places: Sequence[int],
        given: NDArray[np.uint32],
    ) -> None:
        """Set what :meth:`registers` reads; registers without planes stay so."""
        there, index = self._index(tuple(places))
        for number, warp in enumerate(warps):
            part = given[:, LANES * number : LANES * (number + 1)]
            warp.words[index] = part[:, :, there]

    def _index(
        self, places: tuple[int, ...]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which registers have planes, and where these are in the words of a warp."""
        if places not in self._indices:
            there = np.array([each in self.twins for each in places], bool)
            known = [self.twins[each] for each in places if each in self.twins]
            firsts = np.array(known, np.int64).reshape(-1, self.planes).T // 4
            index = firsts[:, None, :] + np.arange(LANES)[None, :, None]
            self._indices[places] = there, index
        return self._indices[places]


class Memories(NamedTuple):
    """The planes of the memories of a block: (planes, bytes)."""

    shared: Bytes
    local: Bytes

    @classmethod
    def of(cls, context: Context, planes: int) -> Memories:
        """Those of a context; what nobody touches costs nothing."""
        sizes = (_step(context.parts[name].size) for name in ("shared", "local"))
        return cls(*(sparse(planes * size).reshape(planes, size) for size in sizes))


def _step(size: int) -> int:
    """How far apart the planes of a memory are."""
    return -(-max(size, 1) // 64) * 64


class ShadowCluster(NamedTuple):
    """The shadow of a cluster in a plane."""

    blocks: list[Shadow]


class Shadow:
    """The shadow of one block in one plane."""

    def __init__(
        self, watch: Planes, context: Context, plane: int, memory: Memories
    ) -> None:
        launch, parts = watch.launch, context.parts
        warps = launch.shape.warps
        self.context, self.watch, self.plane, self.rank = context, watch, plane, 0
        self.cluster = ShadowCluster([self])
        self.tensor: NDArray[np.uint32] | None = None
        self.shared = memory.shared[plane][: parts["shared"].size]
        self.local = memory.local[plane][: parts["local"].size]
        self.segments = watch.segments[plane].copy()
        self.peers = np.zeros((layout.MOST_RANKS, 2), np.int64)
        self.block = aligned(at.WARPS_AT + warps * at.WARP_BYTES)
        self.block[: layout.BLOCK_BYTES] = parts["block"]
        self.segments[layout.SHARED_SLOT, 0] = address_of(self.shared) + SHARED_START
        steps = memory.shared.shape[1], memory.local.shape[1]
        self.segments[layout.SHARED_SLOT, 3] = steps[0]
        self.segments[layout.LOCAL_SLOT, 3] = steps[1]
        for offset, number in (
            (layout.BLOCK_SHARED, address_of(self.shared)),
            (layout.BLOCK_SEGMENTS, address_of(self.segments)),
            (layout.BLOCK_PEERS, address_of(self.peers)),
            (at.SHARED_STEP, steps[0]),
            (at.LOCAL_STEP, steps[1]),
            (at.FILL, watch.fill),
        ):
            self.point(offset, number)
        size = parts["local"].size // warps
        for warp in range(warps):
            place = at.WARPS_AT + warp * at.WARP_BYTES + layout.LOCAL_BASE
            self.point(place, address_of(self.local) + warp * size)

    def point(self, offset: int, number: int) -> None:
        """Put a pointer into the shadow of the block."""
        self.block.view(np.int64)[offset // 8] = number

    def join(self, shadows: list[Shadow], rank: int) -> None:
        """Become the shadow of the block of this rank of a cluster."""
        self.rank, self.cluster = rank, ShadowCluster(shadows)
        self.point(layout.BLOCK_RANK, rank << layout.RANK_BITS)
        for place, each in enumerate(shadows):
            first, size = address_of(each.shared) + SHARED_START, each.shared.size
            self.peers[place] = first, size - SHARED_START

    def memory(self, address: int) -> tuple[Bytes, int]:
        """The plane of the memory that an address is in, and the place there."""
        if address >> layout.SLOT_BITS == layout.SHARED_SLOT:
            offset = address & (1 << layout.SLOT_BITS) - 1
            rank, place = divmod(offset, 1 << layout.RANK_BITS)
            return self.cluster.blocks[rank & 0xFF].shared, place
        return self.watch.memory(self.plane, address)

    @property
    def cells(self) -> NDArray[np.uint32]:
        """The plane of tensor memory: (128 lanes, 512 columns)."""
        if self.tensor is None:
            word = self.watch.fill * 0x01010101
            self.tensor = np.full((TENSOR_LANES, COLUMNS), word, np.uint32)
        return self.tensor


class Follower(Port):
    """Follows a cluster: does to planes what is done beside its threads."""

    watch: Planes

    def __init__(self, watch: Planes, cluster: Cluster) -> None:
        self.watch, self.cluster = watch, cluster
        self.functions = unseen()
        every = [(each, Memories.of(each, watch.planes)) for each in cluster.contexts]
        self.planes = [
            [Shadow(watch, each, plane, memory) for each, memory in every]
            for plane in range(watch.planes)
        ]
        """The shadows of all blocks, by plane and rank."""
        self._later: dict[object, tuple[Step, Transfer, list[list[int]]]] = {}
        """Copies that others see when they are done: the step that has issued each, and
        what it then took from registers."""
        for shadows in self.planes:
            for rank, each in enumerate(shadows):
                each.join(shadows, rank)
        for rank, context in enumerate(cluster.contexts):
            self._attach(context, [shadows[rank] for shadows in self.planes])

    def _attach(self, context: Context, shadows: list[Shadow]) -> None:
        """Let the code of a block find its shadows."""
        for before, after in pairwise(shadows):
            before.point(at.NEXT, address_of(after.block))
        self.watch.attach(context, shadows[0])
        context.point(layout.BLOCK_SHADOW, address_of(shadows[0].block))
        context.point(layout.BLOCK_RESET_SHADOW, _address(self.watch.renew))

    def close(self) -> None:
        """Free everything: the launch has ended."""
        for shadows in self.planes:
            for shadow in shadows:
                vars(shadow).clear()
        vars(self).clear()

    def begin(self) -> None:
        """A new cluster begins."""
        for shadows in self.planes:
            for each in shadows:
                each.tensor = None

    def change(self, step: Step, what: Mbarrier | Columns | ChangedMap) -> None:
        """An mbarrier, a tensor map or columns of tensor memory were made or freed.

        What an instruction writes to shared memory has no shadow.
        """
        rank = step.warp.block.rank
        for shadows in self.planes:
            if isinstance(what, Mbarrier):
                shadows[rank].shared[what.offset : what.offset + 8] = 0
            elif isinstance(what, ChangedMap):
                _forget_map(shadows, rank, what.address)
            elif what.place is not None:
                shadows[rank].shared[what.place : what.place + 4] = 0
            else:
                part = slice(what.first, what.first + what.columns)
                shadows[rank].cells[:, part] = self.watch.fill * 0x01010101

    # ── what is issued ──────────────────────────────────────────────────────

    def issue(self, step: Step, work: Work) -> None:
        """Work was issued: it is done to planes at once."""
        if not work.follows:  # arrivals move nothing
            name = "multiply" if work.is_product else _FOLLOWED[work.completes]
            getattr(self, name)(step, work)

    def multiply(self, step: Step, work: QueuedMma | Wgmma) -> None:
        """A ``wgmma`` or a ``tcgen05.mma`` was issued."""

    def copy(self, step: Step, copy: Transfer) -> None:
        """A copy was issued."""

    def copy_later(self, step: Step, copy: Transfer) -> None:
        """A copy was issued; until it is done, others see what is there now."""
        self._later[copy] = step, copy, self.values(step, copy)

    def done(self, what: Work | Mbarrier) -> None:
        """Work is done, and has not written."""
        if what in self._later:
            self.copy(*self._later[what][:2])
            del self._later[what]

    def values(self, step: Step, copy: Transfer) -> list[list[int]]:
        """What a copy takes from registers: its planes, one after the other."""
        if copy in self._later:
            return self._later[copy][2]
        warp, event, _ = step
        items: tuple[EventOperand, ...] = ()
        if "registers" in copy.effect.reads:
            given = event.operands[1]
            items = given.items if given.kind == "v" else (given,)
        lane = copy.thread.lane
        return [
            [self._value(warp, each, plane, lane) for each in items]
            for plane in range(self.watch.planes)
        ]

    def _value(self, warp: Warp, operand: EventOperand, plane: int, lane: int) -> int:
        """What a lane has in a plane of a register."""
        places = self.watch.twins.get(operand.place) if operand.kind == "r" else None
        if places is None:
            return 0
        return operand._replace(place=places[plane]).value(warp, lane)

    def warpgroup(self, warp: Warp) -> list[Warp]:
        """The four warps of the warpgroup of a warp."""
        first = warp.number // WARPS * WARPS
        return warp.block.warps[first : first + WARPS]

    # ── tensor memory ───────────────────────────────────────────────────────

    def load(self, step: Step, task: TmemLoad) -> None:
        """A warp issued a load of tensor memory."""
        warp = step.warp
        for plane, shadows in enumerate(self.planes):
            cells = shadows[warp.block.rank].cells
            words = task.words_of(cells.reshape(-1).take(task.way.numbers))
            kept = task.remaining(words)
            for place, row in zip(task.results.offsets, kept, strict=True):
                self._put(warp, place, plane, row)
            for each in task.indices.items if task.indices else ():
                self._put(warp, each.place, plane, np.zeros(LANES, np.uint32))
            if task.reduced is not None:
                self._put(warp, task.reduced.place, plane, self.reduced(words))

    def reduced(self, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The plane of what a load combines from words: (words, lanes)."""
        return np.zeros(LANES, np.uint32)

    def _put(
        self, warp: Warp, place: int, plane: int, words: NDArray[np.uint32]
    ) -> None:
        there = self.watch.twins.get(place)
        if there is not None:
            warp.words[there[plane] // 4 :][:LANES] = words

    def store(self, step: Step, task: TmemStore) -> None:
        """A warp issued a store to tensor memory."""
        warp, source = step.warp, step.event.operands[-1]
        items = source.items if source.kind == "v" else (source,)
        for plane, shadows in enumerate(self.planes):
            words = np.zeros(task.words.shape, np.uint32)
            for row, each in zip(words, items, strict=True):
                there = self.watch.twins.get(each.place) if each.kind == "r" else None
                if there is not None:
                    row[:] = warp.words[there[plane] // 4 :][:LANES]
            cells = shadows[warp.block.rank].cells.reshape(-1)
            cells[task.way.numbers] = task.cells_of(words)

    def fill(self, step: Step, task: Fill) -> None:
        """``tcgen05.cp``: from shared to tensor memory."""
        of = Descriptor.decode(task.descriptor, "tcgen05")
        for every in self.planes:
            shadows = [every[each.rank] for each in task.blocks]
            image = np.stack([each.cells for each in shadows])
            shared = np.stack([each.shared for each in shadows])
            pair = len(shadows) == 2
            if not pair:
                image, shared = image[0], shared[0]
            made = tensor_copy(task.op, image, shared, task.at, of)
            for shadow, part in zip(shadows, made if pair else made[None], strict=True):
                for each in task.cells_written:
                    if each.rank == shadow.rank:
                        shadow.cells[each.index] = part[each.index]


def _forget_map(shadows: list[Shadow], rank: int, address: int) -> None:
    """A tensor map was changed: no second values are there."""
    if address >> layout.SLOT_BITS:
        memory, place = shadows[rank].memory(address)
    else:
        own, place = divmod(address, 1 << layout.RANK_BITS)
        memory = shadows[own].shared
    memory[place : place + MAP_BYTES] = 0


_FOLLOWED = {
    "mbarrier": "copy",
    "async_group": "copy",
    "bulk_group": "copy",
    "release": "copy_later",
    "wait::ld": "load",
    "wait::st": "store",
    "commit": "fill",
}
"""What follows work that is no product, by how it is done."""
