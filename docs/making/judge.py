"""The tables of the judge: its findings, and its verdicts about known candidates."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from fragmenta.frontends.judge.findings import KINDS
from making.markdown import DOCS, table

Row = dict[str, Any]


@cache
def _judged(name: str = "judge") -> Row:
    found: Row = json.loads((DOCS / f"{name}.json").read_text("utf-8"))
    return found


HELD_OUT = "judge-held-out"


def _rows(cheats: bool, of: Row | None = None) -> list[Row]:
    rows = (of or _judged())["rows"]
    return [row for row in rows if (row["kind"] == "cheat") == cheats]


def groups() -> dict[str, list[Row]]:
    """Candidates by what they are and when they were judged."""
    held_out = _judged(HELD_OUT)
    return {
        f"{what}{when}": _rows(cheats, of)
        for when, of in (
            ("", _judged()),
            (", held out, first run", held_out["first"]),
            (", held out, now", held_out),
        )
        for what, cheats in (("honest", False), ("cheats", True))
    }


def finding_table() -> str:
    """Every finding, its verdict and its meaning."""
    rows = [(f"`{k.name}`", k.word, k.means) for k in KINDS.values()]
    return table(("finding", "verdict", "meaning"), rows)


def _result(of: Row) -> str:
    """How many candidates were judged rightly."""
    honest, cheats = _rows(False, of), _rows(True, of)
    clean = sum(row["verdict"] == "clean" for row in honest)
    called = sum(row["expected"] in row["findings"] for row in cheats)
    passed = sum(row["verdict"] == "clean" for row in cheats)
    return (
        f"of {len(honest)} honest candidates, {clean} are `clean`; of {len(cheats)} "
        f"cheats, {called} are called by their name, and {passed} are `clean`"
    )


def summary() -> str:
    """How many candidates were judged rightly, and how long it took."""
    found, held_out = _judged(), _judged(HELD_OUT)
    said, count = _result(found), len(found["rows"])
    return (
        f"{said[0].upper()}{said[1:]}. All {count} together took "
        f"{found['seconds'] / 60:.0f} minutes with {found['workers']} workers on two "
        f"busy cores, and {found['processor_seconds']} s of the processors' time. The "
        "rules were made with these in view. Of others, which nobody had seen before "
        "([held out](#held-out)), the first run "
        f"said: {_result(held_out['first'])}."
    )


def held_out() -> str:
    """The candidates that no rule was made for: first verdicts, and those of now."""
    found = _judged(HELD_OUT)
    first = {row["name"]: row for row in found["first"]["rows"]}
    rows = []
    for row in found["rows"]:
        before = first[row["name"]]
        right = _right(before) and _right(row)
        if right:
            continue
        expected = f"`{row['expected']}`" if row["expected"] else "clean"
        rows.append((row["name"], expected, _said(before), _said(row)))
    spent = found["first"]["seconds"] / 60
    return (
        f"First run ({spent:.0f} minutes): {_result(found['first'])}.\n\nAfter what "
        f"it showed was mended: {_result(found)}.\n\nThese were not judged as "
        "expected, in the first run or now:\n\n"
        + table(("candidate", "expected", "first", "now"), rows)
    )


def _right(row: Row) -> bool:
    if row["expected"]:
        return row["expected"] in row["findings"]
    return bool(row["verdict"] == "clean")


def _said(row: Row) -> str:
    names = ", ".join(f"`{each}`" for each in row["findings"])
    return f"{row['verdict']}: {names}" if names else str(row["verdict"])


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
            f"{row['cost']['metrics']['ptx__inst_executed.sum']:,}",
            f"{row['cost']['bytes_read']:,}",
            row["cost"]["bound_by"],
        )
        for row in _rows(False)
    ]
    head = (
        *("task", "language", "verdict", "findings", "cases"),
        *("instructions", "bytes read", "bound by"),
    )
    return table(head, rows)
