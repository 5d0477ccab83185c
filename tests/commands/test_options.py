"""One option, one spelling: its value and its meaning are the same in all commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fragmenta
from fragmenta.commands.app import declared
from fragmenta.commands.command_table import COMMANDS
from fragmenta.commands.options import OPTIONS


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_takes_the_same_everywhere(name: str) -> None:
    for option in declared(name):
        assert option.name in OPTIONS, f"{name} {option.name} is not in the table"
        assert option.value == OPTIONS[option.name].value, (name, option.name)


def test_every_option_of_the_table_exists() -> None:
    used = {option.name for name in COMMANDS for option in declared(name)}
    assert set(OPTIONS) == used


def test_one_meaning_has_one_name() -> None:
    """No two rows say the same; a choice or a flag is no second name of another."""
    meanings = [row.meaning for row in OPTIONS.values()]
    assert len(set(meanings)) == len(meanings)
    assert list(OPTIONS) == sorted(OPTIONS)


def test_messages_and_pages_name_options_that_exist() -> None:
    """What errors, helps and pages call an option is one."""
    root = Path(fragmenta.__file__).parent
    pages = [*(root / "commands").glob("*.py")]
    docs = root.parents[1] / "docs"
    if docs.is_dir():
        pages += [*docs.glob("*.md"), docs / "families/moves.md"]
    others = {"--help", "--version", "--install-completion", "--show-completion"}
    others |= {"--fmad"}  # of nvcc
    for page in pages:
        text = page.read_text()
        if page.suffix == ".md":
            said = "\n".join(re.findall(r"(?m)^\$ fragmenta .*", text))
        else:
            said = text
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b(?!-)", said):
            known = option in OPTIONS or option in others
            # The last ones are options of pytest.
            assert known or option.startswith("--fragmenta"), (page.name, option)
