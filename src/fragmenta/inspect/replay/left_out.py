"""What a record leaves out, in words."""

from __future__ import annotations

from fragmenta.engine.tracing.recorder import MOST_COPIED
from fragmenta.engine.tracing.trace import Trace


def joined(*words: str) -> str:
    """What is left out, in one line.

    >>> joined("", "one", "two")
    'one; two'
    """
    return "; ".join(filter(None, words))


def left_out(told: Trace) -> str:
    """Which blocks and arrays are not there, in words."""
    return joined(other_blocks(told), large_arrays(told))


def kept_steps(first: int, kept: int, total: int, cut: bool) -> str:
    """Which steps are kept, in words; empty if all are.

    >>> kept_steps(100, 50, 400, False)
    'steps 100 to 149 of 400 are kept'
    """
    if not first and kept >= total and not cut:
        return ""
    all_ = f"more than {total:,}" if cut else f"{total:,}"
    return f"steps {first:,} to {first + kept - 1:,} of {all_} are kept"


def other_blocks(told: Trace) -> str:
    """Which blocks are recorded, in words; empty if all are."""
    if not told.others:
        return ""
    several = len(told.blocks) > 1
    blocks = ", ".join(map(str, told.blocks[:4]))
    more = " and others" if len(told.blocks) > 4 else ""
    return (
        f"only block{'s' * several} {blocks}{more} of the grid "
        f"{'are' if several else 'is'} recorded: what other blocks wrote to global "
        "memory meanwhile is not shown; Window(blocks=...), or --blocks of the command "
        "line, records others"
    )


def large_arrays(told: Trace) -> str:
    """Which arrays are too large to be kept, in words; empty if none is.

    >>> from fragmenta.engine.tracing.trace import Window
    >>> large_arrays(Trace(Window(), large=[("argument 0 (x)", 100 << 20)]))
    'argument 0 (x), 100 MiB, is not kept: all arrays together may have 64 MiB'
    """
    if not told.large:
        return ""
    named = [f"{name}, {size >> 20:,} MiB" for name, size in told.large[:4]]
    more = " and others" if len(told.large) > 4 else ""
    several = "are" if len(told.large) > 1 else "is"
    return (
        f"{' and '.join(named)}{more}, {several} not kept: all arrays together may "
        f"have {MOST_COPIED >> 20} MiB"
    )
