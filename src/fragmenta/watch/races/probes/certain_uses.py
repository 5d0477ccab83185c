"""Loads whose value is used whatever happens, read off the text of a function.

A value is used if it reaches global memory, a branch or an address.  If it does so on
every way from the load to the end of the function, no launch has to be run again to
find that out (:mod:`fragmenta.watch.races.unused_reads`).  Nothing is said about values
that go through memory, other lanes or products, nor about uses that depend on a guard.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import and_

from fragmenta.base.arrays.once import OncePer
from fragmenta.ptx.checking.register_effects import Effects, effects_of, registers
from fragmenta.ptx.dataflow import bits, solved
from fragmenta.ptx.flow import successors
from fragmenta.ptx.module import Address, Function, Instruction, Register
from fragmenta.ptx.opcodes.kinds import computes
from fragmenta.watch.races.probes.definedness import keeps_undefined
from fragmenta.watch.races.probes.undefined_flow import can_follow


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
    steps, end = [*map(_Step, code, effects_of(function))], len(code)
    every = (1 << len(function.registers)) - 1
    given = {
        place: every if goals and end not in goals else 0
        for place, goals in enumerate(after)
    }

    def used(place: int, later: int) -> int:
        return steps[place].used_before(later)

    found = solved(after, given, and_, used, back=True)
    return frozenset(at for at, step in enumerate(steps) if step.results & found[at])


class _Step:
    """What one instruction means for undefined registers, as bits of their numbers."""

    def __init__(self, instruction: Instruction, given: Effects) -> None:
        guard = instruction.guard
        asked = _bits(() if guard is None else registers((guard,)))
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
    found = _bits(registers(named))
    words = set(instruction.qualifiers)
    if instruction.is_store and "global" in words and not words & {"async"}:
        found |= _bits(registers(instruction.operands[1:2]))
    return found


def _bits(named: Iterable[Register]) -> int:
    return bits(each.number for each in named if can_follow(each))
