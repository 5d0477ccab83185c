"""The registers that an instruction reads, and those that it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple, TypeAlias

from fragmenta.base.arrays.once import OncePer
from fragmenta.ptx.checking import mnemonics, tensor
from fragmenta.ptx.module import (
    Address,
    Function,
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
from fragmenta.reference.isa.operand_lists import is_written, slots


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


@OncePer
def effects_of(function: Function) -> list[Effects]:
    """What each instruction of a function reads and writes."""
    return [effects(each) for each in function.instructions]


@OncePer
def writers(function: Function) -> dict[int, list[int]]:
    """The places of the instructions that write each register, by its number."""
    found: dict[int, list[int]] = {}
    for place, each in enumerate(effects_of(function)):
        for register in each.writes:
            found.setdefault(register.number, []).append(place)
    return found


Way: TypeAlias = tuple[Iterable[Register], Iterable[Register]]
"""What is read, and what may depend on that."""


def ways(
    function: Function,
    passes: Callable[[Instruction], bool] = lambda _: True,
    keeps: Callable[[Register], bool] = lambda _: True,
) -> list[Way]:
    """What instructions that values pass read, and the results that keep them."""
    both = zip(function.instructions, effects_of(function), strict=True)
    return [(of.reads, filter(keeps, of.writes)) for each, of in both if passes(each)]


def decided(function: Function, branch: int, inside: Iterable[int]) -> Way:
    """What a branch reads, and what is written where it decides about that."""
    effect = effects_of(function)
    return effect[branch].reads, [each for at in inside for each in effect[at].writes]


def flows(function: Function, given: Iterable[Way]) -> list[set[int]]:
    """The graph of registers: those that may depend on each, by number."""
    found: list[set[int]] = [set() for _ in function.registers]
    for sources, goals in given:
        numbers = [each.number for each in goals]
        for each in sources:
            found[each.number].update(numbers)
    return found
