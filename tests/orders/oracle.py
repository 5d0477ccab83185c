"""Every interleaving of a tiny program, one after the other, with nothing left out.

This is written without a look at the explorer: no reduction, no memory of states, and
happens-before is a graph of the events of one interleaving.  Each event has two nodes,
before and after it, once for each proxy.  An access is ordered before another if a path
leads from after the first to before the second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fragmenta.ptx.ordering import Scope
from fragmenta.watch.orders.program import (
    Access,
    Arrive,
    Atomic,
    Await,
    Choose,
    ClusterArrive,
    ClusterWait,
    Commit,
    CompleteTx,
    Event,
    Events,
    Exit,
    ExpectTx,
    Fence,
    GroupWait,
    Issue,
    Load,
    MbarrierArrive,
    MbarrierInit,
    MbarrierInval,
    MbarrierRaise,
    MbarrierTest,
    MbarrierWait,
    Program,
    Proxy,
    ProxyFence,
    ReadDone,
    Span,
    Store,
    Sync,
    Unit,
    UnitWait,
)
from fragmenta.watch.orders.verdict import MisuseKind

LARGEST = 1048575


class TooMany(Exception):
    """The program has more interleavings than were asked for."""


@dataclass
class Answer:
    """What all interleavings together show."""

    hangs: set[frozenset[Any]] = field(default_factory=set)
    """Who waits where, at each end that is a hang."""
    shortest: int | None = None
    races: set[tuple[frozenset[Any], bool]] = field(default_factory=set)
    misuses: set[tuple[MisuseKind, Any]] = field(default_factory=set)
    cut: bool = False
    interleavings: int = 0


@dataclass
class Runner:
    """An agent or a unit: the event that it does next, by its path."""

    agent: int
    path: tuple[Any, ...]
    steps: Events | None
    unit: Unit | None = None
    index: int = 0
    parked: bool = False
    stopped: bool = False
    cut: bool = False
    last: int | None = None
    """The event that it did last."""

    def event(self) -> Event | None:
        if self.unit is not None:
            events: Any = self.unit.events
        else:
            assert self.steps is not None
            events = self.steps.events
        return events[self.index] if self.index < len(events) else None

    def where(self) -> tuple[Any, ...]:
        return (*self.path, self.index)


class World:
    """One interleaving so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.runners: dict[Any, Runner] = {
            number: Runner(number, (number,), each.steps)
            for number, each in enumerate(program.agents)
        }
        self.exited: dict[int, int] = {}
        self.done: dict[Any, int | None] = {}
        self.read: dict[Any, int] = {}
        self.barriers: dict[Any, list[tuple[Any, int, int | None, bool, int]]] = {}
        self.clusters: dict[Any, dict[str, Any]] = {}
        self.cluster_phase: dict[tuple[int, Any], int] = {}
        self.mbarriers: dict[Any, dict[str, Any]] = {}
        self.tokens: dict[Any, int] = {}
        self.words: dict[Any, int] = dict(program.words)
        self.writes: dict[Any, list[int]] = {}
        self.open: dict[Any, list[Any]] = {}
        self.groups: dict[Any, list[list[Any]]] = {}
        # the events so far: (runner's key, agent, event, where)
        self.log: list[tuple[Any, int, Event, Any]] = []
        self.edges: list[tuple[int, str, int, str]] = []
        """From an event's side (``in``, ``out``, ``self``) to another's."""
        self.observed: dict[int, list[int]] = {}
        """Which writes a read has observed."""
        self.waited: dict[int, list[int]] = {}
        """Which arrivals a wait has seen."""
        self.along: dict[int, list[Any]] = {}
        """The runners that wait along with an event, where they meet."""

    def copy(self) -> World:
        other = World.__new__(World)
        other.program = self.program
        other.runners = {k: Runner(**vars(v)) for k, v in self.runners.items()}
        for name in ("exited", "done", "read", "tokens", "words", "cluster_phase"):
            setattr(other, name, dict(getattr(self, name)))
        for name in ("barriers", "writes", "open", "observed", "waited", "along"):
            setattr(other, name, {k: list(v) for k, v in getattr(self, name).items()})
        other.groups = {k: [list(g) for g in v] for k, v in self.groups.items()}
        other.mbarriers = {k: copied(v) for k, v in self.mbarriers.items()}
        other.clusters = {k: copied(v) for k, v in self.clusters.items()}
        other.log = list(self.log)
        other.edges = list(self.edges)
        return other

    # ── what can happen ─────────────────────────────────────────────────────

    def units(self, names: tuple[Any, ...]) -> list[Any]:
        return [n for n in names if n in self.runners or n in self.done]

    def ready(self, key: Any) -> bool:
        runner = self.runners[key]
        event = runner.event()
        if runner.parked or runner.stopped or runner.cut or event is None:
            return False
        begins = runner.unit is not None and runner.index == 0
        before = self.units(runner.unit.after) if runner.unit is not None else []
        if begins and any(each not in self.done for each in before):
            return False
        if isinstance(event, MbarrierWait):
            barrier = self.mbarriers.get(event.mbarrier)
            return barrier is None or self.passed(key, event)
        if isinstance(event, Await):
            return event.condition.holds(self.words.get(event.word, 0))
        if isinstance(event, UnitWait):
            return all(each in self.done for each in self.units(event.units))
        if isinstance(event, GroupWait):
            groups = self.groups.get(event.group, [])
            needed = groups[: max(len(groups) - event.pending, 0)]
            return all(
                each in self.done or (event.read and each in self.read)
                for group in needed
                for each in group
            )
        if isinstance(event, ClusterWait):
            mine = self.cluster_phase.get((runner.agent, event.barrier))
            return mine is None or self.clusters[event.barrier]["phase"] > mine
        return True

    def passed(self, key: Any, event: MbarrierWait | MbarrierTest) -> bool:
        parity = event.parity
        if event.token is not None:
            parity = self.tokens[key, event.token] % 2
        return bool(self.mbarriers[event.mbarrier]["phase"] % 2 != parity)

    # ── one event ───────────────────────────────────────────────────────────

    def run(self, key: Any, choice: int | None = None) -> MisuseKind | None:
        runner = self.runners[key]
        event = runner.event()
        assert event is not None
        me = len(self.log)
        self.log.append((key, runner.agent, event, runner.where()))
        if runner.last is not None:
            self.edges.append((runner.last, "out", me, "in"))
        if runner.unit is not None and runner.index == 0:
            for each in self.units(runner.unit.after):
                self.after_unit(each, me, "in")
        runner.last = me
        where = getattr(event, "along", None)
        if where is not None:
            self.along[me] = [
                other
                for other, each in self.runners.items()
                if getattr(each.event(), "barrier", None) == where
            ]
        value = getattr(self, f"on_{type(event).__name__}")(key, event, me)
        if isinstance(value, MisuseKind):
            runner.stopped = True
            return value
        if isinstance(event, Choose):
            value = choice
        if key in self.runners and not runner.parked and not isinstance(event, Sync):
            self.move_on(runner, value)
        self.finish_units()
        return None

    def move_on(self, runner: Runner, value: int | None) -> None:
        here = runner.where()
        runner.index += 1
        if runner.unit is not None or runner.event() is not None:
            return
        assert runner.steps is not None
        if value is not None and value in runner.steps.after:
            runner.path = (*here, value)
            runner.steps = runner.steps.after[value]
            runner.index = 0
        else:
            runner.cut = True

    def finish_units(self) -> None:
        again = True
        while again:
            again = False
            for key, runner in list(self.runners.items()):
                if runner.unit is None or runner.event() is not None or runner.stopped:
                    continue
                if runner.index == 0 and any(
                    each not in self.done for each in self.units(runner.unit.after)
                ):
                    continue
                self.done[key] = runner.last
                del self.runners[key]
                again = True

    def after_unit(self, name: Any, me: int, side: str) -> None:
        last = self.done[name]
        if last is not None:
            self.edges.append((last, "out", me, side))
        # a unit without events: what it waited for is before it, too
        for each in self.program.agents:
            for unit in units_of(each.steps):
                if unit.name == name and not unit.events:
                    for other in self.units(unit.after):
                        self.after_unit(other, me, side)

    # memory, fences

    def on_Access(self, key: Any, event: Access, me: int) -> None:
        pass

    on_Fence = on_ProxyFence = on_Choose = on_Access

    def on_ReadDone(self, key: Any, event: ReadDone, me: int) -> None:
        self.read[key] = me

    def on_Issue(self, key: Any, event: Issue, me: int) -> None:
        runner = self.runners[key]
        unit = event.unit
        path = (*runner.where(), "unit")
        self.runners[unit.name] = Runner(runner.agent, path, None, unit, last=me)
        if unit.group is not None:
            self.open.setdefault(unit.group, []).append(unit.name)

    def on_Commit(self, key: Any, event: Commit, me: int) -> None:
        self.groups.setdefault(event.group, []).append(self.open.pop(event.group, []))

    def on_GroupWait(self, key: Any, event: GroupWait, me: int) -> None:
        groups = self.groups.get(event.group, [])
        for group in groups[: max(len(groups) - event.pending, 0)]:
            for each in group:
                if event.read and each in self.read:
                    self.edges.append((self.read[each], "out", me, "out"))
                else:
                    self.after_unit(each, me, "out")

    def on_UnitWait(self, key: Any, event: UnitWait, me: int) -> None:
        for each in self.units(event.units):
            self.after_unit(each, me, "out")

    # barriers

    def size(self, block: int, count: int | None) -> int:
        if count is not None:
            return count
        return sum(
            each.threads
            for number, each in enumerate(self.program.agents)
            if each.block == block and number not in self.exited
        )

    def on_Sync(self, key: Any, event: Sync | Arrive, me: int) -> MisuseKind | None:
        here = self.barriers.setdefault(event.barrier, [])
        block = event.barrier.block
        if any(who == key for who, *_ in here):
            return MisuseKind.ARRIVED_TWICE
        count = here[0][2] if here else event.count
        if self.size(block, count) != self.size(block, event.count):
            return MisuseKind.OTHER_COUNT
        arrived = sum(threads for _, threads, *_ in here) + event.threads
        if arrived > self.size(block, count):
            return MisuseKind.TOO_MANY_THREADS
        waits = isinstance(event, Sync)
        here.append((key, event.threads, count, waits, me))
        self.runners[key].parked = waits
        self.check_barrier(event.barrier)
        return None

    on_Arrive = on_Sync

    def check_barrier(self, barrier: Any) -> None:
        here = self.barriers.get(barrier, [])
        if not here:
            return
        count = here[0][2]
        if sum(each[1] for each in here) < self.size(barrier.block, count):
            return
        before = [each[4] for each in here]
        if count is None:
            agents = self.program.agents
            before += [
                e for n, e in self.exited.items() if agents[n].block == barrier.block
            ]
        self.barriers[barrier] = []
        for who, _, _, waits, me in here:
            if waits:
                self.edges += [(other, "in", me, "wait") for other in before]
                self.edges.append((me, "wait", me, "out"))
                self.runners[who].parked = False
                self.move_on(self.runners[who], None)

    def on_ClusterArrive(
        self, key: Any, event: ClusterArrive, me: int
    ) -> MisuseKind | None:
        here = self.clusters.setdefault(
            event.barrier, {"phase": 0, "now": {}, "last": []}
        )
        if (key, event.barrier) in self.cluster_phase:
            return MisuseKind.ARRIVED_TWICE
        self.cluster_phase[key, event.barrier] = here["phase"]
        here["now"][key] = me
        self.check_cluster(event.barrier)
        return None

    def check_cluster(self, barrier: Any) -> None:
        here = self.clusters.get(barrier)
        if here is None or not here["now"]:
            return
        for number, agent in enumerate(self.program.agents):
            if agent.cluster != barrier.cluster or number in self.exited:
                continue
            if number not in here["now"]:
                return
        here["last"] = list(here["now"].values()) + [
            event
            for number, event in self.exited.items()
            if number not in here["now"]
            and self.program.agents[number].cluster == barrier.cluster
        ]
        here["now"] = {}
        here["phase"] += 1

    def on_ClusterWait(
        self, key: Any, event: ClusterWait, me: int
    ) -> MisuseKind | None:
        if self.cluster_phase.pop((key, event.barrier), None) is None:
            return MisuseKind.WAIT_WITHOUT_ARRIVAL
        self.waited[me] = list(self.clusters[event.barrier]["last"])
        return None

    def on_Exit(self, key: Any, event: Exit, me: int) -> None:
        del self.runners[key]
        self.exited[key] = me
        for barrier, here in list(self.barriers.items()):
            if here and here[0][2] is None:
                self.check_barrier(barrier)
        for barrier in list(self.clusters):
            self.check_cluster(barrier)

    # mbarriers

    def on_MbarrierInit(
        self, key: Any, event: MbarrierInit, me: int
    ) -> MisuseKind | None:
        old = self.mbarriers.get(event.mbarrier)
        if old is not None and (old["pending"] != old["expected"] or old["tx"] != 0):
            return MisuseKind.INITIALISED_TWICE
        if event.count < 1 or event.count > LARGEST:
            return MisuseKind.BAD_COUNT
        self.mbarriers[event.mbarrier] = {
            "phase": 0,
            "pending": event.count,
            "expected": event.count,
            "tx": 0,
            "now": [],
            "last": [],
        }
        return None

    def on_MbarrierInval(
        self, key: Any, event: MbarrierInval, me: int
    ) -> MisuseKind | None:
        if event.mbarrier not in self.mbarriers:
            return MisuseKind.NOT_INITIALISED
        del self.mbarriers[event.mbarrier]
        return None

    def on_MbarrierArrive(
        self, key: Any, event: MbarrierArrive, me: int
    ) -> MisuseKind | None:
        barrier = self.mbarriers.get(event.mbarrier)
        if barrier is None:
            return MisuseKind.NOT_INITIALISED
        if abs(barrier["tx"] + event.expect) > LARGEST:
            return MisuseKind.TOO_MANY_BYTES
        if event.count > barrier["pending"]:
            return MisuseKind.TOO_MANY_ARRIVALS
        last = barrier["pending"] == event.count and barrier["tx"] + event.expect == 0
        if last and event.no_complete:
            return MisuseKind.COMPLETED
        barrier["tx"] += event.expect
        barrier["pending"] -= event.count
        if event.drop:
            barrier["expected"] -= event.count
        if event.token is not None:
            self.tokens[key, event.token] = barrier["phase"]
        barrier["now"].append(me)
        self.check_mbarrier(barrier)
        return None

    def check_mbarrier(self, barrier: dict[str, Any]) -> None:
        if barrier["pending"] == 0 and barrier["tx"] == 0:
            barrier["phase"] += 1
            barrier["pending"] = barrier["expected"]
            barrier["last"], barrier["now"] = barrier["now"], []

    def on_MbarrierRaise(
        self, key: Any, event: MbarrierRaise, me: int
    ) -> MisuseKind | None:
        barrier = self.mbarriers.get(event.mbarrier)
        if barrier is None:
            return MisuseKind.NOT_INITIALISED
        barrier["pending"] += event.count
        return None

    def on_ExpectTx(self, key: Any, event: ExpectTx, me: int) -> MisuseKind | None:
        return self.bytes(event.mbarrier, event.bytes)

    def on_CompleteTx(self, key: Any, event: CompleteTx, me: int) -> MisuseKind | None:
        barrier = self.mbarriers.get(event.mbarrier)
        if barrier is not None and abs(barrier["tx"] - event.bytes) <= LARGEST:
            barrier["now"].append(me)
        return self.bytes(event.mbarrier, -event.bytes)

    def bytes(self, mbarrier: Any, count: int) -> MisuseKind | None:
        barrier = self.mbarriers.get(mbarrier)
        if barrier is None:
            return MisuseKind.NOT_INITIALISED
        if abs(barrier["tx"] + count) > LARGEST:
            return MisuseKind.TOO_MANY_BYTES
        barrier["tx"] += count
        self.check_mbarrier(barrier)
        return None

    def on_MbarrierTest(
        self, key: Any, event: MbarrierTest | MbarrierWait, me: int
    ) -> MisuseKind | int:
        if event.mbarrier not in self.mbarriers:
            return MisuseKind.NOT_INITIALISED
        if not self.passed(key, event):
            return 0
        self.waited[me] = list(self.mbarriers[event.mbarrier]["last"])
        return 1

    on_MbarrierWait = on_MbarrierTest

    # words

    def on_Load(self, key: Any, event: Load | Await, me: int) -> int:
        self.observe(event.word, me)
        return self.words.get(event.word, 0)

    def on_Store(self, key: Any, event: Store, me: int) -> None:
        self.words[event.word] = event.value % 2 ** (8 * event.word.size)
        self.writes[event.word] = [me]

    def on_Atomic(self, key: Any, event: Atomic, me: int) -> int | None:
        old = self.update(event, me)
        if event.result is not None:
            self.words[event.result] = old
            self.writes[event.result] = [me]
        return old if event.returns else None

    def on_Await(self, key: Any, event: Await, me: int) -> int:
        if event.update is None:
            return self.on_Load(key, event, me)
        return self.update(event.update, me)

    def update(self, event: Atomic, me: int) -> int:
        self.observe(event.word, me)
        old = self.words.get(event.word, 0)
        new = {
            "add": old + event.operand,
            "exch": event.operand,
            "cas": event.operand if old == event.compare else old,
            "take": max(old - 1, 0),
            "max": max(old, event.operand),
        }[event.operation]
        self.words[event.word] = new % 2 ** (8 * event.word.size)
        chain = self.observed.get(me, [])
        self.writes[event.word] = [*chain, me]
        return old

    def observe(self, word: Any, me: int) -> None:
        """Read the value that the last write left; earlier writes of its chain, too."""
        chain = self.writes.get(word, [])
        if chain and self.strong(chain[-1], me):
            self.observed[me] = list(chain)

    # ── happens-before ──────────────────────────────────────────────────────

    def strong(self, one: int, other: int, *scopes: Scope) -> bool:
        """Whether the agents of two events are in the scopes of both."""
        events = [self.log[one][2], self.log[other][2]]
        narrow = min([*(getattr(e, "scope", Scope.SYS) for e in events), *scopes])
        a, b = (self.program.agents[self.log[each][1]] for each in (one, other))
        if narrow == Scope.CTA:
            return a.block == b.block
        return narrow > Scope.CLUSTER or a.cluster == b.cluster

    def fences(self, me: int, before: bool) -> list[int]:
        """Fences before or after an event, of its runner and of those along with it."""
        keys = [self.log[me][0], *self.along.get(me, [])]
        return [
            index
            for index, (other, _, event, _) in enumerate(self.log)
            if other in keys
            and isinstance(event, Fence)
            and (index < me) == before
            and (event.order.releases if before else event.order.acquires)
        ]

    def releases(self, me: int) -> list[int]:
        """The events that hand over at an event: itself, or fences before it."""
        own = [me] if self.log[me][2].order.releases else []  # type: ignore[union-attr]
        return own + self.fences(me, True)

    def acquires(self, me: int) -> list[int]:
        own = [me] if self.log[me][2].order.acquires else []  # type: ignore[union-attr]
        return own + self.fences(me, False)

    def synchronised(self) -> list[tuple[int, str, int, str]]:
        """Edges from releases to acquires."""
        found: list[tuple[int, str, int, str]] = []
        for reader, writes in self.observed.items():
            for write in writes:
                found.append((write, "self", reader, "out"))
                found += [
                    (giver, "out", taker, "out")
                    for giver in self.releases(write)
                    for taker in self.acquires(reader)
                    if self.strong(giver, taker)
                ]
        for waiter, arrivals in self.waited.items():
            cluster = isinstance(self.log[waiter][2], ClusterWait)
            for arrival in arrivals:
                event = self.log[arrival][2]
                if isinstance(event, Exit):
                    givers = [arrival]
                else:
                    givers = self.releases(arrival)
                for giver in givers:
                    for taker in self.acquires(waiter):
                        scopes = [self.scope(each) for each in (arrival, waiter)]
                        if cluster:
                            fence = self.log[giver][2]
                            ok = not isinstance(fence, Fence) or fence.scope >= 1
                        else:
                            ok = self.strong(giver, taker, *scopes)
                        if ok:
                            found.append((giver, "out", taker, "out"))
        return found

    def scope(self, me: int) -> Scope:
        found: Scope = getattr(self.log[me][2], "scope", Scope.SYS)
        return found

    def races(self) -> set[tuple[frozenset[Any], bool]]:
        sides = [
            (me, *side)
            for me, (_, _, event, _) in enumerate(self.log)
            for side in accesses(event)
        ]
        pairs = [
            (first, second)
            for first in sides
            for second in sides
            if first[0] < second[0] and self.collide(first, second)
        ]
        if not pairs:
            return set()
        before = self.graph()
        known: dict[Any, frozenset[Any]] = {}

        def reached(node: Any) -> frozenset[Any]:
            if node not in known:
                found = {node}
                for each in before.get(node, ()):
                    found |= reached(each)
                known[node] = frozenset(found)
            return known[node]

        races = set()
        for first, second in pairs:
            verdict = self.ordered(first, second, reached)
            if verdict != "ordered":
                names = [(self.log[e[0]][3], e[1]) for e in (first, second)]
                races.add((frozenset(names), verdict == "fence"))
        return races

    def graph(self) -> dict[Any, list[Any]]:
        """What is directly before each side of each event, in each plane."""
        before: dict[Any, list[Any]] = {}
        for a, side, b, other in [*self.edges, *self.synchronised()]:
            for plane in "ga":
                if side == "self" and plane == "a":
                    continue
                before.setdefault((b, other, plane), []).append((a, side, plane))
        for me, (_, _, event, _) in enumerate(self.log):
            for plane in "ga":
                into = before.setdefault((me, "out", plane), [])
                into.append((me, "in", plane))
            if isinstance(event, ProxyFence):
                before[me, "out", "a"].append((me, "in", "g"))
        return before

    def collide(self, first: Any, second: Any) -> bool:
        """Whether two sides of events share a byte, and may not."""
        (i, name, spans, _, scope), (j, other, others, _, scope2) = first, second
        if name == other == "read":
            return False
        if scope is not None and scope2 is not None and self.strong(i, j):
            return False
        return any(
            a.space == b.space and a.start < b.stop and b.start < a.stop
            for a in spans
            for b in others
        )

    def ordered(self, first: Any, second: Any, reached: Any) -> str:
        i, name, _, proxy, _ = first
        starts = {(i, "out", "g"), (i, "self", "g")}
        if name == "read" or proxy is not Proxy.GENERIC:
            starts.add((i, "out", "a"))
        j, _, _, through, _ = second
        generic = starts & reached((j, "in", "g"))
        if through is not Proxy.ASYNC:
            return "ordered" if generic else "race"
        if starts & reached((j, "in", "a")):
            return "ordered"
        return "fence" if generic else "race"


def copied(thing: dict[str, Any]) -> dict[str, Any]:
    return {k: v.copy() if isinstance(v, list | dict) else v for k, v in thing.items()}


def units_of(steps: Events) -> list[Unit]:
    found = [each.unit for each in steps.events if isinstance(each, Issue)]
    for each in steps.after.values():
        found += units_of(each)
    return found


def accesses(event: Event) -> list[tuple[str, tuple[Span, ...], Proxy, Scope | None]]:
    """The sides of an event that access memory: a name, bytes, proxy, scope."""
    if isinstance(event, Access):
        found = []
        if event.reads:
            found.append(("read", event.reads, event.proxy, event.scope))
        if event.writes:
            found.append(("write", event.writes, event.proxy, event.scope))
        return found
    if isinstance(event, Load | Store | Atomic | Await):
        words = [event.word]
        if isinstance(event, Atomic) and event.result is not None:
            words.append(event.result)
        spans = tuple(Span(w.space, w.address, w.address + w.size) for w in words)
        reads = isinstance(event, Load) or (
            isinstance(event, Await) and event.update is None
        )
        name = "read" if reads else "write"
        return [(name, spans, Proxy.GENERIC, event.scope)]
    return []


def answer(program: Program, most: int) -> Answer:
    """Run every interleaving of a program; :class:`TooMany` if there are too many."""
    found = Answer()

    def visit(world: World) -> None:
        ready = [key for key in world.runners if world.ready(key)]
        if not ready:
            found.interleavings += 1
            if found.interleavings > most:
                raise TooMany
            conclude(world, found)
        for key in ready:
            event = world.runners[key].event()
            values = event.values if isinstance(event, Choose) else (None,)
            for value in values:
                other = world.copy()
                kind = other.run(key, value)
                if kind is not None:
                    found.misuses.add((kind, other.log[-1][3]))
                visit(other)

    visit(World(program))
    return found


def conclude(world: World, found: Answer) -> None:
    found.races |= world.races()
    left = list(world.runners.values())
    found.cut |= any(each.cut for each in left)
    ended = any(each.cut or each.stopped for each in left)
    if any(each.unit is None for each in left) and not ended:
        found.hangs.add(frozenset(each.where() for each in left))
        if found.shortest is None or len(world.log) < found.shortest:
            found.shortest = len(world.log)
