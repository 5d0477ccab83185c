"""The shadow of global memory: its records, the table of accesses, and the ledger.

Every word of 4 bytes that a kernel may write has three *records* of 32 bits: its last
write, its last read, and a *plain* write.  That counts only if the last write is
strong: then it is the last plain one before the strong ones.  Strong operations do not
race with one another, but each of them may race with it.

A record is ``id:23 | lane:5 | mask:4``: the mask are the bytes of the word, the id is a
line of the *table of accesses*.  That line has the group of blocks that share clocks (a
cluster), the agent, its epoch, the instruction and its kind.  A record is stored by
one instruction of the host, so that two threads of the
host never leave half of one.

Bytes of one word may be written by several lanes.  Two or four lanes of one instruction
side by side have one record: its mask is ``PAIR`` or ``QUAD``, no mask of adjacent
bytes, and its lane is the last of them.  For all others the record is negative: it
names a line of the *table of split words*, with a record for each byte.  Reads have
none of these: of several lanes that read bytes of a word, the last is remembered.

A *ledger* has the pointers to all of that; each block has one.
"""

from __future__ import annotations

from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

from fragmenta.ptx.ordering import Scope

WORD = 4
LANE_BITS, MASK_BITS = 5, 4
ID_SHIFT = LANE_BITS + MASK_BITS
MOST_ACCESSES = 1 << 22
"""How many lines the table of accesses has.  So no record has its highest bit set:
NumPy would take it for a sign."""

NOTHING, SEVERAL, SEVERAL_STRONG, FIRST_ID = 0, 1, 2, 3
"""Ids that are no line of the table: no access; several groups have read these bytes,
at least one of them by a plain load; the same, all by strong loads."""

PAIR, QUAD = 0b0101, 0b1010
"""Masks of a write: two bytes or one byte of each of several lanes, up to this one."""
SPLIT = -(1 << 31)
"""The bit of a record whose other bits, from ``MASK_BITS`` up, are a split word."""
MOST_SPLIT = 1 << 22
"""How many lines the table of split words has."""

# ── a ledger ────────────────────────────────────────────────────────────────

SHADOWS = 0  #: pointer to the shadows of each slot
TABLE = 8  #: pointer to the table of accesses
NEXT = 16  #: pointer to an i32: the first line that is free
LIMIT = 24  #: i32: how many lines there are
CLUSTERED = 28  #: i32: 1 if GROUP is the group; otherwise it is the number of the block
GROUP = 32  #: i32
FOREIGN = 40  #: pointer to what the group knows of other groups
FOREIGN_OF = 48  #: i64: the group that this is true for; -1: none
STAMPS = 56  #: pointer to when warps first acquired: their number, then stamps
FULL = 64  #: i32: 1 after an access found no free line
UPDATED = 68  #: i32: 1 after an atomic operation changed a word that was read before
SPLITS = 72  #: pointer to the table of split words: four records each
NEXT_SPLIT = 80  #: pointer to an i32: the first of its lines that is free
SPLIT_LIMIT = 88  #: i32: how many lines it has
CACHE = 128  #: lines that were used last: group and epoch, warp and site, id
CACHE_LINES = 1024
CACHE_BYTES = 16
LEDGER_BYTES = CACHE + CACHE_LINES * CACHE_BYTES

SHADOW_BYTES = 32
"""The shadows of a slot, i64 each: pointers to the records of writes, to those of
reads, to a byte for each byte that is 1 until it is written, and to the records of
plain writes before strong ones."""

ENTRY = np.dtype(
    [("group", "i4"), ("agent", "u2"), ("flags", "u2"), ("epoch", "i4"), ("site", "i4")]
)
"""A line of the table of accesses."""

STAMP_BYTES, MOST_STAMPS = 16, 15
"""A stamp, i32 each: agent, epoch, its lanes and the first of them.  There are no lanes
if they have to pass a barrier before they are informed themselves.  The number of
stamps is -1 if there were too many: then every thread counts as informed."""


class Flags(IntFlag):
    """What kind of access it is."""

    STRONG = 1
    """Relaxed, volatile, ordered or atomic: two of these are no race."""
    ATOMIC = 2
    CTA = 4
    """Its scope is the block only."""
    WRITE = 8
    ASYNC = 16
    """By the copy engine, or another agent that is not a thread."""
    CLUSTER = 32
    """Its scope is the cluster only."""


SCOPES = {Scope.CTA: Flags.CTA, Scope.CLUSTER: Flags.CLUSTER}
"""The flag of a scope that does not include the whole GPU."""
NARROW = Flags.CTA | Flags.CLUSTER
"""Both of them."""


def composite(records: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which records of writes are those of several lanes."""
    masks = records & 0b1111
    return np.asarray((records < 0) | (masks == PAIR) | (masks == QUAD))


def record(number: int, lane: int, mask: int) -> int:
    """A record.

    >>> hex(record(3, 31, 0b1111))
    '0x7ff'
    """
    return number << ID_SHIFT | lane << MASK_BITS | mask
