"""Checks at the end of a block or a cluster: what nothing has waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.units.blocks import Block, Warp
from fragmenta.engine.units.copy_events import lane_queue
from fragmenta.engine.units.copy_groups import LaneGroups
from fragmenta.engine.units.findings import Finding
from fragmenta.engine.units.warpgroups import Warpgroup
from fragmenta.engine.units.wgmma_forms import WARPS
from fragmenta.ptx import rules
from fragmenta.ptx.effects import WAYS
from fragmenta.ptx.rules import WARNING, Rule
from fragmenta.watch.races.order import Plane
from fragmenta.watch.races.shadow.layout import (
    AGENT_AT,
    AGENT_BITS,
    EPOCH_AT,
    EPOCH_BITS,
    LANE_AT,
    LANE_BITS,
    unpack,
)

if TYPE_CHECKING:
    from fragmenta.watch.races.observer import Observer


def visitors(observer: Observer, block: Block) -> None:
    """Report accesses by other blocks that the end of a block does not wait for."""
    order = observer.order
    clock = order.new_clock()
    for warp in block.warps:
        order.merge(clock, order.row(block.rank, warp.number, 0xFFFFFFFF))
    every = observer.shared.records(block.rank)
    warps = order.plan.warps
    agents = _field(every, AGENT_AT, AGENT_BITS)
    theirs = (agents < order.plan.blocks * warps) & (agents // warps != block.rank)
    others = every[theirs]
    unknown = others[~_known(clock[0], others)]
    if unknown.size:
        record = unpack(int(unknown.min()))
        _, rank, number = order.describe(record.agent)
        _report(
            block,
            observer.cluster.blocks[rank].warps[number],
            record.site,
            rules.SHARED_RACE,
            f"block {rank} of the cluster accesses the shared memory of block "
            f"{block.rank}, and nothing keeps the threads of block {block.rank} "
            "from ending before: a barrier of the cluster at the end does",
        )


def _field(records: NDArray[np.uint64], at: int, bits: int) -> NDArray[np.int32]:
    """A field of records of accesses."""
    return (records >> np.uint64(at) & np.uint64((1 << bits) - 1)).astype(np.int32)


def _known(plane: Plane, records: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether accesses of warps happened before, by their records."""
    agents, lanes, epochs = (
        _field(records, at, bits)
        for at, bits in (
            (AGENT_AT, AGENT_BITS),
            (LANE_AT, LANE_BITS),
            (EPOCH_AT, EPOCH_BITS),
        )
    )
    base, extra, mask = plane[:, agents]
    known: NDArray[np.bool_] = (epochs < base) | (
        (epochs < extra) & (mask >> lanes & 1 != 0)
    )
    return known


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
        there = kept.there or warp.number in block.groups
        queue = lane_queue(warp) if there else None
        epoch, site = (queue.epoch, queue.last_site) if queue else (0, -1)
        made = observer.order.copies(block.rank, warp.number, epoch)
        if made and site < 0:
            site = _copied_at(observer, block, warp.number)
        if made or (queue and queue.unwaited > 0):
            _report(
                block,
                warp,
                site,
                rules.LEAK,
                f"warp {warp.number} ends with cp.async that it did not wait for",
                WARNING,
            )


def _copied_at(observer: Observer, block: Block, number: int) -> int:
    """An instruction by which a warp copied at once: no group says which it was."""
    records = observer.shared.records(block.rank)
    agent = observer.order.agent("cp.async", block.rank, number)
    own = records[_field(records, AGENT_AT, AGENT_BITS) == agent]
    return unpack(int(own[0])).site if own.size else -1


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
