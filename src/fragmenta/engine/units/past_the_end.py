"""Accesses of memory that is not there, which hardware survives.

Memory of the device is allocated in granules of 256 bytes (the CUDA programming guide
promises that alignment of every allocation), and pages are far larger.  So an access to
the rest of a granule is no fault on a GPU.  A load or a copy from there gets what
happens to be there; here it gets poison.  A store lands where nothing else is; here it
is lost, so that a result that depends on it is poison, too.

An H200 ignores stores and copies to the shared memory of a block of the cluster that
has ended.  Loads and atomic operations there end the launch.

All of them are reported if problems are only reported, and what reaches into a block
that has ended also in a launch that is not watched; otherwise they are faults.
"""

from __future__ import annotations

import numpy as np

from fragmenta.engine.simt.layout import (
    GRANULE,
    LANES,
    POISON,
    RANK_BITS,
    SHARED_SLOT,
    SLOT_BITS,
)
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, carries_out, numbers
from fragmenta.engine.units.work import Copy, poisoned
from fragmenta.ptx import rules

_POISON = np.full(2 * LANES, POISON, np.uint32).view(np.uint8)
REPAIR = "Let no thread access what is past the end, or make the array longer."


@carries_out("past-the-end")
def past_the_end(warp: Warp, event: Event, lanes: int) -> int:
    """Lanes have accessed what is not there.  Loads and copies get poison."""
    _, kind, *shadow = event.words
    address, *rest = event.operands
    size, count = int(kind[1:]) // 8, 1 if kind[0] == "c" else len(rest)
    if shadow:  # it is reported once, and its uses are not
        for goal in rest if kind[0] in "us" else ():
            goal.put(warp, lanes, 0)
        return lanes
    if kind[0] in "us":
        _load(warp, event, lanes, size, kind[0] == "s")
    elif kind[0] == "c":
        _copy(warp, event, lanes)
    place = address.value(warp, next(numbers(lanes)))
    report(warp, event, lanes, place, size * count, writes=kind[0] == "w")
    return lanes


def _load(warp: Warp, event: Event, lanes: int, size: int, signed: bool) -> None:
    address, *goals = event.operands
    for lane in numbers(lanes):
        found = loaded(warp, address.value(warp, lane), size * len(goals))
        for index, goal in enumerate(goals):
            part = found[size * index : size * (index + 1)]
            number = int.from_bytes(part, "little", signed=signed)
            goal.put(warp, 1 << lane, number & (1 << goal.bits) - 1)


def loaded(warp: Warp, address: int, size: int) -> bytes:
    """What a load past the end gets: the bytes that are there, then poison."""
    data = warp.block.cluster.machine.segments[address >> SLOT_BITS].data
    place = address & (1 << SLOT_BITS) - 1
    there = data[place : place + size].tobytes()
    start = (place + len(there)) % 4
    return there + _POISON[start : start + size - len(there)].tobytes()


def _copy(warp: Warp, event: Event, lanes: int) -> None:
    """Poison what ``cp.async`` would have copied from past the end."""
    source, goal, used = event.operands
    for lane in numbers(lanes):
        address, count = source.value(warp, lane), used.value(warp, lane)
        segment = warp.block.cluster.machine.segments[address >> SLOT_BITS]
        place = address & (1 << SLOT_BITS) - 1
        there = max(0, segment.data.size - place)
        size = int(event.words[1][1:]) // 8
        to = goal.value(warp, lane) & (1 << RANK_BITS) - 1
        places = to + np.arange(there, min(count, size))
        warp.block.shared[places] = poisoned(places)


def report(
    warp: Warp, event: Event, lanes: int, address: int, size: int, *, writes: bool
) -> None:
    """Report an access of what is not there, after which a GPU goes on."""
    if _is_shared(address):
        ended(warp, event, lanes, address >> RANK_BITS & 0xFF, "the store")
        return
    segment = warp.block.cluster.machine.segments[address >> SLOT_BITS]
    place = address & (1 << SLOT_BITS) - 1
    verb, left = "reads", "the value is poison"
    if writes:
        verb, left = "writes", "what it writes is lost"
    warp.report(
        rules.FAULT,
        event,
        lanes,
        f"it {verb} {size} bytes from byte {place:,} of {segment.name}, which has "
        f"{segment.data.size:,}; a GPU goes on, since memory is allocated in units of "
        f"{GRANULE} bytes; {left}",
        repair=REPAIR,
    )


def _is_shared(address: int) -> bool:
    """Whether an address is a generic one of shared memory, or one without window."""
    return address >> SLOT_BITS in (0, SHARED_SLOT)


def reaches_ended(warp: Warp, copy: Copy) -> int | None:
    """The block that has ended in whose shared memory a copy writes, if it goes on.

    The copy comes from registers or from shared memory.  What comes from global memory
    ends the launch on an H200, if it is a multicast; the other copies were not tried.
    """
    if not warp.block.cluster.machine.ignores_ended or copy.mask is not None:
        return None
    near = all(each.space == "shared" for each in (*copy.sources, *copy.goals))
    blocks = warp.block.cluster.blocks
    gone = [each.rank for each in copy.goals if near and blocks[each.rank].ended]
    return gone[0] if gone else None


def ended(warp: Warp, event: Event, lanes: int, rank: int, what: str) -> None:
    """Report what reaches into a block of the cluster that has ended, and is ignored.

    An H200 ignores it, too.
    """
    warp.report(
        rules.SHARED_RACE,
        event,
        lanes,
        f"it reaches into the shared memory of block {rank} of the cluster, whose "
        f"threads have all ended; {what} is ignored",
        repair="Let a barrier of the cluster come before the end of the kernel.",
    )
