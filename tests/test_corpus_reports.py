"""Every case of the corpus must report: a process that dies or is silent is a failure.

The libraries are not needed: a program that stands in for them does what each case says.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from corpus import __main__ as corpus
from corpus import child, table
from tests.clock import HANG

LIBRARY = "cce"
REPORT = {"state": "right", "reason": "", "error": 0, "compared": 1, "kernels": []}

PROGRAM = """
import json, os, signal, sys
from pathlib import Path

library, part, folder = sys.argv[1:4]
folder = Path(folder)
for step in json.loads(os.environ["STEPS"]):
    if step[0] == "list":
        (folder / f"{library}.cases").write_text(json.dumps(step[1]))
    elif step[0] == "report":
        (folder / f"{library}.{step[1]}.json").write_text(os.environ["REPORT"])
    elif step[0] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        sys.exit(step[1])
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the corpus with a child that takes some steps; what it said."""
    file = tmp_path / "child.py"
    file.write_text(PROGRAM)
    monkeypatch.setattr(corpus, "CHILD", [sys.executable, str(file)])
    monkeypatch.setenv("REPORT", json.dumps(REPORT))

    def run(part: str, steps: list[Any], *more: str) -> int:
        monkeypatch.setenv("STEPS", json.dumps(steps))
        words = ["corpus", "--library", LIBRARY, "--part", part, *more]
        monkeypatch.setattr(sys, "argv", words)
        return corpus.main()

    return run


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has two cases of the library."""
    rows = [{"library": LIBRARY, "case": name, **REPORT} for name in ("one", "two")]
    kept = {"made": {}, "libraries": {}, "cases": rows}
    monkeypatch.setattr(table, "load", lambda: kept)


BOTH = ["list", ["one", "two"]]
SILENT = {
    "killed": ([BOTH, ["report", "one"], ["kill"]], ["two"], "-9"),
    "ended early": ([BOTH, ["report", "one"], ["exit", 0]], ["two"], "0"),
    "none": ([BOTH, ["exit", 0]], ["one", "two"], "0"),
    "failed": ([BOTH, ["exit", 3]], ["one", "two"], "3"),
    "not listed": ([["exit", 1]], ["one", "two"], "1"),
    "not listed, no error": ([["exit", 0]], ["one", "two"], "0"),
}


@pytest.mark.parametrize("part", ["small", "all"])
@pytest.mark.parametrize(("steps", "names", "status"), SILENT.values(), ids=SILENT)
@pytest.mark.usefixtures("known")
def test_a_case_without_a_report_is_named(
    steps: Any, names: list[str], status: str, part: str, program: Any, capsys: Any
) -> None:
    assert program(part, steps) == 1
    said = capsys.readouterr().out
    for name in ("one", "two"):
        told = f"{LIBRARY} {name}: no report; the process ended with status {status}"
        assert (told in said) == (name in names)


@pytest.mark.usefixtures("known")
def test_all_reports_are_there(program: Any, capsys: Any) -> None:
    reports = [["report", "one"], ["report", "two"]]
    assert program("small", [BOTH, *reports]) == 0
    assert program("small", [BOTH, *reports, ["exit", 4]]) == 1
    assert f"{LIBRARY}: the process ended with status 4" in capsys.readouterr().out


@pytest.mark.usefixtures("known")
def test_a_name_that_no_case_has(program: Any, capsys: Any) -> None:
    assert program("all", [["list", []]], "--only", "three") == 1
    assert "no case was run" in capsys.readouterr().out


@pytest.mark.usefixtures("known")
def test_an_old_listing_does_not_count(
    tmp_path: Path, program: Any, capsys: Any
) -> None:
    folder = ["--folder", str(tmp_path / "kept")]
    assert program("all", [["list", []], ["exit", 0]], *folder) == 1
    assert program("all", [["exit", 1]], *folder) == 1
    assert f"{LIBRARY} one: no report" in capsys.readouterr().out


def _wait() -> dict[str, Any]:
    signal.pause()
    return REPORT


ENDS = {
    "crash": (lambda: os.kill(os.getpid(), signal.SIGKILL), HANG, "crash"),
    "silent": (lambda: os._exit(0), HANG, "crash"),
    "error": (lambda: 1 / 0, HANG, "crash"),
    "no JSON": (lambda: {"state": object()}, HANG, "crash"),
    "slow": (_wait, 0.0, "time"),
    "right": (lambda: REPORT, HANG, "right"),
}


@pytest.mark.parametrize(("action", "limit", "state"), ENDS.values(), ids=ENDS)
def test_each_end_of_a_fork_is_told(
    action: Any, limit: float, state: str, tmp_path: Path
) -> None:
    file = tmp_path / "library.case.json"
    file.write_text(json.dumps({**REPORT, "state": "of an earlier run"}))
    child.in_a_fork(action, file, limit)
    (row,) = table.read(tmp_path)
    assert row["state"] == state
    assert (row["library"], row["case"]) == ("library", "case")
