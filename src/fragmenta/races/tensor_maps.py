"""Does a copy use a tensor map that a thread has just made?

A map that a kernel changes is written through the generic proxy and read through the
tensormap proxy.  The writer has to release it and the user to acquire it, by
``tensormap.cp_fenceproxy`` or ``fence.proxy.tensormap``; and a map must not be changed
while a copy may still read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fragmenta.ptx import rules
from fragmenta.races.order import knows, knows_all
from fragmenta.simt.layout import SHARED_SLOT, SLOT_BITS
from fragmenta.units.events import first


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

    def __init__(self, observer: Any) -> None:
        self.observer = observer
        self._maps: dict[int, _Map] = {}

    def begin(self) -> None:
        """A new cluster begins."""
        self._maps.clear()

    def changed(self, warp: Any, event: Any, lanes: int, address: int) -> None:
        """A thread changes a map, or writes a whole one."""
        if address >> SLOT_BITS in (0, SHARED_SLOT):  # shared memory: only prepared
            return
        watch, block = self.observer.watch, warp.block
        agent = watch.agent("warp", block.rank, warp.number)
        epoch = watch.epoch(block.rank, warp.number)
        lane = first(lanes)
        old = self._maps.get(address)
        if old is not None:
            self._check_users(old, warp, event, lanes)
        self._maps[address] = _Map(agent, lane, epoch, event.site)

    def _check_users(self, old: _Map, warp: Any, event: Any, lanes: int) -> None:
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

    def fence(self, warp: Any, event: Any, lanes: int) -> None:
        """``fence.proxy.tensormap``: the release needs nothing more here."""
        if "acquire" not in event.words:
            return
        address = event.operands[0].value(warp, first(lanes))
        found = self._maps.get(address)
        if found is not None:
            found.acquired = True

    def used(self, task: Any, warp: Any, event: Any, lanes: int, clock: Any) -> None:
        """A copy uses a map."""
        found = self._maps.get(int(task.map_range.starts[0]))
        if found is None:
            return
        own = self.observer.watch.agent("warp", warp.block.rank, warp.number)
        ordered = knows(clock[0], found.agent, found.lane, found.epoch)
        if not (ordered or (own == found.agent and lanes >> found.lane & 1)):
            self._report(warp, event, lanes, found, "nothing orders the two")
        elif not found.acquired:
            self._report(
                warp,
                event,
                lanes,
                found,
                "no fence.proxy.tensormap::generic.acquire is in between",
            )
        agent, epoch = self._reader(task, warp)
        found.users.append((agent, epoch, event.site))

    def _reader(self, task: Any, warp: Any) -> tuple[int, int]:
        """By what it is known that a copy has read its map."""
        watch = self.observer.watch
        if task.mbarriers:
            mbarrier = task.mbarriers[0]
            return self.observer._mbarrier_agent(mbarrier), mbarrier.phase
        queue = warp.block.groups["bulk", warp.number, task.thread.lane]
        return watch.agent("bulk-read", warp.block.rank, warp.number), queue.epoch

    def _report(self, warp: Any, event: Any, lanes: int, found: _Map, why: str) -> None:
        warp.report(
            rules.MISSING_PROXY_FENCE,
            event,
            lanes,
            f"a copy uses a tensor map that the kernel has changed, and {why}",
            other=found.site,
        )
