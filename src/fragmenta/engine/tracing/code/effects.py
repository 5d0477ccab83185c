"""Which registers a step writes, for the instrument and for who reads its log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.module import Function, Instruction, Module, Register
from fragmenta.ptx.opcodes.kinds import kind_of
from fragmenta.ptx.placement import named_in

Owned: TypeAlias = tuple[str, Register]
"""A register, and the name of its function."""


class CallGraph(NamedTuple):
    """A kernel and the functions that it may call, as far as steps need them."""

    module: Module
    functions: tuple[str, ...]
    recursive: tuple[str, ...]
    """Those that call themselves: when such a call returns, the registers of the
    function are as they were before it."""

    def called(self, of: Instruction) -> list[str]:
        """The functions that a call may go to, also through an address."""
        aliases = self.module.aliases
        goals = {aliases.get(each, each) for each in named_in(of.operands)}
        known = goals & self.module.functions.keys()
        inner = [n for n in self.functions if not self.module.functions[n].kernel]
        return [each for each in inner if each in known] if known else inner


def written(program: CallGraph, function: Function, index: int) -> list[Owned]:
    """The registers that an instruction writes, each once, in the order of the log.

    A product of a warpgroup and a load of tensor memory write theirs later: these are
    here as they are when the instruction is issued.  A call writes those in which the
    function gets its arguments, and its results when it returns.
    """
    of = function.instructions[index]
    own = [(function.name, each) for each in _once(effects(of).writes)]
    if of.opcode != "call":
        return own
    return list(dict.fromkeys([*own, *_restored(program, of), *_passed(program, of)]))


def returns(program: CallGraph, function: Function, index: int) -> bool:
    """Whether registers change when a call returns."""
    of = function.instructions[index]
    return bool(effects(of).writes) or bool(_restored(program, of))


def _restored(program: CallGraph, of: Instruction) -> list[Owned]:
    functions = program.module.functions
    if not {*program.called(of)} & {*program.recursive}:
        return []
    return [(n, each) for n in program.recursive for each in functions[n].registers]


def _passed(program: CallGraph, of: Instruction) -> list[Owned]:
    """The registers in which functions get their arguments."""
    found = []
    for name in program.called(of):
        function = program.module.functions[name]
        given = {each.name for each in function.parameters}
        found += [
            (name, each)
            for each in function.registers
            if each.name in given or each.vector in given
        ]
    return found


def read(function: Function, index: int) -> list[Register]:
    """The registers that an instruction reads, each once."""
    return _once(effects(function.instructions[index]).reads)


def is_late(of: Instruction) -> bool:
    """Whether its results come to registers after it: a product, a load of cells."""
    kind = kind_of(of.mnemonic).word
    if of.of_warpgroup:
        return kind == "multiplies"
    return of.of_tensor_memory and kind == "loads"


def _once(found: Iterable[Register]) -> list[Register]:
    return list(dict.fromkeys(found))
