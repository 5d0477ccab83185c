"""Portions of a grid that run on copies of its memory, and how they are merged.

A portion notes which bytes it wrote, and how.  If it is watched, it also says which
bytes it read.  Portions are independent if none touches a byte that another one writes,
or if all of them change it by the same atomic operation whose order does not matter,
and whose scope includes all of them.  Merging independent portions gives the bytes that
the whole grid leaves on one machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.arguments import Segment
from fragmenta.engine.simt.atomics import COMMUTATIVE
from fragmenta.engine.simt.layout import MIXED, PLAIN
from fragmenta.engine.units.findings import Finding
from fragmenta.errors import KernelFault


class PortionWrites(NamedTuple):
    """What one portion wrote in one segment."""

    places: NDArray[np.int64]
    values: NDArray[np.uint8]
    notes: NDArray[np.uint8]


class Portion(NamedTuple):
    """What came of some blocks."""

    written: Sequence[PortionWrites]
    """For each segment that can be written."""
    reads: Sequence[NDArray[np.uint8]]
    """For each such segment, a bit for each byte that was read; none if the portion
    was not watched."""
    compared: bool
    """Whether its atomic operations have to be compared with those of others: one has
    changed a word that was read before, which is not among the reads, or its scope
    leaves other blocks out."""
    counts: NDArray[np.int64]
    output: str
    problems: Sequence[Finding]
    """What units found, whether or not the portion was watched."""
    told: object
    """What its observer found, if it has one."""
    fault: KernelFault | None = None
    """Why it could not go on."""
    counted: object = None
    """What it counted, if it was to count: :class:`counters.tally.Taken`."""


def portions(clusters: int, count: int) -> list[tuple[int, int]]:
    """The clusters of a grid cut into so many portions, if there are enough.

    >>> portions(10, 4)
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    count = max(1, min(clusters, count))
    edges = [clusters * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def collect(
    segments: list[Segment], notes: list[NDArray[np.uint8]]
) -> list[PortionWrites]:
    """What was written, after a portion has run."""
    found = []
    for segment, note in zip(segments, notes, strict=True):
        places = np.flatnonzero(note)
        found.append(PortionWrites(places, segment.data[places], note[places]))
    return found


# ── who depends on whom ─────────────────────────────────────────────────────


class Clash(NamedTuple):
    """A byte that portions touch whose order matters."""

    segment: int
    place: int
    first: int
    """The first portion that wrote it."""
    other: int
    """Another one that read or wrote it."""


class Conflicts(NamedTuple):
    """The portions that are not independent, and a byte that shows it."""

    members: set[int]
    first: Clash | None


def conflicts(sizes: Sequence[int], parts: Mapping[int, Portion]) -> Conflicts:
    """Which portions depend on the order in which they run.

    ``sizes`` are the bytes of each segment that can be written.
    """
    members: set[int] = set()
    first: Clash | None = None
    for number, size in enumerate(sizes):
        clash, owner = _clashing(number, size, parts)
        for key, part in parts.items():
            places = part.written[number].places
            mine = clash[places]
            reads = clash & _read(part, number, size)
            if not mine.any() and not reads.any():
                continue
            members.add(key)
            touched = reads.copy()
            touched[places] |= mine
            other = touched & (owner != key)
            if first is None and other.any():
                place = int(other.argmax())
                first = Clash(number, place, int(owner[place]), key)
    return Conflicts(members, first)


def _clashing(
    number: int, size: int, parts: Mapping[int, Portion]
) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """The bytes whose accesses have an order that matters, and who wrote each first."""
    clash = np.zeros(size, np.bool_)
    owner = np.full(size, -1, np.int32)
    note = np.zeros(size, np.uint8)
    for key, part in parts.items():
        places, _, notes = part.written[number]
        again = owner[places] >= 0
        plain = (notes == PLAIN) | (notes == MIXED) | (notes != note[places])
        clash[places[again & plain]] = True
        owner[places[~again]] = key
        note[places[~again]] = notes[~again]
    compared = [part.written[number].places for part in parts.values() if part.compared]
    shared = _written_twice(number, size, parts)
    for places in compared:
        clash[places[shared[places]]] = True
    for key, part in parts.items():
        read = _read(part, number, size)
        if read.any():
            # What only the reader itself wrote is its own.
            clash |= read & (owner >= 0) & ((owner != key) | shared)
    return clash, owner


def _written_twice(
    number: int, size: int, parts: Mapping[int, Portion]
) -> NDArray[np.bool_]:
    """The bytes that several portions wrote."""
    once, twice = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    for part in parts.values():
        places = part.written[number].places
        twice[places[once[places]]] = True
        once[places] = True
    return twice


def _read(part: Portion, number: int, size: int) -> NDArray[np.bool_]:
    """The bytes of a segment that a portion read, as far as that is known."""
    if not part.reads:
        return np.zeros(size, np.bool_)
    return np.unpackbits(part.reads[number], count=size).astype(np.bool_)


def order_fault(segment: Segment, clash: Clash) -> KernelFault:
    """The error for portions whose order matters."""
    return KernelFault(
        f"byte {clash.place} of {segment.name} was written by blocks of portion "
        f"{clash.first} and of portion {clash.other}; the result would depend on "
        "their order; launch without client=",
        "order",
    )


# ── one memory of many ──────────────────────────────────────────────────────


class Merger:
    """Puts what independent portions wrote into the memory of the launch."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = list(segments)
        self._before = [each.data.copy() for each in self._segments]
        self._changed = [np.zeros(each.data.size, np.bool_) for each in self._segments]

    def add(self, part: Portion) -> None:
        """Put what one more portion wrote."""
        for number, (places, values, notes) in enumerate(part.written):
            data, changed = self._segments[number].data, self._changed[number]
            again = changed[places]
            data[places[~again]] = values[~again]
            for code in np.unique(notes[again]).tolist():
                some = again & (notes == code)
                before = self._before[number]
                _combine(data, before, places[some], values[some], code)
            changed[places] = True


def _combine(
    data: NDArray[np.uint8],
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
    here = np.ascontiguousarray(data[first]).view(of).reshape(-1)
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
    data[first] = joined.astype(of).view(np.uint8).reshape(-1, size)
