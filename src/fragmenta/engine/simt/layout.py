"""The layout of memory while a kernel runs: addresses, warps and blocks.

Addresses of a kernel are *virtual*.  The bits from 36 up are a slot: each argument
and each variable has one of its own, so that an access outside of it is found.
Shared memory, local memory and the parameters have a window each in the generic
address space.

A *warp* is one piece of memory: what each lane does now, then the special registers,
then the registers.  A register of 32 bits is 32 words, one for each lane.  A predicate
is one word with a bit for each lane.
"""

from __future__ import annotations

from enum import IntEnum

LANES = 32

# ── addresses ───────────────────────────────────────────────────────────────

SLOT_BITS = 36
SLOTS = 2048
"""Slots in the table of segments; addresses have 47 bits."""
FIRST_SLOT = 1 << SLOT_BITS
"""The first address that is not in slot 0, where nothing is."""
FIRST_ARGUMENT = 16
FIRST_VARIABLE, FIRST_CONSTANT = 1024, 1536
WORKSPACE_SLOT = FIRST_CONSTANT - 1
"""The workspace of a cooperative grid, through which its blocks synchronise."""
SHARED_SLOT, LOCAL_SLOT, PARAM_SLOT, CODE_SLOT = 8, 9, 10, 11
SHARED_WINDOW = SHARED_SLOT << SLOT_BITS
LOCAL_WINDOW = LOCAL_SLOT << SLOT_BITS
PARAM_WINDOW = PARAM_SLOT << SLOT_BITS
CODE_WINDOW = CODE_SLOT << SLOT_BITS
"""Where functions are; each has 16 bytes."""
SEGMENT_BYTES = 32
"""A segment: the host address, the size, and 1 if it must not be written; i64 each."""
SHARED_START = 1024
"""The first kilobyte of a block's shared memory belongs to the system."""
RANK_BITS = 24
"""From here up, the bits of a shared address are the block's rank in its cluster."""
MOST_RANKS = 16
GRANULE = 256
"""Memory of the device is allocated in multiples of this: reads go on until there."""

# ── a warp ──────────────────────────────────────────────────────────────────

PC = 0  #: 32 x i32: the code block that each lane executes next
EXITED = 0x7FFFFFFF  #: the PC of a lane that has ended

ACTIVE = 128  #: i32: the lanes that execute now
LIVE = 132  #: i32: the lanes that have not ended
WAITING = 136  #: i32: the lanes that cannot go on until something else happens
ARRIVED = 140  #: i32: the lanes that have arrived at the barrier they wait for
STATUS = 144  #: i32: why the warp stopped
BUDGET = 148  #: i32: how many more times it may jump back before it has to stop
FAULT_ID = 152  #: i32: the instruction that failed
FAULT_KIND = 156  #: i32
FAULT_LANE = 160  #: i32
FAULT_SIZE = 164  #: i32: bytes of the access; negative for the goal of cp.async
FAULT_ADDRESS = 168  #: i64
WARP_NUMBER = 176  #: i32
TURN = 180  #: i32: how many more code blocks the lane LEADER has the right of way for
LOCAL_BASE = 184  #: i64: host address of the local memory of lane 0
MOVED = 192  #: i32: whether a lane went on since all waiting lanes were polled
SCRATCH = 196  #: 12 predicates for temporary use
TIME = 248  #: i64: what the clocks say
TICKETS = 256  #: 32 x i32: the phase of the barrier at which each lane arrived
STACK = 384  #: 32 x i32: bytes of local memory that each lane uses
DEPTH = 512  #: 32 x i32: how many calls each lane is in
BARRIER = 640  #: 32 x i32: the named barrier at which each lane waits
CONTEXT = 768  #: 32 x i32: a number for the calls that each lane is in
MEMBERS = 896  #: 32 x i32: the lanes that each lane waits for at bar.warp.sync
SYNCED = 1024  #: i32: the lanes that wait at bar.warp.sync
RELEASED = 1028  #: i32: those of them that may go on
RAN = 1032  #: i32: the lanes that executed something in this turn
LEADER = 1036  #: i32: the lane that had the right of way last
GRANT = 1040  #: i32: for how many code blocks the next one has it, less FIRST_GRANT
STUCK = 1044  #: i32: lanes that waited since the host last looked
ASKED = 1048  #: i32: lanes that tested an mbarrier since then, without success
CUT_AT = 1052  #: i32: the code block whose event ended the last turn
CUT_KIND = 1056  #: i32: what that event was: ACTS, POLLS, ISSUES, WAITS
RESUMED = 1060  #: i32: whether the turn began with lanes that waited
PAST = 1064  #: i32: lanes whose access was none, which hardware survives
SIGNALLED = 1068  #: i32: lanes that were at a barrier last with bar.arrive
HELD = 1072  #: i32: for how many turns the warp has let others come to it first
SEEN = 1076  #: i32: lanes that executed or waited in turns since Python last asked
IN_FLIGHT = 1084  #: i32: wgmma or tcgen05.ld that the warp has not waited for
SAVED = 1088  #: 32 x i32: how many words of registers each lane has saved
SPECIAL = 1216
"""Special registers, 128 or 256 bytes each: first ``SPECIALS_32``, then the others."""

SPECIALS_32 = (
    "%tid.x",
    "%tid.y",
    "%tid.z",
    "%tid.w",
    "%ntid.x",
    "%ntid.y",
    "%ntid.z",
    "%ntid.w",
    "%ctaid.x",
    "%ctaid.y",
    "%ctaid.z",
    "%ctaid.w",
    "%nctaid.x",
    "%nctaid.y",
    "%nctaid.z",
    "%nctaid.w",
    "%laneid",
    "%warpid",
    "%nwarpid",
    "%smid",
    "%nsmid",
    "%lanemask_eq",
    "%lanemask_lt",
    "%lanemask_le",
    "%lanemask_gt",
    "%lanemask_ge",
    "%clock",
    "%clock_hi",
    "%total_smem_size",
    "%dynamic_smem_size",
    "%aggr_smem_size",
    "%is_explicit_cluster",
    "%clusterid.x",
    "%clusterid.y",
    "%clusterid.z",
    "%clusterid.w",
    "%nclusterid.x",
    "%nclusterid.y",
    "%nclusterid.z",
    "%nclusterid.w",
    "%cluster_ctaid.x",
    "%cluster_ctaid.y",
    "%cluster_ctaid.z",
    "%cluster_ctaid.w",
    "%cluster_nctaid.x",
    "%cluster_nctaid.y",
    "%cluster_nctaid.z",
    "%cluster_nctaid.w",
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%reserved_smem_offset_0",
    "%reserved_smem_offset_1",
    "%reserved_smem_offset_begin",
    "%reserved_smem_offset_end",
    "%reserved_smem_offset_cap",
    "%globaltimer_lo",
    "%globaltimer_hi",
    "%envreg1",
    "%envreg2",
)
SPECIALS_64 = ("%clock64", "%globaltimer", "%gridid", "%current_graph_exec")

_SPECIAL_PLACES = {
    name: SPECIAL + 4 * LANES * index for index, name in enumerate(SPECIALS_32)
} | {
    name: SPECIAL + 4 * LANES * len(SPECIALS_32) + 8 * LANES * index
    for index, name in enumerate(SPECIALS_64)
}
TICKING = (
    "%clock",
    "%clock_hi",
    "%clock64",
    "%globaltimer",
    "%globaltimer_lo",
    "%globaltimer_hi",
)
"""Special registers that are greater every time they are read."""

TEMPORARIES = 12
"""Registers and predicates for what is used at once."""
HEADER = SPECIAL + 4 * LANES * len(SPECIALS_32) + 8 * LANES * len(SPECIALS_64)
"""Bytes at the start of a warp that are given before it starts."""
TEMPORARY = HEADER
RESULT_WORDS = 32
"""Words of parameters and of results of a function that calls itself."""
RESULTS = TEMPORARY + 256 * TEMPORARIES
REGISTERS = RESULTS + 8 * LANES * RESULT_WORDS
"""Where the registers of a warp begin."""


def special_place(name: str) -> int | None:
    """Where a special register is in a warp; None if it is not kept there.

    >>> special_place("%tid.x") == SPECIAL
    True
    """
    return _SPECIAL_PLACES.get(name)


# ── a block of threads ──────────────────────────────────────────────────────

BLOCK_WARPS = 0  #: i32: how many warps
BLOCK_ALIVE = 4  #: i32: how many warps have not ended
BLOCK_WARP_BYTES = 8  #: i64: the size of a warp
BLOCK_FIRST_WARP = 16  #: pointer to the first warp
BLOCK_SHARED = 24  #: pointer to shared memory
BLOCK_SHARED_SIZE = 32  #: i64
BLOCK_LOCAL_SIZE = 40  #: i64: bytes of local memory of each lane
BLOCK_SEGMENTS = 48  #: pointer to the table of segments
BLOCK_COUNTS = 56  #: pointer to i64 counters, one for each code block
BLOCK_CONSTANTS = 64  #: pointer to the constants of the kernel
BLOCK_FUNCTIONS = 72  #: pointer to addresses of functions
BLOCK_PARAMETERS = 80  #: pointer to the parameters of the kernel
BLOCK_STATUS = 88  #: i32
BLOCK_PROGRESS = 92  #: i32: whether anything happened in this round
BLOCK_FAULT_WARP = 96  #: i32
BLOCK_LIVE = 100  #: i32: how many threads have not ended
BLOCK_STAGE = 104  #: pointer to memory for the operands of Tensor Core instructions
BLOCK_SAVED = 112  #: pointer to the memory of saved registers, per lane
BLOCK_SAVED_SIZE = 120  #: i64: its bytes for each lane
BLOCK_RETURNS = 128  #: pointer to return addresses, per lane
BLOCK_HOST = 136  #: pointer to a function of the host, for what is done in Python
BLOCK_GLOBAL_WATCH = 144  #: pointer to the ledger of global memory; 0 without one
BLOCK_BANKS = 152  #: pointer to the counts of bank conflicts; 0 if they are not counted
BLOCK_INDEX = 160  #: i64: the number of the block in the grid
BLOCK_QUEUE = 168  #: pointer to the queue of blocks to run
BLOCK_GRID = 176  #: 3 x i64: the blocks of the grid along x, y and z
BLOCK_TEMPLATE = 200  #: pointer to the first bytes of each warp
BLOCK_HALT = 208  #: pointer to an i32 that is not 0 if all should stop
BLOCK_THREADS = 216  #: i32: how many threads
BLOCK_WATCH = 224  #: pointer to the shadow of the block; 0 if nothing observes it
BLOCK_EVENT = 232  #: pointer to the function that carries out events
BLOCK_RANK = 240  #: i64: the first address of shared memory: the rank from bit 24 up
BLOCK_PEERS = 248  #: pointer to the shared memories of the cluster, 16 bytes each
BLOCK_RESET = 256  #: pointer to a function that a new block begins with; or 0
BLOCK_SHADOW = 264  #: pointer to a block whose memories are shadow bits; 0 if none is
BLOCK_UNITS = 272  #: pointer to the state of the units; 0 if there is none
BLOCK_PARTIAL = 280  #: pointer to the code for a part of the lanes of a warp
BLOCK_WAKES = 288  #: i32: how often a barrier let warps go on, or threads ended
BLOCK_ROUNDS = 292  #: i32: how many more rounds of turns before Python has its turn
BLOCK_GOES_ON = 296  #: i32: whether a block goes on whose warps have used their turns
BLOCK_GRANULE = 304  #: i64: GRANULE if a launch goes on after accesses there; or 1
BLOCK_COUNTERS = 312  #: pointer to the counters of the context; 0 if there are none
BLOCK_CLUSTER = 320  #: 3 x i64: the blocks of a cluster along x, y and z
BLOCK_TRACE = 344  #: pointer to the record of a block that is recorded; or 0
BLOCK_RESET_SHADOW = 352  #: pointer to one more, for second values; or 0
BLOCK_BARRIERS = 384  #: 16 barriers
BARRIER_BYTES = 32
"""A barrier, i32 each: threads that arrived, with warps counted as 32; the same
exactly; the phase; the votes for it; the result of the last vote as a count, and
whether all or any were for it; the votes."""
BLOCK_BYTES = BLOCK_BARRIERS + 16 * BARRIER_BYTES

# The queue of blocks.  Contexts in several threads may share one.
QUEUE_NEXT = 0  #: i64: the next block that nobody runs
QUEUE_LAST = 8  #: i64: the first block that is not to be run
QUEUE_BYTES = 64  # a line of the cache: threads do not wait for each other's counters

RETURNS = 1024
"""How deep functions may call one another."""


POISON = 0x7FFF7FFF
"""What memory holds, word by word, while work that writes it is in flight."""
PLAIN, MIXED = 1, 255
"""Notes: written by a store; written in several ways.  Between them: atomics."""


class Status(IntEnum):
    """Why a warp or a block stopped."""

    READY = 0
    ENDED = 1
    BLOCKED = 2
    """It waits for another warp of its block."""
    SPENT = 3
    """Its turn is over; it may be waiting for something in memory."""
    FAULT = 4
    YIELDED = 5
    """Its turn ended at a synchronising event; it can go on."""


# ── the order of warps ──────────────────────────────────────────────────────
#
# The warps of a cluster are numbered through: rank * warps of a block + warp.

ORDER_POLICY = 0  #: i32: which warp is next
ORDER_BLOCKS = 4  #: i32: the blocks of the cluster
ORDER_WARPS = 8  #: i32: the warps of each
ORDER_LAST = 12  #: i32: the warp that had its turn last
ORDER_MOVED = 16  #: i32: whether anything happened since all warps were tried
ORDER_STATUS = 20  #: i32: why the turns ended
ORDER_SEED = 24  #: i64: the state of random choices
ORDER_WAKES = 32  #: pointer to an i64: how often something let waiting lanes go on
ORDER_CHANGES = 40  #: pointer to an i64: how often something happened to wait for
ORDER_GIVEN = 48  #: pointer to i32: the warps whose turns are given
ORDER_GIVEN_COUNT = 56  #: i32: how many these are
ORDER_GIVEN_NEXT = 60  #: i32: the first that has not had its turn
ORDER_ASKS = 64  #: i32: whether to stop after the given turns
ORDER_TRACED = 68  #: i32: turns in the trace
ORDER_TRACE = 72  #: pointer to (i32 warp, i32 event) for each turn; see ``turns``
ORDER_ROOM = 80  #: i32: turns that the trace has room for
ORDER_PEERS = 128  #: 16 pointers to the blocks
ORDER_LEFT = 256  #: i32 for each block: the warps that have not ended
ORDER_READY = 320  #: i32 for each block: those that can go on, or were not asked yet
ORDER_PRODUCERS = 384  #: i32 for each block: those that have issued copies
ORDER_CONSUMERS = 448  #: i32 for each block: those that have waited for copies
MOST_WARPS = 512
"""The warps of a cluster: 16 blocks of 32."""
ORDER_DID = 512  #: i32 for each warp: what its events were since it was spent
ORDER_SPENDS = ORDER_DID + 4 * MOST_WARPS  #: i32 for each: turns without an event
ORDER_BYTES = ORDER_SPENDS + 4 * MOST_WARPS

ACTS, POLLS, ISSUES, WAITS, FENCES, MEETS = 1, 2, 4, 8, 16, 32
"""Events: others may wait for it; it may be repeated in a loop; it issues a copy; it
waits for copies; it only orders; lanes arrive and wait.  Of a lane that had to wait at
a barrier, the arrival was the event: to go on from there is none."""


class Policy(IntEnum):
    """Which of the warps that can go on is next."""

    IN_STEPS = 0
    """The one after the last, in a circle."""
    OLDEST_WAITS = 1
    """The one with the highest number."""
    YOUNGEST_WAITS = 2
    """The one with the lowest number."""
    PRODUCER_WAITS = 3
    """One that has issued no copy, if there is one."""
    CONSUMER_WAITS = 4
    """One that has issued copies or has not waited for any, if there is one."""
    RANDOM = 5


class Fault(IntEnum):
    """What can go wrong while a kernel runs."""

    NONE = 0
    BOUNDS = 1
    ALIGNMENT = 2
    TRAP = 3
    UNSUPPORTED = 4
    STACK = 6
    DEPTH = 7
    METADATA = 8
    HOST = 9
    READ_ONLY = 11
    BARRIER = 12
    INDEX = 13
    EVENT = 14
    """An event failed; it has its own message."""
