"""Shows what a launch with numerics found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fragmenta.commands.launch_options import tolerances
from fragmenta.commands.output import emit
from fragmenta.launch.result import Result
from fragmenta.ptx.checking.problem import Problem

if TYPE_CHECKING:
    from fragmenta.values.numerics.report import Numerics


def judge(text: str | None, numerics: bool) -> Callable[[Result], Result]:
    """What judges the outputs of a result by ``--tolerance``, if it is given."""
    limits = tolerances(text, numerics)

    def judged(result: Result) -> Result:
        if limits is None:
            return result
        within = [each.within(*limits) for each in result.followed]
        return replace(result, followed=within)

    return judged


def born(result: Result) -> list[Problem]:
    """What numerics found; nothing without it."""
    return [] if result.numerics is None else result.numerics.problems


def every_problem(result: Result) -> list[Problem]:
    """All problems of a launch, for SARIF."""
    return [*result.problems, *born(result)]


def emit_numerics(result: Result) -> None:
    """Print the report, if there is one."""
    if result.numerics is not None:
        emit(f"\n{result.numerics}")


def numerics_fields(result: Result) -> dict[str, object]:
    """What was found, as a field of JSON; nothing without numerics."""
    return {} if result.numerics is None else {"numerics": lost(result.numerics)}


def lost(found: Numerics) -> dict[str, object]:
    """What was found, as JSON."""
    made: dict[str, object] = json.loads(found.to_json())
    return made | {"problems": [each.to_dict() for each in found.problems]}
