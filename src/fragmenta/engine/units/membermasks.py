"""Events of lanes that exchange values, and whose membermask is wrong.

The PTX manual leaves undefined what a lane gets that its own membermask does not name,
and what it reads of a lane that the mask does not name or that is not there.  An H200
refuses the first, and gives 0 for a lane that is not there.
"""

from __future__ import annotations

from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, carries_out, first
from fragmenta.engine.units.faults import Stop
from fragmenta.engine.units.port import Step
from fragmenta.ptx import rules


@carries_out("membermask.own")
def lacks_itself(warp: Warp, event: Event, lanes: int) -> int:
    """Lanes execute it that are not in their own membermask."""
    mask = event.operands[0].value(warp, first(lanes)) & 0xFFFFFFFF
    raise Stop(
        rules.MEMBERMASK,
        event.site,
        warp,
        lanes,
        f"the membermask {mask:#010x} of lane {first(lanes)} does not name that lane; "
        "an H200 ends the launch with cudaErrorIllegalInstruction",
    )


@carries_out("membermask.outsider")
def outsider(warp: Warp, event: Event, lanes: int) -> int:
    """Report lanes that come to a barrier of lanes which does not name them."""
    mask = event.operands[0].value(warp, first(lanes)) & 0xFFFFFFFF
    warp.report(
        rules.MEMBERMASK,
        event,
        lanes,
        f"the membermask {mask:#010x} of lane {first(lanes)} does not name that lane: "
        "PTX does not say what happens; no lane that is named waits for it",
    )
    return lanes


@carries_out("membermask.mask")
def other_mask(warp: Warp, event: Event, lanes: int) -> int:
    """Report lanes that name lanes which come with another membermask."""
    mask = event.operands[0].value(warp, first(lanes)) & 0xFFFFFFFF
    warp.report(
        rules.MEMBERMASK,
        event,
        lanes,
        f"the membermask {mask:#010x} of lane {first(lanes)} names lanes that come "
        "with another one: PTX does not say who takes part; on an H200 it is lanes "
        "with the same mask",
    )
    return lanes


@carries_out("membermask.source")
def reads_another(warp: Warp, event: Event, lanes: int) -> int:
    """Report lanes that read a lane which is not named, or not there.

    In a watched launch this is a suspicion: it stays if the value is used.
    """
    mask = event.operands[0].value(warp, first(lanes)) & 0xFFFFFFFF
    watched = warp.block.cluster.machine.observers
    warp.report(
        rules.MEMBERMASK,
        event,
        lanes,
        f"lane {first(lanes)} reads a lane that its membermask {mask:#010x} does not "
        "name, or that does not execute this with it: the value is undefined",
        rules.WARNING if watched else rules.INFO,
        repair="Let all lanes that are read execute it, and name them; or do not use "
        "the value.",
    )
    return lanes


@carries_out("membermask.followed")
def followed(warp: Warp, event: Event, lanes: int) -> int:
    """Let what follows undefined bits know of such a value."""
    warp.block.cluster.port.touch(Step(warp, event, lanes))
    return lanes
