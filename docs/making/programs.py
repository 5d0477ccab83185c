"""Writes the tables of ``fragmenta run``: functions of CUDA, cards, and programs."""

from __future__ import annotations

import json
from collections import Counter

from fragmenta.frontends.programs.cards import cards
from fragmenta.frontends.programs.functions import DRIVER, REFUSED, RUNTIME, rows
from making.markdown import DOCS, table

RESULTS = DOCS / "programs.json"
CARD = DOCS / "programs-h200.json"
BLACKWELL = DOCS / "blackwell_programs.json"
_FOLDER = DOCS.parent / "examples" / "frontends"
EXAMPLES = sorted(path.stem for path in _FOLDER.glob("*.py"))
"""Programs of front ends that use CUDA's driver."""


def example(name: str) -> str:
    """A program of a front end, as it is."""
    text = (_FOLDER / f"{name}.py").read_text(encoding="utf-8")
    code = text.partition('"""\n\n')[2].strip()
    return f"```python\n# examples/frontends/{name}.py\n{code}\n```"


def function_table() -> str:
    """The functions that are covered, by section."""
    found: dict[str, dict[str, None]] = {}
    for each in (RUNTIME, DRIVER):
        for row in rows(each):
            found.setdefault(row.section, {})[row.name] = None
    body = [
        [section, ", ".join(f"`{name}`" for name in names)]
        for section, names in found.items()
    ]
    return table(["what", "functions"], body)


def refused_table() -> str:
    """The functions that return an error, by reason."""
    found: dict[str, list[str]] = {}
    for line in REFUSED.strip().splitlines():
        why, _, names = (part.strip() for part in line.split("|"))
        found.setdefault(why, []).extend(names.split())
    body = [[why, ", ".join(f"`{n}`" for n in names)] for why, names in found.items()]
    return table(["reason", "functions"], body)


def card_table() -> str:
    """The cards that a program can be told that it runs on."""
    body = [
        [f"`{c.card}`", c.name, c.target, str(c.processors), f"{c.shared} KiB"]
        for c in cards().values()
    ]
    head = ["--card", "name", "target", "multiprocessors", "shared memory of each"]
    return table(head, body)


def result_table() -> str:
    """Programs of others that were run, and what came of each."""
    found = json.loads(RESULTS.read_text())
    counts = Counter(each["result"] for each in found["programs"])
    said = ", ".join(f"{number} {word}" for word, number in counts.most_common())
    body = [
        [
            f"`{each['program']}`",
            each["result"],
            str(each["launches"]) if each["launches"] else "",
            each.get("date", ""),
            each["said"],
        ]
        for each in found["programs"]
    ]
    listing = table(["program", "result", "launches", "run on", "what was said"], body)
    sources = ", ".join(f"{home} {commit}" for home, commit in found["sources"].items())
    made = f"Built by nvcc {found['nvcc']} from {sources}."
    return f"{len(found['programs'])} programs: {said}. {made}\n\n{listing}"


def recorded_table() -> str:
    """Programs whose launches a GPU recorded, and how they compare here."""
    found = json.loads(CARD.read_text())
    rows = [each for each in found["programs"] if each["launches"]]
    whole = sum(each["launches"] for each in rows)
    same = sum(each["same"] for each in rows)
    size = sum(each["bytes"] for each in rows)
    made = found["made"]
    body = [
        [
            f"`{each['program']}`",
            f"{each['same']} of {each['launches']}",
            f"{each['bytes']:,}",
            each.get("why", ""),
        ]
        for each in rows
    ]
    said = (
        f"{whole} launches of {len(rows)} programs on an {made['gpu']} (driver "
        f"{made['driver']}, {made['date']}), {size:,} bytes: {same} launches have no "
        "byte that differs."
    )
    head = ["program", "launches without a difference", "bytes", "why others differ"]
    return f"{said}\n\n{table(head, body)}"


def blackwell_table() -> str:
    """Blackwell kernels of others: numbers, reports, and whether these are true."""
    found = json.loads(BLACKWELL.read_text())
    counts = Counter(each["result"] for each in found["kernels"])
    said = ", ".join(f"{number} {word}" for word, number in counts.most_common())
    sources = ", ".join(f"{home} {commit}" for home, commit in found["sources"].items())
    body = [
        [
            each["source"],
            f"`{each['kernel']}`",
            f"`--card {each['card']}`: `{each['arguments']}`",
            each["result"],
            ", ".join(f"{name} ({seen})" for name, seen in each["reports"].items()),
        ]
        for each in found["kernels"]
    ]
    judged = [
        [name, f"{each['severity']}: {each['rule']}", each["verdict"], each["why"]]
        for name, each in found["judged"].items()
    ]
    head = ["project", "kernel", "arguments", "result", "reports"]
    kernels, reports = (
        table(head, body),
        table(["report", "rule", "judged", "by reading the source"], judged),
    )
    made = f"Built by nvcc {found['nvcc']} from {sources}; run on {found['date']}."
    return f"{len(body)} kernels: {said}. {made}\n\n{kernels}\n\n{reports}"
