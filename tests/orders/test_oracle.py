"""The explorer and the oracle agree on every random program."""

import json
from collections import Counter
from pathlib import Path

import pytest

from fragmenta.watch.orders.program import Access, Agent, Events, Exit, Program, Span
from tests.orders.compare import compare, differences
from tests.orders.oracle import TooMany, answer
from tests.thinning import THOROUGH, some

pytestmark = pytest.mark.xdist_group("orders")  # what they show is counted together

SHOWN = ("hangs", "races", "misuses", "cut", "clean")
REPORT = Path(__file__).parents[2] / "docs" / "verification" / "orders.json"
PART = 50
PARTS = 200 if THOROUGH else 6


@pytest.fixture(scope="module")
def seen() -> Counter[str]:
    """How many programs showed something."""
    return Counter()


@pytest.mark.long
@pytest.mark.parametrize("part", some(range(PARTS), 2))
def test_all_answers_are_equal(part: int, seen: Counter[str]) -> None:
    """Hangs, the shortest of them, races, missing fences, misuse, and what is cut."""
    found = compare(1000 * part, PART)
    assert "differences" not in found, found
    seen.update({name: found.get(name, 0) for name in SHOWN})


@pytest.mark.long
def test_the_programs_show_everything(seen: Counter[str]) -> None:
    """Else equal answers would say little."""
    for name in SHOWN:
        assert seen[name] > 5, (name, seen)


def test_the_kept_report_is_about_ten_thousand() -> None:
    report = json.loads(REPORT.read_text())
    assert report["programs"] >= 10_000
    assert "differences" not in report


def test_the_oracle_counts_interleavings() -> None:
    def agent(number: int) -> Agent:
        touch = Access(writes=(Span("shared:0", 0, 4),))
        return Agent(f"{number}", 0, 32, Events([touch, touch, Exit(32)]))

    program = Program([agent(0), agent(1)])
    found = answer(program, 100)
    assert found.interleavings == 20
    assert len(found.races) == 4
    assert differences(program)[0] == []
    with pytest.raises(TooMany):
        answer(program, 19)
