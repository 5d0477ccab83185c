"""Events of code that follows undefined bits: where they matter, and in products."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, EventOperand, carries_out
from fragmenta.engine.units.port import Step
from fragmenta.ptx import rules
from fragmenta.reference.execution.undefined import depending
from fragmenta.reference.isa.reading import instruction
from fragmenta.reference.registers.fragment import Fragment


@carries_out("undefined")
def reached(warp: Warp, event: Event, lanes: int) -> int:
    """Report undefined bits of a register that reach memory, a branch or an address."""
    _, kind, name = event.words
    warp.report(rules.UNINITIALISED, event, lanes, name, use=kind)
    if kind == "store":
        warp.block.cluster.port.touch(Step(warp, event, lanes))
    return lanes


@carries_out("raced")
@carries_out("raced-rows")
def raced(warp: Warp, event: Event, lanes: int) -> int:
    """Lanes load from memory, which others may write at the same time."""
    warp.block.cluster.port.touch(Step(warp, event, lanes))
    return lanes


class Elements:
    """The elements of an operand that each register holds."""

    def __init__(self, fragment: Fragment) -> None:
        self.bits = fragment.register_bits
        self.shape = fragment.shape
        grid = fragment.layout.grid()
        shape = (fragment.lanes, fragment.registers, -1)
        self.row, self.col = (
            np.asarray(grid[n]).reshape(shape) for n in ("row", "col")
        )
        self.batch = np.zeros_like(self.row)
        for name in grid.keys() - {"row", "col"}:
            self.batch = self.batch + np.asarray(grid[name]).reshape(shape)
        slot = fragment.container.bits
        places = np.arange(self.row.shape[-1], dtype=np.uint64) * np.uint64(slot)
        self.masks = np.uint64((1 << slot) - 1) << places

    def gather(self, shadows: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """The undefined elements of a matrix: batch, row, column."""
        size = (self.batch.max() + 1, self.row.max() + 1, self.col.max() + 1)
        found = np.zeros(size, bool)
        hit = (shadows[..., None] & self.masks) != 0
        np.logical_or.at(found, (self.batch, self.row, self.col), hit)
        return found

    def spread(self, matrix: NDArray[np.bool_]) -> NDArray[np.uint64]:
        """The shadows of registers that hold a matrix."""
        hit = matrix[self.batch, self.row, self.col]
        return np.asarray(np.where(hit, self.masks, 0).sum(axis=-1, dtype=np.uint64))


@once
def _fragments(mnemonic: str) -> dict[str, Elements]:
    op = instruction(mnemonic)
    return {name: Elements(op.fragments[name]) for name in "DABC"}


def _shadows(warp: Warp, operand: EventOperand) -> NDArray[np.uint64]:
    """The shadows of a fragment's registers: lanes, registers."""
    items = operand.items if operand.kind == "v" else (operand,)
    columns = [each.lanes(warp).astype(np.uint64) for each in items]
    return np.stack(columns, axis=1)


@carries_out("undefined-product")
def multiplied(warp: Warp, event: Event, lanes: int) -> int:
    """An element of D depends on a row of A, a column of B and its element of C.

    Metadata, scales and selectors count for all elements.
    """
    parts = _fragments(event.words[1])
    d, *given = event.operands
    a, b, c = (
        parts[name].gather(_shadows(warp, each))
        for name, each in zip("ABC", given, strict=False)
    )
    found = c | depending(a, b)
    for each in given[3:]:
        found |= bool(_shadows(warp, each).any())
    made = parts["D"].spread(found)
    for index, item in enumerate(d.items if d.kind == "v" else (d,)):
        if item.kind == "r":
            item.lanes(warp)[:] = made[:, index]
    assert made.shape[0] == LANES
    return lanes
