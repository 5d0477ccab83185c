"""How does every command behave?

What all commands share: the application, how errors, pipes and negative numbers
are treated, and the arguments that several commands take.

Exit status: 0 done, 1 nothing found, 2 bad input, 130 interrupted, 141 the
reader of the output has gone.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from fragmenta.commands.output import complain, width, write
from fragmenta.commands.reading import Command, read_plainly
from fragmenta.errors import Error

if TYPE_CHECKING:
    from fragmenta.isa.instruction import Instruction
    from fragmenta.registers.fragment import Fragment

NOTHING, BAD_INPUT, PIPE_CLOSED = 1, 2, 141

Function = TypeVar("Function", bound=Callable[..., None])

#: The examples in each command's help, by command.
EXAMPLES: dict[str, tuple[str, ...]] = {}


class Commands(TyperGroup):
    """The commands, with the library's errors told as one message."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Let ``-1`` be a number, for the library to refuse in its own words."""
        read_plainly(self.get_params(ctx))
        # A number with a space before it is no option, and int() ignores it.
        numbers = (f" {a}" if re.fullmatch(r"-\d+", a) else a for a in args[1:])
        try:
            return super().parse_args(ctx, [*args[:1], *numbers])
        except Error as error:  # --version answers while arguments are read
            complain(_message(error))
            raise typer.Exit(BAD_INPUT) from None

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an error is a message and a status, never a traceback."""
        try:
            return super().invoke(ctx)
        except Error as error:
            complain(_message(error))
            raise typer.Exit(BAD_INPUT) from None
        except OSError as error:
            if error.filename is not None:  # a file, not the output
                why = f"{error.filename}: {error.strerror or error}"
                complain(f"Error: {why}")
                raise typer.Exit(BAD_INPUT) from None
            # The interpreter flushes once more on exit: give it somewhere.
            if sys.stdout is not None:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                raise typer.Exit(PIPE_CLOSED) from None
            complain(f"Error: {error.strerror or error}")
            raise typer.Exit(BAD_INPUT) from None


_OPTIONS = {"pad=True": "--pad", "prune makes": "--prune makes"}
"""What the library's messages advise, and what that is called here."""


def _message(error: Error) -> str:
    """The message, wrapped; lists in it, which are indented, stay as they are."""
    lines = []
    text = f"Error: {error}"
    for advice, option in _OPTIONS.items():
        text = text.replace(advice, option)
    for line in text.splitlines():
        fits = line.startswith(" ") or len(line) <= width()
        wrap = textwrap.TextWrapper(
            width(), break_long_words=False, break_on_hyphens=False
        )
        lines += [line] if fits else wrap.wrap(line)
    return "\n".join(lines)


# Plain help and plain errors: no frames around them, and nothing to import.
app = typer.Typer(
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExample:\n  fragmenta where mma.m16n8k64.s4.s4 A 3 17",
)


def _version(asked: bool) -> None:
    if asked:
        from fragmenta import __version__

        write(f"fragmenta {__version__}")
        raise typer.Exit


@app.callback()
def _fragmenta(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """The executable reference for NVIDIA Tensor Core instructions.

    INSTRUCTION is a PTX mnemonic, or some of its qualifiers in their order.
    """


def command(name: str, *examples: str) -> Callable[[Function], Function]:
    """Make a function a command, with examples in its help."""
    EXAMPLES[name] = examples
    title = "Examples" if len(examples) > 1 else "Example"
    listed = "".join(f"\n  {example}" for example in examples)

    def register(function: Function) -> Function:
        epilog = f"\b\n{title}:{listed}"
        return app.command(name, cls=Command, epilog=epilog)(function)

    return register


# ── arguments that several commands take ────────────────────────────────────


def _complete_instruction(incomplete: str) -> list[str]:
    from fragmenta.isa.families import catalogue

    return [str(op) for op in catalogue() if str(op).startswith(incomplete)]


def complete_target(incomplete: str) -> list[str]:
    """The targets that begin so, for the shell."""
    from fragmenta.isa.target import TARGETS

    return [each for each in TARGETS if each.startswith(incomplete)]


def _complete_operand(incomplete: str) -> list[str]:
    names = ("A", "B", "C", "D", "metadata", "scale_A", "scale_B")
    return [each for each in names if each.lower().startswith(incomplete.lower())]


InstructionText = Annotated[
    str,
    typer.Argument(
        metavar="INSTRUCTION",
        help="A mnemonic, or some of its qualifiers in order.",
        autocompletion=_complete_instruction,
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
    from fragmenta.isa import searching

    return searching.find(text)


def find_holding(text: str, what: str) -> Instruction:
    """As :func:`find`, of an instruction that holds matrices to do this with."""
    from fragmenta.isa.instruction import check_holds

    op = find(text)
    check_holds(op, what)
    return op


def operand(op: Instruction, text: str) -> Fragment:
    """The fragment of the operand that an argument names, in any case."""
    return op.fragment(text)
