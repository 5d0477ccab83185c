"""Fences, changes of tensor maps, and ``setmaxnreg``.

Memory is always up to date here, so a fence changes only what an observer knows.
"""

from __future__ import annotations

from fragmenta.engine.simt.layout import PLAIN
from fragmenta.engine.units import tensor_maps
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, carries_out, numbers, together
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.faults import Stop, stopped
from fragmenta.engine.units.port import ChangedMap, Step
from fragmenta.errors import Error
from fragmenta.ptx import rules


@carries_out("fence", "membar")
def fence(warp: Warp, event: Event, lanes: int) -> int:
    """Carry out a fence of any kind."""
    warp.block.cluster.port.fence(Step(warp, event, lanes))
    return lanes


@carries_out("setmaxnreg")
def setmaxnreg(warp: Warp, event: Event, lanes: int) -> int:
    """Check the number of registers that threads ask for."""
    count = event.operands[0].value(warp, 0)
    if not 24 <= count <= 256 or count % 8:
        raise Stop(
            rules.DIVERGENT_ALIGNED,
            event.site,
            warp,
            lanes,
            f"{event.mnemonic} takes a multiple of 8 from 24 to 256; given {count}",
        )
    _count_registers(warp, event, count)
    return lanes


def _count_registers(warp: Warp, event: Event, count: int) -> None:
    """Keep what a warp asks for, and what all of its block have in the end."""
    block, first = warp.block, warp.number * layout.REGISTERS_BYTES >> 2
    start = int(block.words[layout.STATE_START >> 2])
    own = block.registers[first : first + (layout.REGISTERS_BYTES >> 2)]
    if start:
        surplus, lack = count - start, block.lack_of_registers
        lack[0] += surplus - own[layout.REGISTERS_SURPLUS >> 2]
        lack[1] = max(0, lack[0])
        own[layout.REGISTERS_EVENT >> 2] = event.number + 1
        own[layout.REGISTERS_SURPLUS >> 2] = surplus


@carries_out("tensormap.replace")
def replace(warp: Warp, event: Event, lanes: int) -> int:
    """Change a field of a tensor map in memory."""
    words = event.words
    field = words[words.index("tile") + 1]
    space = next((w for w in words if w == "global" or w.startswith("shared")), "")
    for lane in numbers(lanes):
        address, *rest = (each.value(warp, lane) for each in event.operands)
        ordinal, value = (rest[0], rest[1]) if len(rest) == 2 else (0, rest[0])
        try:
            place = tensor_maps.replace(
                warp.block, address, field, value, ordinal, space
            )
        except Error as error:
            raise stopped(error, event, warp, 1 << lane) from error
        step = Step(warp, event, 1 << lane)
        warp.block.cluster.machine.note([place.range], PLAIN)
        warp.block.cluster.port.change(step, ChangedMap(address, place.range))
    return lanes


@carries_out("tensormap.cp_fenceproxy")
def cp_fenceproxy(warp: Warp, event: Event, lanes: int) -> int:
    """Copy a tensor map from shared to global memory, and release it."""
    for members, (goal, source) in together(warp, lanes, *event.operands[:2]):
        try:
            written, _ = tensor_maps.copy_map(warp.block, goal, source)
        except Error as error:
            raise stopped(error, event, warp, members) from error
        step = Step(warp, event, members)
        warp.block.cluster.machine.note([written.range], PLAIN)
        warp.block.cluster.port.change(step, ChangedMap(goal, written.range))
    return lanes
