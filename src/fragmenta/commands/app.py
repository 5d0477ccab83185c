"""What all commands share: loading, help, errors, pipes and negative numbers.

Exit status: 0 done, 1 nothing found, 2 bad input, 130 interrupted, 141 the
reader of the output has gone.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from fragmenta import __version__
from fragmenta.commands.command_table import COMMANDS
from fragmenta.commands.output import complain, width, write
from fragmenta.commands.parameters import Command, read_plainly
from fragmenta.errors import BadCall, Error

NOTHING, BAD_INPUT, PIPE_CLOSED = 1, 2, 141

Function = TypeVar("Function", bound=Callable[..., None])


class _Loaded(NamedTuple):
    """A command of an imported module."""

    app: typer.Typer
    function: Callable[..., None]
    examples: tuple[str, ...]


_LOADED: dict[str, _Loaded] = {}


class Commands(TyperGroup):
    """The group of commands; a command is loaded when it is called."""

    def __init__(self, **settings: Any) -> None:
        """Fill the group with names and one-line helps, for ``--help``."""
        super().__init__(**settings)
        self.commands = {
            name: TyperCommand(name, help=entry.does, rich_markup_mode=None)
            for name, entry in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Load the command that the first word names."""
        if args and args[0] not in COMMANDS and not ctx.resilient_parsing:
            _check_meant(args)
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and _load(name), rest

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Pass ``-1`` on as a number, not as an option."""
        read_plainly(self.get_params(ctx))
        # A number with a space before it is not an option, and int() ignores it.
        whole = (
            _of_program(args)
            if _is_verbatim(args)
            else [
                f" {a}" if i and re.fullmatch(r"-\d+", a) else a
                for i, a in enumerate(_arranged(args))
            ]
        )
        try:
            return super().parse_args(ctx, whole)
        except Error as error:  # --version answers while arguments are read
            complain(_message(error))
            raise typer.Exit(BAD_INPUT) from None

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an error prints a message and sets the exit status."""
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
            # The interpreter flushes once more on exit, which must not fail again.
            if sys.stdout is not None:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                raise typer.Exit(PIPE_CLOSED) from None
            complain(f"Error: {error.strerror or error}")
            raise typer.Exit(BAD_INPUT) from None


VERBATIM = ("run",)
"""Commands that pass words on to a program as they are."""
FILES = ("launch", "debug", "run", "orders", "same", "invariant", "judge", "serve")
"""Commands whose words are files and their arguments, never instructions."""
PROGRAM = "--program"
"""The option of ``record`` that two dashes before a program stand for."""


def _is_verbatim(args: list[str]) -> bool:
    """Whether words are passed on to a program as they are."""
    first = args[0] if args else ""
    return first in VERBATIM or (first == "record" and "--" in args)


def _of_program(args: list[str]) -> list[str]:
    """``record -- program`` is ``record --program -- program``."""
    if args[0] != "record" or PROGRAM in args[: args.index("--")]:
        return args
    at = args.index("--")
    return [*args[:at], PROGRAM, *args[at:]]


_SAID = {"find": "list", "search": "list"}
"""Functions of the library, and the commands that do the same."""


def _check_meant(args: list[str]) -> None:
    """Suggest a command for a first word that is an instruction or a function."""
    first, *rest = args
    line = [_SAID.get(first, "show"), *(rest if first in _SAID else args)]
    if first not in _SAID:
        words = " ".join(each for each in args if not each.startswith("-"))
        if not import_module("fragmenta.reference.isa.searching").search(words):
            return
    raise BadCall(
        f"there is no command {first}; did you mean: fragmenta {shlex.join(line)}"
    )


def _arranged(args: list[str]) -> list[str]:
    """The arguments as :mod:`fragmenta.commands.shell_words` puts them together.

    It knows the instructions, which help and commands about files do not need.
    """
    if len(args) < 3 or args[0] in FILES:
        return args
    found: list[str] = import_module("fragmenta.commands.shell_words").arranged(args)
    return found


_OPTIONS = {
    "pad=True": "--pad",
    "prune makes": "--prune makes",
    "give idesc=, or build it with fm.tcgen05": "add it, such as 0x08400010, or name "
    "shape and types, as in tcgen05.m128n256k16.f32.f16",
    "give idesc=": "add its descriptor, such as 0x08400010",
}
"""Advice in messages of the library, and the same advice for the command line."""


def _message(error: Error) -> str:
    """The message, wrapped; indented lines are not wrapped."""
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


# Help and errors without frames: rich takes long to import.
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

    INSTRUCTION is a PTX mnemonic.  It may be shortened to some of its
    qualifiers, in their order.  A tcgen05.mma is its mnemonic and its instruction
    descriptor, or its shape and types.  Words as people say them are understood,
    too: fp8, nvfp4, int8, half, sparse, 2:4, hopper, 16x8x16, HMMA.16816.F32.
    """


_FILE = re.compile(r"(?<![\w./=-])(?<!-o )[\w.-]+\.(?:ptx|cu|npy|npz|py|txt)\b")


def own_files(examples: Sequence[str]) -> list[str]:
    """The files of examples that come with no checkout, in their order.

    >>> own_files(["fragmenta launch examples/scale.cu", "fragmenta check k.ptx"])
    ['k.ptx']
    """
    found = [name for each in examples for name in _FILE.findall(each)]
    return list(dict.fromkeys(found))


def command(name: str, *examples: str) -> Callable[[Function], Function]:
    """Make a function the command of this name, with examples in its help.

    Options of a command in :data:`VERBATIM` end at the first word that is none.

    The help opens with the command's line in the table; a docstring adds to it.
    """
    title = "Examples" if len(examples) > 1 else "Example"
    if mine := own_files(examples):
        title += f", where {mine[0]} stands for a file of yours"
    listed = "".join(f"\n  {example}" for example in examples)

    def register(function: Function) -> Function:
        # Typer does not wrap a paragraph that begins with this character.
        more = (inspect.getdoc(function) or "").replace(r"\b", "\b")
        alone = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        alone.command(
            name,
            cls=Command,
            help=f"{COMMANDS[name].does}\n\n{more}",
            epilog=f"\b\n{title}:{listed}",
            context_settings={"allow_interspersed_args": name not in VERBATIM},
        )(function)
        _LOADED[name] = _Loaded(alone, function, examples)
        return function

    return register


def _load(name: str) -> Any:
    """Import the module of a command and return the command."""
    import_module(f"fragmenta.commands.{COMMANDS[name].module}")
    return typer.main.get_command(_LOADED[name].app)


def parsed(name: str, words: list[str]) -> dict[str, Any]:
    """The parameters of a command that words describe, as on the command line.

    >>> parsed("explore", ["--force"])["force"]
    True
    """
    try:
        with _load(name).make_context(name, list(words)) as context:
            return dict(context.params)
    except _USAGE as why:
        raise BadCall(why.format_message()) from None  # type: ignore[attr-defined]
    except typer.Exit:
        raise BadCall(
            f"--help is for the command line: fragmenta {name} --help"
        ) from None


_USAGE: type[Exception] = typer.BadParameter.__bases__[0]
"""A mistake in a command line; where its class is depends on the version of Typer."""


class Declared(NamedTuple):
    """An option of a command, as it is declared."""

    name: str
    value: str
    """What it takes: empty for a flag, CHOICE for one of a few words."""


def declared(name: str) -> list[Declared]:
    """The options of a command.

    >>> [each.name for each in declared("explore")]
    ['--output', '--idesc', '--force']
    """
    found = [each for each in _load(name).params if isinstance(each, TyperOption)]
    hints = get_type_hints(_LOADED[name].function)
    return [
        Declared(
            next(text for text in each.opts if text.startswith("--")),
            _value(each, hints[each.name or ""]),
        )
        for each in found
    ]


def _value(option: TyperOption, hint: object) -> str:
    """What an option takes, as the table of options calls it."""
    if option.is_flag:
        return ""
    if option.metavar:
        return option.metavar
    alone = [hint, *get_args(hint), *(e for a in get_args(hint) for e in get_args(a))]
    return "INTEGER" if int in alone else "CHOICE"


def examples(name: str) -> tuple[str, ...]:
    """The examples in a command's help.

    >>> examples("explore")[0]
    'fragmenta explore'
    """
    _load(name)
    return _LOADED[name].examples
