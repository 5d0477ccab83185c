"""What the others can do while some actors are held: the base of the reduction.

:class:`Ahead` runs all actors that are not held as far as they could come in any order.
It never misses an event that is possible, and may include some that are not: arrivals
count for every phase, words hold every value that was ever written, and every branch is
taken.  In a pipeline the others soon wait for those that are held, so this is short.

:mod:`fragmenta.watch.orders.rivals` compares what they do with the next event of an
actor that is held.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import partial
from typing import TypeAlias

from fragmenta.watch.orders.hops import QUIET, Meetings
from fragmenta.watch.orders.machine import Machine, contribution, kept
from fragmenta.watch.orders.program import (
    Arrive,
    Atomic,
    Await,
    Choose,
    ClusterArrive,
    ClusterBarrier,
    ClusterWait,
    Commit,
    CompleteTx,
    Condition,
    Event,
    Exit,
    ExpectTx,
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
    ReadDone,
    Store,
    Sync,
    UnitWait,
)
from fragmenta.watch.orders.state import (
    Actor,
    GroupObject,
    MbarrierObject,
    MeetingObject,
    State,
)
from fragmenta.watch.orders.tree import Node
from fragmenta.watch.orders.updates import Passing, Updates, done, reachable, wrapped

ENDLESS = 1 << 40
"""A number of phases that is more than any."""
COUNTS = (MbarrierArrive, ExpectTx, CompleteTx)
"""Events that count at an mbarrier."""


class Front:
    """How far an actor can come, on one of its branches."""

    __slots__ = (
        "begun",
        "node",
        "number",
        "parked",
        "phases",
        "root",
        "seen",
        "stopped",
        "taken",
    )

    def __init__(self, root: int, number: int, node: Node, parked: bool) -> None:
        self.root = root
        """The actor of the state that this one comes from; a unit's issuer, if it was
        not issued yet."""
        self.number = number
        self.node = node
        self.parked = parked
        self.phases: dict[Hashable, int] = {}
        """Phases of objects that must be over when it is here, counted from now."""
        self.taken: set[int] = set()
        """Values whose branches it has taken."""
        self.begun = False
        """Whether its arrival at the barrier where it waits is counted."""
        self.stopped = -1
        """The object that it waits for; it is looked at again when that changed."""
        self.seen = 0
        """How often that had changed."""

    def fork(self, node: Node) -> Front:
        """The same actor, further on."""
        other = Front(self.root, self.number, node, False)
        other.phases = self.phases.copy()
        return other


class MeetingAhead:
    """What can happen to a barrier of a block or of a warp."""

    __slots__ = ("arrivals", "counts", "now", "threads", "times")

    def __init__(self, now: MeetingObject) -> None:
        self.now = now
        self.arrivals: list[tuple[int, int]] = []
        """The root, and the threads."""
        self.threads = now.threads
        """With those that have arrived."""
        self.times = dict.fromkeys((who for who, _ in now.arrived), 1)
        """How often each agent arrives."""
        self.counts = {now.size} if now.arrived else set()
        """The counts that these arrivals name."""


class MbarrierAhead:
    """What can happen to an mbarrier."""

    __slots__ = (
        "arrivals",
        "bare",
        "bytes",
        "drops",
        "expects",
        "never_last",
        "roots",
        "total",
        "watchers",
        "wild",
    )

    def __init__(self) -> None:
        self.roots: set[int] = set()
        """Who changes it."""
        self.watchers: set[int] = set()
        """Who looks at its phase."""
        self.arrivals: list[tuple[int, int]] = []
        """Counts, and bytes that are expected with them."""
        self.total = self.expects = 0
        """All counts, and all bytes that are expected."""
        self.bare: int = 0
        """Bytes that are expected without an arrival."""
        self.bytes = 0
        self.drops = 0
        self.never_last = False
        """Whether an arrival is ``.noComplete``."""
        self.wild = False
        """Whether it can be initialised, invalidated or raised."""


class WordAhead:
    """What can happen to a word."""

    __slots__ = ("added", "atomics", "readers", "reds", "stored", "values", "writers")

    def __init__(self, value: int) -> None:
        self.values: set[int] | None = {value}
        """What it can hold; None: anything."""
        self.stored: set[int] | None = {value}
        """The same, without atomic operations."""
        self.added: set[tuple[int, int]] = set()
        """Who has done an atomic operation, and at which node: each is done once."""
        self.atomics: Updates = []
        """With what a loop makes of a value, and the word of their result."""
        self.writers: set[int] = set()
        self.readers: set[int] = set()
        self.reds: set[int] = set()
        """Those writers that only add, and return nothing."""


WordEvent: TypeAlias = Load | Store | Atomic | Await


class Ahead:
    """Runs the actors that are not held as far as they could come."""

    def __init__(self, machine: Machine, state: State, held: Iterable[int]) -> None:
        self.machine, self.state = machine, state
        self._loud, self._meetings = machine.hops.loud, machine.hops.meetings
        self.held = frozenset(held)
        self.unknown = False
        """Whether an actor reaches a branch that is not known yet."""
        self.mbarriers: dict[int, MbarrierAhead] = {}
        self.meetings: dict[int, MeetingAhead] = {}
        self.clusters: dict[int, dict[int, int]] = {}
        """How often each root arrives at the barrier of a cluster."""
        self.words: dict[int, WordAhead] = {}
        self.groups: dict[int, set[int]] = {}
        """Who issues to or commits the groups of a shared name."""
        self.joiners: dict[int, set[int]] = {}
        """Who waits for them."""
        self.done: dict[int, int] = {}
        """Units that come to their end, and their roots."""
        self.read: dict[int, int] = {}
        self.exits: dict[int, int] = {}
        self.moved: set[int] = set()
        """Roots that do anything at all."""
        self._changes: dict[int, int] = {}
        """How often each object was changed ahead."""
        self._issued: set[int] = set()
        self._forked: set[int] = set()
        self._commits: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        self._open: dict[tuple[int, int], list[int]] = {}
        self.fronts = [
            Front(number, number, self._first(actor), actor.parked)
            for number, actor in state.actors.items()
            if number not in self.held and not actor.node.cut
        ]
        self._run()

    def follow(self, number: int, state: State) -> bool:
        """Go on after the held actor has carried out events, which lead to a state.

        They count as if they happened ahead, too.  That finds at least what a new
        :class:`Ahead` from there would, and takes less time.  False: an event is none
        that can be followed.
        """
        mine = (node for who, node, _ in state.log if who == number)
        if self.unknown or not all(self._repeat(number, node) for node in mine):
            return False
        self._run()
        return not self.unknown

    def _repeat(self, number: int, node: Node) -> bool:
        """An event of the held actor has happened."""
        event = node.event
        if node.branches is not None:
            return False
        if isinstance(event, COUNTS):
            self._counts(number, node.key, event)
        elif isinstance(event, Sync | Arrive):
            self._arrives(Front(number, number, node, False), node.key, event)
        elif isinstance(event, ClusterArrive):
            self._arrives_in_cluster(number, node.key)
        elif isinstance(event, Issue):
            made, unit = node.result, event.unit
            self._issued.add(made)
            self.fronts.append(self._begun(made, made, bool(unit.after)))
            return unit.group is None or self.machine.tree.private(unit.group)
        elif isinstance(event, Commit | GroupWait):
            return self.machine.tree.private(event.group)
        else:
            return isinstance(event, (*QUIET, MbarrierWait, UnitWait, ClusterWait))
        return True

    def _first(self, actor: Actor) -> Node:
        return actor.node if actor.parked else self._loud(actor.node)

    def _run(self) -> None:
        changed = True
        while changed and not self.unknown:
            changed = False
            index = 0
            while index < len(self.fronts):
                front = self.fronts[index]
                index += 1
                while self._pass(front):
                    changed = True
                    if self.unknown:
                        return
            self.fronts = [each for each in self.fronts if each.node is not _ENDED]

    # ── one event ───────────────────────────────────────────────────────────

    def _pass(self, front: Front) -> bool:
        """Carry out the next event of a front, if it may be possible."""
        node = front.node
        if node is _ENDED or node.cut:
            return False
        if front.stopped >= 0 and self._changed(front.stopped) == front.seen:
            return False
        if front.parked and front.number >= self.machine.agents:
            return self._begin(front)
        event = node.event
        if event is None:
            self.done[front.number] = front.root
            return self._ends(front)
        self.moved.add(front.root)
        if isinstance(event, Sync | Arrive):
            return self._meet(front, event)
        if isinstance(event, MbarrierWait | MbarrierTest):
            return self._look(front, event)
        if isinstance(event, Load | Store | Atomic | Await):
            return self._word(front, event)
        if isinstance(event, COUNTS):
            self._count(front, event)
        elif isinstance(event, MbarrierInit | MbarrierInval | MbarrierRaise):
            thing = self.mbarrier(node.key)
            thing.wild = True
            thing.roots.add(front.root)
            self._change(node.key)
        elif isinstance(event, Choose):
            return self._branches(front, set(event.values))
        elif isinstance(event, Exit):
            self.exits[front.number] = front.root
            return self._ends(front)
        elif not self._others(front, event):
            return False
        return self._next(front)

    def _changed(self, key: int) -> int:
        """A number that grows when an object changes; exits change barriers."""
        return self._changes.get(key, 0) + len(self.exits)

    def _change(self, key: int) -> None:
        self._changes[key] = self._changes.get(key, 0) + 1

    def _stops(self, front: Front, key: int) -> bool:
        """A front waits until an object changes."""
        front.stopped, front.seen = key, self._changed(key)
        return False

    def _others(self, front: Front, event: Event) -> bool:
        """Units, groups and the barrier of a cluster; False: it waits."""
        node = front.node
        if isinstance(event, Issue):
            self._issue(front, event)
        elif isinstance(event, ReadDone):
            self.read[front.number] = front.root
        elif isinstance(event, Commit):
            self._shared(front, event.group, node.key, self.groups)
            mine = (front.root, node.key)
            units = tuple(self._open.pop(mine, ()))
            self._commits.setdefault(mine, []).append(units)
        elif isinstance(event, GroupWait):
            if not self._groups_over(front, event):
                return False
            self._shared(front, event.group, node.key, self.joiners)
        elif isinstance(event, UnitWait):
            return self._over(self._named(event.units))
        elif isinstance(event, ClusterArrive):
            self._arrives_in_cluster(front.root, node.key)
            front.phases["arrived", node.key] = front.phases.get(node.key, 0)
        elif isinstance(event, ClusterWait):
            return self._cluster_wait(front, event)
        return True

    def _next(self, front: Front) -> bool:
        node = front.node
        if node.branches is not None:  # an event whose value is not followed
            return self._branches(front, None)
        assert node.next is not None
        front.node = self._loud(node.next)
        return True

    def _ends(self, front: Front) -> bool:
        self.moved.add(front.root)
        front.node = _ENDED
        return True

    def _branches(self, front: Front, values: set[int] | None) -> bool:
        """Take the branches of values; None: of all values."""
        node = front.node
        if node.branches is None:
            assert node.next is not None
            front.node = self._loud(node.next)
            return True
        known = node.branches
        grows = self.machine.tree.grows
        if values is None:
            two = isinstance(node.event, MbarrierTest) and len(known) == 2
            self.unknown |= grows and not two
            values = set(known)
        new = values - front.taken
        front.taken |= new
        for value in new:
            if value in known:
                self._forked.add(front.number)
                self.fronts.append(front.fork(self._loud(known[value])))
            else:
                self.unknown |= grows
        return bool(new)

    # ── units ───────────────────────────────────────────────────────────────

    def _begin(self, front: Front) -> bool:
        unit = self.machine.tree.units[front.number - self.machine.agents]
        if not self._over(self._named(unit.after)):
            return False
        front.parked = False
        front.node = self._loud(front.node)
        return True

    def _named(self, names: tuple[Hashable, ...]) -> list[int]:
        """The units of names that are certain to have been issued."""
        return self.machine.issued(self.state, names)

    def _over(self, units: Iterable[int]) -> bool:
        return all(each in self.state.done or each in self.done for each in units)

    def _issue(self, front: Front, event: Issue) -> None:
        made = front.node.result
        unit = event.unit
        if unit.group is not None:
            key = self.machine.tree.number(("group", unit.group))
            self._shared(front, unit.group, key, self.groups)
            self._open.setdefault((front.root, key), []).append(made)
        if made in self._issued:
            return
        self._issued.add(made)
        self.fronts.append(self._begun(front.root, made, bool(unit.after)))

    def _begun(self, root: int, unit: int, parked: bool) -> Front:
        node = self.machine.tree.first[unit - self.machine.agents]
        return Front(root, unit, node if parked else self._loud(node), parked)

    def _shared(
        self, front: Front, group: Hashable, key: int, users: dict[int, set[int]]
    ) -> None:
        if not self.machine.tree.private(group):
            users.setdefault(key, set()).add(front.root)

    def group_users(self, key: int) -> set[int]:
        """Who uses the groups of a shared name in any way."""
        return self.groups.get(key, set()) | self.joiners.get(key, set())

    def _groups_over(self, front: Front, event: GroupWait) -> bool:
        """Whether the groups may be complete that a front waits for at least."""
        node, state = front.node, self.state
        thing = state.objects.get(node.key)
        groups = list(thing.groups) if isinstance(thing, GroupObject) else []
        if self.machine.tree.private(event.group):
            still = thing.open if isinstance(thing, GroupObject) else ()
            own = self._commits.get((front.root, node.key), [])
            if own:
                own = [(*still, *own[0]), *own[1:]]
            if front.number not in self._forked:  # else another branch may have
                groups += own
        count = max(len(groups) - event.pending, 0)
        units = [unit for each in groups[:count] for unit in each]
        if event.read:
            units = [u for u in units if u not in self.read and u not in state.read]
        return self._over(units)

    # ── barriers ────────────────────────────────────────────────────────────

    def _meet(self, front: Front, event: Sync | Arrive) -> bool:
        key = front.node.key
        several = self._meetings(front.node)
        if several is not None:
            return self._meet_all(front, several)
        if not front.begun and not front.parked:
            front.begun = True
            self._arrives(front, key, event)
        if isinstance(event, Sync):
            phase = front.phases.get(key, 0) + 1
            if self.meetings_over(key, event) < phase:
                return False
            front.phases[key] = phase
        front.begun = front.parked = False
        return self._next(front)

    def _meet_all(self, front: Front, several: Meetings) -> bool:
        """Meet at barriers that need all of their users, one after the other."""
        if not front.begun:
            front.begun = True
            there = front.node.key if front.parked else -1
            for key, (event, times) in several.times.items():
                self._arrives(front, key, event, times - (key == there))
        phases = front.phases
        for key, (event, times) in several.times.items():
            if self.meetings_over(key, event) < phases.get(key, 0) + times:
                return self._stops(front, key)
        for key, (_, times) in several.times.items():
            phases[key] = phases.get(key, 0) + times
        front.begun = front.parked = False
        front.node = several.after
        return True

    def _arrives(
        self, front: Front, key: int, event: Sync | Arrive, times: int = 1
    ) -> None:
        thing = self.meeting(key)
        if times:
            self._change(key)
            thing.arrivals.append((front.root, times * event.threads))
            thing.threads += times * event.threads
            thing.counts.add(event.count)
            thing.times[front.number] = thing.times.get(front.number, 0) + times

    def meeting(self, key: int) -> MeetingAhead:
        """What can happen to a barrier."""
        found = self.meetings.get(key)
        if found is None:
            now = self.machine.meeting(self.state, key)
            found = self.meetings[key] = MeetingAhead(now)
        return found

    def mixed(self, key: int, event: Sync | Arrive) -> bool:
        """Whether different counts may meet at a barrier."""
        counts = self.meeting(key).counts
        return len(counts) > 1 or (bool(counts) and event.count not in counts)

    def meetings_over(self, key: int, event: Sync | Arrive) -> int:
        """How often a barrier may be complete."""
        if self.mixed(key, event):
            return ENDLESS
        count, tree, thing = event.count, self.machine.tree, self.meeting(key)
        if count is not None and not tree.whole(event.barrier):
            return thing.threads // count
        if count is not None:
            needed: Iterable[int] = tree.users_of(event.barrier)
        else:
            live = self.machine.live(self.state, event.barrier.block)
            needed = [n for n in live if n not in self.exits]
        times = thing.times
        return min((times.get(each, 0) for each in needed), default=ENDLESS)

    def _cluster_wait(self, front: Front, event: ClusterWait) -> bool:
        key = front.node.key
        mark: Hashable = ("arrived", key)
        if mark in front.phases:
            phase = front.phases[mark] + 1
        else:
            local = dict(self.state.actors[front.number].local)
            arrived = local.get(("cluster", key))
            now = self.machine.cluster(self.state, key).phase
            if arrived is None or arrived < now:
                return True
            phase = 1
        if self.clusters_over(key, event.barrier) < phase:
            return self._stops(front, key)
        front.phases.pop(mark, None)
        front.phases[key] = max(front.phases.get(key, 0), phase)
        return True

    def clusters_over(self, key: int, barrier: ClusterBarrier) -> int:
        """How many phases of a cluster's barrier may be complete."""
        machine, state = self.machine, self.state
        thing = machine.cluster(state, key)
        live = machine.live_in_cluster(state, barrier.cluster)
        left = [n for n in live if n not in self.exits]
        if not left:
            return ENDLESS
        arrivals = self.clusters.get(key, {})
        return min(arrivals.get(n, 0) + (n in thing.arrived) for n in left)

    def _arrives_in_cluster(self, root: int, key: int) -> None:
        arrivals = self.clusters.setdefault(key, {})
        arrivals[root] = arrivals.get(root, 0) + 1
        self._change(key)

    # ── mbarriers ───────────────────────────────────────────────────────────

    def mbarrier(self, key: int) -> MbarrierAhead:
        """What can happen to an mbarrier."""
        return self.mbarriers.setdefault(key, MbarrierAhead())

    def _count(self, front: Front, event: Event) -> None:
        key = front.node.key
        self._counts(front.root, key, event)
        if isinstance(event, MbarrierArrive) and event.token is not None:
            front.phases["token", event.token] = front.phases.get(key, 0)

    def _counts(self, root: int, key: int, event: Event) -> None:
        thing = self.mbarrier(key)
        self._change(key)
        thing.roots.add(root)
        arrivals, expected, arrived = contribution(event)
        thing.bytes += arrived
        thing.total += arrivals
        thing.expects += expected
        if arrivals:
            thing.arrivals.append((arrivals, expected))
        else:
            thing.bare += expected
        if isinstance(event, MbarrierArrive):
            thing.never_last |= event.no_complete
            if event.drop:
                thing.drops += arrivals

    def phases_over(self, key: int) -> int:
        """How many phases of an mbarrier may be complete."""
        now = self.state.objects.get(key)
        thing = self.mbarriers.get(key)
        if thing is None or (not isinstance(now, MbarrierObject) and not thing.wild):
            return 0
        if thing.wild or not isinstance(now, MbarrierObject):
            return ENDLESS
        if thing.total < now.pending:
            return 0
        reload = now.expected - thing.drops
        most = 1 + (thing.total - now.pending) // reload if reload > 0 else ENDLESS
        if now.tx + thing.expects < 0:
            return 0
        if thing.expects == thing.bare and now.tx <= thing.bytes:
            return most
        single = all(count == 1 for count, _ in thing.arrivals)
        bytes_each = sorted(each for _, each in thing.arrivals)
        for phase in range(1, min(most, len(thing.arrivals) + 1) + 1):
            needed = now.pending + (phase - 1) * max(reload, 0)
            least = sum(bytes_each[:needed]) if single else 0
            if now.tx + least > thing.bytes:
                return phase - 1
        return most

    def _look(self, front: Front, event: MbarrierWait | MbarrierTest) -> bool:
        key = front.node.key
        thing = self.mbarrier(key)
        now = self.state.objects.get(key)
        if not isinstance(now, MbarrierObject):
            thing.watchers.add(front.root)
            if not thing.wild:
                return False  # misuse, or it waits for the mbarrier
            return self._next_any(front, event)
        over, least = self.phases_over(key), front.phases.get(key, 0)
        parity = None
        if event.token is None:
            parity = event.parity & 1
        elif ("token", event.token) in front.phases:
            least = max(least, front.phases["token", event.token] + 1)
        else:
            parity = self.machine.parity(self.state.actors[front.number], event)
        if over == ENDLESS:
            thing.watchers.add(front.root)
            return self._next_any(front, event)
        if parity is not None:
            least += ((now.phase + least) & 1) == parity
        if isinstance(event, MbarrierWait):
            if least > over:
                return self._stops(front, key)
            thing.watchers.add(front.root)
            front.phases[key] = least
            return self._next(front)
        thing.watchers.add(front.root)
        values = {1} if least <= over else set()
        first = front.phases.get(key, 0)
        if parity is None or any(
            ((now.phase + each) & 1) == parity
            for each in (first, first + 1)
            if each <= over
        ):
            values.add(0)
        return self._branches(front, values)

    def _next_any(self, front: Front, event: MbarrierWait | MbarrierTest) -> bool:
        if isinstance(event, MbarrierTest):
            return self._branches(front, {0, 1})
        return self._next(front)

    # ── words ───────────────────────────────────────────────────────────────

    def word(self, node: Node, key: int) -> WordAhead:
        """What can happen to a word."""
        found = self.words.get(key)
        if found is None:
            event = node.event
            assert isinstance(event, Load | Store | Atomic | Await)
            word = event.word
            if key == node.result and isinstance(event, Atomic) and event.result:
                word = event.result
            value = self.machine.word(self.state, key, word).value
            found = self.words[key] = WordAhead(value)
        return found

    def _word(self, front: Front, event: WordEvent) -> bool:
        node = front.node
        thing = self.word(node, node.key)
        values = thing.values
        if isinstance(event, Await):
            passed = self._passing(front, event)
            if values is not None and passed is not None:
                values = {each for each in values if passed(each).ends}
                if not values:
                    return False
            if event.update is not None:
                self._atomic(front, thing, event.update, event.condition, passed)
                thing.writers.add(front.root)
            thing.readers.add(front.root)
        elif isinstance(event, Load):
            thing.readers.add(front.root)
        elif isinstance(event, Store):
            thing.writers.add(front.root)
            self._can_hold(thing, {wrapped(event.value, event.word)})
        else:
            thing.writers.add(front.root)
            if self.commutes(node):
                thing.reds.add(front.root)
            else:
                thing.readers.add(front.root)
            if event.result is not None:
                self.word(node, node.result).writers.add(front.root)
            self._atomic(front, thing, event)
        if not isinstance(event, Store) and event.kept is not None:
            front.phases["kept", event.kept] = 1  # which value is not known
        return self._branches(front, values)

    def _passing(self, front: Front, event: Await) -> Passing | None:
        """What a loop does for each value; None if it depends on what is not known."""
        keeps = event.condition.keeps
        if any(("kept", name) in front.phases for name in keeps):
            return None
        values = kept(self.state.actors[front.number], keeps)
        return partial(event.condition.passed, kept=values)

    def commutes(self, node: Node) -> bool:
        """Whether an event is a ``red.add`` that nothing else can tell from another.

        Two of them in either order leave the same value and hand over the same.
        """
        event = node.event
        if not isinstance(event, Atomic) or event.operation != "add" or event.returns:
            return False
        decides = node.branches is not None
        if event.order.acquires or event.result is not None or decides:
            return False
        access, tree = node.write_bit.bit_length() - 1, self.machine.tree
        tree.relied.add(("red", access))
        return not tree.accesses.collides[access]

    def _atomic(
        self,
        front: Front,
        thing: WordAhead,
        atomic: Atomic,
        loop: Condition | Loop | None = None,
        passed: Passing | None = None,
    ) -> None:
        mark = (front.number, id(front.node))
        if mark in thing.added:
            return
        thing.added.add(mark)
        step = None if loop is None else partial(done, atomic, loop, passed)
        thing.atomics.append((atomic, step, front.node.result))
        unclear = isinstance(loop, Loop) and passed is None
        self._can_hold(thing, None if unclear else set())

    def _can_hold(self, thing: WordAhead, values: set[int] | None) -> None:
        """Add values, and what atomic operations make of them."""
        before = thing.stored
        thing.stored = None if values is None or before is None else before | values
        thing.values = found = reachable(thing.stored, thing.atomics)
        for atomic, _, result in thing.atomics:
            if result < 0 or atomic.result is None:
                continue
            other, held = self.words[result], found
            if held is not None:
                held = {wrapped(each, atomic.result) for each in held}
            if other.stored is not None and (held is None or held - other.stored):
                self._can_hold(other, held)


_ENDED = Node(-1, -1, None)
_ENDED.cut = "ended"
