"""The shadow of tensor memory, and the order of accesses to it.

Each cell has its last write.  Reads are kept by agent and cells.  An access is in order
after an earlier one if its issuer knows that the earlier one is done:

``tcgen05.ld``, ``.st``      done when its warp has executed ``tcgen05.wait``
``tcgen05.mma``, ``.cp``     done when a ``tcgen05.commit`` has signalled an mbarrier

The Tensor Core does some work in the order of its issue, so that no wait is needed in
between; see :func:`pipelined`.  In the clocks of the cluster
(:mod:`fragmenta.races.order`), each warp has an agent for each of these kinds.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import ranges
from fragmenta.ptx import rules
from fragmenta.ptx.effects import LINES, in_order
from fragmenta.races.order import Clock, knows
from fragmenta.units.tmem_cells import Cells

LANES, COLUMNS = 128, 512
RACE = rules.TENSOR_MEMORY_RACE
QUEUED = frozenset(each.kind for each in LINES if each.done_by == "commit")
"""What one thread issues, and a commit completes."""


Pair: TypeAlias = tuple[int, int, int, bool, bool | None]
"""What equal conflicts have in common: the earlier access, and how it is ordered."""


class Access(NamedTuple):
    """An instruction that reads or writes tensor memory."""

    kind: str
    """``ld``, ``st``, ``mma``, ``cp``, ``shift``, or ``dealloc``."""
    rank: int
    warp: int
    lane: int
    """The lane that issued it; -1: all of them."""
    agent: int
    """Who does it; a clock that knows its epoch knows that it is done."""
    epoch: int
    issuer: int
    """The agent of the warp, and its epoch when it was issued."""
    issued: int
    number: int
    """How many accesses of the warp were issued before."""
    site: int
    form: Form | None = None
    """For products: what has to be the same for one to follow another."""
    threads: int = 1
    """How many lanes issued it, each for itself, with one instruction."""

    @property
    def words(self) -> str:
        """What it is called, and who issued it."""
        lane = "" if self.lane < 0 else f" lane {self.lane}"
        return f"tcgen05.{self.kind} of warp {self.warp}{lane}"

    def known(self, row: Clock) -> bool:
        """Whether a clock says that it is done."""
        return knows(row[0], self.agent, max(0, self.lane), self.epoch)

    def before(self, row: Clock) -> bool:
        """Whether a clock says that it was issued."""
        return knows(row[0], self.issuer, max(0, self.lane), self.issued)


def pipelined(
    old: Access, new: Access, was_write: bool, accumulates: bool
) -> bool | None:
    """Whether two pieces of work are done in the order in which they were issued.

    None: the manual does not say so, but shipped kernels depend on it.
    ``accumulates`` says that the cells are those of the new product's D.
    """
    return in_order(
        f"tcgen05.{old.kind}",
        f"tcgen05.{new.kind}",
        was_write,
        accumulates and old.form == new.form,
    )


# ── cells ───────────────────────────────────────────────────────────────────


@lru_cache(maxsize=1024)
def _mask(lanes: tuple[int, ...]) -> int:
    return sum(1 << each for each in lanes)


class Region(NamedTuple):
    """Cells as they are compared: a bit for each lane, and columns."""

    rank: int
    lanes: int
    start: int
    stop: int

    def meets(self, other: Region) -> bool:
        """Whether there are common cells."""
        return (
            self.rank == other.rank
            and self.start < other.stop
            and other.start < self.stop
            and bool(self.lanes & other.lanes)
        )

    def words(self, rank: int) -> str:
        """Where they are; the block is named if its rank is another one."""
        lanes = [each for each in range(LANES) if self.lanes >> each & 1]
        of = "" if rank == self.rank else f" of block {self.rank} of the cluster"
        last = self.stop - 1
        span = f"{self.start}" if last == self.start else f"{self.start}-{last}"
        return (
            f"column{'s' * (last > self.start)} {span} of lanes {ranges(lanes)} of "
            f"tensor memory{of}"
        )


def region(cells: Cells) -> Region:
    """The cells of an instruction, as they are compared."""
    first = int(cells.column)
    return Region(cells.rank, _mask(cells.lanes), first, first + int(cells.columns))


Form: TypeAlias = tuple[int, int, tuple[Region, ...]]
"""What two products must have in common to follow one another: M, N, and D."""


class Memory:
    """The accesses of the cells of one block."""

    def __init__(self) -> None:
        self.writes: NDArray[np.int32] = np.zeros((LANES, COLUMNS), np.int32)
        """The number of the last write of each cell; 0: there was none."""
        self.reads: dict[tuple[int, int, Region], Access] = {}
        """The last read of each agent and lane, by the cells."""

    def clear(self) -> None:
        """A new cluster begins."""
        self.writes[:] = 0
        self.reads.clear()

    def writers(self, cells: Cells) -> list[int]:
        """The numbers of the last writes of some cells."""
        found = self.writes[cells.index]
        first = int(found.flat[0]) if found.size else 0
        if (found == first).all():  # usually: faster
            return [first]
        return [int(each) for each in np.unique(found)]

    def forget(self, gone: Region) -> None:
        """Forget the accesses of columns that are freed."""
        self.writes[:, gone.start : gone.stop] = 0
        self.reads = {
            key: each for key, each in self.reads.items() if not key[2].meets(gone)
        }


class Conflict(NamedTuple):
    """Two accesses of common cells."""

    old: Access
    new: Access
    where: Region
    was_write: bool
    now_write: bool
    ordered: bool | None
    """None: only by an order that the manual does not promise."""
    pipelined: bool
    """Whether no wait was needed between the two."""


class TensorCells:
    """The tensor memory of all blocks of a cluster."""

    def __init__(self, blocks: int) -> None:
        self._memories = [Memory() for _ in range(blocks)]
        self._writes: list[Access] = []

    def begin(self) -> None:
        """A new cluster begins."""
        self._writes.clear()
        for each in self._memories:
            each.clear()

    def conflicts(
        self, new: Access, row: Clock, reads: Iterable[Cells], writes: Iterable[Cells]
    ) -> list[Conflict]:
        """The earlier accesses of the same cells, one of each instruction.

        ``row`` is what the issuing lanes know.
        """
        found: dict[Pair, Conflict] = {}
        goals = [region(each) for each in writes]
        for cells, write in (
            *((e, False) for e in reads),
            *((e, True) for e in writes),
        ):
            here = region(cells)
            memory = self._memories[here.rank]
            own = write or here in goals
            for number in memory.writers(cells):
                if number:
                    old = self._writes[number - 1]
                    self._judge(found, old, new, here, True, write, own, row)
            if write:
                for (_, _, where), old in memory.reads.items():
                    if where.meets(here):
                        self._judge(found, old, new, here, False, True, own, row)
        return list(found.values())

    def _judge(
        self,
        found: dict[Pair, Conflict],
        old: Access,
        new: Access,
        where: Region,
        was_write: bool,
        now_write: bool,
        own: bool,
        row: Clock,
    ) -> None:
        ordered: bool | None = old.known(row)
        follows = False
        if old.kind in QUEUED and new.kind in QUEUED and old.before(row):
            promised = pipelined(old, new, was_write, own)
            follows = promised is True
            ordered = ordered or promised
        key = old.site, old.rank, old.warp, was_write, ordered
        found.setdefault(
            key, Conflict(old, new, where, was_write, now_write, ordered, follows)
        )

    def unwritten(self, reads: Iterable[Cells]) -> Region | None:
        """Cells that are read, and were not written."""
        for cells in reads:
            memory = self._memories[cells.rank]
            if 0 in memory.writers(cells):
                return region(cells)
        return None

    def record(
        self, new: Access, reads: Iterable[Cells], writes: Iterable[Cells]
    ) -> None:
        """Record an access."""
        goals = {region(each) for each in writes}
        for cells in reads:
            here = region(cells)
            if here not in goals:
                key = new.agent, new.lane, here
                self._memories[here.rank].reads[key] = new
        if goals:
            self._writes.append(new)
        for cells in writes:
            self._memories[cells.rank].writes[cells.index] = len(self._writes)

    def forget(self, gone: Cells) -> None:
        """Forget the accesses of columns of a block that are freed."""
        self._memories[gone.rank].forget(region(gone))
