"""Finds instructions that are repeated until they succeed: waits that are loops.

Of a loop on a word of memory, :func:`condition` also finds what it waits for.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.ptx.flow import destinations, successors
from fragmenta.ptx.module import (
    Function,
    Immediate,
    Instruction,
    Not,
    Operand,
    Register,
)
from fragmenta.simt.emitter import immediate_bits

_FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
_QUIET = frozenset({"bra", "mov", "cvta", "nanosleep", "fence", "membar", "pragma"})
"""Opcodes that change nothing that others see, besides those that only compute."""


def quiet(instruction: Instruction) -> bool:
    """Whether an instruction changes nothing but registers of its own lane."""
    if instruction.opcode in _QUIET:
        return True
    # The table takes a while to import.
    from fragmenta.ptx.opcodes import TABLE

    return TABLE.computes(instruction.mnemonic)


def spins(function: Function, index: int) -> bool:
    """Whether an instruction may follow itself with nothing in between.

    >>> from fragmenta.ptx.reading import parse
    >>> function = parse('''
    ... .version 8.0
    ... .target sm_90
    ... .entry f() {
    ...     .reg .pred %p; .reg .b32 %r;
    ... L:  mbarrier.try_wait.parity.shared.b64 %p, [%r], 0;
    ...     @!%p bra L;
    ...     mbarrier.test_wait.parity.shared.b64 %p, [%r], 0;
    ...     ret;
    ... }''').functions["f"]
    >>> spins(function, 0), spins(function, 2)
    (True, False)
    """
    after, seen = successors(function), set[int]()
    left = list(after[index])
    while left:
        place = left.pop()
        if place == index:
            return True
        if place in seen or place >= len(function.instructions):
            continue
        seen.add(place)
        if quiet(function.instructions[place]):
            left += after[place]
    return False


class Condition(NamedTuple):
    """What ends a loop on a word: ``value & mask`` compared with an operand."""

    compare: str
    against: Operand
    mask: int


_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "ge": "le", "gt": "lt", "le": "ge"}
_SAME = {"neu": "ne", "equ": "eq", "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def condition(function: Function, index: int) -> Condition | None:
    """What the loop on a load or an atomic waits for; None if that is not plain.

    It is plain if the result, or some bits of it, are compared with a number, and a
    branch on that goes back or on.

    >>> from fragmenta.ptx.reading import parse
    >>> function = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f(.param .u64 at) {
    ...     .reg .pred %p; .reg .b32 %r<2>; .reg .b64 %rd;
    ...     ld.param.u64 %rd, [at];
    ... L:  ld.acquire.gpu.global.u32 %r0, [%rd];
    ...     setp.lt.u32 %p, %r0, 4;
    ...     @%p bra L;
    ...     ret;
    ... }''').functions["f"]
    >>> found = condition(function, 1)
    >>> found.compare, found.against.value
    ('ge', 4)
    """
    code = function.instructions
    result = code[index].operands[0]
    if not isinstance(result, Register) or not spins(function, index):
        return None
    held, mask, found = {result.number}, -1, None
    for place in range(index + 1, min(index + 12, len(code))):
        each = code[place]
        if each.opcode == "bra" and each.guard is not None and found is not None:
            return _ends(function, index, place, found, mask)
        if not quiet(each) or each.opcode == "bra":
            return None
        named = [o.number for o in each.operands if isinstance(o, Register)]
        if not held & set(named[1:]):
            continue
        if each.opcode == "mov":
            held.add(named[0])
        elif each.opcode == "and" and isinstance(each.operands[2], Immediate):
            held, mask = {named[0]}, int(each.operands[2].value)
        elif each.opcode == "setp" and len(each.operands) == 3:
            found = each if found is None else None
        else:
            return None
        if found is not None and each is not found:
            return None
    return None


def _ends(
    function: Function, index: int, place: int, compared: Instruction, mask: int
) -> Condition | None:
    """The condition under which a branch leaves the loop."""
    branch, guard = function.instructions[place], function.instructions[place].guard
    p, a, b = compared.operands
    negated = isinstance(guard, Not)
    named = guard.of if isinstance(guard, Not) else guard
    word = compared.qualifiers[0]
    compare = _SAME.get(word, word)
    if named != p or compare not in _OPPOSITE:
        return None
    first = isinstance(a, Register) and _from(function, index, place, a)
    against = b if first else a
    if not first:
        compare = _SWAPPED[compare]
    if isinstance(against, Register) and not _constant(function, index, place, against):
        return None
    if not isinstance(against, Register | Immediate):
        return None
    negative = isinstance(against, Immediate) and against.value < 0
    if (_FLOATS & set(compared.qualifiers) or negative) and compare not in ("eq", "ne"):
        return None  # bits are compared, as unsigned numbers
    if isinstance(against, Immediate):
        number = immediate_bits(against, compared.qualifiers[-1])
        against = Immediate(number, "int", number)
    back = [goal for goal in destinations(function, branch) if goal <= index]
    if bool(back) != negated:  # taken while the comparison holds: that goes back
        compare = _OPPOSITE[compare]
    return Condition(compare, against, mask)


def _from(function: Function, index: int, place: int, register: Register) -> bool:
    """Whether a register is written in the loop."""
    return not _constant(function, index, place, register)


def _constant(function: Function, index: int, place: int, register: Register) -> bool:
    """Whether nothing in the loop writes a register."""
    inside = function.instructions[index:place]
    return all(register not in each.operands[:1] for each in inside)
