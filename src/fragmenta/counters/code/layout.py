"""Where the counters of a context are: 64-bit numbers in one piece of memory.

First come those of the whole launch, then one for each code block, then a record for
each site.
"""

from __future__ import annotations

FOOTPRINTS = 0  #: pointer to the table of footprints
PREDICATED_OFF = 8  #: lanes that a guard excluded, of all instructions
DIVERGENT = 16  #: branches that lanes of a warp left in both ways
HEAD = 64
"""Bytes before the counters of code blocks, which count executing lanes."""

SITE_REQUESTS = 0  #: accesses of global memory by a warp
SITE_SECTORS = 8  #: sectors of 32 bytes that these touch
SITE_SHARED = 16  #: accesses of shared memory by a warp
SITE_PASSES = 24  #: the passes of these
SITE_LEAST = 32  #: the passes that they need at least
SITE_BYTES = 40  #: bytes of bulk copies
SITE_THREADS = 48  #: lanes that took part
SITE_PRODUCTS = 56  #: products of tensor memory
SITE_BYTES_EACH = 64
"""The size of a record."""
FIELDS = (
    "requests",
    "sectors",
    "shared",
    "passes",
    "least",
    "bytes",
    "threads",
    "products",
)
"""The names of the numbers of a record, in their order."""

SECTOR = 32
"""Bytes of a sector of global memory."""
FOOTPRINT_READ = 0  #: pointer to a byte for each sector: whether it was read
FOOTPRINT_WRITTEN = 8  #: the same: whether it was written
FOOTPRINT_SECTORS = 16  #: how many sectors the segment has
FOOTPRINT_BYTES = 24
"""The size of the record of a segment."""
