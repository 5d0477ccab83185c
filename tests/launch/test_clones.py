"""Copies of runners: they are used, Python takes part when it has to, nothing differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fragmenta.base.arrays import threads
from fragmenta.engine.simt.arena import Arena, ArenaFull, taken
from fragmenta.engine.simt.compiled import aligned, copied, sparse, zeros
from fragmenta.engine.units.clusters import Cluster
from fragmenta.launch import clones, grid
from tests.launch.test_cluster_runs import FATAL, WHATS, outcome
from tests.launch.test_new_threads import case
from tests.thinning import repeats

Counts = Counter[str]


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counts]:
    """One thread, which runs a copy; how often one was made, and Python's part of it."""
    found: Counts = Counter()
    take, settled = clones.Clones.take, clones.Clones.settled

    def copy(self: Any) -> Any:
        first = take(self)
        if self.template is None:
            return first
        found["copies"] += 1
        return clones.Clone(self, self.template)

    def counted(self: Any, arena: Any) -> Any:
        found["made"] += 1
        return settled(self, arena)

    monkeypatch.setattr(clones.Clones, "take", copy)
    monkeypatch.setattr(clones.Clones, "settled", counted)
    monkeypatch.setattr(grid, "FEW", 0)
    before = threads.cores()
    threads.use_cores(1)
    yield found
    threads.use_cores(before)


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The clusters in which Python had a part."""
    found: set[int] = set()
    touch = Cluster.touch

    def told(self: Cluster) -> None:
        found.add(self.number)
        touch(self)

    monkeypatch.setattr(Cluster, "touch", told)
    return found


def plainly(call: Callable[[], Any]) -> Any:
    """What comes of a launch without copies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "FEW", 1 << 30)
        return call()


# Everything that goes wrong, and both schedules, watched and not.
@repeats(together=1)
@pytest.mark.parametrize("watch", [False, "report"])
@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize("what", WHATS)
def test_python_takes_part_where_something_is_wrong(
    what: str, schedule: str, watch: Any, used: Counts, touched: set[int]
) -> None:
    def call() -> Any:
        return outcome(what, watch=watch, schedule=schedule)

    plainly(lambda: outcome("nothing", watch=watch, schedule=schedule))
    outcome("nothing", watch=watch, schedule=schedule)  # a copy is compared
    expected = plainly(call)
    used.clear()
    touched.clear()
    assert call() == expected
    # Python makes what is copied, and takes part in the copy.
    assert used["copies"] == 1
    if what == "nothing":
        # In the first cluster it looks whether waits can miss their phase, with turns
        # that are fair (fragmenta.watch.races.missed_phases).
        looks = bool(watch) and schedule == "eager"
        assert used["made"] == 1 + looks
        assert touched == ({0} if looks else set())
    elif watch or what in FATAL:
        assert used["made"] == 2


# The kernels that stay do all that the others do.
@repeats(2, start=1)
@pytest.mark.parametrize("name", ["wgmma", "sparse", "scalar", "scalar with a race"])
def test_a_copy_runs_all_blocks(name: str, used: Counts) -> None:
    chosen = case(name)
    expected = plainly(chosen.outcome)
    chosen.outcome()
    used.clear()
    assert chosen.outcome() == expected
    assert used == {"copies": 1, "made": 2 if "race" in name else 1}


def test_the_history_of_the_first_cluster_is_kept(used: Counts) -> None:
    chosen = case("wgmma")
    expected = plainly(chosen.history)
    chosen.history()
    used.clear()
    assert chosen.history() == expected
    assert len(expected) == 1
    assert used == {"copies": 1, "made": 1}


def test_a_copy_that_is_not_alike_is_not_used(
    monkeypatch: pytest.MonkeyPatch, used: Counts
) -> None:
    chosen = case("scalar")
    monkeypatch.setattr(clones, "_alike", lambda *_: False)
    monkeypatch.setattr(clones, "_verdicts", _Fresh())
    expected = chosen.outcome()
    assert chosen.outcome() == expected
    assert not used["copies"]


class _Fresh:
    """Verdicts of kernels that were never launched."""

    def __init__(self) -> None:
        self._kept: dict[object, bool] = {}

    def __call__(self, compiled: object) -> dict[object, bool]:
        return self._kept


def test_an_arena_gives_the_same_pieces_again() -> None:
    arena = Arena(1 << 14, 1 << 20)
    with arena.use():
        pieces = [aligned(100), zeros((3, 5), np.int64), copied(np.arange(7))]
        large = sparse(1 << 19)
    assert [each.ctypes.data % 64 for each in (*pieces, large)] == [0] * 4
    assert not pieces[0].any()
    assert not pieces[1].any()
    assert pieces[2].tolist() == list(range(7))
    before = arena.pieces
    arena.restart()
    with arena.use():
        again = [aligned(100), aligned(3 * 5 * 8), aligned(7 * 8)]
        sparse(1 << 19)
        with pytest.raises(ArenaFull):
            aligned(1 << 14)
    assert arena.pieces == before
    assert again[2].view(np.int64)[6] == 6
    assert taken(1) is None
