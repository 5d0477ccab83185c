"""Unordered accesses of warps are reported, and ordered ones are not."""

import numpy as np
import pytest

from fragmenta.engine.simt import layout
from fragmenta.watch.races.shadow.detected import Detected
from fragmenta.watch.races.shadow.problem_table import MOST
from tests.races.rig import ALL, START, Rig, line
from tests.thinning import repeats


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("kinds", ["write read", "read write", "write write"])
def test_two_warps(kinds: str, ordered: bool) -> None:
    rig = Rig()
    first, second = kinds.split()
    if first == "read":
        rig.write(0, line())
        rig.sync()
    before = getattr(rig, first)(0, line())
    if ordered:
        rig.sync()
    now = getattr(rig, second)(1, line())
    found = rig.shared.found()
    if ordered:
        assert not found
        return
    (problem,) = found
    assert problem.case is Detected.SHARED_RACE
    assert (problem.first, problem.last) == (START, START + 128)
    assert problem.count == 32
    assert (problem.now.site, problem.now.agent) == (now, 1)
    assert problem.before is not None
    assert (problem.before.site, problem.before.agent) == (before, 0)
    assert problem.was_write == (first == "write")
    assert problem.now_write == (second == "write")


# Every size in every shape, and with each set of lanes.
@repeats(together=2)
@pytest.mark.parametrize(
    "size,elements", [(1, 1), (2, 1), (4, 1), (8, 1), (16, 4), (8, 2)]
)
@pytest.mark.parametrize("lanes", [ALL, 0x0FF0, 1 << 7])
@pytest.mark.parametrize("shape", ["line", "reverse", "apart", "same"])
def test_sizes_and_shapes(size: int, elements: int, lanes: int, shape: str) -> None:
    if size < 4 and elements > 1:
        return
    at = {
        "line": line(step=size),
        "reverse": line(step=size)[::-1],
        "apart": line(step=32),
        "same": line(step=0),
    }[shape]
    bytes_ = size * len({int(a) for i, a in enumerate(at) if lanes >> i & 1})
    rig = Rig(4)
    more = {"size": size, "elements": elements}
    rig.write(0, line(step=size), **more)
    rig.warp_sync(0)
    rig.write(0, line(step=32), **more)
    rig.sync()
    for warp in (1, 2):
        rig.read(warp, at, lanes, **more)
        rig.read(warp, at, lanes, **more)
    rig.sync()
    rig.write(3, line(step=size), lanes if shape != "same" else 1, **more)
    assert not rig.shared.found()
    rig.sync()
    rig.read(1, at, lanes, **more)
    rig.read(2, at, lanes, **more)
    rig.sync(1, 3, number=5)
    if shape in ("line", "same"):
        rig.write(3, at, lanes if shape == "line" else 1 << 3, **more)
        found = rig.shared.found()
        assert {each.case for each in found} == {Detected.SHARED_RACE}
        assert {each.before.agent for each in found if each.before} == {2}
        assert found[0].last - found[0].first == bytes_


def test_lane_knows_itself_and_needs_a_warp_sync_for_others() -> None:
    rig = Rig()
    rig.write(0, line())
    rig.read(0, line())
    rig.write(0, line())
    assert not rig.shared.found()
    rig.warp_sync(0)
    rig.read(0, line()[::-1])
    assert not rig.shared.found()
    rig.write(0, line())
    assert rig.rules() == {"shared-race"}


def test_uninitialised() -> None:
    rig = Rig()
    rig.write(0, line(), 0xFFFF)
    rig.sync()
    rig.read(1, line(), 0xFFFF)
    assert not rig.shared.found()
    rig.read(1, line())
    (problem,) = rig.shared.found()
    assert problem.case is Detected.UNINITIALISED
    assert (problem.first, problem.last) == (START + 64, START + 128)
    assert problem.before is None


def test_bytes_never_written_in_a_word() -> None:
    rig = Rig()
    rig.write(0, [START] * 32, 1, size=2)
    rig.read(0, [START] * 32, 1, size=2)
    assert not rig.shared.found()
    rig.read(0, [START] * 32, 1)
    (problem,) = rig.shared.found()
    assert (problem.first, problem.last) == (START, START + 4)
    assert problem.partly


def test_same_value_is_no_race() -> None:
    rig = Rig()
    rig.write(0, line(), values=7)
    rig.write(1, line(), values=7)
    assert rig.rules() == {"same-value"}
    rig.write(0, line(), values=8)
    assert rig.rules() == {"same-value", "shared-race"}


def test_lanes_of_one_instruction_write_one_word() -> None:
    rig = Rig()
    rig.write(0, START, values=7)
    assert rig.rules() == {"same-value"}
    rig.write(0, START + 4, values=np.arange(32))
    assert rig.rules() == {"same-value", "one-store"}


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("seed", range(8))
def test_lanes_of_one_instruction_write_some_words(seed: int, size: int) -> None:
    """The lanes before it that write to a place decide what is said about a lane.

    The record of a word whose bytes several lanes wrote does not tell them apart.
    """
    choose = np.random.default_rng(seed)
    at = START + size * choose.integers(0, 40, 32)
    values = choose.integers(0, 2, 32) if seed % 2 else at // size % 7
    lanes = int(choose.integers(1, 1 << 32))
    expected = set()
    for lane in range(32):
        before = [i for i in range(lane) if at[i] == at[lane] and lanes >> i & 1]
        if before and lanes >> lane & 1:
            same = all(values[i] == values[lane] for i in before)
            expected.add("same-value" if same else "one-store")
    rig = Rig()
    rig.write(0, at, lanes, size=size, values=values, elements=-(-size // 8))
    found = rig.rules()
    assert found == expected if size >= 4 else found <= expected


def test_two_turns_of_one_instruction() -> None:
    """A lane is compared with what another one wrote in an earlier turn."""
    rig = Rig()
    site = rig.write(0, START, 1, values=7)
    rig.write(0, START, 2, values=8, site=site)
    assert rig.rules() == {"one-store"}


def test_neighbours_in_one_word() -> None:
    for size in (1, 2):
        rig = Rig()
        at = line(START + 64, size)
        for lanes in (ALL, 0xFFFFFFF0, 0x00FF00F0):
            rig.write(0, at, lanes, size=size)
            rig.read(0, at, lanes, size=size)
            rig.write(0, at, lanes, size=size)
            rig.write(0, at[::-1] + 64, lanes, size=size)
            rig.write(0, at[::-1] + 64, lanes, size=size)
        # Two warps write bytes of the same words.
        odd, even = line(START + 512, 4), line(START + 514, 4)
        rig.write(0, odd, size=size)
        rig.write(1, even, size=size)
        rig.read(0, odd, size=size)
        rig.read(1, even, size=size)
        assert not rig.shared.found()
        rig.read(1, at, size=size)
        assert rig.rules() == {"shared-race"}


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("synced", [False, True])
def test_elected_lane_arrives_for_the_others(size: int, synced: bool) -> None:
    rig = Rig()
    rig.write(0, line(step=size), size=size)
    if synced:
        rig.warp_sync(0)
    released = rig.order.publish(0, 0, 1, ALL)
    rig.order.acquire(0, 1, ALL, ALL, released)
    rig.read(1, line(step=size), size=size)
    assert rig.rules() == (set() if synced else {"shared-race"})
    if not synced:
        (problem,) = rig.shared.found()
        assert problem.first == START + size


@pytest.mark.parametrize("synced", [False, True])
def test_elected_lane_arrives_after_all_lanes_read(synced: bool) -> None:
    for at in (line(), [START] * 32):
        rig = Rig(3)
        rig.write(1, line())
        rig.sync()
        rig.read(0, at)
        rig.read(2, at)
        for warp in (0, 2):
            if synced:
                rig.warp_sync(warp)
            released = rig.order.publish(0, warp, 1, ALL)
            rig.order.acquire(0, 1, ALL, ALL, released)
        rig.write(1, line())
        assert rig.rules() == (set() if synced else {"shared-race"})


def test_elected_lane_waits_for_the_others() -> None:
    rig = Rig()
    rig.write(0, line())
    released = rig.order.publish(0, 0, ALL, ALL)
    rig.order.acquire(0, 1, 1 << 4, ALL, released)
    rig.read(1, line(), 1 << 4)
    assert not rig.shared.found()
    rig.warp_sync(1)
    rig.read(1, line())
    assert not rig.shared.found()
    rig.sync()
    rig.write(0, line())
    rig.order.acquire(0, 1, 1 << 4, ALL, rig.order.publish(0, 0, ALL, ALL))
    rig.read(1, line())
    assert rig.rules() == {"shared-race"}


def test_many_readers_and_one_writer_who_met_only_some() -> None:
    for met in range(1, 8):
        rig = Rig(8)
        rig.write(0, line())
        rig.sync()
        for warp in range(1, 8):
            rig.read(warp, line())
        rig.sync(0, *range(1, met + 1), number=1)
        rig.write(0, line())
        agents = {each.before.agent for each in rig.shared.found() if each.before}
        assert agents == set(range(met + 1, 8))


def test_readers_at_different_lanes() -> None:
    rig = Rig(4)
    rig.write(0, line())
    rig.sync()
    for warp in range(1, 4):
        rig.read(warp, np.roll(line(), warp))
        rig.read(warp, line())
    rig.sync(0, 1, 2, number=1)
    rig.write(0, line())
    agents = {each.before.agent for each in rig.shared.found() if each.before}
    assert agents == {3}


def test_atomics() -> None:
    rig = Rig()
    rig.write(0, line())
    rig.sync()
    rig.access("atomic", 0, line())
    rig.access("atomic", 1, line())
    rig.access("atomic", 1, START, 3)
    rig.access("strong read", 0, line())
    rig.access("strong write", 1, line())
    assert not rig.shared.found()
    rig.read(0, line())
    assert rig.rules() == {"shared-race"}


def test_atomic_over_a_plain_read_and_without_a_first_value() -> None:
    rig = Rig()
    rig.access("strong write", 0, line())
    rig.sync()
    rig.read(0, line())
    rig.access("atomic", 1, line())
    assert rig.rules() == {"shared-race"}
    rig.access("atomic", 1, line(START + 512))
    assert rig.rules() == {"shared-race", "uninitialised"}


def test_out_of_bounds_is_ignored() -> None:
    rig = Rig()
    for start in (4096, 4096 - 64, 1 << 24, (1 << 32) - 64):
        rig.read(0, line(start), 0xFFFF0000)
        rig.write(0, line(start, 64), 0xFFFF0000)
    rules = rig.rules()
    # Lanes 16 and up of the second line are in bounds.
    assert rules == {"uninitialised"}
    assert all(each.last <= 4096 for each in rig.shared.found())


def test_without_a_watch_nothing_happens() -> None:
    rig = Rig()
    rig.block.view(np.int64)[layout.BLOCK_WATCH // 8] = 0
    rig.write(0, line())
    rig.write(1, line())
    rig.sync()
    rig.warp_sync(0)
    rig.fence(0)
    assert not rig.shared.found()
    assert rig.order.epoch(0, 0) == 1


def test_other_block_of_the_cluster() -> None:
    rig = Rig(2, blocks=2)
    there = line((1 << 24) | START)
    rig.write(0, there)
    rig.write(0, line())
    rig.read(0, there)
    rig.read(0, line())
    assert not rig.shared.found()
    rig.write(1, there)
    assert {each.first for each in rig.shared.found()} == {(1 << 24) | START}


def test_reset_forgets_accesses_and_keeps_problems() -> None:
    rig = Rig()
    rig.write(0, line())
    rig.order.reset()
    rig.shared.reset()
    rig.write(1, line())
    assert not rig.shared.found()
    rig.write(0, line())
    rig.order.reset()
    rig.shared.reset()
    (problem,) = rig.shared.found()
    assert problem.now.group == 1


def test_a_full_table_counts_what_it_has_no_room_for() -> None:
    rig = Rig()
    for site in range(1, MOST + 10):
        rig.write(site % 2, START, lanes=1, site=site)
    problems = rig.shared.problems
    assert problems.used == len(rig.shared.found()) == MOST
    assert problems.lost == 8  # the first write has none before it
