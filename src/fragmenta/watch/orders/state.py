"""A moment of an execution: where everyone is, and how the objects are.

What an agent knows is two masks of accesses that happened before: for the generic
proxy (``know``) and for the async proxy (``ahead``).  A release hands over both,
together with its home and its scope; who acquires takes those that reach it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, TypeAlias

from fragmenta.ptx.ordering import Scope
from fragmenta.watch.orders.accesses import Home
from fragmenta.watch.orders.tree import Node

Clock: TypeAlias = tuple[int, int]
"""What is known through the generic and through the async proxy."""
Released: TypeAlias = tuple[tuple[Home, Scope, int, int], ...]
"""Clocks that were handed over: by whom, in which scope, and both masks."""
NOTHING: Clock = (0, 0)


class Actor(NamedTuple):
    """Where an agent or a unit is, and what it knows."""

    node: Node
    parked: bool
    """Whether it waits at a barrier, or for the units before it."""
    know: int
    ahead: int
    fence: Released = ()
    """What its fences have released."""
    pending: Released = ()
    """What relaxed loads have read; a fence acquires it."""
    local: tuple[tuple[Hashable, int], ...] = ()
    """Phases of its arrivals, by the names of tokens and of cluster barriers; and what
    it keeps, by the names of values."""


class MbarrierObject(NamedTuple):
    """An mbarrier."""

    phase: int
    pending: int
    expected: int
    tx: int
    released: Released = ()
    last: Released = ()
    """What was released in the phase before."""


class MeetingObject(NamedTuple):
    """A barrier of a block or of a warp, while it is incomplete."""

    arrived: frozenset[tuple[int, bool]] = frozenset()
    """Actors, and whether they wait."""
    threads: int = 0
    size: int | None = None
    """How many threads meet; None: all that have not exited."""
    know: int = 0
    ahead: int = 0


class ClusterObject(NamedTuple):
    """The barrier of a cluster."""

    phase: int = 0
    arrived: frozenset[int] = frozenset()
    know: int = 0
    ahead: int = 0
    last: Clock = NOTHING


class WordObject(NamedTuple):
    """A word."""

    value: int
    released: Released = ()
    writers: int = 0
    """The accesses that wrote the value: a store, and atomic operations after it."""
    by: tuple[Home, Scope] | None = None
    """Who wrote last."""


class GroupObject(NamedTuple):
    """The groups of one name."""

    open: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()


class State:
    """A moment of an execution."""

    __slots__ = (
        "actors",
        "ahead",
        "done",
        "executed",
        "exits",
        "log",
        "objects",
        "read",
    )

    def __init__(self) -> None:
        self.actors: dict[int, Actor] = {}
        self.objects: dict[int, NamedTuple] = {}
        self.done: dict[int, Clock] = {}
        """Units that are done and may be waited for, and what they knew."""
        self.read: dict[int, Clock] = {}
        self.exits: dict[int, Clock] = {}
        """Agents that have exited, and what they knew."""
        self.executed = 0
        """The accesses that have happened."""
        self.log: list[tuple[int, Node, int | None]] = []
        self.ahead: Any = None
        """What the others can do, as far as it was found out for the state before."""

    def copy(self) -> State:
        """A second state that can be changed, with an empty log."""
        other = State()
        other.actors = self.actors.copy()
        other.objects = self.objects.copy()
        other.done = self.done.copy()
        other.read = self.read.copy()
        other.exits = self.exits.copy()
        other.executed = self.executed
        return other

    def key(self) -> Hashable:
        """Equal for states that have the same future."""
        relevant = 0
        for actor in self.actors.values():
            relevant |= actor.node.future
        if relevant == -1:
            actors: Hashable = frozenset(self.actors.items())
            objects: Hashable = frozenset(self.objects.items())
        else:
            actors = frozenset(
                (number, *relevant_part(actor, relevant))
                for number, actor in self.actors.items()
            )
            objects = frozenset(
                (number, *relevant_object(each, relevant))
                for number, each in self.objects.items()
            )
        clocks = tuple(
            frozenset((n, c[0] & relevant, c[1] & relevant) for n, c in each.items())
            for each in (self.done, self.read, self.exits)
        )
        return actors, objects, clocks


def relevant_part(actor: Actor, mask: int) -> tuple[Hashable, ...]:
    """An actor, with what it knows about the accesses of a mask."""
    return (
        actor.node,
        actor.parked,
        actor.know & mask,
        actor.ahead & mask,
        masked(actor.fence, mask),
        masked(actor.pending, mask),
        actor.local,
    )


def relevant_object(thing: NamedTuple, mask: int) -> tuple[Hashable, ...]:
    """An object, with what it hands over about the accesses of a mask."""
    if isinstance(thing, MbarrierObject):
        return (*thing[:4], masked(thing.released, mask), masked(thing.last, mask))
    if isinstance(thing, MeetingObject):
        return (*thing[:3], thing.know & mask, thing.ahead & mask)
    if isinstance(thing, ClusterObject):
        last = thing.last[0] & mask, thing.last[1] & mask
        return (*thing[:2], thing.know & mask, thing.ahead & mask, last)
    if isinstance(thing, WordObject):
        released = masked(thing.released, mask)
        return thing.value, released, thing.writers & mask, thing.by
    return tuple(thing)


def masked(released: Released, mask: int) -> Released:
    """Clocks that were handed over, without what does not matter."""
    return tuple(
        (home, scope, know & mask, ahead & mask)
        for home, scope, know, ahead in released
        if (know | ahead) & mask
    )


def merge(released: Released, *others: tuple[Home, Scope, int, int]) -> Released:
    """Add clocks to those that were handed over."""
    if not others:
        return released
    found = {(home, scope): (know, ahead) for home, scope, know, ahead in released}
    for home, scope, know, ahead in others:
        before = found.get((home, scope), NOTHING)
        found[home, scope] = (before[0] | know, before[1] | ahead)
    return tuple(sorted((*key, *clock) for key, clock in found.items()))


def narrowed(
    released: Released, scope: Scope
) -> Iterator[tuple[Home, Scope, int, int]]:
    """The same clocks in at most this scope."""
    for home, each, know, ahead in released:
        yield home, min(each, scope), know, ahead
