"""Compiles and launches the planted kernels, and finds the lines that rows quote."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fragmenta import ptx
from fragmenta.cuda.tools import compiler
from tests.numerics.planted.cases import CASES, Arguments, Case, Quiet

SOURCES = Path(__file__).parent / "sources"
HEADER = "planted.cuh"


class Line(NamedTuple):
    """A line of a source; PTX that is written by hand has no name."""

    file: str
    number: int


class Text(NamedTuple):
    """Names a PTX text."""

    source: str
    wrong: bool = False
    target: str = "sm_90a"
    entry: str = ""
    """The kernel, if each has a text of its own."""


QUIET = Text("quiet")


@cache
def text(source: str, wrong: bool, target: str = "sm_90a", entry: str = "") -> str:
    """The PTX of a source: compiled, written by hand, or kept from Triton."""
    if source == "triton":
        return (SOURCES / f"triton_{entry}.ptx").read_text("utf-8")
    if source.endswith(".ptx"):
        return (SOURCES / source).read_text("utf-8")
    path = SOURCES / f"{source}.cu"
    options = f"-DBUG={int(wrong)}", "-lineinfo"
    return compiler.to_ptx(path.read_text(), target, *options, path=str(path))


@cache
def loaded(of: Text) -> Any:
    """The same, read."""
    return ptx.parse(text(*of), of.source)


def text_of(case: Case, wrong: bool) -> Text:
    """Where the kernel of a case is, or of its twin."""
    if case.source == "triton":
        return Text(case.source, False, case.target, entry_of(case, wrong))
    return Text(case.source, wrong and "." not in case.source, case.target)


def entry_of(case: Case, wrong: bool) -> str:
    return (case.wrong if wrong else case.right) or case.name


def texts() -> list[Text]:
    """All of them."""
    both = (text_of(case, wrong) for case in CASES for wrong in (True, False))
    return [*dict.fromkeys(both), QUIET]


def launched(
    case: Case | Quiet, wrong: bool = False, **options: Any
) -> tuple[Any, Arguments, Arguments]:
    """The result of a launch, and the arguments before and after it."""
    options.setdefault("watch", False)
    if isinstance(case, Quiet):
        before, after = case.arguments(), case.arguments()
        kernel = loaded(QUIET).kernels[case.name]
        passed = [each if _array(each) else _scalar(each) for each in after]
        return kernel.launch(1, 32, passed, **options), before, after
    before, after = case.arguments(wrong), case.arguments(wrong)
    kernel = loaded(text_of(case, wrong)).kernels[entry_of(case, wrong)]
    passed = [each if _array(each) else _scalar(each) for each in after]
    if case.source == "triton":
        kept = text(*text_of(case, wrong))
        options["shared"] = int(re.findall(r"// (\d+) bytes", kept)[0])
        passed += [bytes(8), bytes(8)]
    result = kernel.launch(case.grid, case.block, passed, **options)
    return result, before, after


def _array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _scalar(value: Any) -> bytes:
    kind = np.int32 if isinstance(value, int) else np.float32
    return kind(value).tobytes()


def lines(case: Case, quoted: str) -> list[Line]:
    """Where a line of the source, or of its header, stands."""
    name = case.source if "." in case.source else f"{case.source}.cu"
    name = "triton_kernels.py" if case.source == "triton" else name
    found = [
        Line("" if file.endswith(".ptx") else file, number)
        for file in (name, HEADER)
        for number, line in enumerate((SOURCES / file).read_text().splitlines(), 1)
        if line.strip().startswith(quoted)
    ]
    return _within(case, name, found) if len(found) > 1 else found


def _within(case: Case, name: str, found: list[Line]) -> list[Line]:
    """Those of them that are in the kernel, if several have the same words."""
    entry = case.wrong or case.name
    starts = re.compile(r"(?:KERNEL|\.visible \.entry|def) (\w+)")
    kept = []
    for line in found:
        above = (SOURCES / (line.file or name)).read_text().splitlines()[: line.number]
        names = [m[1] for each in above if (m := starts.match(each))]
        if line.file == HEADER or names[-1:] == [entry]:
            kept.append(line)
    return kept


def wanted(case: Case) -> set[tuple[str, Line]]:
    """All findings that would name the bug."""
    return {
        (kind, line)
        for found in case.found
        for quoted in found.lines
        for line in lines(case, quoted)
        for kind in found.kinds
    }


def located(case: Case, found: Iterable[tuple[str, Line]]) -> bool:
    """Whether one of the findings names the bug."""
    return bool(wanted(case) & {*found})


def in_table(case: Case) -> set[Line]:
    """The lines of the wrong kernel that its PTX knows; all of them if it is PTX."""
    entry = case.wrong or case.name
    if case.source.endswith(".ptx"):
        return {line for _, line in wanted(case)}
    kept = text(*text_of(case, True))
    names = dict(re.findall(r'\.file\s+(\d+)\s+"(?:[^"]*/)?([^"]+)"', kept))
    body = kept[kept.index(f".entry {entry}(") :].partition("\n.visible .entry")[0]
    places = re.findall(r"(?:\.loc\s+|inlined_at )(\d+) (\d+)", body)
    return {Line(names[file], int(number)) for file, number in places}


def named(name: str) -> Case:
    """A case by its name."""
    return next(case for case in CASES if case.name == name)
