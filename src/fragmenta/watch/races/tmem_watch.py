"""The race detector of tensor memory: happens-before for ``tcgen05``.

:class:`TensorObserver` is the part of the observer that handles ``tcgen05``.  Work that
a warp has issued has these agents, numbered by warp:

``tcgen05``         ``mma``, ``cp`` and ``shift``; a new epoch begins with every commit
``tcgen05.ld``      loads; a new epoch begins with every ``tcgen05.wait::ld``
``tcgen05.st``      stores, likewise
``tcgen05.fence``   everything before a ``tcgen05.fence::before_thread_sync``

The last one is used only with ``watch="strict"``: compilers leave these fences out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.layout import RANK_BITS
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.events import Event, first
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.port import Columns, Port, Step, Waited
from fragmenta.engine.units.tcgen05 import Commit, Covered, Queued
from fragmenta.engine.units.tmem_cells import Cells
from fragmenta.engine.units.tmem_moves import TmemMove
from fragmenta.engine.units.work import Work
from fragmenta.ptx import rules
from fragmenta.watch.races.order import Clock, Order, know
from fragmenta.watch.races.report import phrases
from fragmenta.watch.races.report.history import History
from fragmenta.watch.races.shadow.layout import COMMITTED
from fragmenta.watch.races.shadow.tensor_layout import AGENTS
from fragmenta.watch.races.shared_shadow import SharedShadow
from fragmenta.watch.races.tmem_execution import Execution
from fragmenta.watch.races.tmem_fences import Fences
from fragmenta.watch.races.tmem_registers import LoadedRegisters
from fragmenta.watch.races.tmem_shadow import (
    COLUMNS,
    LANES,
    QUEUED,
    RACE,
    Conflict,
    Form,
    TensorAccess,
    TensorCells,
    Watch,
    region,
)
from fragmenta.watch.races.used_loads import used_before_signals

ReadPart: TypeAlias = tuple[int, NDArray[np.uint32], int, Clock]
"""The block, where the parts begin, the bytes of each, and what is known."""


class TensorObserver(Port):
    """Observes the tensor memory of a cluster."""

    order: Order
    shared: SharedShadow
    history: History

    functions: Mapping[int, int] | None = None

    def __init__(self, machine: Machine, cluster: Cluster) -> None:
        self.machine, self.cluster = machine, cluster
        self._used_loads: dict[int, bool] = {}
        dirty = machine.launch.compiled.dirty if machine.strict else 0
        self.loaded = LoadedRegisters(dirty)
        blocks = cluster.blocks
        self.watch = Watch(len(blocks), len(blocks[0].warps), machine.tensor)
        self._cells = TensorCells(self.watch)
        self._fences = Fences()
        self.execution = Execution()
        self._last: tuple[tuple[Warp, int, Covered] | None, Clock | None] = (None, None)
        """Who committed last, and what; and the clock of that."""

    def begin_tensor(self) -> None:
        """A new cluster begins."""
        self.watch.begin()
        self._fences.begin()
        self.execution.begin()
        self.loaded.begin()
        self._last = (None, None)

    def note(
        self, what: str, warp: Warp, lanes: int, event: Event, *about: object
    ) -> None:
        """Note what happened, for the report and the picture."""
        raise NotImplementedError

    # ── agents ──────────────────────────────────────────────────────────────

    def _period(self, kind: str, warp: Warp) -> int:
        """The present epoch of an agent."""
        if kind == "warp":
            return int(self.order.epoch(warp.block.rank, warp.number))
        return int(self.watch.periods[_period_of(kind, warp)])

    def _next_period(self, kind: str, warp: Warp) -> int:
        self.watch.periods[_period_of(kind, warp)] += 1
        return self._period(kind, warp)

    def _agent(self, kind: str, warp: Warp) -> int:
        return int(self.order.agent(kind, warp.block.rank, warp.number))

    def _access(
        self,
        kind: str,
        agent: str,
        warp: Warp,
        event: Event,
        lane: int,
        form: Form | None = None,
    ) -> TensorAccess:
        who = warp.block.rank, warp.number
        self.watch.numbers[who] += 1
        return TensorAccess(
            kind,
            *who,
            lane,
            self._agent(agent, warp),
            self._period(agent, warp),
            self._agent("warp", warp),
            self._period("warp", warp),
            int(self.watch.numbers[who]),
            event.site,
            form,
        )

    def _row(self, warp: Warp, lanes: int) -> Clock:
        return self.order.row(warp.block.rank, warp.number, lanes)

    def _know(self, warp: Warp, lanes: int, kind: str, epoch: int) -> None:
        """Lanes know what an agent of their warp did before an epoch."""
        clock = self.order.new_clock()
        know(clock, self._agent(kind, warp), epoch)
        self.order.acquire(warp.block.rank, warp.number, lanes, warp.live, clock)

    def meet(self, step: Step) -> None:
        """All lanes of a warp execute an instruction together."""
        warp, _, lanes = step
        self.order.sync_warp(warp.block.rank, warp.number, lanes, warp.live)

    # ── allocation ──────────────────────────────────────────────────────────

    def change_columns(self, step: Step, columns: Columns) -> None:
        """Columns were allocated, or freed."""
        if columns.place is None:
            self._freed(step, columns)
        else:
            self._allocated(step, columns.place)

    def _allocated(self, step: Step, place: int) -> None:
        """Columns were allocated, and their address is in shared memory.

        The manual does not say through which proxy.  Triton lets bulk copies write over
        it, so it is no ordinary store here: it counts as a store that is waited for.
        """
        agent = "tcgen05.st"
        warp, event, lanes = step
        self.shared.touch(
            warp.block.rank,
            [place],
            4,
            True,
            self._agent(agent, warp),
            self._period(agent, warp),
            event.site,
            self._row(warp, lanes),
            proxy="generic",
            lane=first(lanes),
        )
        self.meet(step)
        self._know(warp, lanes, agent, self._next_period(agent, warp))

    def _freed(self, step: Step, columns: Columns) -> None:
        """Columns were freed: they must not be used any more."""
        warp, event, lanes = step
        self.meet(step)
        every = tuple(range(LANES))
        gone = Cells(warp.block.rank, every, columns.first % COLUMNS, columns.columns)
        new = self._access("dealloc", "warp", warp, event, first(lanes))
        self._check(new, step, [], [gone])
        self._cells.forget(gone)

    # ── loads and stores ────────────────────────────────────────────────────

    def issue_move(self, step: Step, task: TmemMove) -> None:
        """A warp issues a load or a store."""
        warp, event, _ = step
        self.meet(step)
        kind = task.effect.kind
        new = self._access(kind, f"tcgen05.{kind}", warp, event, -1)
        self.note("move", warp, step.lanes, event, [(new.agent, new.epoch)])
        if kind == "st":
            self._check(new, step, [], task.cells)
            return
        self._check(new, step, task.cells, [])
        self.loaded.loads(warp, event)

    def moves_waited(self, step: Step, waited: Waited) -> None:
        """A warp has waited for its loads, or for its stores."""
        warp, event, lanes = step
        self.meet(step)
        if waited.done_by == "wait::ld":
            self.loaded.waited(warp)
        agent = waited.done_by.replace("wait::", "tcgen05.")
        until = self._next_period(agent, warp)
        self.note("moved", warp, lanes, event, self._agent(agent, warp), until)
        self._know(warp, lanes, agent, until)

    # ── products and copies ─────────────────────────────────────────────────

    def issue_queued(self, step: Step, task: Queued) -> None:
        """A thread issues a product, a copy or a shift."""
        warp, event, lanes = step
        lane = first(lanes)
        kind = task.effect.kind
        new = self._access(kind, COMMITTED, warp, event, lane, _form(task))
        new = new._replace(threads=task.threads)
        self._same_group(warp, event, lanes)
        self._check(new, step, task.cells_read, task.cells_written)
        self.note("tensor", warp, lanes, event, [(new.agent, new.epoch)])
        clock = self._row(warp, lanes)
        parts = [
            (each.rank, each.starts.astype(np.uint32), each.size, clock)
            for each in task.sources
        ]
        self.read_operands(step, task, (new.agent, new.epoch), parts, lane)

    def read_operands(
        self,
        step: Step,
        work: Work,
        who: tuple[int, int],
        parts: Iterable[ReadPart],
        lane: int = 0,
    ) -> None:
        """Work reads shared memory from now on: the agent and the epoch that do."""
        raise NotImplementedError

    def commit(self, step: Step, arrival: Commit) -> None:
        """A thread commits its work so far: an mbarrier will say when it is done.

        A commit for several mbarriers is several calls.
        """
        warp, mbarrier, lane = step.warp, arrival.mbarrier, first(step.lanes)
        work, clock = self._last
        if work != (warp, lane, arrival.covers):
            agent, epoch = self._agent(COMMITTED, warp), self._period(COMMITTED, warp)
            clock = self.order.publish(
                warp.block.rank, warp.number, 1 << lane, warp.live
            )
            mine = self.order.new_clock()
            mine[:, 1, agent] = self._next_period(COMMITTED, warp)
            mine[:, 2, agent] = np.uint32(1 << lane).astype(np.int32)  # a bit each
            self.order.merge(clock, mine)
            self._last = (warp, lane, arrival.covers), clock
            place = mbarrier.block.rank << RANK_BITS | mbarrier.offset
            self.watch.commits.add((agent, lane, epoch, place, mbarrier.phase))
            about = mbarrier.block.rank, mbarrier.offset, mbarrier.phase, agent, epoch
            self.note("commit", warp, step.lanes, step.event, *about)
            if not arrival.covers.some:
                self.watch.is_idle(warp.block.rank, warp.number, lane)
        arrival.clock = clock

    def tensor_fence(self, step: Step) -> None:
        """``tcgen05.fence``: only strict rules need it."""
        warp, event, lanes = step
        who = warp.block.rank, warp.number
        if "fence::before_thread_sync" in event.words:
            self._know(warp, lanes, "tcgen05.fence", int(self.watch.numbers[who]) + 1)
        else:
            self._fences.after[who] = self._row(warp, lanes)

    # ── what is wrong ───────────────────────────────────────────────────────

    def _check(
        self,
        new: TensorAccess,
        step: Step,
        reads: Sequence[Cells],
        writes: Sequence[Cells],
    ) -> None:
        """Compare an access with those before it, and record it."""
        warp, event, lanes = step
        row = self._row(warp, lanes)
        for each in self._cells.conflicts(new, row, reads, writes):
            if each.ordered is False:
                severity = rules.ERROR
                why, repair = self._why(each.old, new)
                if self._executed(each, warp):
                    if not self.machine.strict:
                        continue
                    why, repair = phrases.RELAXED_BARRIER
                    severity = rules.WARNING
                elif self._load_used(each, warp, row):
                    why += phrases.USED_LOAD
                    severity = rules.WARNING
                message, other = _start(each) + why, each.old.site
                warp.report(
                    RACE, event, lanes, message, severity, other=other, repair=repair
                )
            elif self.machine.strict:
                agent = self.order.agent("tcgen05.fence", each.old.rank, each.old.warp)
                self._fences.check(each, agent, warp, event, lanes)
        missing = self._cells.unwritten(reads)
        if missing is not None:
            warp.report(
                rules.UNINITIALISED,
                event,
                lanes,
                f"it reads {missing.words(new.rank)}, which nobody has written",
            )
        if new.kind != "dealloc":
            self._cells.record(new, reads, writes)

    def _executed(self, found: Conflict, warp: Warp) -> bool:
        """Whether a relaxed barrier says that what used freed columns is done."""
        row = self.execution.row(warp)
        freed = found.new.kind == "dealloc"
        return freed and row is not None and found.old.known(row)

    def _load_used(self, found: Conflict, warp: Warp, row: Clock) -> bool:
        """Whether an earlier load is done, since its registers have been used."""
        old, relaxed = found.old, self.execution.row(warp)
        rows = (
            [row] if relaxed is None or found.new.kind != "dealloc" else [row, relaxed]
        )
        if old.kind != "ld" or not any(old.before(each) for each in rows):
            return False
        period = self.watch.periods[AGENTS.index("tcgen05.ld"), old.rank, old.warp]
        return old.epoch >= period and self._signals_late(old.site)

    def _signals_late(self, site: int) -> bool:
        """Whether the registers of a load are used before its warp signals."""
        if site not in self._used_loads:
            launch = self.machine.launch
            name, index = launch.compiled.places[site]
            function = launch.module().functions[name]
            self._used_loads[site] = used_before_signals(function, index)
        return self._used_loads[site]

    def _same_group(self, warp: Warp, event: Event, lanes: int) -> None:
        """All ``tcgen05`` of a kernel have one ``.cta_group``."""
        mine = next(each for each in event.words if each.startswith("cta_group"))
        if self.watch.group is None:
            self.watch.group = mine, event.site
        other, site = self.watch.group or ("", 0)
        if mine != other:
            warp.report(
                rules.TENSOR_MEMORY,
                event,
                lanes,
                f"it has .{mine}, and another instruction of this kernel has .{other}: "
                "all of them must have the same",
                other=site,
            )

    def _why(self, old: TensorAccess, new: TensorAccess) -> tuple[str, str]:
        """What is missing between two accesses, and what would repair it."""
        late = " and need not be done: "
        if old.kind not in QUEUED:
            return self._unwaited(old, new, late)
        why, repair = self._uncommitted(old)
        found = self._commit_of(old)
        if found is not None:
            mbarrier, phase = found
            repair = phrases.UNSEEN.format(phase=phase, mbarrier=mbarrier)
            why = (
                f"its tcgen05.commit signals phase {phase} of {mbarrier}, and warp "
                f"{new.warp} does not know that this phase is over"
            )
        if new.threads > 1 and (old.site, old.rank, old.warp) == (
            new.site,
            new.rank,
            new.warp,
        ):
            why = f"{new.threads} threads of the warp issue it, each for itself"
            repair = phrases.ELECT
        if old.kind == new.kind == "mma" and old.form != new.form:
            why = "only products with one D and one shape follow one another"
        return late + why, repair

    def _commit_of(self, old: TensorAccess) -> tuple[str, int] | None:
        """The mbarrier and the phase of the commit that covers an access."""
        listed = self.watch.commits
        rows = listed.rows[: listed.count]
        mine = (rows["agent"] == old.agent) & (rows["lane"] == old.lane)
        found = rows[mine & (rows["epoch"] >= old.epoch)]
        if not found.size:
            return None
        offset = int(found[0]["place"]) & (1 << RANK_BITS) - 1
        return f"the mbarrier at {offset:#x}", int(found[0]["phase"])

    def _uncommitted(self, old: TensorAccess) -> tuple[str, str]:
        """What to say about work that its thread has not committed."""
        idle = self.watch.idle(old.rank)
        if idle is None or idle == (old.warp, old.lane):
            return "no tcgen05.commit of its thread came after it", phrases.UNCOMMITTED
        why = "the tcgen05.commit of warp {} lane {} does not cover it, since ".format(
            *idle
        )
        return why + phrases.COVERS, phrases.OWN_COMMIT

    def _arrived_early(self, old: TensorAccess) -> bool:
        """Whether a warp arrived at a barrier after a move, and waited for it later."""
        moved = arrived = False
        for each in reversed(self.history.notes):
            if (each.rank, each.warp) != (old.rank, old.warp):
                continue
            if each.what == "move" and each.site == old.site:
                return arrived
            # What came last is met first.
            moved = moved or each.what == "moved"
            arrived = arrived or (moved and each.what.endswith("arrive"))
        return False

    def _unwaited(
        self, old: TensorAccess, new: TensorAccess, late: str
    ) -> tuple[str, str]:
        kind = AGENTS.index(f"tcgen05.{old.kind}")
        if old.epoch < self.watch.periods[kind, old.rank, old.warp]:
            if self._arrived_early(old):
                why = f", and its warp arrived before its tcgen05.wait::{old.kind}"
                return why, phrases.MISPLACED.format(kind=old.kind)
            loads = old.kind == "ld" and new.kind in QUEUED
            repair = phrases.UNSEEN_LOAD if loads else phrases.UNORDERED
            return ", and nothing orders the two", repair
        same = (old.rank, old.warp) == (new.rank, new.warp)
        others = "" if same else ", and let a barrier come between the two"
        repair = phrases.UNWAITED.format(kind=old.kind, others=others)
        return f"{late}its warp has not executed tcgen05.wait::{old.kind}", repair


def _period_of(kind: str, warp: Warp) -> tuple[int, int, int]:
    """Where the epoch of an agent of a warp is."""
    return AGENTS.index(kind), warp.block.rank, warp.number


def _start(found: Conflict) -> str:
    """What an access does, and what an earlier one does there."""
    old, new = found.old, found.new
    verb = "writes" if found.now_write else "reads"
    if new.kind == "dealloc":
        verb = "gives back"
    does = "writes" if found.was_write else "reads"
    return f"it {verb} {found.where.words(new.rank)}; {old.words} {does} there"


def _form(task: Queued) -> Form | None:
    """What two products must have in common for one to follow the other."""
    if not task.is_product:
        return None
    of = task.op.descriptor
    assert of is not None
    return of.m, of.n, tuple(region(each) for each in task.cells_written)
