"""Judges all honest candidates and all cheats; writes ``docs/judge.json``.

python -m judging                all of them, and the file
python -m judging relu zeros     those with such a name; replaces their rows
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from fragmenta.judge import Batch, Settings
from judging import cheats, honest
from judging.tasks import TASKS

FILE = Path(__file__).parents[1] / "docs" / "judge.json"


def main(words: list[str]) -> int:
    """Judge, print a line for each candidate, and write the file."""
    wanted: dict[str, tuple[str, str, str, str]] = {}
    for each in honest.candidates():
        wanted[each.name] = (each.task, each.text, each.language, "")
    for cheat in cheats.CHEATS:
        wanted[cheat.name] = (cheat.task, cheat.text, "cheat", cheat.finding)
    if words:
        wanted = {
            name: about
            for name, about in wanted.items()
            if any(word in (about[2], name) or word in name for word in words)
        }
    start, rows = time.perf_counter(), []
    settings = Settings(seconds=300)
    with Batch(2, settings=settings) as batch:
        given = (
            (TASKS[task], text, name) for name, (task, text, _, _) in wanted.items()
        )
        for verdict in batch.verdicts(given):
            task, _, kind, finding = wanted[verdict.name]
            right = finding in verdict.names if finding else verdict.word == "clean"
            mark = " " if right else "!"
            spent = f"{verdict.seconds:5.1f} s"
            print(
                mark,
                spent,
                verdict.name,
                "->",
                verdict.word,
                *verdict.names,
                flush=True,
            )
            if not right:
                print(verdict, flush=True)
            rows.append(
                {
                    "name": verdict.name,
                    "task": task,
                    "kind": kind,
                    "expected": finding,
                    "verdict": verdict.word,
                    "findings": list(verdict.names),
                    "evidence": verdict.findings[0].evidence
                    if verdict.findings
                    else "",
                    "cases": len(verdict.cases),
                    "cost": verdict.cost,
                    "seconds": round(verdict.seconds, 1),
                }
            )
    spent_all = time.perf_counter() - start
    print(f"{len(rows)} candidates in {spent_all:.0f} s")
    write(rows, None if words else spent_all)
    return 0


def write(rows: list[dict[str, object]], seconds: float | None) -> None:
    """Write all rows; or, if some were judged again, these in place of the old ones."""
    found = {"seconds": round(seconds or 0), "workers": 2, "rows": rows}
    if seconds is None:
        found = json.loads(FILE.read_text("utf-8"))
        new = {row["name"]: row for row in rows}
        found["rows"] = [new.pop(row["name"], row) for row in found["rows"]]
        found["rows"] += new.values()
    names = [*(e.name for e in honest.candidates()), *(e.name for e in cheats.CHEATS)]
    found["rows"].sort(key=lambda row: names.index(row["name"]))
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
