"""Every instrument about the kernels of the hazards, all of them in one launch."""

import json
import os
from collections.abc import Iterator

import pytest

from tests.ptx.hazards import zoo
from tests.ptx.hazards.cases import Case, cases
from tests.thinning import kinds

EXPECTED = json.loads(zoo.GOLDEN.read_text())
CHOSEN = kinds(cases(), lambda case: case.row.source, 40)


@pytest.fixture
def one_core() -> Iterator[None]:
    """What is said about a racy kernel depends on the threads that ran it."""
    before = os.sched_getaffinity(0)
    zoo.alone()
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.parametrize("case", CHOSEN, ids=[case.name for case in CHOSEN])
def test_all_instruments_in_one_launch(case: Case, one_core: None) -> None:
    assert zoo.plain(zoo.answers(case)) == EXPECTED[case.name]


def test_each_kernel_has_its_answers() -> None:
    assert list(EXPECTED) == [case.name for case in cases()]


def test_what_is_said_differs() -> None:
    """An instrument that always says the same would pass everything above."""
    for name in zoo.ASKED:
        assert len({each.get(name) for each in EXPECTED.values()}) > 3, name


@pytest.mark.parametrize("case", cases(), ids=[case.name for case in cases()])
def test_what_is_wrong_is_said_in_every_schedule(case: Case) -> None:
    """By the detector, or by an order that was explored, or by a fault."""
    said = EXPECTED[case.name]
    rules = [said.get(str(each), "") for each in zoo.SCHEDULES]
    errors = ["error" in each or (each and " " not in each) for each in rules]
    if not case.bug:
        assert not any("error" in each or "warning" in each for each in rules)
    elif case.row.mistakes[case.bug].severity == "error":
        assert any(errors), rules
