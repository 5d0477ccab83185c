"""The README's examples give what it shows, and the demo runs."""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fragmenta
from fragmenta.commands import app
from fragmenta.commands.command_table import COMMANDS
from tests.clock import HANG
from tests.pages import examples

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_examples() -> None:
    found = examples(README, "README")
    assert len(found.examples) > 10
    report: list[str] = []
    doctest.DocTestRunner().run(found, out=report.append)
    assert not report, "".join(report)


def console() -> list[tuple[str, str]]:
    """Each command that the README shows, and what it shows of the answer."""
    blocks = re.findall(r"(?s)```console\n(.*?)```", README)
    runs = [run for block in blocks for run in re.split(r"(?m)^\$ ", block) if run]
    return [(command, shown) for command, _, shown in (r.partition("\n") for r in runs)]


@pytest.mark.parametrize(("command", "shown"), console())
def test_console_examples(command: str, shown: str) -> None:
    program, *words = shlex.split(command)
    assert program == "fragmenta"
    assert CliRunner().invoke(app, words).output == shown


def test_every_command_is_named() -> None:
    found = re.search(r"The commands are `([^`]*)`", README)
    assert found
    assert set(found[1].split()) == set(COMMANDS)


def test_the_comparison_with_mma_sim_is_the_committed_one() -> None:
    told = json.loads((ROOT / "docs/published/mma-sim.json").read_text("utf-8"))
    elements = sum(row["elements"] for row in told["rows"])
    assert f"{len(told['rows'])} rows, {elements:,} elements, no bit differs" in README
    assert not any(row["different"] for row in told["rows"])
    assert f"MMA-Sim {told['made']['mmasim']}, a published model" in README


def test_demo() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py"],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(fragmenta.__file__).parents[1]),
            "PYTHONIOENCODING": "utf-8",
        },
        capture_output=True,
        encoding="utf-8",
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
