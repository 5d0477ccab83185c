"""Loads past the end of an argument that hardware survives.

Memory of the device is allocated in granules of 256 bytes (the CUDA programming guide
promises that alignment of every allocation), and pages are far larger.  So a load from
the rest of a granule is no fault on a GPU: it gets what happens to be there.  Here it
gets poison, and is reported, if problems are only reported; otherwise it is a fault.
"""

from __future__ import annotations

import numpy as np

from fragmenta.ptx import rules
from fragmenta.simt.layout import GRANULE, LANES, PAST, POISON, SLOT_BITS
from fragmenta.units.events import Event, carries_out, numbers
from fragmenta.units.machine import Warp

_POISON = np.full(2 * LANES, POISON, np.uint32).view(np.uint8)
REPAIR = "Let no thread load past the end of the array, or make the array longer."


@carries_out("past-the-end")
def past_the_end(warp: Warp, event: Event, lanes: int) -> int:
    """Lanes have loaded past the end of an argument, and get poison."""
    warp.words[PAST >> 2] = 0
    _, kind, shadow = event.words
    address, *goals = event.operands
    if shadow:  # it is reported once, and its uses are not
        for goal in goals:
            goal.put(warp, lanes, 0)
        return lanes
    size, signed = int(kind[1:]) // 8, kind[0] == "s"
    for lane in numbers(lanes):
        found = loaded(warp, address.value(warp, lane), size * len(goals))
        for index, goal in enumerate(goals):
            part = found[size * index : size * (index + 1)]
            number = int.from_bytes(part, "little", signed=signed)
            goal.put(warp, 1 << lane, number & (1 << goal.bits) - 1)
    _report(warp, event, lanes, size * len(goals))
    return lanes


def loaded(warp: Warp, address: int, size: int) -> bytes:
    """What a load past the end gets: the bytes that are there, then poison."""
    data = warp.block.cluster.machine.segments[address >> SLOT_BITS].data
    place = address & (1 << SLOT_BITS) - 1
    there = data[place : place + size].tobytes()
    start = (place + len(there)) % 4
    return there + _POISON[start : start + size - len(there)].tobytes()


def _report(warp: Warp, event: Event, lanes: int, size: int) -> None:
    first = event.operands[0].value(warp, next(iter(numbers(lanes))))
    segment = warp.block.cluster.machine.segments[first >> SLOT_BITS]
    place = first & (1 << SLOT_BITS) - 1
    warp.report(
        rules.FAULT,
        event,
        lanes,
        f"it reads {size} bytes from byte {place:,} of {segment.name}, which has "
        f"{segment.data.size:,}; a GPU goes on, since memory is allocated in units of "
        f"{GRANULE} bytes; the value is poison",
        repair=REPAIR,
    )
