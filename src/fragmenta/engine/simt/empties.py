"""Arrays whose bytes count as unwritten: :func:`empty`.

An array of :func:`empty` is filled with words that hardly any program computes.  A word
that still has this value when a kernel starts counts as unwritten.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.engine.simt.layout import POISON
from fragmenta.errors import ShapeError

_MADE: dict[int, tuple[int, weakref.ref[Array]]] = {}
"""The arrays that were made here, by the address of their memory: size and array."""


def empty(shape: int | Sequence[int], dtype: DTypeLike = np.float32) -> Array:
    """An array whose bytes count as unwritten until something writes them.

    A checked launch reports a kernel that reads them before they are written.

    >>> empty(2).view(np.uint32).tolist() == [POISON, POISON]
    True
    """
    try:
        made = np.empty(shape, dtype)
    except (TypeError, ValueError, OverflowError, MemoryError) as why:
        raise ShapeError(f"no array has this shape and type: {why}") from why
    if made.dtype.hasobject:
        raise ShapeError("an empty array holds numbers, not Python objects")
    memory = made.reshape(-1).view(np.uint8)
    memory[:] = poison(memory.size)
    count_as_empty(made)
    return made


def count_as_empty(made: Array) -> None:
    """Let the words of an array that have the value count as unwritten."""
    address = int(made.ctypes.data)
    _MADE[address] = (made.nbytes, weakref.ref(made, lambda _: _MADE.pop(address, 0)))


def count_as_written(made: Array) -> None:
    """Let all words of an array count as written, whatever they are."""
    _MADE.pop(int(made.ctypes.data), None)


def empty_parts(data: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """The arrays of :func:`empty` within some memory: where each begins and ends.

    >>> memory = empty(4).view(np.uint8)
    >>> empty_parts(memory), empty_parts(np.zeros(4, np.uint8))
    ([(0, 16)], [])
    """
    start = int(data.ctypes.data)
    made = [(at - start, at - start + size) for at, (size, _) in list(_MADE.items())]
    return [(at, end) for at, end in made if at >= 0 and end <= data.size and at < end]


def poison(size: int) -> NDArray[np.uint8]:
    """Bytes that count as unwritten in an array of :func:`empty`."""
    words = np.full(-(-size // 4), POISON, np.uint32)
    return words.view(np.uint8)[:size]


CHUNK = 1 << 18
"""Bytes that are compared at a time; whole words."""


def marks(data: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
    """A byte for each byte of memory, 1 if it is unwritten; None if all are written."""
    start, found = int(data.ctypes.data), None
    for address, (size, _) in list(_MADE.items()):
        begin = address - start  # words count from the start of the array
        end = min(begin + size, data.size)
        from_chunk = begin + max(-begin, 0) // CHUNK * CHUNK
        for at in range(from_chunk, end, CHUNK) if end > 0 else ():
            first, last = max(at, 0), min(at + CHUNK, end)
            same = _unwritten(data[first:last], (first - at) % 4)
            if same.any():
                if found is None:
                    found = np.zeros(data.size, np.uint8)
                found[first:last] = same
    return found if found is not None and found.any() else None


def any_unwritten(words: NDArray[np.uint8]) -> bool:
    """Whether one of the words that were filled still has its value."""
    parts = range(0, words.size, CHUNK)
    return any((words[at : at + CHUNK].view(np.uint32) == POISON).any() for at in parts)


def _unwritten(part: NDArray[np.uint8], skip: int) -> NDArray[np.uint8]:
    """A byte for each byte of a part that begins after ``skip`` bytes of a word.

    Words that the part has only some bytes of are judged by these.
    """
    padded = poison(skip + part.size + (-skip - part.size) % 4)
    padded[skip : skip + part.size] = part
    same: NDArray[np.bool_] = padded.view(np.uint32) == POISON
    return same.repeat(4).view(np.uint8)[skip : skip + part.size]
