"""``tcgen05.alloc`` and ``tcgen05.dealloc``: allocation of tensor memory.

One warp allocates for its block.  For a pair of blocks, one warp of each does, and both
get the same address.  The warp itself writes the address to shared memory, so that a
barrier is enough for the others to read it.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.engine.simt.layout import RANK_BITS, SHARED_START, Fault
from fragmenta.engine.units.blocks import Block, Warp
from fragmenta.engine.units.events import Event, carries_out, first
from fragmenta.engine.units.fast import layout as fast
from fragmenta.engine.units.faults import Stop, WrongAddress
from fragmenta.engine.units.mbarriers import shared_address
from fragmenta.engine.units.port import Columns, Step
from fragmenta.engine.units.tmem_cells import TensorMemory
from fragmenta.engine.units.tmem_operands import (
    check_target,
    memory,
    named_op,
    pair,
)
from fragmenta.errors import Error
from fragmenta.ptx import rules

_WORD = 4
"""Bytes of an address of tensor memory."""


class AllocationRequest(NamedTuple):
    """A block of a pair asks for columns."""

    columns: int
    address: int | None = None
    """Where they are, once the other block has asked, too."""


def _memory(block: Block) -> TensorMemory:
    """The tensor memory of a block; it is made at the first allocation."""
    if block.tensor is None:
        cluster = block.cluster
        made = block.last_tensor
        if made is None:
            made = TensorMemory(not cluster.schedule.eager, cluster.scratch)
        else:
            made.begin()
        block.tensor = block.last_tensor = made
        block.longs[fast.STATE_TENSOR >> 3] = block.tensor.address
    return block.tensor


# ── alloc ───────────────────────────────────────────────────────────────────


@carries_out("tcgen05.alloc")
def alloc(warp: Warp, event: Event, lanes: int) -> int:
    """Allocate columns; the lanes wait while there is no room."""
    check_target(warp, event, lanes, named_op(event.mnemonic))
    lane = first(lanes)
    given, columns = (each.value(warp, lane) for each in event.operands)
    place = _place(warp, event, lanes, given)
    blocks = pair(warp, event, lanes)
    if len(blocks) == 2:
        found = _meet(warp, event, lanes, blocks, columns)
    else:
        found = _take(warp, event, lanes, blocks, columns)
    waiting = _memory(warp.block).waiting
    if found is None:
        waiting[warp.number] = columns
        return 0
    waiting.pop(warp.number, None)
    shared = warp.block.shared
    shared[place : place + _WORD] = list(found.to_bytes(_WORD, "little"))
    cluster = warp.block.cluster
    step = Step(warp, event, lanes)
    cluster.port.change(step, Columns(found, columns, place))
    cluster.changes += 1
    return lanes


def _place(warp: Warp, event: Event, lanes: int, given: int) -> int:
    """The place in shared memory that the address is written to."""
    address = shared_address(warp, event, given, lanes)
    offset = address & (1 << RANK_BITS) - 1
    block = warp.block
    inside = SHARED_START <= offset <= block.shared.size - _WORD
    if address >> RANK_BITS != block.rank or not inside:
        raise WrongAddress(Fault.BOUNDS, given, _WORD, lanes)
    if offset % _WORD:
        raise WrongAddress(Fault.ALIGNMENT, given, _WORD, lanes)
    return offset


def _take(
    warp: Warp, event: Event, lanes: int, blocks: tuple[Block, ...], columns: int
) -> int | None:
    """Columns in all of some blocks, at the same address; None if there is no room."""
    try:
        found = {_memory(each).allocate(columns) for each in blocks}
    except Error as error:
        raise Stop(rules.TENSOR_MEMORY, event.site, warp, lanes, str(error)) from error
    if len(found) > 1:
        raise Stop(
            rules.TENSOR_MEMORY,
            event.site,
            warp,
            lanes,
            "the blocks of a pair have not allocated the same columns so far",
        )
    (address,) = found
    if address is not None:
        for each in blocks:
            _memory(each).takers[address] = (warp, event.site)
    return address


def _meet(
    warp: Warp,
    event: Event,
    lanes: int,
    blocks: tuple[Block, ...],
    columns: int,
) -> int | None:
    """Allocate for both blocks of a pair, once a warp of each has asked."""
    own, requests = warp.block.rank, warp.block.cluster.requests
    other = own ^ 1
    mine = requests.get(own)
    if mine is not None and mine.address is not None:
        del requests[own]
        return mine.address
    requests[own] = AllocationRequest(columns)
    there = requests.get(other)
    if there is None or there.address is not None:
        return None
    if there.columns != columns:
        raise Stop(
            rules.TENSOR_MEMORY,
            event.site,
            warp,
            lanes,
            f"both blocks of a pair allocate the same number of columns; given "
            f"{columns} here, and {there.columns} in block {other} of the cluster",
        )
    found = _take(warp, event, lanes, blocks, columns)
    if found is not None:
        requests[other] = AllocationRequest(columns, found)
        del requests[own]
    return found


# ── dealloc ─────────────────────────────────────────────────────────────────


@carries_out("tcgen05.dealloc")
def dealloc(warp: Warp, event: Event, lanes: int) -> int:
    """Free columns of the own block."""
    check_target(warp, event, lanes, named_op(event.mnemonic))
    address, columns = (each.value(warp, first(lanes)) for each in event.operands)
    of = memory(warp, event)
    pair(warp, event, lanes)
    try:
        of.free(address, columns)
        of.freed.update(dict.fromkeys(range(address, address + columns), warp.number))
    except Error as error:
        raise Stop(rules.TENSOR_MEMORY, event.site, warp, lanes, str(error)) from error
    cluster = warp.block.cluster
    cluster.port.change(Step(warp, event, lanes), Columns(address, columns))
    cluster.changes += 1
    cluster.wakes += 1
    return lanes


@carries_out("tcgen05.relinquish_alloc_permit")
def relinquish(warp: Warp, event: Event, lanes: int) -> int:
    """Give up the permit: the block allocates nothing more."""
    pair(warp, event, lanes)
    _memory(warp.block).allocator.relinquish()
    return lanes
