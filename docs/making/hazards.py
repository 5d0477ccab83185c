"""The rules that a launch checks: their table, and their place in the contents."""

from __future__ import annotations

import sys

from fragmenta.ptx.rules import ERROR, INFO, RULES, WARNING, Rule
from making.markdown import ROOT, table

sys.path.insert(0, str(ROOT))

from tests.ptx.hopper import reporting

WORDS = {ERROR: "error", WARNING: "warning", INFO: "information"}


def rule_table() -> str:
    """Every rule with a page: its severity, and what breaks it."""
    rows = [
        [f"[{each.name}](hazards/{each.name}.md)", _severity(each), each.meaning]
        for each in RULES.values()
        if each.page
    ]
    return table(["rule", "severity", "what"], rows)


def mutants() -> str:
    """What came of every kernel with one mistake."""
    report = reporting.load()
    return f"{reporting.table(report)}\n\n{reporting.words(report)}"


BEGIN, END = "# generated: hazards\n", "# /generated\n"


def contents() -> str:
    """``mkdocs.yml`` with a line for the page of every rule."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    indent = before.rpartition("\n")[2]
    names = [each.name for each in RULES.values() if each.page]
    lines = "".join(f"{indent}- {name}: hazards/{name}.md\n" for name in names)
    return f"{before}{BEGIN}{lines}{indent}{END}{after}"


def _severity(rule: Rule) -> str:
    word = "fault" if rule.stops else WORDS[rule.severity]
    return f"{word}; {rule.exception}" if rule.exception else word
