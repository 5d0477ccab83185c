"""Copies are issued, put into groups, and waited for."""

from __future__ import annotations

from fragmenta.errors import Error
from fragmenta.simt.layout import RANK_BITS
from fragmenta.units.copy_groups import Arrival, Queue
from fragmenta.units.copy_operands import Value, copy_from
from fragmenta.units.events import (
    Event,
    Operand,
    carries_out,
    first,
    numbers,
    together,
)
from fragmenta.units.faults import stopped
from fragmenta.units.lane_copies import WarpCopy
from fragmenta.units.machine import Thread, Warp
from fragmenta.units.mbarriers import find, named, possible
from fragmenta.units.port import Step, Waited
from fragmenta.units.work import Copy, done_at_once

# ── issuing ─────────────────────────────────────────────────────────────────


@carries_out("cp.async.bulk", "cp.reduce.async.bulk", "st.async", "red.async")
def bulk(warp: Warp, event: Event, lanes: int) -> int:
    """Issue a bulk copy for each lane; usually there is one."""
    before: list[list[Value]] = []
    for lane in numbers(lanes):
        values = [_value(each, warp, lane) for each in event.operands]
        try:
            copy = copy_from(
                warp.block, Thread(warp, lane), event.site, event.mnemonic, values
            )
        except Error as error:
            raise stopped(error, event, warp, 1 << lane) from error
        issue(warp, event, 1 << lane, copy, values in before)
        before.append(values)
    return lanes


def _value(operand: Operand, warp: Warp, lane: int) -> Value:
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
        key = ("bulk", warp.number, copy.thread.lane)
        block.groups.setdefault(key, Queue()).add(lanes, copy)
    cluster.port.issue(Step(warp, event, lanes), copy)
    cluster.start(copy)


@carries_out("cp.async")
def cp_async(warp: Warp, event: Event, lanes: int) -> int:
    """Issue ``cp.async`` for the lanes of a warp."""
    copy = WarpCopy(warp, event, lanes)
    cluster = warp.block.cluster
    key = ("cp.async", warp.number)
    warp.block.groups.setdefault(key, Queue()).add(lanes, copy)
    cluster.port.issue(Step(warp, event, lanes), copy)
    cluster.start(copy)
    return lanes


# ── groups ──────────────────────────────────────────────────────────────────

_DONE_BY = {"cp.async": "async_group", "bulk": "bulk_group"}


def _queues(warp: Warp, kind: str, lanes: int) -> list[tuple[int, Queue]]:
    """The queues of some lanes, and the lanes of each.

    A lane that has issued no bulk copy has none: its empty groups do not matter.
    """
    groups = warp.block.groups
    if kind == "cp.async":
        return [(lanes, groups.setdefault((kind, warp.number), Queue()))]
    keys = [(lane, (kind, warp.number, lane)) for lane in numbers(lanes)]
    return [(1 << lane, groups[key]) for lane, key in keys if key in groups]


def _commit(warp: Warp, event: Event, lanes: int, kind: str) -> int:
    for members, queue in _queues(warp, kind, lanes):
        if kind == "cp.async":
            _done_already(warp, event, members, queue)
        queue.commit(members)
    return lanes


def _done_already(warp: Warp, event: Event, lanes: int, queue: Queue) -> None:
    """Add the copies that compiled code has made at once to the group."""
    if warp.block.cluster.port.copied(warp, queue.epoch + 1):
        queue.add(lanes, done_at_once(event.site))


@carries_out("cp.async.commit_group")
def commit_group(warp: Warp, event: Event, lanes: int) -> int:
    """Close a group of ``cp.async``."""
    return _commit(warp, event, lanes, "cp.async")


@carries_out("cp.async.bulk.commit_group")
def bulk_commit_group(warp: Warp, event: Event, lanes: int) -> int:
    """Close a group of bulk copies."""
    return _commit(warp, event, lanes, "bulk")


def _wait(
    warp: Warp, event: Event, lanes: int, kind: str, left: int, read: bool
) -> int:
    for members, queue in _queues(warp, kind, lanes):
        tasks, bound = queue.waited(members, left)
        for task in tasks:
            if read:
                task.take()
            else:
                task.finish()
        waited = Waited(_DONE_BY[kind], bound, read=read)
        warp.block.cluster.port.acquire(Step(warp, event, members), waited)
    return lanes


@carries_out("cp.async.wait_group")
def wait_group(warp: Warp, event: Event, lanes: int) -> int:
    """Wait for all but some groups of ``cp.async``."""
    left = event.operands[0].value(warp, 0)
    return _wait(warp, event, lanes, "cp.async", left, False)


@carries_out("cp.async.wait_all")
def wait_all(warp: Warp, event: Event, lanes: int) -> int:
    """Wait for all ``cp.async`` of the threads."""
    _commit(warp, event, lanes, "cp.async")
    return _wait(warp, event, lanes, "cp.async", 0, False)


@carries_out("cp.async.bulk.wait_group")
def bulk_wait_group(warp: Warp, event: Event, lanes: int) -> int:
    """Wait for all but some groups of bulk copies, or until they have been read."""
    left = event.operands[0].value(warp, 0)
    return _wait(warp, event, lanes, "bulk", left, "read" in event.words)


@carries_out("cp.async.mbarrier.arrive")
def mbarrier_arrive(warp: Warp, event: Event, lanes: int) -> int:
    """Arrive at an mbarrier when the ``cp.async`` so far are done."""
    cluster = warp.block.cluster
    for members, (address,) in together(warp, lanes, event.operands[0]):
        found = named(warp, event, address, members)
        count = members.bit_count()
        counted = "noinc" not in event.words
        if counted:
            found.pending += count
        count = possible(warp, event, members, found, count)
        found.write()
        queue = warp.block.groups.setdefault(("cp.async", warp.number), Queue())
        _done_already(warp, event, members, queue)
        queue.mark()
        queue.unwaited = 0  # a wait for the mbarrier waits for them, too
        thread, before = Thread(warp, first(members)), queue.unfinished()
        arrival = Arrival(event.site, thread, found, count, before)
        cluster.port.issue(Step(warp, event, members), arrival)
        cluster.start(arrival)
    return lanes
