"""What was judged in a kernel and is right: it need not be judged by each thread.

Machine code keeps the hash of what was judged in a table, and asks Python about the
rest.  Only what holds for all launches of a kernel may be in it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.forking import Lock
from fragmenta.engine.simt.compiled import copied


class JudgedTable:
    """What is known of a kernel, by all of its launches."""

    def __init__(self, size: int) -> None:
        self._lock = Lock()
        self._table = np.zeros(size, np.int64)

    def begun(self) -> NDArray[np.int64]:
        """What a new observer knows."""
        with self._lock:
            return copied(self._table)

    def add(self, judged: NDArray[np.int64]) -> None:
        """Let later observers know what one has judged."""
        with self._lock:
            free = self._table == 0
            self._table[free] = judged[free]


class Judged:
    """What an observer has judged.

    >>> known = JudgedTable(4)
    >>> first = Judged(known)
    >>> first.table[2] = 7
    >>> first.leave()
    >>> Judged(known).table.tolist()
    [0, 0, 7, 0]
    """

    def __init__(self, known: JudgedTable) -> None:
        self._known, self._told = known, False
        self.table = known.begun()
        self.right = True
        """Whether all that was judged is right; else others have to judge it, too."""

    def leave(self) -> None:
        """A cluster has ended without Python: let other threads know what is right."""
        if self.right and not self._told:
            self._told = True
            self._known.add(self.table)
