"""Tiny random programs with everything that synchronises."""

from __future__ import annotations

from random import Random

from fragmenta.ptx.ordering import Scope
from fragmenta.watch.orders.program import (
    Access,
    Agent,
    Arrive,
    Atomic,
    Await,
    Barrier,
    Choose,
    ClusterArrive,
    ClusterBarrier,
    ClusterWait,
    Commit,
    CompleteTx,
    Condition,
    Event,
    Events,
    Exit,
    ExpectTx,
    Fence,
    GroupWait,
    Issue,
    Load,
    Mbarrier,
    MbarrierArrive,
    MbarrierInit,
    MbarrierInval,
    MbarrierRaise,
    MbarrierTest,
    MbarrierWait,
    Order,
    Program,
    Proxy,
    ProxyFence,
    ReadDone,
    Span,
    Store,
    Sync,
    Unit,
    UnitEvent,
    UnitWait,
    WarpBarrier,
    Word,
)

SHARED = [Span("shared:0", *each) for each in ((0, 8), (0, 8), (4, 12), (64, 72))]
WORDS = [Word("global", 0), Word("global", 4), Word("shared:0", 64)]
MBARRIERS = [Mbarrier(0, 0), Mbarrier(0, 8)]
GROUPS = {"cp.async": Proxy.CP_ASYNC, "bulk": Proxy.ASYNC, "wgmma": Proxy.ASYNC}


class Maker:
    """Makes one program from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        r = self.random
        self.count = r.choice((2, 2, 2, 3))
        self.lengths = [r.choice((2, 3, 4))] * 2
        if self.count == 3:
            self.lengths = r.sample((1, 2, 2), 3)
        self.themes = r.sample(sorted(THEMES), r.choice((1, 1, 2)))
        self.recipes = [r.randrange(1 << 30) for _ in range(r.choice((2, 3, 4)))]
        """Seeds of a few events, so that agents do things that belong together."""
        if r.random() < 0.3:
            self.recipes = []
        self.mbarriers = MBARRIERS[: r.choice((1, 1, 2))]
        self.words = WORDS[: r.choice((1, 1, 2, 3))]
        self.blocks = r.choice(((0, 0, 0), (0, 0, 0), (0, 1, 1), (0, 0, 1)))
        self.clusters = (0, r.choice((0, 0, 1)))
        self.threads = 32
        self.units = 0
        self.names: list[tuple[int, str]] = []
        self.tokens: set[int] = set()
        self.branches = 2

    def program(self) -> Program:
        """The program."""
        r = self.random
        begin: list[list[Event]] = [[] for _ in range(self.count)]
        if "mbarrier" in self.themes and r.random() < 0.9:
            for each in self.mbarriers:
                begin[0].append(MbarrierInit(each, r.choice((1, 1, 2, 2, 3))))
            if r.random() < 0.85:
                meet = Sync(Barrier(7, 15), self.threads, self.threads * self.count)
                for one in begin:
                    one.append(meet)
        agents = []
        for number in range(self.count):
            block = self.blocks[number]
            self.tokens, self.names = set(), []
            steps = self.steps(number, self.lengths[number])
            steps.events[:0] = begin[number]
            cluster = self.clusters[block]
            agents.append(Agent(f"a{number}", block, self.threads, steps, cluster))
        words = {each: r.choice((0, 0, 1, 2)) for each in self.words}
        return Program(agents, words)

    def steps(self, agent: int, length: int) -> Events:
        """What an agent does."""
        r = self.random
        steps = Events()
        while length > 0:
            length -= 1
            roll = r.random()
            if roll < 0.3:
                steps.events.append(self.access(Proxy.GENERIC))
                continue
            if roll < 0.36:
                steps.events.append(r.choice((ProxyFence(), self.fence())))
                continue
            made = self.make(agent)
            steps.events += made
            branching = isinstance(made[-1], MbarrierTest | Load | Atomic | Choose)
            if branching and self.branches and r.random() < 0.7:
                self.branches -= 1
                tests = isinstance(made[-1], MbarrierTest)
                values: tuple[int, ...] = (0, 1) if tests else (0, 1, 2)
                if r.random() < 0.2:
                    values = values[:-1]
                before = set(self.tokens), list(self.names)
                for value in values:
                    self.tokens, self.names = set(before[0]), list(before[1])
                    steps.after[value] = self.steps(agent, min(length, 1))
                return steps
        steps.events.append(Exit(self.threads))
        return steps

    def make(self, agent: int) -> list[Event]:
        """Some events of a theme, by a recipe if there are any."""
        chosen = self.random
        if self.recipes:
            self.random = Random(chosen.choice(self.recipes))
        made = THEMES[self.random.choice(self.themes)](self, agent)
        self.random = chosen
        return made

    # ── the parts ───────────────────────────────────────────────────────────

    def scope(self) -> Scope:
        """Some scope, most often a wide one."""
        return self.random.choice((Scope.CTA, Scope.CLUSTER, Scope.GPU, Scope.SYS))

    def order(self, *orders: Order) -> Order:
        """One of some orders, or relaxed."""
        return self.random.choice((*orders, *orders, Order.RELAXED))

    def access(self, proxy: Proxy) -> Access:
        """Reads or writes of a place."""
        r = self.random
        span = r.choice(SHARED)
        scope = self.scope() if r.random() < 0.1 else None
        if r.random() < 0.5:
            return Access(reads=(span,), proxy=proxy, scope=scope)
        if r.random() < 0.1:
            return Access((span,), (r.choice(SHARED),), proxy, scope)
        return Access(writes=(span,), proxy=proxy, scope=scope)

    def fence(self) -> Fence:
        """A fence of any kind."""
        r = self.random
        kinds = (Order.ACQ_REL, Order.ACQ_REL, Order.ACQUIRE, Order.RELEASE)
        return Fence(self.scope(), r.choice(kinds))

    def unit(
        self, agent: int, kind: str, events: tuple[UnitEvent, ...], group: bool
    ) -> Issue:
        """The issue of a unit, perhaps after others."""
        r = self.random
        name = self.units, kind
        self.units += 1
        after = tuple(each for each in self.names if r.random() < 0.2)
        self.names.append(name)
        owner = r.choice((agent, agent, agent, 0))
        return Issue(Unit(name, kind, events, after, (kind, owner) if group else None))

    def barrier(self, agent: int) -> list[Event]:
        """A barrier of the block, or of lanes."""
        r = self.random
        block = self.blocks[agent]
        count = r.choice((None, 64, 64, 32 * self.count))
        where = Barrier(block, r.choice((0, 0, 1)))
        if r.random() < 0.2:
            return [Arrive(where, 32, count or 64)]
        if r.random() < 0.2:
            return [Sync(WarpBarrier(0, 0), 32, 64)]
        return [Sync(where, 32, count)]

    def cluster(self, agent: int) -> list[Event]:
        """The barrier of the cluster, whole or in parts."""
        r = self.random
        barrier = ClusterBarrier(self.clusters[self.blocks[agent]])
        arrive = ClusterArrive(barrier, 32, self.order(Order.RELEASE))
        wait = ClusterWait(barrier, self.order(Order.ACQUIRE))
        roll = r.random()
        return [arrive, wait] if roll < 0.5 else [arrive] if roll < 0.75 else [wait]

    def mbarrier(self, agent: int) -> list[Event]:
        """Something about an mbarrier."""
        r = self.random
        which = r.choice(self.mbarriers)
        release, acquire = self.order(Order.RELEASE), self.order(Order.ACQUIRE)
        roll = r.random()
        if roll < 0.3:
            token = None
            if r.random() < 0.2:
                token = len(self.tokens)
                self.tokens.add(token)
            made = MbarrierArrive(
                which,
                r.choice((1, 1, 1, 2)),
                r.choice((0, 0, 16, 32)),
                drop=r.random() < 0.07,
                no_complete=r.random() < 0.07,
                token=token,
                order=release,
                scope=self.scope(),
            )
            return [made]
        if roll < 0.6:
            if self.tokens and r.random() < 0.5:
                token = r.choice(sorted(self.tokens))
                return [MbarrierWait(which, 0, token, acquire, self.scope())]
            return [
                MbarrierWait(which, r.choice((0, 0, 1)), None, acquire, self.scope())
            ]
        if roll < 0.7:
            return [
                MbarrierTest(which, r.choice((0, 0, 1)), None, acquire, self.scope())
            ]
        if roll < 0.75:
            return [ExpectTx(which, r.choice((16, 32)))]
        if roll < 0.79:
            return [CompleteTx(which, 16, release, self.scope())]
        if roll < 0.82:
            return [r.choice((MbarrierRaise(which), MbarrierInval(which)))]
        size = r.choice((16, 16, 32))
        events: tuple[UnitEvent, ...] = (self.access(Proxy.ASYNC),)
        events += (CompleteTx(which, size, scope=self.scope()),)
        if r.random() < 0.3:
            events = (MbarrierArrive(which, order=release, scope=self.scope()),)
        issue = self.unit(agent, "copy", events, False)
        if r.random() < 0.5:
            return [MbarrierArrive(which, expect=size), issue]
        return [issue]

    def groups(self, agent: int) -> list[Event]:
        """Copies and products in groups, and waits for them."""
        r = self.random
        kind = r.choice(sorted(GROUPS))
        name = (kind, r.choice((agent, agent, agent, 0)))
        roll = r.random()
        if roll < 0.5:
            events: list[UnitEvent] = [self.access(GROUPS[kind])]
            if r.random() < 0.4:
                events.insert(r.choice((0, 1)), ReadDone())
            if r.random() < 0.1:
                events = []
            issue = self.unit(agent, kind, tuple(events), True)
            return [issue, Commit(issue.unit.group)] if r.random() < 0.7 else [issue]
        if roll < 0.6:
            return [Commit(name)]
        if roll < 0.7 and self.names:
            return [UnitWait(tuple(r.sample(self.names, 1)))]
        return [GroupWait(name, r.choice((0, 0, 1)), r.random() < 0.4)]

    def flags(self, agent: int) -> list[Event]:
        """Loads, stores and atomic operations on words, and loops that wait for them."""
        r = self.random
        word = r.choice(self.words)
        scope = self.scope()
        both = self.order(Order.ACQ_REL, Order.ACQUIRE, Order.RELEASE)
        roll = r.random()
        if roll < 0.3:
            store = Store(
                word, r.choice((0, 1, 1, 2)), self.order(Order.RELEASE), scope
            )
            return [self.fence(), store] if r.random() < 0.2 else [store]
        if roll < 0.5:
            load = Load(word, self.order(Order.ACQUIRE), scope)
            return [load]
        if roll < 0.7:
            test = Condition(r.choice(("eq", "ge", "ne")), r.choice((0, 1, 1, 2)))
            update = None
            if r.random() < 0.3:
                update = Atomic(word, "exch", r.choice((0, 1)))
            made: list[Event] = [Await(word, test, update, both, scope)]
            return [*made, self.fence()] if r.random() < 0.2 else made
        if roll < 0.78:
            return [Choose((0, 1))]
        operation = r.choice(("add", "add", "exch", "cas", "take", "max"))
        result = r.choice(self.words) if r.random() < 0.15 else None
        if result == word:
            result = None
        returns = r.random() < 0.5
        atomic = Atomic(word, operation, 1, 0, returns, result, both, scope)
        return [atomic]


THEMES = {
    "barrier": Maker.barrier,
    "cluster": Maker.cluster,
    "mbarrier": Maker.mbarrier,
    "groups": Maker.groups,
    "flags": Maker.flags,
}


def program(seed: int) -> Program:
    """A tiny program that is always the same for a seed."""
    return Maker(seed).program()
