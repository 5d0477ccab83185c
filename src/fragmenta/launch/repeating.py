"""Runs a launch with numerics again, on the memory that it began with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.mode import Mode
from fragmenta.launch.grid import run
from fragmenta.launch.scheduled_runs import Images, copies, restore
from fragmenta.ptx.module import Module
from fragmenta.values.numerics.engine import NumericsAlgebra, NumericsRecord
from fragmenta.values.numerics.making import numerics
from fragmenta.values.numerics.report import Numerics

if TYPE_CHECKING:
    from fragmenta.engine.planes.algebra import Algebra
    from fragmenta.engine.units.schedule import Given
    from fragmenta.launch.launch import Launch
    from fragmenta.launch.scheduled_runs import ScheduledRuns


class PrepareRepeat(Protocol):
    """Makes a launch that is ready to run."""

    def __call__(self, schedule: Given, *, other: Algebra) -> Launch:
        """``other``: the algebra that it follows."""


class Repeats:
    """A launch with numerics: what memory was before it, and its reports."""

    def __init__(self, prepare: PrepareRepeat, module: Module) -> None:
        self._prepare, self._module = prepare, module
        self._before: Images | None = None

    def note(self, launch: Launch) -> None:
        """Keep the memory of the first run as it is before it."""
        if self._before is None:
            self._before = copies(launch)

    def reports(self, runs: ScheduledRuns, kernel: str) -> list[Numerics]:
        """What the run with each schedule lost."""
        pairs = zip(runs.launches, runs.schedules, strict=True)
        return [self._report(launch, each, kernel) for launch, each in pairs]

    def _report(self, launch: Launch, schedule: Given, kernel: str) -> Numerics:
        algebra = launch.algebra
        assert isinstance(algebra, NumericsAlgebra)
        shape, module = launch.shape, launch.module()
        again, language = partial(self.again, schedule), launch.language
        made = numerics(algebra.found, module, shape, kernel, again, language)
        return replace(made, watched=Mode.of(launch.compiled.mode).watch)

    def again(
        self,
        schedule: Given,
        sites: frozenset[int] | None,
        inputs: Mapping[str, NDArray[np.float64]],
    ) -> NumericsRecord:
        """Run it once more; memory stays as it is now.

        Second values leave out the errors of some sites; see
        :meth:`fragmenta.values.numerics.report.Numerics.blame`.
        """
        algebra = NumericsAlgebra.of(self._module)
        algebra.exact_sites, algebra.exact_inputs = sites, dict(inputs)
        launch = self._prepare(schedule, other=algebra)
        now = copies(launch)
        try:
            restore(launch, self._before or now)
            run(launch, None)
        finally:
            restore(launch, now)
            launch.close()
        return algebra.found
