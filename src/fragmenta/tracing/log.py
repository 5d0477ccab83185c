"""The memory in which a launch writes down its steps.

Compiled code fills it.  When it is full, compiled code calls Python, which takes a
:class:`Piece` out of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.simt.compiled import address_of, aligned, callback_address
from fragmenta.tracing.code import layout as at

Words: TypeAlias = NDArray[np.uint32]
STEP_ROOM = 1 << 15
WORD_ROOM = 1 << 21
ACCESS_ROOM = 1 << 14
DATA_ROOM = 1 << 21
_FULL = ctypes.CFUNCTYPE(None)


class Piece(NamedTuple):
    """Some steps, one after the other."""

    base: int
    """The number of the first one."""
    steps: Words
    """Rows of site, warp, lanes, and where its registers begin in ``words``."""
    words: Words
    rows: Words
    """Accesses: step, form, lanes, warp, and where they begin in ``data``."""
    data: Words
    """Addresses, and the bytes that were written."""


class Log:
    """The log of a launch; ``full`` is called when there is no room in it."""

    def __init__(self, full: Callable[[], None]) -> None:
        self._head = aligned(at.LOG_BYTES).view(np.int64)
        self._steps = np.empty((STEP_ROOM, at.STEP_WORDS), np.uint32)
        self._words = np.empty(WORD_ROOM + at.LEAST_WORDS, np.uint32)
        self._rows = np.empty((ACCESS_ROOM, at.ROW_WORDS), np.uint32)
        self._data = _aligned_words(DATA_ROOM)
        self._function = _FULL(full)
        for place, number in (
            (at.STEP_ROOM, STEP_ROOM),
            (at.WORD_ROOM, WORD_ROOM),
            (at.ACCESS_ROOM, ACCESS_ROOM),
            (at.DATA_ROOM, DATA_ROOM),
            (at.STEPS_AT, address_of(self._steps)),
            (at.WORDS_AT, address_of(self._words)),
            (at.ACCESSES_AT, address_of(self._rows)),
            (at.DATA_AT, address_of(self._data)),
            (at.FULL, callback_address(self._function)),
        ):
            self._head[place >> 3] = number

    @property
    def address(self) -> int:
        """Where compiled code finds it."""
        return address_of(self._head)

    @property
    def now(self) -> int:
        """The number of the next step."""
        return int(self._head[at.BASE >> 3] + self._head[at.STEPS >> 3])

    def take(self) -> Piece:
        """Take everything out of it."""
        head = self._head
        base, steps, words, rows, data = (
            int(head[each >> 3])
            for each in (at.BASE, at.STEPS, at.WORDS, at.ACCESSES, at.DATA)
        )
        made = Piece(
            base,
            self._steps[:steps].copy(),
            self._words[:words].copy(),
            self._rows[:rows].copy(),
            self._data[:data].copy(),
        )
        for each in (at.STEPS, at.WORDS, at.ACCESSES, at.DATA):
            head[each >> 3] = 0
        head[at.BASE >> 3] = base + steps
        return made

    def restart(self) -> None:
        """Forget everything: the next step is the first one."""
        for each in (at.BASE, at.STEPS, at.WORDS, at.ACCESSES, at.DATA):
            self._head[each >> 3] = 0


def _aligned_words(count: int) -> Words:
    """Words at a multiple of 64 bytes, where vectors can be stored."""
    raw = np.empty(count + 16, np.uint32)
    first = -(address_of(raw) // 4) % 16
    return raw[first : first + count]


def own_record(log: Log, warp: int) -> NDArray[np.uint8]:
    """The record of a block that is recorded, whose first warp has this number."""
    made = aligned(at.OWN_BYTES)
    made.view(np.int64)[at.OWN_LOG >> 3] = log.address
    made.view(np.int32)[at.OWN_WARP >> 2] = warp
    return made
