"""Is a PTX file right?"""

from __future__ import annotations

import os
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from fragmenta import __version__
from fragmenta.commands.app import NOTHING, command
from fragmenta.commands.arguments import AsJson, complete_target
from fragmenta.commands.files import complete_file
from fragmenta.commands.output import emit_json, printable, width, write
from fragmenta.errors import Error
from fragmenta.ptx.checking import Problem, check_line, check_text
from fragmenta.ptx.checking.mnemonics import is_opcode
from fragmenta.ptx.checking.problem import ERROR, RULES, SEVERITIES

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


@command(
    "check",
    "fragmenta check kernel.ptx",
    "fragmenta check kernel.ptx --target sm_90a --sarif",
    "fragmenta check 'add.s32 %r1, %r2, 5;'",
)
def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="PTX files, - for the standard input, or one instruction.",
            autocompletion=complete_file,
            show_default=False,
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="Check whether this target can run it, too.",
            autocompletion=complete_target,
        ),
    ] = None,
    as_json: AsJson = False,
    as_sarif: Annotated[
        bool, typer.Option("--sarif", help="Print SARIF 2.1.0, for editors and CI.")
    ] = False,
) -> None:
    """The exit status is 1 if there is an error."""
    if as_json and as_sarif:
        raise Error("--json and --sarif cannot both be printed")
    found = [(file, problem) for file in files for problem in _problems(file, target)]
    if as_json:
        emit_json([{"file": file, **problem.to_dict()} for file, problem in found])
    elif as_sarif:
        emit_json(_sarif(found))
    else:
        for file, problem in found:
            _print(file, problem)
        write(_summary(files, [problem for _, problem in found]))
    if any(problem.severity == ERROR for _, problem in found):
        raise typer.Exit(NOTHING)


def _problems(file: str, target: str | None) -> list[Problem]:
    if file == "-":
        data = sys.stdin.buffer.read()
    elif os.path.exists(file) or not _is_instruction(file):
        data = Path(file).read_bytes()
    else:
        return check_line(file, target)
    return check_text(data.decode("utf-8-sig", errors="replace"), target, file)


def _is_instruction(text: str) -> bool:
    """Whether an argument that names no file is meant as an instruction."""
    words = text.strip().removeprefix("@").split()
    if text.strip().startswith("@"):
        words = words[1:]
    return bool(words) and is_opcode(words[0].partition(".")[0].rstrip(";"))


# ── for people ──────────────────────────────────────────────────────────────


def _print(file: str, problem: Problem) -> None:
    """The place and the message as compilers write them, then the line, underlined."""
    if file != "-" and not os.path.exists(file):
        file = "instruction"
    where = f"{file}:{problem.line}:{problem.column}: "
    text = "\n".join(
        (
            _wrapped(f"{where}{problem.severity}: {problem.message}", "  "),
            *_underlined(problem),
            *((_wrapped(f"  hint: {problem.hint}", "    "),) if problem.hint else ()),
            *((f"  from {problem.source}",) if problem.source else ()),
        )
    )
    write(printable(text))


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text,
        width(),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        initial_indent="",
        replace_whitespace=False,
    )


def _underlined(problem: Problem) -> tuple[str, str]:
    """The line of the text, or the part of it around the problem, and a mark below."""
    room = width() - 4
    line = problem.text.replace("\t", " ")
    indent = len(line) - len(line.lstrip())
    start, length = max(0, problem.column - 1 - indent), problem.length
    line = line[indent:]
    if len(line) > room:
        cut = max(0, min(start - room // 3, len(line) - room))
        head, tail = ("…" if cut else ""), ("…" if cut + room < len(line) else "")
        line = head + line[cut + len(head) : cut + room - len(tail)] + tail
        start -= cut
    length = max(1, min(length, room - start))
    return f"    {line}", f"    {' ' * start}^{'~' * (length - 1)}"


def _summary(files: list[str], problems: list[Problem]) -> str:
    counts = Counter(problem.severity for problem in problems)
    said = [
        f"{counts[each]} {each}{'s' * (counts[each] > 1)}"
        for each in SEVERITIES
        if counts[each]
    ]
    what = "file" if all(f == "-" or os.path.exists(f) for f in files) else "text"
    checked = f"{len(files)} {what}{'s' * (len(files) > 1)} checked"
    return f"{checked}: {', '.join(said) or 'no problems'}"


# ── for programs ────────────────────────────────────────────────────────────


def _sarif(found: list[tuple[str, Problem]]) -> dict[str, Any]:
    """The problems as SARIF 2.1.0."""
    rules = list(RULES)
    driver = {
        "name": "fragmenta",
        "version": __version__,
        "rules": [
            {"id": rule, "shortDescription": {"text": text}}
            for rule, text in RULES.items()
        ],
    }
    results = [
        {
            "ruleId": problem.rule,
            "ruleIndex": rules.index(problem.rule),
            "level": _LEVELS[problem.severity],
            "message": {"text": _told(problem)},
            "locations": [_location(file, problem)],
        }
        for file, problem in found
    ]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _told(problem: Problem) -> str:
    return f"{problem.message} ({problem.hint})" if problem.hint else problem.message


def _location(file: str, problem: Problem) -> dict[str, Any]:
    place = {
        "artifactLocation": {"uri": quote(file.replace(os.sep, "/"))},
        "region": {
            "startLine": problem.line,
            "startColumn": problem.column,
            "endColumn": problem.column + problem.length,
            "snippet": {"text": problem.text},
        },
    }
    named = [{"name": problem.function, "kind": "function"}] if problem.function else []
    return {"physicalLocation": place, "logicalLocations": named}
