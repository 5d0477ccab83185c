"""Writes what was said first about bugs that others planted."""

from __future__ import annotations

import json
from typing import Any

from making.markdown import DOCS, table

FIRST = DOCS / "planted.json"
"""What was said first, by round, group and case: of the wrong and the right kernel."""
RIGHT = ("found", "silent")


def _rounds() -> list[dict[str, Any]]:
    return json.loads(FIRST.read_text(encoding="utf-8"))


def planted_table() -> str:
    """How many were found at the right line, and how many right ones were accused."""
    body = []
    for each in _rounds():
        for group, cases in each["groups"].items():
            wrong = [case[1] for case in cases if case[1]]
            right = [case[2] for case in cases if case[2]]
            found = f"{wrong.count(RIGHT[0])} of {len(wrong)}" if wrong else ""
            accused = f"{len(right) - right.count(RIGHT[1])} of {len(right)}"
            body.append([each["date"], group, found, accused if right else ""])
    head = ["first asked on", "group", "found at the right line", "right ones accused"]
    return table(head, body)


def missed_table() -> str:
    """Every first answer that was not right, and what came of it."""
    body = [
        [each["date"], group, f"`{case[0]}`", *_not_right(case)]
        for each in _rounds()
        for group, cases in each["groups"].items()
        for case in cases
        if (case[1] or RIGHT[0]) != RIGHT[0] or (case[2] or RIGHT[1]) != RIGHT[1]
    ]
    return table(["first asked on", "group", "case", "first answer", "since"], body)


def _not_right(case: list[str]) -> list[str]:
    """The answers that were not right, and the remark."""
    pairs = zip(case[1:3], RIGHT, ("", "the right one: "), strict=True)
    said = [who + answer for answer, right, who in pairs if answer not in ("", right)]
    return ["; ".join(said), case[3] if len(case) > 3 else ""]
