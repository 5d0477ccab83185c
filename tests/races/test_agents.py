"""Copies, Tensor Cores and proxies are watched."""

from threading import Barrier, Thread

import numpy as np
import pytest

from fragmenta.errors import Error
from fragmenta.watch.races.order import Order, functions, know
from fragmenta.watch.races.shadow.detected import Detected
from tests.races.rig import ALL, START, Rig, line


def test_agents_have_numbers() -> None:
    order = Order(2, 5, 4096, 8)
    every = [
        (kind, rank, number)
        for kind, count in (
            ("warp", 5),
            ("cp.async", 5),
            ("wgmma", 2),
            ("mbarrier", 8),
            ("bulk-read", 5),
            ("bulk-write", 5),
        )
        for rank in range(2)
        for number in range(count)
    ]
    numbers = [order.agent(*each) for each in every]
    assert numbers == list(range(60))
    assert [order.describe(number) for number in numbers] == every
    with pytest.raises(Error, match="agents are"):
        order.agent("lane", 0, 0)
    with pytest.raises(Error, match="has 5 agents"):
        order.agent("warp", 0, 5)
    with pytest.raises(Error, match="at most"):
        Order(16, 32, 4096, 200)


@pytest.mark.parametrize("waited", [False, True])
def test_read_before_a_copy_arrived(waited: bool) -> None:
    for reader in ("lane", "wgmma"):
        rig = Rig(4)
        order, copy = rig.order, rig.order.agent("mbarrier", 0, 2)
        issued = order.publish(0, 0, 1, ALL)
        rig.shared.touch(0, [START], 256, True, copy, 0, 900, issued)
        phase = order.new_clock()
        order.merge(phase, issued)
        know(phase, copy, 1)
        if waited:
            order.acquire(0, 1, ALL, ALL, phase)
        if reader == "lane":
            rig.read(1, line())
        else:
            agent = order.agent("wgmma", 0, 0)
            rig.shared.touch(
                0, [START], 128, False, agent, 0, 901, order.row(0, 1, ALL)
            )
        assert rig.rules() == (set() if waited else {"read-before-arrival"})


def test_the_previous_phase_is_not_enough() -> None:
    rig = Rig()
    order, copy = rig.order, rig.order.agent("mbarrier", 0, 0)
    clock = order.new_clock()
    rig.shared.touch(0, [START], 128, True, copy, 0, 900, clock)
    know(clock, copy, 1)
    order.acquire(0, 1, ALL, ALL, clock)
    rig.read(1, line())
    assert not rig.shared.found()
    order.acquire(0, 0, 1, ALL, order.publish(0, 1, ALL, ALL))
    rig.shared.touch(0, [START], 128, True, copy, 1, 900, order.row(0, 0, 1))
    assert not rig.shared.found()
    rig.read(1, line())
    assert rig.rules() == {"read-before-arrival"}


@pytest.mark.parametrize("waited", [False, True])
@pytest.mark.parametrize("writer", ["lane", "copy"])
@pytest.mark.parametrize("reader", ["wgmma", "bulk-read"])
def test_overwrite_while_read(reader: str, writer: str, waited: bool) -> None:
    rig = Rig(4)
    order = rig.order
    rig.write(0, line())
    rig.fence(0)
    rig.warp_sync(0)
    agent = order.agent(reader, 0, 0)
    rig.shared.touch(0, [START], 128, False, agent, 4, 900, order.row(0, 0, ALL))
    done = order.new_clock()
    know(done, agent, 5 if waited else 4)
    order.acquire(0, 0, ALL, ALL, done)
    if writer == "lane":
        rig.write(0, line())
    else:
        copy = order.agent("mbarrier", 0, 0)
        rig.shared.touch(0, [START], 128, True, copy, 0, 901, order.row(0, 0, 1))
    expected = set() if waited else {"overwrite-while-read"}
    assert rig.rules() == expected


def test_two_tensor_core_readers() -> None:
    """Two warpgroups read a tile; the copy waited for one of them."""
    rig = Rig(8)
    order, copy = rig.order, rig.order.agent("mbarrier", 0, 0)
    clock = order.new_clock()
    rig.shared.touch(0, [START], 512, True, copy, 0, 900, clock)
    know(clock, copy, 1)
    agents = [order.agent("wgmma", 0, group) for group in range(2)]
    for epoch in (3, 4):
        for agent in agents:
            rig.shared.touch(0, [START], 512, False, agent, epoch, 901, clock)
    know(clock, agents[0], 5)
    know(clock, agents[1], 4)
    rig.shared.touch(0, [START], 512, True, copy, 1, 902, clock)
    (problem,) = rig.shared.found()
    assert problem.before is not None
    assert problem.before.agent == agents[1]
    assert (problem.first, problem.last, problem.count) == (START, START + 512, 128)


@pytest.mark.parametrize("fence", ["none", "writer", "issuer", "too early"])
def test_proxy_fence(fence: str) -> None:
    """P1: a fence counts on the writer's side and on the issuer's side."""
    rig = Rig()
    if fence == "too early":
        rig.fence(0)
    rig.write(0, line())
    if fence == "writer":
        rig.fence(0)
    rig.sync()
    if fence == "issuer":
        rig.fence(1, 1)
    agent = rig.order.agent("bulk-read", 0, 1)
    rig.shared.touch(0, [START], 128, False, agent, 0, 900, rig.order.row(0, 1, 1))
    good = fence in ("writer", "issuer")
    assert rig.rules() == (set() if good else {"missing-proxy-fence"})


def test_fence_before_a_wait_does_not_cover_what_is_learned() -> None:
    rig = Rig()
    rig.write(0, line())
    released = rig.order.publish(0, 0, ALL, ALL)
    rig.fence(1)
    rig.order.acquire(0, 1, ALL, ALL, released)
    agent = rig.order.agent("bulk-read", 0, 1)
    rig.shared.touch(0, [START], 128, False, agent, 0, 900, rig.order.row(0, 1, 1))
    assert rig.rules() == {"missing-proxy-fence"}


def test_fence_does_not_order_threads() -> None:
    rig = Rig()
    rig.write(0, line())
    rig.fence(0)
    agent = rig.order.agent("bulk-read", 0, 1)
    rig.shared.touch(0, [START], 128, False, agent, 0, 900, rig.order.row(0, 1, 1))
    assert rig.rules() == {"shared-race"}


@pytest.mark.parametrize("fenced", [False, True])
def test_generic_access_before_a_copy(fenced: bool) -> None:
    """P2: no fence is needed after reads; after writes it is."""
    for kind in ("read", "write"):
        rig = Rig()
        copy = rig.order.agent("mbarrier", 0, 0)
        rig.shared.touch(0, [START], 128, True, copy, 0, 900, rig.order.row(0, 0, 1))
        clock = rig.order.new_clock()
        know(clock, copy, 1)
        rig.order.acquire(0, 1, ALL, ALL, clock)
        getattr(rig, kind)(1, line())
        if fenced:
            rig.fence(1)
        released = rig.order.publish(0, 1, ALL, ALL)
        rig.order.acquire(0, 0, 1, ALL, released)
        rig.shared.touch(0, [START], 128, True, copy, 1, 901, rig.order.row(0, 0, 1))
        silent = kind == "read" or fenced
        assert rig.rules() == (set() if silent else {"missing-proxy-fence"})


def test_cp_async_counts_as_fenced() -> None:
    """P3: Tensor Cores read what cp.async wrote without a fence."""
    rig = Rig(4)
    order = rig.order
    agent = order.agent("cp.async", 0, 0)
    starts = np.arange(32, dtype=np.uint32) * 16 + START
    rig.shared.touch(
        0, starts, 16, True, agent, 0, 900, order.row(0, 0, ALL), proxy="cp.async"
    )
    reader, clock = order.agent("wgmma", 0, 0), order.row(0, 0, ALL)
    rig.shared.touch(0, [START], 512, False, reader, 0, 901, clock)
    assert rig.rules() == {"read-before-arrival"}
    know(clock, agent, 1)
    rig.shared.touch(0, [START], 512, False, reader, 0, 902, clock)
    assert len(rig.shared.found()) == 1


def test_two_copies_to_one_place() -> None:
    rig = Rig()
    order = rig.order
    first, second = (order.agent("mbarrier", 0, number) for number in range(2))
    clock = order.row(0, 0, 1)
    rig.shared.touch(0, [START], 128, True, first, 0, 900, clock)
    rig.shared.touch(0, [START + 64], 128, True, second, 0, 901, clock)
    (problem,) = rig.shared.found()
    assert problem.case is Detected.SHARED_RACE
    assert (problem.first, problem.last) == (START + 64, START + 128)


def test_parts_of_words() -> None:
    rig = Rig()
    order, clock = rig.order, rig.order.new_clock()
    agents = [order.agent("mbarrier", 0, number) for number in range(2)]
    rig.shared.touch(0, [START + 2], 5, True, agents[0], 0, 900, clock)
    rig.shared.touch(0, [START + 7], 6, True, agents[1], 0, 901, clock)
    rig.shared.touch(0, [START], 2, True, agents[1], 0, 901, clock)
    assert not rig.shared.found()
    rig.shared.touch(0, [START + 8], 4, True, agents[0], 0, 902, clock)
    (problem,) = rig.shared.found()
    assert (problem.first, problem.last) == (START + 8, START + 12)


def test_lane_overwrites_what_a_copy_still_writes() -> None:
    rig = Rig()
    copy = rig.order.agent("mbarrier", 0, 0)
    rig.shared.touch(0, [START], 128, True, copy, 0, 900, rig.order.row(0, 0, 1))
    rig.write(0, line())
    assert rig.rules() == {"shared-race"}


def test_plain_clocks_have_no_other_agents() -> None:
    rig = Rig(2, asynchronous=False)
    rig.write(0, line())
    rig.fence(0)
    rig.sync()
    rig.read(1, line())
    assert not rig.shared.found()
    with pytest.raises(Error):
        rig.order.agent("wgmma", 0, 0)


def test_threads_share_the_compiled_functions() -> None:
    """Code that a thread loaded must not be freed while another calls it."""
    functions.cache_clear()
    start, made = Barrier(4), []

    def make() -> None:
        start.wait()
        made.append(Order(1, 2, 2048))

    threads = [Thread(target=make) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len({id(each._calls) for each in made}) == 1
