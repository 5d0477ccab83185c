"""Events of code that reads a register before it was written.

That is a suspicion only: whether the value matters is found by following it.
"""

from __future__ import annotations

from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, carries_out
from fragmenta.ptx import rules


@carries_out("unwritten")
def read_too_early(warp: Warp, event: Event, lanes: int) -> int:
    """Report a register that lanes read and have not written."""
    name = event.words[1]
    warp.report(rules.UNINITIALISED, event, lanes, name, register=name)
    return lanes
