"""How does an answer reach the terminal, the pipe or the program?

Answers are plain text.  Only a terminal that wants colour gets it, and only
then is rich imported.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.text import Text

# Eight colours for the eight groups of four lanes, legible on black and white.
_GROUPS = (
    "red",
    "green",
    "yellow",
    "blue",
    "magenta",
    "cyan",
    "bright_black",
    "default",
)


def width() -> int:
    """The columns to write in: the terminal's, or 80."""
    return shutil.get_terminal_size((80, 24)).columns


def emit(text: str) -> None:
    """Write an answer."""
    if not colour():
        typer.echo(text)
        return
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(_painted(text))


def emit_json(value: Any) -> None:
    """Write an answer for a program, and for people who read along."""
    typer.echo(_json(value, 0))


def _json(value: Any, indent: int) -> str:
    """JSON with everything that fits on one line on one line."""
    whole = json.dumps(value)
    if len(whole) + indent < 78 or not isinstance(value, dict | list | tuple):
        return whole
    inner, margin = indent + 2, " " * indent
    if isinstance(value, dict):
        items = [f"{json.dumps(k)}: {_json(v, inner)}" for k, v in value.items()]
    else:
        items = [_json(each, inner) for each in value]
    body = ",\n".join(f"{margin}  {item}" for item in items)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{body}\n{margin}{closing}"


def colour() -> bool:
    """Whether colours are wanted; https://no-color.org has a say."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty()


def _painted(text: str) -> Text:
    """Mnemonics bold, labels cyan, cells in the colour of their lane's group."""
    from rich.text import Text

    painted = Text(text)
    painted.highlight_regex(r"(?m)^\S+\.sync\.\S+", "bold")
    painted.highlight_regex(r"(?m)^(  )?[A-Za-z]+(?=  )", "cyan")
    for match in re.finditer(r"\bT(\d+):\S+", text):
        painted.stylize(_GROUPS[int(match[1]) // 4 % 8], match.start(), match.end())
    return painted
