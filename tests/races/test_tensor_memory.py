"""Accesses of tensor memory are checked cell by cell, against all earlier ones."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fragmenta.engine.units.tmem_cells import Cells
from fragmenta.watch.races.tmem_shadow import (
    CellSet,
    TensorAccess,
    TensorCells,
    Watch,
    pipelined,
)
from fragmenta.watch.races.tmem_watch import TensorObserver

AGENTS = 4


def access(
    kind: str, agent: int, epoch: int, number: int, form: Any = None
) -> TensorAccess:
    return TensorAccess(
        kind, 0, agent, -1, agent, epoch, agent, epoch, number, number, form
    )


def clock(known: list[int]) -> Any:
    """What is known: all epochs of each agent below a number."""
    row = np.zeros((1, 3, AGENTS), np.int32)
    row[0, 0] = known
    return row


def cells(chosen: random.Random) -> Cells:
    first = chosen.choice((0, 32, 40, 64))
    lanes = tuple(range(first, first + chosen.choice((16, 32, 64))))
    if chosen.random() < 0.3:  # 16 of each 32 lanes
        lanes = tuple(each for each in lanes if each % 32 < 16)
    return Cells(0, lanes, chosen.randrange(0, 24), chosen.randrange(1, 9))


@pytest.mark.parametrize("seed", range(20))
def test_conflicts_are_those_of_each_cell(seed: int) -> None:
    chosen = random.Random(seed)
    memory = TensorCells(Watch(1, 4))
    written: dict[tuple[int, int], TensorAccess] = {}
    read: dict[tuple[int, int], list[TensorAccess]] = {}
    for number in range(1, 60):
        known = [chosen.randrange(0, 60) for _ in range(AGENTS)]
        new = access("st", chosen.randrange(AGENTS), number, number)
        where, writes = cells(chosen), chosen.random() < 0.5
        goals, sources = ([where], []) if writes else ([], [where])
        places = [
            (lane, column)
            for lane in where.lanes
            for column in range(where.column, where.column + where.columns)
        ]
        before = {written[each] for each in places if each in written}
        if writes:
            before |= {one for each in places for one in read.get(each, ())}
        wanted = any(not old.known(clock(known)) for old in before)
        told = memory.conflicts(new, clock(known), sources, goals)
        assert any(each.ordered is False for each in told) == wanted
        unset = not writes and any(each not in written for each in places)
        assert (memory.unwritten(sources) is not None) == unset
        memory.record(new, sources, goals)
        for each in places:
            if writes:
                written[each] = new
            else:
                read.setdefault(each, []).append(new)


def test_columns_that_are_given_back_are_forgotten() -> None:
    memory, every = TensorCells(Watch(1, 4)), tuple(range(128))
    memory.record(access("st", 0, 5, 1), [], [Cells(0, every, 0, 64)])
    memory.record(access("ld", 1, 5, 2), [Cells(0, every, 32, 4)], [])
    memory.forget(Cells(0, every, 32, 32))
    new, row = access("st", 2, 1, 3), clock([0] * AGENTS)
    assert not memory.conflicts(new, row, [], [Cells(0, every, 32, 32)])
    assert memory.conflicts(new, row, [], [Cells(0, every, 31, 1)])


@pytest.mark.parametrize(
    "old, new, was_write, own, wanted",
    [
        ("mma", "mma", True, True, True),  # a chain
        ("mma", "mma", True, False, False),  # D is A of the next product
        ("mma", "mma", False, True, None),  # A is overwritten by the next product
        ("mma", "cp", False, True, None),  # scale factors of the next step
        ("mma", "cp", True, True, False),
        ("cp", "mma", True, False, True),
        ("cp", "cp", True, True, None),
        ("shift", "mma", True, False, True),
        ("mma", "shift", True, True, True),
    ],
)
def test_what_is_done_in_the_order_of_issue(
    old: str, new: str, was_write: bool, own: bool, wanted: bool | None
) -> None:
    first, second = access(old, 0, 0, 1, "form"), access(new, 0, 0, 2, "form")
    assert pipelined(first, second, was_write, own) is wanted


def test_products_of_two_shapes_do_not_follow_one_another() -> None:
    first, second = access("mma", 0, 0, 1, (128, 16)), access("mma", 0, 0, 2, (64, 16))
    assert pipelined(first, second, True, True) is False


def test_cells_in_words() -> None:
    where = CellSet(1, 0xFFFF << 32, 8, 16)
    assert where.words(1) == "columns 8-15 of lanes 32-47 of tensor memory"
    assert where._replace(stop=9).words(0).startswith("column 8 of lanes 32-47 of ")
    assert where.words(0).endswith("of block 1 of the cluster")


def test_another_cta_group_is_reported() -> None:
    said: list[str] = []
    machine = SimpleNamespace(
        strict=False,
        tensor=True,
        launch=SimpleNamespace(compiled=SimpleNamespace(dirty=0)),
    )
    observer = TensorObserver(
        machine, SimpleNamespace(blocks=[SimpleNamespace(warps=[None])])
    )
    warp = SimpleNamespace(report=lambda rule, *rest, **more: said.append(rule.name))
    for word in ("cta_group::1", "cta_group::1", "cta_group::2"):
        event = SimpleNamespace(words=("tcgen05", "mma", word), site=3)
        observer._same_group(warp, event, 1)
    assert said == ["tensor-memory"]
