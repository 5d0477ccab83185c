"""``tcgen05.cp``: copies from shared to tensor memory.

The Tensor Cores make them, in order with products.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, carries_out, numbers
from fragmenta.engine.units.tcgen05 import Queued, issue
from fragmenta.engine.units.tmem_cells import Cells
from fragmenta.engine.units.tmem_operands import named_op
from fragmenta.engine.units.work import Pair, Range, pairs
from fragmenta.errors import Error
from fragmenta.ptx import rules
from fragmenta.ptx.effects import effect
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.registers.tensor_fragment import COLUMNS, TensorAddress
from fragmenta.reference.shared.descriptor import UNIT, Descriptor
from fragmenta.reference.tensor_memory.copying import copies, copy, packed_bits


class Fill(Queued):
    """``tcgen05.cp``."""

    effect = effect("tcgen05.cp")

    def __init__(self, warp: Warp, event: Event, lane: int) -> None:
        super().__init__(warp, event, lane)
        self.check_blocks()
        self.op = named_op(event.mnemonic)
        address, self.descriptor = (each.value(warp, lane) for each in event.operands)
        self.at = TensorAddress.decode(address)
        try:
            lanes, columns = _reached(self.op, self.at.lane)
        except Error as error:
            raise self.stop(rules.TENSOR_MEMORY, str(error)) from error
        if self.at.column + columns > COLUMNS:
            raise self.stop(
                rules.TENSOR_MEMORY,
                f"{event.mnemonic} writes {columns} columns; from column "
                f"{self.at.column} on they do not fit in {COLUMNS}",
            )
        self.cells_written = [
            Cells(each.rank, lanes, self.at.column, columns) for each in self.blocks
        ]
        self.read_shared("S", self.descriptor)

    @property
    def pairs(self) -> list[Pair]:
        """Which bytes of shared memory its cells come from.

        An element of a packed format comes from the first byte that has bits of it.
        """
        part, of = copies(self.op), Descriptor.decode(self.descriptor, "tcgen05")
        rows, words = part.shape
        row, byte = np.ogrid[:rows, : 4 * words]
        form = self.op.values.get("source", "")
        source = np.broadcast_to(byte, (rows, 4 * words))
        if form:
            source = byte // UNIT * UNIT + byte % UNIT * packed_bits(form) // 8
        places = np.asarray(of.address(row, source, "u8"), np.int64)
        found = []
        for cells in part.slots(self.at):
            goal = 4 * np.asarray(cells, np.int64).reshape(rows, words, 1) + np.arange(
                4
            )
            for each in self.blocks:
                to = Range("tensor", each.rank, goal.reshape(-1), 1)
                found += pairs(to, Range("shared", each.rank, places.reshape(-1), 1))
        return found

    def compute(self) -> None:
        """Copy the rows."""
        of = Descriptor.decode(self.descriptor, "tcgen05")
        self.put(copy(self.op, self.images(), self.shared(), self.at, of))


@lru_cache(maxsize=256)
def _reached(op: Op, lane: int) -> tuple[tuple[int, ...], int]:
    """The lanes that a copy writes, and how many columns."""
    used = copies(op).cells(address=TensorAddress(lane, 0))
    return tuple(np.flatnonzero(used.any(axis=1)).tolist()), int(used.any(axis=0).sum())


@carries_out("tcgen05.cp")
def cp(warp: Warp, event: Event, lanes: int) -> int:
    """Issue a copy for each lane; usually there is one."""
    for lane in numbers(lanes):
        issue(Fill(warp, event, lane), lanes)
    return lanes
