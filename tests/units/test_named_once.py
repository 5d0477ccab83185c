"""In how many files an asynchronous instruction is named: those of a walk, no more.

A name counts where a string of the code, or a line of a table in it, begins with it.
Docstrings and messages do not count.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import fragmenta
from fragmenta.ptx.effects import LINES, SYNCHRONOUS
from fragmenta.watch.races.shadow.layout import AGENT_KINDS
from tests.own_code import strings

pytestmark = pytest.mark.xdist_group("house")

HERE = Path(fragmenta.__file__).parent
ROOMS = ("ptx", "engine/simt", "engine/units", "watch/races", "launch")
NAMES = sorted({each.instruction for each in LINES})
MOST = 4
#: The same copy is compiled code, too, if it need not wait for a schedule.
ALSO_COMPILED = {"cp.async": 1}


def first_words(path: Path) -> set[str]:
    """The first word of each line of each string."""
    lines = (line for text in strings(path) for line in text.splitlines())
    return {line.split()[0] for line in lines if line.strip()}


@pytest.fixture(scope="module")
def named() -> dict[str, set[str]]:
    """By instruction: the files that name it."""
    found: dict[str, set[str]] = {each: set() for each in NAMES}
    for room in ROOMS:
        for path in (HERE / room).rglob("*.py"):
            for word in first_words(path):
                name = instruction(word)
                agent = room == "watch/races" and word in AGENT_KINDS
                if name and not agent:
                    found[name].add(str(path.relative_to(HERE)))
    return found


def instruction(word: str) -> str | None:
    """The instruction of the table that a mnemonic is of."""
    word = word.partition("{")[0]

    def begins(name: str) -> bool:
        return word == name or word.startswith(f"{name}.")

    if any(map(begins, SYNCHRONOUS)):
        return None
    return max(filter(begins, NAMES), key=len, default=None)


def test_mnemonics_are_told_apart():
    assert instruction("cp.async.bulk.tensor.2d.shared") == "cp.async.bulk.tensor"
    assert instruction("cp.async{.x}") == "cp.async"
    assert instruction("cp.async.wait_all") is None
    assert instruction("cpu.async") is None


@pytest.mark.parametrize("name", NAMES)
def test_an_instruction_is_named_in_the_files_of_the_walk(name, named):
    assert len(named[name]) <= MOST + ALSO_COMPILED.get(name, 0), named[name]
    assert "ptx/effects.py" in named[name]
