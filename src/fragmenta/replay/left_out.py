"""What a record leaves out, in words."""

from __future__ import annotations

from fragmenta.tracing.told import Told


def kept_steps(first: int, kept: int, total: int, cut: bool) -> str:
    """Which steps are kept, in words; empty if all are.

    >>> kept_steps(100, 50, 400, False)
    'steps 100 to 149 of 400 are kept'
    """
    if not first and kept >= total and not cut:
        return ""
    all_ = f"more than {total:,}" if cut else f"{total:,}"
    return f"steps {first:,} to {first + kept - 1:,} of {all_} are kept"


def other_blocks(told: Told) -> str:
    """Which blocks are recorded, in words; empty if all are."""
    if not told.others:
        return ""
    several = len(told.blocks) > 1
    blocks = ", ".join(map(str, told.blocks[:4]))
    more = " and others" if len(told.blocks) > 4 else ""
    return (
        f"only block{'s' * several} {blocks}{more} of the grid "
        f"{'are' if several else 'is'} recorded: what other blocks wrote to global "
        "memory meanwhile is not shown"
    )
