"""What do the events of tensor memory tell the clocks, and what is wrong about them?

:class:`TensorObserver` is the part of an observer that hears of ``tcgen05``.  Work that
a warp has issued has these agents, numbered by warp:

``tcgen05``         ``mma``, ``cp`` and ``shift``; a new epoch begins with every commit
``tcgen05.ld``      loads; a new epoch begins with every ``tcgen05.wait::ld``
``tcgen05.st``      stores, likewise
``tcgen05.fence``   everything before a ``tcgen05.fence::before_thread_sync``

The last one is asked only with ``strict=True``: compilers leave these fences out.
"""

from __future__ import annotations

from typing import Any

from fragmenta.ptx.asynchronous.events import first
from fragmenta.ptx.watching.blind import Blind
from fragmenta.ptx.watching.layout import knows
from fragmenta.ptx.watching.tensor_memory import (
    FENCE,
    QUEUED,
    RACE,
    Access,
    Conflict,
    TensorCells,
    region,
)
from fragmenta.ptx.watching.tensor_registers import LoadedRegisters

ALL = 0xFFFFFFFF


class TensorObserver(Blind):
    """Watches the tensor memory of a cluster."""

    def __init__(self, machine: Any, cluster: Any) -> None:
        self.machine, self.cluster = machine, cluster
        self.watch: Any
        self._cells = TensorCells(len(cluster.blocks))
        self.loaded = LoadedRegisters(machine.launch.compiled.dirty)
        self._epochs_of: dict[tuple[str, int, int], int] = {}
        """The present epoch of each agent of a warp."""
        self._numbers: dict[tuple[int, int], int] = {}
        """How many accesses each warp has issued."""
        self._after: dict[tuple[int, int], Any] = {}
        """What each warp knew at its last ``tcgen05.fence::after_thread_sync``."""
        self._commits: dict[tuple[int, int], list[tuple[Any, int]]] = {}
        """The mbarriers and phases of commits, by agent and epoch."""
        self._group: tuple[int, int] | None = None
        """The first ``.cta_group``, and where it is."""

    def begin_tensor(self) -> None:
        """A new cluster begins."""
        self._cells.begin()
        self.loaded.begin()
        for each in (self._epochs_of, self._numbers, self._after, self._commits):
            each.clear()

    # ── agents ──────────────────────────────────────────────────────────────

    def _agent(self, kind: str, warp: Any) -> tuple[int, int]:
        """An agent of a warp, and its present epoch."""
        agent = self.watch.agent(kind, warp.block.rank, warp.number)
        epoch = self._epochs_of.get((kind, warp.block.rank, warp.number), 0)
        return agent, epoch

    def _next_epoch(self, kind: str, warp: Any) -> int:
        key = kind, warp.block.rank, warp.number
        self._epochs_of[key] = self._epochs_of.get(key, 0) + 1
        return self._epochs_of[key]

    def _access(
        self, kind: str, agent: str, warp: Any, event: Any, lane: int, form: Any = None
    ) -> Access:
        rank, number = warp.block.rank, warp.number
        who, epoch = self._agent(agent, warp)
        if agent == "warp":
            epoch = self.watch.epoch(rank, number)
        count = self._numbers[rank, number] = self._numbers.get((rank, number), 0) + 1
        return Access(
            kind, rank, number, lane, who, epoch,
            self.watch.agent("warp", rank, number), self.watch.epoch(rank, number),
            count, event.site, form,
        )  # fmt: skip

    def _row(self, warp: Any, lanes: int) -> Any:
        return self.watch.row(warp.block.rank, warp.number, lanes)

    def _learn_lanes(self, warp: Any, lanes: int, clock: Any) -> None:
        self.watch.acquire(warp.block.rank, warp.number, lanes, warp.live, clock)

    def _met(self, warp: Any, lanes: int) -> None:
        """All lanes of a warp execute an instruction together."""
        self.watch.sync_warp(warp.block.rank, warp.number, lanes, warp.live)

    # ── allocation ──────────────────────────────────────────────────────────

    def tensor_allocated(
        self, warp: Any, event: Any, lanes: int, address: int, columns: int, place: int
    ) -> None:
        """Columns were allocated, and their address is in shared memory."""
        rank, number = warp.block.rank, warp.number
        self.watch.touch(
            rank, [place], 4, True, self.watch.agent("warp", rank, number),
            self.watch.epoch(rank, number), event.site, self._row(warp, lanes),
            proxy="generic", lane=first(lanes),
        )  # fmt: skip
        self._met(warp, lanes)

    def tensor_freed(
        self, warp: Any, event: Any, lanes: int, address: int, columns: int
    ) -> None:
        """Columns are given back: nobody may use them any more."""
        self._met(warp, lanes)
        new = self._access("dealloc", "warp", warp, event, first(lanes))
        every = _Columns(warp.block.rank, address & 0xFFFF, columns)
        self._check(new, warp, event, lanes, [], [every])
        first_column = address & 0xFFFF
        self._cells.forget(warp.block.rank, first_column, first_column + columns)

    # ── loads and stores ────────────────────────────────────────────────────

    def tensor_moves(self, task: Any, warp: Any, event: Any, lanes: int) -> None:
        """A warp issues a load or a store."""
        self._met(warp, lanes)
        new = self._access(task.kind, f"tcgen05.{task.kind}", warp, event, -1)
        if task.kind == "ld":
            self._check(new, warp, event, lanes, task.cells, [])
            self.loaded.loads(warp, event, task.registers)
        else:
            self._check(new, warp, event, lanes, [], task.cells)

    def tensor_waited(
        self, warp: Any, event: Any, lanes: int, kind: str, tasks: Any
    ) -> None:
        """A warp has waited for its loads, or for its stores."""
        self._met(warp, lanes)
        if kind == "ld":
            self.loaded.waited(warp)
        agent, _ = self._agent(f"tcgen05.{kind}", warp)
        clock = self.watch.new_clock()
        self.watch.know(clock, agent, self._next_epoch(f"tcgen05.{kind}", warp))
        self._learn_lanes(warp, lanes, clock)

    # ── products and copies ─────────────────────────────────────────────────

    def tensor_issue(self, task: Any, warp: Any, event: Any, lanes: int) -> None:
        """A thread issues a product, a copy or a shift."""
        lane = first(lanes)
        form = task.pipe if task.kind == "mma" else None
        new = self._access(task.kind, "tcgen05", warp, event, lane, form)
        self._same_group(task, warp, event, lanes)
        self._check(new, warp, event, lanes, task.reads, task.writes)
        self.note("tensor", warp, lanes, event, [(new.agent, new.epoch)])
        clock = self._row(warp, lanes)
        for each in task.sources:
            self.watch.touch(
                each.rank, each.starts, each.size, False, new.agent, new.epoch,
                event.site, clock, proxy="async", lane=lane,
            )  # fmt: skip

    def note(self, what: str, warp: Any, lanes: int, event: Any, *about: Any) -> None:
        """Note what happened, for the report and the picture."""
        raise NotImplementedError

    def tensor_commit(
        self, arrival: Any, warp: Any, event: Any, lanes: int, mbarriers: Any
    ) -> None:
        """A thread commits its work so far: mbarriers will say when it is done."""
        rank = warp.block.rank
        agent, epoch = self._agent("tcgen05", warp)
        clock = self.watch.publish(rank, warp.number, lanes, warp.live)
        mine = self.watch.new_clock()
        mine[:, 1, agent] = self._next_epoch("tcgen05", warp)
        mine[:, 2, agent] = lanes
        # A commit is a fence::before_thread_sync for the work that it is about.
        self.watch.merge(clock, mine)
        arrival.clock = clock
        self._commits[agent, epoch] = [(each, each.phase) for each in mbarriers]
        self.note("commit", warp, lanes, event, [(agent, epoch)])

    def tensor_arrive(self, arrival: Any, mbarrier: Any) -> None:
        """The work of a commit is done: an mbarrier gets to know it."""
        if mbarrier.clock is None:
            mbarrier.clock = arrival.clock.copy()
        else:
            self.watch.merge(mbarrier.clock, arrival.clock)

    def tensor_fence(self, warp: Any, event: Any, lanes: int, before: bool) -> None:
        """``tcgen05.fence``: only the strict rules ask for it."""
        rank, number = warp.block.rank, warp.number
        if not before:
            self._after[rank, number] = self._row(warp, lanes)
            return
        clock = self.watch.new_clock()
        agent, _ = self._agent("tcgen05.fence", warp)
        self.watch.know(clock, agent, self._numbers.get((rank, number), 0) + 1)
        self._learn_lanes(warp, lanes, clock)

    # ── what is wrong ───────────────────────────────────────────────────────

    def _check(
        self, new: Access, warp: Any, event: Any, lanes: int, reads: Any, writes: Any
    ) -> None:
        row = self._row(warp, lanes)
        for each in self._cells.conflicts(new, row, reads, writes):
            if each.ordered is False:
                self._race(each, warp, event, lanes)
            elif self.machine.strict:
                self._strict(each, warp, event, lanes, row)
        missing = self._cells.unwritten(reads)
        if missing is not None:
            warp.report(
                "uninitialised", event, lanes,
                f"it reads {missing.words(new.rank)}, which nobody has written",
                "warning",
            )  # fmt: skip
        if new.kind != "dealloc":
            self._cells.record(new, reads, writes)

    def _same_group(self, task: Any, warp: Any, event: Any, lanes: int) -> None:
        """All ``tcgen05`` of a kernel have one ``.cta_group``."""
        if self._group is None:
            self._group = task.group, event.site
        group, site = self._group
        if group != task.group:
            warp.report(
                "tensor-memory", event, lanes,
                f"it has .cta_group::{task.group}, and another instruction of this "
                f"kernel has .cta_group::{group}: all of them must have the same",
                other=site,
            )  # fmt: skip

    def _race(self, found: Conflict, warp: Any, event: Any, lanes: int) -> None:
        old, new = found.old, found.new
        verb = "writes" if found.was_write else "reads"
        if new.kind == "dealloc":
            start = f"it gives back {found.where.words(new.rank)}"
        else:
            does = "writes" if found.now_write else "reads"
            start = f"it {does} {found.where.words(new.rank)}"
        warp.report(
            RACE, event, lanes,
            f"{start}; {old.words} {verb} there{self._why(old, new)}", other=old.site,
        )  # fmt: skip

    def _why(self, old: Access, new: Access) -> str:
        """What is missing between two accesses."""
        late = " and need not be done"
        if old.kind in ("ld", "st"):
            kind = f"tcgen05.{old.kind}"
            key = kind, old.rank, old.warp
            if old.epoch < self._epochs_of.get(key, 0):
                return ", and nothing orders the two"
            return f"{late}: its warp has not executed tcgen05.wait::{old.kind}"
        if old.kind == new.kind == "mma" and old.form != new.form:
            return f"{late}: only products of one shape and one D follow one another"
        found = self._commits.get((old.agent, old.epoch))
        if not found:
            return f"{late}: no tcgen05.commit comes after it"
        mbarrier, phase = found[0]
        return (
            f"{late}: its tcgen05.commit signals phase {phase} of {mbarrier}, and "
            f"warp {new.warp} does not know that this phase is over"
        )

    def _strict(
        self, found: Conflict, warp: Any, event: Any, lanes: int, row: Any
    ) -> None:
        """What the manual wants, and shipped kernels leave out."""
        old, new = found.old, found.new
        if found.ordered is None:
            warp.report(
                RACE, event, lanes,
                f"it writes {found.where.words(new.rank)}; {old.words} is done before "
                "it only if the Tensor Core keeps the order of issue, which the manual "
                "does not promise for this pair",
                "warning", other=old.site,
            )  # fmt: skip
            return
        same = (old.rank, old.warp) == (new.rank, new.warp)
        if same and (old.kind not in QUEUED or not old.known(row) or old.before(row)):
            if old.kind not in QUEUED or new.kind in QUEUED:
                return
        self._strict_fences(found, warp, event, lanes, same)

    def _strict_fences(
        self, found: Conflict, warp: Any, event: Any, lanes: int, same: bool
    ) -> None:
        old, new = found.old, found.new
        if new.kind == "dealloc":
            return
        after = self._after.get((new.rank, new.warp))
        missing = ""
        if after is None or not (old.known(after) or old.before(after)):
            missing = "after"
        elif old.kind not in QUEUED and not same:
            agent = self.watch.agent("tcgen05.fence", old.rank, old.warp)
            if not knows(after[0], agent, 0, old.number):
                missing = "before"
        if missing:
            where = region_words(found, new)
            warp.report(
                FENCE, event, lanes,
                f"it uses {where} after {old.words}, and no "
                f"tcgen05.fence::{missing}_thread_sync is {_PLACES[missing]}",
                "warning", other=old.site,
            )  # fmt: skip


_PLACES = {
    "after": "between the wait or barrier and this instruction",
    "before": "between that and the barrier",
}


def region_words(found: Conflict, new: Access) -> str:
    """Where two accesses meet."""
    return found.where.words(new.rank)


class _Columns:
    """Columns of tensor memory, all lanes."""

    def __init__(self, rank: int, column: int, columns: int) -> None:
        self.rank, self.column, self.columns = rank, column, columns
        self.lanes = tuple(range(128))

    @property
    def index(self) -> tuple[slice, slice]:
        """What NumPy takes for them."""
        return slice(0, 128), slice(self.column, self.column + self.columns)


__all__ = ["TensorObserver", "region"]
