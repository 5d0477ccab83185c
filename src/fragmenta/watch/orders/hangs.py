"""Describes a hang: who waits for what, and what happened to it before."""

from __future__ import annotations

from collections.abc import Iterator

from fragmenta.watch.orders.machine import Machine, meeting_size
from fragmenta.watch.orders.program import (
    Arrive,
    Atomic,
    Await,
    ClusterArrive,
    ClusterWait,
    CompleteTx,
    Event,
    Exit,
    ExpectTx,
    GroupWait,
    Issue,
    MbarrierArrive,
    MbarrierWait,
    OrderStep,
    Store,
    Sync,
    UnitWait,
)
from fragmenta.watch.orders.state import MbarrierObject, State
from fragmenta.watch.orders.tree import Node
from fragmenta.watch.orders.verdict import (
    Hang,
    MbarrierState,
    MeetingState,
    ObjectState,
    Order,
    Waiting,
    WordState,
    WorkState,
)


class History:
    """What happened to the objects in an order."""

    def __init__(self) -> None:
        self.counted: dict[int, list[tuple[int, int]]] = {}
        self.completed: dict[int, list[int]] = {}
        self.seen: dict[tuple[int, int], list[int]] = {}


def describe(machine: Machine, order: Order) -> Hang:
    """Run an order once more, and say who waits at its end."""
    machine.found = lambda *_: None
    history = History()
    state = machine.start()
    for index, step in enumerate(order):
        number = _actor(machine, state, step)
        key = state.actors[number].node.key
        before = _phase(state, machine, key)
        _to_event(machine, state, number)
        machine.step(state, number, step.observed)
        counts = (MbarrierArrive, ExpectTx, CompleteTx, Sync, Arrive, ClusterArrive)
        completed = history.completed.setdefault(key, [])
        if isinstance(step.event, counts):
            phase = len(completed) if isinstance(step.event, Sync | Arrive) else before
            history.counted.setdefault(key, []).append((phase, index))
        elif isinstance(step.event, MbarrierWait):
            history.seen.setdefault((number, key), []).append(before - 1)
        over = _phase(state, machine, key) != before
        if isinstance(step.event, Sync | Arrive):
            over = key not in state.objects
        if over:
            completed.append(index)
        _ends(machine, state)
    waiting = tuple(
        _waiting(machine, state, number, history)
        for number, actor in sorted(state.actors.items())
        if actor.node.event is not None
    )
    return Hang(order, waiting)


def _actor(machine: Machine, state: State, step: OrderStep) -> int:
    """The number of the actor of a step."""
    if step.unit is None:
        return step.agent
    return next(n for n in machine.tree.names[step.unit] if n in state.actors)


def _to_event(machine: Machine, state: State, number: int) -> None:
    """Begin a unit that waited for others."""
    if state.actors[number].parked:
        machine.step(state, number)


def _ends(machine: Machine, state: State) -> None:
    """Units that have no more events are done."""
    for number in list(state.actors):
        ended = number >= machine.agents and state.actors[number].node.event is None
        if ended and machine.enabled(state, number):
            machine.step(state, number)


def _phase(state: State, machine: Machine, key: int) -> int:
    thing = state.objects.get(key)
    return getattr(thing, "phase", 0)


def _waiting(machine: Machine, state: State, number: int, history: History) -> Waiting:
    actor = state.actors[number]
    node, event = actor.node, actor.node.event
    assert event is not None
    unit = None if node.unit is None else node.unit.name
    return Waiting(
        node.agent,
        unit,
        event,
        _state(machine, state, number),
        tuple(history.counted.get(node.key, ())),
        tuple(history.completed.get(node.key, ())),
        tuple(history.seen.get((number, node.key), ())),
        tuple(_missing(machine, state, number)),
    )


def _state(machine: Machine, state: State, number: int) -> ObjectState:
    actor = state.actors[number]
    node, event = actor.node, actor.node.event
    tree = machine.tree
    if isinstance(event, MbarrierWait):
        thing = state.objects[node.key]
        assert isinstance(thing, MbarrierObject)
        return MbarrierState(*thing[:4])
    if isinstance(event, Sync):
        meeting = machine.meeting(state, node.key)
        size = meeting_size(machine, state, event, meeting.size)
        who = tuple(sorted(each for each, _ in meeting.arrived))
        return MeetingState(who, meeting.threads, size)
    if isinstance(event, ClusterWait):
        cluster = machine.cluster(state, node.key)
        live = machine.live_in_cluster(state, event.barrier.cluster)
        threads = [machine.threads[each] for each in sorted(cluster.arrived)]
        total = sum(machine.threads[each] for each in live)
        return MeetingState(tuple(sorted(cluster.arrived)), sum(threads), total)
    if isinstance(event, Await):
        return WordState(machine.word(state, node.key, event.word).value)
    units: list[int] = []
    if actor.parked:
        units = machine.predecessors(state, number)
    elif isinstance(event, GroupWait):
        units = machine.group(state, node)
    elif isinstance(event, UnitWait):
        units = machine.issued(state, event.units)
    left = [each for each in units if each not in state.done]
    return WorkState(tuple(tree.units[each - machine.agents].name for each in left))


def _missing(
    machine: Machine, state: State, number: int
) -> Iterator[tuple[int, Event]]:
    """Events that count for what an actor waits for, of others that wait, too."""
    key = state.actors[number].node.key
    for other, actor in sorted(state.actors.items()):
        if other == number:
            continue
        found = first_counting(machine, actor.node, key)
        if found is not None:
            yield actor.node.agent, found


COUNTING = (
    MbarrierArrive,
    CompleteTx,
    Sync,
    Arrive,
    ClusterArrive,
    Store,
    Atomic,
    Await,
    Exit,
)


def first_counting(machine: Machine, start: Node, key: int) -> Event | None:
    """The first event from a node on that counts for an object."""
    seen: set[int] = set()
    nodes = [start]
    while nodes:
        node = nodes.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        reads = isinstance(node.event, Await) and node.event.update is None
        counts = isinstance(node.event, COUNTING) and not reads
        if counts and key in (node.key, node.result):
            return node.event
        if isinstance(node.event, Issue):
            nodes.append(machine.tree.first[node.result - machine.agents])
        if node.next is not None:
            nodes.append(node.next)
        nodes.extend((node.branches or {}).values())
    return None
