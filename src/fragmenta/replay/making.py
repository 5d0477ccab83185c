"""Makes the record of a launch from its result."""

from __future__ import annotations

from fragmenta.errors import BadCall, one_of
from fragmenta.launch.result import Result
from fragmenta.replay.problems import problems_of
from fragmenta.replay.reading import made
from fragmenta.replay.recorded import Replay
from fragmenta.tracing.told import Stepped


def replay_of(result: Result, schedule: str | int | None = None) -> Replay:
    """The record of a launch, of the run with a schedule.

    Without one, it is the first run with a problem, or else the first.
    """
    chosen = _chosen(result.steps, schedule)
    found = Replay(*made(chosen))
    problems = problems_of(found, chosen, result.problems, result.found)
    found.problems[:] = problems
    return found


def _chosen(every: list[Stepped], schedule: str | int | None) -> Stepped:
    if not every:
        raise BadCall("the launch was not recorded; launch it with replay=True")
    if schedule is None:
        return next((each for each in every if each.told.wrong), every[0])
    for each in every:
        if each.schedule == str(schedule):
            return each
    known = one_of([each.schedule for each in every], "and")
    raise BadCall(f"the schedules of the launch are {known}; given {schedule!r}")
