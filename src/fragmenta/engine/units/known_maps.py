"""Tensor maps that were checked once: machine code copies by them from then on.

A map is found by its bytes.  So all blocks that make the same map, and all launches of
a kernel, use what was found out once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.compiled import address_of, aligned
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.records import Record

if TYPE_CHECKING:
    from fragmenta.engine.simt.boxes import Copy
    from fragmenta.reference.shared.tensor_map import TensorMap

MOST = 4096
"""How many different maps are kept; a kernel may make any number of them."""


class KnownMaps:
    """The maps of the launches of a kernel."""

    def __init__(self) -> None:
        self._none = Record(aligned(at.MAP_RECORD))
        self._none.raw[:] = 0xFF  # it has no rank that an instruction names
        self._table: NDArray[np.int64] = aligned(8 * at.MAPS).view(np.int64)
        self._table[:] = self._none.address
        self._records: dict[bytes, Record] = {}

    @property
    def address(self) -> int:
        """Where machine code finds the table."""
        return address_of(self._table)

    @property
    def full(self) -> bool:
        """Whether no further map is kept."""
        return len(self._records) >= MOST

    def learn(self, data: bytes, map: TensorMap, kind: Copy) -> None:
        """A copy by a map with these bytes is right: know it from now on."""
        # The code of copies takes a while to import.
        from fragmenta.engine.units.map_records import ordinary, reduction, written

        record = self._records.get(data)
        if record is None:
            if self.full or not ordinary(map):
                return
            # Several threads may be here: one record is kept.
            record = self._records.setdefault(data, written(data, map))
        reduction(record, kind)
        place = map_place(data)
        where = {int(self._table[place ^ probe]): place ^ probe for probe in (1, 0)}
        if record.address not in where:
            self._table[where.get(self._none.address, place)] = record.address


def map_place(data: bytes) -> int:
    """Where a map is in the table; or it is at the place next to that.

    >>> map_place(bytes(128)), map_place(bytes(127) + b"@")
    (0, 768)
    """
    numbers: list[int] = np.frombuffer(data, np.uint64).tolist()
    total = sum(each * at.map_factor(number) for number, each in enumerate(numbers))
    return total % (1 << 64) >> at.MAP_SHIFT
