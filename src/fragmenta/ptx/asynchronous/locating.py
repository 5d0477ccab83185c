"""Which accesses may be the way by which a thread learns of another?"""

from __future__ import annotations

from fragmenta.ptx.asynchronous.events import Event, carries_out, numbers
from fragmenta.ptx.asynchronous.machine import Warp
from fragmenta.ptx.engine import layout
from fragmenta.ptx.watching.roles import Role


@carries_out("location")
def location(warp: Warp, event: Event, lanes: int) -> int:
    """A strong access is about to happen; only the watching hears of it."""
    *flags, generic = event.words[1:]
    role = Role(*(each == "1" for each in flags))
    at = event.operands[0]
    window = 0 if generic else layout.SHARED_WINDOW
    places = [(lane, at.value(warp, lane) + window) for lane in numbers(lanes)]
    warp.block.cluster.watch.location(warp, event, lanes, role, places)
    return lanes
