"""How is a problem of a launch put into words?"""

from __future__ import annotations

from typing import Any

from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.watching.findings import Found


def tell(launch: Any, found: Found) -> Problem:
    """A problem in the user's terms."""
    module = launch.module()
    line, column, text, source, function = found.more.get("line", 0), 1, "", None, ""
    if found.site >= 0:
        function, index = launch.compiled.places[found.site]
        instruction = module.functions[function].instructions[index]
        line, column, source = instruction.line, instruction.column, instruction.source
    lines = module.text.splitlines()
    if 0 < line <= len(lines):
        text = lines[line - 1].strip()
    message = found.message or f"{found.rule}: {found.more}"
    if found.other is not None and found.other >= 0:
        function, index = launch.compiled.places[found.other]
        other = module.functions[function].instructions[index]
        message += f" [other: line {other.line} {other.mnemonic}]"
    return Problem(
        found.rule, found.severity, line, column, text, message,
        function=function, source=source,
    )  # fmt: skip
