"""Operands in tensor memory: which memory, and which cells of it, they are."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from fragmenta.engine.units.blocks import Block, Warp
from fragmenta.engine.units.events import Event
from fragmenta.engine.units.faults import Stop
from fragmenta.engine.units.tensor_forms import footprint
from fragmenta.engine.units.tmem_cells import Cells, TensorMemory
from fragmenta.errors import UnknownInstruction
from fragmenta.ptx import rules
from fragmenta.ptx.checking.tensor import Remark, named
from fragmenta.ptx.languages import PTX
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.registers.tensor_fragment import TensorAddress


@lru_cache(maxsize=4096)
def named_op(mnemonic: str) -> Op:
    """The instruction of the catalogue; ptxas takes modifiers in any order."""
    found = named(mnemonic)
    if isinstance(found, Remark):
        raise UnknownInstruction(found.message)
    return found


@lru_cache(maxsize=4096)
def complete(mnemonic: str, idesc: int) -> Op:
    """A product with its instruction descriptor."""
    return named_op(mnemonic).with_descriptor(idesc)


def memory(warp: Warp, event: Event, block: Block | None = None) -> TensorMemory:
    """The tensor memory of a block, of the own one if no other is given."""
    found = (block or warp.block).tensor
    if found is None:
        raise Stop(
            rules.TENSOR_MEMORY,
            event.site,
            warp,
            warp.live,
            f"{event.mnemonic} needs tensor memory, of which the block has allocated "
            "none; tcgen05.alloc does that",
        )
    return found


def pair(warp: Warp, event: Event, lanes: int) -> tuple[Block, ...]:
    """The blocks whose tensor memory an instruction reaches: one, or a pair."""
    if "cta_group::2" not in event.words:
        return (warp.block,)
    blocks, rank = warp.block.cluster.blocks, warp.block.rank
    if rank | 1 >= len(blocks):
        raise Stop(
            rules.TENSOR_MEMORY,
            event.site,
            warp,
            lanes,
            f"{event.mnemonic} needs a pair of blocks of a cluster, whose ranks differ "
            f"in the last bit; block {rank} of a cluster of {len(blocks)} is in none",
        )
    return blocks[rank & ~1], blocks[rank | 1]


def check_target(warp: Warp, event: Event, lanes: int, op: Op) -> None:
    """Refuse an instruction that the target does not have."""
    target = warp.block.cluster.machine.launch.target
    if not _supported(op, target):
        raise Stop(
            rules.TARGET,
            event.site,
            warp,
            lanes,
            f"{target} does not have {op}; it needs {op.requires}",
        )


@lru_cache(maxsize=4096)
def _supported(op: Op, target: str) -> bool:
    return op.supported_on(target)


def check_cells(warp: Warp, event: Event, lanes: int, cells: Iterable[Cells]) -> None:
    """Refuse cells that are not allocated."""
    blocks = warp.block.cluster.blocks
    for each in cells:
        of = memory(warp, event, blocks[each.rank])
        allocated = of.allocated
        columns = allocated[each.column : each.column + each.columns]
        if columns.all() and columns.size == each.columns:
            continue
        last = each.column + each.columns - 1
        there = _ranges(np.flatnonzero(allocated))
        where = "" if each.rank == warp.block.rank else f" of block {each.rank}"
        raise Stop(
            rules.TENSOR_MEMORY,
            event.site,
            warp,
            lanes,
            f"{event.mnemonic} reaches columns {each.column} to {last} of tensor "
            f"memory{where}; allocated are {there or 'none'}"
            + _freed(warp, [of.freed.get(n, -1) for n in range(each.column, last + 1)]),
        )


def _freed(warp: Warp, by: list[int]) -> str:
    """What to do about columns that a warp has freed."""
    number = max(by, default=-1)
    if number < 0:
        return ""
    if number == warp.number:
        return f": warp {number} has freed them before"
    return (
        f": warp {number} has freed them. Let {PTX.block_barrier} come before that "
        f"tcgen05.dealloc, which warp {warp.number} reaches when it is done"
    )


def _ranges(columns: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> str:
    """Columns in words."""
    breaks = np.flatnonzero(np.diff(columns) != 1) + 1
    runs = [run for run in np.split(columns, breaks) if run.size]
    return ", ".join(f"{run[0]} to {run[-1]}" for run in runs)


# ── what a product touches ──────────────────────────────────────────────────


def operand_cells(
    op: Op, name: str, address: int, blocks: tuple[Block, ...]
) -> list[Cells]:
    """The cells of an operand of a product, in each block that has them."""
    at = TensorAddress.of(address)
    shapes = footprint(op, name, at.lane)
    several = shapes * len(blocks) if len(shapes) == 1 else shapes
    return [
        Cells(block.rank, lanes, at.column + first, columns)
        for block, (_, lanes, first, columns) in zip(blocks, several, strict=True)
    ]
