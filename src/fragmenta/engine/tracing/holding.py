"""Steps of warps that are held at a product of their warpgroup.

A warp issues its part of a ``wgmma.mma_async`` and is held until the others come.  Its
step is written down when it goes on, which may be after the last warp has issued the
product, and after that was computed.  In a record the step is where the warp was held:
so a product is not done before all of its warps have issued it.  It has written the
registers as they were then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.tracing.log import StepChunk, Words
from fragmenta.engine.tracing.trace import Trace

Numbers = NDArray[np.int64]


class Moved(NamedTuple):
    """The steps that are kept, in their new order."""

    base: int
    order: Numbers
    """The old number of each step, less the base."""
    own: Numbers
    """The new number of each step, less the base."""
    new: Numbers
    """The same of what happened at or before a step: of one that moves, it is that of
    the next one that does not."""

    def at(self, step: int) -> int:
        """The number of what happened at a step or before it."""
        there = 0 <= step - self.base < len(self.new)
        return int(self.new[step - self.base]) + self.base if there else step


def put_where_held(told: Trace) -> None:
    """Move the steps of warps that were held, and all that has the number of a step."""
    rows = _rows(told)
    goals, held = _goals(told, rows[:, 1])
    if not goals:
        return
    moved = _moved(told.pieces[0].base, len(rows), goals)
    told.pieces = _pieces(told, goals, held, moved)
    at = moved.at
    told.late = [
        each._replace(
            step=moved.base + int(moved.own[held[number]])
            if number in held
            else at(each.step)
        )
        for number, each in enumerate(told.late)
    ]
    told.states = [each._replace(step=at(each.step)) for each in told.states]
    for unit in told.units:
        unit.issued, unit.done = at(unit.issued), at(unit.done)
        unit.taken, unit.waited = at(unit.taken), at(unit.waited)
    told.moved = [(n, each._replace(step=at(each.step))) for n, each in told.moved]
    told.marks = [each._replace(step=at(each.step)) for each in told.marks]
    told.times = [(time, at(step)) for time, step in told.times]
    told.reordered = moved.at


def _goals(
    told: Trace, warps: NDArray[np.uint32]
) -> tuple[dict[int, int], dict[int, int]]:
    """Steps that move, with where to; and the step of each warp that was held.

    Without a unit, registers are late that a warp hides when it is held.
    """
    every = [number for number, each in enumerate(told.late) if each.unit < 0]
    base = told.pieces[0].base if told.pieces else 0
    mine = {w: np.flatnonzero(warps == w) for w in {told.late[n].warp for n in every}}
    goals: dict[int, int] = {}
    held: dict[int, int] = {}
    for number in every:
        late = told.late[number]
        goal = max(0, late.step - base)
        steps = mine[late.warp]
        next_ = int(np.searchsorted(steps, goal))
        if next_ < len(steps):
            step = int(steps[next_])
            held[number] = step
            if step > goal:
                goals.setdefault(step, goal)
    return goals, held


def _moved(base: int, count: int, goals: dict[int, int]) -> Moved:
    """The new order: a step that moves is before the one that was next then."""
    keys = 2 * np.arange(count, dtype=np.int64) + 1
    for step, goal in goals.items():
        keys[step] = 2 * goal
    order = np.argsort(keys, kind="stable")
    own = np.empty(count, np.int64)
    own[order] = np.arange(count)
    new = np.append(own, count)
    for step in sorted(goals, reverse=True):
        new[step] = new[step + 1]
    return Moved(base, order, own, new)


class _StoredSteps:
    """The steps of all pieces, as they were."""

    def __init__(self, told: Trace, goals: Mapping[int, int], held: Mapping[int, int]):
        self.pieces = told.pieces
        self.rows = _rows(told)
        sizes = [len(each.steps) for each in self.pieces]
        self.of = np.repeat(np.arange(len(sizes)), sizes)
        """The piece of each step."""
        begin = self.rows[:, 3].astype(np.int64)
        end = np.append(begin[1:], 0)
        last = np.cumsum(sizes)[np.array(sizes) > 0] - 1
        end[last] = [each.words.size for each in self.pieces if len(each.steps)]
        self.begin, self.end = begin, end
        self.hidden: dict[int, Words] = {}
        """What registers held when a warp was held, for steps that move."""
        for number, step in sorted(held.items(), reverse=True):
            words = told.late[number].words
            if step in goals and words.size == end[step] - begin[step]:
                self.hidden[step] = words

    def piece(self, number: int, steps: Numbers, moved: Moved, base: int) -> StepChunk:
        """A piece with these steps, by their old numbers."""
        each, rows = self.pieces[number], self.rows[steps]
        ends = np.cumsum(self.end[steps] - self.begin[steps])
        rows[:, 3] = np.append(0, ends)[:-1]
        words = np.concatenate([np.empty(0, np.uint32), *self._words(steps)])
        accesses = each.rows.copy()
        at = accesses[:, 0].astype(np.int64) - moved.base
        accesses[:, 0] = moved.base + moved.own[at]
        return each._replace(base=base, steps=rows, words=words, rows=accesses)

    def _words(self, steps: Numbers) -> Iterator[Words]:
        """The words of registers that steps wrote: those side by side at once."""
        apart = (np.diff(steps) != 1) | (np.diff(self.of[steps]) != 0)
        for run in np.split(steps, np.flatnonzero(apart) + 1):
            if run.size == 1 and int(run[0]) in self.hidden:
                yield self.hidden[int(run[0])]
            elif run.size:
                words = self.pieces[self.of[run[0]]].words
                yield words[self.begin[run[0]] : self.end[run[-1]]]


def _pieces(
    told: Trace, goals: Mapping[int, int], held: Mapping[int, int], moved: Moved
) -> list[StepChunk]:
    """The pieces in the new order."""
    steps = _StoredSteps(told, goals, held)
    # A step that moves belongs to the piece of the next one that does not.
    homes = steps.of[moved.order]
    homes = np.minimum.accumulate(homes[::-1])[::-1]
    made, base = [], moved.base
    for number in range(len(told.pieces)):
        own = moved.order[homes == number]
        made.append(steps.piece(number, own, moved, base))
        base += len(own)
    return made


def _rows(told: Trace) -> Words:
    """The rows of all steps."""
    return np.concatenate(
        [np.empty((0, 4), np.uint32), *(e.steps for e in told.pieces)]
    )
