"""Waits that can miss their phase.

A wait by parity tells the present phase of an mbarrier and the one before it apart, and
nothing else.  If a second phase ends before a warp has waited for the first, its wait
is for the one after both, and may never end.  So whoever ends a phase has to know that
all that wait for the phase before have seen its end.

The default schedule lets them come in time
(:mod:`fragmenta.engine.units.fairness`).  Here it is noted which warps have seen the
end of a phase.  When the warp that drives the mbarrier waits for the next one, its
clock says whether it knows of them.  This is done for the first phases of each
mbarrier in the first cluster.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.engine.units.mbarrier_state import Mbarrier
from fragmenta.engine.units.port import Step
from fragmenta.ptx import rules
from fragmenta.watch.races.order import Order, knows


class _Seen(NamedTuple):
    """A warp that has seen the end of a phase."""

    step: Step
    phase: int
    epoch: int


class MissedPhases:
    """Who has seen the ends of phases of mbarriers that a waiting warp drives."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], dict[int, _Seen]] = {}

    def begin(self) -> None:
        """A new cluster begins."""
        self._seen.clear()

    def saw(self, order: Order, step: Step, mbarrier: Mbarrier, phase: int) -> None:
        """Lanes have seen the end of a phase."""
        if not mbarrier.held or "parity" not in step.event.words:
            return
        rank, number = step.warp.block.rank, step.warp.number
        found = self._seen.setdefault((rank, mbarrier.offset), {})
        found[number] = _Seen(step, phase, order.epoch(rank, number))

    def ended(self, order: Order, step: Step, mbarrier: Mbarrier, phase: int) -> None:
        """The warp that ended a phase waits for it: look who can have missed the last.

        All it did to end the phase came before.
        """
        warp, rank = step.warp, step.warp.block.rank
        row = order.row(rank, warp.number, step.lanes)
        for number, seen in self._seen.get((rank, mbarrier.offset), {}).items():
            if number == warp.number or seen.phase != phase - 1:
                continue
            agent, lane = order.agent("warp", rank, number), _first(seen.step.lanes)
            if not knows(row[0], agent, lane, seen.epoch):
                _report(seen.step, step, mbarrier, phase)


def _first(lanes: int) -> int:
    return (lanes & -lanes).bit_length() - 1


def _report(late: Step, driver: Step, mbarrier: Mbarrier, phase: int) -> None:
    late.warp.report(
        rules.MBARRIER,
        late.event,
        late.lanes,
        f"this wait can miss its phase: warp {driver.warp.number} ends phase {phase} "
        f"of {mbarrier} and does not know whether warp {late.warp.number} has waited "
        f"for phase {phase - 1}; if it comes later, its parity is that of phase "
        f"{phase + 1}, and it may wait for ever",
        rules.WARNING,
        repair=rules.OVERTAKEN,
    )
