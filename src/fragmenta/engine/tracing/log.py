"""The memory in which a launch writes down its steps.

Compiled code fills it.  When it is full, compiled code calls Python, which takes a
:class:`StepChunk` out of it.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import NamedTuple, TypeAlias
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.compiled import address_of, aligned, callback_address
from fragmenta.engine.tracing.code import layout as at

Words: TypeAlias = NDArray[np.uint32]
STEP_ROOM = 1 << 17
WORD_ROOM = 1 << 22
ACCESS_ROOM = 1 << 16
DATA_ROOM = 1 << 22
NOTE_ROOM = 1 << 14
PAYLOAD_ROOM = 1 << 23
_FULL = ctypes.CFUNCTYPE(None)


class StepChunk(NamedTuple):
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


class EffectRows(NamedTuple):
    """What units did, as machine code has written it down."""

    base: int
    """The number of the first note."""
    rows: Words
    payload: Words


_ROOMS = (
    (at.STEPS, at.STEP_ROOM, at.STEPS_AT, STEP_ROOM, at.STEP_WORDS),
    (at.WORDS, at.WORD_ROOM, at.WORDS_AT, WORD_ROOM, 1),
    (at.ACCESSES, at.ACCESS_ROOM, at.ACCESSES_AT, ACCESS_ROOM, at.ROW_WORDS),
    (at.DATA, at.DATA_ROOM, at.DATA_AT, DATA_ROOM, 1),
    (at.NOTES, at.NOTE_ROOM, at.NOTES_AT, NOTE_ROOM, at.NOTE_WORDS),
    (at.PAYLOAD, at.PAYLOAD_ROOM, at.PAYLOAD_AT, PAYLOAD_ROOM, 1),
)
"""The arrays of a log: where it has how much is used, how much room there is and where
the array is; the room, and the words of a row."""
LITTLE = 1 << 14
"""Words that are copied, so that their array can be used again."""


class StepLog:
    """The log of a launch; ``full`` is called when there is no room in it."""

    def __init__(self, full: Callable[[], None]) -> None:
        self._head = aligned(at.LOG_BYTES).view(np.int64)
        self._function = _FULL(full)
        self._head[at.FULL >> 3] = callback_address(self._function)
        self._arrays: list[Words | None] = [None] * len(_ROOMS)
        self._noted = 0
        """Notes that were taken out of it."""

    def prepare(self) -> None:
        """Have arrays for compiled code to fill."""
        for number, (_, room_at, array_at, room, words) in enumerate(_ROOMS):
            if self._arrays[number] is None:
                self._arrays[number] = made = _aligned_words(room * words)
                self._head[room_at >> 3] = room
                self._head[array_at >> 3] = address_of(made)

    @property
    def address(self) -> int:
        """Where compiled code finds it."""
        return address_of(self._head)

    @property
    def now(self) -> int:
        """The number of the next step."""
        return int(self._head[at.BASE >> 3] + self._head[at.STEPS >> 3])

    @property
    def noted(self) -> int:
        """The number of the next note."""
        return self._noted + int(self._head[at.NOTES >> 3])

    def take(self) -> tuple[StepChunk, EffectRows]:
        """Take everything out of it.

        To copy a large array takes longer than to fill it: so it is given away.
        """
        base = int(self._head[at.BASE >> 3])
        taken = []
        for number, (used_at, _, _, _, words) in enumerate(_ROOMS):
            used = int(self._head[used_at >> 3]) * words
            array = self._arrays[number]
            assert array is not None
            found = array[:used]
            if used <= LITTLE:
                found = found.copy()
            else:
                self._arrays[number] = None
            taken.append(found if words == 1 else found.reshape(-1, words))
            self._head[used_at >> 3] = 0
        self._head[at.BASE >> 3] = base + len(taken[0])
        notes = EffectRows(self._noted, *taken[4:])
        self._noted += len(notes.rows)
        return StepChunk(base, *taken[:4]), notes


_FREE: dict[int, list[mmap.mmap]] = {}
"""Memory that was used before, by its size: its first use takes longer."""
MOST_FREE = 4
"""How much memory of each size is kept for the next launch."""


def _aligned_words(count: int) -> Words:
    """Words at the start of a page, in memory that was used before if there is some."""
    kept = _FREE.setdefault(4 * count, [])
    memory = kept.pop() if kept else mmap.mmap(-1, 4 * count)
    made = np.frombuffer(memory, np.uint32)
    finalize(made, _give_back, memory)  # when no view of it is left
    return made


def _give_back(memory: mmap.mmap) -> None:
    kept = _FREE[len(memory)]
    if len(kept) < MOST_FREE:
        kept.append(memory)


def own_record(log: StepLog, place: int, warp: int) -> NDArray[np.uint8]:
    """The record of a block: its place, and the number of its first warp."""
    made = aligned(at.OWN_BYTES)
    made.view(np.int64)[at.OWN_LOG >> 3] = log.address
    made.view(np.int32)[at.OWN_WARP >> 2] = warp
    made.view(np.int32)[at.OWN_PLACE >> 2] = place
    return made
