"""Runs folders of tests whole, and writes what was seen into docs/verification/thorough.json.

    python -m tests.thorough tests/units tests/simt ...

``make thorough`` takes hours.  A folder at a time, each with its files and not those of
its folders, it can be run in portions; the rows of other folders stay.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "verification" / "thorough.json"
COUNTS = ("cases", "passed", "failed", "skipped", "left", "seconds")
EVERYTHING = {"FRAGMENTA_THOROUGH": "1", "FRAGMENTA_HOPPER": "1"}


def outcomes(folder: str) -> tuple[list[str], int]:
    """The names of the tests of a folder that fail, and how many are skipped."""
    files = sorted(str(each) for each in (ROOT / folder).glob("test_*.py"))
    with TemporaryDirectory() as made:
        log = Path(made) / "log.xml"
        run = [sys.executable, "-m", "pytest", "-q", "-n", "1", "--dist", "loadgroup"]
        subprocess.run(
            [*run, f"--junitxml={log}", *files],
            cwd=ROOT,
            env={**os.environ, **EVERYTHING},
            check=False,
        )
        cases = [*ElementTree.parse(log).iter("testcase")]
    failed = [
        f"{each.get('classname')}::{each.get('name')}"
        for each in cases
        if each.find("failure") is not None or each.find("error") is not None
    ]
    skipped = sum(each.find("skipped") is not None for each in cases)
    if not cases:
        raise SystemExit(f"{folder}: no test ran")
    return failed, skipped


def whole(row: dict[str, Any], commit: str) -> list[str]:
    """Run a folder, and write what was seen into its row; the tests that fail."""
    before = os.times().children_user
    failed, skipped = outcomes(row["folder"])
    row["failed"] = len(failed)
    row["skipped"] = min(skipped, row["cases"] - len(failed))
    row["passed"] = row["cases"] - row["failed"] - row["skipped"]
    row["left"] = 0
    row["seconds"] = round(os.times().children_user - before)
    row["commit"], row["date"] = commit, str(datetime.now(UTC).date())
    return failed


def main(folders: list[str]) -> int:
    """Run some folders, one after the other; the report is written after each."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    failures = 0
    for folder in folders:
        report = json.loads(REPORT.read_text(encoding="utf-8"))
        (row,) = (each for each in report["folders"] if each["folder"] == folder)
        others = [each for each in report["failures"] if each["folder"] != folder]
        failed = whole(row, commit)
        report["failures"] = [
            *others,
            *({"folder": folder, "test": each} for each in failed),
        ]
        for name in COUNTS:
            report[name] = sum(each[name] for each in report["folders"])
        REPORT.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        print(folder, len(failed), "failed", *failed, sep="\n  ", flush=True)
        failures += len(failed)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
