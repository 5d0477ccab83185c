"""What ``make test`` leaves out, and the report of the last run of all of it."""

import json
from pathlib import Path

from tests import thinning

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "verification" / "thorough.json"
COUNTS = ("cases", "passed", "failed", "skipped", "left")


def test_the_report_of_thorough_adds_up() -> None:
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    for name in COUNTS:
        assert report[name] == sum(each[name] for each in report["folders"])
    for each in (report, *report["folders"]):
        assert each["cases"] == sum(each[name] for name in COUNTS[1:])
    assert len(report["failures"]) == report["failed"]
    assert all((ROOT / each["folder"]).is_dir() for each in report["folders"])


def test_some_and_kinds_take_the_same_every_time(monkeypatch) -> None:
    monkeypatch.setattr(thinning, "THOROUGH", False)
    assert thinning.some(range(10), 4, start=5) == [1, 5, 9]
    assert thinning.kinds("abcABC", str.lower) == ["a", "b", "c"]
    assert thinning.kinds("abcABC", str.lower, 2) == ["a", "b", "c", "A", "C"]
    monkeypatch.setattr(thinning, "THOROUGH", True)
    assert thinning.some(range(3), 4) == [0, 1, 2]
    assert thinning.kinds("aA", str.lower) == ["a", "A"]
