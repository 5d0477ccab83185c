"""Which instruction can come after which?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fragmenta.ptx.module import Function, Instruction, Label, Symbol

_ENDS = ("ret", "exit", "trap")


@dataclass
class Block:
    """Instructions that run one after the other, without a branch between them."""

    start: int
    end: int
    """The first instruction, and the one behind the last."""
    after: list[int] = field(default_factory=list)
    """The numbers of the blocks that may come next."""
    before: list[int] = field(default_factory=list)


def blocks(of: Function) -> list[Block]:
    """The blocks of a function in the order of the text; the first is the entry."""
    code = of.instructions
    starts = _starts(of)
    made = [
        Block(start, end)
        for start, end in zip(starts, [*starts[1:], len(code)], strict=True)
    ]
    at = {block.start: number for number, block in enumerate(made)}
    for number, block in enumerate(made):
        for target in _next(of, block):
            if target in at and at[target] not in block.after:
                block.after.append(at[target])
                made[at[target]].before.append(number)
    return made


def _starts(of: Function) -> list[int]:
    """Where blocks begin: at labels, and behind branches."""
    count = len(of.instructions)
    starts = {0, *(index for index in of.labels.values() if index < count)}
    for index, each in enumerate(of.instructions):
        if each.opcode in ("bra", "brx", *_ENDS) and index + 1 < count:
            starts.add(index + 1)
    return sorted(starts) if count else []


def _next(of: Function, block: Block) -> Iterator[int]:
    last = of.instructions[block.end - 1]
    if last.opcode in ("bra", "brx"):
        for label in targets(of, last):
            if label.name in of.labels:
                yield of.labels[label.name]
    if last.guard is not None or last.opcode not in ("bra", "brx", *_ENDS):
        yield block.end


def targets(of: Function, branch: Instruction) -> Sequence[Label]:
    """The labels that a branch may go to."""
    named = branch.operands[-1] if branch.operands else None
    if isinstance(named, Label):
        return (named,)
    if isinstance(named, Symbol):
        return [
            each for each in of.tables.get(named.name, ()) if isinstance(each, Label)
        ]
    return ()


def reverse_postorder(made: Sequence[Block], backwards: bool = False) -> list[int]:
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


def postdominators(made: Sequence[Block]) -> dict[int, int | None]:
    """The block where all ways from a block meet again; None: only behind the end.

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
            ways = [n for n in made[number].after if n in parent]
            found = ways[0] if ways else exit_
            for way in ways[1:]:
                found = meet(found, way)
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
