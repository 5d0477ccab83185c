"""Where the tables of a context are: numbers of 64 bits in one piece of memory.

First comes a head, then a record for each site.  Counts are integers, all others f64.
"""

from __future__ import annotations

from enum import IntEnum

NODES = 0  #: pointer to the directory: where the nodes of each context are
FIRST_NODE = 8  #: i64: the number of the first node of this one; it is not used
NODE_COUNT = 16  #: i64: how many there are, with the first one
TIMES = 24  #: pointer to (i32 block, i32 count) for each site and warp
WARPS = 32  #: i64: warps of a block
LOST_NODES = 40  #: i64: nodes for which there was no room
KEPT = 48  #: pointer to the log of what was stored, if that is kept
HEAD = 64
"""Bytes before the records."""

_COUNTED = (
    "executions",
    "elements",
    "absorbed",
    "cancelled",
    "underflows",
    "flushed",
    "saturated",
    "overflows",
    "invalid",
    "divisions",
    "passed",
    "other_way",
    "unrounded",
    "clipped",
    "wrapped",
    "restarted",
    "inexact",
    "subnormal",
    "contracted",
    "digest",
)
_WORST = ("added", "ulp", "total", "relative", "cancelled", "contracted")
_OPERANDS = ("a", "b", "c")
_PLACE = ("block", "thread", "time")
_OTHER = ("a", "b", "exact_a", "exact_b")
FIELDS = (
    *_COUNTED,
    "added",
    *(f"worst_{each}" for each in _WORST),
    *_OPERANDS,
    *(f"exact_{each}" for each in _OPERANDS),
    "value",
    "exact",
    "local",
    *_PLACE,
    *(f"other_{each}" for each in (*_PLACE, *_OTHER)),
    "kept",
)
"""The names of the numbers of a record, in their order.

First come counts; ``digest`` is the sum of the bits of all results.  ``contracted``
counts results of ``fma`` that differ from those of a product that is rounded first, and
``worst_contracted`` is the largest such difference in units of the last place.
``added`` is the sum of all errors that the instruction added.  From ``a`` to ``time``
they are about the worst element, from ``other_block`` to ``other_exact_b`` about the
first that takes the other way.  ``kept`` is given: 1 if second values keep the error
that the instruction adds, so that they are exact but for the errors of such sites.
"""
AT = {name: 8 * place for place, name in enumerate(FIELDS)}
"""Where each is in a record."""
RECORD = 8 * len(FIELDS)
COUNTS = frozenset(_COUNTED)
"""Fields that are sums of integers."""
WHOLE = COUNTS | {*_PLACE, *(f"other_{each}" for each in _PLACE)}
"""Fields that are integers."""


class Birth(IntEnum):
    """What a node is: how a value became NaN or infinite."""

    NONE = 0
    GIVEN = 1
    """An operand was so: an input, a constant, or nobody knows."""
    OVERFLOW = 2
    """Too large a number."""
    DIVISION = 3
    """A number divided by zero, or the logarithm of zero."""
    INVALID = 4
    """No result: an infinity less an infinity, zero times infinity, 0 / 0."""
    PASSED = 5
    """An operand was so, and so the result is."""
    PRODUCT = 6
    """Born in a product of matrices."""


NODE_FIELDS = (
    "site",
    "kind",
    "parent",
    "operand",
    "count",
    "block",
    "thread",
    "time",
    "a",
    "b",
    "c",
    "value",
)
"""The numbers of a node, 64 bits each; the last four are f64."""
NODE_AT = {name: 8 * place for place, name in enumerate(NODE_FIELDS)}
NODE_BYTES = 8 * len(NODE_FIELDS)
MOST_NODES = 4096
"""Nodes of a context."""
MOST_CONTEXTS = 4096
"""Contexts that a directory has room for."""
LONGEST = 24
"""How far back a way is searched for the site where it is now."""
