"""Fast paths of fences: memory is always up to date, so only an observer needs them."""

from __future__ import annotations

from fragmenta.jit.trace import Value
from fragmenta.units.fast import layout
from fragmenta.units.fast.step import Step, fast_path


def _proxy(step: Step) -> Value:
    """``fence.proxy.async``."""
    step.observe(layout.PORT_PROXY, step.state)
    return step.lanes


PROXY = fast_path("units.fence.proxy", _proxy)
