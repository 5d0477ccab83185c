"""Runs clusters whose warps end their turns at every synchronising event.

A :class:`StepRunner` lets compiled code (``simt.turns``) take turns by a policy, or
gives it the turns one by one: those of a recorded schedule, or what a chooser says.  It
records all of them; see :mod:`fragmenta.engine.units.schedule`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.compiled import address_of, aligned
from fragmenta.engine.simt.context import Context
from fragmenta.engine.simt.layout import Status
from fragmenta.engine.units.events import numbers
from fragmenta.engine.units.fast import layout as fast
from fragmenta.engine.units.faults import Stop
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.engine.units.schedule import (
    AWAY,
    DEADLOCK,
    IMPATIENT,
    LOOK,
    MARKS,
    RELAX,
    WORK,
    Chooser,
    ParsedSchedule,
    Standing,
    Taken,
    Turn,
)
from fragmenta.errors import BadCall
from fragmenta.launch.runners import PATIENCE, POLLS, ClusterRunner

if TYPE_CHECKING:
    from fragmenta.engine.simt.compiled import Compiled
    from fragmenta.launch.launch import Launch

BUDGET = 256
"""How often a warp may jump back before another has its turn."""
QUOTA = 4096
"""Turns before Python looks at limits and at other clusters."""
MOST_TURNS = 1 << 20
"""Turns of a launch that are kept."""
_FIRST_WORK = 16
_ENDED = {
    Status.BLOCKED: "waits",
    Status.SPENT: "spent",
    Status.ENDED: "ended",
    Status.FAULT: "fault",
}


class TurnRecording:
    """The turns of a launch, as they were."""

    def __init__(self, plan: ParsedSchedule) -> None:
        self.plan = plan
        self.warps = 0
        """The warps of a block."""
        self._turns: dict[int, list[NDArray[np.int32]]] = {}
        self._whole: list[tuple[NDArray[np.int64], NDArray[np.int32]]] = []
        """Turns of clusters that ran without Python, and where those of each end."""
        self._kept = 0

    def add(self, cluster: int, turns: NDArray[np.int32]) -> None:
        """Keep turns of a cluster, unless there are too many."""
        if self._has_room(turns):
            self._turns.setdefault(cluster, []).append(turns)

    def add_clusters(self, ends: NDArray[np.int64], turns: NDArray[np.int32]) -> None:
        """Keep the turns of several clusters; ``ends`` has (cluster, its end)."""
        if self._has_room(turns):
            self._whole.append((ends, turns))

    def _has_room(self, turns: NDArray[np.int32]) -> bool:
        self._kept += len(turns)
        if self._kept > MOST_TURNS:
            self._turns.clear()
            self._whole.clear()
        return self._kept <= MOST_TURNS

    @property
    def turns(self) -> dict[int, list[NDArray[np.int32]]]:
        """By cluster: (warp of the cluster, what ended its turn), or (mark, 0)."""
        whole, self._whole = self._whole, []
        for ends, turns in whole:
            first = 0
            for cluster, end in ends.tolist():
                self._turns.setdefault(cluster, []).append(turns[first:end])
                first = end
        return self._turns

    def to_json(self) -> dict[str, Any]:
        """The schedule; with it, a launch does the same again.

        It has the turns, unless no order of warps was asked for, or they are so many
        that they were not kept, or other machines had them.  A policy has no other
        turns the next time.
        """
        made: dict[str, Any] = {"work": self.plan.work, "warps": self.plan.warps}
        turns: dict[int, list[Any]] = {
            cluster: [self._turn(number) for number in _numbers(parts)]
            for cluster, parts in sorted(self.turns.items())
        }
        turns = turns or {key: list(some) for key, some in self.plan.turns.items()}
        if turns:
            made["turns"] = {str(cluster): some for cluster, some in turns.items()}
            if self.plan.hasty:
                made["hasty"] = True
        return made

    def _turn(self, number: int) -> Any:
        if number >= 0:
            return list(divmod(number, self.warps))
        return _mark(number)

    def events(self, compiled: Compiled, cluster: int) -> Iterator[Taken | Any]:
        """The turns of warps with the events that ended them; marks between them."""
        for part in self.turns.get(cluster, ()):
            for number, event in part.tolist():
                if number >= 0:
                    yield taken(compiled, self.warps, number, event)
                else:
                    yield _mark(number)


def _numbers(parts: list[NDArray[np.int32]]) -> list[int]:
    return [number for part in parts for number in part[:, 0].tolist()]


def _mark(number: int) -> Any:
    if -number >= _FIRST_WORK:
        return [WORK, -number - _FIRST_WORK]
    return MARKS[-number - 1]


def taken(compiled: Compiled, warps: int, number: int, event: int) -> Taken:
    """A turn in words."""
    rank, warp = divmod(number, warps)
    if event < 0:
        return Taken(rank, warp, _ENDED[Status(-1 - event)])
    function, start = compiled.waits[event]
    # The event is the last instruction of its code block.
    index = start + len(compiled.counted[event]) - 1
    return Taken(rank, warp, "event", function, index)


class TurnOrder:
    """The record that compiled code takes turns by."""

    def __init__(self, runner: StepRunner) -> None:
        self.memory = aligned(layout.ORDER_BYTES)
        self._words = self.memory.view(np.int32)
        self._longs = self.memory.view(np.int64)
        self._trace = np.zeros((QUOTA, 2), np.int32)
        self._given = np.zeros(1, np.int32)
        cluster, contexts = runner.cluster, runner.contexts
        self.warps = len(cluster.blocks[0].warps)
        self.count = len(contexts) * self.warps
        self._left, self._ready = (
            self.memory.view(np.uint32)[place >> 2 : (place >> 2) + len(contexts)]
            for place in (layout.ORDER_LEFT, layout.ORDER_READY)
        )
        self.words(
            {
                layout.ORDER_BLOCKS: len(contexts),
                layout.ORDER_WARPS: self.warps,
                layout.ORDER_ROOM: QUOTA,
            }
        )
        counts = cluster.longs
        for offset, where in (
            (layout.ORDER_TRACE, address_of(self._trace)),
            (layout.ORDER_WAKES, address_of(counts[fast.CLUSTER_WAKES >> 3 :])),
            (layout.ORDER_CHANGES, address_of(counts[fast.CLUSTER_CHANGES >> 3 :])),
        ):
            self._longs[offset >> 3] = where
        for rank, context in enumerate(contexts):
            self._longs[(layout.ORDER_PEERS >> 3) + rank] = context.address

    def words(self, numbers: dict[int, int]) -> None:
        """Set words by their places."""
        for offset, number in numbers.items():
            self._words[offset >> 2] = number

    def word(self, offset: int) -> int:
        """A word by its place."""
        return int(self._words[offset >> 2])

    def begin(self, plan: ParsedSchedule, cluster: int) -> None:
        """A cluster begins."""
        self._words[layout.ORDER_LEFT >> 2 :] = 0
        self._left[:] = self._ready[:] = (1 << self.warps) - 1
        self.words({layout.ORDER_POLICY: plan.policy, layout.ORDER_LAST: -1})
        if plan.policy == layout.Policy.RANDOM:
            self._longs[layout.ORDER_SEED >> 3] = _seed(plan.warps, cluster)
        self.give([], asks=False)

    def renewed(
        self, resets: ResetSchedule, plan: ParsedSchedule, clusters: int
    ) -> None:
        """Tell what :meth:`begin` does in each of so many clusters."""
        last = layout.ORDER_LAST >> 2
        resets.copy(self._words[last : last + 1])
        resets.copy(self._words[layout.ORDER_LEFT >> 2 :])
        if plan.policy == layout.Policy.RANDOM:
            seed = self._longs[layout.ORDER_SEED >> 3 :][:1]
            resets.lookup(seed, _seeds(plan.warps, clusters))

    def give(self, turns: Sequence[int], asks: bool) -> None:
        """Say which warps are next, and whether to stop then."""
        self._given = np.array([*turns, 0], np.int32)
        self._longs[layout.ORDER_GIVEN >> 3] = address_of(self._given)
        self.words(
            {
                layout.ORDER_GIVEN_COUNT: len(turns),
                layout.ORDER_GIVEN_NEXT: 0,
                layout.ORDER_ASKS: asks,
            }
        )

    def given(self, place: int) -> int:
        """The warp whose turn is given there."""
        return int(self._given[place])

    @property
    def left(self) -> int:
        """The given turns that were not taken."""
        return self.word(layout.ORDER_GIVEN_COUNT) - self.word(layout.ORDER_GIVEN_NEXT)

    def run(self, launch: Launch) -> Status:
        """Take turns until something else has to happen."""
        code = launch.compiled.code
        if not self.word(layout.ORDER_ASKS):
            self._ready[:] = self._left
        self.words({layout.ORDER_MOVED: 0, layout.ORDER_TRACED: 0})
        code.steps(address_of(self.memory), code.kernel, BUDGET, QUOTA)
        return Status(self.word(layout.ORDER_STATUS))

    def gone(self, rank: int) -> bool:
        """Whether all warps of a block have ended."""
        return not self._left[rank]

    def standing(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The warps that can go on, and those that cannot, as (rank, warp)."""
        pairs = zip(self._left.tolist(), self._ready.tolist(), strict=True)
        masks = [(left & ready, left & ~ready) for left, ready in pairs]
        return tuple(
            tuple((rank, w) for rank, of in enumerate(some) for w in numbers(of))
            for some in zip(*masks, strict=True)
        )

    @property
    def trace(self) -> NDArray[np.int32]:
        """The turns that were taken last."""
        return self._trace[: self.word(layout.ORDER_TRACED)].copy()

    @property
    def last(self) -> tuple[int, int]:
        """The rank and the warp that had the last turn."""
        return divmod(self.word(layout.ORDER_LAST), self.warps)


def _seed(warps: str, cluster: int) -> int:
    """Where the random choices of a cluster begin."""
    return random.Random(f"{warps} {cluster}").getrandbits(63)


@lru_cache(4)
def _seeds(warps: str, clusters: int) -> NDArray[np.int64]:
    """The same for so many clusters, as machine code finds them."""
    return np.array([_seed(warps, each) for each in range(clusters)], np.int64)


class _Script:
    """The turns that are decided beforehand or one by one, in portions."""

    def __init__(self, runner: StepRunner, plan: ParsedSchedule, cluster: int) -> None:
        self._runner, self._cluster = runner, cluster
        self._turns = list(plan.turns.get(cluster, ()))
        self._place = 0
        self.chooser: Chooser | None = plan.chooser
        self.mark: str | tuple[str, int] | None = None
        """What is to be done after the present turns."""
        self.active = bool(self._turns) or self.chooser is not None

    def feed(self) -> None:
        """Give the turns up to the next mark to compiled code."""
        order = self._runner.order
        if not self.active or order.left:
            return
        if self._place < len(self._turns):
            order.give(self._portion(), asks=True)
            return
        chosen = None
        if self.chooser is not None:
            chosen = self.chooser.choose(self._runner.standing())
        if chosen is None:
            self.active, self.chooser = False, None
            order.give([], asks=False)
        else:
            some = self._number(chosen)
            order.give([] if some is None else [some], asks=True)

    def _portion(self) -> list[int]:
        """The turns of warps up to the next mark."""
        some: list[int] = []
        while self._place < len(self._turns):
            number = self._number(self._turns[self._place])
            self._place += 1
            if number is None:
                break
            some.append(number)
        return some

    def _number(self, turn: Turn) -> int | None:
        """The warp of a turn; None if it is a mark, which is then the next."""
        if isinstance(turn, str):
            self.mark = turn
            return None
        rank, warp = turn
        if isinstance(rank, str):
            self.mark = rank, warp
            return None
        order = self._runner.order
        blocks = order.count // order.warps
        if not (0 <= rank < blocks and 0 <= warp < order.warps):
            raise BadCall(
                f"the schedule names warp {warp} of block {rank} of cluster "
                f"{self._cluster}; blocks 0 to {blocks - 1} have warps 0 to "
                f"{order.warps - 1}"
            )
        return rank * order.warps + warp


class StepRunner(ClusterRunner):
    """Runs one cluster after the other, in turns that end at every event."""

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        assert launch.machine is not None
        self.plan = launch.machine.schedule.plan
        self.order = TurnOrder(self)
        self.recording = launch.recording
        self.recording.warps = self.order.warps
        self.script = _Script(self, self.plan, -1)
        self._last: Taken | None = None
        self._first_work = 0
        self._ends = np.zeros((QUOTA, 2), np.int64)
        for offset, number in (
            (fast.RUN_ORDER, address_of(self.order.memory)),
            (fast.RUN_TRACES, address_of(self._ends)),
            (fast.RUN_ROOM, len(self._ends)),
        ):
            self._run.longs[offset >> 3] = number
        self._run.words[fast.RUN_QUOTA >> 2] = QUOTA

    def _renewed(self) -> ResetSchedule | None:
        """What machine code needs to begin and to end clusters."""
        if self.plan.turns or self.plan.chooser is not None:
            return None
        made = super()._renewed()
        if made is not None:
            self.order.renewed(made, self.plan, self.launch.cluster_count)
        return made

    def _call_code(self, turn: int) -> None:
        self.order.words({layout.ORDER_TRACED: 0})
        self._run.traced = 0
        super()._call_code(BUDGET)
        trace, ends = self.order.trace, self._ends[: self._run.traced].copy()
        whole = int(ends[-1, 1]) if len(ends) else 0
        self.recording.add_clusters(ends, trace[:whole])
        if whole < len(trace):
            self.recording.add(self.index, trace[whole:])

    def _failed(self) -> Context:
        """The block that failed."""
        rank, warp = self.order.last
        self.contexts[rank].fail(warp)
        return self.contexts[rank]

    def _follow(self, turn: int) -> bool:
        """Go on with a cluster that has not ended in machine code, if Python has to."""
        run = self._run
        if run.spent == Status.SPENT and run.ended:
            return False  # a block has ended: the others go on there
        self.cluster.touch()
        if self._after(Status(run.spent), run.changed, bool(run.ended)):
            self._rounds(turn)
        return True

    def _prepare(self) -> None:
        """Make the order of warps ready."""
        self.order.begin(self.plan, self.index)
        self.script = _Script(self, self.plan, self.index)
        self._first_work = self.cluster.ordinal
        self._last = None

    def standing(self) -> Standing:
        """How the cluster stands, for who decides."""
        can, cannot = self.order.standing()
        return Standing(self.index, can, cannot, self._in_flight(), self._last)

    def _in_flight(self) -> tuple[int, ...]:
        left = self.cluster.unfinished
        return tuple(each.ordinal - self._first_work for each in left)

    def _rounds(self, turn: int) -> None:
        """Take turns until all ended, none can go on, or Python has to look."""
        while True:
            before = self.cluster.changes
            self.script.feed()
            status = self.order.run(self.launch)
            self._record()
            if status == Status.FAULT:
                self.failed, self.status = self._failed(), Status.FAULT
                return
            self.cluster.impatient = False
            ended = self._ended()
            if all(each.status == Status.ENDED for each in self.contexts):
                if self.order.left:
                    raise self._mismatch()
                self.status = Status.READY
                return
            self.status = Status.SPENT
            if not self._after(status, self.cluster.changes != before, ended):
                return

    def _after(self, status: Status, changed: bool, ended: bool) -> bool:
        """Whether further turns are taken now; ``ended``: blocks ended just now."""
        if changed:
            self._fruitless = 0
        if status == Status.BLOCKED and self.order.left:
            raise self._mismatch()
        if self.script.active:
            if self.order.left:
                return ended  # otherwise the quota is over
            return self._do(self.script.mark)
        if status == Status.SPENT:
            return ended
        return self._wait(changed)

    def _record(self) -> None:
        trace = self.order.trace
        self.recording.add(self.index, trace)
        if self.script.chooser is not None and len(trace):
            number, event = trace[-1].tolist()
            self._last = taken(self.launch.compiled, self.order.warps, number, event)

    def _ended(self) -> bool:
        """Whether blocks ended just now."""
        found = False
        for rank, context in enumerate(self.contexts):
            if context.status != Status.ENDED and self.order.gone(rank):
                context.status = Status.ENDED
                self.cluster.ended(context)
                found = True
        return found

    def _wait(self, changed: bool) -> bool:
        """No warp can go on: what comes next, and whether it can be done here."""
        spent = any(
            int(warp.words[layout.STATUS >> 2]) == Status.SPENT
            for warp in self._warps()
        )
        if changed:
            return self._do(LOOK)
        if spent and not all(warp.stuck for warp in self._warps()):
            return self._do(AWAY)
        if self.cluster.unfinished:
            return self._do(RELAX)
        self._fruitless += 1
        over = self._fruitless > (POLLS if spent else PATIENCE)
        return self._do(DEADLOCK if over else IMPATIENT)

    def _do(self, mark: str | tuple[str, int] | None) -> bool:
        """Do what is not a turn of a warp; whether to go on here."""
        self.script.mark = None
        if mark is None:
            return True
        number = -1
        if isinstance(mark, tuple):
            number = -_FIRST_WORK - mark[1]
        else:
            number = -1 - MARKS.index(mark)
        self.recording.add(self.index, np.array([[number, 0]], np.int32))
        try:
            if mark == RELAX:
                self.cluster.relax()
            elif isinstance(mark, tuple):
                self._finish(mark[1])
        except Stop as stop:
            self._stop(stop)
            return False
        self.cluster.impatient = mark == IMPATIENT
        if mark in (LOOK, IMPATIENT):
            self._look()
        if mark == DEADLOCK:
            self.failed = next(
                each for each in self.contexts if each.status != Status.ENDED
            )
            self.status = Status.BLOCKED
        return mark not in (AWAY, DEADLOCK)

    def _finish(self, number: int) -> None:
        """Do one piece of work."""
        for each in self.cluster.unfinished:
            if each.ordinal - self._first_work == number:
                each.finish()
                return
        known = ", ".join(map(str, self._in_flight())) or "none"
        raise BadCall(
            f"the schedule wants work {number} of cluster {self.index} to be done; in "
            f"flight are {known}"
        )

    def _mismatch(self) -> BadCall:
        """A given turn cannot be had."""
        place = self.order.word(layout.ORDER_GIVEN_NEXT)
        rank, warp = divmod(self.order.given(place), self.order.warps)
        return BadCall(
            f"the schedule names warp {warp} of block {rank} of cluster {self.index}, "
            "which has ended; it was recorded from another launch"
        )
