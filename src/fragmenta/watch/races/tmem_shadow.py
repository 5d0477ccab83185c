"""The shadow of tensor memory, and the order of accesses to it.

Each cell has its last write.  Reads are kept by agent and cells.  An access is in order
after an earlier one if its issuer knows that the earlier one is done:

``tcgen05.ld``, ``.st``      done when its warp has executed ``tcgen05.wait``
``tcgen05.mma``, ``.cp``     done when a ``tcgen05.commit`` has signalled an mbarrier

The Tensor Core does some work in the order of its issue, so that no wait is needed in
between; see :func:`pipelined`.  In the clocks of the cluster
(:mod:`fragmenta.watch.races.order`), each warp has an agent for each of these kinds.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.compiled import address_of, aligned, zeros
from fragmenta.engine.units.records import Record, Word
from fragmenta.engine.units.tmem_cells import Cells
from fragmenta.errors import ranges
from fragmenta.ptx import rules
from fragmenta.ptx.effects import LINES, in_order
from fragmenta.watch.races.order import Clock, knows
from fragmenta.watch.races.shadow import tensor_layout as layout

LANES, COLUMNS = 128, 512
RACE = rules.TENSOR_MEMORY_RACE
QUEUED = frozenset(each.kind for each in LINES if each.done_by == "commit")
"""What one thread issues, and a commit completes."""


Pair: TypeAlias = tuple[int, int, int, bool, bool | None]
"""What equal conflicts have in common: the earlier access, and how it is ordered."""


class TensorAccess(NamedTuple):
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
    old: TensorAccess, new: TensorAccess, was_write: bool, accumulates: bool
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


class CellSet(NamedTuple):
    """Cells as they are compared: a bit for each lane, and columns."""

    rank: int
    lanes: int
    start: int
    stop: int

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


def region(cells: Cells) -> CellSet:
    """The cells of an instruction, as they are compared."""
    first = int(cells.column)
    return CellSet(cells.rank, _mask(cells.lanes), first, first + int(cells.columns))


Form: TypeAlias = tuple[int, int, tuple[CellSet, ...]]
"""What two products must have in common to follow one another: M, N, and D."""


class Listed:
    """Records in memory that compiled code adds to; there is always more room."""

    def __init__(
        self, longs: NDArray[np.int64], first: int, of: np.dtype[np.void], room: int
    ) -> None:
        # Not the watch itself: the two would wait for Python's collector.
        self._longs, self._place = longs, first >> 3
        self.rows = zeros(room, of)
        self._write()

    def _write(self) -> None:
        self._longs[self._place] = address_of(self.rows)
        self._longs[self._place + 2] = self.rows.size

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self._longs[self._place + 1])

    @count.setter
    def count(self, number: int) -> None:
        self._longs[self._place + 1] = number

    def make_room(self) -> None:
        """Make room for some more, where compiled code would need it."""
        if self.count + layout.MARGIN >= self.rows.size:
            more = np.zeros(2 * self.rows.size, self.rows.dtype)
            more[: self.rows.size] = self.rows
            self.rows = more
            self._write()

    def add(self, row: tuple[Any, ...]) -> None:
        """Add a record."""
        self.make_room()
        self.rows[self.count] = row
        self.count += 1


class Watch(Record):
    """What is known of the tensor memories of a cluster, as compiled code finds it."""

    _group = Word(layout.WATCH_GROUP)
    _group_site = Word(layout.WATCH_GROUP_SITE)

    def __init__(self, blocks: int, warps: int, used: bool = True) -> None:
        """``used``: whether the kernel uses tensor memory."""
        super().__init__(aligned(layout.WATCH_BYTES))
        self._warps = warps
        self.periods = zeros((len(layout.AGENTS), blocks, warps), np.int32)
        """The present epoch of each agent of a warp."""
        self.numbers = zeros((blocks, warps), np.int32)
        """How many accesses each warp has issued."""
        shape, room = (blocks, LANES, COLUMNS), layout.ROOM
        if not used:
            shape, room = (blocks, 0, 0), 0
        # Memory that is never touched costs nothing.
        self.cells = zeros(shape, np.int32)
        """The number of the last write of each cell; 0: there was none."""
        self._idle = zeros(blocks, np.int32)
        self.writes = Listed(self.longs, layout.WATCH_WRITES, layout.ACCESS, room)
        self.reads = Listed(self.longs, layout.WATCH_READS, layout.READ, room)
        self.commits = Listed(self.longs, layout.WATCH_COMMITS, layout.COMMIT, room)
        for offset, memory in (
            (layout.WATCH_PERIODS, self.periods),
            (layout.WATCH_NUMBERS, self.numbers),
            (layout.WATCH_CELLS, self.cells),
            (layout.WATCH_IDLE, self._idle),
        ):
            self.longs[offset >> 3] = address_of(memory)

    def begin(self) -> None:
        """A new cluster begins."""
        if self.writes.count:
            self.cells[:] = 0
        self.writes.count = self.reads.count = self.commits.count = 0
        self.periods[:] = self.numbers[:] = self._idle[:] = 0

    def idle(self, rank: int) -> tuple[int, int] | None:
        """The warp and the lane of a block that last committed no work."""
        number = int(self._idle[rank]) - 1
        return None if number < 0 else divmod(number, 32)

    def is_idle(self, rank: int, warp: int, lane: int) -> None:
        """A thread commits no work."""
        self._idle[rank] = warp * 32 + lane + 1

    @property
    def group(self) -> tuple[str, int] | None:
        """The first ``.cta_group``, and where it is."""
        return (f"cta_group::{self._group}", self._group_site) if self._group else None

    @group.setter
    def group(self, given: tuple[str, int]) -> None:
        self._group, self._group_site = int(given[0][-1]), given[1]


# ── records ─────────────────────────────────────────────────────────────────

_NOWHERE = (0, 0, 0, 0, (0, 0))
_HALF = (1 << 64) - 1


def _packed_region(of: CellSet) -> tuple[Any, ...]:
    halves = of.lanes & _HALF, of.lanes >> 64
    return of.rank, of.start, of.stop, 1, halves


def _region(rank: int, start: int, stop: int, _: int, lanes: Any) -> CellSet:
    low, high = (int(each) for each in lanes)
    return CellSet(rank, high << 64 | low, start, stop)


def _packed(access: TensorAccess) -> tuple[Any, ...]:
    """An access as a record."""
    m, n, cells = access.form or (0, 0, ())
    form = [_packed_region(each) for each in cells]
    form += [_NOWHERE] * (2 - len(form))
    kind, *who, _, threads = access
    return layout.KINDS.index(str(kind)), *who, threads, m, n, (0, 0, 0), form


def _access(record: np.void) -> TensorAccess:
    """An access of which this is the record."""
    fields: tuple[Any, ...] = record.tolist()  # type: ignore[assignment]
    kind, *who, threads, m, n, _, form = fields
    made = (m, n, tuple(_region(*each) for each in form if each[3])) if m else None
    return TensorAccess._make((layout.KINDS[kind], *who, made, threads))


class Conflict(NamedTuple):
    """Two accesses of common cells."""

    old: TensorAccess
    new: TensorAccess
    where: CellSet
    was_write: bool
    now_write: bool
    ordered: bool | None
    """None: only by an order that the manual does not promise."""
    pipelined: bool
    """Whether no wait was needed between the two."""


class TensorCells:
    """The tensor memory of all blocks of a cluster."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def _writers(self, cells: Cells) -> list[int]:
        """The numbers of the last writes of some cells."""
        found = self._watch.cells[cells.rank][cells.index]
        first = int(found.flat[0]) if found.size else 0
        if (found == first).all():  # usually: faster
            return [first]
        return [int(each) for each in np.unique(found)]

    def _reads(self, here: CellSet) -> NDArray[np.intp]:
        """The numbers of the reads that have common cells with a region."""
        where = self._watch.reads.rows[: self._watch.reads.count]["where"]
        low, high = (np.uint64(here.lanes >> at & _HALF) for at in (0, 64))
        lanes = where["lanes"]
        common = (lanes[:, 0] & low) | (lanes[:, 1] & high)
        columns = (where["start"] < here.stop) & (where["stop"] > here.start)
        return np.flatnonzero((where["rank"] == here.rank) & columns & (common != 0))

    def conflicts(
        self,
        new: TensorAccess,
        row: Clock,
        reads: Iterable[Cells],
        writes: Iterable[Cells],
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
            own = write or here in goals
            for number in self._writers(cells):
                if number:
                    old = _access(self._watch.writes.rows[number - 1])
                    self._judge(found, old, new, here, True, write, own, row)
            for place in self._reads(here) if write else ():
                old = _access(self._watch.reads.rows[place]["access"])
                self._judge(found, old, new, here, False, True, own, row)
        return list(found.values())

    def _judge(
        self,
        found: dict[Pair, Conflict],
        old: TensorAccess,
        new: TensorAccess,
        where: CellSet,
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

    def unwritten(self, reads: Iterable[Cells]) -> CellSet | None:
        """Cells that are read, and were not written."""
        for cells in reads:
            if 0 in self._writers(cells):
                return region(cells)
        return None

    def record(
        self, new: TensorAccess, reads: Iterable[Cells], writes: Iterable[Cells]
    ) -> None:
        """Record an access; of reads of an agent, only the last of each region."""
        goals = {region(each) for each in writes}
        listed = self._watch.reads
        listed.make_room()
        self._watch.writes.make_room()
        for cells in reads:
            here = region(cells)
            if here in goals:
                continue
            row = _packed(new), _packed_region(here)
            for place in self._reads(here):
                old = listed.rows[place]
                who = int(old["access"]["agent"]), int(old["access"]["lane"])
                same = _region(*old["where"].tolist()) == here
                if same and who == (new.agent, new.lane):
                    listed.rows[place] = row
                    break
            else:
                listed.add(row)
        if goals:
            self._watch.writes.add(_packed(new))
        for cells in writes:
            self._watch.cells[cells.rank][cells.index] = self._watch.writes.count

    def forget(self, gone: Cells) -> None:
        """Forget the accesses of columns of a block that are freed."""
        here, listed = region(gone), self._watch.reads
        self._watch.cells[gone.rank][:, here.start : here.stop] = 0
        left = np.delete(listed.rows[: listed.count], self._reads(here))
        listed.rows[: left.size] = left
        listed.count = left.size
