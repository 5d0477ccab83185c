"""The table in which compiled code notes problems, in shared and in global memory.

Each cluster that runs has one table.  It has one entry for each case, site and site of
the earlier access, in the order in which they were found.  Equal problems are counted.
Python reads the table when the cluster or the launch ends.

A table may have a log, too: every problem in the order of finding, also equal ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Value,
    convert,
    larger,
    select,
    smaller,
)
from fragmenta.engine.simt.compiled import aligned, sparse
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.engine.simt.warps import P, repeat, routine
from fragmenta.engine.tracing.code import layout as traced
from fragmenta.watch.races.shadow.detected import BY_NUMBER, Detected
from fragmenta.watch.races.shadow.layout import APART, LANES_APART, LANES_APART_AT

MOMENT = np.dtype(
    [(name, "i4") for name in ("site", "group", "agent", "lane", "epoch")]
)
"""An access.  The site is -1 if there is none."""
ENTRY = np.dtype(
    [
        ("case", "i4"),
        ("flags", "i4"),
        ("count", "i8"),
        ("first", "i8"),
        ("last", "i8"),
        ("now", MOMENT),
        ("before", MOMENT),
        ("step", "i8"),
    ]
)
NOW_WRITES, WAS_WRITE, PARTLY = 1, 2, 4
"""Bits of the flags, beside those of ``layout.Apart``."""

MOST = 4096
BUCKETS = 2 * MOST
"""Some are always free, so that a search ends."""
USED = 0  #: i32: how many entries there are
LOST = 4  #: i32: how many problems found no place
LOG = 8  #: pointer to the log, or 0
LOGGED = 16  #: i64: how many problems were logged, with those that found no place
STEPS = 24  #: pointer to the log of the steps of the cluster, or 0
BUCKETS_AT = 64  #: BUCKETS x i32: the number of an entry, or 0
ENTRIES_AT = BUCKETS_AT + 4 * BUCKETS  #: entry 1 is here
TABLE_BYTES = ENTRIES_AT + MOST * ENTRY.itemsize
MOST_LOGGED = 1 << 16


class Moment(NamedTuple):
    """An access that takes part in a problem."""

    site: int
    group: int
    """The cluster; in shared memory, how many clusters were watched before it."""
    agent: int
    lane: int
    """-1 if it was several lanes, or if that is not known."""
    epoch: int


@dataclass(frozen=True)
class DetectedProblem:
    """A problem as a race detector noted it, in shared or in global memory."""

    case: Detected
    first: int
    """The first address; in shared memory with the rank of the block from bit 24 up."""
    last: int
    """The address after the last."""
    now: Moment
    before: Moment | None
    """None if nothing was written before, or if several groups had read."""
    count: int
    """In how many words it was found, all in all."""
    was_write: bool
    now_write: bool
    partly: bool = False
    """Whether a part of what was read was written."""
    apart: int = 0
    """How far apart the threads are, of all pairs: bits of ``layout.Apart``."""
    lanes: int = 0
    """Bits in which the numbers of two lanes differ that store by one instruction; or
    ``layout.TWICE``."""
    step: int = -1
    """The step of the record at which it was found; -1 if steps are not recorded."""

    @property
    def key(self) -> tuple[Detected, int, int]:
        """What equal problems have in common."""
        earlier = -1 if self.before is None else self.before.site
        return self.case, self.now.site, earlier

    @property
    def rank(self) -> tuple[bool, int]:
        """Of equal problems, the one with the least rank is shown.

        Clusters run at the same time, so which pair is found first is chance.  A pair
        inside a cluster is found however they run, and the first cluster's is shown.
        """
        far = self.before is None or self.before.group != self.now.group
        return far, self.now.group


class ProblemTable:
    """The memory of a table, and what it says."""

    def __init__(self) -> None:
        self.memory = sparse(TABLE_BYTES)
        self._words = self.memory.view(np.int32)
        self._log = aligned(0)

    def begin_log(self) -> None:
        """Log every problem from now on."""
        self._log = aligned(MOST_LOGGED * ENTRY.itemsize)
        self.memory.view(np.int64)[LOG // 8] = self._log.ctypes.data

    def steps_from(self, log: int) -> None:
        """Note the steps of problems from now on: where their log is, or 0."""
        self.memory.view(np.int64)[STEPS // 8] = log

    def logged(self) -> NDArray[np.void] | None:
        """What was logged since the last call; None if some of it found no place."""
        count = self.memory.view(np.int64)[LOGGED // 8 : LOGGED // 8 + 1]
        used, count[0] = int(count[0]), 0
        if used > MOST_LOGGED:
            return None
        return self._log.view(ENTRY)[:used].copy()

    @property
    def address(self) -> int:
        """Where compiled code finds it."""
        return int(self.memory.ctypes.data)

    @property
    def counts(self) -> NDArray[np.int32]:
        """Numbers that change if anything is found."""
        return self._words[min(USED, LOST) // 4 : max(USED, LOST) // 4 + 1]

    @property
    def used(self) -> int:
        """How many entries there are."""
        return int(self._words[USED // 4])

    @property
    def lost(self) -> int:
        """How many problems found no place."""
        return int(self._words[LOST // 4])

    def found(self, space: str) -> list[DetectedProblem]:
        """The problems in ``shared`` or ``global`` memory, in the order of finding."""
        entries = self.memory[ENTRIES_AT:].view(ENTRY)[: self.used]
        every = [_decoded(*each) for each in entries.tolist()]
        return [each for each in every if each.case.space == space]


def _decoded(
    case: int,
    flags: int,
    count: int,
    first: int,
    last: int,
    now: tuple[int, ...],
    before: tuple[int, ...],
    step: int,
) -> DetectedProblem:
    return DetectedProblem(
        BY_NUMBER[case],
        first,
        last,
        Moment(*now),
        Moment(*before) if before[0] >= 0 else None,
        count,
        bool(flags & WAS_WRITE),
        bool(flags & NOW_WRITES),
        bool(flags & PARTLY),
        flags & APART,
        (flags & LANES_APART) >> LANES_APART_AT,
        step,
    )


# ── in compiled code ────────────────────────────────────────────────────────


class MomentValues(NamedTuple):
    """An access as compiled code notes it; the fields of :class:`Moment`."""

    site: Value
    group: Value
    agent: Value
    lane: Value
    epoch: Value


class ProblemValues(NamedTuple):
    """A problem as compiled code notes it."""

    case: Value
    first: Value
    last: Value
    now: MomentValues
    before: MomentValues
    flags: Value


def report(code: Code, table: Raw, problem: ProblemValues, *, widen: bool) -> None:
    """Note a problem, or count it if it is known; :data:`REPORT` must be linked.

    With ``widen``, the range of a known problem grows by one that is beside it.
    """
    b = code.builder
    made = b.bitcast(code.array(I64, ENTRY.itemsize // 8), POINTER)
    zero = code.constant(0, I32)
    _put(code, made, "case", I32, problem.case)
    _put(code, made, "flags", I32, problem.flags)
    _put(code, made, "count", I64, code.constant(1, I64))
    _put(code, made, "first", I64, problem.first)
    _put(code, made, "last", I64, problem.last)
    for name, moment in (("now", problem.now), ("before", problem.before)):
        for part, value in moment._asdict().items():
            field(code, made, _offset(name, part), I32)[0] = value
    function = b.module.globals.get(REPORT.name)
    if function is None:
        kind = ir.FunctionType(ir.VoidType(), [P, P, I32])
        function = ir.Function(b.module, kind, REPORT.name)
    b.call(function, [table, made, zero.lift(int(widen)).raw])


def _offset(name: str, part: str = "") -> int:
    """Where a field of an entry is."""
    assert ENTRY.fields is not None
    assert MOMENT.fields is not None
    inner = MOMENT.fields[part][1] if part else 0
    return int(ENTRY.fields[name][1] + inner)


def _put(code: Code, entry: Raw, name: str, of: Type, value: Value) -> None:
    field(code, entry, _offset(name), of)[0] = value


def _report(code: Code, table: Raw, made: Raw, widen: Value) -> None:
    """Find the entry of a problem by its hash, and count it, or add one."""
    b = code.builder
    _put(code, made, "step", I64, _step(code, table))
    _log(code, table, made)
    buckets = field(code, table, BUCKETS_AT, I32)
    key = [_offset("case"), _offset("now", "site"), _offset("before", "site")]
    case, site, earlier = (field(code, made, each, I32)[0] for each in key)
    hashed = (case * 31 + site) * 8191 + earlier
    index = code.variable(hashed & (BUCKETS - 1))
    with repeat(code) as again:
        bucket = convert(index.value, I64)
        number = buckets[bucket]
        # Number 0 names memory before the first entry, which may be read.
        entry = b.gep(table, [_entry_at(number).raw])
        same = number != 0
        for offset, value in zip(key, (case, site, earlier), strict=True):
            same = same & (field(code, entry, offset, I32)[0] == value)
        free = number == 0
        with code.when(same):
            _count(code, entry, made, widen)
        with code.when(free):
            _add(code, table, bucket, made)
        index.value = (index.value + 1) & (BUCKETS - 1)
        again(~free & ~same)


def _step(code: Code, table: Raw) -> Value:
    """The number of the present step, if steps are recorded; else -1."""
    found = code.variable(code.constant(-1, I64))
    with code.when(field(code, table, STEPS, I64)[0] != 0):
        log = pointer_at(code, table, STEPS)
        base, steps = (field(code, log, e, I64)[0] for e in (traced.BASE, traced.STEPS))
        found.value = base + steps
    return found.value


def _log(code: Code, table: Raw, made: Raw) -> None:
    """Add a problem to the log, if there is one."""
    logged = field(code, table, LOGGED, I64)
    with code.when(field(code, table, LOG, I64)[0] != 0):
        with code.when(logged[0] < MOST_LOGGED):
            place = logged[0] * ENTRY.itemsize
            _copy(
                code, code.builder.gep(pointer_at(code, table, LOG), [place.raw]), made
            )
        logged[0] = logged[0] + 1


def _copy(code: Code, entry: Raw, made: Raw, first: int = 0) -> None:
    """Copy an entry, or what is in it from an offset on."""
    for offset in range(first, ENTRY.itemsize, 8):
        field(code, entry, offset, I64)[0] = field(code, made, offset, I64)[0]


def _entry_at(number: Value) -> Value:
    return (convert(number, I64) - 1) * ENTRY.itemsize + ENTRIES_AT


def _add(code: Code, table: Raw, bucket: Value, made: Raw) -> None:
    """Copy a new problem into the table, if there is room."""
    b = code.builder
    used, lost = (field(code, table, each, I32) for each in (USED, LOST))
    room = used[0] < MOST
    with code.when(room):
        used[0] = used[0] + 1
        field(code, table, BUCKETS_AT, I32)[bucket] = used[0]
        _copy(code, b.gep(table, [_entry_at(used[0]).raw]), made)
    with code.when(~room):
        lost[0] = lost[0] + 1


def _count(code: Code, entry: Raw, made: Raw, widen: Value) -> None:
    """Count a known problem; :attr:`DetectedProblem.rank` says which pair is kept."""
    count = field(code, entry, _offset("count"), I64)
    count[0] = count[0] + 1
    flags, new = (field(code, each, _offset("flags"), I32) for each in (entry, made))
    flags[0] = flags[0] | (new[0] & (APART | LANES_APART))
    low, high = (field(code, entry, _offset(e), I64) for e in ("first", "last"))
    first, last = (field(code, made, _offset(e), I64)[0] for e in ("first", "last"))
    beside = (first <= high[0]) & (last >= low[0]) & (widen != 0)
    low[0] = select(beside, smaller(low[0], first), low[0])
    high[0] = select(beside, larger(high[0], last), high[0])
    with code.when(_far(code, entry) & ~_far(code, made)):
        _copy(code, entry, made, _offset("first"))


def _far(code: Code, entry: Raw) -> Value:
    """Whether an access of another cluster takes part."""
    now, before, site = (
        field(code, entry, _offset(*each), I32)[0]
        for each in (("now", "group"), ("before", "group"), ("before", "site"))
    )
    far: Value = (now != before) | (site < 0)
    return far


REPORT = routine("watch.report", _report, [P, P, I32], None)
"""Notes a problem: the table, an entry, and whether a known range grows."""
