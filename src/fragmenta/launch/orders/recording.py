"""Runs a launch once to record what synchronises it, and leaves memory as it was."""

from __future__ import annotations

from collections.abc import Callable

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.units.findings import Launched
from fragmenta.errors import KernelFault, LimitReached
from fragmenta.launch.launch import Launch
from fragmenta.launch.result import total
from fragmenta.launch.scheduled_runs import copies, restore
from fragmenta.ptx import rules
from fragmenta.watch.races.recording.log import Log
from fragmenta.watch.races.recording.recorder import Ends, Force, OrdersWatch


@dataclass(eq=False)
class Recording:
    """What was recorded of a launch."""

    launched: Launched
    logs: list[Log]
    values: dict[int, int]
    """What words held at first, by address."""
    cut: str = ""
    """Why it was not recorded to the end; nothing if it was."""
    hung: bool = False
    """Whether the recorded run hung."""
    instructions: int = 0
    """How many warp instructions it executed."""
    fault: KernelFault | None = None
    """What ended it, if it was something that a kernel must not do."""
    guessed: bool = False
    """Whether it is not known what some loop waits for."""


def record(
    launch: Launch,
    run: Callable[[Launch], str],
    ends: Ends,
    force: Force | None = None,
    grants: int = 0,
) -> Recording:
    """Record a launch.  A launch that hangs is recorded until then.

    ``ends`` says whether a pass of a loop on a word ends it.

    With ``force``, some lanes read other values than there are, as in another order.
    So many requests for clusters that have not begun are granted.
    """
    assert launch.machine is not None
    watch = launch.machine.watching
    assert isinstance(watch, OrdersWatch)
    watch.force, launch.machine.grants, watch.ends = force, grants, ends
    before, cut, hung, wrong = copies(launch), "", False, None
    try:
        run(launch)
    except LimitReached as fault:
        cut = f"the recorded run was stopped: {fault}"
    except KernelFault as fault:
        if fault.kind == rules.DEADLOCK.name:
            watch.stuck()
            hung = True
        else:
            cut = f"the recorded run failed: {str(fault).splitlines()[0]}"
            wrong = fault if fault.kind != "limit" and fault.line else None
    finally:
        restore(launch, before)
        executed = total(launch.compiled, launch.counts)
        how = cut, hung, executed, wrong, watch.guessed
        made = Recording(launch.kept, watch.logs, watch.values, *how)
        launch.close()
    made.logs.sort(key=lambda log: log.cluster)
    return made
