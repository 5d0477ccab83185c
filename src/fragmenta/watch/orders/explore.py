"""Explores every order of a program's events.

In each state a *persistent set* of actors is chosen: whatever the others do first, it
commutes with the next events of the set.  So only the next events of the set have to be
tried, and still every end is reached, and every way in which threads can hand over what
they know.  States that were visited before are not visited again.  Nothing repeats, as
the events of each agent are finite, so this ends.

:mod:`fragmenta.watch.orders.ahead` finds persistent sets.  Events that commute with
everything, such as plain accesses, are carried out at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from fragmenta.base.progress import Progress, clock, ignore_progress
from fragmenta.errors import BadCall
from fragmenta.watch.orders.accesses import bits, overlap
from fragmenta.watch.orders.ahead import Ahead
from fragmenta.watch.orders.hangs import describe
from fragmenta.watch.orders.machine import Machine
from fragmenta.watch.orders.program import (
    Access,
    Await,
    Choose,
    ClusterArrive,
    ClusterWait,
    Commit,
    Exit,
    Extend,
    Fence,
    GroupWait,
    Issue,
    OrderStep,
    Program,
    ProxyFence,
    ReadDone,
    Sync,
    UnitWait,
)
from fragmenta.watch.orders.rivals import alone, rivals
from fragmenta.watch.orders.state import State
from fragmenta.watch.orders.tree import Node, Tree
from fragmenta.watch.orders.verdict import (
    Coverage,
    Misuse,
    MisuseKind,
    Order,
    Race,
    Verdict,
)

ALWAYS = (
    Access,
    Fence,
    ProxyFence,
    ReadDone,
    UnitWait,
    ClusterArrive,
    ClusterWait,
)
"""Events that commute with all that others can do first, once they can happen."""


def explore(
    program: Program,
    extend: Extend | None = None,
    *,
    limit: int | None = None,
    seconds: float | None = None,
    progress: Progress = ignore_progress,
) -> Verdict:
    """Explore all orders of a program: hangs, races and misuse in any of them.

    ``extend`` is asked for events that are not known yet.  ``limit`` is the largest
    number of states, ``seconds`` the longest time; what they cut off makes the verdict
    incomplete.

    >>> from fragmenta.watch.orders.program import Agent, Barrier, Events
    >>> def warp(number):
    ...     steps = Events([Sync(Barrier(0, number), 32, 64), Exit(32)])
    ...     return Agent(f"warp {number}", 0, 32, steps)
    >>> verdict = explore(Program([warp(0), warp(1)]))
    >>> verdict.coverage.value, [each.event.barrier for each in verdict.hang.waiting]
    ('all orders', [Barrier(block=0, number=0), Barrier(block=0, number=1)])
    """
    if limit is not None and limit < 1:
        raise BadCall(f"limit is {limit}; it is a number of states, at least 1")
    tree = Tree(program, grows=extend is not None)
    deadline = None if seconds is None else clock.now() + seconds
    while True:
        search = Search(tree, extend, limit, deadline, progress)
        try:
            search.run()
        except RestartSearch:
            tree.relied.clear()
            continue
        return search.verdict()


class RestartSearch(Exception):
    """Events were added that earlier decisions did not reckon with."""


class Search:
    """One exploration."""

    def __init__(
        self,
        tree: Tree,
        extend: Extend | None,
        limit: int | None,
        deadline: float | None,
        progress: Progress,
    ) -> None:
        self.tree = tree
        self.extend = extend
        self.limit = limit
        self.progress = progress
        self.deadline = deadline
        self.machine = Machine(tree, self._unknown)
        self.machine.found = self._found
        self.visited: dict[Hashable, int] = {}
        self.parents: list[int] = []
        self.logs: list[list[tuple[int, Node, int | None]]] = []
        self.depths: list[int] = []
        self.following: list[list[int]] = []
        self.here = -1
        """The state that is being left."""
        self.steps = 0
        self.reasons: dict[str, None] = {}
        self.complete = True
        self.shortest = False
        """Whether no hang is shorter than the one that is known."""
        self.hang: tuple[int, int] | None = None
        """The depth and the number of the shortest state in which all wait."""
        self.races: dict[Hashable, tuple[int, int, int, bool, Place]] = {}
        self.misuses: dict[tuple[MisuseKind, Node], tuple[int, Place]] = {}

    # ── the search ──────────────────────────────────────────────────────────

    def run(self) -> None:
        """Visit every state that is needed."""
        self.tree.refresh()
        state = self.machine.start()
        self._settle(state)
        stack: list[tuple[int, State, float]] = []
        self._visit(state, stack, 1.0)
        done = 0.0
        later: list[tuple[int, State, float]] = []
        while stack or later:
            if not stack:
                self.shortest = True  # what is left is longer than a hang
                stack, later = later, []
            if self._spent():
                return
            number, state, share = stack.pop()
            if not self.shortest and self._longer(number):
                later.append((number, state, share))
                continue
            self.here = number
            ends = any(each.node.ends for each in state.actors.values())
            made = [] if ends else list(self._successors(state))
            before = len(stack)
            for each in made:
                self.here = number
                self._visit(each, stack, share / len(made))
            if not made:
                self._end(number, state)
            done += share * (1 - (len(stack) - before) / max(len(made), 1))
            self.progress(done)
        self.shortest = True

    def _longer(self, number: int) -> bool:
        """Whether no hang from a state on is shorter than one that is known."""
        return self.hang is not None and self.depths[number] >= self.hang[0]

    def _spent(self) -> bool:
        if self.limit is not None and len(self.parents) >= self.limit:
            why = f"the limit of {self.limit} states was reached"
        elif self.deadline is not None and clock.now() > self.deadline:
            why = "the limit of time was reached"
        else:
            return False
        self.complete = False
        self.reasons[why] = None
        return True

    def _visit(
        self, state: State, stack: list[tuple[int, State, float]], share: float
    ) -> None:
        key = state.key()
        number = self.visited.get(key)
        if number is None:
            number = self.visited[key] = len(self.parents)
            self.parents.append(self.here)
            self.logs.append(state.log)
            before = self.depths[self.here] if self.here >= 0 else 0
            self.depths.append(before + len(state.log))
            self.following.append([])
            stack.append((number, state, share))
        if self.here >= 0:
            self.following[self.here].append(number)

    def _successors(self, state: State) -> Iterator[State]:
        chosen = self._persistent(state)
        for number in chosen:
            event = state.actors[number].node.event
            values = event.values if isinstance(event, Choose) else (None,)
            for value in values:
                other = state.copy()
                self._step(other, number, value)
                self._settle(other)
                if len(chosen) == len(values) == 1:
                    other.ahead = state.ahead
                yield other

    def _step(self, state: State, number: int, choice: int | None = None) -> None:
        node = state.actors[number].node
        self.steps += 1
        kind = self.machine.step(state, number, choice)
        if kind is not None:
            place = self._place(state)
            key = (kind, node)
            if key not in self.misuses or self.misuses[key][0] > place[2]:
                self.misuses[key] = place[2], place

    def _settle(self, state: State) -> None:
        """Carry out everything that commutes with all else."""
        changed = True
        while changed:
            changed = False
            for number in list(state.actors):
                while number in state.actors and self._independent(state, number):
                    self._step(state, number)
                    changed = True

    def _independent(self, state: State, number: int) -> bool:
        """Whether an actor can go on, and its next event commutes with all others."""
        actor = state.actors[number]
        event = actor.node.event
        if event is None or actor.parked or isinstance(event, ALWAYS):
            return self.machine.enabled(state, number)
        if isinstance(event, Sync):
            return self.tree.whole(event.barrier)
        if isinstance(event, Exit):
            return self.tree.plain(self.machine.homes[number].block)
        if isinstance(event, Commit | GroupWait):
            return self.tree.private(event.group) and self.machine.enabled(
                state, number
            )
        if isinstance(event, Issue):
            return event.unit.group is None or self.tree.private(event.unit.group)
        return False

    def _persistent(self, state: State) -> list[int]:
        """Actors whose next events are enough to try; the fewest that are found."""
        if state.ahead is not None:
            (before,) = state.ahead.held
            if self._again(state, before, state.ahead):
                return [before]
            state.ahead = None
        enabled = [n for n in state.actors if self.machine.enabled(state, n)]
        best = enabled
        for seed in enabled:
            if len(best) < 2:
                break
            held = {seed}
            while True:
                ahead = Ahead(self.machine, state, held)
                if ahead.unknown:
                    break
                more = {each for one in held for each in rivals(ahead, one)}
                if not more - held:
                    found = [n for n in enabled if n in held]
                    if len(found) < len(best):
                        best = found
                        state.ahead = ahead if len(held) == 1 else None
                    break
                held |= more
                if sum(n in held for n in enabled) >= len(best):
                    break
        return best

    def _again(self, state: State, number: int, ahead: Ahead) -> bool:
        """Whether the actor that was chosen before can be chosen again."""
        if number not in state.actors or not ahead.follow(number, state):
            return False
        return self.machine.enabled(state, number) and alone(ahead, number, state)

    # ── what is found ───────────────────────────────────────────────────────

    def _end(self, number: int, state: State) -> None:
        cut = [each.node for each in state.actors.values() if each.node.cut]
        for node in cut:
            if node is not self.machine.stopped:
                self.complete = False
                self.reasons[node.cut] = None
        agents = any(each < self.machine.agents for each in state.actors)
        if self._unclear(state):
            self.complete = False
        elif not cut and agents:
            depth = self.depths[number]
            if self.hang is None or depth < self.hang[0]:
                self.hang = depth, number

    def _unclear(self, state: State) -> bool:
        """Whether somebody is in a loop that another value may end, too.

        Then it is not known whether this is a hang.
        """
        found = False
        for actor in state.actors.values():
            event = actor.node.event
            if isinstance(event, Await) and not self.machine.passes(state, actor).known:
                self.reasons[f"loop {event.place}"] = None
                found = True
        return found

    def _place(self, state: State) -> Place:
        before = self.depths[self.here] if self.here >= 0 else 0
        return self.here, tuple(state.log), before + len(state.log)

    def _found(self, state: State, own: int, others: int, fence: bool) -> None:
        """An access races with others; the log does not have it yet."""
        depth = (self.depths[self.here] if self.here >= 0 else 0) + len(state.log)
        for other in bits(others):
            key: Hashable = frozenset((self._site(other), self._site(own))), fence
            known = self.races.get(key)
            if known is None or known[2] > depth:
                place = self.here, tuple(state.log), depth
                self.races[key] = other, own, depth, fence, place

    def _site(self, access: int) -> Hashable:
        """What tells an access from others: its place, or else its number."""
        node = self.tree.sources[access]
        assert node.event is not None
        if node.event.place is None:
            return access
        return node.event.place, self.tree.accesses.sides[access].writes

    def _unknown(self, state: State, node: Node, value: int) -> Node:
        name = self.tree.program.agents[node.agent].name
        what = type(node.event).__name__
        if self.extend is None:
            why = f"what {name} does if its {what} observes {value} is not known"
            return self.tree.cut(node, value, why)
        here, log, _ = self._place(state)
        steps = self.extend(node.agent, (*node.observed, value), self._order(here, log))
        if steps is None:
            why = f"what {name} does if its {what} observes {value} cannot be told"
            found = self.tree.cut(node, value, why)
        elif steps.ends:
            found = self.tree.cut(node, value, steps.cut, ends=True)
        else:
            found = self.tree.extend(node, value, steps)
        self.tree.refresh()
        self.machine.hops.refresh()
        if self.tree.changed():
            raise RestartSearch
        return found

    # ── the answer ──────────────────────────────────────────────────────────

    def _order(
        self, number: int, log: tuple[tuple[int, Node, int | None], ...] = ()
    ) -> Order:
        parts = [log]
        while number >= 0:
            parts.append(tuple(self.logs[number]))
            number = self.parents[number]
        return tuple(self._event(*each) for part in reversed(parts) for each in part)

    def _event(self, number: int, node: Node, observed: int | None) -> OrderStep:
        event = node.event
        assert event is not None
        unit = None if node.unit is None else node.unit.name
        if isinstance(event, Sync):
            observed = None
        return OrderStep(node.agent, event, unit, observed)

    def verdict(self) -> Verdict:
        """The answer, as data."""
        coverage = Coverage.ALL
        if self.tree.program.limits:
            coverage = Coverage.PATH
        if not self.complete:
            coverage = Coverage.INCOMPLETE
        hang = None
        if self.hang is not None:
            hang = describe(self.machine, self._order(self.hang[1]))
        return Verdict(
            coverage,
            (*self.reasons, *self.tree.program.limits),
            hang,
            tuple(self._races()),
            tuple(self._misuses()),
            self._paths(),
            len(self.parents),
            self.steps,
            self.hang is None or self.shortest,
        )

    def _races(self) -> Iterator[Race]:
        sources, sides = self.tree.sources, self.tree.accesses.sides
        for other, own, _, fence, (here, log, _) in sorted(
            self.races.values(), key=lambda each: each[:3]
        ):
            first = self._event(0, sources[other], None)
            second = self._event(0, sources[own], None)
            span = overlap(sides[other].spans, sides[own].spans)
            assert span is not None
            order = (*self._order(here, log), second)
            yield Race(first, second, span, order, fence)

    def _misuses(self) -> Iterator[Misuse]:
        for (kind, _), (_, (here, log, _)) in self.misuses.items():
            order = self._order(here, log)
            yield Misuse(kind, order[-1], order)

    def _paths(self) -> int:
        """How many orders there are through the states."""
        count = [0] * len(self.parents)
        for number in sorted(range(len(count)), key=lambda n: -self.depths[n]):
            after = self.following[number]
            count[number] = sum(count[each] for each in after) if after else 1
        return count[0] if count else 0


Place = tuple[int, tuple[tuple[int, Node, int | None], ...], int]
"""The state that was left, what was done since, and the number of events in all."""
