"""Writes a Python program that repeats one difference between GPU and package.

The program makes the operands of the tile, and computes one element of D on the CPU
and on the GPU.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.tools.device import Array
from fragmenta.inspect.evidence.case import Mismatch
from fragmenta.reference.isa.instruction import Instruction

_PACKED = [
    "import numpy as np",
    "import fragmenta as fm",
    "",
    "",
    "def words(text, bits):",
    '    """Registers of 32 lanes, in hexadecimal."""',
    "    found = [int(word, 16) for word in text.split()]",
    '    return np.array(found, f"uint{bits}").reshape(32, -1)',
    "",
]


@dataclass(frozen=True)
class Fed:
    """Raw bits of the matrices of a tile: A as it is stored, and its columns."""

    a: Array
    b: Array
    c: Array
    index: Array | None


def packed(op: Instruction, one: Mapping[str, Array]) -> list[str]:
    """Lines that make an instruction and the registers of its operands."""
    lines = [*_PACKED, "", f'op = fm.instruction("{op}")']
    for name, words in one.items():
        lines += _written(name, words)
    return lines


def _written(name: str, words: Array) -> list[str]:
    """An assignment of registers, four lanes to a line or fewer."""
    bits = 8 * words.itemsize
    digits = [f"{int(word):0{bits // 4}x}" for word in words.ravel()]
    lines = textwrap.wrap(" ".join(digits), 84)
    return [f'{name} = words("""', *lines, f'""", {bits})']


def repeating(
    op: Instruction, lines: list[str], fed: Fed, found: Mismatch, target: str
) -> str:
    """The program: what feeds the element, the operands, both computations.

    ``lines`` set ``op``, ``operands`` and ``options``.
    """
    *matrix, row, col = found.place  # some instructions compute several matrices
    at = ", ".join(map(str, found.place))
    a, b = fed.a[tuple(matrix)][row], fed.b[tuple(matrix)][:, col]
    said = [
        f"# {op}",
        f"# D[{at}] is made of these raw bits:",
        *_comment("A", a),
        *([] if fed.index is None else _comment("in columns", fed.index[row], "d")),
        *_comment("B", b),
        *_comment("C", fed.c[found.place].reshape(1)),
    ]
    asked = [
        f'cpu = op.execute(*operands, **options, target="{target}")',
        f'print("CPU", hex(op.d.unpack_bits(cpu)[{at}]))  # {found.cpu:#x}',
        "gpu = op.on_device(*operands, **options)",
        f'print("GPU", hex(op.d.unpack_bits(gpu)[{at}]))  # {found.gpu:#x}',
    ]
    return "\n".join([*said, *lines, *asked]) + "\n"


def _comment(what: str, bits: Array, form: str = "x") -> list[str]:
    text = f"{what}: " + " ".join(f"{int(each):{form}}" for each in bits)
    return textwrap.wrap(text, 84, initial_indent="#   ", subsequent_indent="#     ")
