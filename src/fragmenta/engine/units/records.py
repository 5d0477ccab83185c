"""Records in memory, which Python and compiled code share.

A class derives from :class:`Record` and names its words.  Where they are is in
:mod:`fragmenta.engine.units.fast.layout`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.compiled import address_of

Bytes = NDArray[np.uint8]


class Record:
    """Some bytes of memory with words that have names.

    >>> class Pair(Record):
    ...     first, second = Word(0), Long(8)
    >>> pair = Pair(np.zeros(16, np.uint8))
    >>> pair.first, pair.second = -1, 1 << 40
    >>> pair.first, pair.raw.view(np.int64).tolist()
    (-1, [4294967295, 1099511627776])
    """

    def __init__(self, memory: Bytes) -> None:
        self.raw = memory
        self.words: NDArray[np.int32] = memory.view(np.int32)
        self.longs: NDArray[np.int64] = memory.view(np.int64)

    @property
    def address(self) -> int:
        """Where it is."""
        return address_of(self.raw)


class Word:
    """A number of 32 bits of a record."""

    def __init__(self, offset: int) -> None:
        self._place = offset >> 2

    def __get__(self, record: Record, kind: type[Record]) -> int:
        return int(record.words[self._place])

    def __set__(self, record: Record, number: int) -> None:
        record.words[self._place] = number


class Long:
    """A number of 64 bits of a record."""

    def __init__(self, offset: int) -> None:
        self._place = offset >> 3

    def __get__(self, record: Record, kind: type[Record]) -> int:
        return int(record.longs[self._place])

    def __set__(self, record: Record, number: int) -> None:
        record.longs[self._place] = number


class Flag:
    """A bit of a word of a record."""

    def __init__(self, offset: int, bit: int = 1) -> None:
        self._place, self._bit = offset >> 2, bit

    def __get__(self, record: Record, kind: type[Record]) -> bool:
        return bool(record.words[self._place] & self._bit)

    def __set__(self, record: Record, given: bool) -> None:
        rest = int(record.words[self._place]) & ~self._bit
        record.words[self._place] = rest | self._bit if given else rest


def signed(word: int) -> int:
    """A word of 32 bits as the number that a record holds.

    >>> signed(0xFFFFFFFF), signed(5)
    (-1, 5)
    """
    return (word & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
