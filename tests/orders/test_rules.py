"""Each rule of the reduction, with a small program that needs it.

In each of them a race is in some orders only.  An explorer that takes too much to
commute runs the others; the oracle runs all.
"""

from functools import cache

import pytest

from fragmenta.watch.orders import ahead, hops, machine, rivals, state, tree
from fragmenta.watch.orders.program import (
    Access,
    Agent,
    Arrive,
    Atomic,
    Await,
    Barrier,
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
    MbarrierTest,
    MbarrierWait,
    Order,
    Program,
    Span,
    Store,
    Sync,
    Unit,
    UnitWait,
    WarpBarrier,
    Word,
)
from tests.orders.compare import explored
from tests.orders.oracle import Answer, answer
from tests.thinning import some

MOST = 20_000
FLAG, OTHER, THIRD = (Word("flags", 4 * each) for each in range(3))
FULL = Mbarrier(0, 0)
TILE = Span("shared:0", 0, 8)
READ, WRITE = Access(reads=(TILE,)), Access(writes=(TILE,))
ONE = Barrier(0, 1)
CLUSTER = ClusterBarrier(0)


def agent(*events: Event, after: dict[int, Events] | None = None) -> Agent:
    """An agent that exits, or that branches on the last of its events."""
    if after is None:
        return Agent("", 0, 32, Events([*events, Exit(32)]))
    return Agent("", 0, 32, Events(list(events), after))


def branching(*events: Event) -> Agent:
    """It writes the tile if the last event observes 0."""
    return agent(*events, after={0: Events([WRITE, Exit(32)]), 1: Events([Exit(32)])})


SLOW = Unit("slow", "cp.async", (Store(THIRD, 1),), group="g")
ENABLING: dict[str, tuple[list[Event], list[Event], list[Event]]] = {
    "cluster": (
        [ClusterArrive(CLUSTER, 32)],
        [ClusterArrive(CLUSTER, 32), ClusterWait(CLUSTER)],
        [ClusterArrive(CLUSTER, 32)],
    ),
    "barrier": ([], [Sync(ONE, 32, 64)], [Arrive(ONE, 32, 64)]),
    "word": ([], [Await(OTHER, Condition("eq", 1))], [Store(OTHER, 1)]),
    "addition": (
        [],
        [Await(OTHER, Condition("ge", 2))],
        [Atomic(OTHER, "add", 1, returns=False)] * 2,
    ),
    "result": (
        [],
        [Await(OTHER, Condition("eq", 1))],
        [Store(THIRD, 1), Atomic(THIRD, "exch", 0, result=OTHER)],
    ),
    "exits": ([], [Sync(Barrier(0, 0), 32)], []),
    "unit": ([], [Issue(SLOW), UnitWait(("slow",))], []),
    "group": ([], [Issue(SLOW), Commit("g"), GroupWait("g")], []),
}


def enabling(name: str) -> Program:
    """One waits for another, and then looks at a flag that a third one sets.

    The third one may be first.  It may also be after both others: it is not enough to
    hold it and the one that waits.
    """
    first, waits, wakes = ENABLING[name]
    return Program(
        [
            agent(*first, Store(FLAG, 1), READ),
            branching(*waits, Load(FLAG)),
            agent(Load(THIRD), *wakes),
        ]
    )


def mbarrier(*events: Event) -> Program:
    """An mbarrier for two; the second agent looks at its phase."""
    begin = (MbarrierInit(FULL, 1), Sync(Barrier(0, 0), 32))
    test = branching(Sync(Barrier(0, 0), 32), MbarrierTest(FULL, 0))
    return Program([agent(*begin, *events, READ), test])


def copied(*events: Event, bytes_: int) -> Program:
    """A copy's bytes, and what the agent does to the same mbarrier meanwhile."""
    copy = Unit("copy", "cp.async.bulk", (CompleteTx(FULL, bytes_),))
    return Program([agent(MbarrierInit(FULL, 1), Issue(copy), *events)])


ADD = Atomic(FLAG, "add", 1, returns=False)
SHARED_GROUP = Unit("copy", "cp.async", (WRITE,), group="g")
COUNT = Atomic(OTHER, "add", 1, returns=False)
RELEASING = agent(WRITE, Store(FLAG, 1, Order.RELEASE), COUNT)
RELAXED = agent(Store(FLAG, 1), COUNT)
TAKING = agent(Await(OTHER, Condition("eq", 2)), Load(FLAG, Order.ACQUIRE), READ)
MEET = Sync(ONE, 32, 64)

LANES = WarpBarrier(0, 0)
TWICE = [Sync(LANES, 32, 64)] * 2
SET = Condition("eq", 1)
WAITS: dict[str, tuple[list[Event], list[Event]]] = {
    "word": (
        [WRITE, Fence(), Store(FLAG, 1)],
        [Await(FLAG, SET, along=LANES)],
    ),
    "mbarrier": (
        [MbarrierInit(FULL, 1), MEET, WRITE, MbarrierArrive(FULL)],
        [MEET, MbarrierWait(FULL, 0, order=Order.RELAXED, along=LANES)],
    ),
    "update": (
        [Await(FLAG, SET), Fence(), READ],
        [Await(FLAG, Condition("eq", 0), Atomic(FLAG, "exch", 1), along=LANES)],
    ),
}
"""What another warp does, and how one of two agents waits for both."""


def along(name: str, *fence: Event) -> Program:
    """The other one of two agents reads or writes, and has a fence or none."""
    other, (*first, waits) = WAITS[name]
    own = [WRITE, *fence, *TWICE] if name == "update" else [*TWICE, *fence, READ]
    leads = agent(*first, TWICE[0], waits, TWICE[1])
    return Program([agent(*other), leads, agent(*own)])


FENCES: dict[str, list[Event]] = {"with": [Fence()], "without": []}
ALONG = {
    f"along {name} {how} a fence": along(name, *fence)
    for name in WAITS
    for how, fence in FENCES.items()
}
PROGRAMS = {
    **{f"enabling by {name}": enabling(name) for name in ENABLING},
    "a copy ahead of a wait": Program(
        [
            agent(
                MbarrierInit(FULL, 1),
                Sync(ONE, 32, 64),
                MbarrierArrive(FULL, expect=16),
                MbarrierWait(FULL, 1),
            ),
            agent(
                Sync(ONE, 32, 64),
                Load(FLAG),
                Issue(Unit("copy", "cp.async.bulk", (CompleteTx(FULL, 16),))),
            ),
        ]
    ),
    "arrival and test": mbarrier(MbarrierArrive(FULL)),
    "bytes and test": mbarrier(
        MbarrierArrive(FULL, expect=16), CompleteTx(FULL, 16, Order.RELAXED)
    ),
    "bytes before they are expected": copied(
        ExpectTx(FULL, 16), MbarrierArrive(FULL), MbarrierWait(FULL, 0), bytes_=16
    ),
    "bytes that are not expected": copied(
        MbarrierArrive(FULL), MbarrierWait(FULL, 0), bytes_=16
    ),
    "other bytes": copied(
        MbarrierArrive(FULL, expect=16),
        CompleteTx(FULL, 16),
        MbarrierWait(FULL, 0),
        bytes_=32,
    ),
    "a phase too many": Program(
        [
            agent(
                MbarrierInit(FULL, 1),
                Sync(Barrier(0, 0), 32),
                MbarrierArrive(FULL),
                MbarrierArrive(FULL),
            ),
            agent(Sync(Barrier(0, 0), 32), MbarrierWait(FULL, 0)),
        ]
    ),
    "arrival that must not be the last": Program(
        [
            agent(
                MbarrierInit(FULL, 2),
                Sync(Barrier(0, 0), 32),
                MbarrierArrive(FULL, no_complete=True),
            ),
            agent(Sync(Barrier(0, 0), 32), MbarrierArrive(FULL)),
        ]
    ),
    "additions that are observed": Program(
        [agent(ADD), agent(ADD, Access(writes=(Span("flags", 0, 4),)))]
    ),
    "a shared group": Program(
        [agent(Issue(SHARED_GROUP), Commit("g")), agent(GroupWait("g"), READ)]
    ),
    "equal values, released or not": Program([RELEASING, RELAXED, TAKING]),
    "equal values, not released or released": Program([RELAXED, RELEASING, TAKING]),
    "three at a barrier of two": Program(
        [agent(WRITE, MEET), agent(MEET, READ), agent(MEET)]
    ),
    "arrived twice": Program(
        [agent(Arrive(ONE, 32, 64), Arrive(ONE, 32, 64)), agent(MEET, MEET)]
    ),
    "an exit between counts": Program(
        [
            agent(Load(FLAG)),
            agent(Sync(ONE, 32)),
            agent(Sync(ONE, 32, 64)),
        ]
    ),
    "initialised again at once": mbarrier(MbarrierInit(FULL, 1), MbarrierArrive(FULL)),
    "initialised again in a phase": mbarrier(
        MbarrierInit(FULL, 2), MbarrierArrive(FULL), MbarrierInit(FULL, 2)
    ),
    "initialised again by another": Program(
        [
            agent(
                MbarrierInit(FULL, 1), MEET, MbarrierInit(FULL, 1), MbarrierWait(FULL)
            ),
            agent(MEET, MbarrierArrive(FULL)),
        ]
    ),
    **ALONG,
}


@pytest.mark.long
@pytest.mark.parametrize("name", some(PROGRAMS, 2))
def test_the_answers_are_equal(name: str) -> None:
    assert not differs(name)
    assert expected(name).interleavings > 1


def nothing(*_: object) -> set[int]:
    return set()


def always(*_: object) -> bool:
    return True


def without_clocks(here: state.State) -> object:
    actors = frozenset((n, a.node, a.parked) for n, a in here.actors.items())
    words = frozenset(
        (n, tuple(each)[:1])
        for n, each in here.objects.items()
        if not isinstance(each, state.GroupObject)
    )
    return actors, words, frozenset(here.done)


def only_the_present(stored: set[int] | None, _: object) -> set[int] | None:
    return stored


def adds(_: ahead.Ahead, node: tree.Node) -> bool:
    event = node.event
    return isinstance(event, Atomic) and event.operation == "add" and not event.returns


WEAKER = {
    "no rivals at mbarriers": (rivals, "_mbarrier_rivals", nothing),
    "no phase is over": (ahead.Ahead, "phases_over", lambda *_: 0),
    "no rivals at barriers": (rivals, "_meeting_rivals", nothing),
    "no rivals at clusters": (rivals, "_cluster_rivals", nothing),
    "no rivals at words": (rivals, "_word_rivals", nothing),
    "units do not finish": (rivals, "_finishing", nothing),
    "atomics change nothing": (ahead, "reachable", only_the_present),
    "all additions commute": (ahead.Ahead, "commutes", adds),
    "no arrivals matter to exits": (rivals, "_all_arrivals", nothing),
    "all groups are private": (tree.Tree, "private", always),
    "all barriers are whole": (tree.Tree, "whole", always),
    "all barriers are plain": (tree.Tree, "plain", always),
    "states without clocks": (state.State, "key", without_clocks),
    "all units are silent": (hops.Hops, "_silent", always),
    "one waits for itself": (machine, "together", nothing),
}


@pytest.mark.parametrize("name", ALONG)
def test_who_waits_along_needs_a_fence(name: str) -> None:
    assert bool(expected(name).races) == ("without" in name)


@pytest.mark.parametrize("name", WEAKER)
def test_every_rule_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rule left out, some of these programs has another answer."""
    where, what, weaker = WEAKER[name]
    monkeypatch.setattr(where, what, weaker)
    assert any(differs(each) for each in PROGRAMS)


@cache
def expected(name: str) -> Answer:
    return answer(PROGRAMS[name], MOST)


def differs(name: str) -> bool:
    try:
        got, _ = explored(PROGRAMS[name])
    except (AssertionError, KeyError):
        return True
    return any(
        getattr(got, each) != getattr(expected(name), each)
        for each in ("hangs", "shortest", "races", "misuses")
    )
