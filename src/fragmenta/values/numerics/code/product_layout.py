"""Where the statistics of products are: numbers of 64 bits, for each context.

The head of the numerics' table has a pointer to the head here.  That has pointers to
the records of the sites, to how deep each accumulator is, and to a log of one of them.
"""

from __future__ import annotations

POINTER = 56  #: in the head of numerics' table: pointer to the head here

RECORDS = 0  #: pointer to a pointer for each site: to its record, or 0
DEPTHS = 8  #: pointer to an i64 for each accumulator: the products in it so far
EVERY = 16  #: i64: of so many rows, one is split into its losses
LOG = 24  #: pointer to the log of an accumulator: its operands, as words of 32 bits
LOG_SIZE = 32  #: i64: words that it has room for
LOG_USED = 40  #: i64: words that are in it
LOG_OWNER = 48  #: i64: the number of its accumulator, plus 1; 0: none yet
LOG_CLOSED = 56  #: i64: whether it began again, or the log is full
LOG_SITE = 64  #: i64: the site of the last instruction in the log
CHAINS = 72  #: i64: how many accumulators there are
HEAD = 80
"""Bytes of the head."""

FIELDS = (
    "executions",
    "elements",
    "nonzero",
    "vanished",
    "sampled",
    "differing",
    "odd",
    "added",
    "size",
    "total",
    "values",
    "alignment",
    "alignment_size",
    "keep",
    "keep_size",
    "rounding",
    "rounding_size",
    "worst",
    "worst_total",
    "worst_row",
    "worst_column",
    "worst_depth",
    "worst_block",
    "worst_warp",
    "worst_c",
    "worst_d",
    "worst_exact",
    "deepest",
)
"""The numbers of a record.

Counts: executions, elements of D that are finite, products that are not zero and
those of them that the alignment cuts to zero, elements that were split, those of them
whose steps do not give the hardware's D, elements that are not finite.  Sums over
elements: ``added`` of the errors, ``size`` of their absolute values, ``total`` of the
absolute differences between D and the nearly exact value, ``values`` of the absolute
nearly exact values.  Of those that were split: sums and sums of absolute values of what
alignment, the bits that each step keeps, and the last rounding add.  Then the worst
element.
"""
_PLACES = ("row", "column", "depth", "block", "warp", "c", "d")
WHOLE = frozenset({*FIELDS[:7], *(f"worst_{each}" for each in _PLACES), "deepest"})
"""Those that are integers."""
AT = {name: 8 * place for place, name in enumerate(FIELDS)}

BIN_FIELDS = ("elements", "size", "total", "values", "nonzero", "vanished", "worst")
"""What a bin of the curve over k has; counts are f64 here, too."""
BINS = 144
"""Bins of the curve: 16 for the first instructions, then 8 for each octave."""
CURVE = 8 * len(FIELDS)
OPERANDS = CURVE + 8 * BINS * len(BIN_FIELDS)
MOST_K = 512
"""The longest k of an instruction."""
OPERAND_FIELDS = ("a", "index", "b", "scale_a", "scale_b")
"""The operands of the worst element, each ``MOST_K`` words of 64 bits."""
RECORD = OPERANDS + 8 * MOST_K * len(OPERAND_FIELDS)
"""Bytes of a record."""


def first_of(number: int) -> int:
    """The first instruction of a chain that is in a bin.

    >>> [first_of(each) for each in (0, 15, 16, 17, 24)]
    [0, 15, 16, 18, 32]
    """
    if number < 16:
        return number
    octave, part = divmod(number - 16, 8)
    return (8 + part) << (octave + 1)
