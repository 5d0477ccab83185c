"""The observer of a cluster: happens-before for every event of the port.

An :class:`Observer` answers the calls of
:class:`~fragmenta.engine.units.port.Port`.  It moves the clocks of the cluster, and
has the accesses of copies and products checked like those of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fragmenta.base.arrays.once import once
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.arena import in_use
from fragmenta.engine.simt.compiled import address_of, zeros
from fragmenta.engine.simt.library import Routine
from fragmenta.engine.simt.loaded import RoutinesOnDemand
from fragmenta.engine.simt.wgmma_operands import Located
from fragmenta.engine.units.barrier_state import ClusterBarrierRecord
from fragmenta.engine.units.blocks import Block, Warp
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.copy_groups import Arrival, LaneGroups, copy_epoch
from fragmenta.engine.units.events import Event, first
from fragmenta.engine.units.fast import layout as fast
from fragmenta.engine.units.fast import task_layout as tasks
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.mbarrier_state import WHEN_DONE, Mbarrier
from fragmenta.engine.units.mbarriers import reaches
from fragmenta.engine.units.port import ChangedMap, Columns, NativeRun, Step, Waited
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.engine.units.tcgen05 import Queued
from fragmenta.engine.units.warpgroups import Wgmma
from fragmenta.engine.units.work import Copy, Range, Transfer, Work
from fragmenta.ptx import families, rules
from fragmenta.ptx.languages import PTX
from fragmenta.ptx.ordering import Role, Scope, fence_role
from fragmenta.watch.races import register_pool
from fragmenta.watch.races.barrier_watch import report_collision
from fragmenta.watch.races.cluster_clocks import ClusterClocks
from fragmenta.watch.races.copied_values import CopiedValues
from fragmenta.watch.races.exits import leaks, visitors
from fragmenta.watch.races.global_watch import Who
from fragmenta.watch.races.layout_watch import LayoutWatch
from fragmenta.watch.races.mbarrier_clocks import MbarrierClocks
from fragmenta.watch.races.missed_phases import MissedPhases
from fragmenta.watch.races.order import Clock, Order, know, knows
from fragmenta.watch.races.product_units import UnitTable
from fragmenta.watch.races.register_watch import RegisterWatch
from fragmenta.watch.races.report.history import History, Note
from fragmenta.watch.races.report.problem_context import ContextFinder
from fragmenta.watch.races.shadow import layout as heads
from fragmenta.watch.races.shadow.global_records import Flags
from fragmenta.watch.races.shadow.layout import (
    COUNTED,
    LAST_EPOCH,
    MBARRIERS,
    WARPGROUP,
)
from fragmenta.watch.races.shadow.problem_table import ProblemTable
from fragmenta.watch.races.shadow.product_layout import MOST_USES
from fragmenta.watch.races.shared_shadow import SharedShadow
from fragmenta.watch.races.step_watch import StepWatch
from fragmenta.watch.races.strong_accesses import Actor
from fragmenta.watch.races.task_watch import TaskWatch
from fragmenta.watch.races.tensor_maps import Maps
from fragmenta.watch.races.tmem_watch import ReadPart, TensorObserver

if TYPE_CHECKING:
    from fragmenta.watch.races.launch_watch import LaunchWatch

ALL = 0xFFFFFFFF
_AGENTS = {
    "cp.async": ("cp.async",),
    "bulk": ("bulk-read", "bulk-write"),
    "released": ("released",),
}
"""The agents of the copies of a queue: their reads may be done before their writes."""


@once
def _routines(part: str) -> tuple[dict[int, Routine], RoutinesOnDemand]:
    """What answers the calls of fast paths, by ``PORT_...``.

    A part is ``mbarriers``, ``clusters``, ``products``, ``copies``, ``maps`` or
    ``tensors``.
    """
    # Tracing takes a while to import.
    from fragmenta.watch.races.shadow import (
        changed_maps,
        cluster_phases,
        copies,
        mbarriers,
        observing,
        products,
        tensor_memory,
    )

    routines, linked = {
        "mbarriers": (observing.ROUTINES | mbarriers.ROUTINES, mbarriers.LINKED),
        "clusters": (cluster_phases.ROUTINES, ()),
        "products": (products.ROUTINES, products.LINKED),
        "copies": (copies.ROUTINES, products.LINKED),
        "tensors": (tensor_memory.ROUTINES, tensor_memory.LINKED),
        "maps": (changed_maps.ROUTINES, ()),
    }[part]
    return routines, RoutinesOnDemand([*routines.values(), *linked])


def functions(part: str, wanted: Collection[int]) -> dict[int, int]:
    """Where the functions of a part are that a kernel needs."""
    routines, code = _routines(part)
    needed = {slot: each for slot, each in routines.items() if slot in wanted}
    code.load(needed.values())
    return {slot: code.address(each) for slot, each in needed.items()}


def _named(mbarrier: Mbarrier) -> tuple[int, int]:
    return mbarrier.block.rank, mbarrier.offset


class Observer(TensorObserver, NativeRun):
    """Observes a cluster for the race detectors."""

    def __init__(
        self, machine: Machine, cluster: Cluster, launch_watch: LaunchWatch
    ) -> None:
        super().__init__(machine, cluster)
        self.launch_watch = launch_watch
        """What all clusters of the launch have in common."""
        blocks = cluster.blocks
        self.order = Order(
            len(blocks),
            len(blocks[0].warps),
            blocks[0].shared.size,
            MBARRIERS,
            asynchronous=machine.asynchronous,
            tensor=machine.tensor,
        )
        self.problems: ProblemTable = ProblemTable()
        self.shared = SharedShadow(self.order, self.problems, strict=machine.strict)
        self.numbers = zeros(machine.launch.cluster_count + 1, np.int64)
        """The clusters that were watched, by how many there were before."""
        self.history = History()
        self.running, self._before = False, 0
        """Whether a cluster has begun and not ended; the problems before it."""
        self.stories = ContextFinder(self)
        self.maps = Maps(self)
        dirty, uses = machine.launch.compiled.dirty, launch_watch.uses
        self.registers_watch = RegisterWatch(dirty, uses, len(blocks[0].warps))
        self.mbarrier_clocks = MbarrierClocks(self.order)
        self.cluster_clocks = ClusterClocks(self.order)
        self._unacquired: dict[tuple[int, int], list[tuple[int, Clock]]] = {}
        """What relaxed waits of a warp have seen, for its next fence."""
        self._unpublished: dict[Work, tuple[Actor, Role, list[tuple[int, int]]]] = {}
        """What work publishes when it is done."""
        self.missed = MissedPhases()
        self.ledgers = []
        self._epochs = [self.order.epochs(block.rank) for block in blocks]
        for block in blocks:
            ledger = launch_watch.memory.ledger(self.problems)
            ledger.attach(block.context.parts["block"])
            block.context.point(layout.BLOCK_WATCH, self.order.address(block.rank))
            self.ledgers.append(ledger)
            head = self.order.head(block.rank, np.int64)
            head[heads.HEAD_NOTES // 8] = self.history.address
            head[heads.HEAD_USED // 8] = launch_watch.used.ctypes.data
            head[heads.HEAD_PHASES // 8] = self.cluster_clocks.address
            head[heads.HEAD_MADE // 8] = self.mbarrier_clocks.address
            head[heads.HEAD_TENSOR // 8] = self.watch.address
        self.steps: StepWatch | None = None
        """How products advance along k; None if there are none."""
        if launch_watch.has.products:
            self.steps = StepWatch(self, launch_watch.asks.steps if in_use() else 0)
        self.layouts: LayoutWatch | None = None
        """Where boxes are; None if no instruction copies any."""
        if launch_watch.has.boxes:
            asks = launch_watch.asks.layouts if in_use() else None
            self.layouts = LayoutWatch(self, asks)
        if launch_watch.has.registers:
            register_pool.count(cluster)
        if machine.asynchronous and not cluster.alone:
            self._observe_in_machine_code()
        if cluster.alone:  # compiled code goes from one block to the next
            blocks[0].context.point(layout.BLOCK_RESET, self.shared.renew)

    def _observe_in_machine_code(self) -> None:
        """Let compiled code answer calls of the port."""
        machine, watch = self.machine, self.registers_watch
        has = self.launch_watch.has
        # One at least: a port without functions hears of nothing.
        wanted = machine.calls | {fast.PORT_USED}
        found = functions("mbarriers", wanted)
        if has.cluster_barriers and not machine.tensor:  # Python: see Execution
            found |= functions("clusters", wanted)
        # With strict rules, each warp has to know of the part of A that it reads.
        in_python = machine.strict or self.launch_watch.reads is not None
        if has.products and not in_python:
            found |= functions("products", wanted)
        has_tensors = machine.tensor and not in_python
        if has_tensors or has.copies:
            found |= functions("copies", wanted)
            ask = self.launch_watch.asks.copies if in_use() else 0
            self.tasks = TaskWatch(self, ask)
        if has_tensors:
            found |= functions("tensors", wanted)
        if has.map_changes:
            found |= functions("maps", wanted)
        if machine.strict and len(self.cluster.blocks) > 1:
            # Python looks at the scope of each arrival at another block.
            found.pop(fast.PORT_RELEASE, None)
        self.functions = found
        if not has.products:
            return
        ask = self.launch_watch.asks.units if in_use() else 0
        self.units = UnitTable(self.launch_watch.uses, ask)
        for block in self.cluster.blocks:
            head = self.order.head(block.rank, np.int64)
            for offset, address in (
                (heads.HEAD_KEEPERS, address_of(watch.records(block.rank))),
                (heads.HEAD_USES, address_of(self.launch_watch.uses.pointers)),
                (heads.HEAD_UNITS, self.units.address),
                (heads.HEAD_ASK, self.units.ask),
            ):
                head[offset // 8] = address
            for warp in block.warps:
                watch.prepare(warp)

    def close(self) -> None:
        """Free everything: the launch has ended."""
        for name in ("units", "tasks", "layouts", "steps"):
            each = vars(self).get(name)
            if isinstance(each, UnitTable | TaskWatch | LayoutWatch | StepWatch):
                each.close()
        vars(self).clear()

    def number_of(self, group: int) -> int:
        """The number of a cluster, by the group of a problem that was found there."""
        return group if self.cluster.alone else int(self.numbers[group - 1])

    def begin(self) -> None:
        """A new cluster begins."""
        if self.cluster.alone:  # compiled code has begun its notes
            return
        self.order.reset()
        self.shared.reset()
        memory, number = self.launch_watch.memory, self.cluster.number
        for block in self.cluster.blocks:
            head = self.order.head(block.rank, np.int64)
            head[heads.HEAD_FENCED // 8] = address_of(memory.fenced) + number
            head[heads.HEAD_TOLD // 8] = address_of(memory.told) + number
        self.numbers[self.order.clusters - 1] = self.cluster.number
        self.enter()
        self.history.begin()
        self.maps.begin()
        if self.layouts is not None:
            self.layouts.begin()
        if self.steps is not None:
            self.steps.begin()
        self.registers_watch.begin()
        self.begin_tensor()
        self.mbarrier_clocks.begin()
        self._unacquired.clear()
        self._unpublished.clear()
        self.missed.begin()
        self.cluster_clocks.begin()
        if len(self.ledgers) > 1:
            for ledger in self.ledgers:
                ledger.cluster(self.cluster.number)

    @property
    def native_run(self) -> NativeRun:
        """How clusters run without Python."""
        return self

    def enter(self) -> None:
        """Python takes part in a cluster."""
        self.running, self._before = True, len(self.machine.problems)

    def leave(self) -> None:
        """The last cluster that began has ended without Python."""
        for each in (self.layouts, self.steps):
            if each is not None:
                each.judged.leave()
        self.running, self._before = False, len(self.machine.problems)

    def renewed(self, resets: ResetSchedule) -> bool:
        """Tell what :meth:`begin` does, and when :meth:`end` does nothing."""
        blocks = self.cluster.blocks
        if len(blocks) > 1:
            return False
        memory = self.launch_watch.memory
        self.order.renewed(resets, self.numbers)
        for place, every in (
            (heads.HEAD_FENCED, memory.fenced),
            (heads.HEAD_TOLD, memory.told),
        ):
            head = self.order.head(0, np.int64)
            resets.number(head[place // 8 :][:1], address_of(every))
        for each in (
            self.shared,
            self.history,
            self.maps,
            self.registers_watch,
            self.mbarrier_clocks,
            self.cluster_clocks,
        ):
            each.renewed(resets)
        if self.layouts is not None:
            self.layouts.renewed(resets)
        if self.steps is not None:
            self.steps.renewed(resets)
        self._clean(resets)
        return True

    def _clean(self, resets: ResetSchedule) -> None:
        """Tell when nothing has leaked and nothing was found."""
        resets.leaks = resets.first = True
        resets.same_at_end(self.problems.counts)
        for block in self.cluster.blocks:
            resets.zero_at_end(block.lack_of_registers[1:])
            for each in block.warpgroups.values():
                each.waited_at_end(resets)
            for warp in block.warps:
                groups = LaneGroups(block.lane_groups(warp.number))
                resets.zero_at_end(groups.words[tasks.LANES_UNWAITED >> 2 :][:1])

    def end(self, block: Block | None = None) -> None:
        """All threads of a block have ended; without one, all of the cluster.

        A block has to know of all that others did in its shared memory.
        """
        if block is not None:
            visitors(self, block)
            return
        leaks(self)
        register_pool.check(self.cluster)
        self.maps.end()
        self.running = False
        self.keep()

    def keep(self) -> None:
        """Keep what is needed to report the problems of the cluster."""
        new = len(self.machine.problems) != self._before
        self.stories.keep(new or self.running)

    def note(
        self, what: str, warp: Warp, lanes: int, event: Event, *about: object
    ) -> None:
        """Note what happened, for the report and the picture."""
        epoch = int(self._epochs[warp.block.rank][warp.number])
        rank, number, time = warp.block.rank, warp.number, self.cluster.time
        self.history.add(
            Note(time, what, rank, number, lanes, event.site, epoch, about)
        )

    # ── clocks ──────────────────────────────────────────────────────────────

    def _publish(self, warp: Warp, lanes: int) -> Clock:
        return self.order.publish(warp.block.rank, warp.number, lanes, warp.live)

    def learn(self, warp: Warp, lanes: int, clock: Clock) -> None:
        """Lanes learn what a clock says."""
        self.order.acquire(warp.block.rank, warp.number, lanes, warp.live, clock)

    def row(self, warp: Warp, lanes: int) -> Clock:
        """What lanes know."""
        return self.order.row(warp.block.rank, warp.number, lanes)

    @property
    def _lanes_are_known(self) -> bool:
        """Whether compiled code makes ``cp.async``, and records the lane of each."""
        return bool(self.cluster.schedule.eager)

    # ── mbarriers ───────────────────────────────────────────────────────────

    def change(self, step: Step, what: Mbarrier | Columns | ChangedMap) -> None:
        """An mbarrier, tensor memory or a tensor map was made, changed or given up."""
        if isinstance(what, Mbarrier):
            self._init(*step, what)
        elif isinstance(what, Columns):
            self.change_columns(step, what)
        else:
            self.maps.changed(*step, what.address)

    def _init(self, warp: Warp, event: Event, lanes: int, mbarrier: Mbarrier) -> None:
        """An mbarrier was made, or is no longer one."""
        epoch = self.order.epoch(warp.block.rank, warp.number)
        agent = self.order.agent("warp", warp.block.rank, warp.number)
        lane = first(lanes)
        mbarrier.birth = (agent, lane, epoch, event.site)
        self.mbarrier_clocks.attach(mbarrier)
        mbarrier.public = mbarrier.fenced = False
        mbarrier.observed = mbarrier.copied = -1
        self.note("init", warp, lanes, event, *_named(mbarrier), mbarrier.expected)
        alive = warp.block.mbarriers.get(mbarrier.offset) is mbarrier
        if not alive:
            self._ended(warp, event, lanes, mbarrier)
        # Nothing happens after this write: ordinary accesses collide with it.
        who = (mbarrier.agent, LAST_EPOCH) if alive else (agent, epoch)
        self.shared.touch(
            warp.block.rank,
            [mbarrier.offset],
            8,
            True,
            *who,
            event.site,
            self._everything(warp, lanes) if mbarrier.again else self.row(warp, lanes),
            proxy="generic",
            lane=lane,
        )

    def _ended(self, warp: Warp, event: Event, lanes: int, mbarrier: Mbarrier) -> None:
        """An mbarrier was made invalid: all waits for it must have come before."""
        clock, rank = self.row(warp, lanes)[0], warp.block.rank
        for number, epoch in mbarrier.waited.items():
            agent = self.order.agent("warp", rank, number)
            if number == warp.number or epoch < max(clock[0, agent], clock[1, agent]):
                continue
            warp.report(
                rules.MBARRIER,
                event,
                lanes,
                f"{mbarrier} is made invalid, and nothing orders that after the wait "
                f"of warp {number}, which may still have to come",
                repair=WHEN_DONE,
            )
            return

    def _everything(self, warp: Warp, lanes: int) -> Clock:
        """What lanes know, and that an mbarrier was here before."""
        clock = self.row(warp, lanes)
        agent = self.order.agent(COUNTED, warp.block.rank, 0)
        clock[:, 0, agent : agent + MBARRIERS] = LAST_EPOCH + 1
        return clock

    def _used(self, warp: Warp, event: Event, lanes: int, mbarrier: Mbarrier) -> None:
        """An instruction names an mbarrier: it must know that there is one."""
        agent, lane, epoch, site = mbarrier.birth
        self.launch_watch.used[site] = 1
        if mbarrier.public:
            return
        own = self.order.agent("warp", warp.block.rank, warp.number)
        if agent == own and lanes == 1 << lane:
            return
        if knows(self.row(warp, lanes)[0], agent, lane, epoch):
            return
        if agent == own and lanes >> lane & 1 and lanes & (lanes - 1) == 0:
            return
        mbarrier.public = True  # once is enough
        warp.report(
            rules.MBARRIER,
            event,
            lanes,
            f"{mbarrier} is used, but nothing orders its initialisation before that: "
            "a barrier of the block (or fence.mbarrier_init and a barrier of the "
            "cluster) has to be in between",
            other=site,
            repair=f"Let {PTX.block_barrier} come between the two; if another block of "
            "the cluster uses it, fence.mbarrier_init and a barrier of the cluster.",
        )

    def release(self, step: Step, barrier: Mbarrier | ClusterBarrierRecord) -> None:
        """Lanes arrive at a barrier; its phase is not over yet."""
        if isinstance(barrier, ClusterBarrierRecord):
            self._cluster_arrive(step, barrier)
            return
        warp, event, lanes = step
        self._used(warp, event, lanes, barrier)
        clock = self._released(step, barrier)
        # What lanes did before has an earlier epoch than this.
        self.note("arrive", warp, lanes, event, *_named(barrier), barrier.phase)
        if clock is not None:
            self.mbarrier_clocks.publish(barrier, clock)

    def _released(self, step: Step, mbarrier: Mbarrier | None = None) -> Clock | None:
        """What lanes publish at a barrier; with ``.relaxed``, what a fence kept.

        Nothing if the scope leaves out those who wait there.
        """
        warp, event, lanes = step
        near = mbarrier is not None and mbarrier.block is warp.block
        if "relaxed" in event.words:
            needed = Scope.CTA if near else Scope.CLUSTER
            return self.order.fenced(warp.block.rank, warp.number, needed)
        clock = self._publish(warp, lanes)
        if mbarrier is not None and not reaches(warp, event, mbarrier):
            return None
        return clock

    def stall(self, step: Step, mbarrier: Mbarrier, phase: int) -> None:
        """Lanes begin to wait for a phase."""
        warp, event, lanes = step
        if phase < mbarrier.phase:  # it is over: the warp gives way
            if mbarrier.held_count == 1:
                self.missed.ended(self.order, step, mbarrier, phase)
            return
        self.note("try", warp, lanes, event, *_named(mbarrier), phase)

    def acquire(self, step: Step, waited: Waited) -> None:
        """Lanes have waited: they learn of what they waited for."""
        _WAITED[waited.done_by](self, step, waited)

    def _phase_seen(self, step: Step, waited: Waited) -> None:
        """Lanes have seen that a phase is over."""
        (warp, event, lanes), phase, mbarrier = step, waited.until, waited.mbarrier
        assert mbarrier is not None
        self._used(warp, event, lanes, mbarrier)
        mbarrier.observed = max(mbarrier.observed, phase)
        self.missed.saw(self.order, step, mbarrier, phase)
        epoch = self.order.epoch(warp.block.rank, warp.number)
        mbarrier.seen_in(warp.number, epoch)
        if phase >= 0:
            clock = self.mbarrier_clocks.at_end(mbarrier, phase)
            if "relaxed" in event.words:
                kept = self._unacquired.setdefault((warp.block.rank, warp.number), [])
                kept.append((lanes, clock.copy()))
            else:
                self.learn(warp, lanes, clock)
        self.note("wait", warp, lanes, event, *_named(mbarrier), phase)

    # ── copies ──────────────────────────────────────────────────────────────

    def issue(self, step: Step, work: Work) -> None:
        """Work is in flight: its accesses may happen at any time from now on."""
        warp, event, lanes = step
        for each in work.mbarriers:
            self._used(warp, event, lanes, each)
        _ISSUED[work.follows or work.completes](self, step, work)

    def _issue_tensor_work(self, step: Step, work: Queued) -> None:
        """A thread has issued a product or a copy to the Tensor Cores."""
        self.issue_queued(step, work)
        if self.layouts is not None:
            self.layouts.queued(step, work)

    def issue_copy(self, step: Step, copy: Transfer) -> None:
        """A copy is in flight."""
        warp, event, lanes = step
        copy.clock = self.row(warp, lanes)
        self._note_copy(step, copy)
        for each in copy.mbarriers:
            each.copied = max(each.copied, each.phase)
            each.copier = (warp, event.site)
        _TOUCHED[copy.completes](self, step, copy, copy.clock)
        if copy.map_range is not None:
            self.maps.used(step, copy, copy.map_range, copy.clock)
        if self.layouts is not None:
            self.layouts.copied(step, copy)

    def _note_copy(self, step: Step, copy: Transfer) -> None:
        """Note a copy, with all agents that a problem may name it by."""
        warp, event, lanes = step
        agents = [(e.agent, e.phase) for e in copy.mbarriers]
        if copy.slot is not None:
            queue, rank, number, _, epoch = copy.slot
            agents = [
                (self.order.agent(name, rank, number), epoch) for name in _AGENTS[queue]
            ]
        copy.number = len(self.history.notes)
        counted = tuple((*_named(e), e.phase) for e in copy.mbarriers)
        moved = sum(len(each.starts) * each.size for each in copy.goals)
        goals = tuple({each.rank for each in copy.goals})
        self.note(
            "copy", warp, lanes, event, agents, copy.number, counted, moved, goals
        )

    def done(self, what: Work | Mbarrier) -> None:
        """A piece of work is done, or a phase of an mbarrier is over."""
        time = self.cluster.time
        if isinstance(what, Mbarrier):
            self.mbarrier_clocks.over(what)
            rank, offset = _named(what)
            about = rank, offset, what.phase
            self.history.add(Note(time, "phase", rank, -1, 0, -1, 0, about))
            return
        if what in self._unpublished:
            self.launch_watch.locations.perform(*self._unpublished.pop(what))
        if what.number >= 0:
            self.history.add(Note(time, "done", 0, -1, 0, -1, 0, (what.number,)))

    def _copy_for_mbarriers(self, step: Step, copy: Copy, clock: Clock) -> None:
        event = step.event
        by_rank = {each.block.rank: each for each in copy.mbarriers}
        anyone = copy.mbarriers[0]
        for each in copy.goals:
            mbarrier = by_rank.get(copy.counted_in(each.rank), anyone)
            who = mbarrier.agent, mbarrier.phase
            self._touch(event, copy, each, True, *who, clock)
        who = anyone.agent, anyone.phase
        for each in copy.sources:
            self._touch(event, copy, each, False, *who, clock)

    def _cp_async(self, step: Step, copy: Transfer, clock: Clock) -> None:
        assert copy.slot is not None  # it is in a group
        event, (_, rank, number, _, epoch) = step.event, copy.slot
        who = self.order.agent("cp.async", rank, number), epoch
        for each in copy.goals:
            self._touch(event, copy, each, True, *who, clock)
        own = self.order.agent("warp", rank, number), self.order.epoch(rank, number)
        for each in copy.sources:
            self._touch(event, copy, each, False, *own, clock)

    def _bulk_store(self, step: Step, copy: Copy, clock: Clock) -> None:
        assert copy.slot is not None  # it is in a group
        event, (_, rank, number, _, epoch) = step.event, copy.slot
        reads = self.order.agent("bulk-read", rank, number)
        writes = self.order.agent("bulk-write", rank, number)
        for each in copy.useful:
            self._touch(event, copy, each, False, reads, epoch, clock)
        for each in copy.useless:
            self._touch(event, copy, each, False, reads, epoch, clock, used=False)
        if copy.repeats:  # the same bytes to the same place
            return
        for each in copy.goals:
            self._touch(event, copy, each, True, writes, epoch, clock)

    def _release_later(self, step: Step, copy: Transfer, clock: Clock) -> None:
        """A store that publishes, when it is done, what its thread knows by now."""
        assert copy.slot is not None
        assert copy.role is not None
        (warp, event, lanes), (_, rank, number, lane, epoch) = step, copy.slot
        agent, own = (self.order.agent(e, rank, number) for e in ("released", "warp"))
        for each in copy.goals:
            self._touch(event, copy, each, True, agent, epoch, clock)
        kept = self._publish(warp, lanes)
        kept[:, 1:, agent] = epoch + 1, np.uint32(lanes).view(np.int32)
        clocks, group = _Rows(self, warp, kept), self.cluster.number
        thread = Actor(group, own, lanes, clocks, rank=rank, site=event.site)
        places = [(lane, int(each.starts[0])) for each in copy.goals]
        self._unpublished[copy] = thread, copy.role, places

    def _touch(
        self,
        event: Event,
        copy: Transfer,
        what: Range,
        write: bool,
        agent: int,
        epoch: int,
        clock: Clock,
        used: bool = True,
    ) -> None:
        """A copy accesses some bytes, in shared or in global memory."""
        lane = copy.thread.lane
        if what.space == "shared":
            self.shared.touch(
                what.rank,
                what.starts.astype(np.uint32),
                what.size,
                write,
                agent,
                epoch,
                event.site,
                clock,
                proxy=copy.proxy,
                lane=lane,
                used=used,
            )
            return
        flags = Flags.ASYNC if copy.proxy == "async" else Flags(0)
        if write:
            flags |= Flags.WRITE
        if copy.combines:
            flags |= Flags.ATOMIC | Flags.STRONG
        if copy.role is not None:
            flags |= Flags.STRONG
        who = Who(event.site, self.cluster.number, agent, lane, epoch, flags)
        planes = [partial(knows, each) for each in clock]
        fenced = planes[1] if copy.proxy == "async" else None
        memory, same = self.launch_watch.memory, None
        if write and not flags & Flags.STRONG:
            block = copy.thread.warp.block
            same = CopiedValues(self.order, copy, block).same
        memory.touch_rows(who, what.starts, what.size, planes[0], fenced, same)

    def signal(self, work: Work, mbarrier: Mbarrier) -> None:
        """Work signals an mbarrier: a wait for it acquires what the issuer knew."""
        assert work.clock is not None  # set at its issue
        self.mbarrier_clocks.publish(mbarrier, work.clock)

    def copied(self, warp: Warp, epoch: int) -> bool:
        """Whether compiled code has made ``cp.async``; a new epoch of them begins."""
        return self.order.copies(warp.block.rank, warp.number, epoch)

    def _cp_async_waited(self, step: Step, waited: Waited) -> None:
        """Lanes have waited for all groups of ``cp.async`` before an epoch."""
        warp, event, lanes = step
        self.note("waited", warp, lanes, event, "cp.async", waited.until, False)
        if self._lanes_are_known and not warp.live & ~lanes:
            # Each lane has waited for its own: others' are known when they meet.
            self.order.copies_waited(warp.block.rank, warp.number, waited.until)
            return
        self._learn_until(warp, lanes, waited.until, "cp.async")

    def _bulk_waited(self, step: Step, waited: Waited) -> None:
        """Lanes have waited for all groups of bulk copies before an epoch."""
        warp, event, lanes = step
        self.note("waited", warp, lanes, event, "bulk", waited.until, waited.read)
        names = ("bulk-read",) if waited.read else ("bulk-read", "bulk-write")
        self._learn_until(warp, lanes, waited.until, *names)

    def _learn_until(self, warp: Warp, lanes: int, until: int, *names: str) -> None:
        """Lanes learn what agents of their warp did before an epoch."""
        clock = self.order.new_clock()
        for name in names:
            agent = self.order.agent(name, warp.block.rank, warp.number)
            know(clock, agent, until)
        self.learn(warp, lanes, clock)

    def _copies_arrive(self, step: Step, arrival: Arrival) -> None:
        """``cp.async.mbarrier.arrive``: the copies so far signal an mbarrier."""
        warp = step.warp
        arrival.clock = self.order.new_clock()
        agent = self.order.agent("cp.async", warp.block.rank, warp.number)
        know(arrival.clock, agent, copy_epoch(warp))

    # ── products ────────────────────────────────────────────────────────────

    def _issue_product(self, step: Step, work: Wgmma) -> None:
        """All four warps have issued a product: it reads shared memory from now on."""
        warp, event, _ = step
        block, number = warp.block, warp.number // 4
        members = block.warps[4 * number : 4 * number + 4]
        rows = [self.row(each, each.live) for each in members]
        clock = rows[0].copy()
        for each in rows[1:]:
            self.order.merge(clock, each)
        agent = self.order.agent(WARPGROUP, block.rank, number)
        self.note("product", warp, ALL, event, [(agent, work.group)], work.group)
        parts = []
        for _, units, owners in work.reads():
            if owners is not None and self.machine.strict:
                parts += [(units[owners == own], row) for own, row in enumerate(rows)]
            else:
                parts.append((units, clock))
        every = [(block.rank, units, 16, known) for units, known in parts]
        self.read_operands(step, work, (agent, work.group), every)
        if self.layouts is not None:
            use = self.launch_watch.uses.of(work.located).number
            self.layouts.product(warp, use, work.descriptors, event.site)
        if self.steps is not None:
            self.steps.product(step, work)

    def read_operands(
        self,
        step: Step,
        work: Work,
        who: tuple[int, int],
        parts: Iterable[ReadPart],
        lane: int = 0,
    ) -> None:
        """Work reads shared memory from now on; what races may be logged."""
        log, site, execution = self.launch_watch.reads, step.event.site, None
        if log is not None and work.is_product:
            execution = log.issued(self, step.warp, work, who)
        for rank, starts, size, clock in parts:
            some = starts
            if log is not None and execution is not None:
                some = log.looked_at(execution, rank, starts, size)
            self.shared.touch(rank, some, size, False, *who, site, clock, lane=lane)
            if log is not None and execution is not None:
                log.has_read(self, execution, rank)

    def touch(self, step: Step, product: Located | None = None) -> None:
        """A warp is about to issue a product, uses registers in flight, or loads."""
        if step.event.words[0] == "raced":
            self.launch_watch.read(self, step)
            return
        if product is not None:
            self.meet(step)
            self._know_form(product)
            if self.steps is not None:
                self.steps.about_to_issue(step.warp, product)
        self.registers_watch.touch(step, product)
        if product is None:
            self.loaded.touched(*step)

    def _know_form(self, product: Located) -> None:
        """Let compiled code find what an instruction means for registers."""
        use, form = self.launch_watch.uses.of(product), self.machine.forms.of(product)
        if use.number < MOST_USES:
            form.longs[fast.FORM_OBSERVER >> 3] = use.address

    def _products_waited(self, step: Step, waited: Waited) -> None:
        """A warp has waited for all groups before a number.

        The products of all four warps have run then; the other warps learn of it when
        they wait themselves, or from this one.
        """
        self.meet(step)
        self.registers_watch.acquire(step, waited)
        warp, block, number = step.warp, step.warp.block, step.warp.number // 4
        clock = self.order.new_clock()
        agent = self.order.agent(WARPGROUP, block.rank, number)
        know(clock, agent, waited.until)
        self.note("multiplied", warp, ALL, step.event, waited.until)
        self.learn(warp, warp.live, clock)

    # ── clusters and fences ─────────────────────────────────────────────────

    def _cluster_arrive(self, step: Step, barrier: ClusterBarrierRecord) -> None:
        """Lanes arrive at the barrier of the cluster."""
        (warp, event, lanes), phase = step, barrier.phase
        self.note("cluster arrive", warp, lanes, event, phase)
        if self.machine.tensor and "relaxed" in event.words:
            self.execution.arrive(self.order, warp, lanes, phase)
        self.cluster_clocks.publish(phase, self._released(step))

    def _cluster_waited(self, step: Step, waited: Waited) -> None:
        """Lanes have passed the barrier of the cluster."""
        (warp, event, lanes), phase = step, waited.until
        self.note("cluster wait", warp, lanes, event, phase)
        self.execution.wait(self.order, warp, phase)
        clock = self.cluster_clocks.at_end(phase)
        if clock is not None:
            self.learn(warp, lanes, clock)
        # fence.mbarrier_init and even a relaxed arrival: all blocks know them now.
        blocks = self.cluster.blocks
        self.cluster_clocks.passed(e for b in blocks for e in b.mbarriers.values())

    def fence(self, step: Step) -> None:
        """A fence, or an instruction that all lanes of a warp execute together."""
        warp, event, lanes = step
        words, rank = event.words, warp.block.rank
        if words[0] in families.WARPGROUP:
            self.meet(step)
            self.registers_watch.fence(step)
        elif words[0] in families.TENSOR_MEMORY:
            self.tensor_fence(step)
        elif words[0] == "collides":
            report_collision(step, self.order.head(rank, np.int32))
        elif "mbarrier_init" in words:
            own = self.order.agent("warp", rank, warp.number)
            made = [e for e in warp.block.mbarriers.values() if e.birth[0] == own]
            for each in made:
                each.fenced = True
            self.cluster_clocks.fence(made)
        elif any(word.startswith("tensormap") for word in words):
            self.maps.fence(warp, event, lanes)
        elif "proxy" in words:
            if any(word.startswith("async") for word in words):
                self.order.fence_async(rank, warp.number, lanes, warp.live)
                self.launch_watch.memory.fenced[self.cluster.number] = 1
        else:
            role = fence_role(words)
            if role.acquires:
                self._acquire_waits(step)
            self.access(step, role, [])
            if role.releases:
                self.order.keep_fence(rank, warp.number, lanes, role.scope)

    def _acquire_waits(self, step: Step) -> None:
        """Lanes learn what they have waited for by relaxed waits."""
        warp, _, lanes = step
        kept = self._unacquired.pop((warp.block.rank, warp.number), [])
        for some, clock in kept:
            if some & lanes:
                self.learn(warp, some & lanes, clock)
        left = [(some & ~lanes, clock) for some, clock in kept if some & ~lanes]
        if left:
            self._unacquired[warp.block.rank, warp.number] = left

    # ── words in memory ─────────────────────────────────────────────────────

    def access(self, step: Step, role: Role, places: list[tuple[int, int]]) -> None:
        """A fence, or a strong access through which threads may synchronise."""
        warp, event, lanes = step
        rank, group = warp.block.rank, self.cluster.number
        agent = self.order.agent("warp", rank, warp.number)
        clocks, ledger = _Rows(self, warp), self.ledgers[rank]
        thread = Actor(group, agent, lanes, clocks, ledger, rank, event.site)
        self.launch_watch.locations.perform(thread, role, places)


_WAITED = {
    "mbarrier": Observer._phase_seen,
    "cluster": Observer._cluster_waited,
    "bulk_group": Observer._bulk_waited,
    "async_group": Observer._cp_async_waited,
    "wgmma_group": Observer._products_waited,
    "wait::ld": Observer.moves_waited,
    "wait::st": Observer.moves_waited,
}
"""What records a wait, by what was waited for."""

_ISSUED: dict[str, Callable[..., None]] = {
    "cp.async": Observer._copies_arrive,
    "tcgen05": Observer.commit,
    "mbarrier": Observer.issue_copy,
    "async_group": Observer.issue_copy,
    "bulk_group": Observer.issue_copy,
    "release": Observer.issue_copy,
    "wgmma_group": Observer._issue_product,
    "wait::ld": Observer.issue_move,
    "wait::st": Observer.issue_move,
    "commit": Observer._issue_tensor_work,
}
"""What records work: of an arrival, by the queue before it; else by how it is done."""

_TOUCHED: dict[str, Callable[..., None]] = {
    "mbarrier": Observer._copy_for_mbarriers,
    "async_group": Observer._cp_async,
    "bulk_group": Observer._bulk_store,
    "release": Observer._release_later,
}
"""What records the bytes of a copy, by how it is done."""


class _Rows:
    """The clocks of a warp, as words in memory need them."""

    def __init__(
        self, observer: Observer, warp: Warp, issued: Clock | None = None
    ) -> None:
        self.observer, self.warp, self.issued = observer, warp, issued

    def release(self, agent: int, lanes: int) -> Clock:
        """What lanes know and did; a new epoch begins.  Of work, what it publishes."""
        if self.issued is not None:
            return self.issued
        return self.observer._publish(self.warp, lanes)

    def acquire(self, agent: int, lanes: int, row: Clock) -> None:
        """Lanes learn something."""
        self.observer.learn(self.warp, lanes, row)

    def epoch(self, agent: int) -> int:
        """The present epoch."""
        block = self.warp.block
        return self.observer.order.epoch(block.rank, self.warp.number)

    def row(self, agent: int, lanes: int) -> Clock:
        """What lanes know."""
        return self.observer.row(self.warp, lanes)
