"""What every rule of the check needs: the module, targets, and what was reported."""

from __future__ import annotations

from dataclasses import field, replace

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.ptx.checking.places import LineSpan, SpanFinder
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.module import Function, Instruction, Module
from fragmenta.ptx.rules import Rule


@dataclass
class Context:
    """A module, or one function of it, and what it is checked for."""

    module: Module
    places: SpanFinder
    targets: tuple[str, ...]
    """The targets that have to have every instruction."""
    version: tuple[int, int] | None
    """The PTX version of the file; None for an instruction without a file."""
    declared: bool = True
    """Whether registers and names are declared; not so in a single instruction."""
    function: Function | None = None
    said: set[object] = field(default_factory=set)
    """What was reported in this function, and is not reported again."""

    def within(self, function: Function) -> Context:
        """The same for one function."""
        return replace(self, function=function, said=set())

    def first(self, remark: object) -> bool:
        """Whether something is reported for the first time in this function."""
        known = remark in self.said
        self.said.add(remark)
        return not known

    def problem(
        self,
        of: Instruction,
        rule: Rule,
        message: str,
        hint: str = "",
        place: LineSpan | None = None,
        severity: str = "",
    ) -> Problem:
        """A problem of an instruction: of its mnemonic, or at a place in it."""
        made = self.problem_at(
            place or self.places.whole(of), rule, message, hint, severity
        )
        return replace(made, source=of.source)

    def problem_at(
        self,
        place: LineSpan,
        rule: Rule,
        message: str,
        hint: str = "",
        severity: str = "",
    ) -> Problem:
        """A problem at a place of the text."""
        return Problem(
            rule.name,
            severity or rule.severity,
            place.line,
            place.column,
            self.places.line(place.line),
            message,
            hint,
            self.function.name if self.function else "",
            length=place.length,
        )
