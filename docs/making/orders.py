"""Writes the tables of explored kernels and of mutants from what was recorded."""

from __future__ import annotations

import json
import sys
from typing import Any

from making.markdown import DOCS, ROOT, table

sys.path.insert(0, str(ROOT))

from tests.orders.mutated import table as counted_kinds

TITLES = {
    "own": "the project's own kernels for Hopper",
    "triton": "Triton for Hopper",
    "hazards": "right kernels of `tests/ptx/hazards`",
    "cute": "a GEMM of the CuTe DSL",
}
VERDICTS = ("all orders", "this path only", "incomplete")


def _recorded(name: str) -> Any:
    return json.loads((DOCS / "verification" / f"{name}.json").read_text())


def kernels() -> str:
    """How many launches of each kind have which verdict."""
    found = _recorded("kernel_orders")
    head = ["kernels", *VERDICTS, "not clean", "most orders", "most states"]
    head.append("most CPU time")
    rows = []
    for suite, title in TITLES.items():
        some = [each for each in found["launches"] if each["suite"] == suite]
        if not some:
            continue
        counts = [sum(e["verdict"] == word for e in some) for word in VERDICTS]
        wrong = sum(not each["clean"] for each in some)
        most = [max(each[name] for each in some) for name in ("orders", "states")]
        seconds = max(each["seconds"] for each in some)
        numbers = [f"{each:,}" for each in (*counts, wrong, *most)]
        rows.append([f"{title} ({len(some)})", *numbers, f"{seconds:.0f} s"])
    start = (
        f"{found['date']}, at most {found['states']:,} states for each part of a launch"
    )
    return f"{start}:\n\n{table(head, rows)}"


def mutants() -> str:
    """What reports each kind of mistake."""
    found = _recorded("mutated_orders")
    head = ["mistake", "mutants", "launch alone", "only all orders", "neither"]
    head.append("of these never run")
    rows = [[str(cell) for cell in row] for row in counted_kinds(found["mutants"])]
    return f"{found['date']}:\n\n{table(head, rows)}"
