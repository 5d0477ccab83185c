"""Which instructions all threads of a block reach together.

A barrier may stand only where all threads come.  A branch divides them if its condition
depends on the number of the thread or the lane, or on what an instruction gives to each
thread apart, such as ``atom``.  What is loaded divides them if the address does.
A branch that ends threads divides nobody who goes on.
"""

from __future__ import annotations

from typing import TypeAlias

from fragmenta.ptx.checking.register_effects import decided, effects_of, flows, ways
from fragmenta.ptx.dataflow import forks, reached
from fragmenta.ptx.families import FETCHES, SHUFFLES
from fragmenta.ptx.flow import BRANCHES, ENDS
from fragmenta.ptx.module import Function, Instruction, Special

_OWN = ("%tid", "%laneid", "%lanemask", "%warpid")
"""Special registers that differ between the threads of a block."""
_APART = FETCHES | SHUFFLES | {"elect", "activemask", "match", "vote", "call"}
"""Instructions whose results may differ between threads of a block."""


Way: TypeAlias = tuple[int, int]
"""A conditional branch, and the instruction where one of its ways begins."""


class Uniformity:
    """The branches of a function that divide the threads of a block.

    >>> from fragmenta.ptx.reading import parse
    >>> found = Uniformity(parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f() {
    ...     .reg .pred %p;
    ...     setp.eq.u32 %p, %tid.x, 0;
    ...     @%p bra L;
    ...     bar.sync 0;
    ... L:  membar.gl;
    ...     ret;
    ... }''').functions["f"])
    >>> found.divided(2), found.divided(3)
    (frozenset({(1, 2)}), frozenset())
    """

    def __init__(self, function: Function) -> None:
        every = {
            (branch, start): frozenset(inside)
            for branch, found in forks(function, BRANCHES)
            if not _ends(function, branch)
            for start, inside in found.items()
        }
        more = [decided(function, branch, every[branch, at]) for branch, at in every]
        graph, touched = flows(function, [*ways(function), *more]), effects_of(function)
        both = zip(function.instructions, touched, strict=True)
        begun = [e.number for each, of in both if _differs(each) for e in of.writes]
        own = {*reached(begun, graph.__getitem__)}
        self._ways = {
            way: inside
            for way, inside in every.items()
            if any(one.number in own for one in touched[way[0]].reads)
        }

    def divided(self, index: int) -> frozenset[Way]:
        """The ways of such branches that an instruction is on."""
        return frozenset(way for way, inside in self._ways.items() if index in inside)


def _differs(each: Instruction) -> bool:
    """Whether the result of an instruction itself differs between threads."""
    if each.opcode in _APART:
        return True
    return any(
        isinstance(operand, Special) and operand.name.startswith(_OWN)
        for operand in each.operands
    )


def _ends(function: Function, branch: int) -> bool:
    """Whether a branch only ends threads: one of its ways leads straight to the end."""
    code = function.instructions
    goals = [branch + 1]
    for name in code[branch].operands:
        goals += [function.labels.get(getattr(name, "name", ""), branch + 1)]
    return any(goal >= len(code) or code[goal].opcode in ENDS for goal in goals)
