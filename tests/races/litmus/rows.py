"""A row of the litmus tests: a program, what the model says, and what is reported.

``model`` is the verdict of the PTX memory model on executions in which every loop ends:
``ordered`` (every pair of conflicting accesses is ordered, or both are morally strong)
or ``race``.  ``weak`` says whether the model allows the outcome that the test is named
after; it is empty where no outcome is in question.  ``report`` is the rule that a launch
reports, or nothing.  Where the report does not follow from the verdict, ``differs`` says
why.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.races.litmus.notation import Program

ORDERED, RACE = "ordered", "race"
ALLOWED, FORBIDDEN = "allowed", "forbidden"
GLOBAL, SHARED, MBARRIER = "global-race", "shared-race", "mbarrier"
EARLY, PROXY = "read-before-arrival", "missing-proxy-fence"
OVERWRITTEN = "overwrite-while-read"
MANUAL, MIXED, DARTAGNAN = "PTX ISA", "mixedproxy", "Dartagnan"
"""Where a test was published: the manual of PTX, NVIDIA's mixedproxy, Dat3M."""


class Litmus(NamedTuple):
    """One test."""

    name: str
    topic: str
    program: Program
    model: str
    why: str
    report: str = ""
    weak: str = ""
    published: str = ""
    """Where a test of this name is found."""
    differs: str = ""
    lazy: bool = False
    """Whether the schedule ``lazy`` leaves other results than ``eager``."""


class Topic:
    """The tests of one topic: a call adds one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tests: list[Litmus] = []

    def __call__(
        self,
        name: str,
        at: str,
        text: str,
        model: str,
        why: str,
        *,
        counts: tuple[int, ...] = (),
        report: str | None = None,
        weak: str = "",
        published: str = "",
        differs: str = "",
        lazy: bool = False,
    ) -> None:
        """Add a test; a race of the model is reported as one, if nothing is said."""
        program = Program(text, at, counts)
        said = (GLOBAL if model == RACE else "") if report is None else report
        fields = (said, weak, published, differs, lazy)
        self.tests.append(Litmus(name, self.name, program, model, why, *fields))
