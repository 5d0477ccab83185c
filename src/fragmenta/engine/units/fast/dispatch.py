"""Dispatch: compiled code calls this for every event.

It counts the event and calls its fast path, or Python.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Value, convert
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.engine.simt.warps import P, routine
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.fast.step import HANDLER, ask_python, note


def _dispatch(code: Code, block: Raw, warp: Raw, number: Value, lanes: Value) -> Value:
    b = code.builder
    cluster = pointer_at(
        code, pointer_at(code, block, engine.BLOCK_UNITS), layout.STATE_CLUSTER
    )
    time = field(code, cluster, layout.CLUSTER_TIME, I64)
    time[0] = time[0] + 1
    events = pointer_at(code, cluster, layout.CLUSTER_EVENTS)
    at = convert(number, I64) * layout.EVENT_BYTES
    event = b.gep(events, [at.raw])
    port = pointer_at(code, cluster, layout.CLUSTER_PORT)
    with b.if_then(b.icmp_unsigned("!=", port, ir.Constant(POINTER, None))):
        who = block, warp, event, lanes.raw
        note(code, cluster, layout.NOTE_EVENT, who, event)
    handler = pointer_at(code, event, layout.EVENT_HANDLER)
    # In a random order, work in flight may be done before any event.
    random = field(code, cluster, layout.CLUSTER_SCHEDULE, I32)[0] == layout.RANDOM
    pending = field(code, cluster, layout.CLUSTER_PENDING, I32)[0] != 0
    there = Value(b, b.icmp_unsigned("!=", handler, ir.Constant(POINTER, None)))
    fast = there & ~(random & pending)
    passed = code.variable(lanes)
    with b.if_else(fast.raw) as (then, otherwise):
        with then:
            call = b.bitcast(handler, HANDLER.as_pointer())
            passed.value = Value(b, b.call(call, [block, warp, event, lanes.raw]))
        with otherwise:
            passed.value = ask_python(code, cluster, block, warp, event, lanes.raw)
    return passed.value


DISPATCH = routine("units.dispatch", _dispatch, [P, P, I32, I32], I32)
