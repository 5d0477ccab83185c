"""Makes programs of :mod:`fragmenta.watch.orders` from the logs of a launch.

Clusters that share no word through which they synchronise are programs of their own.
Clusters that do the same are one program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import NamedTuple, TypeGuard

import numpy as np

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt.layout import RANK_BITS, SHARED_SLOT, SLOT_BITS
from fragmenta.engine.units.events import numbers
from fragmenta.engine.units.work import Range
from fragmenta.errors import ranges
from fragmenta.launch.orders.contested import awaited, components
from fragmenta.launch.orders.lanes import groups
from fragmenta.launch.orders.loops import Loops
from fragmenta.launch.orders.loops import condition as plain
from fragmenta.launch.orders.spans import Spans, Users, in_global, piece
from fragmenta.launch.orders.word_events import (
    OBSERVING,
    SUMS,
    fence,
    named_scope,
    word_events,
)
from fragmenta.ptx import families
from fragmenta.ptx.ordering import Scope
from fragmenta.watch.orders import program as said
from fragmenta.watch.orders.program import Events, Order, Program, Proxy
from fragmenta.watch.races.recording.log import (
    Action,
    Arrives,
    ClusterArrived,
    ClusterWaited,
    Counted,
    Entry,
    Exited,
    Fenced,
    Flag,
    Flying,
    Initialised,
    Issued,
    Joined,
    Log,
    Met,
    Peeked,
    Place,
    Touched,
    Until,
    Waited,
)

PROXIES = {each.value: each for each in Proxy}


class Who(NamedTuple):
    """Whom an agent of a program stands for."""

    block: int
    """In the grid, of the first cluster that the program is of."""
    warp: int
    lanes: int
    whole: bool
    """Whether these are all lanes of the warp."""


@dataclass(eq=False)
class ClusterProgram:
    """A program, and what it was made of."""

    program: Program
    agents: list[Who]
    clusters: list[int]
    """The clusters that do this."""
    units: dict[Hashable, Flying] = field(default_factory=dict)
    """Work in flight, by the names of units."""
    words: set[int] = field(default_factory=set)
    """The addresses of words that are waited for, or that decide something."""
    together: set[int] = field(default_factory=set)
    """Where lanes that diverged waited with one instruction, as sites."""

    def number(self, who: Who) -> int | None:
        """The number of an agent; None if these lanes are no agent."""
        same = (n for n, each in enumerate(self.agents) if each[:3] == who[:3])
        return next(same, None)


def parts(
    logs: list[Log],
    deciding: set[int],
    more: set[int],
    loops: Loops,
    values: Mapping[int, int],
    run: int = 0,
    seen: Sequence[Log] = (),
) -> list[ClusterProgram]:
    """The programs of a launch.

    ``deciding`` are sites of strong accesses whose value decides what follows, ``more``
    the addresses of words that are to be part of it, and ``values`` what words hold at
    first, by address.  ``run`` is part of the names of units, so that those of several
    recorded runs differ.  ``seen`` are the logs of all these runs: what an agent does
    in one of them may race with what another does in another.
    """
    words = awaited([*logs, *seen], deciding | loops.sources) | more
    found: dict[object, ClusterProgram] = {}
    for some in components(logs, words):
        made = _Builder(some, words, deciding, loops, values, run, seen).part()
        agents = [_spelled(each) for each in made.program.agents]
        key = repr((agents, sorted(map(repr, made.program.words.items()))))
        if len(some) == 1 and key in found:
            found[key].clusters += made.clusters
        else:
            found[key] = made
    return list(found.values())


def _spelled(agent: said.Agent) -> list[str]:
    """What tells agents apart.  A loop that observes values makes deep steps."""
    found = [repr((agent.name, agent.block, agent.threads, agent.cluster))]
    left = [(0, agent.steps)]
    while left:
        value, steps = left.pop()
        found.append(repr((value, steps.events, len(steps.after), steps.cut)))
        left += steps.after.items()
    return found


def asks_for_clusters(logs: list[Log]) -> bool:
    """Whether a cluster asks for the work of one that has not begun."""
    return any(
        isinstance(entry.action, Issued)
        and entry.action.work.name.startswith("clusterlaunchcontrol.try_cancel")
        for log in logs
        for entries in log.entries.values()
        for entry in entries
    )


_STOPPED = (
    "the recorded run stopped before all threads had ended: what those do next is not "
    "known, and was not explored"
)


class _Agent:
    """A group of lanes while its events are collected."""

    def __init__(self, number: int, who: Who, rank: int, log: Log) -> None:
        self.number, self.who, self.rank, self.log = number, who, rank, log
        self.events: list[said.Event] = []
        self.reads: dict[int, list[Spans]] = {}
        self.writes: dict[int, list[Spans]] = {}
        self.fresh = False
        """Whether anything happened since the lanes last met others."""
        self.met: int | None = None
        """The number of their last meeting with others of the warp; None: of none."""
        self.waited: dict[tuple[str, int, int, int], int] = {}
        """The first epoch of each queue that was not waited for."""
        self.read: dict[tuple[str, int, int, int], int] = {}
        """The same for waits until sources are read."""
        self.ended = False
        self.branches: list[tuple[int, int]] = []
        """Where the value of the last event decides what follows: how many events
        there were, and the value."""

    def steps(self) -> Events:
        """Its events, as far as they are known, as a tree of one branch."""
        last = self.branches[-1][0] if self.branches else 0
        cut = "" if self.ended else _STOPPED
        made = Events(self.events[last:], {}, cut)
        for index in reversed(range(len(self.branches))):
            start = self.branches[index - 1][0] if index else 0
            end, value = self.branches[index]
            made = Events(self.events[start:end], {value: made})
        return made

    @property
    def threads(self) -> int:
        return self.who.lanes.bit_count()


class _Builder:
    """Makes one program of one or several clusters."""

    def __init__(
        self,
        logs: list[Log],
        words: set[int],
        deciding: set[int],
        loops: Loops,
        values: Mapping[int, int],
        run: int,
        seen: Sequence[Log],
    ) -> None:
        self.logs, self.words, self.deciding = logs, words, deciding
        self.seen = seen
        self.loops = loops
        self._first, self._run = values, run
        self._words = np.array(sorted(words), np.int64)
        self.users = Users()
        self.agents: list[_Agent] = []
        self.by_warp: dict[tuple[int, int, int], list[_Agent]] = {}
        """By the number of the log, rank and warp."""
        self.units: dict[Flying, Hashable] = {}
        self.limits: list[str] = []
        self.values: dict[said.Word, int] = {}
        self.together: set[int] = set()
        self._told_from_afar: set[tuple[int, Place]] = set()
        """Mbarriers that work of other blocks signals, with the number of the log."""

    def part(self) -> ClusterProgram:
        """The program."""
        for number, log in enumerate(self.logs):
            for (rank, warp), entries in sorted(log.entries.items()):
                self._divide(number, log, rank, warp, entries)
        self._look_at_memory()
        for number, log in enumerate(self.logs):
            batches = _Batches(log)
            for (rank, warp), entries in sorted(log.entries.items()):
                _Walk(self, number, log, rank, warp, batches).all(entries)
            if log.cut:
                self.limits.append(log.cut)
        made = [
            said.Agent(
                self.name(each),
                self.block(each.log, each.rank),
                each.threads,
                each.steps(),
                self.cluster(each.log),
            )
            for each in self.agents
        ]
        if self.users.full:
            self.limits.append(self.users.full)
        program = Program(made, self.values, self.limits)
        clusters = [log.cluster for log in self.logs]
        units = {name: flying for flying, name in self.units.items()}
        agents = [each.who for each in self.agents]
        return ClusterProgram(
            program, agents, clusters, units, self.words, self.together
        )

    def unit(self, work: Flying) -> Hashable:
        """A name for work in flight."""
        self.units[work] = name = (self._run, len(self.units))
        return name

    def _divide(
        self, number: int, log: Log, rank: int, warp: int, entries: list[Entry]
    ) -> None:
        found = groups(entries, self.words)
        several = []
        for lanes in found:
            who = Who(log.blocks[rank], warp, lanes, len(found) == 1)
            several.append(_Agent(len(self.agents), who, rank, log))
            self.agents.append(several[-1])
        self.by_warp[number, rank, warp] = several

    # ── names ───────────────────────────────────────────────────────────────

    def cluster(self, log: Log) -> int:
        """The number of a cluster."""
        return 0 if len(self.logs) == 1 else log.cluster

    def block(self, log: Log, rank: int) -> int:
        """The block of a rank: of one cluster the rank, so that clusters compare."""
        return rank if len(self.logs) == 1 else log.blocks[rank]

    def mbarrier(self, log: Log, place: Place) -> said.Mbarrier:
        """An mbarrier."""
        return said.Mbarrier(self.block(log, place[0]), place[1])

    def name(self, agent: _Agent) -> str:
        """The name of an agent."""
        who, log = agent.who, agent.log
        name = f"warp {who.warp}"
        if not who.whole:
            several = who.lanes & (who.lanes - 1)
            name += f" lane{'s' * bool(several)} {ranges(list(numbers(who.lanes)))}"
        if len(log.blocks) > 1 or len(self.logs) > 1:
            name += f" of block {self.block(log, agent.rank)}"
        return name

    def place(self, agent: _Agent, address: int, size: int) -> said.Word:
        """The memory at an address."""
        if address >> SLOT_BITS != SHARED_SLOT:
            return said.Word(f"global:{address >> SLOT_BITS}", address, size)
        offset = address & (1 << SLOT_BITS) - 1
        block = self.block(agent.log, offset >> RANK_BITS & 0xFF)
        return said.Word(f"shared:{block}", offset & (1 << RANK_BITS) - 1, size)

    def word(self, agent: _Agent, address: int, size: int) -> said.Word:
        """The word at an address, through which threads synchronise."""
        made = self.place(agent, address, size)
        self.values.setdefault(made, self._first.get(address, 0))
        return made

    def wait_scope(self, number: int, action: Waited) -> Scope:
        """Whose arrivals a wait acquires.

        A copy of another block tells all who wait where it writes.
        """
        far = (number, action.mbarrier) in self._told_from_afar
        return Scope.CLUSTER if far else named_scope(action.words)

    def stored(self, action: Touched) -> list[tuple[int, int, int]]:
        """Ordinary stores to words through which threads synchronise.

        For each the lane, the address and the value.
        """
        if not action.write or action.values is None or not self._words.size:
            return []
        there = np.isin(action.addresses, self._words)
        columns = action.lanes[there], action.addresses[there], action.values[there]
        return list(zip(*(each.tolist() for each in columns), strict=True))

    # ── memory ──────────────────────────────────────────────────────────────

    def _look_at_memory(self) -> None:
        """Find the bytes that several agents use."""
        follows: dict[Hashable, int] = {}
        numbered = {log.cluster: number for number, log in enumerate(self.logs)}
        every = {id(log): log for log in (*self.logs, *self.seen)}
        for log in every.values():
            number = numbered.get(log.cluster, -1)
            for (rank, warp), entries in log.entries.items():
                own = self.by_warp.get((number, rank, warp), [])
                if number < 0:
                    continue
                for entry in entries:
                    if isinstance(entry.action, Touched):
                        for agent in own:
                            for each in self.touched(agent, entry.action):
                                self.users.add(each, entry.action.write, agent.number)
                    elif self.synchronises(entry.action):
                        writes = entry.action.opcode in families.WRITES
                        for agent in own:
                            if agent.who.lanes & entry.lanes:
                                each = self.flagged(agent, entry.action)
                                self.users.add(each, writes, agent.number, strong=True)
                    elif isinstance(entry.action, Issued):
                        flying = entry.action.work
                        work = number, rank, warp, entry.site, flying.ordinal
                        follow = len(self.agents) + len(follows)
                        follow = follows.setdefault(work, follow)
                        for place, *_ in flying.signals:
                            if place[0] != rank:
                                self._told_from_afar.add((number, place))
                        for found, write in (
                            (flying.reads, False),
                            (flying.writes, True),
                        ):
                            for each in self.ranged(log, found):
                                self.users.add(each, write, follow)

    def touched(self, agent: _Agent, action: Touched) -> Iterator[Spans]:
        """What the lanes of an agent access."""
        mine = (agent.who.lanes >> action.lanes & 1).astype(bool)
        addresses = action.addresses[mine]
        if not addresses.size:
            return
        if not action.shared:
            yield from in_global(addresses, action.size)
            return
        ranks = addresses >> RANK_BITS & 0xFF
        for rank in sorted(set(ranks.tolist())):
            block = self.block(agent.log, rank)
            offsets = addresses[ranks == rank] & (1 << RANK_BITS) - 1
            yield Spans(f"shared:{block}", offsets, action.size)

    def synchronises(self, action: Action) -> TypeGuard[Flag]:
        """Whether it is a strong access through which threads synchronise."""
        return isinstance(action, Flag) and action.address in self.words

    def flagged(self, agent: _Agent, action: Flag) -> Spans:
        """The word that a strong access is about."""
        word = self.place(agent, action.address, action.size)
        return Spans(word.space, np.array([word.address], np.int64), word.size)

    def ranged(self, log: Log, found: Iterable[Range]) -> Iterator[Spans]:
        """What work accesses."""
        for each in found:
            if each.bytes:
                yield from piece(each, self.block(log, max(0, each.rank)))


class _Batches:
    """Products that the warps of a warpgroup issue without anything in between."""

    def __init__(self, log: Log) -> None:
        self.works: dict[tuple[int, int], list[Flying]] = defaultdict(list)
        """By rank and warpgroup: the products in order."""
        joined: dict[tuple[int, int], list[list[bool]]] = defaultdict(list)
        for (rank, warp), entries in sorted(log.entries.items()):
            joined[rank, warp // 4].append(_adjacent(entries))
            for entry in entries:
                if isinstance(entry.action, Issued) and _is_product(entry.action.work):
                    self.works[rank, warp // 4].append(entry.action.work)
        self.first: dict[tuple[int, int], list[bool]] = {}
        """Whether a product begins a batch."""
        for key, several in joined.items():
            self.works[key].sort(key=lambda work: work.ordinal)
            count = min(map(len, several))
            self.first[key] = [
                not all(each[product] for each in several) for product in range(count)
            ]

    def batch(self, key: tuple[int, int], product: int) -> list[Flying] | None:
        """The products of the batch that begins with one; None if none does."""
        first, works = self.first[key], self.works[key]
        if product >= len(first) or not first[product]:
            return None
        end = product + 1
        while end < len(first) and not first[end]:
            end += 1
        return works[product:end]


def _is_product(work: Flying) -> bool:
    return work.queue[0] in families.WARPGROUP


def _adjacent(entries: list[Entry]) -> list[bool]:
    """For each product of a warp, whether it follows another with nothing between."""
    found, quiet = [], False
    for entry in entries:
        action = entry.action
        if isinstance(action, Met) and action.warpgroup:
            found.append(quiet)
            quiet = True
        elif isinstance(action, Issued) and _is_product(action.work):
            continue
        elif not isinstance(action, Met):
            quiet = False
    return found


class _Walk:
    """Adds the entries of one warp to the events of its agents."""

    def __init__(
        self,
        builder: _Builder,
        number: int,
        log: Log,
        rank: int,
        warp: int,
        batches: _Batches,
    ) -> None:
        self.builder, self.log, self.rank, self.warp = builder, log, rank, warp
        self.number = number
        self.agents = builder.by_warp[number, rank, warp]
        self.block = builder.block(log, rank)
        self.batches, self.products, self.meetings = batches, 0, 0
        self._polled: dict[tuple[int, int], tuple[int, bool]] = {}

    def all(self, entries: list[Entry]) -> None:
        """Add all entries, in order."""
        for index, entry in enumerate(entries):
            self._one(entries, index, entry)
        for agent in self.agents:
            self._flush(agent)

    def _of(self, entry: Entry) -> list[_Agent]:
        return [each for each in self.agents if each.who.lanes & entry.lanes]

    def _put(self, agent: _Agent, event: said.Event) -> None:
        self._flush(agent)
        agent.events.append(event)
        agent.fresh = True

    def _flush(self, agent: _Agent) -> None:
        """Add the plain accesses since the last event."""
        users = self.builder.users
        for site in sorted({*agent.reads, *agent.writes}):
            reads = users.contested(agent.reads.get(site, ()))
            writes = users.contested(agent.writes.get(site, ()))
            if reads or writes:
                agent.events.append(said.Access(reads, writes, place=site))
                agent.fresh = True
        agent.reads.clear()
        agent.writes.clear()

    def _one(self, entries: list[Entry], index: int, entry: Entry) -> None:
        action = entry.action
        match action:
            case Touched():
                for agent in self._of(entry):
                    kept = agent.writes if action.write else agent.reads
                    found = self.builder.touched(agent, action)
                    kept.setdefault(entry.site, []).extend(found)
                for lane, address, value in self.builder.stored(action):
                    for agent in self.agents:
                        if agent.who.lanes >> lane & 1:
                            word = self.builder.word(agent, address, action.size)
                            self._put(agent, said.Store(word, value, place=entry.site))
            case Met():
                self._meet(entry, action)
            case Issued():
                if not _is_product(action.work):
                    self._issue(self._of(entry)[0], entry.site, action.work)
            case Flag():
                self._flag(entry, action)
            case Peeked():
                self._peeked(entries, index, entry, action)
            case Waited() | Joined() if len(self._of(entry)) > 1:
                self._together(entry)
            case _:
                for agent in self._of(entry):
                    share = (agent.who.lanes & entry.lanes).bit_count()
                    for event in self._events(agent, entry, share, entries, index):
                        self._put(agent, event)

    # ── lanes meet ──────────────────────────────────────────────────────────

    def _together(self, entry: Entry) -> None:
        """Lanes that waited with one instruction do so in every order.

        Compilers let lanes meet again after a branch.  So one of the groups waits, and
        the others go on with it.
        """
        several = self._of(entry)
        self.builder.together.add(entry.site)
        self._meet_all(several, entry)
        leader = several[0]
        share = entry.lanes.bit_count()
        for event in self._events(leader, entry, share, [], 0):
            self._put(leader, self._for_all(several, event))
        if leader.fresh:
            self._meet_all(several, entry)

    def _meet(self, entry: Entry, action: Met) -> None:
        if action.warpgroup:
            self._product(entry)
        else:
            self._meet_all(self._of(entry), entry)

    def _where(self, several: list[_Agent]) -> said.WarpBarrier | None:
        """Where some groups meet; None: it is only one."""
        if len(several) < 2:
            return None
        lanes = sum(each.who.lanes for each in several)
        return said.WarpBarrier(self.block, self.warp, lanes)

    def _for_all(self, several: list[_Agent], event: said.Event) -> said.Event:
        """An event by which one group waits for several."""
        if isinstance(event, said.Await | said.MbarrierWait):
            return replace(event, along=self._where(several))
        return event

    def _meet_all(self, several: list[_Agent], entry: Entry) -> None:
        for each in several:
            self._flush(each)
        barrier = self._where(several)
        still = len({each.met for each in several}) == 1
        if barrier is None or (still and not any(each.fresh for each in several)):
            return
        count = barrier.mask.bit_count()
        self.meetings += 1
        for agent in several:
            event = said.Sync(barrier, agent.threads, count, entry.site)
            agent.events.append(event)
            agent.fresh, agent.met = False, self.meetings

    def _product(self, entry: Entry) -> None:
        """Four warps meet, one of them issues, and they meet again."""
        key = self.rank, self.warp // 4
        batch = self.batches.batch(key, self.products)
        self.products += 1
        if batch is None:
            return
        for name in ("before wgmma", "after wgmma"):
            barrier = said.WarpBarrier(self.block, 4 * key[1], 0, name)
            for agent in self.agents:
                threads = agent.threads
                self._put(agent, said.Sync(barrier, threads, 4 * 32, entry.site))
            if name.startswith("before") and self.warp % 4 == 0:
                for work in batch:
                    self._issue(self.agents[0], work.site, work)

    # ── work in flight ──────────────────────────────────────────────────────

    def _issue(self, agent: _Agent, site: int, work: Flying) -> None:
        builder = self.builder
        if work.done_by in ("wait::ld", "wait::st"):
            return  # tensor memory and registers are not part of this
        name = builder.unit(work)
        proxy = PROXIES.get(work.proxy, Proxy.GENERIC)
        reads = builder.users.contested(builder.ranged(self.log, work.reads))
        writes = builder.users.contested(builder.ranged(self.log, work.writes))
        events: list[said.UnitEvent] = []
        if reads:
            events.append(said.Access(reads, (), proxy, None, site))
        if work.done_by == "bulk_group":
            events.append(said.ReadDone(site))
        if writes:
            scope = Scope.SYS if work.combines else None
            events.append(said.Access((), writes, proxy, scope, site))
        for place, arrivals, count in work.signals:
            mbarrier = builder.mbarrier(self.log, place)
            if arrivals:
                scope = Scope.CLUSTER
                events.append(
                    said.MbarrierArrive(mbarrier, arrivals, scope=scope, place=site)
                )
            if count:
                events.append(said.CompleteTx(mbarrier, count, place=site))
        before = tuple(builder.units[e] for e in work.after if e in builder.units)
        group = (*work.queue, work.epoch) if work.queue[0] else None
        unit = said.Unit(name, work.name, tuple(events), before, group)
        self._put(agent, said.Issue(unit, site))
        if group is not None:
            self._put(agent, said.Commit(group, site))

    def _joined(
        self, agent: _Agent, entry: Entry, action: Joined
    ) -> Iterator[said.Event]:
        """Wait for the groups that were not waited for before."""
        known = agent.waited.get(action.queue, 0)
        if action.read:
            known = max(known, agent.read.get(action.queue, 0))
        epochs = {
            work.epoch
            for work in self.builder.units
            if work.queue == action.queue and known <= work.epoch < action.until
        }
        for epoch in sorted(epochs):
            group = (*action.queue, epoch)
            yield said.GroupWait(group, 0, action.read, entry.site)
        kept = agent.read if action.read else agent.waited
        kept[action.queue] = max(known, action.until)

    # ── what one agent does ─────────────────────────────────────────────────

    def _events(
        self,
        agent: _Agent,
        entry: Entry,
        share: int,
        entries: list[Entry],
        index: int,
    ) -> Iterable[said.Event]:
        site, action = entry.site, entry.action
        match action:
            case Arrives():
                return [self._arrives(agent, entry, share, action)]
            case Exited():
                agent.ended = True
                return [said.Exit(share, site)]
            case Initialised():
                # One lane makes it: lanes that do so together do it once.
                if entry.lanes & -entry.lanes & agent.who.lanes == 0:
                    return []
                mbarrier = self.builder.mbarrier(self.log, action.mbarrier)
                if action.arrivals:
                    return [said.MbarrierInit(mbarrier, action.arrivals, site)]
                return [said.MbarrierInval(mbarrier, site)]
            case Counted():
                return self._counted(entry, share, action)
            case Waited():
                return [self._waited(agent, entry, action)]
            case Joined():
                return self._joined(agent, entry, action)
            case ClusterArrived():
                relaxed = "relaxed" in action.words
                order = Order.RELAXED if relaxed else Order.RELEASE
                barrier = said.ClusterBarrier(self.builder.cluster(self.log))
                return [said.ClusterArrive(barrier, share, order, site)]
            case ClusterWaited():
                barrier = said.ClusterBarrier(self.builder.cluster(self.log))
                return [said.ClusterWait(barrier, place=site)]
            case Fenced():
                return fence(action, site)
        return []

    def _arrives(
        self, agent: _Agent, entry: Entry, share: int, action: Arrives
    ) -> said.Event:
        last = entry.lanes.bit_length() - 1
        if action.threads and agent.who.lanes >> last & 1:
            share += action.missing
        barrier = said.Barrier(self.block, action.number)
        count = action.threads or None
        made = said.Arrive if action.mode == "arrive" else said.Sync
        return made(barrier, share, count, entry.site)

    def _counted(self, entry: Entry, share: int, action: Counted) -> list[said.Event]:
        whole, site = entry.lanes.bit_count(), entry.site
        mbarrier = self.builder.mbarrier(self.log, action.mbarrier)
        arrivals = action.arrivals * share // whole
        expected = action.expected * share // whole
        order = Order.RELAXED if "relaxed" in action.words else Order.RELEASE
        if arrivals < 0:
            return [said.MbarrierRaise(mbarrier, -arrivals, site)]
        if arrivals:
            exact = "noComplete" in action.words
            name = ("state", action.mbarrier, action.phase)
            drop = action.drops
            scope = named_scope(action.words)
            return [
                said.MbarrierArrive(
                    mbarrier, arrivals, expected, drop, exact, name, order, scope, site
                )
            ]
        if expected < 0:
            relaxed = Order.RELAXED
            return [said.CompleteTx(mbarrier, -expected, relaxed, place=site)]
        return [said.ExpectTx(mbarrier, expected, site)] if expected else []

    def _waited(self, agent: _Agent, entry: Entry, action: Waited) -> said.Event:
        order = Order.RELAXED if "relaxed" in action.words else Order.ACQUIRE
        mbarrier = self.builder.mbarrier(self.log, action.mbarrier)
        token = None
        if not action.parity:
            token = ("state", action.mbarrier, action.phase)
            given = any(
                isinstance(each, said.MbarrierArrive) and each.token == token
                for each in agent.events
            )
            token = token if given else None
        parity = action.phase & 1
        scope = self.builder.wait_scope(self.number, action)
        return said.MbarrierWait(mbarrier, parity, token, order, scope, entry.site)

    def _peeked(
        self, entries: list[Entry], index: int, entry: Entry, action: Peeked
    ) -> None:
        """A test that says no is nothing, if a wait for the same phase follows."""
        waited = any(
            isinstance(each.action, Waited)
            and each.lanes & entry.lanes
            and (each.action.mbarrier, each.action.phase)
            == (action.mbarrier, action.phase)
            for each in entries[index + 1 :]
        )
        if not waited:
            self.builder.limits.append(f"test {entry.site}")

    # ── words ───────────────────────────────────────────────────────────────

    def _flag(self, entry: Entry, action: Flag) -> None:
        agents = self._of(entry)
        writes = action.opcode in families.WRITES
        order, scope = Order(action.sense), Scope[action.scope.upper()]
        site = entry.site
        if action.address not in self.builder.words:
            return
        agent = agents[0]
        word = self.builder.word(agent, action.address, action.size)
        waits = action.until is not None
        if waits:
            self._meet_all(agents, entry)
            if len(agents) > 1:
                self.builder.together.add(site)
        if action.guessed:
            self.builder.limits.append(f"loop {site}")
        lanes = entry.lanes.bit_count()
        kept = site in self.builder.loops.sources
        if lanes > 1 and site in self.builder.deciding:
            self.builder.limits.append(f"lanes {site}")
        # Each group releases what it did itself; what is no sum, one does for all.
        sums = action.operation in SUMS or action.opcode in families.STORES
        alone = waits or (writes and not sums)
        for each in agents[:1] if alone else agents:
            share = lanes if alone else (each.who.lanes & entry.lanes).bit_count()
            if kept and share > 1 and action.opcode in families.FETCHES:
                self.builder.limits.append(f"lanes {site}")
            condition = self._condition(each, site, action)
            how = order, scope, site
            name = self.builder.loops.source(site) if kept else None
            decides = site in self.builder.deciding
            for event in word_events(word, action, condition, share, how, name):
                if action.work is not None and isinstance(
                    event, said.Store | said.Atomic
                ):
                    unit = self.builder.unit(action.work)
                    made = said.Unit(unit, action.work.name, (event,))
                    self._put(each, said.Issue(made, site))
                    continue
                self._put(each, self._for_all(agents, event))
                if decides and isinstance(event, OBSERVING):
                    each.branches.append((len(each.events), action.found))
                    decides = False  # what the first of several lanes finds
        if waits:
            self._meet_all(agents, entry)

    def _condition(
        self, agent: _Agent, site: int, action: Flag
    ) -> said.Condition | said.Loop | None:
        """What a loop on a word waits for."""
        until, loops = action.until, self.builder.loops
        if isinstance(until, Until):
            return replace(plain(until, action.size), guessed=action.guessed)
        loop = loops.at(site)
        if until is None or loop is None:
            return None
        name, _ = loops.source(site)
        keeps = tuple((name, e) for e in loop.loop.sources if e is not None)
        own = {getattr(each, "kept", None) for each in agent.events}
        registers = until.registers
        if not own.issuperset(keeps):  # others have found it: it stays as it was
            self.builder.limits.append(f"kept {site}")
            run, keeps = partial(loop.again, registers), ()
        else:
            run = partial(loop.run, registers)
            sources = zip(registers, loop.loop.sources, strict=True)
            registers = tuple(r for r, source in sources if source is None)
        return said.Loop((site, registers), run, keeps)
