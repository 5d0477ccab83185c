"""What a machine needs to know of a launch, and of what runs and observes it.

These are protocols: the launch, its runners, the race detector and the recorder are in
rooms below, and none of them is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.units.port import Port

if TYPE_CHECKING:
    from fragmenta.engine.simt.arguments import Segment
    from fragmenta.engine.simt.compiled import Compiled
    from fragmenta.engine.simt.context import Grid
    from fragmenta.engine.units.clusters import Cluster
    from fragmenta.engine.units.findings import Problems
    from fragmenta.ptx.module import Module


class Launch(Protocol):
    """A launch, as far as units and observers need it."""

    target: str
    parameters: NDArray[np.uint8]
    places: list[Segment]
    compiled: Compiled
    shape: Grid
    dynamic: int
    """Bytes of dynamic shared memory."""
    segments: NDArray[np.int64]
    """The address, the size and the flags of each slot of global memory."""

    @property
    def cluster_count(self) -> int:
        """How many clusters the grid has; without clusters, how many blocks."""

    def module(self) -> Module:
        """The module of the kernel."""


class Results(NamedTuple):
    """Memory of a cluster with what was found there."""

    flags: list[NDArray[Any]]
    """Numbers that are 0 if nothing was found."""
    counts: list[NDArray[Any]]
    """What was counted; see :meth:`Copying.add`."""
    log: NDArray[np.uint8]
    """What happened in the present cluster."""


class Copying(Protocol):
    """Observes clusters that are copies of one another, of which Python has nothing."""

    def results(self, cluster: Cluster) -> Results:
        """Where machine code writes what it found in a cluster."""

    def add(self, counts: list[NDArray[np.uint8]]) -> None:
        """Add the counts of a copy in which nothing was found."""

    def keep_first(self, log: NDArray[np.uint8]) -> None:
        """Keep what happened in the first cluster, which a copy has run."""


class Watching(Protocol):
    """What observes a launch: it has an observer for each cluster."""

    def observer(self, cluster: Cluster) -> Port:
        """The observer of a cluster."""

    def collect(self, problems: Problems) -> None:
        """Add the problems that it found."""

    def copying(self) -> Copying | None:
        """How copies of clusters are observed; None if each needs Python."""

    def told(self) -> Any:
        """What it found, in plain types, for one in another process."""

    def take(self, told: Any) -> None:
        """Add what one in another process found in other clusters."""

    def close(self) -> None:
        """Free everything: the launch has ended."""


class Tracer(Protocol):
    """What records the steps of a launch."""

    def listen(self, cluster: Cluster, port: Port) -> Port:
        """The port of a cluster, of whose calls it hears, too."""

    def chosen(self, cluster: int) -> bool:
        """Whether somebody chose a block of a cluster."""


class Running(Protocol):
    """What runs clusters in a thread."""

    @property
    def cluster(self) -> Cluster | None:
        """The cluster; it is made if there is none yet."""
