"""The command ``check``: problems of kernels in files, without running them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fragmenta.commands.app import NOTHING, command
from fragmenta.commands.files import Force, SarifFile, complete_file
from fragmenta.commands.launch_options import Flags, split_flags
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import complain, emit_json, write
from fragmenta.commands.problems import check_sarif, problem_text, write_sarif
from fragmenta.commands.targets import complete_target, target_of
from fragmenta.cuda.tools import fatbin
from fragmenta.cuda.tools.kinds import NO_KERNEL, is_source
from fragmenta.ptx.checking.mnemonics import is_opcode
from fragmenta.ptx.checking.problem import Problem, counts
from fragmenta.ptx.checking.texts import check_line, check_text
from fragmenta.ptx.rules import ERROR


@command(
    "check",
    "fragmenta check kernel.ptx",
    "fragmenta check kernel.ptx --target sm_90a --sarif kernel.sarif",
    "fragmenta check examples/scale.cu --flags -DNDEBUG",
    "fragmenta check 'add.s32 %r1, %r2, 5;'",
)
def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="PTX, CUDA C++ (.cu), cubins, fat binaries and programs; - for PTX "
            "from the standard input; or one instruction.",
            autocompletion=complete_file,
            show_default=False,
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="Check whether this target can run it, such as sm_90 or hopper.",
            autocompletion=complete_target,
        ),
    ] = None,
    flags: Flags = None,
    as_json: AsJson = False,
    sarif_file: SarifFile = None,
    force: Force = False,
) -> None:
    """The exit status is 1 if there is an error."""
    check_sarif(sarif_file, force, as_json)
    where = target_of(target)
    found = [
        (place, problem)
        for file in files
        for place, problem in _problems(file, where, split_flags(flags))
    ]
    write_sarif(sarif_file, found, force)
    if as_json:
        emit_json([{"file": file, **problem.to_dict()} for file, problem in found])
    elif sarif_file != "-":
        for file, problem in found:
            _print(file, problem)
        write(_summary(files, [problem for _, problem in found]))
    if any(problem.severity == ERROR for _, problem in found):
        raise typer.Exit(NOTHING)


def _problems(
    file: str, target: str | None, options: Sequence[str]
) -> list[tuple[str, Problem]]:
    """The problems of a file, each with what it is in."""
    if file == "-":
        data = sys.stdin.buffer.read()
    elif _is_instruction(file):
        return [(file, each) for each in check_line(file, target)]
    else:
        data = Path(file).read_bytes()
    if file != "-" and (fatbin.is_binary(data) or is_source(file, data)):
        return _compiled(file, target, options)
    text = data.decode("utf-8-sig", errors="replace")
    return [(file, each) for each in check_text(text, target, file)]


def _compiled(
    file: str, target: str | None, options: Sequence[str]
) -> list[tuple[str, Problem]]:
    """The problems of the PTX of a source, or in a binary."""
    # PTX text is checked without what compiles and loads kernels.
    from fragmenta.commands.launch_arguments import read_files

    read = read_files([file], target, options).files[0]
    if not read.kernels(target):
        complain(f"{file}: note: it has no kernel; {NO_KERNEL}")
    return [
        (loaded.module.name or file, each)
        for loaded in read.modules
        for each in loaded.checked(target)
    ]


def _is_instruction(text: str) -> bool:
    """Whether an argument names no file and is meant as an instruction."""
    if os.path.exists(text):
        return False
    words = text.strip().removeprefix("@").split()
    if text.strip().startswith("@"):
        words = words[1:]
    return bool(words) and is_opcode(words[0].partition(".")[0].rstrip(";"))


def _print(file: str, problem: Problem) -> None:
    write(problem_text("instruction" if _is_instruction(file) else file, problem))


def _summary(files: list[str], problems: list[Problem]) -> str:
    what = "file" if all(f == "-" or os.path.exists(f) for f in files) else "text"
    checked = f"{len(files)} {what}{'s' * (len(files) > 1)} checked"
    return f"{checked}: {', '.join(counts(problems)) or 'no problems'}"
