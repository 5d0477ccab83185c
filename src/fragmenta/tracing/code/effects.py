"""Which registers a step writes, for the instrument and for who reads its log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.module import Function, Instruction, Module, Register
from fragmenta.ptx.placement import named_in

Owned: TypeAlias = tuple[str, Register]
"""A register, and the name of its function."""


def written(
    module: Module, function: Function, index: int, recursive: Iterable[str]
) -> list[Owned]:
    """The registers that an instruction writes, each once, in the order of the log.

    A product of a warpgroup writes registers later: those of all products are taken
    where the warp waits.  ``recursive`` are the functions that call themselves: when
    such a call returns, the registers of the function are as they were before it.
    """
    of, name = function.instructions[index], function.name
    if of.opcode == "wgmma" and "wait_group" in of.qualifiers:
        products = [each for each in function.instructions if is_product(each)]
        found = [each for product in products for each in effects(product).writes]
    else:
        found = effects(of).writes
    own = [(name, each) for each in _once(found)]
    if of.opcode != "call" or not _calls_any(module, of, recursive):
        return own
    restored = [(n, each) for n in recursive for each in module.functions[n].registers]
    return list(dict.fromkeys([*own, *restored]))


def _calls_any(module: Module, of: Instruction, recursive: Iterable[str]) -> bool:
    """Whether a call may go to one of some functions, also through an address."""
    goals = {module.aliases.get(each, each) for each in named_in(of.operands)}
    known = goals & module.functions.keys()
    return bool(goals & {*recursive}) if known else bool({*recursive})


def read(function: Function, index: int) -> list[Register]:
    """The registers that an instruction reads, each once."""
    return _once(effects(function.instructions[index]).reads)


def is_product(of: Instruction) -> bool:
    """Whether it is a product of a warpgroup."""
    return of.opcode == "wgmma" and "mma_async" in of.qualifiers


def _once(found: Iterable[Register]) -> list[Register]:
    return list(dict.fromkeys(found))
