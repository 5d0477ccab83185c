"""A problem of a PTX text or a launch, and the ways to show it."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import KernelError
from fragmenta.ptx.module import Location
from fragmenta.ptx.rules import SEVERITIES


def wrapped(text: str, width: int, indent: str) -> str:
    """A text in lines that fit; those after the first are indented by so much more."""
    own = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(
        text.strip(),
        width,
        initial_indent=own,
        subsequent_indent=own + indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _place(source: Location | None) -> dict[str, Any]:
    """The user's line of the source; all calls that it is in, the kernel's first."""
    frames = source.frames if source else ()
    named = str(source.own) if source else None
    return {"source": named, "frames": [str(each) for each in frames]}


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that a problem involves."""

    line: int
    text: str
    """The line of the PTX text."""
    message: str
    """How it is involved."""
    source: Location | None = None

    def to_dict(self) -> dict[str, Any]:
        """The place as plain values, for JSON."""
        return {
            "line": self.line,
            "text": self.text,
            "message": self.message,
            **_place(self.source),
        }


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, or worth knowing, at one place of a PTX text."""

    rule: str
    """The name of a row of :mod:`fragmenta.ptx.rules`."""
    severity: str
    """``error``, ``warning`` or ``info``."""
    line: int
    column: int
    """Both from 1."""
    text: str
    """The line of the PTX text."""
    message: str
    hint: str = ""
    function: str = ""
    source: Location | None = None
    """The place in the program that the PTX was compiled from."""
    length: int = 1
    """How many characters of the line it is about."""
    count: int = 1
    """How often a launch showed it."""
    block: tuple[int, int, int] | None = None
    """The first block that showed it."""
    related: tuple[Related, ...] = ()
    """The other places that it involves."""

    def to_dict(self) -> dict[str, Any]:
        """The problem as plain values, for JSON."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        found |= _place(self.source)
        found["block"] = None if self.block is None else list(self.block)
        found["related"] = [each.to_dict() for each in self.related]
        return found

    @property
    def story(self) -> str:
        """The rule, what happened, and what would repair it."""
        named = self.message.startswith(f"{self.rule}: ")
        text = self.message if named else f"{self.rule}: {self.message}"
        if not self.hint:
            return text
        # A message of several lines ends with lines of code.
        return f"{text}\n{self.hint}" if "\n" in text else f"{text}. {self.hint}"

    def paragraph(self, width: int = 80) -> str:
        """The story in lines that fit, below its rule and its place."""
        where = self.source.words if self.source else f"PTX line {self.line}"
        lines = [*self.message.removeprefix(f"{self.rule}: ").split("\n"), self.hint]
        said = [wrapped(f"  {each}", width, "") for each in lines if each]
        return "\n".join([wrapped(f"{self.rule}, {where}", width, "  "), *said])

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.severity}: {self.message}"


def problems_of(error: KernelError) -> list[Problem]:
    """The problems that an error of a launch brings with it.

    >>> problems_of(KernelError("stopped"))
    []
    """
    return [each for each in error.problems if isinstance(each, Problem)]


def counts(problems: Iterable[Problem]) -> list[str]:
    """How many problems there are of each severity.

    >>> counts([Problem("leak", "error", 1, 1, "", "")] * 2)
    ['2 errors']
    """
    found = Counter(problem.severity for problem in problems)
    return [
        f"{found[each]} {each}{'s' * (found[each] > 1)}"
        for each in SEVERITIES
        if found[each]
    ]
