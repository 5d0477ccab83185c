"""Reports what is left when all threads of a cluster have ended."""

from __future__ import annotations

from typing import Any

from fragmenta.ptx import rules
from fragmenta.ptx.effects import WAYS
from fragmenta.ptx.rules import WARNING, Rule
from fragmenta.races.order import knows
from fragmenta.races.shadow.layout import SET, unpack
from fragmenta.units.findings import Finding


def visitors(observer: Any, block: Any) -> None:
    """Report accesses by other blocks that the end of a block does not wait for."""
    watch = observer.watch
    clock = watch.new_clock()
    for warp in block.warps:
        watch.merge(clock, watch.row(block.rank, warp.number, 0xFFFFFFFF))
    for word in watch.records(block.rank).tolist():
        record = unpack(word)
        if record.agent == SET:
            continue
        kind, rank, number = watch.describe(record.agent)
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


def leaks(observer: Any) -> None:
    """Report work that nobody waited for, where the table of effects says so."""
    for block in observer.cluster.blocks:
        for way in WAYS.values():
            if way.leak:
                _LEFT[way.done_by](observer, block)


def _mbarriers(observer: Any, block: Any) -> None:
    for mbarrier in block.mbarriers.values():
        if mbarrier.copied > mbarrier.observed:
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


def _products(observer: Any, block: Any) -> None:
    for number, warpgroup in sorted(block.warpgroups.items()):
        _product(block, number, warpgroup)


def _product(block: Any, number: int, warpgroup: Any) -> None:
    for warp in warpgroup.warps:
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


def _copies(observer: Any, block: Any) -> None:
    for key, queue in block.groups.items():
        if key[0] == "cp.async":
            _copy(observer, block, key[1], queue)


def _copy(observer: Any, block: Any, number: int, queue: Any) -> None:
    if queue.unwaited or observer.watch.copies(block.rank, number, queue.epoch):
        _report(
            block,
            block.warps[number],
            queue.last_site,
            rules.LEAK,
            f"warp {number} ends with cp.async that it did not wait for",
            WARNING,
        )


def _report(
    block: Any, warp: Any, site: int, rule: Rule, message: str, severity: str = ""
) -> None:
    made = Finding(rule, site, message, warp.block.index, warp.number, 0, severity)
    block.cluster.machine.problems.put(made)


_LEFT = {"mbarrier": _mbarriers, "wgmma_group": _products, "async_group": _copies}
"""What reports work that is left, by what would have told that it is done."""
