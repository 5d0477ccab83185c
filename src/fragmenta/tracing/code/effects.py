"""Which registers a step writes, for the instrument and for who reads its log."""

from __future__ import annotations

from collections.abc import Collection

from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.module import Function, Instruction, Register


def written(function: Function, index: int, recursive: bool) -> list[Register]:
    """The registers that an instruction writes, each once, in the order of the log.

    A product of a warpgroup writes registers later: those of all products are taken
    where the warp waits.  A function that calls itself restores all its registers when
    a call returns.
    """
    of = function.instructions[index]
    if of.opcode == "wgmma" and "wait_group" in of.qualifiers:
        products = (each for each in function.instructions if is_product(each))
        return _once(register for each in products for register in effects(each).writes)
    if of.opcode == "call" and recursive:
        return list(function.registers)
    return _once(effects(of).writes)


def read(function: Function, index: int) -> list[Register]:
    """The registers that an instruction reads, each once."""
    return _once(effects(function.instructions[index]).reads)


def is_product(of: Instruction) -> bool:
    """Whether it is a product of a warpgroup."""
    return of.opcode == "wgmma" and "mma_async" in of.qualifiers


def _once(found: Collection[Register] | object) -> list[Register]:
    return list(dict.fromkeys(found))  # type: ignore[call-overload, no-any-return]


def words(register: Register) -> int:
    """The words that the log has of a register.

    >>> words(Register("%p1", "pred", 0)), words(Register("%rs1", "b16", 0))
    (1, 16)
    """
    from fragmenta.simt.program import register_bytes

    return register_bytes(register) // 4
