"""Launches that are recorded and have numerics: two runs of the same launch.

Compiled code either records its steps or follows exact values.  A launch that is asked
for both is run twice on the same memory, with the same schedule; with several, twice
with each.  The bits that both leave are compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import (
    TYPE_CHECKING,
    Concatenate,
    NamedTuple,
    ParamSpec,
    TypeAlias,
    TypeVar,
)

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import BadCall, KernelError, KernelFault, KernelHazard
from fragmenta.launch.result import Followed, sums
from fragmenta.simt import untouched

if TYPE_CHECKING:
    from fragmenta.launch.kernel import Kernel
    from fragmenta.launch.result import Result
    from fragmenta.numerics.report import Numerics
    from fragmenta.simt.arguments import Segment

Given = ParamSpec("Given")
Made = TypeVar("Made", bound="Result")
Launcher = TypeVar("Launcher", bound="Kernel")


def with_both(
    launch: Callable[Concatenate[Launcher, Given], Made],
) -> Callable[Concatenate[Launcher, Given], Made]:
    """A launch that may be asked for numerics and for a replay."""

    @functools.wraps(launch)
    def launching(
        kernel: Launcher, /, *operands: Given.args, **options: Given.kwargs
    ) -> Made:
        if not (_asked(options.get("numerics")) and _recorded(options.get("replay"))):
            return launch(kernel, *operands, **options)
        sizes, rest = operands[:2], operands[2:]
        given = _listed(rest[0] if rest else options.pop("arguments", ()))

        def run(**changed: object) -> Made:
            how = {**options, **changed}
            return launch(kernel, *sizes, given, *rest[1:], **how)  # type: ignore[arg-type]

        keeps = options.get("nan", "report") == "report"
        keeps &= options.get("algebra") is None
        ways = _ways(options.get("schedule"))
        return _both(kernel, given, partial(_follow, kernel, run, keeps), run, ways)

    return launching


def _follow(
    kernel: Kernel, run: Callable[..., Made], keeps: bool, how: dict[str, object]
) -> Made:
    """Run a launch with numerics; ``keeps``: what it stores is kept, too."""
    if keeps:
        from fragmenta.numerics.engine import KeepingAlgebra

        how = {"algebra": KeepingAlgebra.of(kernel.loaded.module), **how}
    return run(replay=False, **{**how, "watch": False})  # the recorded run is watched


def _asked(value: object) -> bool:
    return isinstance(value, bool | np.bool_) and bool(value)


def _recorded(value: object) -> bool:
    """Whether a launch is recorded; what makes no sense is refused elsewhere."""
    if value is None or value is False:
        return False
    from fragmenta.tracing.told import Window

    return value is True or isinstance(value, Window)


def _listed(given: object) -> object:
    """Arguments that can be read twice."""
    from fragmenta.simt.arguments import Received, as_list

    return given if isinstance(given, Received) else as_list(given)


def _ways(schedules: object) -> list[dict[str, object]]:
    """The option of each schedule alone."""
    if isinstance(schedules, Sequence) and not isinstance(schedules, str) and schedules:
        return [{"schedule": each} for each in schedules]
    return [{}]


def _both(
    kernel: Kernel,
    given: object,
    follow: Callable[[dict[str, object]], Made],
    run: Callable[..., Made],
    ways: list[dict[str, object]],
) -> Made:
    """Run a launch with numerics and with a recorder; what both show.

    The memory is as the recorded run has left it.  ``numerics`` of the result are those
    of the first schedule.
    """
    before = _images(kernel, given)
    stopped: KernelFault | None = None
    lost: Made | None = None
    try:
        lost = follow(ways[0])
    except KernelFault as fault:  # the recorded run is stopped there, too
        stopped = fault
    after = _images(kernel, given)
    _restore(kernel, given, before)
    others = [_other(kernel, given, follow, before, each) for each in ways[1:]]
    try:
        made = run(numerics=False, nan="report")
    except KernelHazard as hazard:
        if hazard.result is not None and lost is not None:
            hazard.result = _joined(  # type: ignore[type-var]
                hazard.result, lost, others, _different(kernel, given, after)
            )
        raise
    except KernelError:
        raise
    except Exception:  # it was refused: nothing has run, as far as the user sees
        _restore(kernel, given, before)
        raise
    if stopped is not None:
        stopped.result = made
        raise stopped
    assert lost is not None
    return _joined(made, lost, others, _different(kernel, given, after))


class _Other(NamedTuple):
    """The run with numerics with another schedule than the first."""

    numerics: Numerics | None
    left: dict[tuple[int, str], int]
    """What it left: a sum of each array."""
    why: str = ""
    """Why there are no numerics."""


def _other(
    kernel: Kernel,
    given: object,
    follow: Callable[[dict[str, object]], Result],
    before: Images,
    way: dict[str, object],
) -> _Other:
    """Run a launch with numerics with another schedule; memory stays as it is."""
    try:
        found = follow(way)
        return _Other(found.numerics, sums(_segments(kernel, given)[0]))
    except KernelFault as fault:  # the recorded run is stopped there, too
        return _Other(None, {}, f"the run with numerics was stopped: {fault.kind}")
    except BadCall as refused:
        return _Other(None, {}, str(refused))
    finally:
        _restore(kernel, given, before)


def _joined(
    made: Made, lost: Result, others: list[_Other], differs: tuple[str, ...]
) -> Made:
    """The recorded runs with what numerics found in each."""
    assert lost.numerics is not None
    numerics = replace(lost.numerics, watched=made.watched)
    found = [Followed(numerics, differs)]
    for other, steps in zip(others, made.steps[1:], strict=False):
        apart = [
            name
            for (slot, name), each in steps.left.items()
            if other.left.get((slot, name), each) != each
        ]
        found.append(Followed(other.numerics, tuple(apart), other.why))
    return replace(made, numerics=numerics, followed=found)


def _segments(
    kernel: Kernel, given: object
) -> tuple[list[Segment], Callable[[], None]]:
    """The memory that a launch may write, and what hands changes on to the user."""
    from fragmenta.simt.arguments import Arguments, Received

    if isinstance(given, Received):
        passed: Arguments | Received = given
    else:
        passed = Arguments(kernel.function, given, kernel.names)
    every = [*passed.segments]
    if kernel.loaded.module.variables:
        every += kernel.loaded.variables.segments
    return [each for each in every if each.writable], passed.write_back


Images: TypeAlias = dict[tuple[int, str], NDArray[np.uint8]]
"""Copies of memory, by the slot and the name of each array."""


def _images(kernel: Kernel, given: object) -> Images:
    """A copy of all memory that a launch may write."""
    every = _segments(kernel, given)[0]
    return {(each.slot, each.name): untouched.copied(each.data) for each in every}


def _restore(kernel: Kernel, given: object, images: Images) -> None:
    segments, write_back = _segments(kernel, given)
    for each in segments:
        untouched.put_back(each.data, images[each.slot, each.name])
    write_back()


def _different(kernel: Kernel, given: object, images: Images) -> tuple[str, ...]:
    """The arrays that are not what they were."""
    return tuple(
        each.name
        for each in _segments(kernel, given)[0]
        if untouched.different(each.data, images[each.slot, each.name]).size
    )
