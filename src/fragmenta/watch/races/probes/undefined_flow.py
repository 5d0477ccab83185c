"""Which registers of a function can hold undefined bits, and where they come from.

A bit is undefined if it comes from a register that some path has not written, or from
memory.  What is computed from such registers is followed, too; all others are known to
be defined before the kernel runs.
"""

from __future__ import annotations

from operator import or_
from typing import NamedTuple

from fragmenta.ptx.checking.register_effects import effects, effects_of, flows, ways
from fragmenta.ptx.dataflow import solved
from fragmenta.ptx.families import SUMS
from fragmenta.ptx.module import (
    Address,
    Function,
    Instruction,
    Register,
    Symbol,
    type_bits,
)
from fragmenta.ptx.opcodes.kinds import kind_of
from fragmenta.watch.races.probes.unwritten_registers import maybe_unwritten
from fragmenta.watch.races.probes.windows import GIVEN

_NEW = ("manages", "synchronises")
"""Kinds whose results are made of no operand: they count as defined."""
_CANCELLING = SUMS | {"xor", "mad", "lop3"}
CALLED = -1
"""The source of what a function is given in a register: its call."""


class Followed(NamedTuple):
    """The registers of a function that can hold undefined bits."""

    unwritten: set[int]
    """The numbers of those that are undefined at first."""
    sources: tuple[str | int, ...]
    """Where undefined bits come from: names of registers, numbers of instructions."""
    behind: dict[int, int]
    """For each register, by number: the sources that it may depend on, as bits."""
    cancels: bool
    """Whether undefined bits may cancel out, as in ``(a + b) - b``."""

    def origins(self, numbers: list[int]) -> list[str | int]:
        """The sources of some registers."""
        found = 0
        for each in numbers:
            found |= self.behind.get(each, 0)
        return [of for index, of in enumerate(self.sources) if found >> index & 1]


def loads(instruction: Instruction, function: Function) -> bool:
    """Whether an instruction gets its result from memory that may be unwritten.

    That includes what a call gives and returns, what products make of memory, and what
    a shuffle reads of lanes that do not take part.
    """
    kind = kind_of(instruction.mnemonic).word
    multiplies = instruction.of_warpgroup and kind == "multiplies"
    if kind == "calls" or instruction.is_shuffle or multiplies:
        return True
    if kind not in ("loads", "updates"):
        return False
    given = GIVEN & set(instruction.qualifiers)
    return not given or passed(instruction, function)


def passed(instruction: Instruction, function: Function) -> bool:
    """Whether it names a parameter or a result of a call, not of the kernel."""
    given = () if function.kernel else (*function.parameters, *function.returns)
    names = {each.name for each in (*given, *function.variables.values())}
    bases = [each.base for each in instruction.operands if isinstance(each, Address)]
    return any(isinstance(each, Symbol) and each.name in names for each in bases)


def can_follow(register: Register) -> bool:
    """Whether a register may have a shadow: wide ones count as defined."""
    return type_bits(register.type) <= 64


def followed(function: Function) -> Followed:
    """What is followed in a function.

    >>> from fragmenta.ptx.reading import parse
    >>> module = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f() {
    ...     .reg .b32 %r<5>;
    ...     mov.u32 %r1, %tid.x;
    ...     ld.shared.u32 %r2, [%r1];
    ...     add.u32 %r3, %r2, %r1;
    ...     ret;
    ... }''')
    >>> found = followed(module.functions["f"])
    >>> names = {module.functions["f"].registers[n].name: n for n in found.behind}
    >>> sorted(names), found.origins([names["%r3"]])
    (['%r2', '%r3'], [1])
    """
    sources: list[str | int] = []
    behind: dict[int, int] = {}

    def begin(register: Register, source: int) -> None:
        if can_follow(register):
            behind[register.number] = behind.get(register.number, 0) | 1 << source

    unwritten = {each.number for each in maybe_unwritten(function) if can_follow(each)}
    for number in sorted(unwritten):
        begin(function.registers[number], len(sources))
        sources.append(function.registers[number].name)
    given = {each.name for each in function.parameters if each.space == "reg"}
    for register in function.registers:
        if given & {register.name, register.vector}:
            begin(register, len(sources))
    sources.append(CALLED)
    for index, each in enumerate(function.instructions):
        if _passes(each) and loads(each, function):
            for register in effects_of(function)[index].writes:
                begin(register, len(sources))
            sources.append(index)
    behind = solved(flows(function, ways(function, _passes, can_follow)), behind, or_)
    cancels = any(_may_cancel(each, behind) for each in function.instructions)
    return Followed(unwritten, tuple(sources), behind, cancels)


def _passes(instruction: Instruction) -> bool:
    return kind_of(instruction.mnemonic).word not in _NEW


def _may_cancel(instruction: Instruction, behind: dict[int, int]) -> bool:
    """Whether it takes one number that is followed off another."""
    if instruction.opcode not in _CANCELLING:
        return False
    return sum(each.number in behind for each in effects(instruction).reads) > 1
