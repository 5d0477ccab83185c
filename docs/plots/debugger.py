"""Draws a session of the debugger as a terminal: python docs/plots/debugger.py

The kernel is the one of the README, and what is shown is what the commands print.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from fragmenta import ptx
from fragmenta.inspect.debugging.debugger import Debugger
from fragmenta.inspect.debugging.terminal import Terminal

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "continue",
    "who tile[0]",
    "print tile[124:136] as u32",
    "back",
    "info units",
)


def session() -> list[tuple[str, list[str]]]:
    """Commands, and what each of them prints."""
    kernel = ptx.load(ROOT / "examples" / "two_copies.ptx").kernels["add"]
    arrays = [np.arange(64, dtype=np.uint32), np.zeros(32, np.uint32)]
    watch = ptx.Watch("report")
    result = kernel.launch(1, 32, arrays, watch=watch, schedule="lazy", replay=True)
    terminal = Terminal(Debugger(result.replay()), 84)
    return [(each, terminal.do(each)) for each in COMMANDS]


def picture() -> str:
    """The session as SVG, without fonts of other places."""
    console = Console(record=True, width=86, file=io.StringIO())
    for command, lines in session():
        console.print(Text("(fragmenta) ", "bold blue") + Text(command, "bold"))
        for line in lines:
            wrong = line.startswith("problem") or "may still" in line
            console.print(Text(line, "red" if wrong else ""))
    text = console.export_svg(title="fragmenta debug", unique_id="debugger")
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.S)
    return text.replace("Fira Code", "ui-monospace, DejaVu Sans Mono")


if __name__ == "__main__":
    path = ROOT / "docs" / "images" / "debugger.svg"
    path.write_text(picture(), encoding="utf-8")
