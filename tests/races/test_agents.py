"""Copies, Tensor Cores and proxies are watched."""

from threading import Barrier, Thread

import numpy as np
import pytest

from fragmenta.errors import Error
from fragmenta.races.order import functions, know
from fragmenta.races.shadow.detected import Detected
from fragmenta.races.shared_watch import Watch
from tests.races.rig import ALL, START, Rig, line


def test_agents_have_numbers() -> None:
    watch = Watch(2, 5, 4096, 8)
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
    numbers = [watch.agent(*each) for each in every]
    assert numbers == list(range(60))
    assert [watch.describe(number) for number in numbers] == every
    with pytest.raises(Error, match="agents are"):
        watch.agent("lane", 0, 0)
    with pytest.raises(Error, match="has 5 agents"):
        watch.agent("warp", 0, 5)
    with pytest.raises(Error, match="at most"):
        Watch(16, 32, 4096, 200)


@pytest.mark.parametrize("waited", [False, True])
def test_read_before_a_copy_arrived(waited: bool) -> None:
    for reader in ("lane", "wgmma"):
        rig = Rig(4)
        watch, copy = rig.watch, rig.watch.agent("mbarrier", 0, 2)
        issued = watch.publish(0, 0, 1, ALL)
        watch.touch(0, [START], 256, True, copy, 0, 900, issued)
        phase = watch.new_clock()
        watch.merge(phase, issued)
        know(phase, copy, 1)
        if waited:
            watch.acquire(0, 1, ALL, ALL, phase)
        if reader == "lane":
            rig.read(1, line())
        else:
            agent = watch.agent("wgmma", 0, 0)
            watch.touch(0, [START], 128, False, agent, 0, 901, watch.row(0, 1, ALL))
        assert rig.rules() == (set() if waited else {"read-before-arrival"})


def test_the_previous_phase_is_not_enough() -> None:
    rig = Rig()
    watch, copy = rig.watch, rig.watch.agent("mbarrier", 0, 0)
    clock = watch.new_clock()
    watch.touch(0, [START], 128, True, copy, 0, 900, clock)
    know(clock, copy, 1)
    watch.acquire(0, 1, ALL, ALL, clock)
    rig.read(1, line())
    assert not watch.found()
    watch.acquire(0, 0, 1, ALL, watch.publish(0, 1, ALL, ALL))
    watch.touch(0, [START], 128, True, copy, 1, 900, watch.row(0, 0, 1))
    assert not watch.found()
    rig.read(1, line())
    assert rig.rules() == {"read-before-arrival"}


@pytest.mark.parametrize("waited", [False, True])
@pytest.mark.parametrize("writer", ["lane", "copy"])
@pytest.mark.parametrize("reader", ["wgmma", "bulk-read"])
def test_overwrite_while_read(reader: str, writer: str, waited: bool) -> None:
    rig = Rig(4)
    watch = rig.watch
    rig.write(0, line())
    rig.fence(0)
    rig.warp_sync(0)
    agent = watch.agent(reader, 0, 0)
    watch.touch(0, [START], 128, False, agent, 4, 900, watch.row(0, 0, ALL))
    done = watch.new_clock()
    know(done, agent, 5 if waited else 4)
    watch.acquire(0, 0, ALL, ALL, done)
    if writer == "lane":
        rig.write(0, line())
    else:
        copy = watch.agent("mbarrier", 0, 0)
        watch.touch(0, [START], 128, True, copy, 0, 901, watch.row(0, 0, 1))
    expected = set() if waited else {"overwrite-while-read"}
    assert rig.rules() == expected


def test_two_tensor_core_readers() -> None:
    """Two warpgroups read a tile; the copy waited for one of them."""
    rig = Rig(8)
    watch, copy = rig.watch, rig.watch.agent("mbarrier", 0, 0)
    clock = watch.new_clock()
    watch.touch(0, [START], 512, True, copy, 0, 900, clock)
    know(clock, copy, 1)
    agents = [watch.agent("wgmma", 0, group) for group in range(2)]
    for epoch in (3, 4):
        for agent in agents:
            watch.touch(0, [START], 512, False, agent, epoch, 901, clock)
    know(clock, agents[0], 5)
    know(clock, agents[1], 4)
    watch.touch(0, [START], 512, True, copy, 1, 902, clock)
    (problem,) = watch.found()
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
    agent = rig.watch.agent("bulk-read", 0, 1)
    rig.watch.touch(0, [START], 128, False, agent, 0, 900, rig.watch.row(0, 1, 1))
    good = fence in ("writer", "issuer")
    assert rig.rules() == (set() if good else {"missing-proxy-fence"})


def test_fence_before_a_wait_does_not_cover_what_is_learned() -> None:
    rig = Rig()
    rig.write(0, line())
    told = rig.watch.publish(0, 0, ALL, ALL)
    rig.fence(1)
    rig.watch.acquire(0, 1, ALL, ALL, told)
    agent = rig.watch.agent("bulk-read", 0, 1)
    rig.watch.touch(0, [START], 128, False, agent, 0, 900, rig.watch.row(0, 1, 1))
    assert rig.rules() == {"missing-proxy-fence"}


def test_fence_does_not_order_threads() -> None:
    rig = Rig()
    rig.write(0, line())
    rig.fence(0)
    agent = rig.watch.agent("bulk-read", 0, 1)
    rig.watch.touch(0, [START], 128, False, agent, 0, 900, rig.watch.row(0, 1, 1))
    assert rig.rules() == {"shared-race"}


@pytest.mark.parametrize("fenced", [False, True])
def test_generic_access_before_a_copy(fenced: bool) -> None:
    """P2: no fence is needed after reads; after writes it is."""
    for kind in ("read", "write"):
        rig = Rig()
        copy = rig.watch.agent("mbarrier", 0, 0)
        rig.watch.touch(0, [START], 128, True, copy, 0, 900, rig.watch.row(0, 0, 1))
        clock = rig.watch.new_clock()
        know(clock, copy, 1)
        rig.watch.acquire(0, 1, ALL, ALL, clock)
        getattr(rig, kind)(1, line())
        if fenced:
            rig.fence(1)
        told = rig.watch.publish(0, 1, ALL, ALL)
        rig.watch.acquire(0, 0, 1, ALL, told)
        rig.watch.touch(0, [START], 128, True, copy, 1, 901, rig.watch.row(0, 0, 1))
        silent = kind == "read" or fenced
        assert rig.rules() == (set() if silent else {"missing-proxy-fence"})


def test_cp_async_counts_as_fenced() -> None:
    """P3: Tensor Cores read what cp.async wrote without a fence."""
    rig = Rig(4)
    watch = rig.watch
    agent = watch.agent("cp.async", 0, 0)
    starts = np.arange(32, dtype=np.uint32) * 16 + START
    watch.touch(
        0, starts, 16, True, agent, 0, 900, watch.row(0, 0, ALL), proxy="cp.async"
    )
    reader, clock = watch.agent("wgmma", 0, 0), watch.row(0, 0, ALL)
    watch.touch(0, [START], 512, False, reader, 0, 901, clock)
    assert rig.rules() == {"read-before-arrival"}
    know(clock, agent, 1)
    watch.touch(0, [START], 512, False, reader, 0, 902, clock)
    assert len(watch.found()) == 1


def test_two_copies_to_one_place() -> None:
    rig = Rig()
    watch = rig.watch
    first, second = (watch.agent("mbarrier", 0, number) for number in range(2))
    clock = watch.row(0, 0, 1)
    watch.touch(0, [START], 128, True, first, 0, 900, clock)
    watch.touch(0, [START + 64], 128, True, second, 0, 901, clock)
    (problem,) = watch.found()
    assert problem.case is Detected.SHARED_RACE
    assert (problem.first, problem.last) == (START + 64, START + 128)


def test_parts_of_words() -> None:
    rig = Rig()
    watch, clock = rig.watch, rig.watch.new_clock()
    agents = [watch.agent("mbarrier", 0, number) for number in range(2)]
    watch.touch(0, [START + 2], 5, True, agents[0], 0, 900, clock)
    watch.touch(0, [START + 7], 6, True, agents[1], 0, 901, clock)
    watch.touch(0, [START], 2, True, agents[1], 0, 901, clock)
    assert not watch.found()
    watch.touch(0, [START + 8], 4, True, agents[0], 0, 902, clock)
    (problem,) = watch.found()
    assert (problem.first, problem.last) == (START + 8, START + 12)


def test_lane_overwrites_what_a_copy_still_writes() -> None:
    rig = Rig()
    copy = rig.watch.agent("mbarrier", 0, 0)
    rig.watch.touch(0, [START], 128, True, copy, 0, 900, rig.watch.row(0, 0, 1))
    rig.write(0, line())
    assert rig.rules() == {"shared-race"}


def test_plain_clocks_have_no_other_agents() -> None:
    rig = Rig(2, asynchronous=False)
    rig.write(0, line())
    rig.fence(0)
    rig.sync()
    rig.read(1, line())
    assert not rig.watch.found()
    with pytest.raises(Error):
        rig.watch.agent("wgmma", 0, 0)


def test_threads_share_the_compiled_functions() -> None:
    """Code that a thread loaded must not be freed while another calls it."""
    functions.cache_clear()
    start, made = Barrier(4), []

    def make() -> None:
        start.wait()
        made.append(Watch(1, 2, 2048))

    threads = [Thread(target=make) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len({id(each._functions) for each in made}) == 1
