"""Where the race detector keeps what it knows of ``wgmma``, in memory.

A *keeper* knows the registers of one warp: the products in flight, and those since the
last ``wgmma.fence``.  A *use* is what one instruction means for that: its registers,
and which other instructions it may follow.  *Units* are the bytes of shared memory that
a descriptor names, by instruction and descriptor.
"""

from __future__ import annotations

from typing import Final

# ── a keeper ────────────────────────────────────────────────────────────────

KEEPER_FENCED: Final = 0  #: i32: whether there was a fence, or that was reported
KEEPER_RECENT: Final = 4  #: i32: whether there was one since the last wait
KEEPER_ISSUED: Final = 8  #: i32: how many products the warp has issued
KEEPER_FIRST: Final = 12  #: i32: how many of them it has waited for
KEEPER_SINCE_COUNT: Final = 16  #: i32: different products since the last fence
KEEPER_CAPACITY: Final = (
    20  #: i32: how many of either there is memory for; a power of 2
)
KEEPER_FLIGHTS: Final = 24  #: pointer to PAIRs: product x is at ``x % capacity``
KEEPER_SINCE: Final = 32  #: pointer to PAIRs
KEEPER_TOUCHED: Final = 40  #: pointer to a byte for each register: how it was used
KEEPER_BUSY: Final = 48  #: the same: what it is for products in flight
KEEPER_SIZE: Final = 56  #: i64: how many bytes these are, of each
KEEPER_BYTES: Final = 64

PAIR_USE: Final = 0  #: i32: the number of the use
PAIR_SITE: Final = 4  #: i32: where the product is
PAIR_BYTES: Final = 8

# ── a use ───────────────────────────────────────────────────────────────────

USE_NUMBER: Final = 0  #: i32
USE_COUNT: Final = 4  #: i32: its registers
USE_ORDERED_COUNT: Final = 8  #: i32: those that a fence is about
USE_SUMS_COUNT: Final = 12  #: i32: its accumulators
USE_PLACES: Final = 16  #: pointer to i32: the bytes of its registers in a keeper
USE_ROLES: Final = 24  #: pointer to i8: what each of them is
USE_ORDERED: Final = 32  #: pointer to i32: the bytes of those that a fence is about
USE_SUMS: Final = 40  #: pointer to i32: the bytes of its accumulators
USE_FITS: Final = 48  #: pointer to i8: FINE if it may follow that use without a fence
USE_APART: Final = 56  #: pointer to i8: FINE if that use may be in flight
USE_BYTES: Final = 64

MOVED, COMPUTED, READ = 1, 2, 4
"""How a register was used since the last fence; READ is for accumulators only."""
MOST_USES: Final = 512
"""Instructions of a launch that compiled code looks at; Python looks at the others."""
FINE: Final = 1
"""Python has compared two uses, and found nothing wrong."""

# ── units ───────────────────────────────────────────────────────────────────

UNITS_OF: Final = 0  #: i64: twice the number of the use, plus 1 for B, plus 2
UNITS_KEY: Final = 8  #: i64: the descriptor, in the first repeat of its swizzle
UNITS_COUNT: Final = 16  #: i64
UNITS_STARTS: Final = 24  #: pointer to i32: where each unit begins
UNITS_BYTES: Final = 32
UNITS: Final = 1024
"""Places in the table of an observer."""
UNITS_PROBES: Final = 8
"""How many of them a descriptor may be at."""

# ── steps along k ───────────────────────────────────────────────────────────

STEPS_CHAINS: Final = 0  #: pointer to the chains of the block's warpgroups
STEPS_JUDGED: Final = 8  #: pointer to STEPS_KNOWN x i64: steps that were judged
STEPS_ASK: Final = 16  #: pointer to Python: it judges a step
STEPS_ZERO: Final = (
    24  #: pointer to i32 for each warp: whether D was 0 before its product
)
STEPS_BYTES: Final = 64
STEPS_KNOWN: Final = 4096
CHAINS: Final = 8
"""Chains of a warpgroup: products that add to the same registers, one after another."""

CHAIN_PLACE: Final = 0  #: i64: where D begins in a warp, plus 1; 0: no chain
CHAIN_GROUP: Final = 8  #: i64: the group of the last product
CHAIN_USE: Final = 16  #: i64: its use
CHAIN_SITE: Final = 24  #: i64
CHAIN_OLD_USE: Final = 32  #: i64: the use of the product before it
CHAIN_OLD_SITE: Final = 40  #: i64
CHAIN_OLD: Final = 64  #: 2 x PART: its A and B
CHAIN_NOW: Final = 224  #: 2 x PART: A and B of the last product
CHAIN_BYTES: Final = 384

PART_WORD: Final = 0  #: i64: the descriptor
PART_LINE: Final = (
    8  #: i64: the line at which its box begins, plus 1; 0: it is in no box
)
PART_LAYOUT: Final = 16  #: i64: the number of the box's layout
PART_SITE: Final = 24  #: i64: the copy
PART_COORDINATES: Final = 32  #: 5 x i64
PART_BYTES: Final = 80
