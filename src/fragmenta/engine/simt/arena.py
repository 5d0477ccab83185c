"""Memory of a context in one piece, so that it can be copied.

A context has some sixty pieces of memory, with pointers from one to another.  While an
:class:`Arena` is in use, a thread takes all of them from it.  A copy of the arena at
another address, with the pointers moved, is the memory of another context.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
from numpy.typing import NDArray

PAGE, HUGE = 4096, 1 << 21
_LINE = 64


class ArenaFull(Exception):
    """There is no room in an arena."""


class Arena:
    """Memory that is taken piece by piece, always zeroed.

    Pieces of which little is used are apart from the others: they are at the end.

    >>> arena = Arena(1 << 16, 1 << 16)
    >>> with arena.use():
    ...     piece = taken(100)
    >>> piece.size, arena.used, taken(100) is None
    (100, 100, True)
    """

    def __init__(self, dense: int, sparse: int) -> None:
        self._dense, self._size = dense, dense + sparse
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        pages = mmap.mmap(-1, self._size + HUGE, flags=flags)
        start = -int(np.frombuffer(pages, np.uint8).ctypes.data) % HUGE
        if hasattr(mmap, "MADV_HUGEPAGE") and dense >= HUGE:
            with suppress(OSError):  # the host may have no large pages
                pages.madvise(mmap.MADV_HUGEPAGE, start, dense // HUGE * HUGE)
        memory: NDArray[np.uint8] = np.frombuffer(pages, np.uint8)
        self.memory = memory[start : start + self._size]
        self.address = int(self.memory.ctypes.data)
        self.restart()

    def restart(self) -> None:
        """Give the same pieces again."""
        self.used, self._top = 0, self._dense
        self.pieces: list[tuple[int, int]] = []
        """Where each piece is, and its size."""

    @property
    def sparse_used(self) -> int:
        """How many bytes of the part at the end are taken."""
        return self._top - self._dense

    def take(self, size: int, *, sparse: bool = False) -> NDArray[np.uint8]:
        """Some zeroed bytes."""
        step, first = (PAGE, self._top) if sparse else (_LINE, self.used)
        start = -(-first // step) * step
        end = start + size
        if end > (self._size if sparse else self._dense):
            raise ArenaFull
        if sparse:
            self._top = end
        else:
            self.used = end
        self.pieces.append((start, size))
        return self.memory[start:end]

    @contextmanager
    def use(self) -> Iterator[None]:
        """Let this thread take memory here."""
        before = getattr(_LOCAL, "arena", None)
        _LOCAL.arena = self
        try:
            yield
        finally:
            _LOCAL.arena = before


_LOCAL = threading.local()


def taken(size: int, *, sparse: bool = False) -> NDArray[np.uint8] | None:
    """Memory of the arena that this thread uses; None if it uses none."""
    arena: Arena | None = getattr(_LOCAL, "arena", None)
    return None if arena is None else arena.take(size, sparse=sparse)


def in_use() -> bool:
    """Whether this thread takes memory from an arena."""
    return getattr(_LOCAL, "arena", None) is not None
