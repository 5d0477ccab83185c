"""What does the tensor memory of a block hold while a kernel runs?

Work that is under way hides the cells that it will write: whoever reads them too early
sees ``POISON``.  Products and copies of one thread are done in the order of their
issue, so they see through what later ones of their kind hide.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.ptx.asynchronous.work import POISON
from fragmenta.registers.tensor import COLUMNS, LANES
from fragmenta.tensor_memory.allocation import Allocator


class Cells(NamedTuple):
    """Cells of tensor memory: some lanes, and adjacent columns."""

    rank: int
    """The block of the cluster."""
    lanes: tuple[int, ...]
    column: int
    columns: int

    @property
    def index(self) -> tuple[Any, Any]:
        """What NumPy takes for them.

        >>> Cells(0, (4, 5, 6), 8, 2).index
        (slice(4, 7, None), slice(8, 10, None))
        """
        return _lanes(self.lanes), slice(self.column, self.column + self.columns)


@lru_cache(maxsize=256)
def _lanes(lanes: tuple[int, ...]) -> Any:
    first, last = lanes[0], lanes[-1]
    if lanes == tuple(range(first, last + 1)):
        return slice(first, last + 1)
    return np.array(lanes)


class TensorMemory:
    """The tensor memory of a block.

    ``image`` is what the memory holds, 128 lanes of 512 words.
    """

    def __init__(self, late: bool) -> None:
        self.image = np.full((LANES, COLUMNS), POISON, np.uint32)
        self.allocator = Allocator()
        self.late = late
        self._stores = np.zeros((LANES, COLUMNS) if late else 0, np.uint16)
        self._queued = np.zeros((LANES, COLUMNS) if late else 0, np.uint16)
        self._storing = 0

    @property
    def allocated(self) -> NDArray[np.bool_]:
        """Which columns are allocated."""
        found = np.zeros(COLUMNS, bool)
        for address, columns in self.allocator.allocated.items():
            found[address : address + columns] = True
        return found

    # ── what is hidden ──────────────────────────────────────────────────────

    def hide(self, cells: Cells, stored: bool) -> None:
        """Work is under way that will write some cells: a store, or a product."""
        (self._stores if stored else self._queued)[cells.index] += 1
        self._storing += stored

    def show(self, cells: Cells, stored: bool) -> None:
        """The work is done."""
        (self._stores if stored else self._queued)[cells.index] -= 1
        self._storing -= stored

    def seen(self, index: Any) -> NDArray[np.uint32]:
        """What a thread sees in some cells."""
        values: NDArray[np.uint32] = self.image[index]
        if self.late:
            hidden = (self._stores[index] != 0) | (self._queued[index] != 0)
            return np.where(hidden, np.uint32(POISON), values)
        return values.copy()

    def operand(self) -> NDArray[np.uint32]:
        """What a product sees: not what stores have still to write."""
        if not self._storing:
            return self.image
        return np.where(self._stores != 0, np.uint32(POISON), self.image)
