"""How do the workers of a Dask cluster run the blocks of one grid?

Each worker runs some blocks on a copy of the memory and notes which bytes it wrote.
Then the copies are merged.  A byte that two workers wrote is an error, unless both
changed it by the same atomic operation whose order does not matter.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import Error, KernelFault
from fragmenta.ptx.arguments import Segment
from fragmenta.ptx.engine.atomics import COMMUTATIVE
from fragmenta.ptx.engine.memory import MIXED, PLAIN

_PORTIONS = 4
"""Portions of the grid for each worker."""


class Written(NamedTuple):
    """What one portion wrote in one segment."""

    places: NDArray[np.int64]
    values: NDArray[np.uint8]
    notes: NDArray[np.uint8]


class Portion(NamedTuple):
    """What came of some blocks."""

    written: list[Written]
    counts: NDArray[np.int64]
    output: str


def portions(blocks: int, workers: int) -> list[tuple[int, int]]:
    """The grid cut into portions.

    >>> portions(10, 1)
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    count = max(1, min(blocks, workers * _PORTIONS))
    edges = [blocks * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def collect(segments: list[Segment], notes: list[NDArray[np.uint8]]) -> list[Written]:
    """What was written, after a portion has run."""
    found = []
    for segment, note in zip(segments, notes, strict=True):
        places = np.flatnonzero(note)
        found.append(Written(places, segment.data[places], note[places]))
    return found


def merge(segments: list[Segment], parts: list[Portion]) -> None:
    """Put what all portions wrote into the memory."""
    for number, segment in enumerate(segments):
        _merge(segment, [part.written[number] for part in parts])


def _merge(segment: Segment, parts: list[Written]) -> None:
    before = segment.data.copy()
    owner = np.full(segment.data.size, -1, np.int32)
    note = np.zeros(segment.data.size, np.uint8)
    for number, part in enumerate(parts):
        again = owner[part.places] >= 0
        _refuse(segment, part, again, note, number, owner)
        fresh = part.places[~again]
        segment.data[fresh] = part.values[~again]
        note[fresh] = part.notes[~again]
        for code in np.unique(part.notes[again]).tolist():
            some = again & (part.notes == code)
            _combine(segment, before, part.places[some], part.values[some], code)
        owner[part.places] = number


def _refuse(
    segment: Segment,
    part: Written,
    again: NDArray[np.bool_],
    note: NDArray[np.uint8],
    number: int,
    owner: NDArray[np.int32],
) -> None:
    """Bytes that two portions wrote, but not by the same atomic operation."""
    codes = part.notes[again]
    wrong = (codes == PLAIN) | (codes == MIXED) | (codes != note[part.places[again]])
    if wrong.any():
        place = int(part.places[again][wrong][0])
        raise KernelFault(
            f"byte {place} of {segment.name} was written by blocks of portion "
            f"{int(owner[place])} and of portion {number}; the result would depend on "
            "their order; launch without client=",
            "order",
        )


def _combine(
    segment: Segment,
    before: NDArray[np.uint8],
    places: NDArray[np.int64],
    values: NDArray[np.uint8],
    code: int,
) -> None:
    """Two portions changed words by the same atomic operation."""
    operation, kind = COMMUTATIVE[code - 2]
    size = int(kind[1:]) // 8
    of = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{size}")
    first = places.reshape(-1, size)
    here = np.ascontiguousarray(segment.data[first]).view(of).reshape(-1)
    there = np.ascontiguousarray(values.reshape(-1, size)).view(of).reshape(-1)
    old = np.ascontiguousarray(before[first]).view(of).reshape(-1)
    with np.errstate(over="ignore"):
        joined = {
            "add": lambda: here + (there - old),
            "min": lambda: np.minimum(here, there),
            "max": lambda: np.maximum(here, there),
            "and": lambda: here & there,
            "or": lambda: here | there,
            "xor": lambda: here ^ there ^ old,
        }[operation]()
    segment.data[first] = joined.astype(of).view(np.uint8).reshape(-1, size)


def workers(client: Any) -> int:
    """How many threads a cluster has."""
    try:
        return max(1, sum(map(int, client.nthreads().values())))
    except AttributeError as error:
        raise Error(
            f"client is a dask.distributed.Client; given {type(client).__name__}"
        ) from error
