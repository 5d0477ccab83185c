"""Runs a launch with numerics again, on the memory that it began with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.launch.grid import run
from fragmenta.numerics.engine import Found, NumericsAlgebra
from fragmenta.numerics.making import numerics
from fragmenta.numerics.report import Numerics
from fragmenta.ptx.module import Module

if TYPE_CHECKING:
    from fragmenta.launch.launch import Launch


class Repeats:
    """A launch with numerics: what memory was before it, and its report."""

    def __init__(
        self, prepare: Callable[[NumericsAlgebra], Launch], module: Module
    ) -> None:
        self._prepare, self._module = prepare, module
        self._before: list[NDArray[np.uint8] | None] | None = None

    def note(self, launch: Launch) -> None:
        """Keep the memory of the first run as it is before it."""
        if self._before is None:
            self._before = _kept(launch)

    def report(self, algebra: object, launch: Launch, kernel: str) -> Numerics:
        """What the launch lost."""
        assert isinstance(algebra, NumericsAlgebra)
        shape, module = launch.shape, launch.module()
        again, language = self.again, launch.language
        return numerics(algebra.found, module, shape, kernel, again, language)

    def again(
        self, sites: frozenset[int] | None, inputs: Mapping[str, NDArray[np.float64]]
    ) -> Found:
        """Run it once more; memory stays as it is now.

        Second values leave out the errors of some sites; see
        :meth:`fragmenta.numerics.report.Numerics.blame`.
        """
        algebra = NumericsAlgebra.of(self._module)
        algebra.exact_sites, algebra.exact_inputs = sites, dict(inputs)
        launch = self._prepare(algebra)
        now = _kept(launch)
        try:
            _put(launch, self._before or now)
            run(launch, None)
        finally:
            _put(launch, now)
            launch.close()
        return algebra.found


def _kept(launch: Launch) -> list[NDArray[np.uint8] | None]:
    return [_copy(each.data) if each.writable else None for each in launch.places]


def _copy(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A copy; one of zeros, as outputs often are, takes no memory."""
    if data.any():
        return data.copy()
    return np.broadcast_to(np.zeros(1, np.uint8), data.shape)


def _put(launch: Launch, kept: list[Any]) -> None:
    for each, data in zip(launch.places, kept, strict=True):
        if data is not None:
            each.data[:] = data
