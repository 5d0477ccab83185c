"""Finds lanes that passed an ``.aligned`` instruction by.

All lanes of a warp have to execute it together.  Lanes that took another way may still
come, or end before: neither is a mistake.  It is one if they reach code after the
instruction without having executed it.
"""

from __future__ import annotations

from fragmenta.engine.simt import layout
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, carries_out, numbers
from fragmenta.ptx import rules
from fragmenta.ptx.dataflow import reached
from fragmenta.ptx.flow import BasicBlock, blocks
from fragmenta.ptx.module import Function


@carries_out("exited")
def exited(warp: Warp, event: Event, lanes: int) -> int:
    """Report that threads had ended before a barrier of all threads."""
    warp.report(
        rules.DIVERGENT_ALIGNED,
        event,
        lanes,
        "some threads of the block had returned before this barrier. It waits for "
        "those that have not, and what the others did precedes it",
        severity=rules.INFO,
        repair="Return after the last barrier, if that is not meant.",
    )
    return lanes


@carries_out("apart")
def apart(warp: Warp, event: Event, lanes: int) -> int:
    """Report that other lanes have passed by an instruction that lanes wait at."""
    machine = warp.block.cluster.machine
    compiled = machine.launch.compiled
    function, index = compiled.places[event.site]
    pcs = warp.words[layout.PC >> 2 : (layout.PC >> 2) + layout.LANES]
    others = {int(pcs[lane]) for lane in numbers(warp.live & ~lanes)}
    for pc in others:
        name, start = compiled.waits[pc]
        key = function, index, name, start
        known = machine.parted.get(key)
        if known is None:
            known = name == function and _missed(
                machine.launch.module().functions[function], index, start
            )
            machine.parted[key] = known
        if known:
            gone = [lane for lane in numbers(warp.live & ~lanes) if pcs[lane] == pc]
            warp.report(
                rules.DIVERGENT_ALIGNED,
                event,
                lanes,
                f"{event.words[1]} has to be executed by all lanes of a warp together; "
                f"{len(gone)} lanes have passed it by",
            )
            break
    return lanes


def _missed(function: Function, here: int, there: int) -> bool:
    """Whether lanes at ``there`` cannot reach ``here``, but what comes after it."""
    flow = blocks(function)
    at = {i: n for n, each in enumerate(flow) for i in range(each.start, each.end)}
    if here not in at or there not in at:
        return False
    reached = _reachable(flow, at[there])
    same = at[there] == at[here] and there <= here
    if same or at[here] in reached - ({at[there]} if at[there] == at[here] else set()):
        return False
    behind = _reachable(flow, at[here])
    return bool(reached & behind - _ends(function, flow))


def _reachable(flow: list[BasicBlock], start: int) -> set[int]:
    return {*reached([start], lambda number: flow[number].after)}


def _ends(function: Function, flow: list[BasicBlock]) -> set[int]:
    """Blocks of code that only end the thread."""
    return {
        number
        for number, each in enumerate(flow)
        if all(
            i.opcode in ("ret", "exit")
            for i in function.instructions[each.start : each.end]
        )
    }
