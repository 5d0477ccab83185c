"""The house may not grow in passing: who needs more raises the number here, and says why.

The goals are those of the one record of what happened and of instruments that stack:
180,000 lines of src, 95,000 of tests, 250 places, 15 names, 10 options.
"""

from pathlib import Path

import pytest

from tests import budget

pytestmark = pytest.mark.xdist_group("house")

SOURCE = budget.ROOT / "src" / "fragmenta"
STOREYS = {
    "base": "errors progress door cards arrays jit",
    "reference": (
        "registers isa arithmetic quant sparse weights shared tensor_memory execution wmma"
    ),
    "ptx": "ptx",
    "engine": "simt units",
    "watch": "races orders",
    "values": "planes numerics expressions sameness counters",
    "record": "tracing replay debugging",
    "launch": "launch",
    "hosts": "programs frontends triton pool judge",
    "gpu": "cuda evidence",
    "hopper": "kernels torch",
    "faces": "api view commands __main__",
}
MOST = {
    "lines of src": 230_600,
    "lines of tests": 127_440,
    "rooms": 43,
    "floors": 23,
    "places that name an opcode": 221,
    "names of three classes or more": 5,
    "options of a launch": 10,
}
MOST_LINES = {
    "base": 4_000,
    "reference": 37_500,
    "ptx": 14_760,
    "engine": 28_700,
    "watch": 28_040,
    "values": 24_760,
    "record": 11_000,
    "launch": 10_910,
    "hosts": 25_100,
    "gpu": 14_450,
    "hopper": 12_500,
    "faces": 20_000,
}
"""By storey."""


def lines_of(rooms: str) -> int:
    files = (SOURCE / f"{room}.py" for room in rooms.split())
    return sum(
        budget.lines(SOURCE / room)
        for room in rooms.split()
        if (SOURCE / room).is_dir()
    ) + sum(
        len(file.read_text("utf-8").splitlines()) for file in files if file.exists()
    )


@pytest.mark.parametrize("name", MOST)
def test_a_number_is_within_its_budget(name: str) -> None:
    assert budget.counted(budget.ROOT)[name] <= MOST[name]


@pytest.mark.parametrize("storey", STOREYS)
def test_a_storey_is_within_its_budget(storey: str) -> None:
    assert lines_of(STOREYS[storey]) <= MOST_LINES[storey]


def test_each_room_is_of_one_storey() -> None:
    known = [room for rooms in STOREYS.values() for room in rooms.split()]
    there = {
        path.stem
        for path in SOURCE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert sorted(known) == sorted(there - {"__init__"})


def test_what_is_counted(tmp_path: Path) -> None:
    """A small house, whose numbers are known."""
    source = tmp_path / "src" / "fragmenta"
    (source / "launch").mkdir(parents=True)
    (source / "ptx" / "opcodes").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_house.py").write_text("ROOMS = ['low', 'launch']\n")
    (source / "launch" / "__init__.py").write_text("")
    (source / "ptx" / "opcodes" / "add.py").write_text("ADD = 'add'\n")
    (source / "low.py").write_text(
        '"""add"""\nWORDS = ("ld", "st", "ld", "ldu")\nclass A: pass\nclass A: pass\n'
    )
    (source / "launch" / "request.py").write_text(
        "from fragmenta.low import WORDS\nclass A: pass\nLD = 'ld'\n"
        "class LaunchRequest:\n    grid: int\n    block: int\n    arguments: int\n"
        "    schedule: int\n    limits: int\n"
    )
    assert budget.counted(tmp_path) == {
        "lines of src": 14,
        "lines of tests": 1,
        "rooms": 2,
        "floors": 2,
        "places that name an opcode": 3,
        "names of three classes or more": 1,
        "options of a launch": 2,
    }
