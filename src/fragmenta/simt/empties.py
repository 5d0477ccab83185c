"""Arrays whose bytes count as unwritten: :func:`empty`.

An array of :func:`empty` is filled with words that hardly any program computes.  A word
that still has this value when a kernel starts counts as unwritten.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fragmenta.arrays.checks import Array
from fragmenta.errors import ShapeError
from fragmenta.simt.layout import POISON

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
    memory[:] = _poison(memory.size)
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


def _poison(size: int) -> NDArray[np.uint8]:
    words = np.full(-(-size // 4), POISON, np.uint32)
    return words.view(np.uint8)[:size]


def marks(data: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
    """A byte for each byte of memory, 1 if it is unwritten; None if all are written."""
    start, found = int(data.ctypes.data), None
    for address, (size, _) in list(_MADE.items()):
        first, last = max(address, start), min(address + size, start + data.size)
        if first < last:
            if found is None:
                found = np.zeros(data.size, np.uint8)
            begin = address - start  # words count from the start of the array
            first, last = first - start, last - start
            same = data[first:last] == _poison(size)[first - begin : last - begin]
            found[first:last] = same & _whole(same, (begin - first) % 4)
    return found if found is not None and found.any() else None


def _whole(same: NDArray[np.bool_], skip: int) -> NDArray[np.bool_]:
    """Whether all bytes of its word are the same; words begin after ``skip`` bytes."""
    padded = np.ones(-(-(same.size + 4) // 4) * 4 + 4, np.bool_)
    front = -skip % 4
    padded[front : front + same.size] = same
    words = padded.reshape(-1, 4).all(axis=1).repeat(4)
    return words[front : front + same.size]
