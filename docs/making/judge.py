"""The tables of the judge: its findings, and its verdicts about known candidates."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from fragmenta.judge.findings import KINDS
from making.markdown import DOCS, table

FILE = DOCS / "judge.json"
Row = dict[str, Any]


@cache
def _judged() -> Row:
    found: Row = json.loads(FILE.read_text("utf-8"))
    return found


def _rows(cheats: bool) -> list[Row]:
    return [row for row in _judged()["rows"] if (row["kind"] == "cheat") == cheats]


def finding_table() -> str:
    """Every finding, its verdict and its meaning."""
    rows = [(f"`{k.name}`", k.word, k.means) for k in KINDS.values()]
    return table(("finding", "verdict", "meaning"), rows)


def summary() -> str:
    """How many candidates were judged rightly, and how long it took."""
    honest, cheats = _rows(False), _rows(True)
    clean = sum(row["verdict"] == "clean" for row in honest)
    called = sum(row["expected"] in row["findings"] for row in cheats)
    passed = sum(row["verdict"] == "clean" for row in cheats)
    minutes, workers = _judged()["seconds"] / 60, _judged()["workers"]
    return (
        f"Of {len(honest)} honest candidates, {clean} are `clean`. Of {len(cheats)} "
        f"cheats, {called} are called by their name, and {passed} are `clean`. All "
        f"{len(honest) + len(cheats)} together took {minutes:.0f} minutes with "
        f"{workers} workers, on two cores that others used, too."
    )


def cheat_table() -> str:
    """The cheats, and what was found."""
    rows = [
        (
            row["name"],
            row["task"],
            row["verdict"],
            ", ".join(f"`{each}`" for each in row["findings"]),
        )
        for row in _rows(True)
    ]
    return table(("cheat", "task", "verdict", "findings"), rows)


def honest_table() -> str:
    """The honest candidates, what they cost, and what was found."""
    rows = [
        (
            row["task"],
            row["kind"],
            row["verdict"],
            ", ".join(row["findings"]),
            str(row["cases"]),
            f"{row['cost']['instructions']:,}",
        )
        for row in _rows(False)
    ]
    head = ("task", "language", "verdict", "findings", "cases", "instructions")
    return table(head, rows)
