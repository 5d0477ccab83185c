"""The port: the calls that units make, and that an observer answers.

:class:`Port` does nothing; it is there when nobody observes.  The race detector and the
tracing of undefined bits are subclasses.  The units know nothing of either.

An instruction is a :class:`Step`.  What it means for the order of memory accesses is in
the call: :meth:`Port.release` and :meth:`Port.acquire` at barriers, :meth:`Port.issue`
and :meth:`Port.signal` for work in flight, :meth:`Port.fence` for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from inspect import isfunction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fragmenta.engine.simt.wgmma_operands import Located
    from fragmenta.engine.units.barrier_state import ClusterBarrierRecord
    from fragmenta.engine.units.blocks import Block, Warp
    from fragmenta.engine.units.events import Event
    from fragmenta.engine.units.mbarrier_state import Mbarrier
    from fragmenta.engine.units.reset_schedule import ResetSchedule
    from fragmenta.engine.units.work import Range, Work
    from fragmenta.ptx.ordering import Role

Clock: TypeAlias = NDArray[np.int32]
"""A clock of the observer, which it keeps with work and mbarriers."""


class Step(NamedTuple):
    """An instruction that some lanes of a warp execute."""

    warp: Warp
    event: Event
    lanes: int


class Waited(NamedTuple):
    """What lanes have waited for."""

    done_by: str
    """A line of ``COMPLETIONS`` in :mod:`fragmenta.ptx.effects`, or ``cluster``."""
    until: int = 0
    """The phase that is over; of groups, the first that they did not wait for."""
    mbarrier: Mbarrier | None = None
    read: bool = False
    """Whether they only waited until the sources of copies were read."""


class Columns(NamedTuple):
    """Columns of tensor memory that were allocated, or freed."""

    first: int
    columns: int
    place: int | None = None
    """Where in shared memory their address was written; None if they were freed."""


class ChangedMap(NamedTuple):
    """A tensor map that was changed in memory."""

    address: int
    """As the instruction has it."""
    where: Range


class NativeRun:
    """What an observer does if clusters begin and end without Python."""

    def enter(self) -> None:
        """Python takes part in a cluster that began without it."""

    def leave(self) -> None:
        """The last cluster that began has ended without Python."""

    def renewed(self, resets: ResetSchedule) -> bool:
        """Tell what is renewed when a cluster begins, and what is clean at its end.

        Called when one has just begun.  False: Python has to begin the next one.
        """
        return True


class MachineFindings(Protocol):
    """What machine code found, as far as a recorder needs it."""

    @property
    def used(self) -> int:
        """How many problems it has found."""

    def steps_from(self, log: int) -> None:
        """Note with each problem how far the log at an address was."""


_IGNORED = NativeRun()


class Port:
    """An observer that ignores everything."""

    @property
    def native_run(self) -> NativeRun | None:
        """How clusters run without Python; None: they do not."""
        return _IGNORED if self.functions == {} else None

    functions: Mapping[int, int] | None = {}
    """What it has in machine code: addresses of functions by ``PORT_...``.

    Nobody observes if there are none.  None: fast paths must not be used, because it
    has to see every event.
    """

    problems: MachineFindings | None = None
    """What machine code has found for it, if it finds anything."""

    # ── from the beginning of a cluster to its end ──────────────────────────

    def begin(self) -> None:
        """A new cluster begins.

        A block that runs alone begins without Python: this is called at its first
        event.
        """

    def end(self, block: Block | None = None) -> None:
        """All threads of a block have ended; without one, all of the cluster."""

    def over(self) -> None:
        """The cluster has ended, and no work is in flight."""

    # ── work in flight ──────────────────────────────────────────────────────

    def issue(self, step: Step, work: Work) -> None:
        """Work is in flight from now on; ``work.effect`` says what it does."""

    def done(self, what: Work | Mbarrier) -> None:
        """Work is done and about to write; or a phase of an mbarrier is over."""

    def wrote(self, what: Work | Mbarrier | Step) -> None:
        """Work has written its results; or an mbarrier its bits, to shared memory.

        Work that is not done has hidden what it will write: an early read sees poison.
        So has a step, a warp's part of a product, at which it waits for the others.
        Fast paths do not call this.
        """

    def signal(self, work: Work, mbarrier: Mbarrier) -> None:
        """Work that is done signals an mbarrier."""

    def copied(self, warp: Warp, epoch: int) -> bool:
        """Whether compiled code has made ``cp.async``; a new epoch of them begins."""
        return False

    # ── order ───────────────────────────────────────────────────────────────

    def release(self, step: Step, barrier: Mbarrier | ClusterBarrierRecord) -> None:
        """Lanes arrive at a barrier, whose phase is not over yet."""

    def counts(
        self, step: Step, mbarrier: Mbarrier, arrivals: int, expected: int, drops: bool
    ) -> None:
        """Lanes count arrivals and expected bytes at an mbarrier, all together.

        ``drops``: also for the phases that follow.  Fast paths do not call this.
        """

    def stall(self, step: Step, mbarrier: Mbarrier, phase: int) -> None:
        """Lanes begin to wait for a phase that is not over."""

    def acquire(self, step: Step, waited: Waited) -> None:
        """Lanes have waited for something, and go on."""

    def fence(self, step: Step) -> None:
        """A fence, or an instruction that all lanes of a warp execute together.

        Also an arrival at a barrier that another group of warps may be using.
        """

    def access(self, step: Step, role: Role, places: list[tuple[int, int]]) -> None:
        """A strong access, through which threads may synchronise.

        ``places`` are lanes, each with its generic address.
        """

    # ── what instructions change and use ────────────────────────────────────

    def change(self, step: Step, what: Mbarrier | Columns | ChangedMap) -> None:
        """An mbarrier, tensor memory or a tensor map was made, changed or freed."""

    def touch(self, step: Step, product: Located | None = None) -> None:
        """A warp issues a product; without one, it uses registers that are observed."""


class Stacked(Port):
    """Several observers of one cluster, one after the other.

    Machine code answers what it can answer for all of them: for each call, at most one
    of them may want to know.  All others go to Python.
    """

    def __init__(self, *every: Port, ignored: Collection[int] = ()) -> None:
        """``ignored`` are addresses of functions that do nothing."""
        self.every, self.ignored = every, ignored
        self.functions = self._functions()
        found = (each.problems for each in every)
        self.problems = next((each for each in found if each is not None), None)

    def _functions(self) -> Mapping[int, int] | None:
        """What machine code answers for all of them."""
        known = [each.functions for each in self.every if each.functions != {}]
        if not known or not all(known):
            return None if known else {}
        found: dict[int, int] = {}
        for slot in set.intersection(*(set(each or {}) for each in known)):
            wanted = {(each or {})[slot] for each in known} - set(self.ignored)
            if len(wanted) < 2:
                found[slot] = min(wanted, default=(known[0] or {})[slot])
        return found

    @property
    def native_run(self) -> NativeRun | None:
        """Clusters begin and end with Python."""
        return None

    def copied(self, warp: Warp, epoch: int) -> bool:
        """Whether any of them knows that compiled code has made ``cp.async``."""
        told = [each.copied(warp, epoch) for each in self.every]
        return any(told)


def _each(name: str) -> Callable[..., None]:
    """A call that all observers get."""

    def call(self: Stacked, *given: Any, **named: Any) -> None:
        for each in self.every:
            getattr(each, name)(*given, **named)

    call.__name__, call.__doc__ = name, getattr(Port, name).__doc__
    return call


for _name, _value in list(vars(Port).items()):
    if isfunction(_value) and _name not in vars(Stacked):
        setattr(Stacked, _name, _each(_name))
