"""Judges all honest candidates and all cheats; writes ``docs/judge.json``.

python -m judging                all of them, and the file
python -m judging relu zeros     those whose names have one of these words
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
    """Judge, print a line for each candidate, and write the file if all were asked."""
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
    settings = Settings(seconds=90)
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
    if not words:
        order = {name: i for i, name in enumerate(wanted)}
        rows.sort(key=lambda row: order[str(row["name"])])
        found = {"seconds": round(spent_all), "workers": 2, "rows": rows}
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
