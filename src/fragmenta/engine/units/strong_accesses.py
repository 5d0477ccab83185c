"""Strong accesses, through which threads may synchronise."""

from __future__ import annotations

from functools import lru_cache

from fragmenta.engine.simt import layout
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, carries_out, first, numbers
from fragmenta.engine.units.port import Step
from fragmenta.ptx.ordering import Role, Scope

ALL = 0xFFFFFFFF
PATIENCE = 32
"""Jumps back that a warp has left after it has read a word that it may poll."""


@carries_out("location")
def location(warp: Warp, event: Event, lanes: int) -> int:
    """A strong access is about to happen; only an observer needs to know."""
    role, window = _meaning(event.words)
    at = event.operands[0]
    if lanes & (lanes - 1) == 0:
        lane = first(lanes)
        places = [(lane, at.value(warp, lane) + window)]
    else:
        every = at.lanes(warp).tolist()
        places = [(lane, place + window) for lane, place in enumerate(every)]
        if lanes != ALL:
            places = [places[lane] for lane in numbers(lanes)]
    warp.block.cluster.port.access(Step(warp, event, lanes), role, places)
    if role.reads:
        left = layout.BUDGET >> 2
        warp.words[left] = min(int(warp.words[left]), PATIENCE)
    return lanes


@lru_cache(maxsize=256)
def _meaning(words: tuple[str, ...]) -> tuple[Role, int]:
    """The role of an access, and what is added to its addresses."""
    *flags, scope, generic = words[1:]
    fence, publishes, releases, reads, acquires, replaces = (e == "1" for e in flags)
    kind = Scope(int(scope))
    role = Role(fence, publishes, releases, reads, acquires, replaces, kind)
    return role, 0 if generic else layout.SHARED_WINDOW
