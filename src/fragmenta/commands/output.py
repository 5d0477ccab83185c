"""Writing results: text, JSON, and colours in a terminal.

Rich is imported only where colours are written.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from math import isfinite
from typing import TYPE_CHECKING

import typer

from fragmenta.errors import Error
from fragmenta.inspect.view.palette import terminal_style

if TYPE_CHECKING:
    from rich.text import Text

NARROWEST = 24
"""The least width of results; a narrower terminal wraps lines itself."""

# Control characters could move the cursor or rename the window, and halves of a
# surrogate pair, which stand for bytes of a file name, have no UTF-8.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def width() -> int:
    """The columns to write in: the terminal's, or 80."""
    return max(NARROWEST, shutil.get_terminal_size((80, 24)).columns)


def printable(text: str) -> str:
    r"""The text with control characters as escapes.

    >>> print(printable("\x1b[2J and 7"))
    \x1b[2J and 7
    """
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def emit(text: str) -> None:
    """Write text, with colours in a terminal."""
    text = printable(text)
    if colour():
        paint(_painted(text))
    else:
        write(text)


def paint(text: Text) -> None:
    """Write text with colours."""
    from rich.console import Console  # too slow to load for what has no colour

    Console(highlight=False, soft_wrap=True).print(text)


def emit_json(value: object) -> None:
    """Write JSON."""
    write(json_text(value))


def json_text(value: object) -> str:
    """JSON, indented; what fits on one line is on one line."""
    return _json(_finite(value), 0)


def write(text: str) -> None:
    """Write text as it is."""
    if sys.stdout is None:
        raise Error("the standard output is closed, so the answer cannot be printed")
    typer.echo(text)


def complain(text: str) -> None:
    """Write an error message."""
    typer.echo(printable(text), err=True)


def show_problems(text: str, err: bool) -> None:
    """Write problems of a kernel, with colours in a terminal."""
    text = printable(text)
    if not colour(err):
        typer.echo(text, err=err)
        return
    from rich.console import Console

    Console(stderr=err, highlight=False, soft_wrap=True).print(painted_problems(text))


def painted_problems(text: str) -> Text:
    """Numbers and places bold, what is wrong red, what repairs it green."""
    from rich.text import Text

    painted = Text(text)
    for pattern, style in (
        (r"(?m)^\d+ (?=\S)", "bold reverse"),
        (r"(?m)^(?:\d+ )?(?P<place>\S+:\d+:\d+:)(?= (?:error|warning|info):)", "bold"),
        (r"(?<=: )error: [\w-]+(?=:)", "bold red"),
        (r"(?<=: )warning: [\w-]+(?=:)", "bold yellow"),
        (r"(?<=: )info: [\w-]+(?=:)", "bold cyan"),
        (r"(?m)^ +\^~*$", "red"),
        (r"(?m)^  hint: .*(?:\n  (?!from )\S.*)*", "green"),
        (r"(?m)^  from .*", "dim"),
    ):
        for match in re.finditer(pattern, text):
            where = "place" if "place" in match.groupdict() else 0
            painted.stylize(style, match.start(where), match.end(where))
    return painted


def _finite(value: object) -> object:
    """The same with infinities and NaN as text, for which JSON has no number."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _json(value: object, indent: int) -> str:
    whole = json.dumps(value, allow_nan=False)
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


def colour(err: bool = False) -> bool:
    """Whether to write colours; NO_COLOR (https://no-color.org) turns them off."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal(err)


def is_terminal(err: bool = False) -> bool:
    """Whether a terminal shows the answer; a pipe and a file get all of it."""
    stream = sys.stderr if err else sys.stdout
    return stream is not None and stream.isatty()


def screen() -> int:
    """The lines that a terminal shows at once."""
    return max(24, shutil.get_terminal_size((80, 24)).lines)


def _painted(text: str) -> Text:
    """Mnemonics bold, labels cyan, cells in the colour of their lane."""
    from rich.text import Text

    painted = Text(text)
    painted.highlight_regex(r"(?m)^\S+\.sync\.\S+", "bold")
    painted.highlight_regex(r"(?m)^(  )?[A-Za-z]+(?=  )", "cyan")
    for match in re.finditer(r"\bT(\d+):\S+", text):
        painted.stylize(terminal_style(int(match[1])), match.start(), match.end())
    return painted
