"""Where the state of the units is in memory.

A *cluster* has a record that its blocks share.  A *block* has one with pointers to the
cluster, to the shared memories, and to its mbarriers.  The mbarrier at byte ``x`` of
shared memory has the record ``x // 8``: most of that memory is never touched, and the
system gives it only when it is.

An *event* has a record that is the same for all warps: which instruction it is, and
where its operands are.
"""

from __future__ import annotations

from typing import Final

# ── a cluster ───────────────────────────────────────────────────────────────

CLUSTER_TIME: Final = 0  #: i64: how many events there were
CLUSTER_CHANGES: Final = 8  #: i64: how often something happened that lanes wait for
CLUSTER_IMPATIENT: Final = 16  #: i32: whether waits return without success
CLUSTER_SCHEDULE: Final = 20  #: i32: EAGER, LAZY or RANDOM
CLUSTER_PENDING: Final = 24  #: i32: pieces of work in flight that Python made
CLUSTER_BLOCKS: Final = 28  #: i32: how many blocks
CLUSTER_PYTHON: Final = 32  #: pointer to the function that carries out any event
CLUSTER_EVENTS: Final = 40  #: pointer to the records of events
CLUSTER_PORT: Final = 48  #: pointer to the observer's functions; 0: nobody observes
CLUSTER_ORDINAL: Final = 56  #: i64: how many pieces of work were put in flight
CLUSTER_PEERS: Final = 64  #: 16 pointers to the states of the blocks
CLUSTER_ENDED: Final = 192  #: i32: the blocks that have ended, by rank
CLUSTER_TASKS: Final = 200  #: pointer to the pool of tasks (``task_layout``)
CLUSTER_MAPS: Final = 208  #: pointer to the table of tensor maps
CLUSTER_BARRIER: Final = 216  #: pointer to the barrier of the cluster
CLUSTER_WAKES: Final = 224  #: i64: how often waiting lanes were let go on
CLUSTER_NUMBER: Final = 232  #: i64: which cluster of the grid it is
CLUSTER_TOUCHED: Final = 240  #: i32: whether Python had a part in it since it began
CLUSTER_HASTY: Final = 244  #: i32: whether the first wait for a phase gives up at once
CLUSTER_TRACE: Final = 248  #: pointer to the function of a recorder; 0: nobody records
CLUSTER_FAIR: Final = 256  #: i32: whether warps give way at waits (``units.fairness``)
CLUSTER_BYTES: Final = 320

EAGER, LAZY, RANDOM = 0, 1, 2

# ── clusters that run one after the other ───────────────────────────────────

RUN_STATUS: Final = 0  #: i32: a ``Status``; READY: Python has to end the cluster
RUN_ROUNDS: Final = 4  #: i32: how many more rounds of turns before Python has its turn
RUN_GOES_ON: Final = 8  #: i32: whether a cluster goes on that has used its turns
RUN_FAILED: Final = 12  #: i32: the rank of the block that failed
RUN_QUEUE: Final = 16  #: pointer to the queue of clusters to run
RUN_HALT: Final = 24  #: pointer to an i32 that is not 0 if all should stop
RUN_CLUSTER: Final = 32  #: pointer to the cluster
RUN_INDEX: Final = 40  #: i64: the cluster that runs, or that was run last
RUN_BEGIN: Final = 48  #: pointer to what is renewed when a cluster begins
RUN_BEGIN_COUNT: Final = 56  #: i64: how many entries that has
RUN_END: Final = 64  #: pointer to what has to be clean when it ends
RUN_END_COUNT: Final = 72  #: i64
RUN_LEAKS: Final = 80  #: i32: whether copies matter that nobody has waited for
RUN_SPENT: Final = 84  #: i32: whether turns were used up in the last round; in an
#: order of warps, the status of the turns
RUN_CHANGED: Final = 88  #: i32: whether something happened in it
RUN_ENDED: Final = 92  #: i32: the blocks that ended in it, by rank
RUN_ORDER: Final = 96  #: pointer to the order of warps; 0: round robin
RUN_QUOTA: Final = 104  #: i32: turns of an order before Python looks
RUN_TRACED: Final = 108  #: i32: clusters in the list of traces
RUN_TRACES: Final = 112  #: pointer to (i64 cluster, i64 end of its turns) for each
RUN_ROOM: Final = 120  #: i64: clusters that the list has room for
RUN_GRID: Final = 128  #: 3 x i64: the blocks of the grid along x, y and z
RUN_SHAPE: Final = 152  #: 3 x i64: the blocks of a cluster
RUN_FIRST: Final = 176  #: i32: whether Python keeps the first cluster of the grid
CLEAN_FIRST: Final = 2
"""What RUN_FIRST is if it has ended, and Python has to do nothing else."""
RUN_BYTES: Final = 192

RENEW_KIND: Final = 0  #: i64: one of the kinds below
RENEW_GOAL: Final = 8  #: pointer to what is renewed
RENEW_SOURCE: Final = 16  #: pointer to what it is then; or a number
RENEW_SIZE: Final = 24  #: i64: bytes
RENEW_COUNT: Final = 32  #: i64: how often
RENEW_STEP: Final = 40  #: i64: how far apart the goals are
RENEW_WHEN: Final = 48  #: pointer to an i64: nothing happens if it is 0; or 0
RENEW_BYTES: Final = 64

CLEAR, COPY, NUMBER, COUNT, LIST, LOOKUP = range(6)
"""Bytes become 0; those of the source; an i64 becomes the cluster's number plus the
source; an i32 is counted up; the cluster is written into a list of i64, at the place
before the one that an i32 at the source says; an i64 becomes that of a list at the
source, at the place that is the cluster's number."""

CLEAN_AT: Final = 0  #: pointer to some words
CLEAN_LIKE: Final = 8  #: pointer to words that must be the same; 0: they must be 0
CLEAN_WORDS: Final = 16  #: i64: how many words of 32 bits
CLEAN_BYTES: Final = 32

# ── a block ─────────────────────────────────────────────────────────────────

STATE_CLUSTER: Final = 0  #: pointer to the cluster
STATE_MBARRIERS: Final = 8  #: pointer to the records of mbarriers
STATE_SHARED: Final = 16  #: pointer to shared memory
STATE_SHARED_SIZE: Final = 24  #: i64: its bytes, those of the system included
STATE_RANK: Final = 32  #: i32
STATE_WARPS: Final = 36  #: i32: how many warps
STATE_BLOCK: Final = 40  #: pointer to the memory of the block (``BLOCK_...``)
STATE_WARPGROUPS: Final = 56  #: pointer to the records of warpgroups
STATE_TENSOR: Final = 64  #: pointer to its tensor memory (``tensor_layout``); 0: none
STATE_STORES: Final = 72  #: pointer to i32 for each warp: Python's stores in flight
STATE_THREADS: Final = 80  #: pointer to what each thread issued to the Tensor Cores
STATE_MADE: Final = 88  #: pointer to i32: where its mbarriers are, in their order
STATE_MADE_COUNT: Final = 96  #: i32: how many there are
STATE_MADE_EVER: Final = 100  #: i32: how many were made so far
STATE_REGISTERS: Final = 104  #: pointer to the registers of warps (``REGISTERS_...``)
STATE_START: Final = 112  #: i32: registers of a thread at first; 0: nobody counts
STATE_SURPLUS: Final = 116  #: i32: how many more the warps have, added up
STATE_SHORT: Final = 120  #: i32: the same if it is above 0, otherwise 0
STATE_QUEUES: Final = 200  #: pointer to the groups of bulk copies (``task_layout``)
STATE_LANE_QUEUES: Final = 208  #: pointer to the groups of ``cp.async``
STATE_BYTES: Final = 256

REGISTERS_EVENT: Final = 0  #: i32: the last ``setmaxnreg`` of a warp, plus 1; 0: none
REGISTERS_SURPLUS: Final = 4  #: i32: how many more registers its threads have then
REGISTERS_BYTES: Final = 8

# ── an mbarrier ─────────────────────────────────────────────────────────────

MBARRIER_ALIVE: Final = 0  #: i32: whether there is one
MBARRIER_SLOT: Final = 4  #: i32: its number among those of the block
MBARRIER_EXPECTED: Final = 8  #: i32: arrivals of a phase
MBARRIER_PENDING: Final = 12  #: i32: arrivals that are missing
MBARRIER_TX: Final = 16  #: i32: bytes that are missing
MBARRIER_WORK: Final = 20  #: i32: pieces of Python's work in flight that it counts
MBARRIER_PHASE: Final = 24  #: i64: phases that are over
MBARRIER_TASKS: Final = 32  #: i32: tasks of machine code in flight that it counts
MBARRIER_FLAGS: Final = 36  #: i32: FENCED and PUBLIC
MBARRIER_OBSERVED: Final = 40  #: i64: the last phase whose end lanes have seen
MBARRIER_COPIED: Final = 48  #: i64: the last phase that counts a copy
MBARRIER_COPIER: Final = 56  #: i32: the warp of that copy, plus 1; its rank from bit 16
MBARRIER_COPY_SITE: Final = 60  #: i32: its instruction
MBARRIER_BIRTH: Final = 64  #: 4 x i32: who made it: agent, lane, epoch, site
MBARRIER_AGAIN: Final = 80  #: i32: whether an mbarrier was here before
MBARRIER_KNOWN: Final = 84  #: i32: whether the clock of this phase holds anything
MBARRIER_KNOWN_LAST: Final = 88  #: i32: the same of the last phase
MBARRIER_PLACE: Final = 92  #: i32: the offset in shared memory; the rank from bit 24
MBARRIER_AGENT: Final = 96  #: i32: the observer's name for the copies that it counts
MBARRIER_REMOTE: Final = 100  #: i32: whether threads of other blocks have arrived
MBARRIER_CLOCK: Final = 104  #: pointer to the observer's clock of this phase
MBARRIER_CLOCK_LAST: Final = 112  #: the same of the last phase
MBARRIER_CLOCKS: Final = 120  #: pointer to both clocks; it stays for the next one here
MBARRIER_WAITING: Final = 128  #: 32 x i32: the phase that each warp waits for, plus 1
MBARRIER_SEEN: Final = 256  #: 32 x i32: the last phase that each takes for over, plus 1
MBARRIER_DRIVER: Final = 384  #: i32: the warp that ended the last phase, as COPIER
MBARRIER_HELD: Final = 388  #: i32: the phase after which that warp gave way, plus 1
MBARRIER_HELD_COUNT: Final = 392  #: i32: how often it did
MBARRIER_WAITED: Final = (
    512  #: 32 x i32: when each warp last saw the end of a phase: the
)
#: observer's epoch, plus 1
MBARRIER_BYTES: Final = 640
MBARRIER_WARPS: Final = 32
"""The most warps of a block."""
PATIENCE: Final = 64
"""How often a warp gives way after one phase: others may never come to a wait."""

FENCED, PUBLIC = 1, 2
MARK: Final = 0x6D62617272696572
"""XORed with the bits, so that zeros in memory are not taken for an intact mbarrier."""
MOST: Final = (1 << 20) - 1
"""The most arrivals, and the most bytes above or below zero."""

# ── a warpgroup ─────────────────────────────────────────────────────────────
#
# Products are numbered from 0 in the order in which they are issued.  Product x is in
# the record ``x % capacity`` of the queue, from its first issue until it has run.

GROUP_READY: Final = 0  #: i32: whether Python has made it, and it has four warps
GROUP_NUMBER: Final = 4  #: i32: its number in the block
GROUP_QUEUE: Final = 8  #: pointer to the records of products
GROUP_CAPACITY: Final = 16  #: i32: how many these are, a power of 2
GROUP_QUEUED: Final = 20  #: i32: products that at least one warp has issued
GROUP_RAN: Final = 24  #: i32: products that have run
GROUP_PYTHON: Final = 28  #: i32: products in flight that Python has as work
GROUP_LAST_SITE: Final = 32  #: i32: the instruction that was issued last
GROUP_ENDS_COUNT: Final = 36  #: i32: groups that at least one warp has committed
GROUP_ENDS: Final = 40  #: pointer to i32: how many products were issued at their ends
GROUP_ENDS_CAPACITY: Final = 48  #: i32: how many ends there is memory for
GROUP_BOUND_COUNT: Final = 52  #: i32: how many forms there are pointers for
GROUP_BOUND: Final = 56  #: pointer to pointers: the bound forms by number; 0: not yet
GROUP_ISSUED: Final = 64  #: 4 x i32: products that each warp has issued
GROUP_COMMITTED: Final = 80  #: 4 x i32: groups that each warp has committed
GROUP_RETIRED: Final = 96  #: 4 x i32: products that each warp has waited for
GROUP_HELD: Final = 112  #: 4 x i32: the product at which each is held, plus 1; 0: none
GROUP_WARPS: Final = 128  #: 4 pointers to the memory of the warps
GROUP_BYTES: Final = 192

PRODUCT_FORM: Final = 0  #: pointer to the form
PRODUCT_DESCRIPTORS: Final = 8  #: 2 x i64: that of A, if A is in memory; then that of B
PRODUCT_SCALE_D: Final = 24  #: i64: whether the old D is added
PRODUCT_SELECTOR: Final = 32  #: i64: the sparsity selector
PRODUCT_NUMBER: Final = 40  #: i32: its number in the warpgroup
PRODUCT_GROUP: Final = 44  #: i32: the group that the next commit closes
PRODUCT_WARPGROUP: Final = 48  #: i32: the number of the warpgroup in the block
PRODUCT_SITE: Final = 52  #: i32: the instruction, as the first warp issued it
PRODUCT_ISSUED: Final = 56  #: i32: how many warps have issued it
PRODUCT_STATUS: Final = 60  #: i32: why it could not run; 0: nothing is wrong
PRODUCT_ORDINAL: Final = 64  #: i64: its place among all work in flight, plus 1; 0: none
PRODUCT_WARP: Final = 72  #: i32: the warp that issued it last
PRODUCT_DONE: Final = 76  #: i32: whether an observer has written D, to the last bit
PRODUCT_BYTES: Final = 128

# A form is the same for all blocks of a launch.  Python makes it at its first use.
FORM_FUNCTION: Final = 0  #: pointer to the machine code of the product
FORM_NUMBER: Final = 8  #: i32: its number in the launch
FORM_A_SHARED: Final = 12  #: i32: whether A is in shared memory
FORM_D: Final = 16  #: pointer to i64: the places of the registers of D in a warp
FORM_D_COUNT: Final = 24  #: i32: how many these are
FORM_INPUT_COUNT: Final = 28  #: i32: registers of A and metadata
FORM_INPUTS: Final = 32  #: pointer to i64: the places of these; -1: a constant
FORM_DESCRIPTORS: Final = 40  #: 2 x (i64 place or -1, i64 constant)
FORM_SCALE_D: Final = 72  #: i64: the place of the predicate, or -1
FORM_SCALE_D_CONSTANT: Final = 80  #: i32
FORM_SCALE_D_NEGATED: Final = 84  #: i32
FORM_SELECTOR: Final = 88  #: i64: the sparsity selector
FORM_KNOWN: Final = 96  #: 2 pointers to KNOWN x i64: descriptors that are in bounds
FORM_OBSERVER: Final = 112  #: pointer to what the observer keeps of the form
FORM_IN_PLACE: Final = 120  #: i32: whether D may be computed where the warps have it
FORM_BYTES: Final = 128

KNOWN: Final = 256
"""Descriptors of an operand that are remembered, by a hash; 0 is none."""
PROBES: Final = 4
"""How many places a descriptor may be at."""
HASH: Final = 0x9E3779B97F4A7C15

# A bound form is a form in one warpgroup, with memory of its own.
BOUND_BUNDLE: Final = 0  #: pointer to the bundle
BOUND_INPUTS: Final = 8  #: pointer to u32 (register, 128 lanes): A, then metadata
BOUND_METADATA: Final = 16  #: pointer to the metadata in it
BOUND_BYTES: Final = 64

# A bundle is the values of a D.  All forms with the same D share it.
BUNDLE_VALUES: Final = 0  #: pointer to u32 (register, 128 lanes)
BUNDLE_PENDING: Final = 16  #: 4 x i32: products that each warp issued and that hide D
BUNDLE_BYTES: Final = 64

# ── an observer ─────────────────────────────────────────────────────────────

PORT_USED: Final = 0  #: an mbarrier is about to be used: whether nothing is wrong
PORT_RELEASE: Final = 8  #: lanes arrive at an mbarrier
PORT_ACQUIRE: Final = 16  #: lanes have seen that a phase of an mbarrier is over
PORT_STALL: Final = 24  #: lanes begin to wait for a phase of an mbarrier
PORT_PHASE: Final = 32  #: a phase of an mbarrier is over
PORT_FENCE: Final = 40  #: a fence, or an instruction of all lanes together (warpgroup)
PORT_TOUCH: Final = 48  #: a warp issues a product (form, number): is nothing wrong?
PORT_PRODUCT: Final = 56  #: a product is in flight (product)
PORT_MULTIPLIED: Final = 64  #: a warp has waited for products (warpgroup, first group)
PORT_COPY: Final = 72  #: a copy is in flight; the record of the task
PORT_COPIED: Final = 80  #: a copy is done, and about to write; the task
PORT_SIGNAL: Final = 88  #: it signals; the task, and where the mbarrier's record is
PORT_GROUP: Final = 96  #: lanes waited; their groups, and the first not waited for
PORT_ARRIVE: Final = 104  #: lanes arrive at the barrier of the cluster, and its phase
PORT_PASS: Final = 112  #: lanes pass the barrier of the cluster, and the phase
PORT_LANES: Final = 120  #: lanes waited for ``cp.async``; their groups, and the epoch
ENDS: Final = -1  #: instead of a place: the mbarrier is ended
NEW_EPOCH: Final = -1  #: instead of the epoch: a new one begins
MADE_AT_ONCE: Final = -2  #: a group closes: add what was copied without an event
PORT_PROXY: Final = 128  #: lanes execute ``fence.proxy.async``
PORT_MOVE: Final = 136  #: a warp loads or stores cells (entry, column): is it well?
PORT_MOVED: Final = 144  #: a warp has waited for its loads, or for its stores
PORT_TENSOR: Final = 152  #: a product of tcgen05 (its record): is nothing wrong?
PORT_TENSOR_ISSUED: Final = 160  #: it is in flight
PORT_COMMIT_ROOM: Final = 168  #: a commit is about to be issued: is nothing wrong?
PORT_COMMIT: Final = 176  #: it is in flight; the task, and whether it covers work
PORT_TENSOR_FENCE: Final = 184  #: ``tcgen05.fence``
PORT_MAKE: Final = (
    192  #: an mbarrier is about to be made, at a place, or ended (ENDS): may it?
)
PORT_CHANGE_MAP: Final = 200  #: a tensor map at an address is changed: may it be?
PORT_ACQUIRE_MAP: Final = 208  #: lanes acquire the tensor map at an address
PORT_MADE: Final = 216  #: an mbarrier was made, or is none any more
PORT_INIT_FENCE: Final = 224  #: lanes execute ``fence.mbarrier_init``: may they?
PORT_PAIR: Final = 232  #: a copy may signal in the other block; only Python watches it
PORT_BYTES: Final = 256
"""Pointers to functions, all of one type: block, warp, event, lanes, a record that the
call is about, a number; the result counts only where something is asked.  Block, warp,
event and lanes of a copy are those that issued it.  At a wait for groups, the flags of
the event say whether the sources had to be read only.  For groups of ``cp.async``, the
number is the first epoch that was not waited for; -1 if a new epoch begins."""

# ── a recorder ──────────────────────────────────────────────────────────────

NOTE_MBARRIER, NOTE_WAITED = 0, 1
NOTE_ISSUED, NOTE_HIDDEN, NOTE_DONE = 2, 3, 4
NOTE_PRODUCT, NOTE_RAN, NOTE_HELD, NOTE_MULTIPLIED = 5, 6, 7, 8
NOTE_GROUP, NOTE_LANES, NOTE_ARRIVED, NOTE_PASSED = 9, 10, 11, 12
NOTE_EVENT, NOTE_LOADED, NOTE_MOVED, NOTE_FAILED = 13, 14, 15, 16
"""What a recorder is told, after it has happened: block, warp, event, lanes, one of
these, a record that it is about, and a number.  The bits of an mbarrier were written;
lanes have seen that a phase of one is over (the phase).  A task is in flight (the epoch
of its groups); it has hidden what it will write; it has written.  A product of a
warpgroup is in flight; it has run, or could not be computed and has left anything in D
(its warpgroup); a warp is held at one (its form);
a warp has waited for groups of products.  Lanes have waited for groups of bulk copies,
or of ``cp.async`` (the first epoch that they did not wait for); they have arrived at
the barrier of the cluster, or passed it (the phase).  Any event begins, if somebody
observes: problems have the numbers of events.  A warp has loaded cells of tensor memory
(the record of the event), or has waited for its loads or stores."""

# ── an event ────────────────────────────────────────────────────────────────

EVENT_HANDLER: Final = 0  #: pointer to the fast path; 0: there is none
EVENT_NUMBER: Final = 8  #: i32
EVENT_SITE: Final = 12  #: i32: the instruction
EVENT_FLAGS: Final = 16  #: i32: words of the instruction; each fast path has its own
EVENT_COUNT: Final = 20  #: i32: how many operands
EVENT_FORM: Final = 24  #: pointer to more about the instruction; 0: not known yet
EVENT_OPERANDS: Final = 64  #: operands
OPERANDS: Final = 14
OPERAND_BYTES: Final = 32
EVENT_BYTES: Final = EVENT_OPERANDS + OPERANDS * OPERAND_BYTES

OPERAND_KIND: Final = 0  #: i32: NOTHING, CONSTANT, REGISTER or PREDICATE
OPERAND_BITS: Final = 4  #: i32: of a register 8 to 64; whether a predicate is negated
OPERAND_PLACE: Final = 8  #: i64: the offset in the warp, or the number
OPERAND_ADDED: Final = 16  #: i64: added to it; an address has 32 or 64 bits
OPERAND_RANKED: Final = 24  #: i32: whether the rank of the block is added
OPERAND_WRAPS: Final = 28  #: i32: whether the sum has 32 bits

NOTHING, CONSTANT, REGISTER, PREDICATE = range(4)

RELAXED: Final = 1 << 16
"""In the flags of every event: ``.relaxed``, which an observer reads."""
