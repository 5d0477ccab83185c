"""Tensor maps that were checked once: machine code copies by them from then on.

A map is found by its address.  Its bytes are compared at every use: a kernel may have
changed them.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from fragmenta.shared.boxes import OUTSIDE, slice_bytes
from fragmenta.shared.swizzles import pattern
from fragmenta.shared.tensor_map import TensorMap
from fragmenta.shared.tensor_map_rules import MOST_SIZE
from fragmenta.simt.boxes import Copy, compiled
from fragmenta.simt.layout import SLOT_BITS
from fragmenta.units.fast import task_layout as at
from fragmenta.units.records import Record, address_of, fresh

MOST = 4096
"""How many different maps are kept; a kernel may make any number of them."""
_REACH = 1 << 46
"""The bytes of a tensor that addresses of 64 bits are sure to reach."""


class KnownMaps:
    """The maps of a launch."""

    def __init__(self) -> None:
        self._table: NDArray[np.int64] = fresh(8 * at.MAPS).view(np.int64)
        self._records: dict[bytes, Record] = {}

    @property
    def address(self) -> int:
        """Where machine code finds the table."""
        return address_of(self._table)

    def learn(self, address: int, data: bytes, map: TensorMap, kind: Copy) -> None:
        """A copy by the map at an address is right: know it from now on."""
        record = self._records.get(data)
        if record is None:
            if len(self._records) >= MOST or not _ordinary(map):
                return
            # Several threads may be here: one record is kept.
            record = self._records.setdefault(data, _written(data, map))
        if kind.operation in at.OPERATIONS:
            place = (at.MAP_REDUCE >> 3) + at.OPERATIONS.index(kind.operation)
            record.longs[place] = compiled(kind).address
        self._table[map_place(address)] = record.address


def map_place(address: int) -> int:
    """Where the map at an address is in the table.

    >>> map_place((10 << SLOT_BITS) + 128)
    8
    """
    return (address >> 6 ^ address >> SLOT_BITS) % at.MAPS


def _ordinary(map: TensorMap) -> bool:
    """Whether machine code copies by such a map."""
    reach = sum(
        size * stride for size, stride in zip(map.sizes[1:], map.strides, strict=True)
    )
    return (
        map.im2col is None
        and not map.interleave
        and not map.element.tf32
        and max(map.sizes) <= MOST_SIZE
        and reach + map.sizes[0] * map.element.bytes + map.address < _REACH
    )


def _written(data: bytes, map: TensorMap) -> Record:
    """The record of a map."""
    made = Record(fresh(at.MAP_RECORD))
    made.raw[:128] = np.frombuffer(data, np.uint8)
    line = map.counts[0] * slice_bytes(map)
    for place, word in (
        (at.MAP_RANK, map.rank),
        (at.MAP_ELEMENT, map.element.bytes),
        (at.MAP_BYTES, map.box_bytes),
        (at.MAP_LINE, line),
        (at.MAP_PITCH, max(line, map.swizzle)),
        (at.MAP_LINES, prod(map.counts[1:])),
        (at.MAP_SWIZZLE, pattern(map.swizzle).changed),
        (at.MAP_FILL, OUTSIDE if map.fill == "nan" else 0),
    ):
        made.words[place >> 2] = word
    made.longs[at.MAP_ADDRESS >> 3] = map.address
    made.longs[at.MAP_WIDTH >> 3] = map.sizes[0] * map.element.bytes
    for place, numbers, rest in (
        (at.MAP_COUNTS, map.counts[1:], 1),
        (at.MAP_SIZES, map.sizes[1:], 1),
        (at.MAP_STEPS, map.element_strides[1:], 1),
        (at.MAP_STRIDES, map.strides, 0),
    ):
        four = [*numbers, *[rest] * 4][:4]
        made.longs[place >> 3 : (place >> 3) + 4] = four
    return made
