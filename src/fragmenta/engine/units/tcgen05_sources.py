"""The bytes of shared memory that ``tcgen05.mma`` and ``tcgen05.cp`` read.

They are units of 16 bytes, which no swizzle takes apart.  Of a pair, each block
reads at the same place in its own shared memory.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.layout import SHARED_START
from fragmenta.engine.units.work import CopyBlock, Range, pieces
from fragmenta.errors import AddressError
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.shared.descriptor import UNIT, Descriptor
from fragmenta.reference.shared.elements import MajorAxis, stored
from fragmenta.reference.shared.operands import extent, major_of
from fragmenta.reference.tensor_memory.copying import copies


def sources(op: Op, name: str, word: int, blocks: tuple[CopyBlock, ...]) -> list[Range]:
    """What an operand of a product, or the source S of a copy, reads.

    A descriptor that reads outside shared memory is refused.
    """
    every, first, end = read_ranges(op, name, word)
    found: list[Range] = []
    for block in blocks:
        size = block.shared.size
        if first < SHARED_START or end > size:
            raise AddressError(
                f"the descriptor of {name} reads bytes {first} to {end - 1}; shared "
                f"memory has {SHARED_START} to {size - 1}"
            )
        found += [each._replace(rank=block.rank) for each in every]
    return found


@lru_cache(maxsize=4096)
def read_ranges(op: Op, name: str, word: int) -> tuple[list[Range], int, int]:
    """All pieces, the first byte, and the one past the last."""
    starts = _units(op, name, word)
    every = pieces("shared", 0, starts, UNIT)
    return every, int(starts.min()), int(starts.max()) + UNIT


def _units(op: Op, name: str, word: int) -> NDArray[np.int64]:
    """The addresses of all units."""
    of = Descriptor.decode(word, "tcgen05")
    if name == "S":
        rows, words = copies(op).shape
        row, byte = np.ogrid[:rows, : 4 * words : UNIT]
        found = of.address(row, byte, "u8")
    else:
        found = _of_product(op, name, of, major_of(op, name))
    return np.unique(np.asarray(found, np.int64))


def _of_product(
    op: Op, name: str, of: Descriptor, major: MajorAxis
) -> NDArray[np.int64]:
    rows, k = extent(op, name)
    kind = op.types[name.lower()]
    per = 8 * UNIT // stored(kind, major, "tcgen05", of.swizzle, op.kind).bits
    if major == "k":
        row, column = np.ogrid[:rows, :k:per]
    else:
        row, column = np.ogrid[:rows:per, :k]
    return np.asarray(of.address(row, column, kind, major, op.kind))
