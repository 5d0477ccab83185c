"""Races in global memory are found, and only races."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.memory import AccessForm
from fragmenta.ptx.ordering import Scope
from fragmenta.watch.races.shadow.global_memory import watched_global
from fragmenta.watch.races.shadow.shared_memory import watched
from tests.races.globally import ALL, Machine

LANES = np.arange(32)
KINDS = ("read", "strong read", "atomic", "write", "strong write")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_stored_is_watched_by_its_bytes_alone(kind: str) -> None:
    """So a kernel with loads of many types needs few routines."""
    pair, word = (
        AccessForm("global", bits, bits, 64 // bits, signed=bits == 32)
        for bits in (32, 64)
    )
    for made in (watched, watched_global):
        same = made(pair, kind).name == made(word, kind).name
        assert same == (not kind.endswith("write"))
        half = made(word._replace(bits=32, register=32), kind)
        assert half.name != made(word, kind).name


@pytest.mark.parametrize("bits, elements", [(8, 1), (16, 1), (32, 1), (64, 1), (32, 4)])
@pytest.mark.parametrize("barrier", [True, False])
def test_a_warp_reads_what_another_wrote(
    bits: int, elements: int, barrier: bool
) -> None:
    machine = Machine()
    block = machine.blocks[0]
    size = bits * elements // 8
    form: Any = {"bits": bits, "elements": elements}
    block.access(0, "write", size * LANES, site=1, **form)
    block.access(0, "read", size * LANES, site=2, **form)
    if barrier:
        block.sync()
    block.access(1, "read", size * LANES[::-1], site=3, **form)
    assert machine.rules() == ([] if barrier else ["WRITE_READ"])
    for each in machine.watch.found():
        assert (each.now.site, each.before and each.before.site) == (3, 1)
        assert each.count == max(8 * size, 32)


@pytest.mark.parametrize("barrier", [True, False])
@pytest.mark.parametrize("step", [4, 8])
def test_a_warp_overwrites_what_another_reads(barrier: bool, step: int) -> None:
    machine = Machine()
    block = machine.blocks[0]
    block.access(0, "read", step * LANES, site=1)
    if barrier:
        block.sync()
    block.access(1, "write", step * LANES, site=2, value=7)
    assert machine.rules() == ([] if barrier else ["READ_WRITE"])


def test_two_blocks_write_one_word() -> None:
    machine = Machine()
    for block in machine.blocks:
        block.access(0, "write", 4 * LANES + 128 * block.number, value=block.number)
    assert machine.rules() == []
    machine.blocks[1].syncwarp(0)
    machine.blocks[1].access(0, "write", 4 * LANES + 64, site=2, value=5)
    found = machine.watch.found()
    assert [each.case.name for each in found] == ["WRITE_WRITE"]
    assert found[0].count == 16
    before = found[0].before
    assert before is not None
    assert (before.group, found[0].now.group) == (0, 1)


def test_several_blocks_read_and_one_writes() -> None:
    machine = Machine(blocks=4)
    for block in machine.blocks[:3]:
        block.access(1, "read", 4 * LANES)
        block.access(0, "read", 8 * LANES)
    assert machine.rules() == []
    machine.blocks[3].access(0, "write", 4 * LANES, site=5)
    (found,) = machine.watch.found()
    assert found.case.name == "READ_WRITE"
    assert found.before is None


def test_a_block_that_begins_in_the_same_context_is_another_one() -> None:
    machine = Machine()
    block = machine.blocks[0]
    block.access(0, "write", 4 * LANES)
    block.wide[layout.BLOCK_INDEX // 8] = 1
    block.access(0, "write", 4 * LANES, site=2, value=3)
    assert machine.rules() == ["WRITE_WRITE"]


def test_strong_accesses_do_not_race_with_one_another() -> None:
    machine = Machine()
    for block in machine.blocks:
        block.access(0, "atomic", 0, site=1)
        block.access(1, "strong read", 0, site=2)
        block.access(1, "atomic", 4 * LANES, site=4)
        block.access(1, "strong write", 0, site=3)
    assert machine.rules() == []
    machine.blocks[0].access(0, "read", 0, lanes=1, site=5)
    assert machine.rules() == ["WRITE_READ"]


@pytest.mark.parametrize("kind", ["atomic", "strong write", "strong read"])
@pytest.mark.parametrize("where", [0, 4 * LANES], ids=["one word", "side by side"])
def test_a_plain_write_stays_in_mind_behind_atomics(kind: str, where: Any) -> None:
    """Its own thread's atomic operation, and any number of others, do not hide it."""
    machine = Machine(blocks=3)
    first, second, third = machine.blocks
    lanes = 1 if isinstance(where, int) else ALL
    first.access(0, "write", where, lanes=lanes, site=1, value=7)
    first.access(0, "atomic", where, lanes=lanes, site=2)
    first.access(0, "strong write", where, lanes=lanes, site=3, value=7)
    assert not machine.watch.found()
    second.access(0, kind, where, lanes=lanes, site=4)
    third.access(0, "strong write", where, lanes=lanes, site=5, value=7)
    cases = {(each.case.name, *each.key[1:]) for each in machine.watch.found()}
    name = "WRITE_READ" if kind == "strong read" else "WRITE_WRITE"
    assert cases == {(name, 4, 1), ("WRITE_WRITE", 5, 1)}


def test_a_plain_write_before_a_barrier_and_atomics() -> None:
    """All atomic operations come after it; a plain read does not come after them."""
    machine = Machine()
    block = machine.blocks[0]
    for turn in range(2):
        block.access(0, "write", 0, lanes=1, site=1, value=turn)
        block.access(0, "write", 4 * LANES, site=1, value=turn)
        block.sync()
        for warp in range(2):
            block.access(warp, "atomic", 0, site=2)
            block.access(warp, "atomic", 4 * LANES, site=3)
        block.sync()
        block.access(1, "strong read", 4 * LANES, site=4)
        block.access(1, "read", 4 * LANES, site=5)
        block.sync()
    assert not machine.watch.found()
    block.access(0, "atomic", 0, lanes=1, site=2)
    block.access(1, "read", 0, lanes=1, site=6)
    assert {each.case.name for each in machine.watch.found()} == {"MIXED"}


def test_a_plain_load_beside_atomic_operations_is_a_case_of_its_own() -> None:
    machine = Machine(blocks=3)
    first, second, third = machine.blocks
    first.access(0, "read", 4 * LANES, site=1)
    second.access(0, "atomic", 4 * LANES, site=2)
    third.access(0, "read", 4 * LANES, site=3)
    assert machine.rules() == ["MIXED", "MIXED"]
    third.access(0, "read", 128 + 4 * LANES, site=3)
    second.access(0, "read", 128 + 4 * LANES, site=3)
    first.access(0, "atomic", 128 + 4 * LANES, site=4)
    assert machine.rules() == ["MIXED"] * 3
    first.access(1, "write", 128 + 4 * LANES, site=5, value=1)
    assert machine.rules() == ["WRITE_WRITE", *["MIXED"] * 3]


def test_a_plain_read_stays_in_mind_behind_a_strong_one() -> None:
    machine = Machine()
    block = machine.blocks[0]
    block.access(0, "read", 0, lanes=1, site=1)
    block.access(1, "strong read", 0, lanes=1, site=2)
    block.access(1, "strong write", 0, lanes=1, site=3)
    assert machine.rules() == ["READ_WRITE"]


@pytest.mark.parametrize("first", Scope)
@pytest.mark.parametrize("second", Scope)
def test_both_scopes_must_include_the_other_block(first: Scope, second: Scope) -> None:
    machine = Machine()
    machine.blocks[0].access(0, "atomic", 0, scope=first)
    machine.blocks[1].access(0, "atomic", 0, scope=second, site=2)
    assert machine.rules() == ([] if min(first, second) >= Scope.GPU else ["SCOPE"])


@pytest.mark.parametrize("scope", Scope)
def test_every_scope_includes_the_own_block(scope: Scope) -> None:
    machine = Machine()
    machine.blocks[0].access(0, "atomic", 0, scope=scope)
    machine.blocks[0].access(1, "atomic", 0, scope=Scope.CTA, site=2)
    assert machine.rules() == []


def test_lanes_that_store_to_one_word() -> None:
    machine = Machine()
    block = machine.blocks[0]
    block.access(0, "write", 0, value=LANES)
    assert machine.rules() == ["WRITE_WRITE"]
    machine = Machine()
    block = machine.blocks[0]
    block.access(0, "write", 0, value=5)  # all lanes the same
    block.access(1, "write", 0, value=5, site=2)
    assert set(machine.rules()) == {"GLOBAL_SAME_VALUE"}


def test_bytes_of_one_word_are_told_apart() -> None:
    machine = Machine()
    block = machine.blocks[0]
    block.access(0, "write", 2 * LANES, bits=16, lanes=0x55555555, value=1)
    block.access(1, "write", 2 * LANES, bits=16, lanes=0xAAAAAAAA, value=2)
    assert machine.rules() == []
    block.access(0, "write", 2 * LANES, bits=16, lanes=0xAAAAAAAA, value=3, site=2)
    assert machine.rules() == ["WRITE_WRITE"]


def test_memory_that_cannot_be_written_and_wrong_addresses_are_left_out() -> None:
    machine = Machine(writable=False)
    for block in machine.blocks:
        block.access(0, "write", 4 * LANES)
    assert machine.rules() == []
    assert int(machine.watch.following[0]) == 3
    machine = Machine(size=64)
    for block in machine.blocks:
        block.access(0, "write", 4 * LANES + 60)
        block.access(0, "write", 4 * LANES + 4096)
        block.access(0, "read", -4 * LANES - 4)
    assert machine.rules() == ["GLOBAL_SAME_VALUE"]  # the last word


def test_a_full_table_stops_recording() -> None:
    machine = Machine(most=5)
    block = machine.blocks[0]
    for site in range(1, 3):
        block.access(0, "write", 0, lanes=1, site=site)
    assert not machine.watch.full
    block.access(0, "write", 0, lanes=1, site=3)
    block.access(1, "write", 0, lanes=1, site=4)
    assert machine.watch.full
    assert machine.rules() == []
