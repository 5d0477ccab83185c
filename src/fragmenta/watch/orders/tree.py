"""The events of a program as nodes: what follows each, and which accesses it makes.

Every :class:`~fragmenta.watch.orders.program.Events` becomes a chain of nodes; branches
are added when they become known.  Each unit that is issued has a number and a chain of
its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import TypeAlias

from fragmenta.errors import BadCall, one_of
from fragmenta.watch.orders.accesses import Accesses, EventAccesses, Home
from fragmenta.watch.orders.program import (
    COMPARE,
    OBSERVING,
    Access,
    Agent,
    Arrive,
    Atomic,
    Await,
    Barrier,
    ClusterArrive,
    Commit,
    Condition,
    Event,
    Events,
    Exit,
    GroupWait,
    Issue,
    Load,
    Mbarrier,
    MbarrierTest,
    Meeting,
    Program,
    Proxy,
    Span,
    Store,
    Sync,
    Unit,
    UnitWait,
    WarpBarrier,
    Word,
)
from fragmenta.watch.orders.typed import TYPED
from fragmenta.watch.orders.updates import Updates, done, reachable, wrapped

MOST_KEPT = 256
"""Values of a word for which loops are compared; see ``orders.kept``."""
OPERATIONS = (
    *("add", "exch", "cas", "min", "max", "and", "or", "xor", "inc", "dec", "take"),
    *TYPED,
)


class Node:
    """One event of an agent or of a unit, and what follows it."""

    __slots__ = (
        "actor",
        "after",
        "agent",
        "branches",
        "cut",
        "ends",
        "event",
        "future",
        "key",
        "next",
        "observed",
        "read_bit",
        "result",
        "unit",
        "write_bit",
    )

    def __init__(self, actor: int, agent: int, event: Event | None) -> None:
        self.actor = actor
        """The agent's number, or that of the unit: units come after the agents."""
        self.agent = agent
        self.event = event
        """None: the end of a unit, or where the events are cut off."""
        self.key = self.result = -1
        """The numbers of the object that the event is about, and of a second one."""
        self.unit: Unit | None = None
        self.next: Node | None = None
        self.branches: dict[int, Node] | None = None
        """What follows each value; None if the value decides nothing."""
        self.observed: tuple[int, ...] = ()
        """The values at the branches before."""
        self.cut = ""
        self.ends = False
        """Whether an order that comes here is not looked at any further."""
        """Why the events end here, if they are cut off."""
        self.after: tuple[int, ...] = ()
        """Actors that a unit waits for before this, its first event."""
        self.read_bit = self.write_bit = 0
        self.future = 0
        """The accesses that those from here on can collide with."""


class Tree:
    """All nodes of a program, and tables about its agents, units and objects."""

    def __init__(self, program: Program, grows: bool = False) -> None:
        self.program = program
        self.grows = grows
        """Whether branches may be added."""
        self.homes = [Home(each.block, each.cluster) for each in program.agents]
        self.accesses = Accesses()
        self.nodes: list[Node] = []
        self.sources: list[Node] = []
        """The node that makes each access."""
        self.units: list[Unit] = []
        self.issuers: list[int] = []
        self.first: list[Node] = []
        """The first node of each unit."""
        self.names: dict[Hashable, list[int]] = {}
        """The actors of the units that have a name; paths may use it once each."""
        self.users: dict[Hashable, set[int]] = {}
        """The agents that ever use a group's name."""
        self.meetings: dict[Hashable, set[Use]] = {}
        """How each barrier is used."""
        self.objects: dict[Hashable, int] = {}
        """The number of each object: a barrier, an mbarrier, a word, a group."""
        self.waited: set[Hashable] = set()
        """Names of units that something waits for by name."""
        self.relied: set[tuple[str, Hashable]] = set()
        """What decisions relied on, and added events may change."""
        self._whole: dict[Hashable, bool] = {}
        self._plain: dict[int, bool] = {}
        self._users: dict[Hashable, frozenset[int]] = {}
        self._stale = True
        self.roots = [self._agent(n, each) for n, each in enumerate(program.agents)]

    # ── building ────────────────────────────────────────────────────────────

    def _agent(self, number: int, agent: Agent) -> Node:
        return self.chain(number, agent.steps, ())

    def chain(self, agent: int, steps: Events, observed: tuple[int, ...]) -> Node:
        """The nodes of some steps; the first of them."""
        self._stale = True
        self._whole.clear()
        self._plain.clear()
        self._users.clear()
        top = last = self._node(agent, agent, None)
        pending = [(top, steps, observed)]
        while pending:
            last, steps, observed = pending.pop()
            for event in steps.events:
                node = self._event(agent, agent, event, observed)
                last.next = node
                last = node
            if isinstance(last.event, Exit):
                continue
            if isinstance(last.event, OBSERVING) and getattr(
                last.event, "returns", True
            ):
                last.branches = {}
                for value, then in steps.after.items():
                    start = self._node(agent, agent, None)
                    last.branches[value] = start
                    pending.append((start, then, (*observed, value)))
                    start.observed = (*observed, value)
                if not last.branches and steps.cut:
                    last.branches = None
                    last.next = self._cut(agent, steps.cut)
                continue
            last.next = self._cut(agent, steps.cut or "the recording ends here")
        return self._skip(top)

    def _skip(self, top: Node) -> Node:
        """Remove the empty nodes before the first events of branches."""
        seen = [top]
        for node in seen:
            for value, start in (node.branches or {}).items():
                assert start.next is not None
                if node.branches is not None:
                    node.branches[value] = start.next
                seen.append(start.next)
            if node.next is not None:
                seen.append(node.next)
        assert top.next is not None
        return top.next

    def _node(self, actor: int, agent: int, event: Event | None) -> Node:
        node = Node(actor, agent, event)
        self.nodes.append(node)
        return node

    def _cut(self, agent: int, why: str) -> Node:
        node = self._node(agent, agent, None)
        node.cut = why
        return node

    def cut(self, node: Node, value: int, why: str, ends: bool = False) -> Node:
        """Mark a branch as one whose events cannot be told."""
        assert node.branches is not None
        found = node.branches[value] = self._cut(node.agent, why)
        found.ends = ends
        return found

    def extend(self, node: Node, value: int, steps: Events) -> Node:
        """Add the steps that follow a value."""
        assert node.branches is not None
        path = (*node.observed, value)
        node.branches[value] = self.chain(node.agent, steps, path)
        return node.branches[value]

    def _event(
        self, actor: int, agent: int, event: Event, observed: tuple[int, ...]
    ) -> Node:
        node = self._node(actor, agent, event)
        node.observed = observed
        check(event)
        node.key, node.result = self._keys(event)
        home = self.homes[agent]
        if isinstance(event, Access):
            reads = EventAccesses(event.reads, False, event.proxy, event.scope, home)
            writes = EventAccesses(event.writes, True, event.proxy, event.scope, home)
            node.read_bit, node.write_bit = (
                self._bit(node, reads),
                self._bit(node, writes),
            )
        elif isinstance(event, Load | Store | Atomic | Await):
            self._word(node, event, home)
        if isinstance(event, Issue):
            node.result = self._issue(agent, event, observed)
        self._used(agent, event)
        return node

    def number(self, thing: Hashable) -> int:
        """The number of an object."""
        return self.objects.setdefault(thing, len(self.objects))

    def _keys(self, event: Event) -> tuple[int, int]:
        result = getattr(event, "result", None)
        for name in ("mbarrier", "word", "barrier", "group"):
            thing = getattr(event, name, None)
            if thing is not None:
                thing = ("group", thing) if name == "group" else thing
                second = -1 if result is None else self.number(result)
                return self.number(thing), second
        return -1, -1

    def _word(
        self, node: Node, event: Load | Store | Atomic | Await, home: Home
    ) -> None:
        writes = isinstance(event, Store | Atomic) or (
            isinstance(event, Await) and event.update is not None
        )
        spans = [span_of(event.word)]
        if isinstance(event, Atomic) and event.result is not None:
            spans.append(span_of(event.result))
        side = EventAccesses(tuple(spans), writes, Proxy.GENERIC, event.scope, home)
        bit = self._bit(node, side)
        node.write_bit, node.read_bit = (bit, 0) if writes else (0, bit)

    def _bit(self, node: Node, side: EventAccesses) -> int:
        if not side.spans:
            return 0
        self.sources.append(node)
        return 1 << self.accesses.add(side)

    def _issue(self, agent: int, event: Issue, observed: tuple[int, ...]) -> int:
        unit = event.unit
        actor = len(self.program.agents) + len(self.units)
        self.units.append(unit)
        self.issuers.append(agent)
        self.names.setdefault(unit.name, []).append(actor)
        top = last = self._node(actor, agent, None)
        for each in unit.events:
            node = self._event(actor, agent, each, observed)
            last.next, last = node, node
        last.next = self._node(actor, agent, None)
        assert top.next is not None
        self.first.append(top.next)
        node = top
        while node.next is not None:
            node = node.next
            node.unit = unit
        self._own(agent, unit.after)
        self.waited.update(unit.after)
        return actor

    def _own(self, agent: int, names: tuple[Hashable, ...]) -> None:
        """Check that units were issued before, by the same agent."""
        for name in names:
            issuers = {
                self.issuers[n - len(self.homes)] for n in self.names.get(name, ())
            }
            if issuers != {agent}:
                mine = [
                    unit.name
                    for unit, one in zip(self.units, self.issuers, strict=True)
                    if one == agent
                ]
                raise BadCall(
                    f"{self.program.agents[agent].name} waits for the unit {name!r}, "
                    "which it has not issued before; "
                    f"it has issued {one_of(map(repr, mine)) or 'none'}"
                )

    def _used(self, agent: int, event: Event) -> None:
        if isinstance(event, Sync | Arrive):
            use = (agent, event.threads, event.count, isinstance(event, Arrive))
            self.meetings.setdefault(event.barrier, set()).add(use)
        elif isinstance(event, Commit | GroupWait):
            self.users.setdefault(event.group, set()).add(agent)
        elif isinstance(event, Issue):
            self.users.setdefault(event.unit.group, set()).add(agent)
        elif isinstance(event, UnitWait):
            self._own(agent, event.units)
            self.waited.update(event.units)

    # ── what is ahead ───────────────────────────────────────────────────────

    def actor(self, name: Hashable, issued: Sequence[int] | set[int]) -> int | None:
        """The actor of a unit that has a name and was issued."""
        for each in self.names.get(name, ()):
            if each in issued:
                return each
        return None

    def private(self, group: Hashable) -> bool:
        """Whether only one agent uses a group's name."""
        found = len(self.users.get(group, ())) <= 1
        if found and self.grows:
            self.relied.add(("private", group))
        return found

    def whole(self, barrier: Meeting) -> bool:
        """Whether a barrier is complete only after each of its users has arrived."""
        found = self._whole.get(barrier)
        if found is None:
            found = self._whole[barrier] = whole(self.meetings[barrier])
        if found and self.grows:
            self.relied.add(("whole", barrier))
        return found

    def users_of(self, barrier: Meeting) -> frozenset[int]:
        """The agents that ever arrive at a barrier."""
        found = self._users.get(barrier)
        if found is None:
            found = frozenset(agent for agent, *_ in self.meetings[barrier])
            self._users[barrier] = found
        return found

    def plain(self, block: int) -> bool:
        """Whether no barrier of a block has both a count and all threads as its size.

        Else an exit changes whether the two agree.
        """
        found = self._plain.get(block)
        if found is None:
            found = self._plain[block] = self._is_plain(block)
        if found and self.grows:
            self.relied.add(("plain", block))
        return found

    def _is_plain(self, block: int) -> bool:
        return not any(
            None in (counts := {count for _, _, count, _ in uses}) and len(counts) > 1
            for barrier, uses in self.meetings.items()
            if isinstance(barrier, Barrier) and barrier.block == block
        )

    def values(self, key: int) -> frozenset[int] | None:
        """All values that a word can hold; None: more than are kept."""
        stored: set[int] = set()
        atomics: Updates = []
        for node in self.nodes:
            event = node.event
            if key == node.result and isinstance(event, Atomic):
                return None
            if key != node.key or not isinstance(event, Load | Store | Atomic | Await):
                continue
            stored.add(self.program.words.get(event.word, 0))
            if isinstance(event, Store):
                stored.add(wrapped(event.value, event.word))
            elif isinstance(event, Atomic):
                atomics.append((event, None, -1))
            elif isinstance(event, Await) and event.update is not None:
                loop = event.condition
                if loop.keeps:
                    return None
                step = partial(done, event.update, loop, loop.passed)
                atomics.append((event.update, step, -1))
        found = reachable(stored, atomics, MOST_KEPT)
        return None if found is None else frozenset(found)

    def changed(self) -> bool:
        """Whether added events contradict what decisions relied on."""
        for kind, thing in self.relied:
            if kind == "private" and len(self.users.get(thing, ())) > 1:
                return True
            if kind == "whole" and not whole(self.meetings[thing]):
                return True
            if kind == "plain" and not self._is_plain(thing):  # type: ignore[arg-type]
                return True
            if kind == "values" and self.values(thing[0]) != thing[1]:  # type: ignore[index]
                return True
            if kind == "red" and self.accesses.collides[thing]:  # type: ignore[call-overload]
                return True
        return False

    def refresh(self) -> None:
        """Compute what each node's future can collide with, if events were added."""
        if not self._stale:
            return
        self._stale = False
        collides = self.accesses.collides
        agents = len(self.program.agents)
        for node in reversed(self.nodes):
            mask = sum_of(collides, node.read_bit | node.write_bit)
            for each in (node.next, *(node.branches or {}).values()):
                if each is not None:
                    mask |= each.future
            if isinstance(node.event, Issue):
                mask |= self.first[node.result - agents].future
            if self.grows and node.branches is not None:
                tested = isinstance(node.event, MbarrierTest)
                if not (tested and len(node.branches) == 2):
                    mask = EVERYTHING
            node.future = mask


EVERYTHING = -1
"""The mask of all accesses, also of those that are not known yet."""


Use: TypeAlias = tuple[int, int, int | None, bool]
"""An agent at a barrier: its number, threads, count, whether by ``bar.arrive``."""


def whole(uses: set[Use]) -> bool:
    """Whether a barrier needs all of its users, and each waits there.

    >>> whole({(0, 32, 64, False), (1, 32, 64, False)})
    True
    >>> whole({(0, 32, 64, False), (1, 32, 64, False), (2, 32, 64, False)})
    False
    """
    counts = {count for _, _, count, _ in uses}
    if any(arrives for *_, arrives in uses) or len(counts) > 1:
        return False
    (count,) = counts
    return count is None or sum(threads for _, threads, _, _ in uses) == count


def sum_of(collides: Sequence[int], own: int) -> int:
    """What the accesses of one event collide with."""
    mask = 0
    while own:
        low = own & -own
        mask |= collides[low.bit_length() - 1]
        own ^= low
    return mask


def span_of(word: Word) -> Span:
    """The bytes of a word."""
    return Span(word.space, word.address, word.address + word.size)


def check(event: Event) -> None:
    """Refuse events that say something impossible."""
    if isinstance(event, Atomic) and event.operation not in OPERATIONS:
        raise BadCall(
            f"no atomic operation is called {event.operation!r}; "
            f"there are {one_of(OPERATIONS)}"
        )
    condition = event.condition if isinstance(event, Await) else None
    if isinstance(condition, Condition) and condition.compare not in COMPARE:
        raise BadCall(
            f"no condition is called {condition.compare!r}; "
            f"there are {one_of(list(COMPARE))}"
        )
    if isinstance(event, Arrive) and event.count is None:
        raise BadCall("bar.arrive needs the count of threads; Arrive.count is None")
    lanes = isinstance(event, Sync) and isinstance(event.barrier, WarpBarrier)
    if lanes and getattr(event, "count", None) is None:
        raise BadCall("lanes of a warp meet by a mask; Sync.count is None")
    if isinstance(event, Sync | Arrive | ClusterArrive | Exit) and event.threads < 1:
        raise BadCall(f"{event.threads} threads cannot arrive; at least 1 can")
    mbarrier = getattr(event, "mbarrier", None)
    if mbarrier is not None and not isinstance(mbarrier, Mbarrier):
        raise BadCall(f"{mbarrier!r} is no Mbarrier")
