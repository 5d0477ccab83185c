"""Records clusters of a launch: begins and ends their logs, and listens to units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.compiled import address_of
from fragmenta.engine.simt.layout import Status
from fragmenta.engine.tracing.code.notes import note
from fragmenta.engine.tracing.effect_records import LOADED, copied, late_registers
from fragmenta.engine.tracing.keeping import Keeping, KeptChunk
from fragmenta.engine.tracing.log import EffectRows, StepChunk, StepLog, own_record
from fragmenta.engine.tracing.trace import (
    Bytes,
    Fault,
    Mark,
    Moved,
    PythonCall,
    Raw,
    State,
    Trace,
    TraceContext,
    Unit,
    Wait,
    Where,
    Window,
)
from fragmenta.engine.units.barrier_state import ClusterBarrierRecord
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.mbarrier_state import Mbarrier
from fragmenta.engine.units.port import ChangedMap, Columns, Port, Step, Waited
from fragmenta.engine.units.tmem_cells import Cells
from fragmenta.engine.units.work import Range, Work
from fragmenta.ptx.families import WARPGROUP

if TYPE_CHECKING:
    from fragmenta.engine.units.blocks import Block
    from fragmenta.engine.units.clusters import Cluster
    from fragmenta.engine.units.machine import Machine

Functions: TypeAlias = Mapping[int, int] | None
"""What a port has in machine code; see ``Port.functions``."""

MOST_COPIED = 64 << 20
"""Bytes of arrays that are copied when a cluster begins."""
CELLS = 512
FIRST = LOADED - 1
_POISON = np.frombuffer(layout.POISON.to_bytes(4, "little"), np.uint8)
"""Columns of tensor memory."""


class StepRecorder:
    """Records some clusters of a launch, one at a time."""

    def __init__(self, machine: Machine, window: Window) -> None:
        self.machine, self.window = machine, window
        self.blocks = {*window.blocks} or {*machine.launch.shape.members(0)}
        """The blocks whose clusters are recorded."""
        self.log = StepLog(self._full)
        self.told = Trace(window)
        self._attends = window.most == 1
        """Whether Python has to see all events of a cluster: what observes it keeps
        them."""
        self._kept = Keeping(window)
        self._begun: State | None = None
        """What memories held before the steps that the log has now."""
        self._cluster: Cluster | None = None
        """The one that is recorded."""
        self._records: list[Bytes] = []
        self._units: dict[Work, int] = {}
        """What Python has put in flight, by a number from ``FIRST`` downwards."""
        self._heard: list[PythonCall] = []
        self._notes: list[EffectRows] = []
        self._places: dict[int, NDArray[np.int64]] = {}
        """Where the registers are that an instruction writes later."""
        self._problems = 0
        """How many problems were known when the cluster began."""
        self._functions: dict[Cluster, Functions] = {}
        """What the port of each cluster has in machine code."""
        self._ran: dict[tuple[int, int], int] = {}
        """The lanes that have run an instruction so far, by warp and site."""
        self._is_cut = False
        """Whether no further step of the cluster is recorded."""

    # ── clusters ────────────────────────────────────────────────────────────

    def listen(self, cluster: Cluster, port: Port) -> Port:
        """Hear what a port is told, too; machine code writes down the rest."""
        ears = _Ears(self, cluster)
        if self._attends:
            self._functions[cluster], port.functions = port.functions, None
        for name in _HEARD:
            setattr(port, name, _both(getattr(port, name), getattr(ears, name)))
        return port

    def choose(self, cluster: int) -> None:
        """Record another cluster than the first one."""
        self.blocks = {*self.machine.launch.shape.members(cluster)}

    @property
    def clusters(self) -> list[int]:
        """The clusters that are recorded."""
        shape = self.machine.launch.shape
        return sorted({shape.cluster_of(each) for each in self.blocks})

    def chosen(self, cluster: int) -> bool:
        """Whether somebody chose a block of a cluster."""
        members = self.machine.launch.shape.members(cluster)
        return bool({*members} & self.blocks)

    def _wanted(self, cluster: Cluster) -> bool:
        return self._cluster is None and self.chosen(cluster.number)

    def begin(self, cluster: Cluster) -> None:
        """A cluster begins."""
        self._unpoint(cluster)
        wanted = self._wanted(cluster)
        if self._attends:
            cluster.observe_with(None if wanted else self._functions[cluster])
        if not wanted:
            return
        cluster.record_with(note())
        self._cluster = cluster
        self.log.prepare()
        members = self.machine.launch.shape.members(cluster.number)
        first_warp, self._problems = len(self.told.warps), self._found()
        self._number_problems(cluster, self.log.address)
        self._records.clear()
        for block, member in zip(cluster.blocks, members, strict=True):
            number = first_warp + block.rank * len(block.warps)
            place = len(self.told.blocks)
            self._records.append(own_record(self.log, place, number))
            block.context.point(layout.BLOCK_TRACE, address_of(self._records[-1]))
            self.told.blocks.append(member)
            self.told.warps += [(place, each.number) for each in block.warps]
        self._begun = self._state(cluster, whole=True)
        self.told.states.append(self._begun)

    def ended(self, cluster: Cluster) -> None:
        """A cluster has ended, and its work is done."""
        if cluster is self._cluster:
            self.close()

    def _found(self) -> int:
        """How many problems are known by now."""
        assert self._cluster is not None
        own = self._cluster.port.problems
        return len(self.machine.problems) + (0 if own is None else own.used)

    def _number_problems(self, cluster: Cluster, log: int) -> None:
        """Let a race detector, if there is one, note the steps of its problems."""
        own = cluster.port.problems
        if own is not None:
            own.steps_from(log)

    def close(self) -> None:
        """The cluster that is recorded has ended."""
        cluster = self._cluster
        if cluster is None:
            return
        self._take()
        self.told.wrong |= self._found() > self._problems
        self._cluster, self._is_cut = None, False
        self._units.clear()
        self._tell("ended")
        self._unpoint(cluster)

    def _choose(self) -> None:
        """Hand on the pieces that are kept, and what memories held before them."""
        told, held = self.told, self._kept.chosen(self.told.wrong)
        told.pieces = [each.piece for each in held]
        if held and held[0].state is not None and not held[0].state.whole:
            later = [each for each in told.states if each.step > held[0].state.step]
            told.states = [held[0].state, *later]

    def result(self) -> Trace:
        """The launch has ended, or was stopped: what was recorded."""
        stopped = self._cluster is not None and self._is_stopped(self._cluster)
        self.told.stopped = stopped
        self.close()
        self._choose()
        self.told.raw = Raw(self._known(), self._notes, self._heard)
        self.told.others = self.machine.launch.shape.blocks > len(self.told.blocks)
        return self.told

    def _is_stopped(self, cluster: Cluster) -> bool:
        """Whether a cluster has not come to its end; its fault is noted."""
        for block in cluster.blocks:
            if block.context.status == Status.FAULT:
                warp = block.warps[block.context.fault_warp]
                words = warp.words
                site, lanes = words[[layout.FAULT_ID >> 2, layout.ACTIVE >> 2]].tolist()
                number, memory = self._number(warp), warp.memory.copy()
                self.told.fault = Fault(int(site), number, int(lanes), memory)
        return any(not block.ended for block in cluster.blocks)

    def free(self) -> None:
        """Free everything: the launch has ended."""
        vars(self.log).clear()
        vars(self).clear()

    # ── pieces ──────────────────────────────────────────────────────────────

    def _full(self) -> None:
        """Compiled code has no room in the log."""
        self._take()
        cluster = self._cluster
        assert cluster is not None
        wrong = self._found() > self._problems
        if self._kept.full and (wrong or not self.machine.observers):
            self._is_cut = self.told.cut = True
            self._unpoint(cluster)
        elif self._kept.begins:
            self._begun = self._state(cluster, whole=False)
        self.log.prepare()

    def _take(self) -> None:
        """Take the steps out of the log."""
        piece, notes = self.log.take()
        self._run(piece)
        held = KeptChunk(piece, self._begun)
        self._kept.add(held)
        if len(notes.rows):
            self._notes.append(notes)
        self._begun, self.told.total = None, held.end

    def _run(self, piece: StepChunk) -> None:
        """Note which lanes have run which instructions."""
        site, warp, lanes = piece.steps[:, :3].T
        keys = warp.astype(np.int64) << 32 | site
        order = np.argsort(keys, kind="stable")
        every, first = np.unique(keys[order], return_index=True)
        if every.size:
            found = np.bitwise_or.reduceat(lanes[order], first)
            for key, mask in zip(every.tolist(), found.tolist(), strict=True):
                known = key >> 32, key & 0xFFFFFFFF
                self._ran[known] = self._ran.get(known, 0) | mask

    def _unpoint(self, cluster: Cluster) -> None:
        """Let compiled code write down nothing of a cluster."""
        cluster.record_with(0)
        self._number_problems(cluster, 0)
        for block in cluster.blocks:
            block.context.point(layout.BLOCK_TRACE, 0)

    def _state(self, cluster: Cluster, whole: bool) -> State:
        """What all memories hold now."""
        launch = self.machine.launch
        warps: dict[int, Bytes] = {}
        memories: dict[Where, Bytes] = {}
        for block in cluster.blocks:
            place = self._place(block)
            memories["shared", place] = block.shared.copy()
            parts = block.context.parts
            if parts["local"].size:
                memories["local", place] = parts["local"].copy()
            if self.machine.tensor:
                memories["tensor", place] = self._cells(block)
            for warp in block.warps:
                warps[self._number(warp)] = warp.memory.copy()
        left, large = MOST_COPIED, []
        for each in launch.places:
            if each.data.size > left:
                large.append((each.name, each.data.size))
                continue
            left -= each.data.size
            memories["global", each.slot] = each.data.copy()
        self.told.large = large
        ran = dict(self._ran)
        return State(self.log.now, cluster.number, warps, memories, whole, ran)

    def _cells(self, block: Block) -> Bytes:
        tensor = block.tensor
        if tensor is None:
            return np.zeros(0, np.uint8)
        return tensor.image.view(np.uint8).reshape(-1).copy()

    # ── who and where ───────────────────────────────────────────────────────

    def hears(self, cluster: Cluster) -> bool:
        """Whether a cluster is the one that is recorded; its time is noted."""
        if cluster is not self._cluster or self._is_cut:
            return False
        self._tell("at", cluster.time, self.log.now)
        return True

    def _tell(self, name: str, *given: Any) -> None:
        """Keep what has happened, to be gathered later, after the notes so far."""
        self._heard.append(PythonCall(self.log.noted, name, given))

    def _known(self) -> TraceContext:
        """What is needed to read the notes."""
        machine = self.machine
        has = any(each.words[0] in WARPGROUP for each in machine.events)
        return TraceContext(
            machine.launch.compiled,
            machine.events,
            frozenset(machine.segments),
            machine.forms.by_address if has else {},
            machine.tensor_forms.by_address if machine.tensor else {},
        )

    def _place(self, block: Block) -> int:
        """The place of a block among those that are recorded."""
        return len(self.told.blocks) - len(block.cluster.blocks) + block.rank

    def _number(self, warp: Warp) -> int:
        block = warp.block
        first = len(self.told.warps) - len(block.cluster.blocks) * len(block.warps)
        return first + block.rank * len(block.warps) + warp.number

    def _block_of(self, rank: int) -> int:
        assert self._cluster is not None
        return self._place(self._cluster.blocks[rank])

    # ── units ───────────────────────────────────────────────────────────────

    def issued(self, step: Step, work: Work) -> None:
        """Work is in flight from now on."""
        if work.has_note:
            return
        warp, event, lanes = step
        effect = work.effect
        made = Unit(
            -1,
            effect.instruction,
            effect.done_by,
            event.site,
            self._number(warp),
            lanes,
            self.log.now,
        )
        made.signals = tuple(
            (self._block_of(each.block.rank), each.offset, each.phase)
            for each in work.mbarriers
        )
        made.group = -1 if work.slot is None else work.slot.epoch
        for each in work.goals:
            made.goals += self._ranges(each, self.log.now, wrote=False)
        for cells in work.cells_written:
            made.goals.append(self._tensor(cells, self.log.now)._replace(data=None))
        self._units[work] = key = FIRST - len(self._units)
        self._tell("issued", key, made)

    def wrote(self, what: Work | Mbarrier | Step) -> None:
        """Work has written its results, or has hidden what it will write.

        Or the bits of an mbarrier have changed; or registers of a step are hidden.
        """
        now = self.log.now
        if isinstance(what, Mbarrier):
            self._mbarrier(what, now)
        elif isinstance(what, Step):
            self._late(what.event.site, -1, [what.warp])
        elif what in self._units:
            (self._done if what.done else self._hidden)(what, self._units[what], now)
        elif what.done:  # machine code has issued it
            self._done(what, what.ordinal, now)

    def _done(self, what: Work, key: int, now: int) -> None:
        """Work has written its results."""
        self._tell("done", key, now)
        moved: list[Moved] = []
        for each in what.sources:
            moved += self._ranges(each, now, wrote=False)
        for each in what.goals:
            moved += self._ranges(each, now, wrote=True)
        for cells in what.cells_written:
            moved.append(self._tensor(cells, now))
        self._tell("moved", key, moved)
        both = copied(what.pairs, self._block_of, self.machine.segments)
        self._tell("copied", key, both)
        if what.fills:
            self._late(what.site, key, what.fills)

    def _hidden(self, work: Work, key: int, now: int) -> None:
        """Work in flight has hidden what it will write."""
        moved: list[Moved] = []
        for each in work.goals:
            moved += self._ranges(each, now, wrote=True)
        for cells in work.cells_written:
            of = self._tensor(cells, now)
            assert of.data is not None
            moved.append(of._replace(data=np.resize(_POISON, of.data.size)))
        self._tell("moved", key, moved)

    def _late(self, site: int, key: int, warps: Iterable[Warp]) -> None:
        """A unit has written registers of warps, or has hidden them."""
        places = self._places.get(site)
        if places is None:
            starts = late_registers(self.machine.launch.compiled, site)
            places = self._places[site] = starts[:, None] + np.arange(layout.LANES)
        for warp in warps:
            words = warp.words[places].reshape(-1)
            self._tell("late", key, self.log.now, site, self._number(warp), words)

    def _ranges(self, of: Range, now: int, wrote: bool) -> list[Moved]:
        """Bytes that a unit has touched."""
        if of.space == "shared":
            assert self._cluster is not None
            memory = self._cluster.blocks[of.rank].shared
            return [
                _moved(
                    now,
                    ("shared", self._block_of(of.rank)),
                    memory,
                    of.starts,
                    of.size,
                    wrote,
                )
            ]
        found, slots = [], of.starts >> layout.SLOT_BITS
        for slot in np.unique(slots).tolist():
            segment = self.machine.segments.get(slot)
            if segment is not None:
                starts = of.starts[slots == slot] & (1 << layout.SLOT_BITS) - 1
                where = "global", slot
                found.append(_moved(now, where, segment.data, starts, of.size, wrote))
        return found

    def _tensor(self, cells: Cells, now: int) -> Moved:
        """Cells that were written."""
        assert self._cluster is not None
        tensor = self._cluster.blocks[cells.rank].tensor
        assert tensor is not None
        lanes = np.array(cells.lanes, np.int64)
        data = tensor.image[cells.index].view(np.uint8).reshape(-1).copy()
        starts = (lanes * CELLS + cells.column) * 4
        where = "tensor", self._block_of(cells.rank)
        return Moved(now, where, starts, 4 * cells.columns, data)

    def waited(self, step: Step, waited: Waited) -> None:
        """Lanes have waited for something."""
        who = self.log.now, self._number(step.warp), waited.done_by
        wait, mbarrier = Wait(*who, waited.until, waited.read), waited.mbarrier
        if mbarrier is not None:
            block = self._block_of(mbarrier.block.rank)
            wait = wait._replace(block=block, offset=mbarrier.offset)
        self._tell("waited", wait)

    # ── barriers ────────────────────────────────────────────────────────────

    def _mbarrier(self, of: Mbarrier, now: int) -> None:
        """The bits of an mbarrier have changed."""
        place = self._block_of(of.block.rank)
        offset = np.array([of.offset], np.int64)
        where = "shared", place
        moved = _moved(now, where, of.block.shared, offset, 8, wrote=True)
        self._tell("moved", -1, [moved])
        state = of.phase, of.pending, of.bytes, -1, of.expected
        self._tell("mark", Mark(now, "mbarrier", place, of.offset, *state))

    def arrived(self, step: Step, barrier: Mbarrier | ClusterBarrierRecord) -> None:
        """Lanes arrive at a barrier of the cluster."""
        if isinstance(barrier, ClusterBarrierRecord):
            now, warp = self.log.now, self._number(step.warp)
            self._tell("mark", Mark(now, "cluster arrive", -1, 0, 0, 0, 0, warp))

    def changed(self, step: Step, what: Mbarrier | Columns | ChangedMap) -> None:
        """Tensor memory was allocated, or a tensor map changed."""
        now, block = self.log.now, step.warp.block
        if isinstance(what, Columns) and what.place is not None:
            where = Range("shared", block.rank, what.place & (1 << 24) - 1, 4)
        elif isinstance(what, ChangedMap):
            where = what.where
        else:
            return
        self._tell("moved", -1, self._ranges(where, now, wrote=True))


def _moved(
    now: int,
    where: Where,
    memory: Bytes,
    starts: NDArray[np.int64],
    size: int,
    wrote: bool,
) -> Moved:
    data = None
    if wrote:
        data = memory[starts[:, None] + np.arange(size)].reshape(-1)
    return Moved(now, where, starts, size, data)


def _both(first: Callable[..., Any], second: Callable[..., None]) -> Callable[..., Any]:
    """A function that calls two; the result is the first one's."""

    def call(*given: Any, **named: Any) -> Any:
        found = first(*given, **named)
        second(*given, **named)
        return found

    return call


class _Ears:
    """What a recorder hears of one cluster."""

    def __init__(self, recorder: StepRecorder, cluster: Cluster) -> None:
        self.recorder, self.cluster = recorder, cluster

    def begin(self) -> None:
        self.recorder.begin(self.cluster)

    def over(self) -> None:
        self.recorder.ended(self.cluster)

    def issue(self, step: Step, work: Work) -> None:
        if self.recorder.hears(self.cluster):
            self.recorder.issued(step, work)

    def wrote(self, what: Work | Mbarrier | Step) -> None:
        if self.recorder.hears(self.cluster):
            self.recorder.wrote(what)

    def release(self, step: Step, barrier: Mbarrier | ClusterBarrierRecord) -> None:
        if self.recorder.hears(self.cluster):
            self.recorder.arrived(step, barrier)

    def acquire(self, step: Step, waited: Waited) -> None:
        if self.recorder.hears(self.cluster):
            self.recorder.waited(step, waited)

    def change(self, step: Step, what: Mbarrier | Columns | ChangedMap) -> None:
        if self.recorder.hears(self.cluster):
            self.recorder.changed(step, what)


_HEARD = ("begin", "over", "issue", "wrote", "release", "acquire", "change")
"""The calls of a port that a recorder hears."""
