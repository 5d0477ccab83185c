"""Who does which part of the work?

Compiled loops release the GIL, so plain threads are enough.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

# Below this many products a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 18

# Work is handed out in this many portions per thread, so that none idles.
_PORTIONS = 4


def spread(run: Callable[[int, int], object], pieces: int, products: int) -> None:
    """Call ``run(first, last)`` until every piece is done, on all cores.

    >>> done = []
    >>> spread(lambda first, last: done.extend(range(first, last)), 5, 1 << 20)
    >>> sorted(done)
    [0, 1, 2, 3, 4]
    """
    threads = cores()
    if threads == 1 or pieces == 1 or products < _WORTH_A_THREAD:
        run(0, pieces)
        return
    portions = min(pieces, threads * _PORTIONS)
    edges = [pieces * i // portions for i in range(portions + 1)]
    pool = _pool(os.getpid())
    for future in [pool.submit(run, *pair) for pair in pairwise(edges)]:
        future.result()


@cache
def cores() -> int:
    """How many cores this process may use.

    >>> cores() >= 1
    True
    """
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of a process: a fork inherits none, and needs its own."""
    return ThreadPoolExecutor(cores(), thread_name_prefix="fragmenta")
