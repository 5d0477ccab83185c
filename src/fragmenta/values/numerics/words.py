"""Words of reports on numerics."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fragmenta.ptx.families import REDUCING
from fragmenta.ptx.module import Instruction
from fragmenta.ptx.opcodes.kinds import opcodes_of

COUNTED = {
    "absorbed": "addends vanish whole",
    "cancelled": "cancel 10 bits or more",
    "underflows": "become zero",
    "subnormal": "become subnormal",
    "flushed": "are flushed by .ftz",
    "saturated": "are cut to the largest number",
    "overflows": "become infinite",
    "divisions": "divide by zero",
    "invalid": "become NaN",
    "passed": "stay NaN or infinite",
    "contracted": "are others than with a product that is rounded first",
    "other_way": "decide otherwise than exact values",
    "unrounded": "are cut toward zero to another integer than the nearest",
    "clipped": "are cut off by a sixteenth of their range or more",
    "wrapped": "are sums of bytes that wrap, and go on as numbers",
    "restarted": "lose the exact value",
}
"""What is counted at a site, in words for a number of elements."""
_SIGNS = {"add": "+", "sub": "-", "mul": "x", "div": "/"}


def number(value: float) -> str:
    """A number in a report.

    >>> number(1 / 3), number(float("-inf")), number(4.0)
    ('0.333333', '-inf', '4')
    """
    if math.isnan(value):
        return "NaN"
    return f"{value:.6g}"


def operand_count(instruction: Instruction) -> int:
    """How many numbers it computes with, at most three."""
    if instruction.is_update:
        return 2  # the old value, and another
    return min(3, max(1, len(instruction.operands) - 1))


def formula(instruction: Instruction, operands: Sequence[float], value: float) -> str:
    """An instruction with its numbers.

    >>> from fragmenta.ptx.module import Instruction
    >>> made = Instruction("sub", ("f32",), (None,) * 3, None, 1, 1)
    >>> formula(made, (1.0, 0.5), 0.5)
    '1 - 0.5 = 0.5'
    """
    count = operand_count(instruction)
    shown = [number(each) for each in operands[:count]]
    result = number(value)
    opcode = instruction.opcode
    if instruction.is_update:
        opcode = next(e for e in instruction.qualifiers if e in REDUCING)
    if opcode in _SIGNS and len(shown) == 2:
        return f"{shown[0]} {_SIGNS[opcode]} {shown[1]} = {result}"
    if instruction.is_fused and len(shown) == 3:
        return f"{shown[0]} x {shown[1]} + {shown[2]} = {result}"
    return f"{opcode}({', '.join(shown)}) = {result}"


def product_words(operands: Sequence[float], value: float, k: int) -> str:
    """How a NaN or an infinity was born in a product of matrices.

    Operands are the elements of A and B whose product is none or infinite, and C.  Of a
    sum that is too large, the first is the exact sum.

    >>> inf, nan = math.inf, math.nan
    >>> product_words((0.0, inf, 1.0), nan, 37)
    '0 x inf = NaN at k = 37'
    >>> product_words((2.0, -inf, inf), nan, 5)
    'inf - inf: C = inf, 2 x -inf at k = 5'
    >>> product_words((70000.0, 0.0, 60000.0), inf, 0)
    'C = 60000 and the products are exactly 70000: inf'
    """
    a, b, c = operands
    if not math.isnan(value):
        exactly = f"C = {number(c)} and the products are exactly {number(a)}"
        return f"{exactly}: {number(value)}"
    if math.isnan(a * b):
        return f"{number(a)} x {number(b)} = NaN at k = {k}"
    said = [f"C = {number(c)}"] if math.isinf(c) else []
    if math.isinf(a * b):
        said.append(f"{number(a)} x {number(b)} at k = {k}")
    return f"inf - inf: {', '.join(said)}" if said else "inf - inf"


def event_words(
    instruction: Instruction,
    operands: Sequence[float],
    value: float,
    operand: int,
    *,
    born: bool,
) -> str:
    """What made a NaN or an infinity, or passed it on, with the numbers."""
    if instruction.opcode not in opcodes_of("multiplies"):
        return formula(instruction, operands, value)
    if born:
        return product_words(operands, value, operand)
    return f"{number(operands[operand])} in {'ABC'[operand]}: {number(value)}"
