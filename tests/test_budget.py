"""The house may not grow in passing: who needs more raises the number here, and says why.

The goals are those of the one record of what happened and of instruments that stack:
180,000 lines of src, 95,000 of tests, 250 places, 15 names, 10 options.
"""

from pathlib import Path

import pytest

from tests import budget

pytestmark = pytest.mark.xdist_group("house")

SOURCE = budget.ROOT / "src" / "fragmenta"
MOST = {
    "lines of src": 231_551,
    "lines of tests": 128_349,
    "top folders": 12,
    "floors": 10,
    "places that name an opcode": 221,
    "names of three classes or more": 5,
    "options of a launch": 10,
}
MOST_LINES = {
    "base": 3_310,
    "reference": 37_320,
    "ptx": 14_760,
    "engine": 36_610,
    "watch": 28_200,
    "values": 14_400,
    "launch": 10_950,
    "cuda": 8_780,
    "inspect": 24_420,
    "frontends": 27_150,
    "hopper": 12_360,
    "commands": 12_250,
}
"""By storey; what is in no folder is a door."""


@pytest.mark.parametrize("name", MOST)
def test_a_number_is_within_its_budget(name: str) -> None:
    assert budget.counted(budget.ROOT)[name] <= MOST[name]


@pytest.mark.parametrize("storey", MOST_LINES)
def test_a_storey_is_within_its_budget(storey: str) -> None:
    assert budget.lines(SOURCE / storey) <= MOST_LINES[storey]


def test_each_folder_has_a_budget() -> None:
    there = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert there == set(MOST_LINES)


def test_what_is_counted(tmp_path: Path) -> None:
    """A small house, whose numbers are known."""
    source = tmp_path / "src" / "fragmenta"
    (source / "low").mkdir(parents=True)
    (source / "low" / "__init__.py").write_text("")
    (source / "launch").mkdir(parents=True)
    (source / "ptx" / "opcodes").mkdir(parents=True)
    (source / "ptx" / "__init__.py").write_text("")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_house.py").write_text("ROOMS = ['low', 'launch']\n")
    (source / "launch" / "__init__.py").write_text("")
    (source / "ptx" / "opcodes" / "add.py").write_text("ADD = 'add'\n")
    (source / "low" / "words.py").write_text(
        '"""add"""\nWORDS = ("ld", "st", "ld", "ldu")\nclass A: pass\nclass A: pass\n'
    )
    (source / "launch" / "request.py").write_text(
        "from fragmenta.low.words import WORDS\nclass A: pass\nLD = 'ld'\n"
        "class LaunchRequest:\n    grid: int\n    block: int\n    arguments: int\n"
        "    schedule: int\n    limits: int\n"
    )
    assert budget.counted(tmp_path) == {
        "lines of src": 14,
        "lines of tests": 1,
        "top folders": 3,
        "floors": 2,
        "places that name an opcode": 3,
        "names of three classes or more": 1,
        "options of a launch": 2,
    }
