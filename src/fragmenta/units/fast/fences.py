"""Fast paths of fences and ``setmaxnreg``.

Memory is always up to date, so only an observer needs fences.
"""

from __future__ import annotations

from fragmenta.jit.trace import Value
from fragmenta.units.fast import layout
from fragmenta.units.fast.step import Step, fast_path


def _proxy(step: Step) -> Value:
    """``fence.proxy.async``."""
    step.observe(layout.PORT_PROXY, step.state)
    return step.lanes


def _made(step: Step) -> Value:
    """``fence.mbarrier_init``."""
    step.require(step.observe(layout.PORT_INIT_FENCE, step.state) != 0)
    return step.lanes


def _registers(step: Step) -> Value:
    """``setmaxnreg``: nothing depends on the number of registers."""
    count = step.value(0)
    step.require((count >= 24) & (count <= 256) & ((count & 7) == 0))
    return step.lanes


PROXY = fast_path("units.fence.proxy", _proxy)
MADE = fast_path("units.fence.mbarrier_init", _made)
REGISTERS = fast_path("units.setmaxnreg", _registers)

ROUTINES = PROXY, MADE, REGISTERS
