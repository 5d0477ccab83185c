"""The opcodes of the Tensor Cores.

The catalogue in :mod:`fragmenta.isa` says what they look like; the table of opcodes
has no lines for them.
"""

from __future__ import annotations

TENSOR = frozenset(
    [
        "mma",
        "wmma",
        "wgmma",
        "tcgen05",
        "ldmatrix",
        "stmatrix",
        "movmatrix",
        "spcompress",
        "spdecompress",
    ]
)
"""The opcodes whose instructions the catalogue has."""
