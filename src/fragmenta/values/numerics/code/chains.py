"""Chains: which instructions add products to the same accumulators.

A loop over k adds to its accumulators again and again.  Compilers rename them: D of one
instruction is C of the next one, perhaps after a ``mov``.  Registers that are so
connected are one chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fragmenta.engine.simt.program import Program
from fragmenta.ptx.module import Instruction, Operand, Register, Vector
from fragmenta.ptx.opcodes.kinds import kind_of


class Chains(NamedTuple):
    """The chains of a program."""

    of: dict[tuple[str, int], int]
    """The chain of each product, by function and place."""
    total: int
    """How many chains there are."""


_FOUND: WeakKeyDictionary[Program, Chains] = WeakKeyDictionary()


def chains(program: Program) -> Chains:
    """The chains of all functions of a program."""
    found = _FOUND.get(program)
    if found is None:
        of: dict[tuple[str, int], int] = {}
        numbers: dict[tuple[str, int], int] = {}
        for name, unit in program.units.items():
            for place, root in _roots(unit.function.instructions).items():
                of[name, place] = numbers.setdefault((name, root), len(numbers))
        found = _FOUND[program] = Chains(of, len(numbers))
    return found


def multiplies(instruction: Instruction) -> bool:
    """Whether it is a product of matrices in registers."""
    in_registers = not instruction.of_tensor_memory
    return in_registers and kind_of(instruction.mnemonic).word == "multiplies"


def _roots(instructions: Sequence[Instruction]) -> dict[int, int]:
    """A register for each product: that of its chain."""
    parents: dict[int, int] = {}

    def root(number: int) -> int:
        while parents.setdefault(number, number) != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    products: dict[int, int] = {}
    for place, each in enumerate(instructions):
        if multiplies(each):
            goal = _first(each.operands[0])
            if goal is None:
                continue
            products[place] = goal
            last = None if each.of_warpgroup else _first(each.operands[3])
            if last is not None:
                parents[root(last)] = root(goal)
    # One zero is copied to many accumulators: that does not connect them.
    for source, goals in _copies(instructions).items():
        if len(goals) == 1:
            parents[root(source)] = root(goals[0])
    return {place: root(goal) for place, goal in products.items()}


def _copies(instructions: Sequence[Instruction]) -> dict[int, list[int]]:
    """The registers that each register is copied to."""
    found: dict[int, list[int]] = {}
    for each in instructions:
        if each.is_move and len(each.operands) == 2:
            goal, source = (_first(operand) for operand in each.operands)
            if goal is not None and source is not None:
                found.setdefault(source, []).append(goal)
    return found


def _first(operand: Operand) -> int | None:
    """The number of the first register of an operand."""
    one = operand.items[0] if isinstance(operand, Vector) else operand
    return one.number if isinstance(one, Register) else None
