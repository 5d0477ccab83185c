"""Which instructions all threads of a block reach together.

A barrier may stand only where all threads come.  A branch divides them if its condition
depends on the number of the thread or the lane, or on what an instruction gives to each
thread apart, such as ``atom``.  What is loaded divides them if the address does.
A branch that ends threads divides nobody who goes on.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeAlias

from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.families import FETCHES, SHUFFLES
from fragmenta.ptx.flow import BRANCHES, ENDS, BasicBlock, blocks, postdominators
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
        self._function, self._blocks = function, blocks(function)
        self._starts = [each.start for each in self._blocks]
        self._ways = self._dividing(self._every())

    def divided(self, index: int) -> frozenset[Way]:
        """The ways of such branches that an instruction is on."""
        block = self._block_of(index)
        return frozenset(way for way, inside in self._ways.items() if block in inside)

    def _block_of(self, index: int) -> int:
        return bisect_right(self._starts, index) - 1

    def _every(self) -> dict[Way, frozenset[int]]:
        """The blocks on each way of a branch, until its ways meet again."""
        code, made = self._function.instructions, self._blocks
        meets, found = postdominators(made), {}
        for number, block in enumerate(made):
            last = block.end - 1
            each = code[last]
            conditional = each.guard is not None or each.opcode == "brx"
            if each.opcode not in BRANCHES or not conditional:
                continue
            if _ends(self._function, last):
                continue
            for after in block.after:
                inside = _until(made, after, meets.get(number))
                found[last, made[after].start] = inside
        return found

    def _dividing(self, every: dict[Way, frozenset[int]]) -> dict[Way, frozenset[int]]:
        """Those of the ways whose branch depends on the thread."""
        code = self._function.instructions
        touched = [effects(each) for each in code]
        own: set[int] = set()
        """The numbers of registers that may differ between threads."""
        some: set[int] = set()
        """Blocks that only some threads execute."""
        found: dict[Way, frozenset[int]] = {}
        changed = True
        while changed:
            changed = False
            for index, each in enumerate(code):
                apart = any(one.number in own for one in touched[index].reads)
                if apart or _differs(each) or self._block_of(index) in some:
                    numbers = {one.number for one in touched[index].writes}
                    changed |= not numbers <= own
                    own |= numbers
            for way, inside in every.items():
                reads = touched[way[0]].reads
                if way not in found and any(one.number in own for one in reads):
                    found[way], changed = inside, True
                    some |= inside
        return found


def _until(made: list[BasicBlock], start: int, stop: int | None) -> frozenset[int]:
    """The blocks from one on, before the one where all ways meet."""
    seen: set[int] = set()
    left = [start]
    while left:
        number = left.pop()
        if number not in seen and number != stop:
            seen.add(number)
            left += made[number].after
    return frozenset(seen)


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
