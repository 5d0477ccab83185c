"""What machine code does between two clusters that Python has no part in.

A :class:`ResetSchedule` is made when a cluster has just begun.  All that has state in
memory tells it which of that is renewed when another cluster begins, and what has to be
clean when one ends.  State in Python is not renewed: a cluster that Python has touched
is ended by Python, and the next one is begun by Python.  ``units.fast.clusters`` reads
it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.engine.simt.compiled import address_of, copied
from fragmenta.engine.units.fast import layout

Numbers = NDArray[np.generic]


class Routines(NamedTuple):
    """The machine code that runs clusters, and that takes the next of a queue."""

    clusters: Callable[[int, int, int], None]
    take: Callable[[int], int]


@once
def routines() -> Routines:
    """The machine code, loaded once."""
    # LLVM and tracing take a while to import.
    from fragmenta.engine.simt.loaded import LoadedRoutines
    from fragmenta.engine.units.fast.clusters import CLUSTERS, LINKED, TAKE

    loaded = LoadedRoutines([*LINKED, CLUSTERS, TAKE])
    pointer = ctypes.c_void_p
    return Routines(
        loaded.function(CLUSTERS, pointer, pointer, ctypes.c_int32),
        loaded.function(TAKE, pointer, returns=ctypes.c_int64),
    )


class ResetSchedule:
    """The lists of what is renewed and of what is clean."""

    def __init__(self, owner: object) -> None:
        """``owner`` has memory that lives at least as long."""
        self._owner = owner
        self._begin: list[tuple[int, ...]] = []
        self._end: list[tuple[int, ...]] = []
        self._kept: list[NDArray[Any]] = []
        self.leaks = False
        """Whether copies matter that nobody has waited for."""
        self.first = False
        """Whether Python has to keep what the first cluster of the grid did."""

    def clear(self, *memories: Numbers, when: Numbers | None = None) -> None:
        """Memory that is 0 when a cluster begins.

        ``when`` is a number that is not 0 if the memory was used.  It is looked at
        before what comes later in the list.
        """
        flag = 0 if when is None else address_of(when)
        for each in memories:
            if each.size:
                self._add(layout.CLEAR, each, 0, flag)

    def copy(self, *memories: Numbers) -> None:
        """Memory that is as it is now when a cluster begins."""
        for each in memories:
            image = copied(np.ascontiguousarray(each))
            if image.any():
                self._kept.append(image)
                self._add(layout.COPY, each, address_of(image), 0)
            else:
                self.clear(each)

    def number(self, place: NDArray[np.int64], base: int) -> None:
        """A number that is that of the cluster, plus another."""
        self._begin.append((layout.NUMBER, address_of(place), base, 0, 0, 0, 0, 0))

    def count(self, word: NDArray[np.int32], listed: NDArray[np.int64]) -> None:
        """A count of clusters, and the list of their numbers."""
        place = address_of(word)
        for kind, goal, source in (
            (layout.COUNT, place, 0),
            (layout.LIST, address_of(listed), place),
        ):
            self._begin.append((kind, goal, source, 0, 0, 0, 0, 0))

    def lookup(self, place: NDArray[np.int64], listed: NDArray[np.int64]) -> None:
        """A number that a list has for each cluster."""
        self._kept.append(listed)
        where = address_of(place), address_of(listed)
        self._begin.append((layout.LOOKUP, *where, 0, 0, 0, 0, 0))

    def zero_at_end(self, *memories: Numbers) -> None:
        """Words that are 0 when a cluster ends, or Python has to end it."""
        for each in memories:
            for part in _parts(each):
                self._end.append((address_of(part), 0, part.nbytes // 4, 0))

    def equal_at_end(self, some: Numbers, others: Numbers) -> None:
        """Words that are as others when a cluster ends, or Python has to end it."""
        places = address_of(some), address_of(others)
        self._end.append((*places, some.nbytes // 4, 0))

    def same_at_end(self, some: Numbers) -> None:
        """Words that are as they are now when a cluster ends."""
        self._kept.append(copied(some))
        self.equal_at_end(some, self._kept[-1])

    def _add(self, kind: int, memory: Numbers, source: int, when: int) -> None:
        count, step, size = 1, 0, memory.nbytes
        if not memory.flags.c_contiguous:
            assert memory[0].flags.c_contiguous
            count, step, size = len(memory), memory.strides[0], memory[0].nbytes
        goal = address_of(memory)
        self._begin.append((kind, goal, source, size, count, step, when, 0))

    def write(self, run: NDArray[np.int64]) -> None:
        """Let a run of clusters find the lists."""
        begin, end = (copied(np.array(e, np.int64)) for e in (self._begin, self._end))
        self._kept += [begin, end]
        for offset, number in (
            (layout.RUN_BEGIN, address_of(begin)),
            (layout.RUN_BEGIN_COUNT, len(begin)),
            (layout.RUN_END, address_of(end)),
            (layout.RUN_END_COUNT, len(end)),
        ):
            run[offset >> 3] = number
        words = run.view(np.int32)
        words[layout.RUN_LEAKS >> 2] = self.leaks
        words[layout.RUN_FIRST >> 2] = self.first


def _parts(memory: Numbers) -> list[Numbers]:
    """A piece of memory; or its rows, if there are gaps between them."""
    if memory.flags.c_contiguous:
        return [memory]
    return [memory[row : row + 1] for row in range(len(memory))]
