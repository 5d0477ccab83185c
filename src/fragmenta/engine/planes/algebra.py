"""What an algebra of second values is made from.

An algebra has two parts.  :class:`~fragmenta.engine.planes.code.following.PlaneStep`
writes the code beside each instruction.  Its :class:`Algebra` is one object for one
launch: it names the code, has the tables that the code writes to, carries out products
of ``wgmma`` and ``tcgen05``, and gets everything when the launch has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.planes.code.following import PlaneStep
from fragmenta.engine.planes.code.probes import PlaneProbes

if TYPE_CHECKING:
    from fragmenta.engine.planes.memory import PlaneObserver, PlaneWatch, Summed
    from fragmenta.engine.simt.context import Context
    from fragmenta.engine.units.blocks import Warp
    from fragmenta.engine.units.tcgen05 import QueuedMma
    from fragmenta.engine.units.warpgroups import Wgmma
    from fragmenta.engine.units.work import Transfer


class Algebra:
    """An algebra that computes nothing: second values are moved, and end anywhere else.

    A launch is given one object: ``kernel.launch(..., algebra=Algebra())``.
    """

    name: ClassVar[str] = "nothing"
    """A word for it; part of the key of compiled code."""
    step: ClassVar[type[PlaneStep]] = PlaneStep
    """What it does beside each instruction."""
    counts_losses: ClassVar[bool] = False
    """Whether ``lost`` is called, too, where the result is not followed."""

    def __init__(self, planes: int = 4, granule: int | None = None) -> None:
        self.planes = planes
        """How many planes there are: 4, or 8 for floats of 8 bits and less."""
        self.granule = (16 if planes < 8 else 8) if granule is None else granule
        """The bits of the smallest element that has second values."""
        self.part: tuple[int, int] | None = None
        """The clusters that run, as a range; None if all of the grid do."""

    @property
    def key(self) -> str:
        """What compiled code depends on, in a word."""
        return f"{self.name}/{self.planes}/{self.granule}"

    def probes(self) -> PlaneProbes:
        """A new instrument for the code of a kernel."""
        return PlaneProbes(self.step, self.planes, self.granule, self.counts_losses)

    # ── while a launch runs ─────────────────────────────────────────────────

    def begin(self, watch: PlaneWatch) -> None:
        """A launch is ready to run; planes of arrays may be given now.

        A launch that is recorded may be made ready twice: the second one runs.
        """

    def context_table(
        self, watch: PlaneWatch, context: Context
    ) -> NDArray[np.uint8] | None:
        """The table that the code of a context writes to, in bytes.

        Contexts are in several threads: each has a table of its own.
        """
        return None

    def port_functions(self) -> Mapping[int, int]:
        """What it has in machine code for units: see ``Port.functions``."""
        return {}

    def product(
        self,
        observer: PlaneObserver,
        work: Wgmma | QueuedMma,
        warp: Warp,
    ) -> None:
        """A ``wgmma`` or ``tcgen05.mma`` was issued; it has not been carried out.

        Here, its results have no second values.
        """
        observer.clear_product(work)

    def combine(
        self, observer: PlaneObserver, summed: Summed, copy: Transfer, warp: Warp
    ) -> NDArray[np.uint8]:
        """The planes of what a copy leaves that combines, such as ``cp.reduce``.

        Here, its results have no second values.
        """
        return np.zeros_like(summed.old_planes)

    def finish(self, watch: PlaneWatch) -> None:
        """The launch has ended; everything is still there."""
