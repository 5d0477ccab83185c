"""Which memory does a block of threads need while it runs?

A *context* is the memory of one block: its warps, shared and local memory, stacks, and
a table of all segments.  It is used for one block after the other.  A block that waits
for another keeps its context.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.ptx.engine import layout
from fragmenta.ptx.engine.compiled import Compiled, aligned
from fragmenta.ptx.engine.layout import LANES, Status

Bytes = NDArray[np.uint8]


class Shape(NamedTuple):
    """A grid of blocks of threads."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    @property
    def blocks(self) -> int:
        """The blocks of the grid."""
        x, y, z = self.grid
        return x * y * z

    @property
    def threads(self) -> int:
        """The threads of a block."""
        x, y, z = self.block
        return x * y * z

    @property
    def warps(self) -> int:
        """The warps of a block."""
        return -(-self.threads // LANES)

    def block_at(self, index: int) -> tuple[int, int, int]:
        """Where block number ``index`` is in the grid."""
        x, y, _ = self.grid
        return index % x, index // x % y, index // (x * y)

    def thread_at(self, index: int) -> tuple[int, int, int]:
        """Where thread number ``index`` is in its block."""
        x, y, _ = self.block
        return index % x, index // x % y, index // (x * y)


def template(compiled: Compiled, shape: Shape, dynamic: int) -> Bytes:
    """The first bytes of every warp of a block, before it starts."""
    warps = shape.warps
    made = aligned(warps * layout.HEADER).reshape(warps, layout.HEADER)
    thread = np.arange(warps * LANES).reshape(warps, LANES)
    live = thread < shape.threads
    words: dict[int, Any] = {
        layout.LIVE: (live << np.arange(LANES)).sum(axis=1).astype(np.uint32)[:, None],
        layout.WARP_NUMBER: np.arange(warps, dtype=np.uint32)[:, None],
        layout.PC: np.where(live, 0, layout.EXITED),
        layout.STACK: np.full((warps, LANES), compiled.local),
    }
    x, y, _ = shape.block
    lane = np.broadcast_to(np.arange(LANES), (warps, LANES))
    bit = np.int64(1) << lane
    total = compiled.shared + dynamic
    named = {
        "%tid.x": thread % x, "%tid.y": thread // x % y, "%tid.z": thread // (x * y),
        "%laneid": lane, "%warpid": thread // LANES, "%nwarpid": warps, "%nsmid": 132,
        "%lanemask_eq": bit, "%lanemask_lt": bit - 1, "%lanemask_le": 2 * bit - 1,
        "%lanemask_gt": ~(2 * bit - 1), "%lanemask_ge": ~(bit - 1),
        "%total_smem_size": total, "%dynamic_smem_size": dynamic,
        "%aggr_smem_size": total, "%cluster_nctarank": 1,
        "%reserved_smem_offset_end": layout.SHARED_START,
        "%reserved_smem_offset_cap": layout.SHARED_START,
    }  # fmt: skip
    for axis, name in enumerate("xyz"):
        named[f"%ntid.{name}"] = shape.block[axis]
        named[f"%nctaid.{name}"] = named[f"%nclusterid.{name}"] = shape.grid[axis]
        named[f"%cluster_nctaid.{name}"] = 1
    for name, value in named.items():
        place = layout.special_place(name)
        assert place is not None
        words[place] = np.broadcast_to(np.asarray(value), (warps, LANES))
    for place, value in words.items():
        data = np.ascontiguousarray(value & 0xFFFFFFFF).astype(np.uint32)
        made[:, place : place + 4 * data.shape[1]] = data.view(np.uint8)
    return made


class Context:
    """The memory of one block."""

    def __init__(
        self, compiled: Compiled, shape: Shape, launch: Any, dynamic: int
    ) -> None:
        warps = shape.warps
        local = compiled.local + launch.stack
        saved = launch.saved if compiled.recursive else 8
        sizes = {
            "block": layout.BLOCK_BYTES,
            "warps": warps * compiled.warp_bytes,
            "shared": compiled.shared + dynamic,
            "local": warps * LANES * local,
            "stage": 1 << 15,
            "saved": warps * LANES * saved,
            "returns": warps * LANES * 12 * layout.RETURNS if compiled.calls else 8,
            "counts": 8 * len(compiled.counted),
        }
        self.parts = {name: aligned(size) for name, size in sizes.items()}
        self.segments = launch.segments.copy()
        self.halt = np.zeros(1, np.int32)
        """Not 0 if no further block should begin."""
        self.counts = self.parts["counts"].view(np.int64)
        self._shape, self._launch = shape, launch
        self._set_pointers(compiled, launch)
        self._put(layout.BLOCK_WARPS, np.int32(warps))
        self._put(layout.BLOCK_THREADS, np.int32(shape.threads))
        self._put(layout.BLOCK_WARP_BYTES, np.int64(compiled.warp_bytes))
        self._put(layout.BLOCK_SHARED_SIZE, np.int64(sizes["shared"]))
        self._put(layout.BLOCK_LOCAL_SIZE, np.int64(local))
        self._put(layout.BLOCK_SAVED_SIZE, np.int64(saved))
        self._put(layout.BLOCK_STATUS, np.int32(Status.ENDED))
        for axis, size in enumerate(shape.grid):
            self._put(layout.BLOCK_GRID + 8 * axis, np.int64(size))
        start = layout.SHARED_START
        where = _address(self.parts["shared"]) + start
        self.segments[layout.SHARED_SLOT, :2] = where, sizes["shared"] - start
        own = np.arange(warps, dtype=np.int64) * (LANES * local)
        own += _address(self.parts["local"])
        place = slice(layout.LOCAL_BASE, layout.LOCAL_BASE + 8)
        # A copy: other threads have contexts of the same launch.
        self.template = launch.template.copy()
        self.template[:, place] = own.view(np.uint8).reshape(warps, 8)
        self._put(layout.BLOCK_TEMPLATE, np.int64(_address(self.template)))

    def _set_pointers(self, compiled: Compiled, launch: Any) -> None:
        for offset, memory in (
            (layout.BLOCK_FIRST_WARP, self.parts["warps"]),
            (layout.BLOCK_SHARED, self.parts["shared"]),
            (layout.BLOCK_SEGMENTS, self.segments),
            (layout.BLOCK_COUNTS, self.parts["counts"]),
            (layout.BLOCK_CONSTANTS, launch.constants),
            (layout.BLOCK_FUNCTIONS, launch.functions),
            (layout.BLOCK_PARAMETERS, launch.parameters),
            (layout.BLOCK_STAGE, self.parts["stage"]),
            (layout.BLOCK_SAVED, self.parts["saved"]),
            (layout.BLOCK_RETURNS, self.parts["returns"]),
            (layout.BLOCK_HALT, self.halt),
        ):
            self._put(offset, np.int64(_address(memory)))
        self._put(layout.BLOCK_HOST, np.int64(launch.host_address))

    def _put(self, offset: int, number: Any) -> None:
        data = np.frombuffer(number.tobytes(), np.uint8)
        self.parts["block"][offset : offset + data.size] = data

    def _get(self, offset: int, kind: Any) -> int:
        size = np.dtype(kind).itemsize
        return int(self.parts["block"][offset : offset + size].view(kind)[0])

    @property
    def address(self) -> int:
        """Where the block is."""
        return _address(self.parts["block"])

    @property
    def status(self) -> Status:
        """How the block stands."""
        return Status(self._get(layout.BLOCK_STATUS, np.int32))

    @property
    def index(self) -> int:
        """The number of the block that runs, or of the next one."""
        return self._get(layout.BLOCK_INDEX, np.int64)

    @property
    def last(self) -> int:
        """The first block that is not to be run."""
        return self._get(layout.BLOCK_LAST, np.int64)

    @property
    def fault_warp(self) -> int:
        """The warp that failed."""
        return self._get(layout.BLOCK_FAULT_WARP, np.int32)

    def begin(self, first: int, last: int) -> None:
        """Say which blocks are to be run next."""
        self._put(layout.BLOCK_INDEX, np.int64(first))
        self._put(layout.BLOCK_LAST, np.int64(last))

    def warp(self, number: int) -> Bytes:
        """The memory of a warp."""
        size = self._get(layout.BLOCK_WARP_BYTES, np.int64)
        return self.parts["warps"][number * size : (number + 1) * size]


def _address(memory: NDArray[Any]) -> int:
    return int(memory.ctypes.data)


def word(warp: Bytes, offset: int, kind: Any = np.int32) -> int:
    """A number of a warp."""
    size = np.dtype(kind).itemsize
    return int(warp[offset : offset + size].view(kind)[0])


HOST = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p,
    ctypes.c_int32,
)  # fmt: skip
"""A function that a kernel calls for what is done in Python."""
