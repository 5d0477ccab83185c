"""``spcompress`` and ``spdecompress``: each thread works on its own registers.

What they compute is in :mod:`fragmenta.reference.sparse.in_registers`.  What the manual
leaves to the hardware stops the kernel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import (
    Event,
    EventOperand,
    carries_out,
    numbers,
    together,
)
from fragmenta.engine.units.faults import Stop
from fragmenta.engine.units.tmem_operands import named_op
from fragmenta.errors import Error
from fragmenta.ptx import rules
from fragmenta.reference.sparse.in_registers import (
    compress_registers,
    decompress_registers,
)

Words = NDArray[np.uint32]


def taken(warp: Warp, operand: EventOperand, lanes: list[int]) -> Words:
    """The registers of a vector in some lanes: (lanes, registers)."""
    rows = [each.lanes(warp)[lanes] for each in operand.items]
    return np.stack(rows, axis=-1).astype(np.uint32)


def put(warp: Warp, operand: EventOperand, lanes: list[int], words: Words) -> None:
    """Set the registers of a vector in some lanes."""
    for each, row in zip(operand.items, words.T, strict=True):
        each.lanes(warp)[lanes] = row


@carries_out("spcompress")
def compress(warp: Warp, event: Event, lanes: int) -> int:
    """Keep two of each four elements, and tell their indices."""
    op = named_op(event.mnemonic)
    mdata, cdata, data, spdesc = event.operands
    for members, (descriptor,) in together(warp, lanes, spdesc):
        some = list(numbers(members))
        given = taken(warp, data, some)
        try:
            indices, kept = compress_registers(op, given, descriptor)
        except Error as error:
            message = str(error)
            raise Stop(rules.FAULT, event.site, warp, members, message) from error
        put(warp, mdata, some, indices)
        put(warp, cdata, some, kept)
    return lanes


@carries_out("spdecompress")
def decompress(warp: Warp, event: Event, lanes: int) -> int:
    """Put elements where their indices say, with zeros between them."""
    op = named_op(event.mnemonic)
    data, mdata, cdata = event.operands
    some = list(numbers(lanes))
    try:
        made = decompress_registers(
            op, taken(warp, mdata, some), taken(warp, cdata, some)
        )
    except Error as error:
        raise Stop(rules.FAULT, event.site, warp, lanes, str(error)) from error
    put(warp, data, some, made)
    return lanes
