"""The registers that an instruction reads, and those that it writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from fragmenta.isa.operand_lists import is_written, slots
from fragmenta.ptx.checking import mnemonics, tensor
from fragmenta.ptx.module import (
    Address,
    Instruction,
    Negative,
    Not,
    Operand,
    OperandGroup,
    Pair,
    Register,
    RegisterPart,
    Vector,
)
from fragmenta.ptx.opcodes.tensor import TENSOR


class Effects(NamedTuple):
    """Registers of one instruction."""

    reads: list[Register]
    writes: list[Register]
    unknown: bool = False
    """Whether it is not known which are read; then all operands count as written."""


def effects(of: Instruction) -> Effects:
    """What an instruction reads and writes, its guard included.

    An operand of an instruction that is not known counts as written, so that the check
    reports nothing about it.
    """
    written = _written(of.opcode, of.qualifiers, len(of.operands))
    reads = list(registers((of.guard,))) if of.guard is not None else []
    writes: list[Register] = []
    for number, operand in enumerate(of.operands):
        result = written is None or number in written
        if isinstance(operand, Register):  # most are
            (writes if result else reads).append(operand)
            continue
        if isinstance(operand, Address):
            result = False
        elif of.opcode == "call" and isinstance(operand, OperandGroup):
            result = number == 0 and len(of.operands) > 1
        (writes if result else reads).extend(registers((operand,)))
    return Effects(reads, writes, written is None)


@cache
def _written(
    opcode: str, qualifiers: tuple[str, ...], count: int
) -> frozenset[int] | None:
    """The numbers of the operands that are written; None if that is not known."""
    mnemonic = ".".join((opcode, *qualifiers))
    if opcode in TENSOR:
        op = tensor.named(mnemonic)
        if isinstance(op, tensor.Remark):
            return None
        # wgmma reads D too, unless scale-d is 0: D counts as written only.
        firsts = [slot[0] for slot in slots(op.operands)]
        return frozenset(i for i, each in enumerate(firsts) if is_written(op, each))
    found = mnemonics.reading(mnemonic).matches
    if not found:
        return None
    shown = [each for each in found[0].syntax.operands if not each.hidden]
    results = {i for i, each in enumerate(shown) if each.result and not each.address}
    return frozenset(results) if len(results) < count or results else frozenset()


def registers(operands: Iterable[Operand]) -> Iterator[Register]:
    """All registers in operands."""
    for each in operands:
        if isinstance(each, Register):
            yield each
        elif isinstance(each, Not | RegisterPart | Negative):
            yield from registers((each.of,))
        elif isinstance(each, Vector | OperandGroup):
            yield from registers(each.items)
        elif isinstance(each, Pair):
            yield from registers((each.first, each.second))
        elif isinstance(each, Address):
            if isinstance(each.base, Register):
                yield each.base
            yield from registers(each.items)
