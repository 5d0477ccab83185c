"""Launches in a process of their own, with limits of the system.

The process is the one worker of a pool; :mod:`fragmenta.frontends.pool` says what it
gets and what it may do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.engine.simt.arguments import Pointer
from fragmenta.frontends.pool.pool import Pool
from fragmenta.launch.kernel import Kernel
from fragmenta.launch.request import LaunchOptions
from fragmenta.launch.result import Result


class IsolatedResult(NamedTuple):
    """The result of an isolated launch."""

    result: Result
    timeline: str
    """The picture, if one was asked for."""


def launch(
    kernel: Kernel,
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    values: Sequence[object],
    options: LaunchOptions,
    timeline: bool,
) -> IsolatedResult:
    """Launch a kernel in a child; arrays among the values are changed in place."""
    with Pool(1, launches=1, warm=False) as pool:
        job = pool.submit(kernel, *sizes, values, timeline=timeline, **options)
        try:
            return IsolatedResult(job.result(), job.timeline)
        finally:
            after = arrays_of(job.arguments)
            for given, new in zip(arrays_of(values), after, strict=True):
                given[...] = new


def arrays_of(values: Sequence[object]) -> list[Array]:
    """The arrays among the arguments of a launch, each once."""
    found: dict[int, Array] = {}
    for each in values:
        array = each.array if isinstance(each, Pointer) else each
        if isinstance(array, np.ndarray):
            found.setdefault(id(array), array)
    return list(found.values())
