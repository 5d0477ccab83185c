"""Which problems were found?

Compiled code notes a problem in a table: one entry for each rule, site and site of the
access before.  Python reads the table at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.jit.llvm import Raw
from fragmenta.jit.trace import (
    I32,
    I64,
    Code,
    Value,
    convert,
    larger,
    select,
    smaller,
)
from fragmenta.races.shadow import layout
from fragmenta.races.shadow.clocks import Head
from fragmenta.races.shadow.detected import BY_NUMBER, Detected
from fragmenta.races.shadow.layout import Lanes
from fragmenta.races.shadow.shared_records import site_of
from fragmenta.simt.library import field
from fragmenta.simt.warps import repeat


class Moment(NamedTuple):
    """An access that takes part in a problem."""

    site: int
    agent: int
    lane: int
    """-1 if it was several lanes, or if nobody knows."""
    epoch: int


AccessT = TypeVar("AccessT", bound=tuple[Any, ...])


@dataclass(frozen=True)
class Noted(Generic[AccessT]):
    """A problem as a race detector noted it, in shared or in global memory."""

    case: Detected
    first: int
    """The first address; in shared memory with the rank of the block from bit 24 up."""
    last: int
    """The address after the last."""
    now: AccessT
    before: AccessT | None
    """None if nobody had written, or if several groups had read."""
    count: int
    """How many words it was found in, all in all."""
    was_write: bool
    now_write: bool
    cluster: int
    """The cluster that it was first found in; in shared memory, how many clusters were
    watched before it."""
    partly: bool = False
    """Whether a part of what was read was written."""
    apart: int = 0
    """How far apart the threads are, of all pairs: bits of ``layout.Apart``."""


class Problem(NamedTuple):
    """A problem in machine code."""

    rule: Value
    low: Value
    high: Value
    site: Value
    agent: Value
    lane: Value
    epoch: Value
    before: Value
    flags: Value


def report(code: Code, head: Head, problem: Problem) -> None:
    """Note a problem, or count it if it is known."""
    b = code.builder
    table = head.pointer(layout.HEAD_PROBLEMS)
    used = field(code, table, layout.PROBLEMS_USED, I32)
    lost = field(code, table, layout.PROBLEMS_LOST, I32)
    earlier = site_of(problem.before)
    hashed = (problem.rule * 31 + problem.site) * 8191 + earlier
    index = code.variable(hashed & (layout.PROBLEMS - 1))
    left = code.variable(hashed.lift(layout.PROBLEMS))
    with repeat(code) as again:
        step = convert(index.value, I64) * layout.PROBLEM_BYTES + layout.PROBLEMS_TABLE
        place = b.gep(table, [step.raw])
        rule = field(code, place, layout.PROBLEM_RULE, I32)
        before = field(code, place, layout.PROBLEM_BEFORE, I64)
        same = (rule[0] == problem.rule) & (site_of(before[0]) == earlier)
        same = same & (field(code, place, layout.PROBLEM_SITE, I32)[0] == problem.site)
        free = rule[0] == 0
        with code.when(free):
            _note(code, head, place, problem)
            used[0] = used[0] + 1
        with code.when(same):
            _count(code, place, problem)
        index.value = (index.value + 1) & (layout.PROBLEMS - 1)
        left.value = left.value - 1
        with code.when(~free & ~same & (left.value == 0)):
            lost[0] = lost[0] + 1
        again(~free & ~same & (left.value > 0))


def _note(code: Code, head: Head, place: Raw, problem: Problem) -> None:
    one = problem.rule.lift(1)
    for offset, value in (
        (layout.PROBLEM_RULE, problem.rule),
        (layout.PROBLEM_COUNT, one),
        (layout.PROBLEM_LOW, problem.low),
        (layout.PROBLEM_HIGH, problem.high),
        (layout.PROBLEM_SITE, problem.site),
        (layout.PROBLEM_AGENT, problem.agent),
        (layout.PROBLEM_LANE, problem.lane),
        (layout.PROBLEM_EPOCH, problem.epoch),
        (layout.PROBLEM_FLAGS, problem.flags),
        (layout.PROBLEM_CLUSTER, head.word(layout.HEAD_CLUSTER)),
    ):
        field(code, place, offset, I32)[0] = value
    field(code, place, layout.PROBLEM_BEFORE, I64)[0] = problem.before


def _count(code: Code, place: Raw, problem: Problem) -> None:
    count = field(code, place, layout.PROBLEM_COUNT, I32)
    count[0] = count[0] + 1
    flags = field(code, place, layout.PROBLEM_FLAGS, I32)
    flags[0] = flags[0] | (problem.flags & layout.APART)
    low = field(code, place, layout.PROBLEM_LOW, I32)
    high = field(code, place, layout.PROBLEM_HIGH, I32)
    adjacent = (problem.low <= high[0]) & (problem.high >= low[0])
    low[0] = select(adjacent, smaller(low[0], problem.low), low[0])
    high[0] = select(adjacent, larger(high[0], problem.high), high[0])


def decode(table: NDArray[np.uint8]) -> list[Noted[Moment]]:
    """The problems of a table, in the order of their sites."""
    rows = table[layout.PROBLEMS_TABLE :].reshape(-1, layout.PROBLEM_BYTES)
    words = rows.view(np.int32)
    found = []
    for row in np.flatnonzero(words[:, layout.PROBLEM_RULE // 4]):
        rule, count, low, high, site, agent, lane, epoch = words[row, :8].tolist()
        flags, cluster = words[row, layout.PROBLEM_FLAGS // 4 :][:2].tolist()
        record = int(rows[row].view(np.uint64)[layout.PROBLEM_BEFORE // 8])
        now = Moment(site, agent, lane, epoch)
        found.append(
            Noted(
                BY_NUMBER[rule],
                low,
                high,
                now,
                _moment(record),
                count,
                bool(flags & 2),
                bool(flags & 1),
                cluster,
                bool(flags & 4),
                flags & layout.APART,
            )
        )
    return sorted(found, key=lambda each: (each.now.site, each.case.name, each.first))


def _moment(record: int) -> Moment | None:
    if not record:
        return None
    before = layout.unpack(record)
    named = before.lanes in (Lanes.ONE, Lanes.STRONG_ONE)
    return Moment(before.site, before.agent, before.lane if named else -1, before.epoch)
