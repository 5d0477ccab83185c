"""The control-flow graph of a function: which instruction may run after which.

:func:`destinations` and :func:`falls_through` say where one instruction leads, and
:func:`successors` says it for all.  :func:`blocks` cuts a function into basic blocks.
All users of the graph start from these: the check of PTX texts, what ptxas fuses, the
code that lanes run, and the race detector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import pairwise

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.once import OncePer
from fragmenta.ptx.module import Function, Instruction, Label, Symbol

BRANCHES = frozenset({"bra", "brx"})
ENDS = frozenset({"ret", "exit", "trap"})


@dataclass
class BasicBlock:
    """Instructions that run one after the other, without a branch between them."""

    start: int
    end: int
    """The first instruction, and the one past the last."""
    after: list[int] = field(default_factory=list)
    """The numbers of the blocks that may come next."""
    before: list[int] = field(default_factory=list)


# ── instructions ────────────────────────────────────────────────────────────


def falls_through(instruction: Instruction) -> bool:
    """Whether the next instruction may run after this one; a call comes back."""
    leaves = instruction.opcode in BRANCHES or instruction.opcode in ENDS
    return not leaves or instruction.guard is not None


def destinations(function: Function, instruction: Instruction) -> list[int]:
    """The places that a branch may go to; none for other instructions.

    An indirect branch goes to the labels of its ``.branchtargets``.  If it names no
    such list, any label may be meant.
    """
    if instruction.opcode not in BRANCHES or not instruction.operands:
        return []
    named = instruction.operands[-1]
    if isinstance(named, Label):
        return [function.labels[named.name]] if named.name in function.labels else []
    listed = function.tables.get(named.name) if isinstance(named, Symbol) else None
    names = function.labels if listed is None else [each.name for each in listed]
    places = (function.labels[name] for name in names if name in function.labels)
    return list(dict.fromkeys(places))


@OncePer
def successors(function: Function) -> list[list[int]]:
    """For each instruction, the places where a thread may go on.

    A place past the last instruction is the end of the function.

    >>> from fragmenta.ptx.reading import parse
    >>> successors(parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f() {
    ...     .reg .pred %p;
    ... L:  setp.eq.u32 %p, %tid.x, 0;
    ...     @%p bra L;
    ...     ret;
    ... }''').functions["f"])
    [[1], [2, 0], []]
    """
    found = []
    for place, each in enumerate(function.instructions):
        following = [place + 1] if falls_through(each) else []
        found.append(list(dict.fromkeys([*following, *destinations(function, each)])))
    return found


# ── basic blocks ────────────────────────────────────────────────────────────


def blocks(
    function: Function,
    ends: Callable[[Instruction], bool] = lambda _: False,
    alone: Callable[[Instruction], bool] = lambda _: False,
) -> list[BasicBlock]:
    """The blocks of a function in the order of the text; the first is the entry.

    A block begins at each label and after each branch.  Blocks also end after the
    instructions that ``ends`` accepts; those that ``alone`` accepts are blocks of their
    own.
    """
    code = function.instructions
    starts = {0, *function.labels.values()}
    for index, each in enumerate(code):
        if alone(each):
            starts.update((index, index + 1))
        elif each.opcode in BRANCHES or each.opcode in ENDS or ends(each):
            starts.add(index + 1)
    ordered = sorted(start for start in starts if start < len(code))
    made = [BasicBlock(*both) for both in pairwise([*ordered, len(code)])]
    at = {block.start: number for number, block in enumerate(made)}
    for number, block in enumerate(made):
        last = code[block.end - 1]
        goals = destinations(function, last)
        if falls_through(last):
            goals.append(block.end)
        for goal in dict.fromkeys(goals):
            if goal in at:
                block.after.append(at[goal])
                made[at[goal]].before.append(number)
    return made


def reverse_postorder(made: Sequence[BasicBlock], backwards: bool = False) -> list[int]:
    """Blocks that can be reached, each after those before it, except around loops."""
    seen: set[int] = set()
    order: list[int] = []
    ends = [n for n, block in enumerate(made) if not block.after]
    for root in ends if backwards else [0] if made else []:
        stack = [(root, iter(made[root].before if backwards else made[root].after))]
        if root in seen:
            continue
        seen.add(root)
        while stack:
            number, rest = stack[-1]
            for other in rest:
                if other not in seen:
                    seen.add(other)
                    found = made[other].before if backwards else made[other].after
                    stack.append((other, iter(found)))
                    break
            else:
                order.append(number)
                stack.pop()
    return order[::-1]


def postdominators(made: Sequence[BasicBlock]) -> dict[int, int | None]:
    """The block where all paths from a block meet again; None: only at the end.

    The algorithm of Cooper, Harvey and Kennedy, on the reversed graph.  Blocks that
    reach no end are left out.
    """
    order = reverse_postorder(made, backwards=True)
    place = {number: position + 1 for position, number in enumerate(order)}
    exit_ = -1
    place[exit_] = 0
    parent: dict[int, int] = {exit_: exit_}

    def meet(one: int, other: int) -> int:
        while one != other:
            while place[one] > place[other]:
                one = parent[one]
            while place[other] > place[one]:
                other = parent[other]
        return one

    changed = True
    while changed:
        changed = False
        for number in order:
            paths = [n for n in made[number].after if n in parent]
            found = paths[0] if paths else exit_
            for path in paths[1:]:
                found = meet(found, path)
            if not made[number].after:
                found = exit_
            if parent.get(number) != found:
                parent[number] = found
                changed = True
    return {
        number: None if above == exit_ else above
        for number, above in parent.items()
        if number != exit_
    }
