"""Collects and prints the verdicts on all mutants.

``docs/verification/mutants.json`` is made of what the command of :mod:`judging` wrote,
and the tables in ``docs/hazards.md`` of it (``make pages``):

    python -m tests.ptx.hopper.reporting --judged mutants.jsonl --date 2026-11-15

``--add`` instead of ``--judged`` keeps all mutants that were not judged again.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ptx.hopper.descriptors import of_descriptor
from tests.ptx.hopper.equivalence import understood
from tests.ptx.hopper.judging import AGAIN, CAUGHT, WAYS, judged

FILE = Path(__file__).parents[3] / "docs" / "verification" / "mutants.json"
COLUMNS = (*CAUGHT, "equivalent", "missed", "never runs")
HEADINGS = {
    "bits": "other bits",
    "missed": "not seen",
}


@dataclass(frozen=True)
class Row:
    """One mutant of the report."""

    change: str
    line: int
    copy: int
    where: str
    way: str
    rules: tuple[str, ...]
    """In all schedules together."""
    everywhere: bool
    """Whether every schedule shows it."""
    again: bool
    """Whether other orders were tried, because it was silent."""


@dataclass(frozen=True)
class Report:
    """The mutants of all kernels."""

    date: str
    rows: list[tuple[str, Row]]
    """Each with the name of its kernel."""
    added: str = ""
    """When the last verdicts were added to those of that date."""

    def way(self, name: str, row: Row) -> str:
        """What came of a mutant: one of ``WAYS``."""
        return understood(name, row, row.way)


def load(path: Path = FILE) -> Report:
    """Read a report."""
    read = json.loads(path.read_text(encoding="utf-8"))
    texts = read["statements"]
    rows = []
    for name, table in read["kernels"].items():
        for change, line, copy, calls, way, rules, *flags in table:
            where = " < ".join(texts[each] for each in calls)
            row = Row(change, line, copy, where, way, tuple(rules), *map(bool, flags))
            rows.append((name, row))
    return Report(read["date"], rows, read.get("added", ""))


def shortened(tables: dict[str, Any], date: str) -> dict[str, Any]:
    """What :mod:`judging` wrote, without what can be computed or is not needed."""
    texts: dict[str, int] = {}
    kernels = {}
    for name, table in tables.items():
        kernels[name] = [
            [
                each["change"],
                each["line"],
                each["copy"],
                [texts.setdefault(text, len(texts)) for _, text in each["where"]],
                "silent" if each["way"] in ("equivalent", "missed") else each["way"],
                sorted({x for rules in each["rules"].values() for x in rules}),
                int(all(each["rules"].values())),
                int(any(str(x) in each["rules"] for x in AGAIN)),
            ]
            for each in table
        ]
    return {"date": date, "statements": list(texts), "kernels": kernels}


def unexplained(report: Report) -> list[str]:
    """The mutants that nothing showed, and nobody knows why."""
    return [
        f"{name}: {row.change}, line {row.line}, {row.where}"
        for name, row in report.rows
        if report.way(name, row) == "silent"
    ]


def caught(report: Report, descriptors: bool | None = None) -> tuple[int, int]:
    """How many mistakes that run are caught, and how many there are.

    ``descriptors``: only wrong descriptors, or only the others.
    """
    ways = Counter(
        report.way(name, row)
        for name, row in report.rows
        if descriptors in (None, of_descriptor(row.change))
    )
    good = sum(ways[each] for each in CAUGHT)
    return good, good + ways["missed"] + ways["silent"]


def kind_of(change: str) -> str:
    """Changes that stand in one line of the table."""
    if "stages instead of" in change:
        return "one stage more or less in the ring"
    if change.startswith("expect "):
        return "expect 16 bytes more or less"
    if change.startswith("count "):
        return "one arrival more or less at `mbarrier.init`"
    if "threads more at" in change:
        return f"32 threads more or less at `{change.rsplit(maxsplit=1)[-1]}`"
    if of_descriptor(change):
        return f"another {change.partition(':')[0].split()[-1]} in the descriptor"
    verb, _, what = change.rpartition(" ")
    dotted = "." in what or what == "fence" or verb in ("narrow", "relax")
    return f"{verb} `{what}`" if dotted else change


def words(report: Report) -> str:
    """What the table says, in sentences."""
    some = sum(
        report.way(name, row) in CAUGHT and not row.everywhere
        for name, row in report.rows
    )
    again = sum(row.again for _, row in report.rows)
    later = sum(row.again and row.way in CAUGHT for _, row in report.rows)
    plain = sum(
        of_descriptor(row.change)
        and report.way(name, row) == "missed"
        and " sparse " in name
        for name, row in report.rows
    )
    added = f"; some kernels were added on {report.added}" if report.added else ""
    sync, wrong, every = (_of(*caught(report, x)) for x in (False, True, None))
    return (
        f"The run was on {report.date}{added}. Of the mistakes in synchronisation that run, "
        f"{sync} are caught, of wrong descriptors that change the product {wrong}, and "
        f"of all {every}; all but {some} in every schedule. {plain} of the descriptors "
        "that are not seen are of kernels whose sparse A comes by copies of plain "
        "bytes: nothing says which element is where. Other orders of the warps and "
        f"all orders of the first 500 states were tried for {again} mutants that were "
        f"silent, and showed {later} of them."
    )


def _of(good: int, every: int) -> str:
    return f"{good:,} of {every:,} ({good / every:.1%})"


def table(report: Report) -> str:
    """The table of the page."""
    counts: dict[str, Counter[str]] = {}
    for name, row in report.rows:
        ways = counts.setdefault(kind_of(row.change), Counter())
        ways[report.way(name, row)] += 1
    total: Counter[str] = sum(counts.values(), Counter())
    columns = [each for each in COLUMNS if total[each]]
    titles = [HEADINGS.get(each, each) for each in columns]
    lines = [
        "| change | mutants | " + " | ".join(titles) + " |",
        "| --- |" + " --: |" * (1 + len(columns)),
    ]
    for kind, ways in [*sorted(counts.items()), ("**all**", total)]:
        cells = [sum(ways.values()), *(ways[each] for each in columns)]
        assert sum(ways[each] for each in WAYS) == cells[0]
        numbers = " | ".join(f"{each:,}" if each else "" for each in cells)
        lines.append(f"| {kind} | {numbers} |")
    return "\n".join(lines)


def write(path: Path, date: str) -> None:
    """Make the report of what :mod:`judging` wrote: a line for each mutant.

    Recorded kernels, whose mutants have no statements, stay if they were not judged
    again.
    """
    made = shortened(judged(path), date)
    kernels = made.pop("kernels")
    for name, table in json.loads(FILE.read_text(encoding="utf-8"))["kernels"].items():
        if not any(calls for _, _, _, calls, *_ in table):
            kernels.setdefault(name, table)
    _save(made, kernels)


def add(paths: list[Path], date: str) -> None:
    """Add verdicts to the report; those on the same mutants are replaced."""
    read = json.loads(FILE.read_text(encoding="utf-8"))
    texts = {text: number for number, text in enumerate(read["statements"])}
    kernels = read["kernels"]
    for path in paths:
        new = shortened(judged(path), date)
        places = [texts.setdefault(each, len(texts)) for each in new["statements"]]
        for name, table in new["kernels"].items():
            rows = {tuple(row[:3]): row for row in kernels.setdefault(name, [])}
            for row in table:
                row[3] = [places[each] for each in row[3]]
                rows[tuple(row[:3])] = row
            kernels[name] = sorted(rows.values(), key=lambda row: (row[1], row[0]))
    made = {"date": read["date"], "added": date, "statements": list(texts)}
    _save(made, kernels)


def _save(made: dict[str, Any], kernels: dict[str, Any]) -> None:
    """Write the file of the report."""
    head = json.dumps(made, indent=1)[:-2]
    tables = []
    for name, table in kernels.items():
        rows = ",\n".join(f"   {json.dumps(row)}" for row in table)
        tables.append(f"  {json.dumps(name)}: [\n{rows}\n  ]")
    text = head + ',\n "kernels": {\n' + ",\n".join(tables) + "\n }\n}\n"
    FILE.write_text(text, encoding="utf-8")


def main() -> None:
    """Print the table, and what is behind it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--judged", type=Path, help="write the report of this file")
    parser.add_argument("--add", type=Path, nargs="+", help="add these verdicts to it")
    parser.add_argument("--date")
    options = parser.parse_args()
    if options.judged:
        write(options.judged, options.date)
    if options.add:
        add(options.add, options.date)
    report = load()
    rules = Counter(x for _, row in report.rows for x in row.rules)
    print(table(report))
    print(words(report))
    print("by rule:", dict(rules.most_common()))
    print(sum(row.everywhere for _, row in report.rows), "in every schedule")
    print("\n".join(unexplained(report)))


if __name__ == "__main__":
    main()
