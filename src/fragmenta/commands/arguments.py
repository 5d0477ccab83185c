"""Arguments and options that several commands have: completion and meaning."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import typer

from fragmenta.errors import (
    AmbiguousInstruction,
    BadCall,
    UnknownOperand,
    ValueRangeError,
)
from fragmenta.reference.isa import searching
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.isa.instruction import Instruction, check_holds
from fragmenta.reference.registers.fragment import Fragment


def complete_instruction(incomplete: str) -> list[str]:
    """Instructions that begin with a text, for completion in the shell."""
    names = map(str, catalogue())
    return [name for name in names if name.startswith(incomplete)]


def _complete_operand(incomplete: str) -> list[str]:
    names = ("A", "B", "C", "D", "metadata", "scale_A", "scale_B", "R")
    return [each for each in names if each.lower().startswith(incomplete.lower())]


HELP = (
    "A PTX mnemonic, some of its qualifiers in order, or words such as fp8, sparse, "
    "16x8x32, HMMA.16816.  A tcgen05.mma also has a descriptor after a space, or a "
    "shape and types after dots."
)
HELP_OF_SEVERAL = (
    "PTX mnemonics, some of their qualifiers in order, or words such as fp8, sparse, "
    "16x8x32; commas between several instructions."
)
InstructionText = Annotated[
    str,
    typer.Argument(
        metavar="INSTRUCTION",
        help=HELP,
        autocompletion=complete_instruction,
        show_default=False,
    ),
]
InstructionWords = Annotated[
    list[str],
    typer.Argument(
        metavar="INSTRUCTION...",
        help=HELP,
        autocompletion=complete_instruction,
        show_default=False,
    ),
]
Idesc = Annotated[
    str | None,
    typer.Option(
        "--idesc",
        metavar="WORD",
        help="The instruction descriptor of a tcgen05.mma, such as 0x08400010.",
        show_default=False,
    ),
]
OperandName = Annotated[
    str,
    typer.Argument(
        metavar="OPERAND",
        help="A, B, C, D, metadata, scale_A or scale_B; R of tcgen05.ld and .st.",
        autocompletion=_complete_operand,
        show_default=False,
    ),
]


def number(text: str, what: str) -> int:
    """A whole number as programs write it: in decimal, hexadecimal or binary.

    >>> number("0x08400010", "a descriptor"), number("0b11", "a mask")
    (138412048, 3)
    """
    plain = text.strip().lower().replace("_", "")
    if not re.fullmatch(r"0x[0-9a-f]{1,16}|0b[01]{1,64}|\d{1,20}", plain, re.ASCII):
        raise ValueRangeError(
            f"{what} is a number, such as 0x08400010 or 17; given {text!r}"
        )
    return int(plain, 0 if plain[:2] in ("0x", "0b") else 10)


def find(text: str, idesc: str | None = None) -> Instruction:
    """The instruction that an argument names, with the descriptor of an option."""
    op = searching.find(text)
    if idesc is None:
        return op
    word = number(idesc, "an instruction descriptor")
    if op.idesc not in (None, word):
        raise BadCall(
            f"two instruction descriptors are given: {op.idesc:#010x} and {idesc}"
        )
    return op.with_descriptor(word)


def find_holding(text: str, what: str, idesc: str | None = None) -> Instruction:
    """As :func:`find`; an instruction without matrices is refused.

    ``what`` is the verb of the message: draw, write a formula for.
    """
    op = find(text, idesc)
    if op.tensor_memory:
        op.shape  # noqa: B018 - without a descriptor, this says what is missing
    check_holds(op, what)
    return op


class Meant(NamedTuple):
    """An operand, and the instructions that have it."""

    op: Instruction
    part: Fragment
    others: tuple[Instruction, ...]
    """Other instructions that the words fit, with the same operand."""

    @property
    def head(self) -> list[str]:
        """The lines that name the instructions."""
        if not self.others:
            return [str(self.op)]
        same = f"in which {self.part.name} has the same places"
        return [str(self.op), f"and {len(self.others)} more, {same}"]

    @property
    def named(self) -> dict[str, object]:
        """The same for a program."""
        alike = {"alike": list(map(str, self.others))} if self.others else {}
        return {"instruction": str(self.op), **alike}

    @property
    def record(self) -> dict[str, object]:
        """The instructions and the operand."""
        return {**self.named, "operand": self.part.name}


def find_operand(
    text: str, name: str, idesc: str | None = None, what: str = ""
) -> Meant:
    """The operand of one instruction, or of several that agree on its places.

    ``what`` is to be done with it, as for :func:`find_holding`.
    """
    try:
        op = find_holding(text, what, idesc) if what else find(text, idesc)
    except AmbiguousInstruction:
        ops = searching.search(text)
        if idesc is not None or any(op.tensor_memory for op in ops):
            raise
        if len({_places(op, name) for op in ops}) != 1:
            raise
        return Meant(ops[0], ops[0].fragment(name), tuple(ops[1:]))
    return Meant(op, operand(op, name), ())


def _places(op: Instruction, name: str) -> tuple[object, ...]:
    """A key that is equal for operands with the same places."""
    try:
        part = op.fragment(name)
    except UnknownOperand:
        return (op,)
    held = (part.layout, part.container, part.stored, part.observed)
    return (*held, part.dtype.bits, str(op.granularity))


def operand(op: Instruction, text: str) -> Fragment:
    """The fragment of the operand that an argument names, in any case."""
    return op.fragment(text)
