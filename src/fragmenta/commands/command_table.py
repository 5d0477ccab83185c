"""The table of commands: the name, the module and the help of each.

The order is that of ``fragmenta --help``, which reads nothing but this table.  The
module of a command is imported when the command is called.
"""

from __future__ import annotations

from typing import NamedTuple


class Listed(NamedTuple):
    """The module of a command, and the first line of its help."""

    module: str
    does: str


COMMANDS = {
    "list": Listed("catalogue", "List instructions, one per line."),
    "show": Listed("describe", "Show everything about one instruction."),
    "formula": Listed(
        "describe", "Print formulas as the PTX manual does, or as CUDA or Python."
    ),
    "where": Listed("lookup", "Show which lane, register and bits hold an element."),
    "holds": Listed("lookup", "Show which elements a lane holds, lowest bits first."),
    "table": Listed("lookup", "Print a whole fragment as a table."),
    "which": Listed(
        "lookup", "Show what feeds one element of D, or what a SASS name means."
    ),
    "draw": Listed("draw", "Draw an instruction or one operand, here or in a file."),
    "explore": Listed(
        "explore",
        "Open the explorer, an offline web page, or write it to a file.",
    ),
    "idesc": Listed(
        "descriptors", "Read or write the instruction descriptor of a tcgen05.mma."
    ),
    "matmul": Listed(
        "compute", "Multiply matrices of any size, bit for bit as on the GPU."
    ),
    "explain": Listed("compute", "Show step by step how one element of D is computed."),
    "compare": Listed(
        "compare", "Compare the errors of instructions on several targets."
    ),
    "quantize": Listed(
        "quantize", "Quantise a matrix to elements and scales, and show the error."
    ),
    "sparsity": Listed(
        "sparse", "Check that a matrix is as sparse as an instruction needs."
    ),
    "metadata": Listed(
        "sparse", "Show which columns metadata words keep, and illegal codes."
    ),
    "shuffle": Listed(
        "weights", "Reorder a quantised weight so that lanes load it with wide loads."
    ),
    "shared": Listed("shared", "Show a tile in shared memory and its bank conflicts."),
    "check": Listed("check", "Check PTX files, or one instruction, without running."),
    "launch": Listed(
        "launch", "Run a kernel of a PTX file on the CPU, with the bits of a GPU."
    ),
    "debug": Listed(
        "debug", "Step through a launch, forwards and backwards, here or in an editor."
    ),
    "run": Listed(
        "run", "Run a program that uses CUDA, without a GPU, and watch its kernels."
    ),
    "orders": Listed(
        "orders", "Explore all orders of a launch: does one of them hang or race?"
    ),
    "same": Listed(
        "same", "Prove that two launches leave the same bits, or find an input."
    ),
    "invariant": Listed(
        "same", "Prove that a kernel leaves the same bits for every batch size."
    ),
    "judge": Listed(
        "judge", "Judge a kernel that a machine wrote against a reference."
    ),
    "serve": Listed(
        "serve", "Launch kernels for other programs, which ask by JSON lines."
    ),
    "emit": Listed("emit", "Write CUDA C++ or PTX code for an instruction."),
    "verify": Listed("gpu", "Compare every bit of the GPU's results with the CPU's."),
    "record": Listed(
        "recordings", "Record the GPU's results in files that replay can check."
    ),
    "replay": Listed(
        "recordings", "Recompute recorded results on the CPU and compare every bit."
    ),
    "throughput": Listed("gpu", "Measure how fast the GPU issues instructions."),
    "doctor": Listed(
        "doctor", "Show versions, tools, card and cache, and what is missing."
    ),
}
