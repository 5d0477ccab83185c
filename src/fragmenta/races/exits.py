"""Checks at the end of a block or a cluster: what nothing has waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fragmenta.ptx import rules
from fragmenta.ptx.effects import WAYS
from fragmenta.ptx.rules import WARNING, Rule
from fragmenta.races.order import knows
from fragmenta.races.shadow.layout import SET, unpack
from fragmenta.units.copy_events import lane_queue
from fragmenta.units.copy_groups import LaneGroups, Queue
from fragmenta.units.findings import Finding
from fragmenta.units.machine import Block, Warp
from fragmenta.units.warpgroups import Warpgroup
from fragmenta.units.wgmma_forms import WARPS

if TYPE_CHECKING:
    from fragmenta.races.observer import Observer


def visitors(observer: Observer, block: Block) -> None:
    """Report accesses by other blocks that the end of a block does not wait for."""
    order = observer.order
    clock = order.new_clock()
    for warp in block.warps:
        order.merge(clock, order.row(block.rank, warp.number, 0xFFFFFFFF))
    for word in observer.shared.records(block.rank).tolist():
        record = unpack(word)
        if record.agent == SET:
            continue
        kind, rank, number = order.describe(record.agent)
        if kind != "warp" or rank == block.rank:
            continue
        if not knows(clock[0], record.agent, record.lane, record.epoch):
            other = observer.cluster.blocks[rank]
            _report(
                block,
                other.warps[number],
                record.site,
                rules.SHARED_RACE,
                f"block {rank} of the cluster accesses the shared memory of block "
                f"{block.rank}, and nothing keeps the threads of block {block.rank} "
                "from ending before: a barrier of the cluster at the end does",
            )
            return


def leaks(observer: Observer) -> None:
    """Report work without a wait, where the table of effects says that it leaks."""
    for block in observer.cluster.blocks:
        for way in WAYS.values():
            if way.leak:
                _LEFT[way.done_by](observer, block)


def _mbarriers(observer: Observer, block: Block) -> None:
    for mbarrier in block.mbarriers.values():
        if mbarrier.copier is not None and mbarrier.copied > mbarrier.observed:
            warp, site = mbarrier.copier
            _report(
                block,
                warp,
                site,
                rules.LEAK,
                f"the block ends while this copy may still write into its shared "
                f"memory: phase {mbarrier.copied} of {mbarrier} counts it, and no "
                "thread saw the end of that phase",
            )


def _products(observer: Observer, block: Block) -> None:
    for number, warpgroup in sorted(block.warpgroups.items()):
        _product(block, number, warpgroup)


def _product(block: Block, number: int, warpgroup: Warpgroup) -> None:
    for warp in block.warps[WARPS * number : WARPS * (number + 1)]:
        left = warpgroup.in_flight(warp)
        if left:
            _report(
                block,
                warp,
                warpgroup.last_site,
                rules.LEAK,
                f"warpgroup {number} ends with {left} wgmma that it did not wait for",
            )
            return


def _copies(observer: Observer, block: Block) -> None:
    for warp in block.warps:
        kept = LaneGroups(block.lane_groups(warp.number))
        if kept.there or warp.number in block.groups:
            _copy(observer, block, warp.number, lane_queue(warp))


def _copy(observer: Observer, block: Block, number: int, queue: Queue) -> None:
    if queue.unwaited > 0 or observer.order.copies(block.rank, number, queue.epoch):
        _report(
            block,
            block.warps[number],
            queue.last_site,
            rules.LEAK,
            f"warp {number} ends with cp.async that it did not wait for",
            WARNING,
        )


def _report(
    block: Block, warp: Warp, site: int, rule: Rule, message: str, severity: str = ""
) -> None:
    made = Finding(rule, site, message, warp.block.index, warp.number, 0, severity)
    block.cluster.machine.problems.put(made)


_LEFT: dict[str, Callable[[Observer, Block], None]] = {
    "mbarrier": _mbarriers,
    "wgmma_group": _products,
    "async_group": _copies,
}
"""What reports work that is left, by what would have completed it."""
