"""Who does which part of the work?

Compiled loops release the GIL, so plain threads are enough.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fragmenta.progress import Progress, nobody

if TYPE_CHECKING:  # slow to import, and short work needs none
    from concurrent.futures import ThreadPoolExecutor

# Below this many products a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 18

# Work is handed out in this many portions per thread, so that none idles, and in
# more if a portion would otherwise have more products than this: progress shows
# after each.
_PORTIONS = 4
_PORTION = 1 << 27

# Bytes of a matrix handled at once.  Threads take turns at Python's lock for
# every block, so it must keep one busy for a while; its temporaries are as large.
_BLOCK = 1 << 22

# Blocks below which starting threads costs more than it gains.
_FEW = 4

_NAME = "fragmenta"


def share_out(
    run: Callable[[int, int], object],
    pieces: int,
    products: int,
    progress: Progress = nobody,
) -> None:
    """Call ``run(first, last)`` until every piece is done, on all cores.

    >>> done = []
    >>> share_out(lambda first, last: done.extend(range(first, last)), 5, 1 << 20)
    >>> sorted(done)
    [0, 1, 2, 3, 4]
    """
    threads = _threads()
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


def in_blocks(
    work: Callable[[slice], Any],
    rows: int,
    row_bytes: int,
    progress: Progress | None = None,
) -> list[Any]:
    """Do blocks of rows, in threads if they are many; the results in order.

    ``row_bytes`` is what the work needs for a row beyond its result.

    >>> in_blocks(lambda block: block.stop - block.start, rows=5, row_bytes=1 << 21)
    [2, 2, 1]
    """
    step = max(1, _BLOCK // max(1, row_bytes))
    starts = range(0, rows, step)
    blocks = [slice(start, min(start + step, rows)) for start in starts]
    if len(blocks) < _FEW or _threads() == 1:
        return _collect(map(work, blocks), len(blocks), progress)
    pool = _pool(os.getpid())
    return _collect(pool.map(work, blocks), len(blocks), progress)


def _collect(
    results: Iterable[Any], count: int, progress: Progress | None
) -> list[Any]:
    done = []
    for result in results:
        done.append(result)
        if progress is not None:
            progress(len(done) / count)
    return done


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


def _threads() -> int:
    """How many to use: one of the pool's own must not wait for another."""
    ours = threading.current_thread().name.startswith(_NAME)
    return 1 if ours else cores()


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of a process: a fork inherits none, and needs its own."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(cores(), thread_name_prefix=_NAME)
