"""Every litmus test has the verdict of its row; ``make test`` takes a third of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.launch import grid
from fragmenta.ptx.rules import INFO
from tests.ptx.hazards import cases
from tests.races.litmus import notation, table
from tests.races.litmus.table import ORDERED, TESTS, Litmus
from tests.thinning import some


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks run one after the other, so that results are always the same."""
    monkeypatch.setattr(grid, "cores", lambda: 1)


WORDS = notation.LINE // 4 * len(notation.GLOBALS)


def ran(test: Litmus, **options: Any) -> tuple[str, list[int]]:
    """The rules that are reported, and the values that were left and read."""
    kernel = ptx.parse(notation.ptx(test.program)).kernels["k"]
    grid, block, cluster = test.program.shape
    memory, results = np.zeros(WORDS, np.uint32), np.zeros(64, np.uint32)
    memory[1:4] = 7  # what a copy of 16 bytes takes along
    how = {"watch": "report", **options}
    if cluster > 1:
        how["cluster"] = cluster
    found = kernel.launch(grid, block, [memory, results], **how)
    said = {each.rule for each in found.problems if each.severity != INFO}
    return " ".join(sorted(said)), [*memory.tolist(), *results.tolist()]


@pytest.mark.long
@pytest.mark.parametrize(
    "test", some(TESTS, 5, 1), ids=lambda each: f"{each.name}-{each.program.at}"
)
def test_verdict(test: Litmus) -> None:
    said, eager = ran(test)
    assert said == test.report
    late, lazy = ran(test, schedule="lazy")
    assert late == test.report
    # Only asynchronous work can leave something else: results are otherwise those of
    # one order of all accesses.
    assert (eager != lazy) == test.lazy


def test_a_report_follows_from_the_model_or_the_row_says_why() -> None:
    for each in TESTS:
        reported = each.report != ""
        follows = reported == (each.model != ORDERED)
        own_words = each.report == table.MBARRIER
        assert bool(each.differs) == (not follows or own_words), each.name


def test_every_name_and_place_is_there_once() -> None:
    names = [(each.name, each.program.at) for each in TESTS]
    assert len(names) == len(set(names))


def test_the_default_scope_of_an_arrival_is_reported_with_strict_rules() -> None:
    (test,) = (each for each in TESTS if each.name == "MB-remote-default")
    assert ran(test, watch="strict")[0] == "mbarrier"


@pytest.mark.parametrize("kernel", table.KERNELS, ids=str)
def test_a_kernel_is_one_of_the_hazards(kernel: table.Kernel) -> None:
    """Its verdict is tested there."""
    names = {(e.row.source, e.row.entry, e.bug) for e in cases.cases()}
    assert kernel[:3] in names
