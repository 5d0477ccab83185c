"""The cells of ``tcgen05.ld`` and ``tcgen05.st``, and where fast paths find them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fragmenta.base.arrays.forking import Lock
from fragmenta.engine.simt.compiled import address_of, aligned
from fragmenta.engine.units.fast import tensor_layout as at
from fragmenta.engine.units.records import Record
from fragmenta.engine.units.tensor_forms import write_region
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.registers.layout import Index
from fragmenta.reference.tensor_memory.reaching import reached


class CellPath(NamedTuple):
    """Where a load or store goes in tensor memory."""

    numbers: Index
    """The number of each cell in an image: (registers, lanes, elements)."""
    cells: tuple[tuple[tuple[int, ...], int, int], ...]
    """For each access: the lanes, the first column, and how many columns."""


@lru_cache(maxsize=512)
def way(op: Op, address: int, warp: int, imm: int | None) -> CellPath:
    """The cells of an instruction; ``warp`` is the number in the warpgroup."""
    found = reached(op, address, warp=warp, imm=imm)
    halves = (found.lane, found.column)
    parts = [halves]
    if imm is not None:  # the second access belongs to the second half of the warp
        parts = [tuple(each[i : i + 16] for each in halves) for i in (0, 16)]  # type: ignore[misc]
    cells = []
    for lane, column in parts:
        lanes = tuple(np.unique(lane).tolist())
        first, last = int(column.min()), int(column.max())
        cells.append((lanes, first, last + 1 - first))
    every = np.ascontiguousarray(found.flat.swapaxes(0, 1))
    return CellPath(every, tuple(cells))


class KnownMove(Record):
    """A load or a store of a kernel, as fast paths find it."""

    def __init__(self, registers: list[int]) -> None:
        super().__init__(aligned(at.MOVE_BYTES))
        self._places = np.array(registers, np.int64)
        self.longs[at.MOVE_REGISTERS >> 3] = address_of(self._places)
        self.words[at.MOVE_COUNT >> 2] = len(registers)
        self._kept: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.int32]]] = {}
        self._lock = Lock()

    def know(self, warp: int, lane: int, to: CellPath) -> None:
        """Write down the cells of a quarter, which are those of column 0."""
        with self._lock:
            if warp in self._kept:
                return
            numbers = np.ascontiguousarray(to.numbers.astype(np.int32))
            self.words[at.MOVE_PACKED >> 2] = numbers.shape[-1] == 2
            self.words[at.MOVE_REGIONS >> 2] = len(to.cells)
            start = at.MOVE_ENTRIES + warp * at.ENTRY_BYTES
            entry = Record(self.raw[start : start + at.ENTRY_BYTES])
            entry.words[at.ENTRY_LANE >> 2] = lane
            reach = max(first + columns for _, first, columns in to.cells)
            entry.words[at.ENTRY_REACH >> 2] = reach
            for number, cells in enumerate(to.cells):
                place = at.ENTRY_REGIONS + number * at.REGION_BYTES
                write_region(entry.raw[place : place + at.REGION_BYTES], *cells)
            entry.longs[at.ENTRY_TABLE >> 3] = address_of(numbers)
            self._kept[warp] = numbers

    def knows(self, warp: int) -> bool:
        """Whether a quarter has an entry."""
        return warp in self._kept


class KnownMoves:
    """The loads and stores of a kernel, each made at its first use."""

    def __init__(self) -> None:
        self._made: dict[int, KnownMove] = {}

    def of(self, event: int, registers: list[int]) -> KnownMove:
        """What is known of an event, whose registers are at these places."""
        found = self._made.get(event)
        if found is None:
            found = self._made.setdefault(event, KnownMove(registers))
        return found
