"""Fair turns at mbarriers, in the default schedule.

Often one warp drives an mbarrier: it issues the copies and products that end its
phases, and waits for them like the other warps.  Copies are done when they are issued,
so that it would go on to the next phase, and the one after it, before the others have
had a turn.  A wait by parity tells only two phases apart: they would wait for ever.  By
the letter, that can happen on a GPU, too; but copies take long, and warps run side by
side.

So the driver gives way before it goes on: it stays at its wait for one turn, in which
the others come to theirs.  If they need several turns for that, it stays for as many.
Other schedules do not do this, and show the hang.  What can go wrong is reported:
``races.observer``.
"""

from __future__ import annotations

from fragmenta.engine.simt.layout import BUDGET, STATUS, Status
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.fast.layout import PATIENCE
from fragmenta.engine.units.mbarrier_state import Mbarrier


def gives_way(warp: Warp, mbarrier: Mbarrier, phase: int) -> bool:
    """Whether a warp that sees the end of a phase lets the others have a turn first.

    Machine code does the same: ``units.fast.mbarriers``.
    """
    if not warp.block.cluster.fair or not mbarrier.driven_by(warp):
        return False
    given_up = int(warp.words[BUDGET >> 2]) == 0 and mbarrier.held == phase + 1
    if given_up:  # other lanes of the warp did so in this turn
        return True
    if mbarrier.held != phase + 1:
        mbarrier.held, mbarrier.held_count = phase + 1, 0
        ready = any(each.live for each in warp.block.warps if each is not warp)
    else:
        ready = mbarrier.held_count < PATIENCE and any(
            int(each.words[STATUS >> 2]) == Status.SPENT
            for each in warp.block.warps
            if each is not warp
        )
    mbarrier.held_count += ready
    if ready:
        warp.give_way()
    return ready
