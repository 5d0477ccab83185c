"""Writes the tables of litmus tests from those that are run."""

from __future__ import annotations

import sys

from making.markdown import ROOT, table

sys.path.insert(0, str(ROOT))

from tests.ptx.hazards.cases import cases
from tests.races.litmus.table import KERNELS, TESTS, Litmus

PLACES = {
    "lanes": "lanes of a warp",
    "warps": "warps of a block",
    "cluster": "blocks of a cluster",
    "grid": "blocks of the grid",
    "two blocks": "two warps each of two blocks",
}


def litmus_tables() -> str:
    """All tests, a table for each topic."""
    topics = dict.fromkeys(each.topic for each in TESTS)
    return "\n\n".join(f"### {topic}\n\n{_table(topic)}" for topic in topics)


def _table(topic: str) -> str:
    head = ["test", "program", "threads", "model", "weak outcome", "report", "why"]
    rows = [
        [
            _name(each),
            f"`{each.program.compact}`",
            PLACES[each.program.at],
            each.model,
            each.weak,
            ", ".join(_rule(rule) for rule in each.report.split()) or "none",
            _why(each),
        ]
        for each in TESTS
        if each.topic == topic
    ]
    return table(head, rows)


def _name(test: Litmus) -> str:
    return f"{test.name} ({test.published})" if test.published else test.name


def _rule(name: str) -> str:
    return f"[{name}](hazards/{name}.md)"


def _why(test: Litmus) -> str:
    lazy = "the schedule `lazy` shows it" if test.lazy else ""
    differs = f"**Differs:** {test.differs}" if test.differs else ""
    return "; ".join(each for each in (test.why, lazy, differs) if each)


def kernel_table() -> str:
    """The kernels of the hazards that are litmus tests, too."""
    found = {(each.row.source, each.row.entry, each.bug): each for each in cases()}
    rows = []
    for each in KERNELS:
        row = found[each[:3]].row
        mistake = row.mistakes.get(each.bug)
        rules = () if mistake is None else mistake.rules
        said = " or ".join(_rule(rule) for rule in rules) or "none"
        rows.append([f"`{each.source}.cu`, `{each.entry}`", each.why, said])
    return table(["kernel", "what", "report"], rows)


def counts() -> str:
    """How many tests there are, and how many verdicts differ from the model's."""
    differ = sum(bool(each.differs) for each in TESTS)
    published = sum(bool(each.published) for each in TESTS)
    return (
        f"{len(TESTS)} programs, {published} of them published. The report follows "
        f"from the model in {len(TESTS) - differ}; in {differ} it differs, and the row "
        "says why."
    )
