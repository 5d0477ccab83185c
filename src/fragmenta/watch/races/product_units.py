"""The units of shared memory that descriptors name, as compiled code finds them.

Where they are is computed once for all starts that are whole repeats of the swizzle
apart: see :mod:`fragmenta.engine.units.wgmma_sources`.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.forking import Lock
from fragmenta.engine.simt.compiled import address_of, aligned, callback_address
from fragmenta.engine.units.fast.layout import HASH
from fragmenta.engine.units.wgmma_forms import signed
from fragmenta.engine.units.wgmma_sources import units
from fragmenta.watch.races.shadow import product_layout as layout

if TYPE_CHECKING:
    from fragmenta.watch.races.register_watch import RegisterUses

_KNOWN = 256
"""How many descriptors new observers know; a full table would be slow to look in."""
ASK_UNITS = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)


def _put(
    table: NDArray[np.int64], of: int, word: int, found: NDArray[np.uint32]
) -> None:
    """Put units where compiled code looks for them."""
    hashed = (signed(word) ^ of << 48) * HASH & (1 << 64) - 1
    places = [
        (hashed >> 54) + probe & layout.UNITS - 1
        for probe in range(layout.UNITS_PROBES)
    ]
    free = (each for each in places if not table[each, 0])
    line = table[next(free, places[0])]
    line[layout.UNITS_KEY >> 3] = signed(word)
    line[layout.UNITS_COUNT >> 3] = found.size
    line[layout.UNITS_STARTS >> 3] = address_of(found)
    line[layout.UNITS_OF >> 3] = of


class KnownUnits:
    """What observers of a kernel have asked for: new ones begin with it.

    Threads ask at the same time, and compiled code reads a table while it is changed.
    So each observer has a table of its own, and this one has a lock.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._table = _new_table()
        self._kept: dict[tuple[int, int], NDArray[np.uint32]] = {}
        """The units, as long as a table may name them."""

    def begun(self) -> NDArray[np.int64]:
        """The table of a new observer."""
        made = _new_table()
        with self._lock:
            made[:] = self._table
        return made

    def add(self, of: int, word: int, found: NDArray[np.uint32]) -> None:
        """Let later observers know, if there is room."""
        with self._lock:
            if len(self._kept) < _KNOWN and (of, word) not in self._kept:
                self._kept[of, word] = found
                _put(self._table, of, word, found)


def _new_table() -> NDArray[np.int64]:
    memory = aligned(layout.UNITS * layout.UNITS_BYTES)
    return memory.view(np.int64).reshape(layout.UNITS, -1)


class UnitTable:
    """The table of an observer; compiled code asks for what is missing there."""

    def __init__(self, uses: RegisterUses, ask: int = 0) -> None:
        """``ask`` is a function that calls :meth:`add` of the right table."""
        self._uses, self._ask = uses, ask
        self._table = uses.units.begun()
        self._kept: dict[tuple[int, int], NDArray[np.uint32]] = {}
        self._function = None if ask else ASK_UNITS(self.add)

    @property
    def address(self) -> int:
        """Where the table is."""
        return address_of(self._table)

    @property
    def ask(self) -> int:
        """The function that adds units: twice the use plus 2, plus 1 for B; the key."""
        if self._function is None:
            return self._ask
        return callback_address(self._function)

    def close(self) -> None:
        """Free everything: the function and the table refer to one another."""
        vars(self).clear()

    def add(self, of: int, key: int) -> None:
        """Add the units of an operand."""
        word = key & (1 << 64) - 1
        found = self._kept.get((of, word))
        if found is None:
            number, operand = divmod(of - 2, 2)
            located = self._uses.all[number].of
            ways = located.ways
            trans = ways.trans_b if operand else ways.trans_a
            found = units(located.op, "AB"[operand], word, trans)
            self._kept[of, word] = found
        _put(self._table, of, word, found)
        self._uses.units.add(of, word, found)
