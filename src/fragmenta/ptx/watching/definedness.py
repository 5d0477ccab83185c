"""Shadow bits of memory while a launch is run to follow undefined bits.

A block has a shadow: a block whose memories are the shadows of its own.  Compiled code
accesses them with the routines of ordinary loads and stores.  What copies of the async
proxy write counts as defined.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from fragmenta.arrays.once import once
from fragmenta.machine import compiler
from fragmenta.ptx.engine import layout, library, undefined
from fragmenta.ptx.engine.compiled import aligned
from fragmenta.ptx.engine.layout import LANES, SHARED_START
from fragmenta.ptx.watching import empties
from fragmenta.ptx.watching.blind import Blind


@once
def _engine() -> Any:
    return compiler.load(library.objects([undefined.RENEW]))


def _renew() -> int:
    """The address of what a block begins with; loaded once."""
    return int(_engine().get_function_address(undefined.RENEW.name))


class DefinedWatch:
    """Follows undefined bits in all clusters of a launch."""

    def __init__(self, machine: Any, seed: int) -> None:
        self.launch, self.seed = machine.launch, seed
        self.stored: dict[tuple[str, int, int, int], int] = {}
        """A checksum of the undefined values that each warp stored, by instruction."""
        self.left: tuple[int, ...] = ()
        """Checksums of what it left in its arrays; none if it came to no end."""
        self.unwritten = np.array(self.launch.compiled.undefined, np.int64).reshape(-1)
        self.segments = self.launch.segments.copy()
        self.observers: list[DefinedObserver] = []
        self.shadows: dict[int, NDArray[np.uint8]] = {}
        for each in self.launch.places:
            marks = empties.marks(each.data) if each.writable else None
            # Memory that is never touched costs nothing.
            shadow = np.zeros(each.data.size, np.uint8)
            if marks is not None:
                shadow[marks != 0] = 0xFF
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

    def note(self, warp: Any, event: Any, lanes: int) -> None:
        """Lanes store undefined values."""
        function, index = self.launch.compiled.places[event.site]
        key = function, index, warp.block.index, warp.number
        (value,) = event.operands
        some = value.lanes(warp)[lanes >> np.arange(LANES) & 1 == 1]
        self.stored[key] = crc32(some.tobytes(), self.stored.get(key, 0))

    def written(self, starts: NDArray[Any], size: int) -> None:
        """Bytes of global memory behind each of some addresses are defined."""
        for slot in np.unique(starts >> layout.SLOT_BITS):
            if int(slot) in self.shadows:
                mine = starts[starts >> layout.SLOT_BITS == slot]
                first = mine & (1 << layout.SLOT_BITS) - 1
                self.shadows[int(slot)][first[:, None] + np.arange(size)] = 0

    def observer(self, cluster: Any) -> DefinedObserver:
        """Who follows a cluster."""
        made = DefinedObserver(self, cluster)
        self.observers.append(made)
        return made

    def close(self) -> None:
        """Let go of everything: the launch has ended."""
        for each in self.observers:
            vars(each).clear()
        vars(self).clear()

    def collect(self, problems: Any) -> None:
        """Everything was reported when it was seen."""

    def recorded(self) -> list[Any]:
        """Nothing is recorded."""
        return []


class Shadow:
    """The shadow of one block."""

    def __init__(self, watch: DefinedWatch, context: Any) -> None:
        launch, parts = watch.launch, context.parts
        warps = launch.shape.warps
        self.context = context
        self.shared = aligned(parts["shared"].size)
        self.local = aligned(parts["local"].size)
        self.segments = watch.segments.copy()
        self.peers = np.zeros((layout.MOST_RANKS, 2), np.int64)
        self.block = aligned(undefined.WARPS_AT + warps * undefined.WARP_BYTES)
        self.block[: layout.BLOCK_BYTES] = parts["block"]
        where = self.shared.ctypes.data + SHARED_START
        self.segments[layout.SHARED_SLOT, 0] = where
        wide = self.block.view(np.int64)
        for offset, number in (
            (layout.BLOCK_SHARED, self.shared.ctypes.data),
            (layout.BLOCK_SEGMENTS, self.segments.ctypes.data),
            (layout.BLOCK_PEERS, self.peers.ctypes.data),
            (undefined.POISON_AT, launch.compiled.poisoned[0]),
            (undefined.POISON_BYTES, launch.compiled.poisoned[1]),
            (undefined.SEED, watch.seed),
            (undefined.UNWRITTEN, watch.unwritten.ctypes.data),
            (undefined.UNWRITTEN_COUNT, watch.unwritten.size // 2),
        ):
            wide[offset // 8] = number
        size = parts["local"].size // warps
        for warp in range(warps):
            at = undefined.WARPS_AT + warp * undefined.WARP_BYTES + layout.LOCAL_BASE
            wide[at // 8] = self.local.ctypes.data + warp * size
        assert size % LANES == 0
        context.point(layout.BLOCK_SHADOW, self.block.ctypes.data)
        context.point(layout.BLOCK_RESET, _renew())

    def join(self, shadows: list[Shadow], rank: int) -> None:
        """Become the shadow of the block of this rank of a cluster."""
        wide = self.block.view(np.int64)
        wide[layout.BLOCK_RANK // 8] = rank << layout.RANK_BITS
        for place, each in enumerate(shadows):
            self.peers[place] = each.shared.ctypes.data, each.shared.size


class DefinedObserver(Blind):
    """Follows a cluster: sees what is written to shared memory beside its threads."""

    def __init__(self, watch: DefinedWatch, cluster: Any) -> None:
        self.watch = watch
        self.shadows = [Shadow(watch, each) for each in cluster.contexts]
        for rank, each in enumerate(self.shadows):
            each.join(self.shadows, rank)

    def _written(self, rank: int, starts: NDArray[Any], size: int) -> None:
        """Bytes behind each of some offsets are defined."""
        places = np.asarray(starts, np.int64)[:, None] + np.arange(size)
        self.shadows[rank].shared[places] = 0

    def init(self, warp: Any, event: Any, lanes: int, mbarrier: Any) -> None:
        """An mbarrier was made, or is no longer one."""
        self._written(warp.block.rank, np.array([mbarrier.offset]), 8)

    def issue(self, task: Any, warp: Any, event: Any, lanes: int) -> None:
        """A copy was issued."""
        for each in task.copy.goals:
            if each.space == "shared":
                self._written(each.rank, each.starts, each.size)
            else:
                self.watch.written(each.starts, each.size)

    def tensor_allocated(
        self, warp: Any, event: Any, lanes: int, address: int, columns: int, place: int
    ) -> None:
        """A warp allocated tensor memory, and wrote its address to shared memory."""
        self._written(warp.block.rank, np.array([place]), 4)
