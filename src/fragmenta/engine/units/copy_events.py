"""Copies are issued, put into groups, and waited for."""

from __future__ import annotations

import numpy as np

from fragmenta.engine.simt.layout import RANK_BITS
from fragmenta.engine.units.blocks import Thread, Warp
from fragmenta.engine.units.bulk_groups import BulkQueue
from fragmenta.engine.units.copy_groups import Arrival, CopyGroups, LaneGroups
from fragmenta.engine.units.copy_operands import Value, copy_from
from fragmenta.engine.units.events import (
    Event,
    EventOperand,
    carries_out,
    first,
    numbers,
    together,
)
from fragmenta.engine.units.fast.copy_forms import form
from fragmenta.engine.units.faults import stopped
from fragmenta.engine.units.lane_copies import WarpCopy
from fragmenta.engine.units.mbarriers import find, named, possible
from fragmenta.engine.units.past_the_end import ended, reaches_ended, report
from fragmenta.engine.units.port import Step, Waited
from fragmenta.engine.units.shared_addresses import in_form
from fragmenta.engine.units.tma_copies import TensorCopy
from fragmenta.engine.units.work import Copy, done_at_once
from fragmenta.errors import Error

# ── issuing ─────────────────────────────────────────────────────────────────


@carries_out("cp.async.bulk", "cp.reduce.async.bulk", "st.async", "red.async")
def bulk(warp: Warp, event: Event, lanes: int) -> int:
    """Issue a bulk copy for each lane; usually there is one."""
    before: list[list[Value]] = []
    for lane in numbers(lanes):
        values = _values(warp, event, lane)
        try:
            copy = copy_from(
                warp.block, Thread(warp, lane), event.site, event.mnemonic, values
            )
        except Error as error:
            raise stopped(error, event, warp, 1 << lane) from error
        gone = reaches_ended(warp, copy)
        if gone is not None:
            ended(warp, event, 1 << lane, gone, "the copy")
            continue
        for address, size, writes in copy.past:
            report(warp, event, 1 << lane, address, size, writes=writes)
        issue(warp, event, 1 << lane, copy, values in before)
        before.append(values)
        if isinstance(copy, TensorCopy) and copy.map_range is not None:
            known = warp.block.cluster.machine.maps
            if copy.moving is copy.data:
                known.learn(copy.data, copy.map, copy.kind)
    return lanes


def _values(warp: Warp, event: Event, lane: int) -> list[Value]:
    """What a lane gives, with addresses of shared memory in the form of the space."""
    values, of = (
        [_value(each, warp, lane) for each in event.operands],
        form(event.mnemonic),
    )
    spaces = {"goal": of.to, "source": of.of, "mbarrier": of.to}
    for place, name in enumerate(of.operands[: len(values)]):
        space, given = spaces.get(name, "global"), values[place]
        if space != "global" and isinstance(given, int):
            values[place] = in_form(warp, event, 1 << lane, given, bool(space))
    return values


def _value(operand: EventOperand, warp: Warp, lane: int) -> Value:
    """What a lane gives: a number, a list, or an address with its items."""
    if operand.kind == "v":
        return [each.value(warp, lane) for each in operand.items]
    if operand.kind == "a" and operand.items:
        items = [_value(each, warp, lane) for each in operand.items]
        return [operand.value(warp, lane), *items]
    if operand.kind == "p":
        return bool(operand.value(warp, lane))
    return operand.value(warp, lane)


def issue(
    warp: Warp, event: Event, lanes: int, copy: Copy, repeats: bool = False
) -> None:
    """Put a copy in flight; ``repeats``: another lane has just issued an equal one."""
    block, cluster = warp.block, warp.block.cluster
    if not copy.completes:  # a hint
        return
    copy.mbarriers = [
        find(warp, event, rank << RANK_BITS | offset, lanes)
        for rank, offset in copy.signals()
    ]
    for each in copy.mbarriers:
        each.count(copy)
    copy.repeats = repeats
    if copy.completes == "bulk_group":
        block.bulk_queue(warp.number, copy.thread.lane).add(copy)
    cluster.port.issue(Step(warp, event, lanes), copy)
    cluster.start(copy)


@carries_out("cp.async")
def cp_async(warp: Warp, event: Event, lanes: int) -> int:
    """Issue ``cp.async`` for the lanes of a warp."""
    copy = WarpCopy(warp, event, lanes)
    cluster = warp.block.cluster
    if copy.past.any():
        index = int(np.flatnonzero(copy.past)[0])
        first_of, lane = int(copy.source[index]), 1 << int(copy.lanes[index])
        report(warp, event, lane, first_of, copy.size, writes=False)
    lane_queue(warp).add(lanes, copy)
    cluster.port.issue(Step(warp, event, lanes), copy)
    cluster.start(copy)
    return lanes


# ── groups ──────────────────────────────────────────────────────────────────


def lane_queue(warp: Warp) -> CopyGroups:
    """The groups of ``cp.async`` of a warp; machine code keeps them no longer."""
    block = warp.block
    if warp.number not in block.groups:
        queue = block.groups[warp.number] = CopyGroups()
        record = LaneGroups(block.lane_groups(warp.number))
        queue.take_over(record, block.cluster.pool)
    return block.groups[warp.number]


def _bulk_queues(warp: Warp, lanes: int) -> list[tuple[int, BulkQueue]]:
    """The groups of bulk copies of some lanes.

    A lane that has issued none has none: its empty groups do not matter.
    """
    every = [(1 << x, warp.block.bulk_queue(warp.number, x)) for x in numbers(lanes)]
    return [(lane, queue) for lane, queue in every if queue.there]


def _done_already(warp: Warp, event: Event, lanes: int, queue: CopyGroups) -> None:
    """Add the copies that compiled code has made at once to the group."""
    if warp.block.cluster.port.copied(warp, queue.epoch + 1):
        queue.add(lanes, done_at_once(event.site))


@carries_out("cp.async.commit_group")
def commit_group(warp: Warp, event: Event, lanes: int) -> int:
    """Close a group of ``cp.async``."""
    queue = lane_queue(warp)
    _done_already(warp, event, lanes, queue)
    queue.commit(lanes)
    return lanes


@carries_out("cp.async.bulk.commit_group")
def bulk_commit_group(warp: Warp, event: Event, lanes: int) -> int:
    """Close a group of bulk copies."""
    for _, queue in _bulk_queues(warp, lanes):
        queue.commit()
    return lanes


def _wait(warp: Warp, event: Event, lanes: int, left: int) -> int:
    tasks, bound = lane_queue(warp).waited(lanes, left)
    for task in tasks:
        task.finish()
    waited = Waited("async_group", bound)
    warp.block.cluster.port.acquire(Step(warp, event, lanes), waited)
    return lanes


@carries_out("cp.async.wait_group")
def wait_group(warp: Warp, event: Event, lanes: int) -> int:
    """Wait for all but some groups of ``cp.async``."""
    return _wait(warp, event, lanes, event.operands[0].value(warp, 0))


@carries_out("cp.async.wait_all")
def wait_all(warp: Warp, event: Event, lanes: int) -> int:
    """Wait for all ``cp.async`` of the threads."""
    commit_group(warp, event, lanes)
    return _wait(warp, event, lanes, 0)


@carries_out("cp.async.bulk.wait_group")
def bulk_wait_group(warp: Warp, event: Event, lanes: int) -> int:
    """Wait for all but some groups of bulk copies, or until they have been read."""
    left, read = event.operands[0].value(warp, 0), "read" in event.words
    for members, queue in _bulk_queues(warp, lanes):
        tasks, bound = queue.waited(left, read)
        for task in tasks:
            if read:
                task.take()
            else:
                task.finish()
        waited = Waited("bulk_group", bound, read=read)
        warp.block.cluster.port.acquire(Step(warp, event, members), waited)
    return lanes


@carries_out("cp.async.mbarrier.arrive")
def mbarrier_arrive(warp: Warp, event: Event, lanes: int) -> int:
    """Arrive at an mbarrier when the ``cp.async`` so far are done."""
    cluster = warp.block.cluster
    for members, (address,) in together(warp, lanes, event.operands[0]):
        found = named(warp, event, address, members)
        count = members.bit_count()
        counted = "noinc" not in event.words
        if counted:
            step = Step(warp, event, members)
            cluster.port.counts(step, found, -count, 0, False)
            found.pending += count
        count = possible(warp, event, members, found, count)
        found.write()
        queue = lane_queue(warp)
        _done_already(warp, event, members, queue)
        queue.mark()
        queue.unwaited = 0  # a wait for the mbarrier waits for them, too
        thread, before = Thread(warp, first(members)), queue.unfinished()
        arrival = Arrival(event.site, thread, found, count, before)
        cluster.port.issue(Step(warp, event, members), arrival)
        cluster.start(arrival)
    return lanes
