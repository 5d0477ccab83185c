"""``wgmma``: the warps of a warpgroup issue products, and wait for them."""

from __future__ import annotations

from functools import partial

from fragmenta.engine.simt.wgmma_operands import Located
from fragmenta.engine.units.blocks import Block, Warp
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.events import Event, carries_out
from fragmenta.engine.units.faults import Stop
from fragmenta.engine.units.port import Step, Waited
from fragmenta.engine.units.warpgroups import (
    ProductRecord,
    Warpgroup,
    Wgmma,
    WgmmaError,
)
from fragmenta.engine.units.wgmma_forms import ALL, WARPS


def group(warp: Warp) -> Warpgroup:
    """The warpgroup of a warp."""
    block, number = warp.block, warp.number // WARPS
    found = block.warpgroups.get(number)
    if found is None:
        machine = block.cluster.machine
        late = not block.cluster.schedule.eager
        members = block.warps[WARPS * number : WARPS * (number + 1)]
        found = Warpgroup(
            members,
            block.shared,
            late=late,
            forms=machine.forms,
            memory=block.warpgroup_memory(number),
            plan=None if machine.prepared is None else machine.prepared.plan,
        )
        found.started = partial(_started, block)
        block.warpgroups[number] = found
        machine.warpgroups.add((block.rank, number))
    return found


def prepare(cluster: Cluster) -> None:
    """Make the warpgroups that other clusters of the kernel have, so that machine code
    finds them.
    """
    for rank, number in cluster.machine.prepare().warpgroups:
        block = cluster.blocks[rank] if rank < len(cluster.blocks) else None
        if block is not None and WARPS * number < len(block.warps):
            group(block.warps[WARPS * number])


def _started(block: Block, work: Wgmma, product: ProductRecord) -> None:
    """Machine code has put a product in flight: say how it ends."""
    warp = block.warps[product.warp]
    work.cluster, work.started, work.ordinal = block.cluster, True, product.ordinal
    work.failed = lambda error: _stop(error, warp, ALL)


def _stop(error: WgmmaError, warp: Warp, lanes: int) -> Stop:
    """The end of the kernel, where the product is, whoever was to wait for it."""
    return Stop(error.rule, error.site, warp, lanes, str(error))


@carries_out("wgmma.mma_async")
def mma_async(warp: Warp, event: Event, lanes: int) -> int:
    """Issue the part of a warp of a product."""
    cluster = warp.block.cluster
    warpgroup = group(warp)
    held = warpgroup.held(warp)
    if held is not None:
        return _held(warp, held, lanes)
    if warpgroup.undone:
        return _run(warpgroup, warp, lanes)
    located = cluster.machine.kernel.located(event, Located.from_list)
    step = Step(warp, event, lanes)
    cluster.port.touch(step, located)
    try:
        number = warpgroup.issued(warp)
        work = warpgroup.issue(warp, located, event.site, lanes)
        cluster.machine.know_form(event, warpgroup.forms.of(located).address)
        if work is not None:
            work.failed = lambda error: _stop(error, warp, ALL)
            cluster.port.issue(step, work)
            cluster.start(work)
            cluster.wakes += 1
    except WgmmaError as error:
        raise _stop(error, warp, lanes) from error
    cluster.changes += 1
    if work is None and cluster.machine.observers:
        # Hold it: accesses of a warp that is ahead would seem to come before.
        warpgroup.hold(warp, number)
        cluster.port.wrote(step)
        return 0
    return lanes


def _run(warpgroup: Warpgroup, warp: Warp, lanes: int) -> int:
    """Run a product that machine code has issued, and could not run."""
    try:
        warpgroup.run(warpgroup.ran + 1)
    except WgmmaError as error:
        raise _stop(error, warp, ALL) from error
    warp.block.cluster.changes += 1
    return lanes


def _held(warp: Warp, product: int, lanes: int) -> int:
    """Let a warp go on when the others have issued its product, too."""
    if group(warp).behind(product):
        return 0
    group(warp).hold(warp, None)
    return lanes


@carries_out("wgmma.fence")
def fence(warp: Warp, event: Event, lanes: int) -> int:
    """Order accesses to registers before the products that follow."""
    warp.block.cluster.port.fence(Step(warp, event, lanes))
    try:
        group(warp).fence(warp, event.site)
    except WgmmaError as error:
        raise _stop(error, warp, lanes) from error
    return lanes


@carries_out("wgmma.commit_group")
def commit_group(warp: Warp, event: Event, lanes: int) -> int:
    """Close a group of products."""
    warp.block.cluster.port.fence(Step(warp, event, lanes))
    try:
        group(warp).commit(warp, event.site)
    except WgmmaError as error:
        raise _stop(error, warp, lanes) from error
    return lanes


@carries_out("wgmma.wait_group")
def wait_group(warp: Warp, event: Event, lanes: int) -> int:
    """Wait for all but some groups."""
    cluster, left = warp.block.cluster, event.operands[0].value(warp, 0)
    warpgroup = group(warp)
    try:
        if not warpgroup.wait(warp, left, event.site):
            return 0
    except WgmmaError as error:
        raise _stop(error, warp, lanes) from error
    waited = Waited("wgmma_group", warpgroup.waited(warp, left))
    cluster.port.acquire(Step(warp, event, lanes), waited)
    cluster.changes += 1
    return lanes


@carries_out("touched")
def touched(warp: Warp, event: Event, lanes: int) -> int:
    """Report an instruction that touches registers of a product in flight."""
    warp.block.cluster.port.touch(Step(warp, event, lanes))
    return lanes
