"""Notes: what a proof depends on, counted by instruction in the table of a context."""

from __future__ import annotations

KINDS = ("compared", "address", "lost", "atomic", "infinite", "scales")
"""Notes: data is compared; data is part of an address; an expression ends here; the
order of additions is open; a zero meets what may be infinite; scales are taken as they
are; what an atomic operation finds may decide."""
NOTES = len(KINDS)
FIRST = 8
"""Words of the table in front of the notes."""

# What the words in front of the notes are: the log of a launch whose trees are drawn.
LOG_AT, LOG_USED, LOG_SIZE = 0, 1, 2
"""Where the log is, how many of its words are used, and how many it has."""
OPERATION, PRODUCT = 1, 2
"""The first word of an entry."""
HEAD = 8
"""Words in front of the arrays of an entry: what it is, the number of the instruction,
its words, then for an operation the elements and operands of its registers."""
