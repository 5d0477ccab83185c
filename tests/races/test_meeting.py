"""What barriers of all kinds order, and what they do not."""

import numpy as np
import pytest

from tests.races.rig import ALL, START, Rig, line

LOW, HIGH = 0x0000FFFF, 0xFFFF0000


def test_named_barriers_order_only_those_who_meet() -> None:
    rig = Rig(3)
    rig.write(0, line())
    rig.sync(0, 1, number=3)
    rig.read(1, line())
    assert not rig.shared.found()
    rig.read(2, line())
    assert rig.rules() == {"shared-race"}


@pytest.mark.parametrize("first", [0, 1])
def test_arrive_and_sync(first: int) -> None:
    """bar.arrive tells, but does not learn."""
    rig = Rig()
    rig.write(0, line())
    rig.write(1, line(START + 128))
    if first == 0:
        rig.bar(0, 2, 64, mode="arrive")
        assert rig.bar(1, 2, 64) == ALL
    else:
        assert rig.bar(1, 2, 64) == 0
        rig.bar(0, 2, 64, mode="arrive")
        assert rig.bar(1, 2, 64) == ALL
    rig.read(1, line())
    assert not rig.shared.found()
    rig.read(0, line(START + 128))
    assert rig.rules() == {"shared-race"}


def test_writes_after_arriving_are_not_told() -> None:
    rig = Rig()
    rig.bar(0, 2, 64, mode="arrive")
    rig.write(0, line())
    assert rig.bar(1, 2, 64) == ALL
    rig.read(1, line())
    assert rig.rules() == {"shared-race"}


def test_a_fast_warp_is_in_the_next_phase() -> None:
    """What is released in the next phase is not known to those who pass the phase before."""
    rig = Rig()
    assert rig.bar(0) == 0
    assert rig.bar(1) == ALL
    rig.write(1, line())
    assert rig.bar(1) == 0
    assert rig.bar(0) == ALL
    rig.read(0, line())
    assert rig.rules() == {"shared-race"}


def test_phases_of_other_warps_do_not_disturb_a_slow_one() -> None:
    rig = Rig(4)
    rig.write(0, line())
    assert rig.bar(1, 1, 64) == 0
    assert rig.bar(0, 1, 64) == ALL
    for _ in range(3):  # warps 2 and 3 use the barrier before warp 1 goes on
        assert rig.bar(2, 1, 64) == 0
        assert rig.bar(3, 1, 64) == ALL
        assert rig.bar(2, 1, 64) == ALL
    assert rig.bar(1, 1, 64) == ALL
    rig.read(1, line())
    assert not rig.shared.found()


def test_many_phases() -> None:
    rig = Rig(4)
    for phase in range(6):
        rig.write(phase % 4, line())
        rig.sync()
        for warp in range(4):
            rig.read(warp, line())
        rig.sync()
    assert not rig.shared.found()


def test_barrier_of_half_a_warp() -> None:
    rig = Rig(1)
    rig.write(0, line())
    rig.block.view("i4")[100 // 4] = 32
    assert rig.bar(0, lanes=LOW) == 0
    assert rig.bar(0, lanes=HIGH) == HIGH
    assert rig.bar(0, lanes=LOW) == LOW
    rig.read(0, line()[::-1])
    assert not rig.shared.found()


def test_warp_sync_of_some_lanes() -> None:
    rig = Rig(1)
    rig.write(0, line())
    rig.warp_sync(0, LOW, LOW)
    other = line()
    other[:16] = other[:16][::-1]
    rig.read(0, other, LOW)
    assert not rig.shared.found()
    rig.read(0, line()[::-1], LOW)
    assert rig.rules() == {"shared-race"}


def test_warp_sync_from_two_branches() -> None:
    rig = Rig(1)
    rig.write(0, line())
    assert rig.warp_sync(0, ALL, LOW) == 0
    assert rig.warp_sync(0, ALL, HIGH) == HIGH
    rig.read(0, line()[::-1], HIGH)
    rig.write(0, line(START + 512), HIGH)
    assert rig.warp_sync(0, ALL, LOW) == LOW
    rig.read(0, line()[::-1], LOW)
    assert not rig.shared.found()
    rig.read(0, line(START + 512)[::-1], LOW)
    assert rig.rules() == {"shared-race"}


def test_knowledge_goes_on_through_others() -> None:
    rig = Rig(3)
    rig.write(0, line())
    rig.sync(0, 1, number=1)
    rig.sync(1, 2, number=2)
    rig.read(2, line())
    assert not rig.shared.found()


def test_lanes_that_have_ended() -> None:
    rig = Rig(2)
    rig.memory.view("u4")[0, 132 // 4] = LOW
    rig.write(0, line(), LOW)
    released = rig.order.publish(0, 0, LOW, LOW)
    rig.order.acquire(0, 1, ALL, ALL, released)
    rig.read(1, line(), LOW)
    assert not rig.shared.found()


HALVES = np.where(np.arange(32) < 16, LOW, HIGH).astype(np.uint32)
"""The lanes that each lane names: those of its half."""


def _meet_in_halves(rig: Rig, one: bool) -> None:
    """Both halves of a warp meet, at one ``bar.warp.sync`` or at two of them."""
    if one:
        assert rig.warp_sync(0, HALVES) == ALL
        return
    assert rig.warp_sync(0, LOW, LOW) == LOW
    assert rig.warp_sync(0, HIGH, HIGH) == HIGH


@pytest.mark.parametrize("one", [False, True])
def test_halves_that_meet_apart_are_not_ordered(one: bool) -> None:
    rig = Rig(1)
    rig.write(0, line())
    _meet_in_halves(rig, one)
    rig.read(0, line()[np.arange(32) ^ 15])
    rig.read(0, np.where(np.arange(32) < 16, START, START + 64))  # several lanes
    assert not rig.shared.found()
    rig.read(0, line()[::-1])
    assert rig.rules() == {"shared-race"}


@pytest.mark.parametrize("reader", [LOW, HIGH])
@pytest.mark.parametrize("one", [False, True])
def test_a_half_does_not_know_the_other_one(reader: int, one: bool) -> None:
    rig = Rig(1)
    rig.write(0, line(), ALL & ~reader)
    _meet_in_halves(rig, one)
    rig.read(0, line()[::-1], reader)
    assert rig.rules() == {"shared-race"}


def test_lanes_know_others_through_those_they_met() -> None:
    """Quarters meet, then the halves: each lane knows its half and nothing else."""
    rig = Rig(1)
    rig.write(0, line())
    quarters = np.uint32(0xFF) << (np.arange(32) // 8 * 8).astype(np.uint32)
    rig.warp_sync(0, quarters)
    middle = 0x00FFFF00
    rig.warp_sync(0, middle, middle)  # the second and the third quarter
    rig.read(0, line()[np.arange(32) ^ 7])
    rig.read(0, line(), middle)
    rig.read(0, line()[(np.arange(32) + 8) % 32], 0x0000FF00)
    rig.read(0, line()[(np.arange(32) - 8) % 32], 0x00FF0000)
    assert not rig.shared.found()
    rig.warp_sync(0, HALVES)
    # The first quarter learns through the second one what the third one did.
    rig.read(0, line()[(np.arange(32) + 16) % 32], 0x000000FF)
    assert not rig.shared.found()
    rig.read(0, line()[(np.arange(32) + 24) % 32], 0x000000FF)
    assert rig.rules() == {"shared-race"}


@pytest.mark.parametrize("block", [False, True])
def test_all_lanes_meet_after_their_halves(block: bool) -> None:
    rig = Rig(2)
    for _ in range(3):
        rig.write(0, line())
        rig.warp_sync(0, HALVES)
        rig.read(0, line()[np.arange(32) ^ 15])
        if block:
            rig.sync()
            rig.read(1, line()[::-1])
        else:
            rig.warp_sync(0)
        rig.read(0, line()[::-1])
        if block:
            rig.sync()
        else:
            rig.warp_sync(0)
    assert not rig.shared.found()


def test_what_a_half_met_is_told_to_another_warp() -> None:
    rig = Rig(2)
    rig.write(0, line())
    rig.warp_sync(0, HALVES)
    rig.bar(0, 2, 33, lanes=1, mode="arrive")
    assert rig.bar(1, 2, 33) == ALL
    rig.read(1, line(), LOW)
    assert not rig.shared.found()
