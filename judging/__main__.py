"""Judges all honest candidates and all cheats; writes ``docs/judge.json``.

python -m judging                all of them, and the file
python -m judging relu zeros     those with such a name; replaces their rows
python -m judging --held-out     the candidates that no rule was made for, the same way,
                                 and ``docs/judge-held-out.json``
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from fragmenta.judge import Batch, Settings, Verdict
from judging import cheats, honest
from judging.cheats import Cheat
from judging.honest import Candidate
from judging.tasks import TASKS

DOCUMENTS = Path(__file__).parents[1] / "docs"


class Set(NamedTuple):
    """Candidates that are judged together."""

    file: Path
    tasks: dict[str, str]
    honest: list[Candidate]
    cheats: list[Cheat]


def known() -> Set:
    """The candidates that the rules were made with."""
    file = DOCUMENTS / "judge.json"
    return Set(file, TASKS, honest.candidates(), cheats.CHEATS)


def held_out() -> Set:
    """Those that were written before the judge had seen them."""
    from judging.held_out import cheats, honest, tasks

    file = DOCUMENTS / "judge-held-out.json"
    every = {**TASKS, **tasks.TASKS}
    return Set(file, every, honest.candidates(), cheats.CHEATS)


def processor_seconds() -> float:
    """Of this process and of those that have ended."""
    spent = (resource.getrusage(who) for who in WHO)
    return sum(each.ru_utime + each.ru_stime for each in spent)


WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def main(words: list[str]) -> int:
    """Judge, print a line for each candidate, and write the file."""
    chosen = held_out() if "--held-out" in words else known()
    words = [each for each in words if each != "--held-out"]
    wanted: dict[str, tuple[str, str, str, str]] = {}
    for each in chosen.honest:
        wanted[each.name] = (each.task, each.text, each.language, "")
    for cheat in chosen.cheats:
        wanted[cheat.name] = (cheat.task, cheat.text, "cheat", cheat.finding)
    if words:
        wanted = {
            name: about
            for name, about in wanted.items()
            if any(word in (about[2], name) or word in name for word in words)
        }
    start = time.perf_counter()
    with Batch(2, settings=Settings(seconds=300)) as batch:
        given = (
            (chosen.tasks[task], text, name)
            for name, (task, text, _, _) in wanted.items()
        )
        rows = [
            row(verdict, *wanted[verdict.name]) for verdict in batch.verdicts(given)
        ]
    spent = time.perf_counter() - start
    processor = processor_seconds()
    print(f"{len(rows)} candidates in {spent:.0f} s, {processor:.0f} s of processors")
    write(chosen, rows, None if words else (spent, processor))
    return 0


def row(
    verdict: Verdict, task: str, _text: str, kind: str, finding: str
) -> dict[str, Any]:
    """What is kept of a verdict; a line of it is printed."""
    right = finding in verdict.names if finding else verdict.word == "clean"
    mark = " " if right else "!"
    spent = f"{verdict.seconds:5.1f} s"
    print(mark, spent, verdict.name, "->", verdict.word, *verdict.names, flush=True)
    if not right:
        print(verdict, flush=True)
    return {
        "name": verdict.name,
        "task": task,
        "kind": kind,
        "expected": finding,
        "verdict": verdict.word,
        "findings": list(verdict.names),
        "evidence": verdict.findings[0].evidence if verdict.findings else "",
        "cases": len(verdict.cases),
        "cost": verdict.cost,
        "seconds": round(verdict.seconds, 1),
    }


def write(
    chosen: Set, rows: list[dict[str, Any]], spent: tuple[float, float] | None
) -> None:
    """Write all rows; or, if some were judged again, these in place of the old ones."""
    found: dict[str, Any] = {}
    if chosen.file.exists():
        found = json.loads(chosen.file.read_text("utf-8"))
    if spent is not None:
        seconds, processor = map(round, spent)
        about = {"seconds": seconds, "processor_seconds": processor, "workers": 2}
        found = {**found, **about, "rows": rows}
    else:
        new = {row["name"]: row for row in rows}
        found["rows"] = [new.pop(row["name"], row) for row in found.get("rows", [])]
        found["rows"] += new.values()
    names = [each.name for each in (*chosen.honest, *chosen.cheats)]
    found["rows"].sort(key=lambda row: names.index(row["name"]))
    chosen.file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
