"""The second values of a launch, and what its algebra does beside its threads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fragmenta.engine.planes.algebra import Algebra
from fragmenta.engine.planes.code import layout as at
from fragmenta.engine.planes.copies import attach, copy_functions
from fragmenta.engine.planes.shadows import (
    WARPS,
    Bytes,
    Follower,
    Planes,
    Shadow,
    unseen,
)
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.compiled import address_of
from fragmenta.engine.simt.context import Context
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.program import parameter_offsets
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.findings import Problems
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.mbarrier_state import Mbarrier
from fragmenta.engine.units.port import Step
from fragmenta.engine.units.tcgen05 import QueuedMma
from fragmenta.engine.units.warpgroups import Wgmma
from fragmenta.engine.units.work import Transfer, Work
from fragmenta.errors import BadCall

__all__ = ["PlaneObserver", "PlaneWatch", "Shadow", "Summed"]


class Summed(NamedTuple):
    """What a copy combines: bytes of memory and of its source, and their planes."""

    operation: str
    """``add``, ``min``, …"""
    type: str
    """The type of the elements."""
    old: Bytes
    new: Bytes
    old_planes: Bytes
    """Those of what memory holds: (planes, bytes)."""
    new_planes: Bytes


class PlaneWatch(Planes):
    """The second values of a launch."""

    def __init__(self, machine: Machine, algebra: Algebra) -> None:
        super().__init__(machine, algebra.planes)
        self.algebra = algebra
        self.tables: list[Bytes] = []
        """The tables of all contexts."""
        self.observers: list[PlaneObserver] = []
        algebra.begin(self)

    def attach(self, context: Context, shadow: Shadow) -> None:
        """Let the code of a block find the algebra's table."""
        table = self.algebra.context_table(self, context)
        if table is not None:
            self.tables.append(table)
            shadow.point(at.TABLE, address_of(table))

    def argument(self, number: int) -> Bytes:
        """The planes of the memory that a parameter points to: (planes, bytes).

        :func:`fragmenta.engine.planes.elements.joined` reads them.
        """
        kernel = self.launch.module().functions[self.compiled.kernel]
        place = list(parameter_offsets(kernel).values())[number]
        word = self.launch.parameters[place : place + 8].view(np.uint64)[0]
        slot, offset = divmod(int(word), 1 << layout.SLOT_BITS)
        if slot not in self.memories:
            raise BadCall(f"parameter {number} points to no array")
        return self.memories[slot][:, offset:]

    def variable(self, name: str) -> Bytes:
        """The planes of a variable in global memory: (planes, bytes)."""
        found = [each.slot for each in self.launch.places if each.name == name]
        if not found:
            raise BadCall(f"the launch has no variable {name}")
        return self.memories[found[0]]

    def observer(self, cluster: Cluster) -> PlaneObserver:
        """A new observer of a cluster."""
        made = PlaneObserver(self, cluster)
        self.observers.append(made)
        return made

    def copying(self) -> None:
        """Each cluster has to be observed in Python."""

    def told(self) -> object:
        """Second values stay in this process."""
        raise BadCall("second values are not sent to workers; launch without client=")

    def take(self, told: object) -> None:
        """Second values come from no other process."""
        raise BadCall("second values are not sent to workers; launch without client=")

    def collect(self, problems: Problems) -> None:
        """The launch has ended: the algebra has its turn."""
        self.algebra.finish(self)

    def close(self) -> None:
        """Free everything: the launch has ended."""
        for each in self.observers:
            each.close()
        vars(self).clear()


class PlaneObserver(Follower):
    """Follows a cluster for an algebra."""

    watch: PlaneWatch

    def __init__(self, watch: PlaneWatch, cluster: Cluster) -> None:
        super().__init__(watch, cluster)
        copies = copy_functions(watch.launch.module())
        self.functions = {**unseen(), **copies, **watch.algebra.port_functions()}
        self._records = attach(self.planes)
        self._late: dict[Work, Step] = {}
        """Work of Tensor Cores in flight, with the step that has issued it."""
        if not cluster.schedule.eager and cluster.machine.kernel.on_tensor_cores:
            self.functions = None

    def issue(self, step: Step, work: Work) -> None:
        """Work was issued: it is done to planes, that of Tensor Cores when it is done.

        They add to a D that is there only when earlier products are done.
        """
        if self.functions is None and work.effect.on_tensor_cores:
            self._late[work] = step
        else:
            super().issue(step, work)

    def done(self, what: Work | Mbarrier) -> None:
        """Work is done, and has not written: that of Tensor Cores is done to planes."""
        super().done(what)
        step = None if isinstance(what, Mbarrier) else self._late.pop(what, None)
        if step is not None and not isinstance(what, Mbarrier):
            with what.shown():
                super().issue(step, what)

    def multiply(self, step: Step, work: QueuedMma | Wgmma) -> None:
        """A product was issued: the algebra does it to planes."""
        self.watch.algebra.product(self, work, step.warp)

    def copy(self, step: Step, copy: Transfer) -> None:
        """A copy was issued: planes are copied, and the algebra combines them."""
        warp, values = step.warp, self.values(step, copy)
        if copy.combines:
            self._combine(copy, warp, values)
            return
        for shadows, own in zip(self.planes, values, strict=True):
            copy.carry(shadows[warp.block.rank], own)

    def _combine(self, copy: Transfer, warp: Warp, values: list[list[int]]) -> None:
        """A copy combines with what memory holds: the algebra does it to planes."""
        rank = warp.block.rank
        blocks = [shadows[rank] for shadows in self.planes]
        given = zip(blocks, values, strict=True)
        parts = [copy.summands(block, own) for block, own in given]
        every = []
        for number, (old, new) in enumerate(copy.summands(warp.block)):
            olds, news = (
                np.stack([each[number][side] for each in parts]) for side in (0, 1)
            )
            summed = Summed(*copy.sum, old, new, olds, news)
            every.append(self.watch.algebra.combine(self, summed, copy, warp))
        for plane, block in enumerate(blocks):
            copy.put_sums(block, [each[plane] for each in every])

    def clear_product(self, work: Wgmma | QueuedMma) -> None:
        """The results of a product have no second values."""
        if work.fills:
            shape = self.watch.planes, WARPS * LANES, len(work.registers)
            nothing = np.zeros(shape, np.uint32)
            self.watch.put_registers(work.fills, work.registers, nothing)
        for shadows in self.planes:
            for each in work.cells_written:
                shadows[each.rank].cells[each.index] = 0
