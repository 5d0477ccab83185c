"""Instructions that read textures and surfaces.

They are known by name only: they do not run, and their operands are not
checked.
"""

from __future__ import annotations

TEXTURES = frozenset(["tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep"])
"""The opcodes that do not run."""
