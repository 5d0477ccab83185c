"""Which commands are there?

One line per command: its name, the module that has it, and what it does.  The
order here is the order of ``fragmenta --help``, which reads nothing but this
table; the module of a command is imported when that command is asked for.  The
line also opens the command's own help.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """Where a command is, and what it does."""

    module: str
    does: str


COMMANDS = {
    "list": Entry("catalogue", "List instructions, one to a line."),
    "show": Entry("describe", "Show everything about one instruction."),
    "formula": Entry(
        "describe", "Print rows and columns as the PTX manual writes them."
    ),
    "where": Entry("lookup", "Say which lane, register and bits hold an element."),
    "holds": Entry("lookup", "Say which elements a lane holds, lowest bits first."),
    "table": Entry("lookup", "Write a whole fragment out; --json is --format json."),
    "which": Entry("lookup", "Say which registers feed one element of D."),
    "draw": Entry(
        "draw", "Draw an instruction, or one operand: here, or as SVG, PNG or PDF."
    ),
    "explore": Entry(
        "explore",
        "Open the explorer, a web page that works offline, or write it to a file.",
    ),
    "run": Entry(
        "compute", "Multiply matrices of any size, bit for bit as on the GPU."
    ),
    "explain": Entry("compute", "Show step by step how one element of D comes about."),
    "sparsity": Entry(
        "sparse", "Say whether a matrix is sparse as an instruction wants it."
    ),
    "metadata": Entry(
        "sparse", "Say which columns metadata words keep, and what is wrong."
    ),
    "shared": Entry("shared", "Show a tile in shared memory, and its bank conflicts."),
    "emit": Entry("source", "Write CUDA C++ or PTX that does an instruction."),
    "verify": Entry(
        "gpu", "Compare every bit of the GPU's results with those computed here."
    ),
    "record": Entry(
        "gpu", "Keep what the GPU answers in files that replay checks anywhere."
    ),
    "replay": Entry(
        "gpu", "Compute what a GPU recorded, on the CPU, and compare every bit."
    ),
    "throughput": Entry("gpu", "Measure how fast the GPU issues instructions."),
}
