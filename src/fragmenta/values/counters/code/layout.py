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
SITE_ON = 64  #: lanes for which a comparison is true, or that a guard lets do it
SITE_OFF = 72  #: the other lanes
SITE_MADE = 80  #: lanes that made a result
SITE_SUM = 88  #: the sum of their results, each as a number of 32 bits
SITE_SQUARES = 96  #: the sum of the squares
SITE_APART = 104  #: lanes whose result is not that of its first part alone, ...
SITE_APART_NEXT = 112  #: ... and not that of its second part alone
SITE_BYTES_EACH = 120
"""The size of a record."""
WAYS = frozenset(["on", "off"])
VALUES = ("made", "sum", "squares", "apart", "apart_next")
"""The numbers of sites that say how conditions went, and which results there were."""
FIELDS = (
    "requests",
    "sectors",
    "shared",
    "passes",
    "least",
    "bytes",
    "threads",
    "products",
    "on",
    "off",
    *VALUES,
)
"""The names of the numbers of a record, in their order."""

SECTOR = 32
"""Bytes of a sector of global memory."""
FOOTPRINT_READ = 0  #: pointer to a byte for each sector: whether it was read
FOOTPRINT_WRITTEN = 8  #: the same: whether it was written
FOOTPRINT_SECTORS = 16  #: how many sectors the segment has
FOOTPRINT_BYTES = 24
"""The size of the record of a segment."""
