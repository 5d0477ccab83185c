"""The result of a launch: what it executed and printed, and its problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.once import once_property
from fragmenta.errors import KernelHazard, one_of

if TYPE_CHECKING:
    from fragmenta.engine.simt.compiled import Compiled
    from fragmenta.engine.tracing.trace import Stepped
    from fragmenta.engine.units.findings import Finding, Launched
    from fragmenta.launch.orders.answer import Orders
    from fragmenta.ptx.checking.problem import Problem
    from fragmenta.values.counters.report import Counters
    from fragmenta.values.numerics.report import Numerics
    from fragmenta.watch.races.report.history import Recorded

FIDELITY = {
    "ieee": "exact by IEEE 754 or integer arithmetic",
    "h200": "recorded on an H200",
    "published": "by a published model",
    "modelled": "modelled",
}
"""How sure the bits of an instruction are."""


MOST_SHOWN = 5
"""Errors in the message of an exception; its ``problems`` are all of them."""


@dataclass(frozen=True, repr=False)
class Result:
    """What a launch did.

    ``counts`` are executed warp instructions by mnemonic; ``fidelity`` counts them by
    how sure their bits are: see :data:`FIDELITY`.

    >>> Result({"mma": 2, "ret": 1}, {"h200": 2, "ieee": 1}, target="sm_90a")
    <Result: 3 warp instructions with the arithmetic of sm_90a, no problems>
    """

    counts: dict[str, int]
    fidelity: dict[str, int]
    output: str = ""
    """What the kernel printed."""
    seconds: float = 0.0
    target: str = ""
    """The target whose arithmetic was used."""
    written_for: str = ""
    """The target that the PTX was written for."""
    watched: bool = True
    find: Callable[[], list[Problem]] = field(default=list, repr=False, compare=False)
    found: list[tuple[Launched, Finding]] = field(
        default_factory=list, repr=False, compare=False
    )
    """The problems of the run, before they are put into words."""
    recorded: list[Recorded] = field(default_factory=list, repr=False, compare=False)
    """What happened in some clusters: the first, and those with a problem."""
    order: Callable[[], dict[str, Any]] = field(default=dict, repr=False, compare=False)
    """Makes :attr:`schedule`."""
    orders: Orders | None = field(default=None, repr=False, compare=False)
    """What all orders show, if the launch was asked for them."""
    complete: bool = True
    """Whether the launch came to its end, so that its results can be used.

    With ``watch="report"``, a fault stops the launch and is the last of its problems:
    then it is not complete.  What a GPU survives is reported, and the launch goes on.
    """
    fault: str = ""
    """The kind of the fault that stopped it; empty if it is complete."""
    counters: Counters | None = field(default=None, repr=False, compare=False)
    """Exact counts by the names of Nsight Compute, if the launch was asked for them."""
    steps: list[Stepped] = field(default_factory=list, repr=False, compare=False)
    """What each instruction wrote, run by run, if the launch was asked."""
    followed: list[Numerics] = field(default_factory=list, repr=False, compare=False)
    """Where bits were lost in the run with each schedule, if the launch was asked."""

    @property
    def numerics(self) -> Numerics | None:
        """Where bits were lost in the first run, if the launch was asked."""
        return self.followed[0] if self.followed else None

    @once_property
    def schedule(self) -> dict[str, Any]:
        """The schedule of the first run, in plain types for JSON.

        ``launch(schedule=result.schedule)`` repeats the run.  If an order of warps was
        asked for, it has all turns: see :mod:`fragmenta.engine.units.schedule`.
        """
        return self.order()

    @once_property
    def hazards(self) -> list[Problem]:
        """What is wrong with the kernel, as far as this launch shows it."""
        if not self.found:
            return []
        from fragmenta.watch.races.report.messages import reports

        return reports(self.found)

    @once_property
    def problems(self) -> list[Problem]:
        """What is wrong with the kernel, or worth knowing.

        Errors come first, then warnings, then what is worth knowing: first what
        ``kernel.problems`` says about the text, then what this launch showed.
        """
        from fragmenta.ptx.rules import SEVERITIES

        every = [*self.find(), *self.hazards]
        return sorted(every, key=lambda each: SEVERITIES.index(each.severity))

    def raise_errors(self) -> Self:
        """The result; if the launch has errors, a :class:`KernelHazard` is raised."""
        if any(each.severity == "error" for _, each in self.found):
            raise hazard(self.hazards, self)
        return self

    def __repr__(self) -> str:
        return f"<Result: {self}>"

    def __str__(self) -> str:
        """How much was executed, with whose arithmetic, and how many problems."""
        made = f"with the arithmetic of {self.target}"
        if self.written_for not in ("", self.target):
            made += f" (the PTX is for {self.written_for})"
        from fragmenta.ptx.checking.problem import counts

        said = one_of(counts(self.problems), "and") or "no problems"
        if not self.watched:
            said = f"not watched{f', {said}' if self.problems else ''}"
        return f"{self.instructions:,} warp instructions {made}, {said}"

    @property
    def instructions(self) -> int:
        """All executed warp instructions."""
        return sum(self.counts.values())


def hazard(problems: list[Problem], result: Result | None = None) -> KernelHazard:
    """The error for a kernel with problems, one of which is an error."""
    wrong = [each for each in problems if each.severity == "error"]
    first = wrong[0]
    made = KernelHazard(first_errors(wrong), first.rule, problems)
    made.output, made.result = result.output if result else "", result
    made.order = result.order if result else dict
    made.line, made.block = first.line, first.block
    made.source, made.place = str(first.source or ""), first.source
    return made


def first_errors(wrong: list[Problem]) -> str:
    """The first errors of a launch, in the message of an exception."""
    said = [each.paragraph() for each in wrong[:MOST_SHOWN]]
    if len(wrong) > MOST_SHOWN:
        said.append(f"and {len(wrong) - MOST_SHOWN} more errors")
    return "\n\n".join(said)


def counted(
    compiled: Compiled, blocks: NDArray[np.int64]
) -> tuple[dict[str, int], dict[str, int]]:
    """The instructions by mnemonic and by fidelity, from the counts of code blocks."""
    names, numbers, lengths = compiled.numbered
    times = np.repeat(blocks, lengths)
    ran = np.flatnonzero(times)
    chosen, first = np.unique(numbers[ran], return_index=True)
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, numbers[ran], times[ran])
    # What was executed first is first among those that were executed as often.
    order = chosen[np.argsort(first)].tolist()
    counts = Counter({names[each]: int(sums[each]) for each in order})
    sure: Counter[str] = Counter()
    for mnemonic, count in counts.items():
        sure[compiled.fidelity.get(mnemonic, "ieee")] += count
    return dict(counts.most_common()), dict(sure.most_common())


def total(compiled: Compiled, blocks: NDArray[np.int64]) -> int:
    """All executed warp instructions."""
    return int(compiled.numbered[2] @ blocks)
