"""What each event does to the objects of synchronisation.

:class:`Machine` carries out one event at a time.  Counts, phases and parities are those
of the PTX ISA.  Values are those of the interleaving: a load returns what the last
store before it wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

from fragmenta.errors import BadCall
from fragmenta.ptx.ordering import Scope
from fragmenta.watch.orders.accesses import Home, reaches
from fragmenta.watch.orders.hops import Hops
from fragmenta.watch.orders.kept import KeptValues
from fragmenta.watch.orders.program import (
    Access,
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
    Event,
    Exit,
    ExpectTx,
    Fence,
    GroupWait,
    Issue,
    Load,
    Loop,
    MbarrierArrive,
    MbarrierInit,
    MbarrierInval,
    MbarrierRaise,
    MbarrierTest,
    MbarrierWait,
    Order,
    Passed,
    Proxy,
    ProxyFence,
    ReadDone,
    Store,
    Sync,
    UnitWait,
    Word,
)
from fragmenta.watch.orders.state import (
    NOTHING,
    Actor,
    ClusterObject,
    GroupObject,
    MbarrierObject,
    MeetingObject,
    Released,
    State,
    WordObject,
    merge,
    narrowed,
)
from fragmenta.watch.orders.tree import Node, Tree
from fragmenta.watch.orders.updates import computed, wrapped
from fragmenta.watch.orders.verdict import MisuseKind

MOST = (1 << 20) - 1
"""The largest count of arrivals and of bytes of an mbarrier."""

Handler: TypeAlias = "Callable[[Machine, State, int, Node], MisuseKind | int | None]"
HANDLERS: dict[type, Handler] = {}


def handles(*events: type) -> Callable[[Handler], Handler]:
    """Register what carries out events."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(events, handler))
        return handler

    return register


class Machine:
    """Carries out the events of a program."""

    def __init__(
        self, tree: Tree, unknown: Callable[[State, Node, int], Node] | None = None
    ) -> None:
        self.tree = tree
        self.hops = Hops(tree)
        self.kept = KeptValues(tree)
        self.agents = len(tree.program.agents)
        self.homes = tree.homes
        self.threads = [each.threads for each in tree.program.agents]
        self.unknown = unknown
        self.stopped = Node(-1, -1, None)
        """Where agents are whose next event cannot be carried out."""
        self.stopped.cut = "misuse"
        self.found: Callable[[State, int, int, bool], None] = lambda *_: None
        """Called with each access that races: the mask of the others, and whether only
        a proxy fence is missing."""
        self._of_block: dict[int, list[int]] = {}
        self._of_cluster: dict[int, list[int]] = {}
        for number, home in enumerate(self.homes):
            self._of_block.setdefault(home.block, []).append(number)
            self._of_cluster.setdefault(home.cluster, []).append(number)

    def start(self) -> State:
        """The state before the first event."""
        state = State()
        for number, node in enumerate(self.tree.roots):
            state.actors[number] = Actor(node, False, 0, 0)
        return state

    def home(self, number: int) -> Home:
        """Where an agent runs, or the issuer of a unit."""
        if number < self.agents:
            return self.homes[number]
        return self.homes[self.tree.issuers[number - self.agents]]

    # ── one event ───────────────────────────────────────────────────────────

    def step(
        self, state: State, number: int, choice: int | None = None
    ) -> MisuseKind | None:
        """Carry out the next event of an actor; it must be enabled.

        Misuse is returned; then the actor stops there.
        """
        actor = state.actors[number]
        node = actor.node
        event = node.event
        if event is None:
            self._end(state, number, actor)
            return None
        if actor.parked:  # a unit whose predecessors are done
            self._begin(state, number, actor)
            return None
        if node.read_bit or node.write_bit:
            self._race(state, actor, node)
        outcome = HANDLERS[type(event)](self, state, number, node)
        if isinstance(outcome, MisuseKind):
            state.log.append((number, node, None))
            state.actors[number] = actor._replace(node=self.stopped, parked=False)
            return outcome
        if isinstance(event, Choose):
            outcome = choice
        state.log.append((number, node, outcome))
        after = state.actors.get(number)
        if after is not None and not after.parked and after.node is node:
            self._advance(state, number, node, outcome)
        return None

    def _advance(
        self, state: State, number: int, node: Node, observed: int | None
    ) -> None:
        following = node.next
        if node.branches is not None and observed is not None:
            following = node.branches.get(observed)
            if following is None:
                assert self.unknown is not None
                following = self.unknown(state, node, observed)
        assert following is not None
        state.actors[number] = state.actors[number]._replace(node=following)

    def _begin(self, state: State, number: int, actor: Actor) -> None:
        know, ahead = actor.know, actor.ahead
        for each in self.predecessors(state, number):
            clock = state.done.get(each, NOTHING)
            know, ahead = know | clock[0], ahead | clock[1]
        state.actors[number] = actor._replace(parked=False, know=know, ahead=ahead)

    def predecessors(self, state: State, number: int) -> list[int]:
        """The units that a unit waits for."""
        unit = self.tree.units[number - self.agents]
        return self.issued(state, unit.after)

    def issued(self, state: State, names: tuple[Hashable, ...]) -> list[int]:
        """The actors of units that have been issued."""
        return [
            each
            for name in names
            for each in self.tree.names.get(name, ())
            if each in state.actors or each in state.done
        ]

    def _end(self, state: State, number: int, actor: Actor) -> None:
        if actor.parked:
            self._begin(state, number, actor)
            actor = state.actors[number]
        unit = self.tree.units[number - self.agents]
        del state.actors[number]
        if unit.group is not None or unit.name in self.tree.waited:
            state.done[number] = actor.know, actor.ahead

    def _race(self, state: State, actor: Actor, node: Node) -> None:
        accesses = self.tree.accesses
        for bit in (node.read_bit, node.write_bit):
            if not bit:
                continue
            access = bit.bit_length() - 1
            others = accesses.collides[access] & state.executed
            if accesses.sides[access].proxy is Proxy.ASYNC:
                unfenced = others & actor.know & ~actor.ahead
                others &= ~actor.know & ~actor.ahead
                if unfenced:
                    self.found(state, access, unfenced, True)
            else:
                others &= ~actor.know
            if others:
                self.found(state, access, others, False)
        state.executed |= node.read_bit | node.write_bit

    # ── who can go on ───────────────────────────────────────────────────────

    def enabled(self, state: State, number: int) -> bool:
        """Whether an actor's next event can be carried out."""
        actor = state.actors[number]
        node = actor.node
        if node.cut:
            return False
        event = node.event
        if actor.parked:
            if number < self.agents:
                return False
            return all(e in state.done for e in self.predecessors(state, number))
        if event is None:
            return True
        if isinstance(event, MbarrierWait):
            thing = state.objects.get(node.key)
            if not isinstance(thing, MbarrierObject):
                return True  # misuse
            return (thing.phase & 1) != self.parity(actor, event)
        if isinstance(event, GroupWait):
            return all(self._over(state, event, n) for n in self.group(state, node))
        if isinstance(event, UnitWait):
            return all(e in state.done for e in self.issued(state, event.units))
        if isinstance(event, Await):
            return self.passes(state, actor).ends
        if isinstance(event, ClusterWait):
            phase = dict(actor.local).get(("cluster", node.key))
            return phase is None or self.cluster(state, node.key).phase > phase
        return True

    def _over(self, state: State, event: GroupWait, number: int) -> bool:
        return number in state.done or (event.read and number in state.read)

    def parity(self, actor: Actor, event: MbarrierWait | MbarrierTest) -> int:
        """The parity of the phase that an event waits for."""
        if event.token is None:
            return event.parity & 1
        for name, phase in actor.local:
            if name == ("token", event.token):
                return phase & 1
        raise BadCall(
            f"{event!r} waits with the state of an arrival that {event.token!r} "
            "names, and no arrival of this agent before it has that token"
        )

    def passes(self, state: State, actor: Actor) -> Passed:
        """What the loop on a word does, at which an actor is."""
        event = actor.node.event
        assert isinstance(event, Await)
        value = self.word(state, actor.node.key, event.word).value
        return event.condition.passed(value, kept(actor, event.condition.keeps))

    def group(self, state: State, node: Node) -> list[int]:
        """The units that a ``wait_group`` waits for."""
        assert isinstance(node.event, GroupWait)
        thing = state.objects.get(node.key)
        if not isinstance(thing, GroupObject):
            return []
        count = max(len(thing.groups) - node.event.pending, 0)
        return [number for each in thing.groups[:count] for number in each]

    # ── objects ─────────────────────────────────────────────────────────────

    def word(self, state: State, key: int, word: Word) -> WordObject:
        """A word, as it is."""
        found = state.objects.get(key)
        if isinstance(found, WordObject):
            return found
        return WordObject(self.tree.program.words.get(word, 0))

    def cluster(self, state: State, key: int) -> ClusterObject:
        """A barrier of a cluster, as it is."""
        found = state.objects.get(key)
        return found if isinstance(found, ClusterObject) else ClusterObject()

    def meeting(self, state: State, key: int) -> MeetingObject:
        """A barrier, as it is."""
        found = state.objects.get(key)
        return found if isinstance(found, MeetingObject) else MeetingObject()

    def live(self, state: State, block: int) -> list[int]:
        """The agents of a block that have not exited."""
        return [n for n in self._of_block[block] if n not in state.exits]

    def live_in_cluster(self, state: State, cluster: int) -> list[int]:
        """The agents of a cluster that have not exited."""
        return [n for n in self._of_cluster[cluster] if n not in state.exits]

    def learn(self, state: State, number: int, clocks: Released, by: Scope) -> None:
        """Acquire what reaches an actor."""
        actor = state.actors[number]
        home, know, ahead = self.home(number), actor.know, actor.ahead
        for other, scope, generic, through in clocks:
            if reaches(min(scope, by), other, home):
                know, ahead = know | generic, ahead | through
        state.actors[number] = actor._replace(know=know, ahead=ahead)

    def observe(
        self,
        state: State,
        number: int,
        clocks: Released,
        order: Order,
        scope: Scope,
        along: Sequence[int] = (),
    ) -> None:
        """Read something that was released: acquire it now, or by a later fence."""
        if order.acquires:
            self.learn(state, number, clocks, scope)
        if not clocks:
            return
        for each in (number, *along):
            actor = state.actors[each]
            state.actors[each] = actor._replace(pending=merge(actor.pending, *clocks))

    def release(
        self,
        state: State,
        number: int,
        order: Order,
        scope: Scope,
        most: Scope,
        along: Sequence[int] = (),
    ) -> list[tuple[Home, Scope, int, int]]:
        """What an operation hands over; what fences did, in at most a scope."""
        actor = state.actors[number]
        given = [
            clock
            for each in (number, *along)
            for clock in narrowed(state.actors[each].fence, most)
        ]
        if order.releases:
            given.append((self.home(number), scope, actor.know, actor.ahead))
        return given


def kept(actor: Actor, names: tuple[Hashable, ...]) -> tuple[int, ...]:
    """Values that an agent has found before, by their names."""
    if not names:
        return ()
    found = dict(actor.local)
    missing = [name for name in names if ("kept", name) not in found]
    if missing:
        raise BadCall(
            f"a loop depends on a value that {missing[0]!r} names, and no event of "
            "this agent before it keeps that"
        )
    return tuple(found["kept", name] for name in names)


def together(state: State, event: Event | None) -> list[int]:
    """The agents for whom an event waits, too: they are where all meet after it."""
    if not isinstance(event, Await | MbarrierWait) or event.along is None:
        return []
    return [
        number
        for number, actor in state.actors.items()
        if isinstance(actor.node.event, Sync)
        and actor.node.event.barrier == event.along
    ]


# ── memory and units ────────────────────────────────────────────────────────


@handles(Access)
def _access(machine: Machine, state: State, number: int, node: Node) -> None:
    actor = state.actors[number]
    own = node.read_bit | node.write_bit
    seen = own
    assert isinstance(node.event, Access)
    if node.event.proxy is Proxy.GENERIC:
        seen = node.read_bit  # writes need a fence
    state.actors[number] = actor._replace(
        know=actor.know | own, ahead=actor.ahead | seen
    )


@handles(Fence)
def _fence(machine: Machine, state: State, number: int, node: Node) -> None:
    event = node.event
    assert isinstance(event, Fence)
    if event.order.acquires:
        pending = state.actors[number].pending
        machine.learn(state, number, pending, event.scope)
    if event.order.releases:
        actor = state.actors[number]
        given = (machine.home(number), event.scope, actor.know, actor.ahead)
        state.actors[number] = actor._replace(fence=merge(actor.fence, given))


@handles(ProxyFence)
def _proxy_fence(machine: Machine, state: State, number: int, node: Node) -> None:
    actor = state.actors[number]
    state.actors[number] = actor._replace(ahead=actor.ahead | actor.know)


@handles(Issue)
def _issue(machine: Machine, state: State, number: int, node: Node) -> None:
    assert isinstance(node.event, Issue)
    unit = node.event.unit
    actor = state.actors[number]
    made = node.result
    first = machine.tree.first[made - machine.agents]
    state.actors[made] = Actor(first, bool(unit.after), actor.know, actor.ahead)
    if unit.group is not None:
        key = machine.tree.number(("group", unit.group))
        thing = state.objects.get(key)
        group = thing if isinstance(thing, GroupObject) else GroupObject()
        state.objects[key] = group._replace(open=(*group.open, made))


@handles(ReadDone)
def _read_done(machine: Machine, state: State, number: int, node: Node) -> None:
    actor = state.actors[number]
    if node.unit is not None and node.unit.group is not None:
        state.read[number] = actor.know, actor.ahead


@handles(Commit)
def _commit(machine: Machine, state: State, number: int, node: Node) -> None:
    thing = state.objects.get(node.key)
    group = thing if isinstance(thing, GroupObject) else GroupObject()
    state.objects[node.key] = GroupObject((), (*group.groups, group.open))


@handles(GroupWait)
def _group_wait(machine: Machine, state: State, number: int, node: Node) -> None:
    event = node.event
    assert isinstance(event, GroupWait)
    actor = state.actors[number]
    know, ahead = actor.know, actor.ahead
    units = machine.group(state, node)
    for each in units:
        clocks = state.read if event.read and each in state.read else state.done
        know, ahead = know | clocks[each][0], ahead | clocks[each][1]
    state.actors[number] = actor._replace(know=know, ahead=ahead)
    thing = state.objects.get(node.key)
    if not isinstance(thing, GroupObject) or event.read:
        return
    tree = machine.tree
    if tree.private(event.group):
        count = max(len(thing.groups) - event.pending, 0)
        state.objects[node.key] = thing._replace(groups=thing.groups[count:])
        for each in units:
            if tree.units[each - machine.agents].name not in tree.waited:
                del state.done[each]
                state.read.pop(each, None)


@handles(UnitWait)
def _unit_wait(machine: Machine, state: State, number: int, node: Node) -> None:
    assert isinstance(node.event, UnitWait)
    actor = state.actors[number]
    know, ahead = actor.know, actor.ahead
    for each in machine.issued(state, node.event.units):
        know, ahead = know | state.done[each][0], ahead | state.done[each][1]
    state.actors[number] = actor._replace(know=know, ahead=ahead)


@handles(Choose)
def _choose(machine: Machine, state: State, number: int, node: Node) -> None:
    """The explorer tries each value."""


# ── barriers ────────────────────────────────────────────────────────────────


@handles(Sync, Arrive)
def _meet(machine: Machine, state: State, number: int, node: Node) -> MisuseKind | None:
    event = node.event
    assert isinstance(event, Sync | Arrive)
    thing = machine.meeting(state, node.key)
    waits = isinstance(event, Sync)
    if any(who == number for who, _ in thing.arrived):
        return MisuseKind.ARRIVED_TWICE
    count = thing.size if thing.arrived else event.count
    size = meeting_size(machine, state, event, count)
    if size != meeting_size(machine, state, event, event.count):
        return MisuseKind.OTHER_COUNT
    if thing.threads + event.threads > size:
        return MisuseKind.TOO_MANY_THREADS
    actor = state.actors[number]
    thing = MeetingObject(
        thing.arrived | {(number, waits)},
        thing.threads + event.threads,
        count,
        thing.know | actor.know,
        thing.ahead | actor.ahead,
    )
    state.actors[number] = actor._replace(parked=waits)
    state.objects[node.key] = thing
    complete_meeting(machine, state, node.key, event)
    return None


def meeting_size(
    machine: Machine, state: State, event: Sync | Arrive, count: int | None
) -> int:
    """How many threads meet."""
    if count is not None:
        return count
    live = machine.live(state, event.barrier.block)
    return sum(machine.threads[each] for each in live)


def complete_meeting(
    machine: Machine, state: State, key: int, event: Sync | Arrive
) -> None:
    """Let those go on who wait at a barrier, if all have arrived."""
    thing = machine.meeting(state, key)
    size = meeting_size(machine, state, event, thing.size)
    if not thing.arrived or thing.threads < size:
        return
    know, ahead = thing.know, thing.ahead
    if thing.size is None:
        for agent, clock in state.exits.items():
            if machine.homes[agent].block == event.barrier.block:
                know, ahead = know | clock[0], ahead | clock[1]
    del state.objects[key]
    for number, waits in thing.arrived:
        if not waits:
            continue
        actor = state.actors[number]
        assert actor.node.next is not None
        state.actors[number] = actor._replace(
            node=actor.node.next,
            parked=False,
            know=actor.know | know,
            ahead=actor.ahead | ahead,
        )


@handles(ClusterArrive)
def _cluster_arrive(
    machine: Machine, state: State, number: int, node: Node
) -> MisuseKind | None:
    event = node.event
    assert isinstance(event, ClusterArrive)
    thing = machine.cluster(state, node.key)
    actor = state.actors[number]
    mark = ("cluster", node.key)
    if any(name == mark for name, _ in actor.local):
        return MisuseKind.ARRIVED_TWICE
    know, ahead = thing.know, thing.ahead
    for _, scope, generic, through in machine.release(
        state, number, event.order, Scope.CLUSTER, Scope.CLUSTER
    ):
        if scope >= Scope.CLUSTER:
            know, ahead = know | generic, ahead | through
    state.actors[number] = actor._replace(
        local=tuple(sorted((*actor.local, (mark, thing.phase)), key=repr))
    )
    state.objects[node.key] = thing._replace(
        arrived=thing.arrived | {number}, know=know, ahead=ahead
    )
    complete_cluster(machine, state, node.key, event.barrier.cluster)
    return None


def complete_cluster(machine: Machine, state: State, key: int, cluster: int) -> None:
    """Begin the next phase of a cluster's barrier, if all have arrived."""
    thing = machine.cluster(state, key)
    live = machine.live_in_cluster(state, cluster)
    if not thing.arrived or any(each not in thing.arrived for each in live):
        return
    know, ahead = thing.know, thing.ahead
    for agent, clock in state.exits.items():
        if machine.homes[agent].cluster == cluster and agent not in thing.arrived:
            know, ahead = know | clock[0], ahead | clock[1]
    state.objects[key] = ClusterObject(thing.phase + 1, last=(know, ahead))


@handles(ClusterWait)
def _cluster_wait(
    machine: Machine, state: State, number: int, node: Node
) -> MisuseKind | None:
    event = node.event
    assert isinstance(event, ClusterWait)
    actor = state.actors[number]
    mark = ("cluster", node.key)
    if not any(name == mark for name, _ in actor.local):
        return MisuseKind.WAIT_WITHOUT_ARRIVAL
    local = tuple(each for each in actor.local if each[0] != mark)
    state.actors[number] = actor._replace(local=local)
    know, ahead = machine.cluster(state, node.key).last
    clocks: Released = ((machine.home(number), Scope.SYS, know, ahead),)
    machine.observe(state, number, clocks, event.order, Scope.CLUSTER)
    return None


@handles(Exit)
def _exit(machine: Machine, state: State, number: int, node: Node) -> None:
    actor = state.actors.pop(number)
    state.exits[number] = actor.know, actor.ahead
    home = machine.homes[number]
    for thing, key in machine.tree.objects.items():
        here = isinstance(thing, Barrier) and thing.block == home.block
        if here and machine.meeting(state, key).size is None:
            complete_meeting(machine, state, key, Sync(thing, 1))  # type: ignore[arg-type]
    for thing, key in machine.tree.objects.items():
        if isinstance(thing, ClusterBarrier) and thing.cluster == home.cluster:
            complete_cluster(machine, state, key, home.cluster)


# ── mbarriers ───────────────────────────────────────────────────────────────


@handles(MbarrierInit)
def _init(machine: Machine, state: State, number: int, node: Node) -> MisuseKind | None:
    assert isinstance(node.event, MbarrierInit)
    old = state.objects.get(node.key)
    if isinstance(old, MbarrierObject) and (old.pending != old.expected or old.tx):
        return MisuseKind.INITIALISED_TWICE
    count = node.event.count
    if not 1 <= count <= MOST:
        return MisuseKind.BAD_COUNT
    state.objects[node.key] = MbarrierObject(0, count, count, 0)
    return None


@handles(MbarrierInval)
def _inval(
    machine: Machine, state: State, number: int, node: Node
) -> MisuseKind | None:
    if state.objects.pop(node.key, None) is None:
        return MisuseKind.NOT_INITIALISED
    return None


@handles(MbarrierArrive, ExpectTx, CompleteTx, MbarrierRaise)
def _count(
    machine: Machine, state: State, number: int, node: Node
) -> MisuseKind | None:
    event = node.event
    thing = state.objects.get(node.key)
    if not isinstance(thing, MbarrierObject):
        return MisuseKind.NOT_INITIALISED
    arrivals, expected, arrived = contribution(event)
    tx = thing.tx + expected - arrived
    if abs(thing.tx + expected) > MOST or abs(tx) > MOST:
        return MisuseKind.TOO_MANY_BYTES
    if arrivals > thing.pending:
        return MisuseKind.TOO_MANY_ARRIVALS
    pending = thing.pending - arrivals
    if pending > MOST:
        return MisuseKind.BAD_COUNT
    over = pending == 0 and tx == 0
    reload, released = thing.expected, thing.released
    if isinstance(event, MbarrierArrive):
        if over and event.no_complete:
            return MisuseKind.COMPLETED
        reload -= event.count if event.drop else 0
        if event.token is not None:
            remember(state, number, ("token", event.token), thing.phase)
    if isinstance(event, MbarrierArrive | CompleteTx):
        given = machine.release(state, number, event.order, event.scope, event.scope)
        released = merge(released, *given)
    if over:
        thing = MbarrierObject(thing.phase + 1, reload, reload, 0, (), released)
    else:
        thing = MbarrierObject(thing.phase, pending, reload, tx, released, thing.last)
    state.objects[node.key] = thing
    return None


def remember(state: State, number: int, mark: Hashable, value: int) -> None:
    """Keep the phase of an arrival, or a value that was found, under a name."""
    actor = state.actors[number]
    others = [each for each in actor.local if each[0] != mark]
    local = tuple(sorted((*others, (mark, value)), key=repr))
    state.actors[number] = actor._replace(local=local)


def contribution(event: Event | None) -> tuple[int, int, int]:
    """Arrivals, bytes expected and bytes arrived of an event on an mbarrier."""
    if isinstance(event, MbarrierArrive):
        return event.count, event.expect, 0
    if isinstance(event, ExpectTx):
        return 0, event.bytes, 0
    if isinstance(event, CompleteTx):
        return 0, 0, event.bytes
    assert isinstance(event, MbarrierRaise)
    return -event.count, 0, 0


@handles(MbarrierWait, MbarrierTest)
def _test(machine: Machine, state: State, number: int, node: Node) -> MisuseKind | int:
    event = node.event
    assert isinstance(event, MbarrierWait | MbarrierTest)
    thing = state.objects.get(node.key)
    if not isinstance(thing, MbarrierObject):
        return MisuseKind.NOT_INITIALISED
    if (thing.phase & 1) == machine.parity(state.actors[number], event):
        return 0
    last = merge((), *narrowed(thing.last, event.scope))
    along = together(state, event)
    machine.observe(state, number, last, event.order, event.scope, along)
    return 1


# ── words ───────────────────────────────────────────────────────────────────


@handles(Load, Store, Atomic, Await)
def _use_word(machine: Machine, state: State, number: int, node: Node) -> int | None:
    event = node.event
    assert isinstance(event, Load | Store | Atomic | Await)
    thing = machine.word(state, node.key, event.word)
    by = machine.home(number), event.scope
    if thing.by is not None and not reaches(
        min(thing.by[1], by[1]), thing.by[0], by[0]
    ):
        thing = WordObject(thing.value)  # it is read, but that orders nothing
    along = together(state, event)
    how = event.order, event.scope
    passed = None
    if isinstance(event, Await):
        passed = machine.passes(state, state.actors[number])
    if not isinstance(event, Store):
        if event.kept is not None:
            value = machine.kept.value(number, event.kept, thing.value)
            remember(state, number, ("kept", event.kept), value)
        machine.observe(state, number, thing.released, *how, along)
        actor = state.actors[number]
        state.actors[number] = actor._replace(know=actor.know | thing.writers)
    actor = state.actors[number]
    own = node.read_bit | node.write_bit
    state.actors[number] = actor._replace(
        know=actor.know | own, ahead=actor.ahead | node.read_bit
    )
    if isinstance(event, Load) or (isinstance(event, Await) and event.update is None):
        return thing.value
    given = machine.release(state, number, *how, Scope.SYS, along)
    if isinstance(event, Store):
        value = wrapped(event.value, event.word)
        state.objects[node.key] = WordObject(value, merge((), *given), own, by)
        return None
    atomic = event.update if isinstance(event, Await) else event
    assert atomic is not None
    value = computed(atomic, thing.value)
    if passed is not None and isinstance(event.condition, Loop):  # type: ignore[union-attr]
        value = passed.value
    released = merge(thing.released, *given)
    writers = thing.writers | own
    state.objects[node.key] = WordObject(value, released, writers, by)
    if isinstance(event, Atomic) and event.result is not None:
        value = wrapped(thing.value, event.result)
        state.objects[node.result] = WordObject(value, merge((), *given), own, by)
    return thing.value if getattr(event, "returns", True) else None
