"""The tensor memory of a block while a kernel runs.

Work in flight hides the cells that it will write: an early read gets ``POISON``.
Products and copies of one thread are done in the order of their issue, so they read the
cells that later ones of their kind hide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.once import once_of
from fragmenta.engine.simt.compiled import address_of, aligned
from fragmenta.engine.simt.layout import POISON
from fragmenta.engine.units.fast import tensor_layout as at
from fragmenta.engine.units.findings import Finding
from fragmenta.engine.units.records import Flag, Record, Word
from fragmenta.ptx import rules
from fragmenta.reference.registers.layout import Index
from fragmenta.reference.registers.tensor_fragment import COLUMNS, LANES
from fragmenta.reference.tensor_memory.allocator import Allocator

if TYPE_CHECKING:
    from fragmenta.engine.units.blocks import Block, Warp

Lanes: TypeAlias = slice | NDArray[np.int64]
"""Lanes as an index: adjacent ones are a slice."""


@dataclass(frozen=True)
class Cells:
    """Cells of tensor memory: some lanes, and adjacent columns."""

    rank: int
    """The block of the cluster."""
    lanes: tuple[int, ...]
    column: int
    columns: int

    @property
    def index(self) -> tuple[Lanes, slice]:
        """An index of NumPy for them.

        >>> Cells(0, (4, 5, 6), 8, 2).index
        (slice(4, 7, None), slice(8, 10, None))
        """
        return _lanes(self.lanes), slice(self.column, self.column + self.columns)


@once_of(256)
def _lanes(lanes: tuple[int, ...]) -> Lanes:
    first, last = lanes[0], lanes[-1]
    if lanes == tuple(range(first, last + 1)):
        return slice(first, last + 1)
    return np.array(lanes)


class TensorMemory(Record):
    """The tensor memory of a block.

    ``image`` is what the memory holds, 128 lanes of 512 words.  ``scratch`` is where
    machine code puts operands of products.
    """

    late = Flag(at.TENSOR_LATE)
    """Whether work may be in flight."""
    _storing = Word(at.TENSOR_STORING)

    def __init__(self, late: bool, scratch: NDArray[np.uint8]) -> None:
        super().__init__(aligned(at.TENSOR_BYTES))
        self.image = np.empty((LANES, COLUMNS), np.uint32)
        self.flat = self.image.reshape(-1)
        self.allocator = Allocator()
        self.freed: dict[int, int] = {}
        """The warp that has freed a column last."""
        self.takers: dict[int, tuple[Warp, int]] = {}
        """Which warp allocated each block of columns, and where in the kernel."""
        self.waiting: dict[int, int] = {}
        """How many columns warps wait for, by their number."""
        self.late = late
        self._stores = np.zeros((LANES, COLUMNS) if late else 1, np.uint16)
        self._queued = np.zeros((LANES, COLUMNS) if late else 1, np.uint16)
        self.allocated = np.zeros(COLUMNS, bool)
        """Which columns are allocated."""
        self._scratch = scratch
        for offset, memory in (
            (at.TENSOR_IMAGE, self.image),
            (at.TENSOR_STORES, self._stores),
            (at.TENSOR_QUEUED, self._queued),
            (at.TENSOR_ALLOCATED, self.allocated),
            (at.TENSOR_SCRATCH, scratch),
        ):
            self.longs[offset >> 3] = address_of(memory)
        self.begin()

    def begin(self) -> None:
        """A block begins: nothing is allocated, written or in flight."""
        self.image.fill(POISON)
        self.allocator = Allocator()
        self.takers.clear()
        self.freed.clear()
        self.waiting.clear()
        self.allocated[:] = False
        if self._storing or self._stores.any():
            self._stores[:] = 0
        if self._queued.any():
            self._queued[:] = 0
        self._storing = 0

    def allocate(self, columns: int) -> int | None:
        """The first of some columns that are taken; None if there is no room."""
        found = self.allocator.allocate(columns)
        if found is not None:
            self.allocated[found : found + columns] = True
        return found

    def free(self, address: int, columns: int) -> None:
        """Give columns back."""
        self.allocator.free(address, columns)
        self.allocated[address : address + columns] = False
        self.takers.pop(address, None)

    # ── what is hidden ──────────────────────────────────────────────────────

    def hide(self, cells: Cells, stored: bool) -> None:
        """Hide the cells that work in flight will write: a store, or a product."""
        (self._stores if stored else self._queued)[cells.index] += 1
        self._storing += stored

    def show(self, cells: Cells, stored: bool) -> None:
        """Show the cells again: the work is done."""
        (self._stores if stored else self._queued)[cells.index] -= 1
        self._storing -= stored

    def seen(self, index: Index) -> NDArray[np.uint32]:
        """The words that a thread reads in some cells, given by their numbers."""
        values = self.flat.take(index)
        if self.late:
            hidden = self._stores.take(index) + self._queued.take(index)
            values[hidden != 0] = POISON
        return values

    def operand(self) -> NDArray[np.uint32]:
        """The words that a product reads; what stores will write is poison."""
        if not self._storing:
            return self.image
        return np.where(self._stores != 0, np.uint32(POISON), self.image)

    # ── the end ─────────────────────────────────────────────────────────────

    def report(self, block: Block) -> None:
        """Report columns that a block has not freed when its threads have ended."""
        for address, (warp, site) in sorted(self.takers.items()):
            last = address + self.allocator.blocks[address] - 1
            own = warp if warp.block is block else block.warps[0]
            made = Finding(
                rules.TENSOR_MEMORY,
                site,
                f"the block ends, and columns {address} to {last} of its tensor memory "
                "are still allocated: tcgen05.dealloc must free them",
                own.block.index,
                own.number,
            )
            block.cluster.machine.problems.put(made)
