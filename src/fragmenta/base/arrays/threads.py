"""Work on arrays, split among threads.

Compiled loops release the GIL, so plain threads are enough.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from fragmenta.base.arrays.once import once
from fragmenta.base.progress import Progress, ignore_progress

if TYPE_CHECKING:  # slow to import, and short work does not need it
    from concurrent.futures import Future, ThreadPoolExecutor

_Done = TypeVar("_Done")

# Below this many products a second thread costs more time than it saves.
_WORTH_A_THREAD = 1 << 18

WORTH_THREADS = 1 << 40
"""Products for work that is not counted in products, and takes long."""

# Work is divided into at least this many portions per thread, so that none is idle.
_PORTIONS = 4

# The most products in a portion: progress is shown after each portion.
_PORTION = 1 << 27

# The fewest products of a thread, and below how many it has only one portion: waking a
# thread and handing it a portion take as long as half a million products.
_OF_A_THREAD, _ONE_PORTION = 1 << 21, 1 << 22

# Bytes of a matrix handled at once.  A thread needs the GIL between two blocks, so
# a block must be large enough to keep it busy; but its temporaries are as large.
_BLOCK = 1 << 22

# Below this many blocks, starting threads costs more time than it saves.
_FEW = 4

_NAME = "fragmenta"


def share_out(
    run: Callable[[int, int], object],
    pieces: int,
    products: int,
    progress: Progress = ignore_progress,
) -> None:
    """Call ``run(first, last)`` until every piece is done, on all cores.

    >>> done = []
    >>> share_out(lambda first, last: done.extend(range(first, last)), 5, 1 << 20)
    >>> sorted(done)
    [0, 1, 2, 3, 4]
    """
    threads = min(_threads(), pieces, max(1, products // _OF_A_THREAD))
    if pieces == 1 or products < _WORTH_A_THREAD:
        run(0, pieces)
        return
    small = products < threads * _ONE_PORTION
    few = threads if small else threads * _PORTIONS
    portions = min(pieces, max(few, products // _PORTION))
    edges = pairwise(pieces * i // portions for i in range(portions + 1))
    _Shared(run, deque(edges), progress).work_on(threads)


class _Shared:
    """Portions of work that several threads take from."""

    def __init__(
        self,
        run: Callable[[int, int], object],
        edges: deque[tuple[int, int]],
        progress: Progress,
    ) -> None:
        self.run, self.edges, self.progress = run, edges, progress
        self.portions, self.done = len(edges), 0

    def work_on(self, threads: int) -> None:
        """Do all portions in this thread and in others of the pool."""
        others: list[Future[None]] = []
        try:
            if threads > 1:
                pool = _pool(os.getpid())
                others += [pool.submit(self.work) for _ in range(threads - 1)]
            self.work(self.progress)
            for each in others:
                each.result()
                self.progress(self.done / self.portions)
        finally:  # after an interrupt, portions that have not started do not start
            self.edges.clear()
            for each in others:
                each.cancel()

    def work(self, progress: Progress = ignore_progress) -> None:
        """Do portions until there are no more."""
        while True:
            try:
                edge = self.edges.popleft()
            except IndexError:
                return
            try:
                self.run(*edge)
            except BaseException:
                self.edges.clear()
                raise
            self.done += 1
            progress(self.done / self.portions)


def in_blocks(
    work: Callable[[slice], _Done],
    rows: int,
    row_bytes: int,
    progress: Progress | None = None,
) -> list[_Done]:
    """Call ``work`` on blocks of rows and return the results in order.

    Many blocks are done in threads.  ``row_bytes`` is the memory that the work
    needs for a row, without its result.

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
    results: Iterable[_Done], count: int, progress: Progress | None
) -> list[_Done]:
    done = []
    for result in results:
        done.append(result)
        if progress is not None:
            progress(len(done) / count)
    return done


_MOST_CORES: list[int] = []
"""The most cores that this process may use, if somebody has said it."""


def use_cores(most: int) -> None:
    """Let this process use at most so many cores, as one of several that share them."""
    _MOST_CORES[:] = [most]
    cores.cache_clear()


@cache
def cores() -> int:
    """How many cores this process may use.

    >>> cores() >= 1
    True
    """
    if _MOST_CORES:
        return _MOST_CORES[0]
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # this system has no CPU affinity
        return os.cpu_count() or 1


def _threads() -> int:
    """How many threads to use: 1 within the pool, which must not wait for itself."""
    ours = threading.current_thread().name.startswith(_NAME)
    return 1 if ours else cores()


@once
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of a process: a forked process has no threads and needs its own."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(cores(), thread_name_prefix=_NAME)
