"""Which instructions read textures and surfaces?

They are known by name only: the engine does not run them, and their operands are not
checked.
"""

from __future__ import annotations

TEXTURES = frozenset(["tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep"])
"""The opcodes that the engine does not run."""
