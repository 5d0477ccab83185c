"""Where the race detector keeps what it knows of tensor memory.

An *access* is an instruction that reads or writes cells.  Each cell has the number of
its last write.  Reads are listed with the *region* that they read: some lanes, and
adjacent columns of a block.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from fragmenta.watch.races.shadow.layout import COMMITTED

REGION = np.dtype(
    [
        ("rank", "i4"),
        ("start", "i4"),
        ("stop", "i4"),
        ("there", "i4"),  # whether there is one
        ("lanes", "u8", 2),  # a bit for each
    ]
)
ACCESS = np.dtype(
    [
        ("kind", "i4"),
        ("rank", "i4"),
        ("warp", "i4"),
        ("lane", "i4"),
        ("agent", "i4"),
        ("epoch", "i4"),
        ("issuer", "i4"),
        ("issued", "i4"),
        ("number", "i4"),
        ("site", "i4"),
        ("threads", "i4"),
        ("m", "i4"),  # of a product; otherwise 0
        ("n", "i4"),
        ("unused", "i4", 3),
        ("form", REGION, 2),  # D of a product, in each block that has it
    ]
)
READ = np.dtype([("access", ACCESS), ("where", REGION)])
COMMIT = np.dtype(
    [("agent", "i4"), ("lane", "i4"), ("epoch", "i4"), ("place", "i4"), ("phase", "i8")]
)
"""A commit: its agent and lane, the epoch of the work, the mbarrier and its phase."""
KINDS = ("ld", "st", "mma", "cp", "shift", "dealloc")
"""Kinds of accesses; a record has the number."""
AGENTS = (COMMITTED, "tcgen05.ld", "tcgen05.st")
"""Agents of warps that have periods, in this order."""

WATCH_PERIODS: Final = 0  #: pointer to i32: the epochs of AGENTS, for each warp
WATCH_NUMBERS: Final = 8  #: pointer to i32: how many accesses each warp has issued
WATCH_CELLS: Final = 16  #: pointer to i32: the last write of each cell, plus 1
WATCH_WRITES: Final = 24  #: pointer to accesses
WATCH_WRITES_COUNT: Final = 32  #: i64
WATCH_WRITES_ROOM: Final = 40  #: i64: how many there is memory for
WATCH_READS: Final = 48  #: the same three for reads
WATCH_READS_COUNT: Final = 56
WATCH_READS_ROOM: Final = 64
WATCH_COMMITS: Final = 72  #: the same three for commits
WATCH_COMMITS_COUNT: Final = 80
WATCH_COMMITS_ROOM: Final = 88
WATCH_IDLE: Final = 96  #: pointer to i32 for each block: who committed nothing
WATCH_GROUP: Final = 104  #: i32: the ``.cta_group`` of the kernel; 0: not known yet
WATCH_GROUP_SITE: Final = 108  #: i32: the instruction that has it
WATCH_BYTES: Final = 128

ROOM: Final = 4096
"""How many records of each kind there is memory for at first."""
MARGIN: Final = 8
"""How many places compiled code leaves free in a list."""


def offset(of: np.dtype[np.void], *names: str) -> int:
    """Where a field of a record is.

    >>> offset(READ, "where", "start")
    132
    """
    found = 0
    for name in names:
        assert of.fields is not None
        of, place = of.fields[name][:2]
        found += place
    return found
