"""Dataflow: one analysis of a graph, which has a lattice as its parameter.

The lattice is a ``join`` of what two ways say, and what is given at first; a node that
nothing has come to yet is its bottom.  :func:`solved` finds the least states that agree
with all edges, forwards or backwards.  A graph is a list: where each node leads.  There
are three kinds of them: of instructions (:func:`fragmenta.ptx.flow.successors`), of
basic blocks, and of registers (:func:`fragmenta.ptx.checking.register_effects.flows`).
The last one has one answer for a function, in whatever order its instructions run.

Where the lattice is yes or no, :func:`reached` is the same, and stops when asked to.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from heapq import heapify, heappop, heappush
from typing import TypeAlias, TypeVar

from fragmenta.ptx.flow import BasicBlock, blocks, postdominators, successors
from fragmenta.ptx.module import Function, Instruction

State = TypeVar("State")
Node = TypeVar("Node", bound=Hashable)
Graph: TypeAlias = Sequence[Collection[int]]
"""Where each node leads.  A number past the last node is the end: nothing follows."""


def solved(
    after: Graph,
    given: Mapping[int, State],
    join: Callable[[State, State], State],
    through: Callable[[int, State], State] = lambda _, state: state,
    *,
    back: bool = False,
) -> dict[int, State]:
    """What holds at each node that is reached from those given, before it runs.

    ``through`` says what a node makes of that.  With ``back``, what holds is what comes
    later, and a node makes of it what held before.

    >>> loop = [[1], [0, 2], []]
    >>> solved(loop, {0: {7}}, set.union, lambda node, held: held | {node})
    {0: {0, 1, 7}, 1: {0, 1, 7}, 2: {0, 1, 7}}
    """
    goals, sign = (reversed_graph(after), -1) if back else (after, 1)
    found = dict(given)
    left = [sign * node for node in found]
    heapify(left)  # in the order of the text, most nodes come once
    waiting = set(left)
    while left:
        rank = heappop(left)
        waiting.remove(rank)
        node = sign * rank
        made = through(node, found[node])
        for goal in goals[node]:
            old = found.get(goal)
            new = made if old is None else join(old, made)
            if new == old or goal >= len(after):
                continue
            found[goal] = new
            if sign * goal not in waiting:
                waiting.add(sign * goal)
                heappush(left, sign * goal)
    return found


def reached(
    starts: Iterable[Node], after: Callable[[Node], Iterable[Node]]
) -> Iterator[Node]:
    """Some nodes and all that follow them, the nearest first.

    >>> list(reached([1], lambda number: [number * 2] if number < 8 else []))
    [1, 2, 4, 8]
    """
    found = dict.fromkeys(starts)
    left = list(found)
    for node in left:  # it grows
        yield node
        for each in after(node):
            if each not in found:
                found[each] = None
                left.append(each)


def reversed_graph(after: Graph) -> list[list[int]]:
    """The nodes that lead to each node."""
    found: list[list[int]] = [[] for _ in after]
    for node, goals in enumerate(after):
        for goal in goals:
            if goal < len(after):
                found[goal].append(node)
    return found


def onward(
    function: Function, passes: Callable[[Instruction], bool]
) -> Callable[[int], list[int]]:
    """The instructions that follow one which a way may pass; none follow others."""
    code, after = function.instructions, successors(function)

    def following(place: int) -> list[int]:
        goes_on = place < len(code) and passes(code[place])
        return [each for each in after[place] if each < len(code)] if goes_on else []

    return following


def region(
    made: Sequence[BasicBlock], starts: Iterable[int], stop: int | None
) -> list[int]:
    """The instructions of some blocks and those after them, before another block."""

    def inside(numbers: Iterable[int]) -> list[int]:
        return [each for each in numbers if each != stop]

    found = reached(inside(starts), lambda number: inside(made[number].after))
    return [at for n in sorted(found) for at in range(made[n].start, made[n].end)]


def forks(
    function: Function, opcodes: Collection[str]
) -> Iterator[tuple[int, dict[int, list[int]]]]:
    """Conditional branches, and what is on each of their ways until these meet.

    A way is named by its first instruction.
    """
    made = blocks(function)
    meets = postdominators(made)
    for number, block in enumerate(made):
        each = function.instructions[block.end - 1]
        conditional = each.guard is not None or each.opcode == "brx"
        if each.opcode in opcodes and conditional:
            stop = meets.get(number)
            inside = {made[n].start: region(made, [n], stop) for n in block.after}
            yield block.end - 1, inside


def bits(numbers: Iterable[int]) -> int:
    """A set of small numbers as one: of the lattice of sets, the fastest."""
    found = 0
    for each in numbers:
        found |= 1 << each
    return found
