"""Bytes of one word of global memory that several lanes write are told apart.

"Wrote the same value" holds for every byte: over widths, lanes, warps and blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta.watch.races.global_watch import GlobalWatch, SplitWords
from fragmenta.watch.races.shadow import global_records
from fragmenta.watch.races.shadow.global_records import (
    PAIR,
    QUAD,
    SPLIT,
    Flags,
    composite,
    record,
)
from tests.races.globally import ALL, BASE, Block, Machine
from tests.thinning import repeats, some

LANES = np.arange(32)
SIZES = (1, 2)
FAR = [(0, 1), (1, 0), (1, 1)]
"""Who writes after block 0, warp 0: the block and the warp."""
PLACES = {
    "side by side": LANES,
    "from the second on": LANES + 1,
    "every third": 3 * LANES,
    "backwards": LANES[::-1],
    "in pairs": LANES ^ 1,
}


def rules(machine: Machine) -> set[str]:
    return set(machine.rules())


@repeats(together=1)
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("wrong", [None, 16, 17, 23, 30, 31])
def test_two_halves_of_a_warp_store_the_same_elements(
    size: int, wrong: int | None
) -> None:
    """Lanes 16 to 31 store what lanes 0 to 15 store; one of them may not."""
    machine = Machine()
    values = LANES % 16 + 3
    if wrong is not None:
        values[wrong] ^= 64
    machine.blocks[0].access(
        0, "write", size * (LANES % 16), bits=8 * size, value=values
    )
    want = {"GLOBAL_SAME_VALUE"} | ({"WRITE_WRITE"} if wrong is not None else set())
    assert rules(machine) == want


# Every size and every place, not each with each.
@repeats(together=1)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("far", FAR)
def test_neighbours_hide_nobody(size: int, places: str, far: tuple[int, int]) -> None:
    """Others write the bytes beside; then each element is written by somebody else."""
    where = size * (2 * PLACES[places] + 8)
    first = PLACES[places] + 1
    for same in (True, False):
        for lane in (0, 7, 31):
            machine = Machine(blocks=3)
            form: Any = {"bits": 8 * size}
            machine.blocks[0].access(0, "write", where, value=first, site=1, **form)
            beside = machine.blocks[2]
            beside.access(0, "write", where + size, value=9, site=2, **form)
            assert rules(machine) == set()
            block, warp = far
            value = first if same else first + (lane == LANES)
            machine.blocks[block].access(
                warp, "write", where, value=value, site=3, **form
            )
            want = {"GLOBAL_SAME_VALUE"} | (set() if same else {"WRITE_WRITE"})
            assert rules(machine) == want
            for each in machine.watch.found():
                assert each.before is not None
                assert (each.now.site, each.before.site) == (3, 1)
                if each.case.name == "WRITE_WRITE":
                    assert each.count == 1
                    assert (each.now.lane, each.before.lane) == (lane, lane)


@repeats(together=2)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("element", [0, 1, 2, 3, 30, 31])
@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("partial", [False, True])
def test_one_element_of_a_line(
    size: int, element: int, kind: str, partial: bool
) -> None:
    """Each element of a line is remembered, not only the last of its word."""
    lanes = ALL & ~(1 << 12) if partial else ALL
    machine = Machine()
    one = machine.blocks[0]
    one.access(0, "write", size * LANES, lanes=lanes, bits=8 * size, value=LANES)
    one.access(0, "read", size * LANES, lanes=lanes, bits=8 * size, site=2)
    assert rules(machine) == set()  # everybody reads what it wrote
    other = machine.blocks[1]
    other.access(
        0, kind, size * element, lanes=1, bits=8 * size, value=element + 1, site=3
    )
    assert {"WRITE_READ" if kind == "read" else "WRITE_WRITE"} <= rules(machine)
    (found,) = [each for each in machine.watch.found() if each.before.site == 1]
    assert found.before is not None
    assert found.before.lane == element


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [31, 32, 33])
@pytest.mark.parametrize("kind", ["read", "strong read"])
def test_blocks_change_their_own_elements_of_a_word(
    size: int, count: int, kind: str
) -> None:
    """Each block has a row of its own; rows end in the middle of a word."""
    machine = Machine(blocks=4)
    for turn in ("read", "write", "read", "write"):
        for block in machine.blocks:
            where = size * (count * block.number + LANES + 5)
            lanes = ALL >> (32 - count) if count < 32 else ALL
            block.access(
                0,
                kind if turn == "read" else turn,
                where,
                lanes=lanes,
                bits=8 * size,
                value=3,
                site=1 if turn == "read" else 2,
            )
    assert rules(machine) == set()


@pytest.mark.parametrize("size", SIZES)
def test_a_lane_knows_its_own_byte(size: int) -> None:
    machine = Machine()
    block = machine.blocks[0]
    for site in range(1, 9):
        order = np.roll(LANES, 5 * (site // 5))
        lanes = ALL if site % 2 else 0x7FFFFFFF
        if site == 5:
            block.syncwarp(0)
        for kind in ("write", "read", "write"):
            block.access(
                0,
                kind,
                size * order,
                lanes=lanes,
                bits=8 * size,
                value=site,
                site=10 * site,
            )
    assert rules(machine) == set()


@pytest.mark.parametrize("narrow", [1, 2])
@pytest.mark.parametrize("wide", [2, 4, 8])
@pytest.mark.parametrize("wrong", [None, 0, 1, 5, 7])
def test_wide_stores_over_narrow_ones(
    narrow: int, wide: int, wrong: int | None
) -> None:
    """Only the bytes that both wrote count."""
    machine = Machine()
    given = np.frombuffer(bytes(range(1, 33)), f"u{narrow}")
    count = min(len(given), 32)
    for lane in range(0, count, 2):  # each second element
        machine.blocks[0].access(
            0,
            "write",
            narrow * LANES,
            lanes=1 << lane,
            bits=8 * narrow,
            value=np.resize(given, 32),
            site=1,
        )
    bytes_ = np.arange(1, 33, dtype=np.uint8)
    untouched = np.arange(32) // narrow % 2 == 1
    bytes_[untouched] ^= 0x40  # nobody else wrote these
    if wrong is not None:
        bytes_[np.flatnonzero(~untouched)[wrong]] ^= 0x20
    values = bytes_.view(f"u{wide}")
    machine.blocks[1].access(
        0,
        "write",
        wide * LANES,
        lanes=(1 << len(values)) - 1,
        bits=8 * wide,
        value=np.resize(values, 32),
        site=2,
    )
    want = {"GLOBAL_SAME_VALUE"} | (set() if wrong is None else {"WRITE_WRITE"})
    assert rules(machine) == want
    assert sum(each.count for each in machine.watch.found()) >= 8


def test_a_full_table_of_split_words_is_told() -> None:
    machine = Machine()
    one, other = machine.blocks
    for block in machine.blocks:
        block.ledger.narrow[global_records.SPLIT_LIMIT // 4] = 1
    one.access(0, "write", 0, lanes=1, bits=8, value=1)
    one.access(0, "write", 1, lanes=2, bits=8, value=1, site=2)
    assert not machine.watch.full
    one.access(0, "write", 4, lanes=1, bits=8, value=1)
    one.access(0, "write", 5, lanes=2, bits=8, value=1, site=2)
    assert machine.watch.full
    other.access(0, "write", 5, lanes=1, bits=8, value=7, site=3)
    assert rules(machine) == {"WRITE_WRITE"}


# ── Python's copies ─────────────────────────────────────────────────────────


def nothing(agent: int, lane: int, epoch: int) -> bool:
    return False


def touched(machine: Machine, start: int, size: int, *, write: bool, site: int) -> None:
    flags = Flags.ASYNC | (Flags.WRITE if write else Flags(0))
    who = machine.blocks[1].who(0, 0, flags, site)
    machine.watch.touch(who, [(BASE + start, size)], nothing)


@repeats(together=1)
@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("start", some([1, 0, 3, 4], 2))
@pytest.mark.parametrize("size", [1, 2, 5, 16])
@pytest.mark.parametrize("element", SIZES)
def test_copies_meet_bytes_of_several_lanes(
    write: bool, start: int, size: int, element: int
) -> None:
    for place in range(8):
        machine = Machine()
        block: Block = machine.blocks[0]
        block.access(0, "write", element * LANES + 64, bits=8 * element, site=1)
        block.access(
            0, "write", place, lanes=1 << 3, bits=8, value=1, site=2
        )  # one byte
        block.access(0, "write", place ^ 1, lanes=1 << 4, bits=8, value=1, site=3)
        touched(machine, start, size, write=write, site=9)
        hit = {
            site
            for site, byte in ((2, place), (3, place ^ 1))
            if start <= byte < start + size
        }
        found = machine.watch.found()
        assert {each.before.site for each in found if each.before} == hit
        touched(machine, 64, 32, write=write, site=10)
        more = [each for each in machine.watch.found() if each.now.site == 10]
        assert [each.before.site for each in more if each.before] == [1]


@pytest.mark.parametrize("start", [1, 2, 3])
def test_the_ends_of_a_copy_share_words(start: int) -> None:
    machine = Machine()
    touched(machine, 0, start, write=True, site=1)
    touched(machine, start, 9, write=True, site=2)
    machine.blocks[0].access(0, "write", 0, lanes=1, bits=8, value=5, site=3)
    (found,) = machine.watch.found()
    assert found.before is not None
    assert (found.before.site, found.now.site) == (1, 3)


def test_parts() -> None:
    split = SplitWords(16)
    plain = record(5, 7, 0b0110)
    pair, quad = record(5, 7, PAIR), record(5, 7, QUAD)
    some = np.array([0, plain, pair, quad], np.int32)
    assert composite(some).tolist() == [False, False, True, True]
    parts = split.parts(some).tolist()
    assert parts[0] == [0] * 4
    assert parts[1] == [0, record(5, 7, 2), record(5, 7, 4), 0]
    assert parts[2] == [record(5, 6 + (i > 1), 1 << i) for i in range(4)]
    assert parts[3] == [record(5, 4 + i, 1 << i) for i in range(4)]
    made = split.joined(quad, record(9, 1, 0b0010))
    assert made < 0
    assert made & SPLIT
    assert split.parts(np.array([made], np.int32)).tolist() == [
        [parts[3][0], record(9, 1, 2), *parts[3][2:]]
    ]
    assert split.joined(made, record(8, 0, 0b1000)) == made
    assert split.joined(plain, record(8, 0, 0b0110)) == record(8, 0, 0b0110)
    for number in range(4):
        split.joined(plain, record(8, number, 1))
    assert split.full
    assert split.joined(plain, record(8, 0, 1)) == record(8, 0, 1)  # no room


def test_a_watch_shares_its_table_with_machine_code() -> None:
    watch: GlobalWatch = Machine().watch
    assert watch.split.records.shape == (global_records.MOST_SPLIT, 4)
    assert 0 < watch.split.limit < global_records.MOST_SPLIT
