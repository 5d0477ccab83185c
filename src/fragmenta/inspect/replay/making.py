"""Makes the record of a launch from its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.engine.tracing.gathering import gather
from fragmenta.engine.tracing.trace import Stepped, Trace, Window
from fragmenta.errors import BadCall, one_of
from fragmenta.inspect.replay.left_out import joined
from fragmenta.inspect.replay.parts import MOST_RUNS, Head, Row
from fragmenta.inspect.replay.problems import problems_of
from fragmenta.inspect.replay.reading import made
from fragmenta.inspect.replay.recorded import Replay
from fragmenta.inspect.replay.trimming import trimmed
from fragmenta.launch.result import Result

if TYPE_CHECKING:
    from fragmenta.values.numerics.report import Numerics

BEHIND = 20
"""One of so many steps is one after a problem, if not all steps are kept."""


def replay_of(result: Result, schedule: str | int | None = None) -> Replay:
    """The record of a launch, of the run with a schedule.

    Without one, it is the first run with a problem, or else the first, and those with
    the other schedules are beside it.
    """
    chosen = _chosen(result.steps, schedule)
    made = _made(result, chosen)
    if schedule is not None:
        return made
    for each in result.steps:
        if each.schedule in [run.name for run in made.runs]:
            continue
        if len(made.runs) == MOST_RUNS:
            left = f"only {MOST_RUNS} of {len(result.steps)} schedules are here"
            made.left_out = made.head["left_out"] = joined(made.left_out, left)
            break
        made = made.beside(_made(result, each))
    return made


def _made(result: Result, chosen: Stepped) -> Replay:
    """The record of one run."""
    gather(chosen.told)
    found = Replay(*made(chosen))
    others = [each for of in result.steps if of is not chosen for each in of.found]
    problems = problems_of(found, chosen, result.problems, result.found, others)
    found.problems[:] = problems
    number = next(n for n, each in enumerate(result.steps) if each is chosen)
    if number < len(result.followed):
        first = len(result.problems) + 1
        found = _with_errors(found, result.followed[number], first, chosen.told)
    return _in_window(found, chosen.told.window)


def _with_errors(found: Replay, of: Numerics, first: int, told: Trace) -> Replay:
    """A record with what numerics found in the run; ``first`` numbers its problems."""
    # A launch without numerics does not load it.
    from fragmenta.inspect.replay.lost import errors_of, lost_problems

    head, columns, left_out = errors_of(found, of, alone=not told.others)
    found.problems.extend(lost_problems(found, of, first))
    more = {"numerics": head, **_left_out(found.head, left_out)}
    return Replay({**found.head, **more}, {**found.columns, **columns})


def _left_out(head: Head, words: str) -> Row:
    """What is left out, with more of it."""
    return {name: joined(head[name], words) for name in ("others", "left_out")}


def _in_window(found: Replay, window: Window) -> Replay:
    """The steps that were asked for: the first ones, or those before a problem."""
    first = max(0, window.first - found.head["first"])
    if first >= len(found) and window.first:
        raise BadCall(
            f"the blocks that are recorded have {found.head['total']:,} steps; given "
            f"the first step {window.first:,}"
        )
    if not first and len(found) <= window.most:
        return found
    wrong = [max(each["steps"]) for each in found.problems if max(each["steps"]) >= 0]
    if wrong and not window.first and wrong[0] >= window.most:
        behind = min(len(found), wrong[0] + 1 + window.most // BEHIND)
        first = max(first, behind - window.most)
    return Replay(*trimmed(found, first, window.most))


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
