"""Contexts: the memory that a block of threads has while it runs.

A *context* is the memory of one block: its warps, shared and local memory, stacks, and
a table of all segments.  It is used for one block after the other.  A block that waits
for another keeps its context.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.compiled import Compiled, address_of, aligned, copied, zeros
from fragmenta.engine.simt.layout import LANES, Status
from fragmenta.ptx.module import demangled

Bytes = NDArray[np.uint8]


class Meter(Protocol):
    """The limits of a launch; see :class:`fragmenta.launch.limits.Meter`."""

    @property
    def most_output(self) -> int | None:
        """The characters that the kernel may print; None for no limit."""

    def room(self, size: int, what: str) -> None:
        """Refuse if something needs more memory than the launch may have."""

    def print(self, characters: int) -> None:
        """Refuse if the kernel prints more than it may."""


class LaunchMemory(Protocol):
    """What the blocks of a launch share: :class:`fragmenta.launch.launch.Launch`."""

    stack: int
    """Bytes of the stack of each thread."""
    saved: int
    """Bytes for saved registers of each thread."""
    segments: NDArray[np.int64]
    template: Bytes
    constants: Bytes
    functions: NDArray[np.int64]
    parameters: Bytes
    host_address: int
    shape: Grid
    goes_on: bool
    """Whether it goes on after mistakes that hardware survives."""

    @property
    def meter(self) -> Meter:
        """The limits of the launch."""


class Grid(NamedTuple):
    """A grid of blocks of threads."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)

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

    @property
    def cluster_blocks(self) -> int:
        """The blocks of a cluster."""
        x, y, z = self.cluster
        return x * y * z

    @property
    def clusters(self) -> tuple[int, int, int]:
        """The clusters of the grid along each axis."""
        (x, y, z), (i, j, k) = self.grid, self.cluster
        return x // i, y // j, z // k

    def cluster_at(self, index: int) -> tuple[int, int, int]:
        """Where cluster number ``index`` is among the clusters of the grid."""
        x, y, _ = self.clusters
        return index % x, index // x % y, index // (x * y)

    def in_cluster(self, rank: int) -> tuple[int, int, int]:
        """Where the block of a rank is in its cluster."""
        x, y, _ = self.cluster
        return rank % x, rank // x % y, rank // (x * y)

    def members(self, index: int) -> list[int]:
        """The numbers of the blocks of a cluster, by rank.

        >>> Grid((4, 2, 1), (32, 1, 1), (2, 1, 1)).members(3)
        [6, 7]
        """
        at, found = self.cluster_at(index), []
        for rank in range(self.cluster_blocks):
            own = self.in_cluster(rank)
            x, y, z = (
                a * size + b for a, size, b in zip(at, self.cluster, own, strict=True)
            )
            found.append(x + self.grid[0] * (y + self.grid[1] * z))
        return found

    def cluster_of(self, block: int) -> int:
        """The number of the cluster of a block.

        >>> Grid((4, 2, 1), (32, 1, 1), (2, 1, 1)).cluster_of(6)
        3
        """
        at = zip(self.block_at(block), self.cluster, strict=True)
        (x, y, z), (wide, high, _) = (a // b for a, b in at), self.clusters
        return x + wide * (y + high * z)

    def block_at(self, index: int) -> tuple[int, int, int]:
        """Where block number ``index`` is in the grid."""
        x, y, _ = self.grid
        return index % x, index // x % y, index // (x * y)

    def thread_at(self, index: int) -> tuple[int, int, int]:
        """Where thread number ``index`` is in its block."""
        x, y, _ = self.block
        return index % x, index // x % y, index // (x * y)


@lru_cache(16)
def template(
    local: int, static: int, dynamic: int, shape: Grid, workspace: int = 0
) -> Bytes:
    """The first bytes of every warp of a block, before it starts.

    ``local`` are the bytes of local memory, ``static`` and ``dynamic`` those of shared
    memory, ``workspace`` is the address of the workspace of a cooperative grid.  It is
    cached: a small kernel that is launched often would spend most of its time here.
    """
    warps = shape.warps
    made = aligned(warps * layout.HEADER).reshape(warps, layout.HEADER)
    thread = np.arange(warps * LANES).reshape(warps, LANES)
    live = thread < shape.threads
    words: dict[int, Array] = {
        layout.LIVE: (live << np.arange(LANES)).sum(axis=1).astype(np.uint32)[:, None],
        layout.WARP_NUMBER: np.arange(warps, dtype=np.uint32)[:, None],
        layout.PC: np.where(live, 0, layout.EXITED),
        layout.STACK: np.full((warps, LANES), local),
    }
    x, y, _ = shape.block
    lane = np.broadcast_to(np.arange(LANES), (warps, LANES))
    bit = np.int64(1) << lane
    total = static + dynamic
    named = {
        "%tid.x": thread % x,
        "%tid.y": thread // x % y,
        "%tid.z": thread // (x * y),
        "%laneid": lane,
        "%warpid": thread // LANES,
        "%nwarpid": warps,
        "%nsmid": 132,
        "%lanemask_eq": bit,
        "%lanemask_lt": bit - 1,
        "%lanemask_le": 2 * bit - 1,
        "%lanemask_gt": ~(2 * bit - 1),
        "%lanemask_ge": ~(bit - 1),
        "%total_smem_size": total,
        "%dynamic_smem_size": dynamic,
        "%aggr_smem_size": total,
        "%cluster_nctarank": 1,
        "%reserved_smem_offset_end": layout.SHARED_START,
        "%reserved_smem_offset_cap": layout.SHARED_START,
        "%envreg1": workspace >> 32,
        "%envreg2": workspace & 0xFFFFFFFF,
    }
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
    made.flags.writeable = False
    return made


class BlockQueue:
    """The blocks that nobody runs yet.

    Contexts take the next one in machine code.  So only one thread may write
    ``following``, before any of them runs.
    """

    def __init__(self, following: int = 0, last: int = 0) -> None:
        self.memory = aligned(layout.QUEUE_BYTES)
        self._words = self.memory.view(np.int64)
        self.following, self.last = following, last

    @property
    def following(self) -> int:
        """The next block; it may be past the last one."""
        return int(self._words[layout.QUEUE_NEXT // 8])

    @following.setter
    def following(self, following: int) -> None:
        self._words[layout.QUEUE_NEXT // 8] = following

    @property
    def last(self) -> int:
        """The first block that is not to be run."""
        return int(self._words[layout.QUEUE_LAST // 8])

    @last.setter
    def last(self, last: int) -> None:
        self._words[layout.QUEUE_LAST // 8] = last


class Context:
    """The memory of one block."""

    def __init__(
        self, compiled: Compiled, shape: Grid, launch: LaunchMemory, dynamic: int
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
        blocks = f"the blocks of {demangled(compiled.kernel)}"
        launch.meter.room(sum(sizes.values()), blocks)
        self.parts = {name: aligned(size) for name, size in sizes.items()}
        self._narrow = self.parts["block"].view(np.int32)
        self._wide = self.parts["block"].view(np.int64)
        self.segments = aligned(launch.segments.nbytes).view(np.int64).reshape(-1, 4)
        self.segments[:] = launch.segments
        self.peers = aligned(16 * layout.MOST_RANKS).view(np.int64).reshape(-1, 2)
        """The shared memory of each block of the cluster: address and size.

        The part that belongs to the system is left out.  A block that has ended has no
        bytes.
        """
        self.halt = zeros(1, np.int32)
        """Not 0 if no further block should begin."""
        self._queue = BlockQueue()
        self.counts = self.parts["counts"].view(np.int64)
        self._shape, self._launch, self._code = shape, launch, compiled.code
        self._set_pointers(launch)
        self._narrow[layout.BLOCK_WARPS // 4] = warps
        self._narrow[layout.BLOCK_THREADS // 4] = shape.threads
        self._wide[layout.BLOCK_WARP_BYTES // 8] = compiled.warp_bytes
        self._wide[layout.BLOCK_SHARED_SIZE // 8] = sizes["shared"]
        self._wide[layout.BLOCK_LOCAL_SIZE // 8] = local
        self._wide[layout.BLOCK_SAVED_SIZE // 8] = saved
        self._wide[layout.BLOCK_GRANULE // 8] = layout.GRANULE if launch.goes_on else 1
        self._narrow[layout.BLOCK_STATUS // 4] = Status.ENDED
        for axis, size in enumerate(shape.grid):
            self._wide[layout.BLOCK_GRID // 8 + axis] = size
            self._wide[layout.BLOCK_CLUSTER // 8 + axis] = shape.cluster[axis]
        start = layout.SHARED_START
        where = address_of(self.parts["shared"]) + start
        self.segments[layout.SHARED_SLOT, :2] = where, sizes["shared"] - start
        own = np.arange(warps, dtype=np.int64) * (LANES * local)
        own += address_of(self.parts["local"])
        place = slice(layout.LOCAL_BASE, layout.LOCAL_BASE + 8)
        # A copy: other threads have contexts of the same launch.
        self.template = copied(launch.template)
        self.template[:, place] = own.view(np.uint8).reshape(warps, 8)
        self._wide[layout.BLOCK_TEMPLATE // 8] = address_of(self.template)
        self.join([self], 0)

    def join(self, blocks: list[Context], rank: int) -> None:
        """Become the block of this rank of a cluster."""
        self._wide[layout.BLOCK_RANK // 8] = rank << layout.RANK_BITS
        start = layout.SHARED_START
        for place, each in enumerate(blocks):
            memory = each.parts["shared"]
            self.peers[place] = address_of(memory) + start, memory.size - start

    def point(self, offset: int, address: int) -> None:
        """Put a pointer into the block."""
        self._wide[offset // 8] = address

    def name_cluster(self, rank: int) -> None:
        """Set the special registers of clusters in all warps that begin."""
        shape = self._shape
        numbers = {"%cluster_ctarank": rank, "%is_explicit_cluster": 1}
        numbers["%cluster_nctarank"] = shape.cluster_blocks
        for axis, name in enumerate("xyz"):
            numbers[f"%nclusterid.{name}"] = shape.clusters[axis]
            numbers[f"%cluster_ctaid.{name}"] = shape.in_cluster(rank)[axis]
            numbers[f"%cluster_nctaid.{name}"] = shape.cluster[axis]
        for name, number in numbers.items():
            place = layout.special_place(name)
            assert place is not None
            lanes = self.template[:, place : place + 4 * LANES]
            lanes.view(np.uint32)[:] = number

    def _set_pointers(self, launch: LaunchMemory) -> None:
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
            (layout.BLOCK_QUEUE, self._queue.memory),
            (layout.BLOCK_PEERS, self.peers),
        ):
            self._wide[offset // 8] = address_of(memory)
        self._wide[layout.BLOCK_HOST // 8] = launch.host_address
        self._wide[layout.BLOCK_PARTIAL // 8] = self._code.partial

    @property
    def address(self) -> int:
        """Where the block is."""
        return address_of(self.parts["block"])

    @property
    def status(self) -> Status:
        """Why the block stopped."""
        return Status(int(self._narrow[layout.BLOCK_STATUS // 4]))

    @status.setter
    def status(self, status: Status) -> None:
        self._narrow[layout.BLOCK_STATUS // 4] = status

    @property
    def index(self) -> int:
        """The number of the block that runs, or that was run last."""
        return int(self._wide[layout.BLOCK_INDEX // 8])

    @property
    def following(self) -> int:
        """The next block that nobody runs, or the first one that is not to be run."""
        return min(self._queue.following, self._queue.last)

    @property
    def finished(self) -> bool:
        """Whether all blocks to run have ended, or others run them."""
        ended = self.status == Status.ENDED
        return ended and self._queue.following >= self._queue.last

    @property
    def fault_warp(self) -> int:
        """The warp that failed."""
        return int(self._narrow[layout.BLOCK_FAULT_WARP // 4])

    def fail(self, warp: int) -> None:
        """Note that a warp has failed."""
        self._narrow[layout.BLOCK_FAULT_WARP // 4] = warp
        self.status = Status.FAULT

    def begin(self, first: int, last: int) -> None:
        """Set which blocks are run next, one after the other."""
        self._wide[layout.BLOCK_INDEX // 8] = first
        self._queue.following, self._queue.last = first, last

    def keep_one(self) -> None:
        """Run no other block after the present one."""
        self._queue.last = self._queue.following

    def share(self, queue: BlockQueue) -> None:
        """Run blocks of a queue that several contexts share."""
        self._wide[layout.BLOCK_QUEUE // 8] = address_of(queue.memory)
        self._queue = queue

    def allow(self, rounds: int, goes_on: bool) -> None:
        """Set after how many rounds of turns Python has its turn.

        ``goes_on`` says whether a block has further turns in machine code.
        """
        self._narrow[layout.BLOCK_ROUNDS // 4] = rounds
        self._narrow[layout.BLOCK_GOES_ON // 4] = goes_on

    def warp(self, number: int) -> Bytes:
        """The memory of a warp."""
        size = int(self._wide[layout.BLOCK_WARP_BYTES // 8])
        return self.parts["warps"][number * size : (number + 1) * size]


def word(
    warp: Bytes, offset: int, kind: type[np.int32 | np.uint32 | np.uint64] = np.int32
) -> int:
    """A number of a warp."""
    size = np.dtype(kind).itemsize
    return int(warp[offset : offset + size].view(kind)[0])


HOST = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int32,
)
"""A function that a kernel calls for what is done in Python."""
