"""The table of the rules that a launch checks."""

from __future__ import annotations

from fragmenta.ptx.rules import ERROR, INFO, RULES, WARNING, Rule
from making.markdown import table

WORDS = {ERROR: "error", WARNING: "warning", INFO: "information"}


def rule_table() -> str:
    """Every rule with a page: its severity, and what breaks it."""
    rows = [
        [f"[{each.name}](hazards/{each.name}.md)", _severity(each), each.meaning]
        for each in RULES.values()
        if each.page
    ]
    return table(["rule", "severity", "what"], rows)


def _severity(rule: Rule) -> str:
    word = "fault" if rule.stops else WORDS[rule.severity]
    return f"{word}; {rule.exception}" if rule.exception else word
