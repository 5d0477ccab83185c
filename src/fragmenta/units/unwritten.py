"""A register that is used before it was written: a suspicion."""

from __future__ import annotations

from typing import Any

from fragmenta.ptx import rules
from fragmenta.units.events import Event, carries_out


@carries_out("unwritten")
def read_too_early(warp: Any, event: Event, lanes: int) -> int:
    """Lanes need a register that they have not written."""
    name = event.words[1]
    warp.report(rules.UNINITIALISED, event, lanes, name, register=name)
    return lanes
