"""Carries out a request: checks it, prepares its runs, and makes the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fragmenta.base.arrays.checks import check_flags
from fragmenta.base.arrays.once import once_property
from fragmenta.engine.simt.arguments import Received, as_list
from fragmenta.engine.units.schedule import LAZY, Given
from fragmenta.errors import KernelFault
from fragmenta.launch.instruments import Instruments
from fragmenta.launch.limits import Meter, check_limits, no_memory
from fragmenta.launch.options import (
    RunOptions,
    check_clusters,
    check_cooperative,
    check_dynamic,
    check_schedules,
)
from fragmenta.launch.request import LaunchRequest
from fragmenta.launch.result import Result, counted, hazard
from fragmenta.ptx import reading
from fragmenta.reference.isa.target import check_target, check_target_name

if TYPE_CHECKING:
    from fragmenta.engine.planes.algebra import Algebra
    from fragmenta.launch.dask import Spread
    from fragmenta.launch.kernel import Kernel, Loaded
    from fragmenta.launch.launch import Launch
    from fragmenta.launch.orders.exploring import Explored
    from fragmenta.launch.repeating import Repeats
    from fragmenta.launch.scheduled_runs import ScheduledRuns
    from fragmenta.values.counters.report import Counters
    from fragmenta.values.numerics.engine import NumericsAlgebra


class RequestedLaunch:
    """A launch of a kernel that is asked for; nothing has run when it is made."""

    def __init__(self, kernel: Kernel, request: LaunchRequest) -> None:
        self.kernel, self.request = kernel, request
        function = kernel.function
        self.shape = check_clusters(
            function, request.grid, request.block, request.cluster
        )
        check_dynamic(request.shared)
        check_cooperative(request.cooperative, request.client)
        check_flags(contract=request.contract)
        self.asked = Instruments.of(request.instruments)
        self.schedules = check_schedules(request.schedule)
        self.asked.check(self.shape, request.client)
        self.limits = check_limits(request.limits)
        self.meter = Meter(self.limits)
        self.target = _target(request.target, kernel)
        given = request.arguments
        self.arguments = given if isinstance(given, Received) else as_list(given)

    @property
    def reports(self) -> bool:
        """Whether errors are only reported."""
        return self.asked.watch is not None and self.asked.watch.problems == "report"

    @property
    def options(self) -> RunOptions:
        """What is the same in every run, also on the workers of a Dask cluster."""
        return {
            "shared": int(self.request.shared),
            "target": self.target,
            "contract": self.request.contract,
            "stack": self.limits.stack,
            "cooperative": bool(self.request.cooperative),
        }

    # ── runs ────────────────────────────────────────────────────────────────

    def prepare(
        self,
        schedule: Given,
        defined: int | None = None,
        recorded: bool = False,
        raced: bool = False,
        traced: bool = False,
        quiet: bool = False,
        strict: bool = False,
        again: bool = False,
        other: Algebra | None = None,
    ) -> Launch:
        """A launch that is ready to run; see :class:`scheduled_runs.PrepareRun`.

        ``other`` is followed in place of the second values that were asked for.
        """
        kernel, asked = self.kernel, self.asked
        plain = defined is None and not recorded
        follows = plain and not (raced or quiet or strict)
        watches = plain or recorded
        launch = kernel.loaded.launch(
            kernel.name,
            self.shape,
            self.arguments,
            watch=asked.watch is not None and watches and not quiet and other is None,
            strict=strict or (asked.watch is not None and asked.watch.strict),
            schedule=schedule,
            defined=defined,
            recorded=recorded,
            raced=raced,
            goes_on=self.reports,
            counted=asked.counting and plain,
            window=asked.window if traced else None,
            algebra=other or (self._algebra(again) if follows else None),
            names=kernel.names,
            language=kernel.language,
            meter=self.meter,
            **self.options,
        )
        launch.progress = self.request.progress
        return launch

    def _algebra(self, again: bool) -> Algebra | None:
        """What follows second values in a run; in one that is known, if it may stop.

        Numerics have an algebra for each run.
        """
        exact = self.asked.exact
        if exact is None:
            return None if again else self.asked.algebra
        stops = exact.nan == "raise"
        if again and not stops:
            return None
        return self._numerics(stops).of(self.kernel.loaded.module)

    def _numerics(self, stops: bool) -> type[NumericsAlgebra]:
        from fragmenta.values.numerics import engine

        if stops:
            return engine.StoppingAlgebra
        recorded = self.asked.window is not None
        return engine.KeepingAlgebra if recorded else engine.NumericsAlgebra

    @once_property
    def _repeats(self) -> Repeats | None:
        """What reports exact values, and runs the launch again."""
        if self.asked.exact is None:
            return None
        from fragmenta.launch.repeating import Repeats

        return Repeats(self.prepare, self.kernel.loaded.module)

    @once_property
    def _spread(self) -> Spread | None:
        """What runs blocks on a Dask cluster, if there is a client."""
        if self.request.client is None:
            return None
        from fragmenta.launch.dask import Spread

        client: Any = self.request.client
        loaded = self.kernel.loaded
        return Spread(loaded, self.kernel.name, self.options, self.limits, client)

    @once_property
    def _explored(self) -> Explored | None:
        """What explores all orders of the launch."""
        if self.asked.orders is None:
            return None
        from fragmenta.launch.orders.exploring import Explored

        prepare = partial(self.prepare, LAZY, recorded=True)
        once = _once(type(self.kernel.loaded), self.target)
        return Explored(prepare, int(self.asked.orders.states), once)

    def _run(self, launch: Launch, most: int | None = -1, here: bool = False) -> str:
        """Run all blocks, here or on a Dask cluster; what they printed."""
        from fragmenta.launch import grid  # it takes a while

        most = self.limits.instructions if most == -1 else most
        if self._explored is not None:
            most = self._explored.most(most)
        if self._repeats is not None:
            self._repeats.note(launch)
        spread = None if here else self._spread
        try:
            if spread is not None:
                return spread.run(launch, most)
            grid.run(launch, most)
        except KernelFault as fault:
            fault.order = launch.recording.to_json
            fault.output = launch.host.text if spread is None else spread.output
            if fault.output:
                fault.add_note(f"The kernel had printed:\n{fault.output}")
            raise
        return launch.host.text

    # ── the result ──────────────────────────────────────────────────────────

    def result(self) -> Result:
        """Run the launch; what it did.

        What has been asked for is right: that is told before the import of what runs.
        """
        self.request.progress(0)
        from fragmenta.launch.scheduled_runs import ScheduledRuns

        start, explored = time.perf_counter(), self._explored
        if self.asked.watch is not None and not self.reports:
            self.kernel.refuse_errors(self.target)
        runs = ScheduledRuns(
            self.prepare,
            self._run,
            self.schedules,
            self.reports,
            self.asked.window is not None,
        )
        try:
            if explored is not None:
                explored.explore(self._run, self.request.progress)
            printed = runs.all()
        except MemoryError as why:
            raise no_memory(why) from why
        except KernelFault as fault:
            if runs.steps:
                fault.result = self._result(runs, fault.output, start)
            if explored is None or not explored.hangs:
                raise
            raise hazard(explored.with_earlier(fault)) from fault
        repeats, kernel = self._repeats, self.kernel.function.shown
        made = replace(
            self._result(runs, printed, start),
            counters=_counted(runs.launch),
            followed=[] if repeats is None else repeats.reports(runs, kernel),
        )
        return made if self.reports else made.raise_errors()

    def _result(self, runs: ScheduledRuns, printed: str, start: float) -> Result:
        """What runs show, as far as they came."""
        kernel, explored = self.kernel, self._explored
        watched = self.asked.watch is not None
        return kernel.results(
            *counted(runs.launch.compiled, runs.launch.counts),
            printed,
            time.perf_counter() - start,
            self.target,
            kernel.loaded.module.target,
            watched,
            partial(kernel.static, self.target, watched) if watched else list,
            runs.found if explored is None else explored.added_to(runs.found),
            runs.recorded,
            runs.launch.recording.to_json,
            None if explored is None else explored.orders,
            complete=runs.complete,
            fault=runs.fault,
            steps=runs.steps,
        )


def _target(given: str | None, kernel: Kernel) -> str:
    """The GPU whose bits are wanted."""
    if given is None:
        return check_target_name(kernel.loaded.module.target)
    return check_target(given)


def _counted(launch: Launch) -> Counters | None:
    """What a launch counted, if it did."""
    if launch.tally is None:
        return None
    from fragmenta.values.counters.report import counters

    return counters(
        launch.module(),
        launch.compiled,
        counted(launch.compiled, launch.counts)[0],
        launch.tally.sums(),
        launch.shape,
        launch.dynamic,
    )


def _once(of: type[Loaded], target: str) -> Callable[[str, object], None]:
    """What runs one thread of a text on a state; nobody is told of it."""
    known: dict[str, Loaded] = {}

    def once(text: str, state: object) -> None:
        if text not in known:
            known[text] = of(reading.parse(text, ""))
        (kernel,) = known[text].kernels.values()
        request = LaunchRequest(1, 1, [state], target=target, instruments=())
        RequestedLaunch(kernel, request).result()

    return once
