"""The registers of asynchronous products and loads, and what each of them is."""

from __future__ import annotations

from enum import IntFlag

from fragmenta.engine.simt.wgmma_operands import describe, is_wgmma
from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.module import Function, Register
from fragmenta.ptx.opcodes.kinds import kind_of

REGISTER_BYTES = 64
"""A register begins at a multiple of that."""


class Role(IntFlag):
    """What a register is for a product."""

    ACCUMULATOR = 1
    FRAGMENT = 2
    METADATA = 4
    LOADED = 8
    """The result of a ``tcgen05.ld``; see ``races.tmem_registers``."""


def roles(function: Function) -> dict[int, Role]:
    """What each register of a function is for its products and loads, by number.

    Registers that none of them reads or writes are left out.
    """
    found: dict[int, Role] = {}
    for instruction in function.instructions:
        kind = kind_of(instruction.mnemonic).word
        if instruction.of_tensor_memory and kind == "loads":
            for result in effects(instruction).writes:
                before = found.get(result.number, Role(0))
                found[result.number] = before | Role.LOADED
        if not is_wgmma(instruction):
            continue
        form = describe(instruction)
        for role, operands in (
            (Role.ACCUMULATOR, form.d),
            (Role.FRAGMENT, form.a),
            (Role.METADATA, (form.metadata,)),
        ):
            for each in operands:
                if isinstance(each, Register):
                    before = found.get(each.number, Role(0))
                    found[each.number] = before | role
    return found
