"""Notes: what a proof depends on, counted by instruction in the table of a context."""

from __future__ import annotations

KINDS = ("compared", "address", "lost", "atomic", "infinite", "scales")
"""Notes: data is compared; data is part of an address; an expression ends here; the
order of additions is open; a zero meets what may be infinite; scales are taken as they
are."""
NOTES = len(KINDS)
FIRST = 8
"""Words of the table in front of the notes."""
