"""The memory layout of the race detector: clocks, shared shadow, heads of blocks.

An *agent* accesses memory: a warp, or a unit that works for warps.  The agents of a
cluster are numbered.  A *clock row* is a vector clock.  It says for each agent which of
its accesses happened before: those of all lanes with an epoch below ``base``, and those
of the lanes in ``mask`` with an epoch below ``extra``.  A row is three arrays of i32,
for the generic proxy, and three more for the async proxy.

The *shadow* of shared memory has two records of 64 bits for each word of 4 bytes: the
last write, and the last read or a set of reads.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from functools import cached_property
from typing import NamedTuple

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import ShapeError

# ── records of accesses ─────────────────────────────────────────────────────

EVER_BITS, MASK_BITS, CLASS_BITS, LANE_BITS = 4, 4, 3, 5
AGENT_BITS, EPOCH_BITS, SITE_BITS = 12, 19, 17
EVER_AT = 0
MASK_AT = EVER_AT + EVER_BITS
CLASS_AT = MASK_AT + MASK_BITS
LANE_AT = CLASS_AT + CLASS_BITS
AGENT_AT = LANE_AT + LANE_BITS
EPOCH_AT = AGENT_AT + AGENT_BITS
SITE_AT = EPOCH_AT + EPOCH_BITS

SET = (1 << AGENT_BITS) - 1
"""This agent stands for a set of readers, whose number is the epoch."""
MOST_AGENTS = SET
LAST_EPOCH = (1 << EPOCH_BITS) - 1
"""Later epochs are recorded as this one.  Such accesses are known too early."""
LAST_SITE = (1 << SITE_BITS) - 1


class Lanes(IntEnum):
    """Which lanes of a warp a record is about."""

    ONE = 0
    """The lane that it names; in a set, the lane that the word's record names."""
    SEVERAL = 1
    """At least two lanes, each of them all bytes."""
    ANY = 2
    """At least one lane for each byte; which one was not recorded."""
    HALVES = 3
    """The lane that it names for the first two bytes, the next lane for the others."""
    BYTES = 4
    """The lane that it names for the first byte, the next lane for the next, ..."""
    STRONG_ONE = 5
    """The lane that it names, by an atomic or another strong operation."""
    STRONG_ANY = 6
    """At least one lane, by strong operations."""
    STRONG_BLOCK = 7
    """The lane that it names, by a strong operation with the scope of its block."""


class ShadowRecord(NamedTuple):
    """An access, as the shadow keeps it."""

    site: int
    epoch: int
    agent: int
    lane: int
    lanes: Lanes
    mask: int
    ever: int

    def pack(self) -> int:
        """The record as 64 bits.

        >>> record = ShadowRecord(5, 1, 2, 31, Lanes.ONE, 15, 0)
        >>> unpack(record.pack()) == record
        True
        """
        return (
            self.site << SITE_AT
            | self.epoch << EPOCH_AT
            | self.agent << AGENT_AT
            | self.lane << LANE_AT
            | self.lanes << CLASS_AT
            | self.mask << MASK_AT
            | self.ever << EVER_AT
        )


def unpack(word: int) -> ShadowRecord:
    """The record in 64 bits."""
    fields = (
        (SITE_AT, SITE_BITS),
        (EPOCH_AT, EPOCH_BITS),
        (AGENT_AT, AGENT_BITS),
        (LANE_AT, LANE_BITS),
        (CLASS_AT, CLASS_BITS),
        (MASK_AT, MASK_BITS),
        (EVER_AT, EVER_BITS),
    )
    numbers = [(word >> at) & ((1 << bits) - 1) for at, bits in fields]
    site, epoch, agent, lane, lanes, mask, ever = numbers
    return ShadowRecord(site, epoch, agent, lane, Lanes(lanes), mask, ever)


def field_mask(at: int, bits: int) -> int:
    """The bits of a field of a record."""
    return ((1 << bits) - 1) << at


SITE_FIELD = field_mask(SITE_AT, SITE_BITS)
EPOCH_FIELD = field_mask(EPOCH_AT, EPOCH_BITS)
AGENT_FIELD = field_mask(AGENT_AT, AGENT_BITS)
LANE_FIELD = field_mask(LANE_AT, LANE_BITS)
CLASS_FIELD = field_mask(CLASS_AT, CLASS_BITS)
MASK_FIELD = field_mask(MASK_AT, MASK_BITS)
EVER_FIELD = field_mask(EVER_AT, EVER_BITS)

# ── how memory is accessed ──────────────────────────────────────────────────

WRITES, STRONG, READS = 1, 2, 4
"""Bits of a kind of access."""
COPY = 16
"""Added to these bits: ``cp.async`` makes the access for the lanes of a warp."""
KINDS = {
    "read": READS,
    "write": WRITES,
    "atomic": READS | WRITES | STRONG,
    "strong read": READS | STRONG,
    "strong write": WRITES | STRONG,
    "cp.async": WRITES | COPY,
}
NARROW = 32
"""Added to the bits of a strong access: its scope is the block."""
KINDS |= {
    f"narrow {kind}": bits | NARROW for kind, bits in KINDS.items() if bits & STRONG
}
VOLATILE = 64
"""Added to the bits of a strong access of shared memory: it is ``.volatile``."""
KINDS |= {
    f"volatile {kind}": KINDS[f"strong {kind}"] | VOLATILE for kind in ("read", "write")
}
"""Kinds of accesses.  Strong ones, such as ``ld.relaxed``, do not race with one
another; ``strong write`` is also for an exchange whose old value is not used."""


class Apart(IntFlag):
    """How far apart two threads are that take part in a problem.

    One entry stands for all pairs of threads with the same two instructions: it has
    the bits of all of them.
    """

    WARP = 8
    """They are in different warps."""
    BLOCK = 16
    """They are in different blocks of a cluster."""
    GROUP = 32
    """They are in different clusters, or in blocks that are in none."""


APART = int(Apart.WARP | Apart.BLOCK | Apart.GROUP)
LANES_APART_AT = 6
"""From this bit up, six bits: in which bits the numbers of two lanes of a warp differ,
if one instruction stores to one place in both; of all pairs, too."""
TWICE = 1 << 5
"""The sixth of them: they are two executions of the instruction."""
LANES_APART = (TWICE | 31) << LANES_APART_AT

# ── the head of a block ─────────────────────────────────────────────────────

HEAD_RANK = 0  #: i32: the block's rank in its cluster
HEAD_BLOCKS = 4  #: i32: blocks of the cluster
HEAD_WARPS = 8  #: i32: warps of each block
HEAD_ROW = 12  #: i32: the length of each array of a clock row
HEAD_PLANES = 16  #: i32: 2 if the async proxy has clocks, otherwise 1
HEAD_CLUSTER = 20  #: i32: how many clusters came before this one
HEAD_FIRST = 24  #: pointer to the head of the block with rank 0
HEAD_WRITES = 32  #: pointer to the records of writes, one for each word
HEAD_READS = 40  #: pointer to the records of reads
HEAD_SIZE = 48  #: i64: bytes of shared memory
HEAD_STATES = 56  #: pointer to the clocks of the block's warps
HEAD_STATE_BYTES = 64  #: i64: bytes of those of one warp
HEAD_BARRIERS = 72  #: pointer to the clocks of the 16 barriers
HEAD_BARRIER_BYTES = 80  #: i64: bytes of one clock; each barrier has two
HEAD_PROBLEMS = 88  #: pointer to the problems
HEAD_SETS = 96  #: pointer to the sets of readers
HEAD_KINDS = 104  #: 12 x i32: the first agent of each kind in AGENT_KINDS, and the end
HEAD_STRICT = 152  #: i32: 1 if rules are reported that shipped kernels break
HEAD_EXITED = 156  #: i32: 1 + the phase of barrier 0 in which threads ended; or 0
HEAD_AGENT = 160  #: i32: the agent of the block's first warp
HEAD_NOTES = 168  #: pointer to the log of notes; see shadow/notes.py
HEAD_FENCES = 176  #: pointer to the rows that plain fences of the block's warps kept
HEAD_USED = 184  #: pointer to a byte for each site: whether its mbarrier is used
HEAD_SPARE = 192  #: pointer to two rows that are free between two calls
HEAD_KEEPERS = (
    200  #: pointer to the keepers of the block's warps; see product_layout.py
)
HEAD_UNITS = 208  #: pointer to the table of units
HEAD_ASK = 216  #: pointer to Python: it adds units to the table
HEAD_FENCED = 224  #: pointer to a byte: whether the group has a proxy fence
HEAD_USES = 232  #: pointer to pointers: the uses of the launch, by number
HEAD_TASKS = 240  #: pointer to a row for each task: what its issuer knew
HEAD_ASK_COPY = 248  #: pointer to Python: it observes the issue of a copy
HEAD_TOLD = 256  #: pointer to a byte: whether the group knows of others
HEAD_MAPS = 264  #: pointer to the tensor maps that the kernel has changed
HEAD_PHASES = 272  #: pointer to the clocks of the cluster's barrier
HEAD_BOXES = 280  #: pointer to the boxes of the block; 0: no copy writes any
HEAD_JUDGED = 288  #: pointer to the operands that were judged; see box_layout.py
HEAD_ASK_LAYOUT = 296  #: pointer to Python: it judges an operand
HEAD_ASK_ROWS = 304  #: pointer to Python: it judges rows of ``ldmatrix``
HEAD_ROWS = 312  #: pointer to a byte for each site: how often its rows were looked at
HEAD_TENSOR = 320  #: pointer to what is known of tensor memory; see tensor_layout.py
HEAD_COLLIDED = 328  #: 5 x i32: what collides, the barrier, warps, count and site
HEAD_MADE = 352  #: pointer to the clocks of mbarriers (``MADE_...``)
HEAD_NEAR = 360  #: pointer to what the lanes of each warp know of one another
HEAD_STEPS = 368  #: pointer to the steps of products along k (``STEPS_...``)
HEAD_BYTES = 384

# The clocks of a warp.
STATE_EPOCH = 0  #: i32: the present epoch
STATE_ELECT = 4  #: i32: the lanes that know what the second row says
STATE_COPY_EPOCH = 8  #: i32: the epoch of the warp's ``cp.async``
STATE_COPIES = 12  #: i32: whether it has issued any in this epoch
STATE_WAITED = 16  #: i32: each lane has waited for its own ``cp.async`` before this
STATE_FENCED = 20  #: i32: whether a plain fence has kept a row, and for whom
STATE_IGNORED = 24  #: i32: lanes whose next read is not looked at
STATE_APART = 28  #: i32: the epoch after some lanes last met without the others
STATE_COMMON = 64  #: the row of the other lanes; the row of those lanes follows

NEAR_ROW = 32 * 4
"""For each lane, what it knows of its warp: 32 x i32, each lane's epochs below that."""
NEAR_BYTES = 32 * NEAR_ROW

FENCED_BLOCK, FENCED_CLUSTER = 1, 2
"""The scope of the fence that kept a row: the block, or at least the cluster."""

# The clock of a barrier.
CLOCK_PHASE = 0  #: i32: the phase it is about
CLOCK_WAITING = 4  #: i32: lanes that arrived in some phase and did not pass yet
CLOCK_USED = 8  #: i32: 1 + the phase that the next three are about
CLOCK_WARPS = 12  #: i32: the warps that arrived, of a barrier with a count
CLOCK_COUNT = 16  #: i32: the count of the first arrival
CLOCK_SITE = 20  #: i32: where that is
CLOCK_MET = 24  #: i32: 1 + the phase that the next three are about
CLOCK_MET_LINE = 28  #: i32: the line of the first arrival, of a barrier without a count
CLOCK_MET_SITE = 32  #: i32: where that is
CLOCK_MET_WARPS = 36  #: i32: the warps that arrived at that line
CLOCK_ZEROED = (CLOCK_WAITING, CLOCK_USED, CLOCK_MET)
"""Words that are 0 when a block begins."""
CLOCK_ROW = 64
COUNTS, WARPS, LINES = 1, 2, 3
"""What collides: counts of one phase that differ, warps that may come too early, or
lines of the source."""

# The clocks of the barrier of a cluster: phase x has the row x % PHASES.
PHASES = 4
PHASES_FENCED = 0  #: pointer to the records of mbarriers fenced since lanes last passed
PHASES_FENCED_COUNT = 8  #: i64: how many these are
PHASES_FENCED_ROOM = 16  #: i64: for how many there is memory
PHASES_NUMBERS = 64  #: 4 x i64: the phase that each row is about
PHASES_KNOWN = 96  #: 4 x i32: whether it holds anything
PHASES_ROWS = 128

# The clocks of the mbarriers of a cluster: two rows side by side for each place.
MBARRIERS = 64
"""Mbarriers of a block that have an agent of their own."""
MADE_COUNT = 0  #: i64: how many pairs of rows are used
MADE_ROOM = 8  #: i64: how many there are
MADE_ROWS = 16  #: pointer to the rows
MADE_PLACES = 24  #: pointer to i32: the place of each pair; the rank from bit 24
MADE_OFFSETS = 32  #: pointer to i32: where each agent's mbarrier was last, plus 1
MADE_BYTES = 64

# Tensor maps that the kernel has changed: an entry for each.
MAPS_COUNT = 0  #: i32: how many there are
MAPS_ROOM = 4  #: i32: for how many there is memory
MAPS_ACQUIRED = 8  #: i32: whether lanes have acquired any map
MAPS_FIRST = 64  #: the entries
CHANGED_ADDRESS = 0  #: i64: where the map is
CHANGED_AGENT = 8  #: i32: who has changed it
CHANGED_LANE = 12  #: i32
CHANGED_EPOCH = 16  #: i32
CHANGED_SITE = 20  #: i32
CHANGED_ACQUIRED = 24  #: i32: whether lanes have acquired it since
CHANGED_USERS = 28  #: i32: how many copies use it
CHANGED_LIST = 32  #: pointer to these copies, each 3 x i32: agent, epoch, site
CHANGED_ROOM = 40  #: i32: for how many of them there is memory
CHANGED_BYTES = 64
USER_BYTES = 12

# Sets of readers: each is a record and the set without it.
CELLS = 1 << 15
HEADS = 1 << 12
SETS_USED = 0  #: i32: the number of the last set
SETS_HEADS = 64
SETS_CELLS = SETS_HEADS + 4 * HEADS
CELL_BYTES = 16
CELL_ENTRY = 0  #: i64
CELL_REST = 8  #: i32: the set without this record, or 0
CELL_NEXT = 12  #: i32: the next set with the same hash, or 0
SETS_BYTES = SETS_CELLS + CELL_BYTES * CELLS

WARPGROUP, COUNTED, COMMITTED = "wgmma", "mbarrier", "tcgen05"
"""Agents of products, of copies for an mbarrier, and of work up to a commit."""
AGENT_KINDS = (
    "warp",
    "cp.async",
    WARPGROUP,
    COUNTED,
    "bulk-read",
    "bulk-write",
    COMMITTED,
    "tcgen05.ld",
    "tcgen05.st",
    "tcgen05.fence",
    "released",
)
MARGIN = 64
"""Words before and after a shadow, so that a whole vector can always be loaded."""


@dataclass(frozen=True)
class Plan:
    """The sizes of a cluster: its blocks, warps, agents and clocks."""

    blocks: int
    warps: int
    shared: int
    mbarriers: int
    asynchronous: bool
    tensor: bool = False
    """Whether there is tensor memory."""

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The agents of each kind in a block."""
        if not self.asynchronous:
            return (self.warps, *(len(AGENT_KINDS) - 1) * (0,))
        groups, tensor = -(-self.warps // 4), self.warps * self.tensor
        plain = (*2 * (self.warps,), groups, self.mbarriers, *2 * (self.warps,))
        return (*plain, *4 * (tensor,), self.warps)

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """The first agent of each kind, and the number of all agents."""
        found = [0]
        for each in self.counts:
            found.append(found[-1] + self.blocks * each)
        if found[-1] > MOST_AGENTS:
            raise ShapeError(
                f"{self.blocks} blocks of {self.warps} warps with {self.mbarriers} "
                f"mbarriers have {found[-1]} agents; at most {MOST_AGENTS} are watched"
            )
        return tuple(found)

    @cached_property
    def row(self) -> int:
        """The length of each array of a clock row; a multiple of 16."""
        return -(-self.firsts[-1] // 16) * 16

    @cached_property
    def planes(self) -> int:
        """The proxies that have clocks."""
        return 1 + self.asynchronous

    @cached_property
    def row_bytes(self) -> int:
        """The bytes of a clock row."""
        return 12 * self.planes * self.row

    @cached_property
    def state_bytes(self) -> int:
        """The bytes of the clocks of a warp."""
        return STATE_COMMON + 2 * self.row_bytes

    @cached_property
    def barrier_bytes(self) -> int:
        """The bytes of one clock of a barrier."""
        return CLOCK_ROW + self.row_bytes

    @cached_property
    def words(self) -> int:
        """The words of the shadow of a block, with its margins."""
        return -(-self.shared // 4) + 2 * MARGIN
