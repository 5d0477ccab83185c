"""What do several commands take?

Arguments that more than one command has, how the shell completes them, and what
they name.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fragmenta.isa import searching
from fragmenta.isa.families import catalogue
from fragmenta.isa.instruction import Instruction, check_holds
from fragmenta.isa.target import TARGETS
from fragmenta.registers.fragment import Fragment


def complete_instruction(incomplete: str) -> list[str]:
    """The instructions that begin so, for the shell."""
    names = map(str, catalogue())
    return [name for name in names if name.startswith(incomplete)]


def complete_target(incomplete: str) -> list[str]:
    """The targets that begin so, for the shell."""
    return [each for each in TARGETS if each.startswith(incomplete)]


def _complete_operand(incomplete: str) -> list[str]:
    names = ("A", "B", "C", "D", "metadata", "scale_A", "scale_B")
    return [each for each in names if each.lower().startswith(incomplete.lower())]


InstructionText = Annotated[
    str,
    typer.Argument(
        metavar="INSTRUCTION",
        help="A PTX mnemonic, or some of its qualifiers in order.",
        autocompletion=complete_instruction,
        show_default=False,
    ),
]
OperandName = Annotated[
    str,
    typer.Argument(
        metavar="OPERAND",
        help="A, B, C, D, metadata, scale_A or scale_B.",
        autocompletion=_complete_operand,
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def find(text: str) -> Instruction:
    """The instruction that an argument names."""
    return searching.find(text)


def find_holding(text: str, what: str) -> Instruction:
    """As :func:`find`, of an instruction that holds matrices to do this with."""
    op = find(text)
    check_holds(op, what)
    return op


def operand(op: Instruction, text: str) -> Fragment:
    """The fragment of the operand that an argument names, in any case."""
    return op.fragment(text)
