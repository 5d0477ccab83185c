"""The judge with PyTorch and Triton: a few honest candidates, and a few cheats.

``python -m judging`` judges all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fragmenta.judge import Batch, Settings
from judging.cheats import CHEATS
from judging.honest import candidates
from judging.tasks import TASKS
from tests.clock import HANG

HONEST = {each.name: each for each in candidates()}
WRONG = {each.name: each for each in CHEATS}
FEWER = Settings(
    seconds=HANG, values=("plain", "nan"), elements=1 << 12, products=1 << 14
)


@pytest.fixture(scope="module")
def whole() -> Iterator[Batch]:
    """All that is tried; with less, an honest candidate is incomplete."""
    with Batch(1, settings=Settings(seconds=HANG)) as made:
        yield made


@pytest.fixture(scope="module")
def batch() -> Iterator[Batch]:
    with Batch(1, settings=FEWER) as made:
        yield made


@pytest.mark.parametrize("name", ["relu in Triton", "layer_norm in Triton"])
def test_honest_candidates_are_clean(whole: Batch, name: str) -> None:
    each = HONEST[name]
    verdict = whole.submit(TASKS[each.task], each.text).result()
    assert verdict.word == "clean", verdict
    assert not verdict.estimated


@pytest.mark.parametrize(
    "name",
    [
        "zeros",
        "PyTorch's own operator",
        "NumPy on the host, copied by a kernel",
        "results kept by address",
        "another stream that nobody waits for",
        "launches that are not carried out",
        "tf32 inside",
    ],
)
def test_cheats_are_called_by_their_name(batch: Batch, name: str) -> None:
    each = WRONG[name]
    verdict = batch.submit(TASKS[each.task], each.text).result()
    assert each.finding in verdict.names, verdict
    assert verdict.word != "clean"


def test_the_suite_is_as_large_as_the_page_says() -> None:
    assert len(HONEST) >= 60
    assert len(WRONG) >= 40
    assert {each.task for each in (*HONEST.values(), *WRONG.values())} <= {*TASKS}
