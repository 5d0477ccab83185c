"""Where copies in flight, their groups and the barrier of a cluster are in memory.

A *task* is a copy that machine code issued.  Its record says everything about it: who
issued it, what it reads and writes, which mbarriers it signals, which group it is in.
A cluster has a pool of such records.  Those in flight are a list in the order of their
issue, together with Python's pieces of work: both take their ordinal from the cluster.

What a task moves has two sides.  In *shared memory* it is some lines of the same size,
one every so many bytes, with a swizzle that exchanges units of 16 bytes; the same in
each block that a multicast goes to.  In *global memory* it is some rows of the same
size, repeated along up to four dimensions; what is outside of a tensor is not among
them.  Line and row differ only where a box is partly outside.

A *map* is a tensor map that Python has checked, with all that machine code needs.  It
is found by its 128 bytes, wherever these are.
"""

from __future__ import annotations

from typing import Final

from fragmenta.reference.shared.reductions import TYPES_OF

# ── a task ──────────────────────────────────────────────────────────────────

TASK_STATE: Final = 0  #: i32: FREE, IN_FLIGHT, or TAKEN: its source has been read
TASK_KIND: Final = 4  #: i32: LOAD, STORE, ... COMMIT
TASK_ORDINAL: Final = 8  #: i64: its number among all work of the cluster
TASK_EVENT: Final = 16  #: pointer to the record of its instruction
TASK_BLOCK: Final = 24  #: pointer to the memory of the block that issued it
TASK_WARP: Final = 32  #: pointer to the warp
TASK_RANK: Final = 40  #: i32: the rank of that block
TASK_NUMBER: Final = 44  #: i32: the number of the warp
TASK_LANES: Final = 48  #: i32: the lanes that issued it
TASK_FLAGS: Final = 52  #: i32: TENSOR, REPEATS; the operation from bit 8
TASK_BYTES: Final = 56  #: i32: the bytes that each mbarrier counts
TASK_SIGNALS: Final = 60  #: i32: the blocks whose mbarriers it signals, by rank
TASK_MBARRIER: Final = 64  #: i32: where these are in shared memory
TASK_ARRIVALS: Final = 68  #: i32: how often an ARRIVAL arrives
TASK_QUEUE: Final = 72  #: pointer to the groups that it is in; 0: an mbarrier counts it
TASK_GROUP: Final = 80  #: i32: the epoch of these when it was issued
TASK_NEXT: Final = 84  #: i32: the next task in flight, or the next free one; -1: none
TASK_PREVIOUS: Final = 88  #: i32: the one before it in flight; -1: none
TASK_INDEX: Final = 96  #: i32: its number in the pool

TASK_RANKS: Final = 100  #: i32: the blocks whose shared memory it touches, by rank
TASK_SHARED: Final = 104  #: i32: where it begins there
TASK_LINE: Final = 108  #: i32: bytes of a line; of a lane
TASK_PITCH: Final = 112  #: i32: bytes from one line to the next
TASK_LINES: Final = 116  #: i32: how many lines
TASK_SWIZZLE: Final = 120  #: i32: the bits of an address that the swizzle changes
TASK_SOURCE: Final = 124  #: i32: of an EXCHANGE, the shared address that it reads

TASK_FIRST: Final = 128  #: i64: the address of the first row in global memory
TASK_ROW: Final = 136  #: i64: bytes of a row; 0: nothing is inside the tensor
TASK_COUNTS: Final = 144  #: 4 x i64: how often rows repeat along each dimension
TASK_STEPS: Final = 176  #: 4 x i64: how far apart they are
TASK_SKIP: Final = 208  #: i64: how far into the box the first row is, unswizzled
TASK_JUMPS: Final = 216  #: 4 x i64: how far apart rows are there

TASK_MAP: Final = 248  #: i64: the address of the tensor map; 0: there is none
TASK_FORM: Final = 256  #: pointer to what is known of the map; of arrivals, to groups
TASK_COORDINATES: Final = 264  #: 5 x i64
TASK_IMAGE: Final = 304  #: pointer to the window of shared memory that a TAKEN one read
TASK_OBSERVED: Final = 320  #: 8 x i64: the observer's

TASK_TENSOR: Final = 384  #: the product, or the store to tensor memory
TASK_GOALS: Final = 384  #: 32 x i32: of a LANE_COPY, where each lane writes
TASK_COUNTED: Final = 512  #: 32 x i32: how many bytes it reads
TASK_SOURCES: Final = 640  #: 32 x i64: where it reads
TASK_RECORD: Final = 1024

FREE, IN_FLIGHT, TAKEN = range(3)
LOAD, STORE, EXCHANGE, LANE_COPY, ARRIVAL, CELLS, PRODUCT, COMMIT = range(8)
"""Global to shared memory, shared to global, shared to shared memory of another block,
``cp.async``, ``cp.async.mbarrier.arrive``; ``tcgen05.st``, ``.mma`` and ``.commit``."""
TENSOR, REPEATS, COMPUTED = 1, 2, 4
"""A copy by a tensor map; another lane issued an equal one with the instruction; the
result of a product has been written."""
OPERATION_AT: Final = 8
OPERATIONS = ("", *TYPES_OF)
"""Reductions, by their number in the flags; 0: bytes are moved as they are."""

# ── the pool of a cluster ───────────────────────────────────────────────────

POOL_FREE: Final = 0  #: i32: the first free task; -1: there is none
POOL_FIRST: Final = 4  #: i32: the oldest task in flight; -1: none is
POOL_LAST: Final = 8  #: i32: the newest
POOL_COUNT: Final = 12  #: i32: how many are in flight
POOL_ARENA: Final = 16  #: pointer to memory for images
POOL_USED: Final = 24  #: i64: how much of it is used
POOL_TAKEN: Final = 32  #: i32: how many tasks have an image
POOL_BLOCKED: Final = 36  #: i32: the task that only Python can finish
POOL_TASKS: Final = 64  #: the records of tasks
TASKS: Final = 256
ARENA_BYTES: Final = 1 << 20
POOL_BYTES: Final = POOL_TASKS + TASKS * TASK_RECORD

# ── groups of copies ────────────────────────────────────────────────────────

QUEUE_THERE: Final = 0  #: i32: whether a copy was issued since the block began
QUEUE_EPOCH: Final = 4  #: i32: how many groups are closed
QUEUE_WAITED: Final = 8  #: i32: the first group that was not waited for
QUEUE_WORK: Final = 12  #: i32: Python's work in them; 1 if it keeps all
QUEUE_RECORD: Final = 16
QUEUES: Final = 32  #: of each warp: one for the bulk copies of each lane

# The record of what a thread issued to the Tensor Cores is like these: whether there is
# work that it has not committed, and how much of it is Python's.

# ── groups of cp.async ──────────────────────────────────────────────────────
# They begin like the others; the epoch there is the number of groups.

LANES_MARKS: Final = 16  #: i32: the epoch of the observer: groups and arrivals
LANES_BEGAN: Final = 20  #: i32: that in which the open group began
LANES_MASK: Final = 24  #: i32: the lanes that close groups; 0: none was closed
LANES_OPEN: Final = 28  #: i32: the lanes with copies in the open group
LANES_UNWAITED: Final = 32  #: i32: copies that no lane has waited for
LANES_ISSUED: Final = 36  #: i32: all copies
LANES_RETIRED: Final = (
    40  #: i32: how many there were at the end of the last group waited for
)
LANES_SITE: Final = 44  #: i32: the instruction of the last copy, plus 1
LANES_BEGUN: Final = 64  #: 16 x i32: the epochs in which the last groups began
LANES_ENDS: Final = 128  #: 16 x i32: how many copies there were at their ends
LANES_RECORD: Final = 192
GROUPS: Final = 16

# ── a tensor map ────────────────────────────────────────────────────────────

MAP_DATA: Final = 0  #: 128 bytes: the map
MAP_RANK: Final = 128  #: i32
MAP_ELEMENT: Final = 132  #: i32: bytes of an element
MAP_BYTES: Final = 136  #: i32: bytes of the box
MAP_LINE: Final = 140  #: i32: bytes of a line of the box
MAP_PITCH: Final = 144  #: i32: bytes from one line to the next
MAP_LINES: Final = 148  #: i32: how many lines
MAP_SWIZZLE: Final = 152  #: i32: the bits of an address that the swizzle changes
MAP_FILL: Final = 156  #: i32: the 16 bits that fill what is outside
MAP_ADDRESS: Final = 160  #: i64: the address of the tensor
MAP_WIDTH: Final = 168  #: i64: bytes of a row of the tensor
MAP_COUNTS: Final = 176  #: 4 x i64: lines of the box along each dimension but the first
MAP_SIZES: Final = 208  #: 4 x i64: the sizes of these dimensions
MAP_STEPS: Final = 240  #: 4 x i64: their element strides
MAP_STRIDES: Final = 272  #: 4 x i64: their strides in bytes
MAP_REDUCE: Final = 304  #: 9 pointers: the code of each reduction; 0: not known yet
MAP_LAYOUT: Final = 376  #: i64: the number of the layout of its boxes; 0: none
MAP_RECORD: Final = 384
PATTERN: Final = 1024
"""A swizzle repeats after so many bytes of shared memory."""
EXCHANGED: Final = 128
"""A swizzle exchanges units within so many bytes."""
MAPS: Final = 1024
"""Places in the table of maps, which has pointers to records; see ``map_factor``."""
MAP_SHIFT: Final = 54


def map_factor(number: int) -> int:
    """The factor of a number of 64 bits of a map in the hash of its bytes.

    The highest bits of the sum of all products are the place of the map in the table.
    The place next to it serves a second map with the same hash.
    """
    return 0x9E3779B97F4A7C15 * (2 * number + 1) % (1 << 64)


# ── the barrier of a cluster ────────────────────────────────────────────────

BARRIER_PHASE: Final = 0  #: i64: how many phases are over
BARRIER_ARRIVED: Final = 8  #: i32: how many lanes arrived in this phase
BARRIER_MIXED: Final = 12  #: i32: whether Python keeps more arrivals
BARRIER_WARPS: Final = 64  #: records of warps, so many for each block
ENTRIES: Final = 64
ENTRY_ARRIVED: Final = 0  #: i32: the lanes of the warp that arrived in this phase
ENTRY_LANES: Final = 4  #: i32: the lanes that arrived and have not waited
ENTRY_PHASE: Final = 8  #: i64: the phase in which these arrived
ENTRY_BYTES: Final = 16
