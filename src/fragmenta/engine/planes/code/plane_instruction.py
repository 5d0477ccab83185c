"""What goes beside one instruction in planes: the same with its shadow registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

from fragmenta.engine.simt.emitter import HANDLERS, InMemory, Writer
from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.module import (
    Immediate,
    Instruction,
    Negative,
    Not,
    Operand,
    Pair,
    Register,
    RegisterPart,
    Sink,
    Vector,
)

ZERO = Immediate(0, "int", 0)
_UNSIGNED = {f"s{bits}": f"u{bits}" for bits in (8, 16, 32, 64)}


class PlaneInstruction:
    """An instruction in planes: what it does to the shadows of its registers.

    ``twins`` are the registers that are followed, by number: one in each plane.
    """

    signs: ClassVar[bool] = False
    """Whether planes have a sign; if not, they are extended by zeros."""

    def __init__(
        self,
        writer: Writer,
        instruction: Instruction,
        twins: Mapping[int, tuple[Register, ...]],
    ) -> None:
        self.writer, self.instruction, self.followed = writer, instruction, twins
        found = effects(replace(instruction, guard=None))
        self.reads = list(dict.fromkeys(filter(self.has, found.reads)))
        """The registers with planes that it reads, also as addresses."""
        self.writes = list(dict.fromkeys(filter(self.has, found.writes)))
        """The registers with planes that it writes."""
        self.all_lanes = f"i32 {writer.mask or -1}"
        """The lanes whose results change, as an argument of a routine."""

    def has(self, register: Register) -> bool:
        """Whether a register is followed."""
        return register.number in self.followed

    def second(self, register: Register) -> InMemory:
        """Where plane 0 of a register is; plane p is p times its bytes further on."""
        return self.writer.register(self.followed[register.number][0])

    def absent(self, register: Register) -> Operand:
        """What stands for an operand that is not followed."""
        return ZERO

    def twin(self, operand: Operand, plane: int = 0, result: bool = False) -> Operand:
        """The operand in a plane: its twin, or zeros if it is not followed."""
        match operand:
            case Register() if self.has(operand):
                return self.followed[operand.number][plane]
            case Register():
                return Sink() if result else self.absent(operand)
            case Not() | RegisterPart() | Negative():
                return self.twin(operand.of, plane, result)
            case Vector():
                items = (self.twin(e, plane, result) for e in operand.items)
                return Vector(tuple(items))
            case Pair():
                both = (operand.first, operand.second)
                return Pair(*(self.twin(each, plane, result) for each in both))
            case Sink():
                return operand
        return ZERO

    def shadowed(
        self, plane: int = 0, results: int = 1, controls: tuple[int, ...] = ()
    ) -> Instruction:
        """The same instruction in a plane; controls are operands that stay."""
        operands = tuple(
            each if index in controls else self.twin(each, plane, index < results)
            for index, each in enumerate(self.instruction.operands)
        )
        words = self.instruction.qualifiers
        if not self.signs:
            words = tuple(_UNSIGNED.get(each, each) for each in words)
        return replace(
            self.instruction, operands=operands, guard=None, qualifiers=words
        )

    def execute(self, instruction: Instruction, plane: int = 0) -> None:
        """Write the code of an instruction; its memory is that of a plane."""
        handler = HANDLERS.get(instruction.opcode)
        with self.writer.in_plane(plane):
            if handler is None:
                self.writer.compute(instruction.mnemonic, *instruction.operands)
            else:
                handler(self.writer, instruction)

    def if_any(self, write: Callable[[], None]) -> None:
        """Write what all lanes do together, if the guard lets any of them."""
        if self.instruction.guard is None:
            write()
        else:
            self.writer.if_any(write)
