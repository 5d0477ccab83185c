"""The shadow of shared memory: who accessed each word of a cluster's blocks last.

Loads and stores are checked by compiled code
(:mod:`fragmenta.watch.races.shadow`).  What copies and Tensor Cores access is checked
here: :meth:`SharedShadow.touch`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.engine.simt.compiled import aligned, sparse
from fragmenta.engine.simt.loaded import LoadedRoutines
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.errors import BadCall, one_of
from fragmenta.watch.races.order import Clock, Order
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.problem_table import DetectedProblem, ProblemTable

_PROXIES = {"generic": 0, "cp.async": 0, "async": 8}
_POINTER, _WORD, _LONG = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


@once
def functions() -> Callable[..., None]:
    """What looks at an access, loaded once.

    A kernel without asynchronous work does not need it.  Compiling it takes half a
    second.
    """
    # Tracing takes a while to import.
    from fragmenta.watch.races.shadow import shared_memory

    kinds = (_POINTER, _POINTER, _LONG, *6 * (_WORD,), _POINTER, _WORD)
    loaded = LoadedRoutines([shared_memory.TOUCH, *shared_memory.SUPPORT])
    return loaded.function(shared_memory.TOUCH, *kinds)


@once
def renewing() -> int:
    """Where that is which begins a block that runs without Python; loaded once."""
    from fragmenta.watch.races.shadow import barrier_clocks

    return LoadedRoutines([barrier_clocks.RENEW]).address(barrier_clocks.RENEW)


class SharedShadow:
    """The shadow of the shared memory of a cluster.

    With ``strict``, rules are reported that shipped kernels break.

    >>> order = Order(1, 2, 2048, asynchronous=False)
    >>> SharedShadow(order, ProblemTable()).found()
    []
    """

    def __init__(
        self, order: Order, problems: ProblemTable, *, strict: bool = False
    ) -> None:
        self._order, self.problems = order, problems
        self._words = 2 * order.plan.words
        self.memory = aligned(8 * order.plan.blocks * self._words)
        self._records = self.memory.view(np.uint64)
        self._sets = sparse(layout.SETS_BYTES)
        for rank in range(order.plan.blocks):
            self._write_head(rank, strict)

    def _write_head(self, rank: int, strict: bool) -> None:
        """Write into the head of a block where its shadow is."""
        plan = self._order.plan
        self._order.head(rank, np.int32)[layout.HEAD_STRICT // 4] = int(strict)
        where = self._records.ctypes.data + 8 * rank * self._words + 8 * layout.MARGIN
        longs = self._order.head(rank, np.int64)
        for offset, number in (
            (layout.HEAD_WRITES, where),
            (layout.HEAD_READS, where + 8 * plan.words),
            (layout.HEAD_SIZE, plan.shared),
            (layout.HEAD_PROBLEMS, self.problems.address),
            (layout.HEAD_SETS, self._sets.ctypes.data),
        ):
            longs[offset // 8] = number

    @property
    def renew(self) -> int:
        """What ``BLOCK_RESET`` of a block has to be, if it runs without Python.

        Then what is found has the number of its block instead of its cluster.
        """
        return renewing()

    def reset(self) -> None:
        """A new cluster begins.  What was found stays."""
        self._records[:] = 0
        self._sets[: layout.SETS_CELLS] = 0

    def renewed(self, resets: ResetSchedule) -> None:
        """Tell what :meth:`reset` does."""
        resets.clear(self._records, self._sets[: layout.SETS_CELLS])

    def touch(
        self,
        rank: int,
        starts: Sequence[int] | NDArray[np.uint32],
        size: int,
        write: bool,
        agent: int,
        epoch: int,
        site: int,
        clock: Clock,
        *,
        proxy: str = "async",
        lane: int = 0,
        used: bool = True,
    ) -> None:
        """An agent that is not a lane accesses ``size`` bytes at each of these offsets.

        ``clock`` is what it knows.  What is read and not ``used`` need not be written
        before.
        """
        if proxy not in _PROXIES:
            raise BadCall(f"proxies are {one_of(_PROXIES)}; given {proxy!r}")
        places = np.ascontiguousarray(starts, np.uint32)
        reads = layout.READS if used else 0
        kind = (layout.WRITES if write else reads) | _PROXIES[proxy]
        functions()(
            self._order.address(rank),
            places.ctypes.data,
            places.size,
            size,
            kind,
            agent,
            epoch,
            lane,
            site,
            clock.ctypes.data,
            0,
        )

    def records(self, rank: int) -> NDArray[np.uint64]:
        """All records of accesses to the shared memory of a block."""
        every = self._records[rank * self._words : (rank + 1) * self._words]
        found: NDArray[np.uint64] = every[every != 0]
        return found

    def writes(self, rank: int) -> NDArray[np.uint64]:
        """The records of the last writes, one for each word of a block."""
        first = rank * self._words + layout.MARGIN
        return self._records[first : first + self._order.plan.words - 2 * layout.MARGIN]

    def found(self) -> list[DetectedProblem]:
        """The problems that were found so far, in the order of their sites."""
        every = self.problems.found("shared")
        return sorted(
            every, key=lambda each: (each.now.site, each.case.name, each.first)
        )
