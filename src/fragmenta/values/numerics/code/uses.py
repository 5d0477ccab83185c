"""Who writes and who reads the registers of a function, and of what types they are."""

from __future__ import annotations

from functools import cached_property

from fragmenta.ptx.checking.register_effects import effects, effects_of, writers
from fragmenta.ptx.module import Function, Instruction, Operand, Pair, Register
from fragmenta.ptx.opcodes.table import TYPES
from fragmenta.values.numerics.code.constants import constant_of

BYTES = frozenset({"s8", "u8"})


class Uses:
    """The instructions of a function, by the registers that they write and read."""

    def __init__(self, function: Function) -> None:
        self.function = function

    @cached_property
    def readers(self) -> dict[int, list[Instruction]]:
        """The instructions that read each register."""
        found: dict[int, list[Instruction]] = {}
        effect = effects_of(self.function)
        for each, of in zip(self.function.instructions, effect, strict=True):
            for number in dict.fromkeys(one.number for one in of.reads):
                found.setdefault(number, []).append(each)
        return found

    @cached_property
    def writers(self) -> dict[int, list[Instruction]]:
        """The instructions that write each register."""
        code = self.function.instructions
        made = writers(self.function)
        return {number: [code[at] for at in places] for number, places in made.items()}

    def reading(self, registers: set[int]) -> list[Instruction]:
        """The instructions that read any of some registers."""
        found = {
            id(each): each
            for number in sorted(registers)
            for each in self.readers.get(number, ())
        }
        return list(found.values())

    def makers(self, operand: Operand) -> list[Instruction]:
        """The instructions that write an operand."""
        if not isinstance(operand, Register):
            return []
        return self.writers.get(operand.number, [])

    def constants(self, each: Instruction, kind: str = "") -> list[float | None]:
        """The numbers that its operands always are; None for those that vary."""
        kind = kind or type_of(each)
        return [constant_of(self.function, one, kind) for one in each.operands[1:]]


def type_of(each: Instruction) -> str:
    """The first type of an instruction, which is that of its result."""
    return next(iter(types_of(each)), "")


def types_of(each: Instruction) -> list[str]:
    """All of its types."""
    return [word for word in each.qualifiers if word in TYPES]


def is_whole(each: Instruction) -> bool:
    """Whether all of its types are integers."""
    return all(kind[0] in "us" for kind in types_of(each))


def goal_of(each: Instruction) -> int:
    """The number of the register that it writes first; -1 if there is none."""
    goal = next(iter(each.operands), None)
    goal = goal.first if isinstance(goal, Pair) else goal
    return goal.number if isinstance(goal, Register) else -1


def reads(each: Instruction) -> list[int]:
    """The numbers of the registers that it reads."""
    return [one.number for one in effects(each).reads]
