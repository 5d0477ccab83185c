"""Copies of global memory are checked against other accesses, and unwritten memory is found."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

from fragmenta.engine.simt import empties
from fragmenta.engine.simt.empties import empty
from fragmenta.watch.races.global_watch import Who
from fragmenta.watch.races.order import covers, joined
from fragmenta.watch.races.shadow.global_records import MOST_ACCESSES, Flags
from tests.races.globally import BASE, Block, Machine

LANES = np.arange(32)
COPY = 5
"""The agent of the copy engine in these tests."""
READ, WRITE = Flags.ASYNC, Flags.ASYNC | Flags.WRITE


def copy(
    block: Block,
    flags: Flags,
    start: int,
    size: int,
    fenced: bool = True,
    lane: int = 0,
) -> None:
    """Lane 0 of warp 0 issues a copy."""

    def knows(agent: int, before: int, epoch: int) -> bool:
        return block.knows(0, lane, agent, before, epoch)

    who = Who(9, block.number, COPY, 0, 0, flags)
    block.machine.watch.touch(
        who, [(BASE + start, size)], knows, knows if fenced else lambda *_: False
    )


@pytest.mark.parametrize("barrier", [True, False])
@pytest.mark.parametrize("start, size", [(16, 64), (30, 3), (126, 2)])
def test_a_copy_reads_what_others_wrote(barrier: bool, start: int, size: int) -> None:
    machine = Machine()
    block = machine.blocks[0]
    block.access(1, "write", 4 * LANES)
    if barrier:
        block.sync()
    copy(block, READ, start, size)
    assert machine.rules() == ([] if barrier else ["WRITE_READ"])
    copy(block, READ, 128, 64)
    assert len(machine.rules()) == (not barrier)


@pytest.mark.parametrize("known", [True, False])
def test_a_store_by_the_copy_engine(known: bool) -> None:
    machine = Machine()
    block = machine.blocks[0]
    copy(block, WRITE, 0, 128)
    if known:  # the issuing thread has waited for the group, and tells the others
        row = np.zeros((3, 16), np.int32)
        row[0, COPY] = 1
        block.acquire(0, 1, row)
        block.sync()
    block.access(1, "read", 4 * LANES)
    assert machine.rules() == ([] if known else ["WRITE_READ"])


def test_a_copy_behind_a_read_and_without_a_proxy_fence() -> None:
    machine = Machine()
    first, second = machine.blocks
    first.access(0, "read", 4 * LANES)
    second.access(0, "read", 4 * LANES)
    copy(first, WRITE, 0, 4)
    (found,) = machine.watch.found()
    assert (found.case.name, found.before, found.count) == ("READ_WRITE", None, 1)
    machine = Machine()
    block = machine.blocks[0]
    block.access(0, "write", 4 * LANES)
    block.sync()
    copy(block, READ, 0, 128, fenced=False)
    assert machine.rules() == ["GLOBAL_PROXY"]


def test_the_last_lines_of_the_table() -> None:
    machine = Machine(most=MOST_ACCESSES)
    first, second = machine.blocks
    copy(first, WRITE, 0, 64)
    second.access(0, "read", 4 * LANES, lanes=1)
    copy(second, READ, 60, 4)
    assert machine.rules() == ["WRITE_READ", "WRITE_READ"]
    assert {each.before and each.before.agent for each in machine.watch.found()} == {
        COPY
    }


def test_reductions_do_not_race_with_one_another() -> None:
    machine = Machine()
    for block in machine.blocks:
        copy(block, WRITE | Flags.STRONG | Flags.ATOMIC, 0, 128)
        block.access(0, "atomic", 4 * LANES)
    assert machine.rules() == []
    copy(machine.blocks[0], READ, 0, 4)
    assert machine.rules() == ["WRITE_READ"]


def test_copies_of_two_blocks_read_and_one_writes() -> None:
    machine = Machine(blocks=3)
    for block in machine.blocks[:2]:
        copy(block, READ, 0, 64)
    machine.blocks[2].access(0, "write", 4 * LANES, lanes=1 << 15)
    machine.blocks[2].access(0, "write", 4 * LANES, lanes=1 << 16)
    (found,) = machine.watch.found()
    assert (found.case.name, found.count) == ("READ_WRITE", 1)


# ── memory that nobody has written ──────────────────────────────────────────


def test_reading_what_nobody_has_written() -> None:
    array = empty(64)
    array[:8] = 1
    machine = Machine(data=array.view(np.uint8))
    block = machine.blocks[0]
    block.access(0, "read", 4 * LANES, lanes=0xFF)
    block.access(0, "write", 4 * LANES + 32)
    block.access(0, "read", 4 * LANES + 32)
    copy(block, WRITE, 160, 32)
    assert machine.rules() == []
    block.access(0, "read", 4 * LANES + 128, lanes=1 << 31, site=3)
    (found,) = machine.watch.found()
    assert found.case.name == "GLOBAL_UNINITIALISED"
    assert (found.first, found.now.lane, found.before) == (BASE + 252, 31, None)


def test_an_atomic_operation_and_a_copy_read_what_nobody_has_written() -> None:
    machine = Machine(data=empty(64).view(np.uint8))
    machine.blocks[0].access(0, "atomic", 4 * LANES, lanes=1)
    assert machine.rules() == ["GLOBAL_UNINITIALISED"]
    machine = Machine(data=empty(64).view(np.uint8))
    copy(machine.blocks[0], READ, 0, 16)
    assert machine.rules() == ["GLOBAL_UNINITIALISED"]


def test_the_next_launch_knows_what_was_written() -> None:
    array = empty(4, np.int32)
    assert empties.marks(array.view(np.uint8)) is not None
    array[:3] = 0
    found = empties.marks(array.view(np.uint8))
    assert found is not None
    assert found.tolist() == [0] * 12 + [1] * 4
    array[3] = 0
    assert empties.marks(array.view(np.uint8)) is None


def test_a_part_of_an_empty_array_and_memory_around_it() -> None:
    whole = np.zeros(32, np.uint8)
    assert empties.marks(whole) is None
    array = empty(7, np.uint8)
    found = empties.marks(array[3:])
    assert found is not None
    assert found.tolist() == [1] * 4
    array[4] = 0
    found = empties.marks(array[1:])
    assert found is not None
    assert found.tolist() == [1, 1, 1, 0, 0, 0]


def test_unwritten_memory_costs_as_much_as_its_marks() -> None:
    """A pool that is allocated and hardly used is looked at before each launch."""
    array = empty(1 << 20, np.uint32)
    array[5], array[-2] = 1, 2
    tracemalloc.start()
    try:
        found = empties.marks(array.view(np.uint8)[7:-6])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is not None
    end = found.size
    assert np.flatnonzero(found == 0).tolist() == [13, 14, 15, 16, end - 2, end - 1]
    assert most < 1.5 * array.nbytes


@pytest.mark.long
def test_an_array_that_is_gone_is_forgotten() -> None:
    array = empty(1000)
    address = array.ctypes.data
    del array
    gc.collect()
    assert address not in empties._MADE


# ── clocks ──────────────────────────────────────────────────────────────────


def test_a_joined_clock_covers_both() -> None:
    random = np.random.default_rng(1)
    for _ in range(200):
        one, other = (random.integers(0, 4, (2, 3, 5)).astype(np.int32) for _ in "ab")
        made = joined(one[0], other[0])
        assert covers(made, one[0])
        assert covers(made, other[0])
        both = joined(one, other)
        assert np.array_equal(both[0], made)
        assert covers(both, one)
        assert covers(both, other)
