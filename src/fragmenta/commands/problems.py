"""Problems of PTX files and launches as text and as SARIF."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from urllib.parse import quote

from fragmenta import __version__
from fragmenta.commands.files import check_output, save_text
from fragmenta.commands.output import (
    emit_json,
    is_terminal,
    json_text,
    printable,
    width,
)
from fragmenta.cuda.tools.kinds import is_source
from fragmenta.errors import BadCall, KernelError, KernelHazard
from fragmenta.launch.result import Result
from fragmenta.ptx.checking.problem import Problem, Related, problems_of, wrapped
from fragmenta.ptx.languages import told_from
from fragmenta.ptx.module import INSTALLED, Location, demangled
from fragmenta.ptx.rules import ERROR, RULES
from fragmenta.ptx.rules import of_fault as of_kind

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

# ── for people ──────────────────────────────────────────────────────────────


def problem_text(
    file: str, problem: Problem, with_rule: bool = False, number: int = 0
) -> str:
    """The place and the message as compilers write them, then the line, underlined.

    With a number, that comes first.
    """
    if problem.source is not None and is_source(file):
        file, problem = _in_source(problem, problem.source)
    where = f"{file}:{problem.line}:{problem.column}: " if problem.line else f"{file}: "
    where = f"{number} {where}" if number else where
    message = problem.message
    if with_rule and not message.startswith(f"{problem.rule}: "):
        message = f"{problem.rule}: {message}"
    first, *others = f"{where}{problem.severity}: {message}".split("\n")
    hint, source = problem.hint, problem.source
    parts = [
        wrapped(first, width(), "  "),
        *(wrapped(each, width(), "  ") for each in others),
        *(_underlined(problem) if problem.text and not others else ()),
        *((wrapped(f"  hint: {hint}", width(), "  "),) if hint else ()),
        *((wrapped(f"  from {source.words}", width(), "  "),) if source else ()),
    ]
    return printable("\n".join(parts))


def numbered(
    file: str, every: Sequence[Problem], shown: Sequence[Problem], always: bool
) -> list[str]:
    """The texts of problems; on a terminal they have numbers, as in the picture."""
    places = {id(each): place for place, each in enumerate(every, 1)}
    wanted = always or is_terminal()
    return [
        problem_text(file, each, True, places[id(each)] if wanted else 0)
        for each in shown
    ]


def _in_source(problem: Problem, source: Location) -> tuple[str, Problem]:
    """The problem of a compiled kernel at its line in the source, and that file."""
    place = _nearest_own(source)
    return place.file, replace(
        problem,
        line=place.line,
        column=max(1, place.column),
        text=linecache.getline(place.file, place.line).rstrip(),
        length=1,
        source=source if source.caller else None,
    )


def _nearest_own(source: Location) -> Location:
    """The line that the user wrote, not one of an installed header that it calls."""
    return next((e for e in reversed(source.frames) if _is_own(e)), source)


def fault_place(file: str, fault: KernelError) -> str:
    """The file and the line of a fault: of the source, if it was compiled."""
    place = fault.place if isinstance(fault.place, Location) else None
    if place is not None and is_source(file):
        return str(_nearest_own(place))
    return f"{file}:{fault.line}" if fault.line else file


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


def of_fault(fault: KernelError) -> list[Problem]:
    """The problems of a kernel that could not go on, or that ended with errors."""
    if isinstance(fault, KernelHazard):
        return problems_of(fault)
    last = Problem(
        of_kind(fault.kind).name,
        ERROR,
        fault.line,
        1,
        "",
        fault.message,
        fault_hint(fault),
        source=fault.place if isinstance(fault.place, Location) else None,
        block=fault.block,
    )
    return [*problems_of(fault), last]


def fault_hint(fault: KernelError) -> str:
    """What repairs a fault, in the language of its line; empty if that is not known."""
    hint = fault.hint or of_kind(fault.kind).fatal
    place = fault.place
    return (
        told_from("", place.file).spoken(hint) if isinstance(place, Location) else hint
    )


# ── for programs ────────────────────────────────────────────────────────────


def result_fields(result: Result) -> dict[str, object]:
    """What a launch did, as JSON."""
    return {
        "complete": result.complete,
        "instructions": result.instructions,
        "seconds": round(result.seconds, 6),
        "fidelity": result.fidelity,
        "counts": result.counts,
        "problems": [each.to_dict() for each in result.problems],
        **({} if result.orders is None else {"orders": result.orders.to_dict()}),
        "output": result.output,
    }


def fault_fields(fault: KernelError) -> dict[str, object]:
    """Why a kernel could not go on, or what is wrong with it, as JSON."""
    return {
        "fault": fault.kind,
        "message": str(fault),
        "line": fault.line,
        "source": fault.source,
        "block": fault.block,
        "thread": fault.thread,
        "output": fault.output,
        "problems": [each.to_dict() for each in of_fault(fault)],
    }


def sarif(found: Iterable[tuple[str | None, Problem]]) -> dict[str, object]:
    """The problems of files as SARIF 2.1.0."""
    return sarif_log([sarif_result(*each) for each in found])


def sarif_log(results: list[dict[str, object]]) -> dict[str, object]:
    """A document of SARIF 2.1.0 with these results."""
    driver = {
        "name": "fragmenta",
        "version": __version__,
        "rules": [
            {"id": rule, "shortDescription": {"text": row.meaning}}
            for rule, row in RULES.items()
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def sarif_result(file: str | None, problem: Problem) -> dict[str, object]:
    """A problem of a file as a result of SARIF; None for PTX that is in no file."""
    return {
        "ruleId": problem.rule,
        "ruleIndex": list(RULES).index(problem.rule),
        "level": _LEVELS[problem.severity],
        "message": {"text": _message(problem)},
        **_locations(file, problem),
    }


def check_sarif(path: str | None, force: bool, as_json: bool) -> None:
    """Refuse a SARIF file that cannot be written, before anything is computed."""
    if path == "-" and as_json:
        raise BadCall("--json and --sarif - cannot both be printed; name a file")
    if path not in (None, "-"):
        check_output(path, force, option="--sarif")


def write_sarif(
    path: str | None, found: Iterable[tuple[str | None, Problem]], force: bool
) -> None:
    """Write SARIF to the file of ``--sarif``, or print it if that is ``-``."""
    if path == "-":
        emit_json(sarif(found))
    elif path is not None:
        save_text(path, json_text(sarif(found)) + "\n", force)


def _message(problem: Problem) -> str:
    return f"{problem.message} ({problem.hint})" if problem.hint else problem.message


def _file(path: str) -> dict[str, str]:
    """A file as an address: from here if it is below, else the whole path."""
    if os.path.isabs(path):
        below = os.path.relpath(path)
        if below.startswith(os.pardir):
            return {"uri": f"file://{quote(path.replace(os.sep, '/'))}"}
        path = below
    return {"uri": quote(path.replace(os.sep, "/"))}


def _locations(file: str | None, problem: Problem) -> dict[str, object]:
    """The location of a problem for code hosts, and its related locations.

    That is a line of the program that the PTX was compiled from, if there is one that
    the user can change: the outermost, which is the kernel's own.  What it calls, the
    PTX, and the other places of the problem are related.
    """
    chain = _chain(problem.source, "compiled from here")
    own = next((e for e in chain if _is_own(e[0])), None)
    if file is None and own is None:
        own = next(iter(chain), None)
    ptx = _location(file or f"{problem.function}.ptx", problem)
    found = [_source(*each) for each in chain if each is not own]
    # Whether there is a file with the PTX.
    on_disk = file is not None and (own is None or not is_source(file))
    for each in problem.related:
        if on_disk and file is not None:
            found.append(_place(file, each))
        found += [_source(*e) for e in _chain(each.source, each.message)]
    if own is None:
        return {"locations": [ptx], **({"relatedLocations": found} if found else {})}
    if on_disk:
        found.insert(0, ptx | {"message": {"text": "the instruction in the PTX"}})
    first = {
        "physicalLocation": _source(*own)["physicalLocation"],
        "logicalLocations": ptx["logicalLocations"],
    }
    return {"locations": [first], "relatedLocations": found}


def _is_own(source: Location) -> bool:
    """Whether a line is in a file of the user, not in an installed package."""
    whole = os.path.abspath(source.file).replace(os.sep, "/")
    return os.path.isfile(whole) and not INSTALLED.search(whole)


def _chain(source: Location | None, message: str) -> list[tuple[Location, str]]:
    """The calls that a line is in, the kernel's own first, and the line itself."""
    frames = source.frames if source else ()
    return [(e, message if e is source else "called here") for e in frames]


def _location(file: str, problem: Problem) -> dict[str, object]:
    region = {
        "startLine": max(1, problem.line),
        "startColumn": problem.column,
        "endColumn": problem.column + problem.length,
        "snippet": {"text": problem.text},
    }
    place = {"artifactLocation": _file(file), "region": region}
    named = [
        {"name": demangled(each), "kind": "function"}
        | ({"decoratedName": each} if demangled(each) != each else {})
        for each in (problem.function,)
        if each
    ]
    return {"physicalLocation": place, "logicalLocations": named}


def _place(file: str, related: Related) -> dict[str, object]:
    region = {"startLine": max(1, related.line), "snippet": {"text": related.text}}
    place = {"artifactLocation": _file(file), "region": region}
    return {"physicalLocation": place, "message": {"text": related.message}}


def _source(source: Location, message: str) -> dict[str, object]:
    region = {"startLine": max(1, source.line), "startColumn": max(1, source.column)}
    place = {"artifactLocation": _file(source.file), "region": region}
    return {"physicalLocation": place, "message": {"text": message}}
