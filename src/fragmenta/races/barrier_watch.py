"""Reports barriers that two groups of warps use at the same time.

Compiled code finds them: :mod:`fragmenta.races.shadow.barrier_roles`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import ranges
from fragmenta.ptx import rules
from fragmenta.races.shadow import layout
from fragmenta.units.events import numbers
from fragmenta.units.port import Step


def report_collision(step: Step, head: NDArray[np.int32]) -> None:
    """Report the collision that is noted in the head of a block."""
    first = layout.HEAD_COLLIDED // 4
    kind, number, warps, count, site = head[first : first + 5].tolist()
    warp, event, lanes = step
    if kind == layout.COUNTS:
        message = (
            f"barrier {number} is given another count here than at another arrival in "
            f"the same phase, which has {count}: all arrivals must have the same"
        )
    else:
        every = list(numbers(warps & 0xFFFFFFFF))
        others = f"warp{'s' * (len(every) > 1)} {ranges(every)}"
        message = (
            f"warp {warp.number} arrives at barrier {number}, which {others} "
            "used for the phase before, and nothing orders this arrival after theirs: "
            "in another order it is counted in their phase"
        )
    warp.report(rules.BARRIER_COLLISION, event, lanes, message, other=site)
