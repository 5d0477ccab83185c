"""Memory between guard pages and canaries.

An :class:`Arena` stands in for the allocator of the engine.  Each piece of memory has
pages before and behind it that nobody may touch: an access there kills the process.
What is left of its own pages is filled with a pattern.  Memory is put at the end of its
pages, or at their start: only one side can touch a guard page directly.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import compiled

PAGE = mmap.PAGESIZE
LINE = 64
CANARY = 0xA5
_LIBC = ctypes.CDLL(None, use_errno=True)


class Arena:
    """Gives memory, and says whether anything was written beside it."""

    def __init__(self, *, low: bool = False) -> None:
        self.low = low
        self._kept: list[tuple[NDArray[np.uint8], int, int]] = []

    def take(self, size: int) -> NDArray[np.uint8]:
        """Zeroed memory that begins at a multiple of 64."""
        room = -(-max(size, 1) // LINE) * LINE
        inner = -(-room // PAGE) * PAGE
        pages = mmap.mmap(-1, inner + 2 * PAGE)
        whole = np.frombuffer(pages, np.uint8)
        for place in (0, inner + PAGE):
            _forbid(int(whole.ctypes.data) + place)
        own = whole[PAGE : PAGE + inner]
        start = 0 if self.low else inner - room
        own[:] = CANARY
        own[start : start + size] = 0
        self._kept.append((own, start, size))
        return own[start : start + size]

    def spoiled(self) -> list[str]:
        """Where a canary is no longer what it was."""
        found = []
        for own, start, size in self._kept:
            for name, part in (
                ("before", own[:start]),
                ("behind", own[start + size :]),
            ):
                wrong = np.flatnonzero(part != CANARY)
                if wrong.size:
                    found.append(f"{wrong.size} bytes {name} memory of {size} bytes")
        return found

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """Let the engine take all its memory here."""
        real: Any = compiled.aligned
        users = [
            module
            for module in list(sys.modules.values())
            if getattr(module, "aligned", None) is real
        ]
        for module in users:
            module.aligned = self.take
        try:
            yield
        finally:
            for module in users:
                module.aligned = real


def _forbid(address: int) -> None:
    """Let nobody read or write a page."""
    if _LIBC.mprotect(ctypes.c_void_p(address), PAGE, mmap.PROT_READ & 0):
        raise OSError(ctypes.get_errno(), "mprotect")
