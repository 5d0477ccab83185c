"""Tensor maps that were checked once: machine code copies by them from then on.

A map is found by its address.  Its bytes are compared at every use: a kernel may have
changed them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.simt.compiled import address_of, aligned
from fragmenta.simt.layout import SLOT_BITS
from fragmenta.units.fast import task_layout as at
from fragmenta.units.records import Record

if TYPE_CHECKING:
    from fragmenta.shared.tensor_map import TensorMap
    from fragmenta.simt.boxes import Copy

MOST = 4096
"""How many different maps are kept; a kernel may make any number of them."""


class KnownMaps:
    """The maps of a launch."""

    def __init__(self) -> None:
        self._table: NDArray[np.int64] = aligned(8 * at.MAPS).view(np.int64)
        self._records: dict[bytes, Record] = {}

    @property
    def address(self) -> int:
        """Where machine code finds the table."""
        return address_of(self._table)

    def learn(self, address: int, data: bytes, map: TensorMap, kind: Copy) -> None:
        """A copy by the map at an address is right: know it from now on."""
        # The code of copies takes a while to import.
        from fragmenta.units.map_records import ordinary, reduction, written

        record = self._records.get(data)
        if record is None:
            if len(self._records) >= MOST or not ordinary(map):
                return
            # Several threads may be here: one record is kept.
            record = self._records.setdefault(data, written(data, map))
        reduction(record, kind)
        self._table[map_place(address)] = record.address


def map_place(address: int) -> int:
    """Where the map at an address is in the table.

    >>> map_place((10 << SLOT_BITS) + 128)
    8
    """
    return (address >> 6 ^ address >> SLOT_BITS) % at.MAPS
