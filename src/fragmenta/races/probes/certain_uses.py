"""Loads whose value is used whatever happens, read off the text of a function.

A value is used if it reaches global memory, a branch or an address.  If it does so on
every way from the load to the end of the function, no launch has to be run again to
find that out (:mod:`fragmenta.races.unused_reads`).  Nothing is said about values that
go through memory, other lanes or products, nor about uses that depend on a guard.
"""

from __future__ import annotations

from fragmenta.arrays.once import OncePer
from fragmenta.ptx.checking.register_effects import effects, registers
from fragmenta.ptx.flow import successors
from fragmenta.ptx.module import Address, Function, Instruction, Register
from fragmenta.ptx.opcodes.kinds import computes
from fragmenta.races.probes.definedness import keeps_undefined
from fragmenta.races.probes.undefined_flow import can_follow


@OncePer
def certain_uses(function: Function) -> frozenset[int]:
    """The instructions of which a result is used on every way on, by number.

    >>> from fragmenta.ptx.reading import parse
    >>> function = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f(.param .u64 out) {
    ...     .reg .b32 %r<4>; .reg .b64 %d; .reg .pred %p;
    ...     ld.param.u64 %d, [out];
    ...     ld.shared.u32 %r0, [0];
    ...     ld.shared.u32 %r1, [4];
    ...     add.u32 %r2, %r0, 7;
    ...     setp.eq.u32 %p, %tid.x, 0;
    ...     @%p st.global.u32 [%d+4], %r1;
    ...     st.global.u32 [%d], %r2;
    ...     ret;
    ... }''').functions["f"]
    >>> 1 in certain_uses(function), 2 in certain_uses(function)
    (True, False)
    """
    code, after = function.instructions, successors(function)
    every = (1 << len(function.registers)) - 1
    steps = [_Step(each) for each in code]
    before = [every] * len(code) + [0]
    left, waiting = list(range(len(code))), set(range(len(code)))
    comes_from: list[list[int]] = [[] for _ in code]
    for place, goals in enumerate(after):
        for goal in goals:
            if goal < len(code):
                comes_from[goal].append(place)
    while left:
        place = left.pop()
        waiting.discard(place)
        found = steps[place].used_before(_on_all(before, after[place]))
        if found != before[place]:
            before[place] = found
            new = [each for each in comes_from[place] if each not in waiting]
            left += new
            waiting.update(new)
    return frozenset(
        place
        for place, step in enumerate(steps)
        if step.results & _on_all(before, after[place])
    )


def _on_all(before: list[int], goals: list[int]) -> int:
    """The registers that are used wherever a thread goes on; none if it ends."""
    found = before[goals[0]] if goals else 0
    for goal in goals[1:]:
        found &= before[goal]
    return found


class _Step:
    """What one instruction means for undefined registers, as bits of their numbers."""

    def __init__(self, instruction: Instruction) -> None:
        guard = instruction.guard
        given = effects(instruction)
        asked = _bits(() if guard is None else tuple(registers((guard,))))
        self.results = 0 if given.unknown else _bits(given.writes)
        """The registers that it writes."""
        self._ends = given.unknown or instruction.opcode == "call"
        self._uses = 0 if computes(instruction.mnemonic) else asked
        self._sources = asked if computes(instruction.mnemonic) else 0
        if guard is None:
            self._uses |= _used(instruction)
            if keeps_undefined(instruction):
                self._sources |= _bits(given.reads)

    def used_before(self, after: int) -> int:
        """The registers that are used if they are undefined before it.

        ``after`` are those that are if they are undefined after it.
        """
        if self._ends:  # what happens there is not read
            return self._uses
        made = self._sources if self.results & after else 0
        return self._uses | made | (after & ~self.results)


def _used(instruction: Instruction) -> int:
    """The registers that an instruction without a guard uses."""
    named = [each for each in instruction.operands if isinstance(each, Address)]
    found = _bits(tuple(registers(named)))
    words = set(instruction.qualifiers)
    if instruction.is_store and "global" in words and not words & {"async"}:
        found |= _bits(tuple(registers(instruction.operands[1:2])))
    return found


def _bits(named: list[Register] | tuple[Register, ...]) -> int:
    found = 0
    for each in named:
        if can_follow(each):
            found |= 1 << each.number
    return found
