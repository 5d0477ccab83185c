"""Which actors have an event ahead that does not commute with one that is held.

If there are none, no order of the others matters for it, and it can be carried out
first.
"""

from __future__ import annotations

from collections.abc import Iterable

from fragmenta.watch.orders.ahead import COUNTS, Ahead, WordEvent
from fragmenta.watch.orders.machine import MOST, contribution, kept
from fragmenta.watch.orders.program import (
    Arrive,
    Atomic,
    Await,
    ClusterArrive,
    ClusterWait,
    Commit,
    Exit,
    GroupWait,
    Issue,
    Load,
    MbarrierArrive,
    MbarrierInit,
    MbarrierInval,
    MbarrierRaise,
    MbarrierTest,
    MbarrierWait,
    Store,
    Sync,
    UnitWait,
)
from fragmenta.watch.orders.state import MbarrierObject, State
from fragmenta.watch.orders.tree import Node


def rivals(ahead: Ahead, number: int) -> set[int]:
    """Actors with an event ahead that does not commute with one that is held."""
    machine, state = ahead.machine, ahead.state
    actor = state.actors[number]
    node, event = actor.node, actor.node.event
    if actor.parked and number >= machine.agents:
        units = machine.predecessors(state, number)
        return _finishing(ahead, units, ())
    if isinstance(event, Sync | Arrive):
        return _meeting_rivals(ahead, number, event)
    if isinstance(event, Exit):
        plain = machine.tree.plain(machine.homes[number].block)
        return set() if plain else _all_arrivals(ahead)
    if isinstance(event, ClusterArrive | ClusterWait):
        return _cluster_rivals(ahead, number)
    if isinstance(event, GroupWait):
        units = machine.group(state, node)
        found = _finishing(ahead, units, state.read if event.read else ())
        return found | ahead.groups.get(node.key, set())
    if isinstance(event, Commit):
        return ahead.group_users(node.key)
    if isinstance(event, Issue):
        key = machine.tree.objects.get(("group", event.unit.group), -1)
        return ahead.group_users(key)
    if isinstance(event, UnitWait):
        return _finishing(ahead, machine.issued(state, event.units), ())
    if isinstance(event, Load | Store | Atomic | Await):
        return _word_rivals(ahead, number, event)
    if node.key in ahead.mbarriers:
        return _mbarrier_rivals(ahead, number, node)
    return set()


def alone(ahead: Ahead, number: int, state: State) -> bool:
    """Whether a held actor's next event in a later state surely commutes with all.

    That state is one that ``ahead`` was told to follow.
    """
    node = state.actors[number].node
    if not isinstance(node.event, (*COUNTS, MbarrierWait)):
        return False
    if node.key not in ahead.mbarriers:
        return True
    return not _mbarrier_rivals(ahead, number, node) - {number}


def _finishing(ahead: Ahead, units: Iterable[int], read: Iterable[int]) -> set[int]:
    """The units that are waited for, and can come to their end now."""
    left = [u for u in units if u not in ahead.state.done and u not in read]
    return {u for u in left if u in ahead.moved}


def _all_arrivals(ahead: Ahead) -> set[int]:
    return {root for each in ahead.meetings.values() for root, _ in each.arrivals}


def _meeting_rivals(ahead: Ahead, number: int, event: Sync | Arrive) -> set[int]:
    key = ahead.state.actors[number].node.key
    thing = ahead.meeting(key)
    roots = {root for root, _ in thing.arrivals}
    exits = set(ahead.exits.values())
    if ahead.state.actors[number].parked:
        return roots | exits if ahead.meetings_over(key, event) > 0 else set()
    if not ahead.machine.tree.plain(event.barrier.block):
        return roots | exits
    if not roots:
        return set()
    again = any(who == number for who, _ in thing.now.arrived)
    if again or ahead.mixed(key, event) or event.count is None:
        return roots
    return roots if thing.threads + event.threads > event.count else set()


def _cluster_rivals(ahead: Ahead, number: int) -> set[int]:
    actor = ahead.state.actors[number]
    event, key = actor.node.event, actor.node.key
    if not isinstance(event, ClusterWait) or ahead.machine.enabled(ahead.state, number):
        return set()
    if ahead.clusters_over(key, event.barrier) == 0:
        return set()
    roots = set(ahead.clusters.get(key, ()))
    return roots | set(ahead.exits.values())


def _word_rivals(ahead: Ahead, number: int, event: WordEvent) -> set[int]:
    found: set[int] = set()
    actor = ahead.state.actors[number]
    node = actor.node
    for key in {node.key, node.result} - {-1}:
        thing = ahead.words.get(key)
        if thing is None:
            continue
        reads_only = isinstance(event, Load) or (
            isinstance(event, Await) and event.update is None
        )
        if isinstance(event, Await) and thing.values is not None:
            value = ahead.machine.word(ahead.state, node.key, event.word).value
            values = kept(actor, event.condition.keeps)
            loop = event.condition
            if not any(loop.passed(e, values).ends for e in {value, *thing.values}):
                continue
        found |= thing.writers
        if not reads_only:
            found |= thing.readers
            if ahead.commutes(node) and not thing.readers:
                found -= thing.reds if thing.writers == thing.reds else set()
    return found


def _mbarrier_rivals(ahead: Ahead, number: int, node: Node) -> set[int]:
    thing, event = ahead.mbarriers[node.key], node.event
    now = ahead.state.objects.get(node.key)
    everyone = thing.roots | thing.watchers
    if thing.wild or isinstance(event, MbarrierInit | MbarrierInval | MbarrierRaise):
        return everyone
    if not isinstance(now, MbarrierObject):
        return set()  # misuse, whatever the others do
    if isinstance(event, MbarrierWait | MbarrierTest):
        return thing.roots if ahead.phases_over(node.key) else set()
    arrivals, expected, arrived = contribution(event)
    total = arrivals + thing.total
    bytes_ = thing.bytes + arrived
    wanted = expected + thing.expects
    if abs(now.tx) + bytes_ + wanted > MOST or total > now.pending:
        return everyone
    if total < now.pending:
        return set()
    strict = isinstance(event, MbarrierArrive) and event.no_complete
    bare = thing.bare or (expected and not arrivals)
    if strict or thing.never_last or bare or now.tx + wanted < bytes_:
        return everyone
    return thing.watchers if now.tx + wanted == bytes_ else set()
