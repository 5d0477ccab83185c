"""Who does which part of the work?

Compiled loops release the GIL, so plain threads are enough.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

from fragmenta.progress import Progress, nobody

# Below this many products a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 18

# Work is handed out in this many portions per thread, so that none idles, and in
# more if a portion would otherwise have more products than this: progress shows
# after each.
_PORTIONS = 4
_PORTION = 1 << 27


def spread(
    run: Callable[[int, int], object],
    pieces: int,
    products: int,
    progress: Progress = nobody,
) -> None:
    """Call ``run(first, last)`` until every piece is done, on all cores.

    >>> done = []
    >>> spread(lambda first, last: done.extend(range(first, last)), 5, 1 << 20)
    >>> sorted(done)
    [0, 1, 2, 3, 4]
    """
    threads = cores()
    if pieces == 1 or products < _WORTH_A_THREAD:
        run(0, pieces)
        return
    portions = min(pieces, max(threads * _PORTIONS, products // _PORTION))
    edges = list(pairwise(pieces * i // portions for i in range(portions + 1)))
    if threads == 1:
        for number, edge in enumerate(edges):
            run(*edge)
            progress((number + 1) / portions)
        return
    pool = _pool(os.getpid())
    futures = [pool.submit(run, *edge) for edge in edges]
    try:
        for number, future in enumerate(futures):
            future.result()
            progress((number + 1) / portions)
    finally:  # an interrupt leaves nothing running that nobody waits for
        for future in futures:
            future.cancel()


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
