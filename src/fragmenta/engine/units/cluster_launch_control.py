"""``clusterlaunchcontrol``: a cluster asks for the work of one that has not begun.

``try_cancel`` asks that a cluster of the grid is not started, so that the asking one
does its work.  It may be refused at any time, and in a launch it always is: every
cluster of the grid is started.  When all orders are explored, some runs grant requests
while clusters are left (``Machine.grants``).
"""

from __future__ import annotations

import numpy as np

from fragmenta.engine.simt.layout import POISON
from fragmenta.engine.units.blocks import Thread, Warp
from fragmenta.engine.units.copy_events import issue
from fragmenta.engine.units.events import Event, carries_out, numbers
from fragmenta.engine.units.faults import stopped
from fragmenta.engine.units.shared_addresses import in_form
from fragmenta.engine.units.work import (
    Copy,
    CopyBlock,
    Range,
    aligned,
    in_shared,
    shared_address,
)
from fragmenta.errors import Error
from fragmenta.ptx.effects import effect

ANSWER = 16
"""Bytes of an answer.  The hardware's bits are not known.  Here the last word is 1 if a
cluster was cancelled, and the others are the index of its first block."""


class CancelRequest(Copy):
    """``clusterlaunchcontrol.try_cancel``: it writes an answer to shared memory."""

    name = "request to cancel a cluster"
    effect = effect("clusterlaunchcontrol.try_cancel")
    bytes = ANSWER

    def __init__(
        self,
        block: CopyBlock,
        thread: Thread,
        site: int,
        goal: int,
        mbarrier: int,
        space: str,
        everywhere: bool,
    ) -> None:
        super().__init__(block, thread, site)
        what = f"the answer to a {self.name}"
        rank, offset = shared_address(block, goal, what, space)
        aligned(offset, ANSWER, what)
        count = len(block.cluster.blocks)
        if everywhere:
            self.mask = (1 << count) - 1
        self._signal(mbarrier, space, rank)
        goals = range(count) if everywhere else [rank]
        self._places = [in_shared(block, r, offset, ANSWER, what) for r in goals]

    @property
    def goals(self) -> list[Range]:
        """What it writes."""
        return [each.range for each in self._places]

    def write(self) -> None:
        """Write the answer."""
        answer = np.zeros(ANSWER // 4, np.uint32)
        block = self.thread.warp.block.cluster.machine.grant()
        if block is not None:
            answer[:] = *block, 1
        for each in self._places:
            each.put(answer.view(np.uint8))


@carries_out("clusterlaunchcontrol.try_cancel")
def try_cancel(warp: Warp, event: Event, lanes: int) -> int:
    """Ask for a cluster."""
    space = next((word for word in event.words if word.startswith("shared")), "")
    everywhere = "multicast::cluster::all" in event.words
    for lane in numbers(lanes):
        goal, mbarrier = (
            in_form(warp, event, 1 << lane, each.value(warp, lane), bool(space))
            for each in event.operands
        )
        try:
            request = CancelRequest(
                warp.block,
                Thread(warp, lane),
                event.site,
                goal,
                mbarrier,
                space,
                everywhere,
            )
        except Error as error:
            raise stopped(error, event, warp, 1 << lane) from error
        issue(warp, event, 1 << lane, request)
    return lanes


@carries_out("clusterlaunchcontrol.query_cancel")
def query_cancel(warp: Warp, event: Event, lanes: int) -> int:
    """Read an answer; if nothing was cancelled, there is no block to name."""
    goal, answer = event.operands
    for lane in numbers(lanes):
        given = answer.value(warp, lane)
        words = [given >> 32 * place & 0xFFFFFFFF for place in range(4)]
        granted = words[3] == 1
        if "is_canceled" in event.words:
            goal.put(warp, 1 << lane, granted)
            continue
        several = goal.items if goal.kind == "v" else (goal,)
        for each, word in zip(several, _asked(event, words), strict=False):
            each.put(warp, 1 << lane, word if granted else POISON)
    return lanes


def _asked(event: Event, words: list[int]) -> list[int]:
    """The parts of an index that an instruction asks for; the fourth is not defined."""
    for axis, name in enumerate("xyz"):
        if f"get_first_ctaid::{name}" in event.words:
            return [words[axis]]
    return [*words[:3], POISON]
