"""Launches that are recorded and have numerics: two runs of the same launch.

Compiled code either records its steps or follows exact values.  A launch that is asked
for both is run twice on the same memory, with the same schedule.  The bits that both
leave are compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import KernelError, KernelFault, KernelHazard

if TYPE_CHECKING:
    from fragmenta.launch.kernel import Kernel
    from fragmenta.launch.result import Result
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

        several = options.get("schedule")
        first = _first(several)
        return _both(
            kernel, given, run, {} if first is several else {"schedule": first}
        )

    return launching


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


def _first(schedules: object) -> object:
    """The first of several schedules."""
    if isinstance(schedules, Sequence) and not isinstance(schedules, str):
        return schedules[0] if schedules else schedules
    return schedules


def _both(
    kernel: Kernel,
    given: object,
    run: Callable[..., Made],
    first: dict[str, object],
) -> Made:
    """Run a launch with numerics and with a recorder; what both show.

    The memory is as the recorded run has left it.  Numerics are those of the first
    schedule.
    """
    before = _images(kernel, given)
    stopped: KernelFault | None = None
    lost: Made | None = None
    try:
        lost = run(replay=False, **first)
    except KernelFault as fault:  # the recorded run is stopped there, too
        stopped = fault
    after = _images(kernel, given)
    _restore(kernel, given, before)
    try:
        made = run(numerics=False, nan="report")
    except KernelHazard as hazard:
        if hazard.result is not None and lost is not None:
            differs = _different(kernel, given, after)
            hazard.result = replace(  # type: ignore[type-var]
                hazard.result, numerics=lost.numerics, differs=differs
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
    differs = _different(kernel, given, after)
    return replace(made, numerics=lost.numerics, differs=differs)


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
    return {(each.slot, each.name): each.data.copy() for each in every}


def _restore(kernel: Kernel, given: object, images: Images) -> None:
    segments, write_back = _segments(kernel, given)
    for each in segments:
        each.data[:] = images[each.slot, each.name]
    write_back()


def _different(kernel: Kernel, given: object, images: Images) -> tuple[str, ...]:
    """The arrays that are not what they were."""
    now = _images(kernel, given)
    return tuple(
        place[1]
        for place, data in now.items()
        if not np.array_equal(data, images[place])
    )
