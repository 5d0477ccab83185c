"""Memory of a file of which nobody touched most: copies leave that out.

A program allocates gigabytes and uses some of them.  Pages that nobody touched are zero
and take no memory, until they are read: a copy that reads them all costs as much as
memory that is used.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

_FILES: dict[int, tuple[int, int]] = {}
"""Memory that belongs to a file, by its address: size and file."""


def of_file(data: NDArray[np.uint8], file: int) -> None:
    """Let the memory of a file be copied without what nobody touched."""
    _FILES[int(data.ctypes.data)] = data.size, file


def forget(data: NDArray[np.uint8]) -> None:
    """The file is about to be closed."""
    _FILES.pop(int(data.ctypes.data), None)


def touched(data: NDArray[np.uint8]) -> Iterator[slice]:
    """The parts of memory that may be other than zero.

    >>> list(touched(np.zeros(8, np.uint8)))
    [slice(0, 8, None)]
    """
    size, file = _FILES.get(int(data.ctypes.data), (0, -1))
    if size != data.size or not hasattr(os, "SEEK_DATA"):
        yield slice(0, data.size)
        return
    end = 0
    while end < size:
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
        except OSError as why:
            if why.errno == errno.ENXIO:  # nothing follows
                return
            raise
        end = min(os.lseek(file, start, os.SEEK_HOLE), size)
        if start < end:
            yield slice(start, end)


def copied(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A copy, whose zeros take no memory where nobody touched the original."""
    made = np.zeros(data.size, np.uint8)
    for part in touched(data):
        made[part] = data[part]
    return made


def put_back(data: NDArray[np.uint8], image: NDArray[np.uint8]) -> None:
    """Make memory what it was when it was copied; since then it was only touched."""
    for part in touched(data):
        data[part] = image[part]


def different(data: NDArray[np.uint8], image: NDArray[np.uint8]) -> NDArray[np.intp]:
    """The places where memory is other than in its copy.

    >>> different(np.arange(4, dtype=np.uint8), np.zeros(4, np.uint8)).tolist()
    [1, 2, 3]
    """
    found = [
        np.flatnonzero(data[part] != image[part]) + part.start for part in touched(data)
    ]
    return np.concatenate(found or [np.zeros(0, np.intp)])


CHUNK = 1 << 16
"""Bytes of which a digest has one part."""


def digest(data: NDArray[np.uint8]) -> int:
    """A number that changes if memory does; zeros may be touched or not.

    >>> digest(np.zeros(8, np.uint8)), digest(np.ones(8, np.uint8)) > 0
    (0, True)
    """
    found, end = 0, 0
    for part in touched(data):
        first = max(end, part.start // CHUNK * CHUNK)
        end = min(-(-part.stop // CHUNK) * CHUNK, data.size)
        for start in range(first, end, CHUNK):
            some = data[start : start + CHUNK]
            if some.any():
                found = crc32(some.data, crc32(start.to_bytes(8, "little"), found))
    return found
