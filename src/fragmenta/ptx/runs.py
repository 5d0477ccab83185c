"""Does a kernel give the same bits whenever its asynchronous work is done?

A launch with several schedules is run once with each, on the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fragmenta.arrays.checks import is_among
from fragmenta.errors import Error, KernelFault, LimitReached
from fragmenta.ptx.asynchronous.schedule import EAGER, Schedule
from fragmenta.ptx.checking.problem import RULES
from fragmenta.ptx.launching import Launch
from fragmenta.ptx.result import told
from fragmenta.ptx.watching.findings import Found, Problems

FAULTS = {"metadata": "illegal-metadata", "barrier": "mbarrier"}
"""Faults of single instructions that are a rule by another name."""


def check_reporting(problems: Any) -> None:
    """Refuse what does not say how problems are told."""
    if not is_among(problems, ("raise", "report")):
        raise Error(f"problems is 'raise' or 'report'; given {problems!r}")


def check_schedules(schedule: Any, schedules: Any, client: Any) -> list[str | int]:
    """The schedules of a launch, at least one."""
    if schedules is None:
        chosen = [schedule]
    else:
        if not is_among(schedule, (EAGER,)):
            raise Error("give schedule or schedules, not both")
        if not isinstance(schedules, Iterable) or isinstance(
            schedules, str | bytes | np.ndarray
        ):
            raise Error(f"schedules is a list of schedules; given {schedules!r}")
        chosen = list(schedules)
    if not chosen:
        raise Error("schedules needs at least one schedule; given none")
    for each in chosen:
        Schedule(each)  # refuses what is none
    if client is not None and chosen != [EAGER]:
        raise Error("a launch with client= has the schedule 'eager' only")
    return chosen


class Runs:
    """The runs of one launch, with one schedule each."""

    def __init__(
        self,
        prepare: Callable[[str | int], Launch],
        run: Callable[[Launch], str],
        schedules: list[str | int],
        reports: bool,
    ) -> None:
        self._prepare, self._run, self._schedules = prepare, run, schedules
        self._reports = reports
        self.found: list[tuple[Launch, Found]] = []
        """What was found, with the first run in which it was."""
        self.recorded: list[Any] = []
        """What happened in some clusters of each run."""
        self.launch: Launch

    def all(self) -> str:
        """Run with every schedule; what the first run printed.

        Afterwards the memory is as the first run left it.
        """
        self.launch = self._prepare(self._schedules[0])
        before = _copies(self.launch) if len(self._schedules) > 1 else []
        output = self._one(self.launch)
        after = _copies(self.launch) if before else []
        for each in self._schedules[1:]:
            _restore(self.launch, before)
            other = self._prepare(each)
            self._one(other)
            self._compare(other, each, after)
        if before:
            _restore(self.launch, after)
        return output

    def _one(self, launch: Launch) -> str:
        output = ""
        try:
            output = self._run(launch)
        except LimitReached as fault:
            self._found_before(launch, fault)
            raise
        except KernelFault as fault:
            if not self._reports or launch.machine is None:
                self._found_before(launch, fault)
                raise
            self._fatal(launch, fault)
        self._gather(launch)
        return output

    def _found_before(self, launch: Launch, fault: KernelFault) -> None:
        """Tell with a fault what was wrong before: it may be the cause."""
        if launch.machine is None or fault.problems:
            return
        before = [each for each in launch.machine.problems if each.severity == "error"]
        if before:
            from fragmenta.ptx.watching.telling import tell_all

            fault.problems = tell_all((launch, each) for each in before)
            fault.before = told(fault.problems)

    def _fatal(self, launch: Launch, fault: KernelFault) -> None:
        """A run that could not go on is a problem like the others."""
        block = fault.block or (0, 0, 0)
        x, y, _ = launch.shape.grid
        number = block[0] + x * (block[1] + y * block[2])
        rule = FAULTS.get(fault.kind, fault.kind)
        rule = rule if rule in RULES else "fault"
        made = Found(rule, "error", -1, str(fault), number, 0, 0)
        made.more["line"], made.more["source"] = fault.line, fault.source
        assert launch.machine is not None
        launch.machine.problems.put(made)

    def _gather(self, launch: Launch) -> None:
        if launch.machine is None:
            return
        if launch.machine.watching is not None:
            self.recorded += launch.machine.watching.recorded()
        known = {_key(each) for _, each in self.found}
        for each in launch.machine.problems:
            if _key(each) not in known:
                self.found.append((launch, each))

    def _compare(self, launch: Launch, schedule: str | int, after: list[Any]) -> None:
        """Say which array differs from the first run, if one does."""
        first = self._schedules[0]
        for segment, wanted in zip(launch.places, after, strict=True):
            different = np.flatnonzero(segment.data != wanted)
            if not different.size:
                continue
            message = (
                f"the schedules {first!r} and {schedule!r} give different bits: "
                f"{different.size:,} bytes of {segment.name} differ, the first at byte "
                f"{int(different[0])}"
            )
            made = Found("schedule", "error", -1, message, 0, 0, 0)
            problems = launch.machine.problems if launch.machine else Problems()
            problems.put(made)
            if _key(made) not in {_key(each) for _, each in self.found}:
                self.found.append((launch, made))


def _key(found: Found) -> tuple[Any, ...]:
    return found.rule, found.site, found.other


def _copies(launch: Launch) -> list[Any]:
    return [each.data.copy() for each in launch.places]


def _restore(launch: Launch, memory: list[Any]) -> None:
    for segment, data in zip(launch.places, memory, strict=True):
        if segment.writable:
            segment.data[:] = data
    launch.arguments.write_back()
