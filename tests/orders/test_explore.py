"""What the explorer answers about pipelines, flags, barriers and branches."""

import pytest

from fragmenta.errors import BadCall
from fragmenta.ptx.ordering import Scope
from fragmenta.watch.orders.explore import explore
from fragmenta.watch.orders.program import (
    Access,
    Agent,
    Arrive,
    Atomic,
    Await,
    Barrier,
    Choose,
    Commit,
    CompleteTx,
    Condition,
    Event,
    Events,
    Exit,
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
    OrderStep,
    Program,
    Proxy,
    ProxyFence,
    ReadDone,
    Span,
    Store,
    Sync,
    Unit,
    UnitWait,
    WarpBarrier,
    Word,
)
from fragmenta.watch.orders.verdict import (
    Coverage,
    MbarrierState,
    MeetingState,
    MisuseKind,
    WordState,
)
from tests.orders.pipelines import pipeline

FULL, EMPTY = Mbarrier(0, 0), Mbarrier(0, 8)
FLAG, COUNTER = Word("global", 0), Word("counters", 0)
TILE = Span("shared:0", 0, 1024)
DATA = Span("global", 4096, 8192)
READ, WRITE = Access(reads=(TILE,)), Access(writes=(TILE,))
EVERYBODY = Sync(Barrier(0, 0), 32)


def agent(*events: Event, block: int = 0, name: str = "warp") -> Agent:
    return Agent(name, block, 32, Events([*events, Exit(32)]), 0)


# ── pipelines ───────────────────────────────────────────────────────────────


def test_a_pipeline_is_clean_in_one_order() -> None:
    """Everything commutes, so few states are enough; the count keeps it fast."""
    verdict = explore(pipeline())
    assert verdict.clean
    assert verdict.coverage is Coverage.ALL
    assert verdict.orders == 1
    assert verdict.states < 100
    assert verdict.steps < 250


@pytest.mark.parametrize("copies", [1, 4])
@pytest.mark.parametrize("consumers, stages", [(1, 2), (3, 1), (6, 4)])
def test_pipelines_of_all_sizes_are_clean(
    copies: int, consumers: int, stages: int
) -> None:
    verdict = explore(pipeline(consumers, stages, 9, copies))
    assert verdict.clean
    assert verdict.orders == 1


def test_a_release_before_the_read_is_a_race() -> None:
    verdict = explore(pipeline(early=True))
    assert verdict.hang is None
    assert verdict.races
    for race in verdict.races:
        assert race.order[-1] == race.second
        assert race.first in race.order
        assert {race.first.unit is None, race.second.unit is None} == {True, False}


def test_a_count_too_large_hangs() -> None:
    """The producer waits for an arrival that nobody makes; all is there to say so."""
    verdict = explore(pipeline(arrivals=4))
    assert verdict.hang is not None
    assert verdict.shortest
    producer, *consumers = verdict.hang.waiting
    assert isinstance(producer.event, MbarrierWait)
    assert producer.state == MbarrierState(phase=0, pending=1, expected=4, tx=0)
    assert [phase for phase, _ in producer.history] == [0, 0, 0]
    order = verdict.hang.order
    assert {order[index].agent for _, index in producer.history} == {1, 2, 3}
    assert producer.completed == ()
    for each in consumers:
        assert isinstance(each.state, MbarrierState)
        assert each.state.phase == 1
        assert each.seen == (0,)
        assert [who for who, _ in each.missing] == [0]


def test_the_shortest_hang_is_reported() -> None:
    """Consumers that see a phase too early go on; one order of few steps hangs."""
    program = pipeline(1, 1, 2, 1, flip=True)
    verdict = explore(program)
    assert verdict.hang is not None
    lengths = {len(verdict.hang.order)}
    assert min(lengths) <= 14


def test_a_phase_that_nobody_saw() -> None:
    """Two phases complete before the waiter looks: it waits for a third."""
    program = Program(
        [
            agent(
                MbarrierInit(FULL, 1),
                EVERYBODY,
                MbarrierArrive(FULL),
                MbarrierArrive(FULL),
            ),
            agent(EVERYBODY, MbarrierWait(FULL, parity=0)),
        ]
    )
    verdict = explore(program)
    assert verdict.hang is not None
    (waiting,) = verdict.hang.waiting
    assert waiting.state == MbarrierState(2, 1, 1, 0)
    assert waiting.seen == ()
    assert len(waiting.completed) == 2
    assert verdict.orders == 2  # the wait comes before or after the second arrival


# ── barriers ────────────────────────────────────────────────────────────────


def test_two_roles_with_one_barrier_id() -> None:
    """Four warps in two pairs use barrier 1: who meets whom depends on the order."""
    meet = Sync(Barrier(0, 1), 32, 64)
    program = Program(
        [
            agent(WRITE, meet, READ),
            agent(meet, READ),
            agent(meet),
            agent(meet),
        ]
    )
    verdict = explore(program)
    assert verdict.hang is None
    assert verdict.races
    assert verdict.orders > 1


def test_arrive_without_the_one_who_waits() -> None:
    meet = Barrier(0, 1)
    program = Program(
        [
            agent(Arrive(meet, 32, 96), Sync(Barrier(0, 2), 32, 64)),
            agent(Sync(meet, 32, 96), Arrive(Barrier(0, 2), 32, 64)),
        ]
    )
    verdict = explore(program)
    assert verdict.hang is not None
    states = [each.state for each in verdict.hang.waiting]
    assert states == [MeetingState((0,), 32, 64), MeetingState((0, 1), 64, 96)]
    assert [who for who, _ in verdict.hang.waiting[0].missing] == [1]


def test_exits_release_barriers_of_all_threads() -> None:
    program = Program([agent(WRITE), agent(EVERYBODY, READ), agent(EVERYBODY)])
    verdict = explore(program)
    assert verdict.clean


def test_different_counts_at_one_barrier() -> None:
    program = Program(
        [agent(Sync(Barrier(0, 1), 32, 64)), agent(Sync(Barrier(0, 1), 32, 96))]
    )
    verdict = explore(program)
    assert {each.kind for each in verdict.misuses} == {MisuseKind.OTHER_COUNT}
    assert {each.step.agent for each in verdict.misuses} == {0, 1}
    assert verdict.hang is None


def test_an_mbarrier_that_is_used_before_it_is_initialised() -> None:
    program = Program(
        [agent(MbarrierInit(FULL, 1)), agent(MbarrierArrive(FULL))],
    )
    (misuse,) = explore(program).misuses
    assert misuse.kind is MisuseKind.NOT_INITIALISED
    assert [step.agent for step in misuse.order] == [1]


# ── words ───────────────────────────────────────────────────────────────────


def message(release: Order, acquire: Order, scope: Scope, *fences: Fence) -> Program:
    """One block writes data and a flag; another waits for the flag and reads."""
    publish, take = fences or (None, None)
    writer = [Access(writes=(DATA,)), publish, Store(FLAG, 1, release, scope)]
    wait = Await(FLAG, Condition("eq", 1), None, acquire, scope)
    reader = [wait, take, Access(reads=(DATA,))]
    return Program(
        [
            agent(*[each for each in writer if each is not None]),
            agent(*[each for each in reader if each is not None], block=1),
        ]
    )


@pytest.mark.parametrize(
    "release, acquire, scope, fences, clean",
    [
        (Order.RELEASE, Order.ACQUIRE, Scope.GPU, (), True),
        (Order.RELEASE, Order.RELAXED, Scope.GPU, (), False),
        (Order.RELAXED, Order.ACQUIRE, Scope.GPU, (), False),
        (Order.RELEASE, Order.ACQUIRE, Scope.CTA, (), False),
        (Order.RELEASE, Order.ACQUIRE, Scope.CLUSTER, (), True),
        (Order.RELAXED, Order.RELAXED, Scope.GPU, (Scope.GPU, Scope.GPU), True),
        (Order.RELAXED, Order.RELAXED, Scope.GPU, (Scope.CTA, Scope.GPU), False),
        (Order.RELAXED, Order.RELAXED, Scope.GPU, (Scope.GPU, Scope.CTA), False),
        (Order.RELAXED, Order.RELAXED, Scope.CTA, (Scope.GPU, Scope.GPU), False),
    ],
)
def test_message_passing(
    release: Order,
    acquire: Order,
    scope: Scope,
    fences: tuple[Scope, ...],
    clean: bool,
) -> None:
    program = message(release, acquire, scope, *(Fence(each) for each in fences))
    verdict = explore(program)
    assert verdict.hang is None
    data = [each for each in verdict.races if each.span.start >= DATA.start]
    assert (not data) == clean


def test_a_flag_that_is_lost() -> None:
    """The reset may come after the signal: then the wait never ends."""
    program = Program(
        [agent(Store(FLAG, 1)), agent(Store(FLAG, 0), Await(FLAG, Condition("eq", 1)))]
    )
    verdict = explore(program)
    assert verdict.hang is not None
    (waiting,) = verdict.hang.waiting
    assert waiting.state == WordState(0)
    stores = [
        each.event for each in verdict.hang.order if isinstance(each.event, Store)
    ]
    assert [each.value for each in stores] == [1, 0]


def test_observation_orders_the_operation_itself() -> None:
    """A lock that is reset by a plain store after an acquire (Marlin)."""
    word = Span("global", 0, 4)
    add = Atomic(FLAG, "add", 1, returns=False)
    wait = Await(FLAG, Condition("eq", 1), order=Order.ACQUIRE)
    program = Program(
        [agent(Fence(), add), agent(wait, Access(writes=(word,)), block=1)]
    )
    assert explore(program).clean
    plain = Program([agent(Fence(), add), agent(Access(writes=(word,)), block=1)])
    assert len(explore(plain).races) == 1


def test_reductions_commute() -> None:
    """Eight additions have 40320 orders, and one is enough."""
    add = Atomic(FLAG, "add", 1, returns=False, order=Order.RELEASE)
    wait = Await(FLAG, Condition("ge", 8), order=Order.ACQUIRE)
    agents = [agent(add, block=n) for n in range(8)]
    verdict = explore(Program([*agents, agent(wait, block=8)]))
    assert verdict.clean
    assert verdict.orders == 1


def test_a_lock() -> None:
    take = Atomic(FLAG, "cas", 1, compare=0)
    lock = Await(FLAG, Condition("eq", 0), take, Order.ACQUIRE)
    inside = Access(writes=(DATA,))
    events = (lock, inside, Store(FLAG, 0, Order.RELEASE))
    program = Program([agent(*events, block=n) for n in range(3)])
    assert explore(program).clean
    relaxed = (lock, inside, Store(FLAG, 0))
    program = Program([agent(*relaxed, block=n) for n in range(3)])
    assert explore(program).races


# ── asynchronous work ───────────────────────────────────────────────────────


def bulk_store(wait: Event | None, *, fence: bool = True) -> Program:
    source = Access(reads=(TILE,), proxy=Proxy.ASYNC)
    target = Access(writes=(DATA,), proxy=Proxy.ASYNC)
    unit = Unit("store", "cp.async.bulk", (source, ReadDone(), target), group="bulk")
    events: list[Event] = [WRITE, Issue(unit), Commit("bulk")]
    if fence:
        events.insert(1, ProxyFence())
    if wait is not None:
        events.append(wait)
    return Program([agent(*events, WRITE)])


@pytest.mark.parametrize(
    "wait, races",
    [
        (None, 1),
        (GroupWait("bulk", 1), 1),
        (GroupWait("bulk", 0, read=True), 0),
        (GroupWait("bulk", 0), 0),
        (UnitWait(("store",)), 0),
    ],
)
def test_a_bulk_store_reads_its_source(wait: Event | None, races: int) -> None:
    verdict = explore(bulk_store(wait))
    assert len(verdict.races) == races
    assert not any(each.fence for each in verdict.races)


def test_a_missing_proxy_fence_is_told_apart() -> None:
    (race,) = explore(bulk_store(GroupWait("bulk"), fence=False)).races
    assert race.fence
    assert race.second.unit == "store"


def test_waits_for_one_group_commute() -> None:
    """Four warps wait for the products that one of them has issued."""
    meet = Sync(WarpBarrier(0, 0, 0, "after"), 32, 128)
    product = Unit("wgmma", "wgmma.mma_async", (READ,), group="wgmma")
    agents = [agent(Issue(product), Commit("wgmma"), meet, GroupWait("wgmma"), WRITE)]
    agents += [agent(meet, GroupWait("wgmma"), READ) for _ in range(3)]
    verdict = explore(Program(agents))
    assert verdict.orders == 1
    assert len(verdict.races) == 3  # the write is ordered after the product only


def test_bytes_that_are_not_expected_in_their_phase() -> None:
    """The phase may complete before the copy; then its bytes count for the next."""
    copy = Unit("copy", "cp.async.bulk", (CompleteTx(FULL, 16),))
    first = (MbarrierInit(FULL, 1), Issue(copy), MbarrierArrive(FULL))
    verdict = explore(Program([agent(*first, MbarrierWait(FULL, 0))]))
    assert verdict.hang is not None
    assert verdict.hang.waiting[0].state == MbarrierState(0, 0, 1, -16)
    assert verdict.orders == 2


# ── branches ────────────────────────────────────────────────────────────────


def test_both_results_of_a_test_are_followed() -> None:
    test = Events([EVERYBODY, MbarrierTest(FULL, 0)])
    test.after = {0: Events([READ, Exit(32)]), 1: Events([Exit(32)])}
    first = agent(MbarrierInit(FULL, 1), EVERYBODY, WRITE, MbarrierArrive(FULL))
    verdict = explore(Program([first, Agent("tester", 0, 32, test)]))
    assert verdict.coverage is Coverage.ALL
    (race,) = verdict.races  # only if the test came before the arrival
    observed = [s.observed for s in race.order if isinstance(s.event, MbarrierTest)]
    assert observed in ([], [0])


def counting(known: dict[int, Events]) -> Program:
    """Two blocks; the one that adds last reads what both wrote."""
    add = Atomic(COUNTER, "add", 1, order=Order.ACQ_REL)
    agents = []
    for number in range(2):
        span = Span("global", 64 * number, 64 * number + 64)
        steps = Events([Access(writes=(span,)), add], dict(known))
        agents.append(Agent(f"block {number}", number, 32, steps))
    return Program(agents)


LAST = Events([Access(reads=(Span("global", 0, 128),)), Exit(32)])


def test_a_branch_that_is_not_known_is_never_silent() -> None:
    verdict = explore(counting({0: Events([Exit(32)])}))
    assert verdict.coverage is Coverage.INCOMPLETE
    assert any("block 1" in each and "observes 1" in each for each in verdict.reasons)


def test_extend_is_asked_once_for_each_branch() -> None:
    asked = []

    def extend(
        who: int, observed: tuple[int, ...], order: tuple[OrderStep, ...]
    ) -> Events:
        asked.append((who, observed))
        assert order[-1].agent == who
        assert order[-1].observed == observed[-1]
        return LAST if observed[-1] else Events([Exit(32)])

    verdict = explore(counting({}), extend)
    assert verdict.coverage is Coverage.ALL
    assert verdict.clean
    assert sorted(asked) == [(0, (0,)), (0, (1,)), (1, (0,)), (1, (1,))]
    assert verdict.orders == 2


def test_extend_may_not_know() -> None:
    verdict = explore(counting({}), lambda *_: None)
    assert verdict.coverage is Coverage.INCOMPLETE
    assert all("cannot be told" in each for each in verdict.reasons)


def test_what_extend_adds_may_change_earlier_decisions() -> None:
    """A third user of a barrier appears; all orders are explored again."""
    meet = Sync(Barrier(0, 1), 32, 64)

    def extend(
        who: int, observed: tuple[int, ...], order: tuple[OrderStep, ...]
    ) -> Events:
        return Events([meet, Exit(32)])

    late = Agent("late", 0, 32, Events([Load(FLAG)]))
    verdict = explore(Program([agent(meet), agent(meet), late]), extend)
    assert verdict.hang is not None
    assert verdict.coverage is Coverage.ALL
    assert verdict.orders > 1


def test_choices_from_outside() -> None:
    steps = Events([Choose((0, 1))])
    steps.after = {0: Events([Exit(32)]), 1: Events([EVERYBODY, EVERYBODY, Exit(32)])}
    program = Program([Agent("a", 0, 32, steps), agent(EVERYBODY)])
    verdict = explore(program)
    assert verdict.hang is None
    assert verdict.orders == 2


def test_grants_are_taken_once() -> None:
    """Two schedulers ask for the one cluster that is left (CLC)."""
    left = Word("clusters", 0)
    agents = []
    for number in range(2):
        response = Word(f"shared:{number}", 0, 16)
        full = Mbarrier(number, 64)
        take = Atomic(left, "take", result=response, returns=False)
        ask = Unit(("ask", number), "try_cancel", (take, CompleteTx(full, 16)))
        steps = Events(
            [
                MbarrierInit(full, 1),
                MbarrierArrive(full, expect=16),
                Issue(ask),
                MbarrierWait(full, 0),
                Load(response, scope=Scope.CTA),
            ]
        )
        work = Access(writes=(DATA,))
        steps.after = {0: Events([Exit(32)]), 1: Events([work, Exit(32)])}
        agents.append(Agent(f"scheduler {number}", number, 32, steps))
    verdict = explore(Program(agents, {left: 1}))
    assert verdict.coverage is Coverage.ALL
    assert verdict.hang is None
    assert not verdict.races  # only one of them has the cluster
    assert verdict.orders == 2


# ── limits ──────────────────────────────────────────────────────────────────


def test_a_limit_is_said() -> None:
    verdict = explore(pipeline(), limit=10)
    assert verdict.coverage is Coverage.INCOMPLETE
    assert verdict.reasons == ("the limit of 10 states was reached",)


def test_a_hang_that_need_not_be_the_shortest_is_said() -> None:
    """The limit is reached after the first hang, and before shorter ones are excluded."""
    program = pipeline(flip=True)
    first = explore(program, limit=60)
    assert first.hang is not None
    assert not first.shortest
    second = explore(pipeline(2, 2, 3, 1, flip=True))
    assert second.hang is not None
    assert second.shortest


def test_a_limit_of_time_is_said() -> None:
    verdict = explore(pipeline(), seconds=-1.0)
    assert verdict.coverage is Coverage.INCOMPLETE
    assert verdict.reasons == ("the limit of time was reached",)


def test_limits_of_the_recording_are_handed_on() -> None:
    program = pipeline(1, 1, 1, 1)
    program.limits.append("a branch depends on data")
    verdict = explore(program)
    assert verdict.coverage is Coverage.PATH
    assert verdict.reasons == ("a branch depends on data",)


def test_a_recording_that_ends_early_is_said() -> None:
    program = Program([Agent("a", 0, 32, Events([WRITE], cut="the log was full"))])
    verdict = explore(program)
    assert verdict.coverage is Coverage.INCOMPLETE
    assert verdict.reasons == ("the log was full",)


def test_progress_goes_up_to_all() -> None:
    shares: list[float] = []
    add = Atomic(COUNTER, "add", 1)
    agents = [agent(add, block=n) for n in range(4)]
    verdict = explore(Program(agents), progress=shares.append)
    assert verdict.orders == 24
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "event, words",
    [
        (Atomic(FLAG, "sub"), "no atomic operation is called 'sub'"),
        (Await(FLAG, Condition("is", 1)), "no condition is called 'is'"),
        (Arrive(Barrier(0, 1), 32), "bar.arrive needs the count"),
        (Sync(Barrier(0, 1), 0, 64), "0 threads cannot arrive"),
        (UnitWait(("copy",)), "which it has not issued before; it has issued none"),
        (MbarrierWait(FULL, token=1), "no arrival of this agent"),
    ],
)
def test_impossible_events_are_refused(event: Event, words: str) -> None:
    with pytest.raises(BadCall, match=words):
        explore(Program([agent(MbarrierInit(FULL, 1), event)]))


def test_a_limit_of_no_states_is_refused() -> None:
    with pytest.raises(BadCall, match="limit is 0"):
        explore(pipeline(), limit=0)
