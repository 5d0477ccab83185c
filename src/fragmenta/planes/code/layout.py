"""Where the shadow of a block has what: a block whose memories are planes.

There is one for each plane.  It begins like a block, so that the routines of loads and
stores find its memories.  Then come the fields below, then its warps.
"""

from __future__ import annotations

from fragmenta.simt import layout

NEXT = layout.BLOCK_BYTES
"""Pointer to the shadow of the block in the next plane; 0 after the last one."""
TABLE = layout.BLOCK_BYTES + 8
"""In the first plane: pointer to the table of the algebra; 0 if it has none."""
FILL = layout.BLOCK_BYTES + 16
"""The byte that shared memory begins with."""
WARPS_AT = layout.BLOCK_BYTES + 64
"""The shadows of warps: only where their local memory is."""
WARP_BYTES = 256
