"""Where a barrier is missing between two accesses of a kernel.

The text has the answer, whatever the order of the run was.  If every path from one
access to the other passes a barrier, that order is kept.  A path without one is where
the order is not kept: from the first to the second, or around a loop from the second to
the first of the next round.  A barrier belongs to where all such paths pass, outside of
inner loops and of branches that divide the threads.

Limits: only paths inside one function are seen, and any barrier of the block counts,
also one for a part of its threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from functools import cached_property
from typing import NamedTuple

from fragmenta.base.arrays.once import once_property
from fragmenta.ptx.dataflow import reached, reversed_graph
from fragmenta.ptx.flow import successors
from fragmenta.ptx.module import Function, Instruction
from fragmenta.ptx.uniformity import Uniformity, Way

_NEVER: frozenset[int] = frozenset()
_WAITS = frozenset({"try_wait", "test_wait"})


def is_block_barrier(each: Instruction) -> bool:
    """Whether threads of a block wait for one another there."""
    if not each.is_barrier or is_cluster_barrier(each):
        return is_cluster_barrier(each)
    return not {"warp", "arrive", "cluster"} & {*each.qualifiers}


def is_warp_barrier(each: Instruction) -> bool:
    """Whether threads of a warp wait for one another there."""
    return is_block_barrier(each) or (
        each.opcode == "bar" and "warp" in each.qualifiers
    )


def is_cluster_barrier(each: Instruction) -> bool:
    """Whether threads hand over what they did to those of the cluster.

    That is the arrival; the wait behind it takes it over.
    """
    words = {*each.qualifiers}
    return (
        each.opcode == "barrier"
        and {"cluster", "arrive"} <= words
        and "relaxed" not in words
    )


def is_relaxed_arrival(each: Instruction) -> bool:
    """Whether threads arrive at the barrier of the cluster, and hand over nothing."""
    return each.opcode == "barrier" and {"cluster", "relaxed"} <= {*each.qualifiers}


def waits_for_mbarrier(each: Instruction) -> bool:
    """Whether threads ask there whether a phase of an mbarrier is over."""
    return each.is_mbarrier and bool(_WAITS & {*each.qualifiers})


class Gap(NamedTuple):
    """Two accesses that nothing orders on a path from the first to the second."""

    first: int
    second: int
    around: bool
    """Whether the second belongs to the next round of a loop."""
    passed: int
    """A barrier that orders them the other way round; -1 if there is none."""
    places: tuple[int, ...]
    """The instructions before which one barrier closes the gap, in order."""
    inside: frozenset[int]
    """The instructions on the paths."""


class Paths:
    """The paths of one function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.code = function.instructions
        end = len(self.code)
        every = successors(function)
        self._after = [[each for each in some if each < end] for some in every]
        self._before = reversed_graph(self._after)
        self._closed: dict[object, frozenset[int]] = {}

    @once_property
    def _uniformity(self) -> Uniformity:
        return Uniformity(self.function)

    @cached_property
    def loops(self) -> dict[int, frozenset[int]]:
        """The instructions of each loop, by its first one."""
        found: dict[int, set[int]] = {}
        for index, following in enumerate(self._after):
            for head in following:
                if head > index:
                    continue
                body = self._from([index], {head}, back=True)
                if 0 not in body:  # otherwise something else enters it
                    found.setdefault(head, set()).update(body, (head,))
        return {head: frozenset(body) for head, body in found.items()}

    def gaps(
        self, one: int, other: int, closes: Callable[[Instruction], bool]
    ) -> list[Gap]:
        """Where two accesses are not ordered; ``closes`` says what a barrier is.

        A wait for an mbarrier may order them, too.  It counts if that leaves one gap.
        """
        both = [(one, other)] if one == other else [(one, other), (other, one)]
        stops = self._closing(closes)
        found = [self._gap(*each, stops) for each in both]
        if all(found) and len(both) == 2:
            stops |= self._closing(waits_for_mbarrier)
            fewer = [self._gap(*each, stops) for each in both]
            found = fewer if any(fewer) else found
        return [each for each in found if each is not None]

    def _gap(self, first: int, second: int, stops: Set[int]) -> Gap | None:
        ahead = self._from(self._after[first], stops)
        if second not in ahead:
            return None
        inside = ahead & self._from([second], stops, back=True)
        path = self._path(first, second, stops)
        places = self._narrow(first, path, inside)
        around = self.reaches(second, first)
        # Around the loop, if the straight way does not lead there.
        around = around and not self._straight(first, second, inside)
        best = self._best(places, first, second)
        passed = self._passed(second, first, stops)
        return Gap(first, second, around, passed, best, frozenset(inside))

    def _closing(self, closes: Callable[[Instruction], bool]) -> frozenset[int]:
        if closes not in self._closed:
            found = (index for index, each in enumerate(self.code) if closes(each))
            self._closed[closes] = frozenset(found)
        return self._closed[closes]

    def _from(
        self, starts: Iterable[int], stops: Set[int], back: bool = False
    ) -> set[int]:
        """What is reached from some instructions; those that stop are not entered."""
        edges = self._before if back else self._after
        first = [each for each in starts if each not in stops]

        def entered(index: int) -> list[int]:
            return [each for each in edges[index] if each not in stops]

        return {*reached(first, entered if stops else edges.__getitem__)}

    def _straight(self, first: int, second: int, inside: set[int]) -> bool:
        """Whether a path leads there without going back in the text."""

        def later(index: int) -> list[int]:
            return [e for e in self._after[index] if e > index and e in inside]

        return second in reached(later(first), later)

    def _path(self, first: int, second: int, stops: Set[int]) -> list[int]:
        """A shortest path; it begins after the first."""
        came: dict[int, int] = {}
        left = [*self._after[first]]
        came.update(dict.fromkeys(left, -1))
        for index in left:  # it grows
            if index == second:
                break
            if index in stops:
                continue
            for each in self._after[index]:
                if each not in came:
                    came[each] = index
                    left.append(each)
        path = [second]
        while came[path[-1]] >= 0:
            path.append(came[path[-1]])
        return path[::-1]

    def _narrow(self, first: int, path: list[int], inside: set[int]) -> list[int]:
        """The instructions of a path that are on all others, too."""
        place = {index: number for number, index in enumerate(path)}
        seen: set[int] = set()
        furthest, found = -1, []
        for number in range(-1, len(path) - 1):
            left = [*self._after[first if number < 0 else path[number]]]
            while left:
                index = left.pop()
                if index in place:
                    furthest = max(furthest, place[index])
                elif index in inside and index not in seen:
                    seen.add(index)
                    left += self._after[index]
            if furthest == number + 1:
                found.append(path[furthest])
        return found

    def _best(self, places: list[int], first: int, second: int) -> tuple[int, ...]:
        """Places that all threads reach which reach both, in the fewest loops."""
        common = self.divided(first) & self.divided(second)
        some = [each for each in places if self.divided(each) <= common]
        costs = [
            (len(self.divided(each)), sum(each in body for body in self.loops.values()))
            for each in some
        ]
        best = min(costs, default=None)
        return tuple(n for n, cost in zip(some, costs, strict=True) if cost == best)

    def divided(self, index: int) -> frozenset[Way]:
        """The ways of branches that divide the threads before an instruction."""
        return self._uniformity.divided(index)

    def reaches(self, first: int, second: int) -> bool:
        """Whether a path leads from one instruction to another."""
        return second in self._from(self._after[first], _NEVER)

    def open(
        self, first: int, second: int, closes: Callable[[Instruction], bool]
    ) -> bool:
        """Whether a path from one instruction to another passes none that closes it."""
        return second in self._from(self._after[first], self._closing(closes))

    def avoids(self, passed: int, goal: int) -> bool:
        """Whether a path from the start leads to an instruction around another one."""
        return goal in self._from([0], {passed})

    def passed(
        self, first: int, second: int, closes: Callable[[Instruction], bool]
    ) -> int:
        """What closes all paths from one instruction to another: the first in the text.

        -1 if there is no path, or one that is open.
        """
        return self._passed(first, second, self._closing(closes))

    def _passed(self, first: int, second: int, stops: Set[int]) -> int:
        if not self.reaches(first, second):
            return -1
        if second in self._from(self._after[first], stops):
            return -1
        ends = self._from([second], _NEVER, back=True)
        return min(ends.intersection(self._met(first, stops)), default=-1)

    def met(self, first: int, closes: Callable[[Instruction], bool]) -> list[int]:
        """What each path from an instruction passes first that closes it, in order."""
        return sorted(self._met(first, self._closing(closes)))

    def _met(self, first: int, stops: Set[int]) -> set[int]:
        before = self._from(self._after[first], stops)
        return {
            each
            for index in (*before, first)
            for each in self._after[index]
            if each in stops
        }
