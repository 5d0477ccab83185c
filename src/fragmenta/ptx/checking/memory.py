"""The limits of shared memory, and how much of it a kernel has."""

from __future__ import annotations

from fragmenta.ptx.module import Function, Module
from fragmenta.ptx.placement import place_shared
from fragmenta.reference.isa.table import read
from fragmenta.reference.isa.target import expand

# What ptxas allows in a kernel, and what a launch may have at most; bytes.  The first
# line that has the target counts.
SHARED = """
targets                                | static | dynamic
sm_90a sm_100a sm_103a sm_107a sm_110a | 232448 | 232448
sm_120a sm_121a                        | 101376 | 101376
sm_90..110                             |  49152 | 232448
sm_120..121                            |  49152 | 101376
sm_86..86 sm_88..89                    |  49152 | 101376
sm_80..87                              |  49152 | 166912
sm_75..75                              |  49152 |  65536
sm_70..72                              |  49152 |  98304
"""
_SHARED = read(SHARED)


def limits(target: str) -> tuple[int, int]:
    """The bytes of static and of dynamic shared memory that a kernel may have.

    >>> limits("sm_80"), limits("sm_90a")
    ((49152, 166912), (232448, 232448))
    """
    row = next(row for row in _SHARED if target in expand(row["targets"]))
    return int(row["static"]), int(row["dynamic"])


def shared_bytes(module: Module, kernel: Function) -> int:
    """The static shared memory of a kernel and of the functions that it calls."""
    return place_shared(module, kernel).end
