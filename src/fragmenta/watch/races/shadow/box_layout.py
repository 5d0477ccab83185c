"""Where it is noted which tensor copy wrote which lines of shared memory.

Shared memory is divided into *lines* of 128 bytes, at which all boxes begin.  For each
line there is the number of the line at which its box begins, plus 1, and for each line
at which a box begins there is a record of the box.  The *signature* of a block is a
hash of all its boxes: their layouts and where they are, not what was copied.  What
was judged once with the same signature need not be judged again.
"""

from __future__ import annotations

from typing import Final

LINE: Final = 128

# ── a block ─────────────────────────────────────────────────────────────────

BOXES_SIGNATURE: Final = 0  #: i64: a hash of all boxes; 0: there are none
BOXES_LINES: Final = 8  #: pointer to i32: where the box of each line begins, plus 1
BOXES_RECORDS: Final = 16  #: pointer to the records
BOXES_COUNT: Final = 24  #: i64: how many lines there are
BOXES_USED: Final = 32  #: i32: whether there was a box
BOXES_BYTES: Final = 64

# ── a box ───────────────────────────────────────────────────────────────────

BOX_LAYOUT: Final = 0  #: i64: the number of its layout; 0: no box begins here
BOX_SITE: Final = 8  #: i32: the copy
BOX_COPIER: Final = 12  #: i32: the warp that issued it; the rank from bit 16
BOX_COORDINATES: Final = 16  #: 5 x i64
BOX_SWIZZLE: Final = 56  #: i32: the bits of an address that the swizzle changes
BOX_PITCH: Final = 60  #: i32: bytes from one line of the box to the next
BOX_BYTES: Final = 64

# ── what was judged ─────────────────────────────────────────────────────────

JUDGED: Final = 4096
"""Hashes of operands and signatures that were judged."""
ROWS: Final = 200
"""How often the rows of each ``ldmatrix`` are looked at."""
