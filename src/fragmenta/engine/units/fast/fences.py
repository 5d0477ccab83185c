"""Fast paths of fences and ``setmaxnreg``.

Memory is always up to date, so only an observer needs fences.
"""

from __future__ import annotations

from fragmenta.base.jit.trace import I32, Value, convert, select
from fragmenta.engine.simt.library import pointer_at
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.fast.step import FastStep, fast_path


def _proxy(step: FastStep) -> Value:
    """``fence.proxy.async``."""
    step.observe(layout.PORT_PROXY, step.state)
    return step.lanes


def _made(step: FastStep) -> Value:
    """``fence.mbarrier_init``."""
    step.require(step.observe(layout.PORT_INIT_FENCE, step.state) != 0)
    return step.lanes


def _registers(step: FastStep) -> Value:
    """``setmaxnreg``: only an observer counts registers."""
    code, count = step.code, step.value(0)
    step.require((count >= 24) & (count <= 256) & ((count & 7) == 0))
    start = step.word(step.state, layout.STATE_START)[0]
    with code.when(start != 0):
        table = pointer_at(code, step.state, layout.STATE_REGISTERS)
        place = step.number * layout.REGISTERS_BYTES
        own = code.builder.gep(table, [place.raw])
        surplus = convert(count, I32) - start
        before = step.word(own, layout.REGISTERS_SURPLUS)
        every = step.word(step.state, layout.STATE_SURPLUS)
        total = every[0] + surplus - before[0]
        every[0], before[0] = total, surplus
        step.word(step.state, layout.STATE_SHORT)[0] = select(
            total > 0, total, total * 0
        )
        number = step.word(step.event, layout.EVENT_NUMBER)[0]
        step.word(own, layout.REGISTERS_EVENT)[0] = number + 1
    return step.lanes


PROXY = fast_path("units.fence.proxy", _proxy)
MADE = fast_path("units.fence.mbarrier_init", _made)
REGISTERS = fast_path("units.setmaxnreg", _registers)

ROUTINES = PROXY, MADE, REGISTERS
