"""The machine that runs a launch: clusters, blocks, warps, and work in flight.

A :class:`Machine` belongs to a launch.  Compiled code calls it for every event.  A
cluster of blocks runs together in one thread of the host; a block that is in no cluster
is a cluster of one.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once_property
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.compiled import callback_address
from fragmenta.engine.simt.layout import MIXED, Fault, Status
from fragmenta.engine.units.event_table import EventTable
from fragmenta.engine.units.events import Event, first
from fragmenta.engine.units.faults import Stop, WrongAddress
from fragmenta.engine.units.kernel_units import Sized, kernel_units
from fragmenta.engine.units.observing import Launch, Running, Tracer, Watching
from fragmenta.engine.units.port import Port, Stacked
from fragmenta.engine.units.schedule import Given, Schedule

if TYPE_CHECKING:
    from fragmenta.engine.units.blocks import Block, Warp
    from fragmenta.engine.units.clusters import Cluster
    from fragmenta.engine.units.findings import Problems
    from fragmenta.engine.units.tensor_forms import TensorForms
    from fragmenta.engine.units.tensor_ways import KnownMoves
    from fragmenta.engine.units.wgmma_forms import BundlePlan, Forms
    from fragmenta.engine.units.work import Range


EVENT = ctypes.CFUNCTYPE(
    ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32
)


class LaunchWarpgroups(NamedTuple):
    """What a launch knows of products when it begins."""

    warpgroups: tuple[tuple[int, int], ...]
    """The warpgroups that issue some: rank, and number."""
    plan: BundlePlan
    """Where they have the forms."""


class Local(threading.local):
    """What runs in each thread."""

    runner: Running | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster that runs in this thread."""
        assert self.runner is not None
        found = self.runner.cluster
        assert found is not None
        return found


class Machine:
    """Carries out the events of a launch, which compiled code raises."""

    fast = True
    """Whether fast paths carry out what they can."""

    def __init__(
        self, launch: Launch, schedule: Given, problems: Problems, strict: bool
    ) -> None:
        self.launch, self.strict = launch, strict
        self.goes_on = False
        """Whether it goes on after a mistake that hardware survives."""
        self.schedule = Schedule(schedule)
        self.grants = 0
        """How many requests for clusters that have not begun are granted."""
        self.begun = 0
        """The first cluster that has not begun."""
        self.cancelled = 0
        """How many clusters, the last of the grid, are not begun."""
        self.problems = problems
        self.kernel = kernel_units(launch.compiled)
        self.events = self.kernel.events
        self.maps = self.kernel.maps
        self._table: EventTable | None = None
        self._prepared: LaunchWarpgroups | None = None
        self.local = Local()
        """What runs in this thread."""
        self.blocks: dict[int, Block] = {}
        self.parted: dict[tuple[str, int, str, int], bool] = {}
        """Whether lanes at the second place have passed the first one by."""
        self.segments = {each.slot: each for each in launch.places}
        self._function = EVENT(self._call)
        self.address = callback_address(self._function)
        self.errors: dict[int, BaseException] = {}
        """The errors, by the address of the block."""
        self.watching: Watching | None = None
        """What watches the launch for mistakes, if anything does."""
        self.following: Watching | None = None
        """What follows values through it, if anything does."""
        self.quiet: Collection[int] = ()
        """Functions of :attr:`following` in machine code that do nothing."""
        self.tracer: Tracer | None = None
        """What records its steps, if anything does."""
        self.notes: dict[int, NDArray[np.uint8]] = {}
        """How each byte of global memory was written, by slot, if that is noted."""

    @property
    def ignores_ended(self) -> bool:
        """Whether it goes on after what reaches into a block that has ended."""
        return self.goes_on or not self.observers

    @property
    def observers(self) -> list[Watching]:
        """All that observes the launch."""
        both = self.watching, self.following
        return [each for each in both if each is not None]

    def grant(self) -> tuple[int, int, int] | None:
        """Cancel a cluster: the index of its first block; None: it is refused."""
        shape = self.launch.shape
        last = shape.blocks // shape.cluster_blocks - self.cancelled - 1
        if not self.grants or last < self.begun:
            return None
        self.grants -= 1
        self.cancelled += 1
        return shape.block_at(shape.members(last)[0])

    def gone(self, cluster: int) -> bool:
        """Whether a cluster was cancelled."""
        shape = self.launch.shape
        return cluster >= shape.blocks // shape.cluster_blocks - self.cancelled

    @property
    def asynchronous(self) -> bool:
        """Whether there is asynchronous work."""
        return self.kernel.asynchronous

    @once_property
    def _sized(self) -> Sized:
        shared = self.launch.compiled.shared + self.launch.dynamic
        return self.kernel.sized(self.launch.target, shared)

    def event_table(
        self, observed: Collection[int] | None, traced: bool = False
    ) -> EventTable:
        """The events in memory, as fast paths read them."""
        self._table = self._sized.table(observed, traced)
        return self._table

    @property
    def calls(self) -> frozenset[int]:
        """The functions of an observer that fast paths call, by slot."""
        return self._sized.calls

    @property
    def present_table(self) -> EventTable | None:
        """The events in memory, if fast paths are used."""
        return self._table

    @property
    def tensor(self) -> bool:
        """Whether the kernel uses tensor memory."""
        return self.kernel.tensor

    @property
    def forms(self) -> Forms:
        """The forms of the products of ``wgmma``."""
        return self._sized.forms

    @property
    def tensor_forms(self) -> TensorForms:
        """The forms of the products of ``tcgen05``."""
        return self._sized.tensor_forms

    @property
    def tensor_moves(self) -> KnownMoves:
        """The loads and stores of tensor memory."""
        return self._sized.tensor_moves

    @property
    def warpgroups(self) -> set[tuple[int, int]]:
        """The warpgroups that issue products in any launch: rank, and number."""
        return self._sized.warpgroups

    def prepare(self) -> LaunchWarpgroups:
        """What is known of products; it stays as it is for the whole launch."""
        with self._sized.lock:
            if self._prepared is None:
                known = tuple(sorted(self.warpgroups))
                self._prepared = LaunchWarpgroups(known, self.forms.plan)
            return self._prepared

    @property
    def settled(self) -> bool:
        """Whether clusters ran without Python in a launch like this one."""
        return (not self.observers) in self._sized.settled

    def settle(self) -> None:
        """Note that clusters have run without Python."""
        self._sized.settled.add(not self.observers)

    @property
    def prepared(self) -> LaunchWarpgroups | None:
        """The same, if it was asked for before."""
        return self._prepared

    def know_form(self, event: Event, form: int) -> None:
        """Let fast paths find the form of an event."""
        self._sized.know_form(event, form)

    def note(self, ranges: Iterable[Range], kind: int) -> None:
        """Note how bytes of global memory are written, as compiled code does."""
        for each in ranges if self.notes else ():
            for start in each.starts.tolist():
                offset = start & (1 << layout.SLOT_BITS) - 1
                notes = self.notes.get(start >> layout.SLOT_BITS)
                if notes is not None and each.space == "global":
                    part = notes[offset : offset + each.size]
                    part[:] = np.where((part == 0) | (part == kind), kind, MIXED)

    def port(self, cluster: Cluster) -> Port:
        """The observer of a cluster."""
        every = [each.observer(cluster) for each in self.observers]
        made = every[0] if every else Port()
        if len(every) > 1:
            made = Stacked(*every, ignored=self.quiet)
        return made if self.tracer is None else self.tracer.listen(cluster, made)

    def close(self) -> None:
        """Free everything: the launch has ended."""
        for observer in self.observers:
            observer.close()
        for cluster in {
            id(each.cluster): each.cluster for each in self.blocks.values()
        }.values():
            cluster.close()
        vars(self).clear()

    def _call(self, block: int, warp: int, number: int, lanes: int) -> int:
        here = self.blocks.get(block)
        if here is None:  # it is a copy: until now, machine code was enough
            here = self.local.cluster.blocks_by_address[block]
        try:
            here.cluster.touch()
            return here.cluster.event(here, warp, number, lanes)
        except BaseException as error:  # an interrupt, too: compiled code drops it
            self.failed(error, here.by_address[warp], self.events[number].site, lanes)
            return 0

    def failed(self, error: BaseException, warp: Warp, site: int, lanes: int) -> None:
        """Keep an error of Python that compiled code has called for a warp."""
        words, kind = warp.words, Fault.EVENT
        if isinstance(error, WrongAddress):
            kind = error.kind
            words[layout.FAULT_SIZE >> 2] = error.size & 0xFFFFFFFF
            wide = words.view(np.uint64)
            wide[layout.FAULT_ADDRESS >> 3] = error.address & (1 << 64) - 1
        else:
            self.errors[warp.block.context.address] = error
        site = getattr(error, "site", site)
        _note(words, kind, site, getattr(error, "lanes", 0) or lanes)

    def fail(self, stop: Stop) -> None:
        """End the kernel because work in flight failed while no warp had its turn."""
        context = stop.warp.block.context
        self.errors[context.address] = stop
        _note(stop.warp.words, Fault.EVENT, stop.site, stop.lanes or 1)
        context.fail(stop.warp.number)


def _note(words: NDArray[np.uint32], kind: Fault, site: int, lanes: int) -> None:
    """Write into the memory of a warp why it cannot go on."""
    words[layout.STATUS >> 2] = Status.FAULT
    words[layout.FAULT_KIND >> 2] = kind
    words[layout.FAULT_ID >> 2] = site
    words[layout.FAULT_LANE >> 2] = first(lanes)
