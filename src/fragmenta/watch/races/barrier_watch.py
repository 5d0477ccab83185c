"""Reports barriers that two groups of warps use at the same time.

Compiled code finds them: :mod:`fragmenta.watch.races.shadow.barrier_roles`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.units.events import numbers
from fragmenta.engine.units.port import Step
from fragmenta.errors import ranges
from fragmenta.ptx import rules
from fragmenta.watch.races.shadow import layout

HERE, THERE = "{here}", "{there}"
"""The places of two arrivals, in a hint."""


def report_collision(step: Step, head: NDArray[np.int32]) -> None:
    """Report the collision that is noted in the head of a block."""
    first = layout.HEAD_COLLIDED // 4
    kind, number, warps, count, site = head[first : first + 5].tolist()
    warps &= 0xFFFFFFFF
    warp, event, lanes = step
    repair, severity = None, ""
    if kind == layout.LINES:
        met = f"warp{'s' * (warps.bit_count() > 1)} {ranges(list(numbers(warps)))}"
        message = (
            f"warp {warp.number} meets {met} here, which came to another barrier: "
            "__syncthreads() counts threads, wherever they are, and in CUDA C++ all "
            "threads of a block have to come to the same one"
        )
        severity = rules.WARNING
        repair = "Let all threads of the block come to both barriers, or to one."
    elif kind == layout.COUNTS:
        message = (
            f"barrier {number} is given another count here than at another arrival in "
            f"the same phase, which has {count}: all arrivals must have the same"
        )
        repair = f"Give barrier {number} the same count at {HERE} and at {THERE}."
    else:
        every = list(numbers(warps))
        signalled = warp.number in every
        every = [each for each in every if each != warp.number]
        others = f"warp{'s' * (len(every) > 1)} {ranges(every)}"
        message = (
            f"warp {warp.number} arrives at barrier {number}, which {others} "
            "used for the phase before, and nothing orders this arrival after theirs: "
            "in another order it is counted in their phase"
        ) + signalled * ", for the second time: it has signalled there, and not waited"
    warp.report(
        rules.BARRIER_COLLISION,
        event,
        lanes,
        message,
        severity,
        other=site,
        repair=repair,
    )
