"""Loads that an atomic operation on the same word follows.

A loop with compare-and-swap begins with a plain load; so does a test whether an atomic
operation is worth its time.  Such a load may be out of date: the operation decides.
"""

from __future__ import annotations

from fragmenta.ptx.checking.register_effects import writers
from fragmenta.ptx.dataflow import onward, reached
from fragmenta.ptx.families import BARRIERS
from fragmenta.ptx.module import Address, Function, Instruction, Register

_ORDERING = BARRIERS | {"fence", "membar", "call"}
"""What follows them has nothing to do with the load."""


def optimistic(function: Function, index: int) -> bool:
    """Whether an atomic operation on the word of a load may follow it.

    >>> from fragmenta.ptx.reading import parse
    >>> function = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f(.param .u64 at) {
    ...     .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %d<3>;
    ...     ld.param.u64 %d0, [at];
    ...     cvta.to.global.u64 %d1, %d0;
    ...     ld.global.u32 %r0, [%d1];
    ... L:  add.u32 %r1, %r0, 1;
    ...     atom.global.cas.b32 %r2, [%d0], %r0, %r1;
    ...     setp.ne.u32 %p, %r2, %r0;
    ...     mov.u32 %r0, %r2;
    ...     @%p bra L;
    ...     ld.global.u32 %r0, [%d1];
    ...     ret;
    ... }''').functions["f"]
    >>> optimistic(function, 2), optimistic(function, 8)
    (True, False)
    """
    code, copied = function.instructions, _copies(function)
    wanted = _word(code[index], copied)
    following = onward(function, lambda each: each.opcode not in _ORDERING)
    return wanted is not None and any(
        code[place].is_update and _word(code[place], copied) == wanted
        for place in reached(following(index), following)
        if place != index
    )


def _word(instruction: Instruction, copied: dict[int, int]) -> tuple[int, int] | None:
    """The register and the offset of an address, if it has one register."""
    goal = next((e for e in instruction.operands if isinstance(e, Address)), None)
    if goal is None or not isinstance(goal.base, Register):
        return None
    number = goal.base.number
    while number in copied:
        number = copied[number]
    return number, goal.offset


def _copies(function: Function) -> dict[int, int]:
    """Registers that are written once, with another one that is; by number."""
    once = {n: at[0] for n, at in writers(function).items() if len(at) == 1}
    found = {}
    for number, place in once.items():
        each = function.instructions[place]
        if each.is_move or each.opcode == "cvta":
            goal, source = each.operands
            if isinstance(goal, Register) and isinstance(source, Register):
                found[number] = source.number
    return {to: of for to, of in found.items() if of in once}
