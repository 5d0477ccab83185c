"""The race detector of tensor maps that a kernel changes.

A map that a kernel changes is written through the generic proxy and read through the
tensormap proxy.  The writer has to release it and the user to acquire it, by
``tensormap.cp_fenceproxy`` or ``fence.proxy.tensormap``; and a map must not be changed
while a copy may still read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fragmenta.ptx import rules
from fragmenta.races.order import Clock, knows, knows_all
from fragmenta.races.shadow.layout import HEAD_CHANGED_MAPS
from fragmenta.simt.layout import SHARED_SLOT, SLOT_BITS
from fragmenta.units.events import Event, first
from fragmenta.units.machine import Warp
from fragmenta.units.port import Step
from fragmenta.units.work import Copy, Range

if TYPE_CHECKING:
    from fragmenta.races.observer import Observer


@dataclass
class _Map:
    """A map that the kernel has changed."""

    agent: int
    lane: int
    epoch: int
    site: int
    acquired: bool = False
    users: list[tuple[int, int, int]] = field(default_factory=list)
    """Copies that read it: agent, epoch, site."""


class Maps:
    """The tensor maps of a cluster that the kernel has changed."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._maps: dict[int, _Map] = {}

    def begin(self) -> None:
        """A new cluster begins."""
        self._maps.clear()
        self._tell()

    def _tell(self) -> None:
        """Tell compiled code whether there are any."""
        for block in self.observer.cluster.blocks:
            head = self.observer.order.head(block.rank, np.int32)
            head[HEAD_CHANGED_MAPS // 4] = bool(self._maps)

    def changed(self, warp: Warp, event: Event, lanes: int, address: int) -> None:
        """A thread changes a map, or writes a whole one."""
        if address >> SLOT_BITS in (0, SHARED_SLOT):  # shared memory: only prepared
            return
        order, block = self.observer.order, warp.block
        agent = order.agent("warp", block.rank, warp.number)
        epoch = order.epoch(block.rank, warp.number)
        lane = first(lanes)
        old = self._maps.get(address)
        if old is not None:
            self._check_users(old, warp, event, lanes)
        self._maps[address] = _Map(agent, lane, epoch, event.site)
        self._tell()

    def _check_users(self, old: _Map, warp: Warp, event: Event, lanes: int) -> None:
        clock = self.observer.row(warp, lanes)
        for agent, epoch, site in old.users:
            if not knows_all(clock[0], agent, epoch):
                warp.report(
                    rules.OVERWRITE_WHILE_READ,
                    event,
                    lanes,
                    "a tensor map is changed while a copy that was issued with it may "
                    "still read it",
                    other=site,
                )
                return

    def fence(self, warp: Warp, event: Event, lanes: int) -> None:
        """``fence.proxy.tensormap``: an acquire counts; a release changes nothing."""
        if "acquire" not in event.words:
            return
        address = event.operands[0].value(warp, first(lanes))
        found = self._maps.get(address)
        if found is not None:
            found.acquired = True

    def used(self, step: Step, copy: Copy, where: Range, clock: Clock) -> None:
        """A copy uses the map that is in some bytes."""
        warp, event, lanes = step
        found = self._maps.get(int(where.starts[0]))
        if found is None:
            return
        own = self.observer.order.agent("warp", warp.block.rank, warp.number)
        ordered = knows(clock[0], found.agent, found.lane, found.epoch)
        if not (ordered or (own == found.agent and lanes >> found.lane & 1)):
            self._report(step, found, "nothing orders the two")
        elif not found.acquired:
            why = "no fence.proxy.tensormap::generic.acquire is in between"
            self._report(step, found, why)
        agent, epoch = self._reader(copy, warp)
        found.users.append((agent, epoch, event.site))

    def _reader(self, copy: Copy, warp: Warp) -> tuple[int, int]:
        """The agent and the epoch of the read of a map."""
        order = self.observer.order
        if copy.mbarriers:
            mbarrier = copy.mbarriers[0]
            return mbarrier.agent, mbarrier.phase
        queue = warp.block.bulk_queue(warp.number, copy.thread.lane)
        return order.agent("bulk-read", warp.block.rank, warp.number), queue.epoch

    def _report(self, step: Step, found: _Map, why: str) -> None:
        step.warp.report(
            rules.MISSING_PROXY_FENCE,
            step.event,
            step.lanes,
            f"a copy uses a tensor map that the kernel has changed, and {why}",
            other=found.site,
        )
