"""Where the shadow of a block has what: a block whose memories are planes.

There is one for each plane.  It begins like a block, so that the routines of loads and
stores find its memories.  Then come the fields below, then its warps.
"""

from __future__ import annotations

from fragmenta.engine.simt import layout

NEXT = layout.BLOCK_BYTES
"""Pointer to the shadow of the block in the next plane; 0 after the last one."""
TABLE = layout.BLOCK_BYTES + 8
"""In the first plane: pointer to the table of the algebra; 0 if it has none."""
FILL = layout.BLOCK_BYTES + 16
"""The byte that shared memory begins with."""
SHARED_STEP = layout.BLOCK_BYTES + 24
"""i64: how far apart the planes of shared memory are."""
LOCAL_STEP = layout.BLOCK_BYTES + 32
"""The same of local memory.  That of a segment is its last word in the table."""
PRODUCTS = layout.BLOCK_BYTES + 40
"""In the first plane: pointer to what makes second values of ``wgmma``, by form."""
CLUSTER = layout.BLOCK_BYTES + 48
"""Pointer to the record of a cluster whose memories are those of the plane."""
PLANES = layout.BLOCK_BYTES + 56
"""In the first plane: i64: how many planes there are."""
OWN = layout.BLOCK_BYTES + 64
"""In the first plane: 64 bytes for what else a watch lets code find."""
WARPS_AT = layout.BLOCK_BYTES + 128
"""The shadows of warps: of their fields, those that loads, stores and copies use."""
WARP_BYTES = -(-(layout.PAST + 4) // 64) * 64
"""``PAST`` is the last of these fields: where the lanes are noted that got nothing."""
