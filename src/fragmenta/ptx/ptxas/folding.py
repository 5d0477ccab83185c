"""Computes approximations of constants as the assembler does.

The approximations of f32 that a GPU has instructions for are computed by ptxas where
their operand is a constant, and its answer is the nearest float, which a GPU's need not
be.  So ``div.approx`` and ``div.full`` by a constant are a product with its reciprocal.
This was read from the machine code that ptxas 13.4 writes for sm_90a.

An operand is a constant if it is written as one, or if it is a register whose only
assignment is a ``mov`` of one.  Left alone are ``tanh``, which ptxas does not compute,
and what is not a normal number, before or after: there a GPU and ptxas agree, or ptxas
leaves it to the GPU.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace

from fragmenta.ptx.module import Function, Immediate, Instruction, Operand, Register
from fragmenta.ptx.ptxas.pieces import constants, is_calculation

_ANSWERS: dict[str, Callable[[float], float]] = {
    "rcp": lambda x: 1 / x,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "ex2": lambda x: 2.0**x,
    "lg2": math.log2,
    "sin": math.sin,
    "cos": math.cos,
}
_SMALLEST, _LARGEST = 2.0**-126, 2.0**128
_MOST = 2.0**126
"""Divisors beyond this are scaled first."""


def fold(function: Function) -> Function:
    """The function with what ptxas computes written as constants.

    >>> from fragmenta.ptx import parse
    >>> kernel = parse('''
    ... .version 9.0 .target sm_90a .address_size 64
    ... .entry k(.param .u64 x) {
    ...     .reg .b64 %rd<2>; .reg .f32 %f<5>;
    ...     ld.param.u64 %rd1, [x];
    ...     ld.global.f32 %f1, [%rd1];
    ...     mov.f32 %f2, 0f42C00000;
    ...     div.full.f32 %f3, %f1, %f2;
    ...     ex2.approx.f32 %f4, 0f3F9D70A4;
    ...     st.global.v2.f32 [%rd1], {%f3, %f4};
    ... }''').functions["k"]
    >>> [each.mnemonic for each in fold(kernel).instructions][3:5]
    ['mul.f32', 'mov.b32']
    """
    if not any(_approximates(each) for each in function.instructions):
        return function
    known = _constants(function)
    made = tuple(_folded(each, known) for each in function.instructions)
    return replace(function, instructions=made)


def _approximates(instruction: Instruction) -> bool:
    """Whether an instruction is one of those that ptxas may compute."""
    words = instruction.qualifiers
    if not is_calculation(instruction, 2 if instruction.opcode == "div" else 1):
        return False
    if words[-1:] != ("f32",) or not {*words[1:-1]} <= {"ftz"}:
        return False
    if instruction.opcode == "div":
        return words[0] in ("approx", "full")
    return instruction.opcode in _ANSWERS and words[0] == "approx"


def _constants(function: Function) -> Mapping[int, float]:
    """The registers that are assigned once, a constant, and their values."""
    found = constants(function)
    values = {number: _float(value) for number, value in found.items()}
    return {number: value for number, value in values.items() if value is not None}


def _float(operand: Operand) -> float | None:
    """The f32 that a constant has the bits of."""
    if not isinstance(operand, Immediate) or operand.form == "f64":
        return None
    (value,) = struct.unpack("<f", struct.pack("<I", operand.bits & 0xFFFFFFFF))
    return float(value)


def _folded(instruction: Instruction, known: Mapping[int, float]) -> Instruction:
    if not _approximates(instruction):
        return instruction
    goal, *_, last = instruction.operands
    value = known.get(last.number) if isinstance(last, Register) else _float(last)
    if value is None:
        return instruction
    divides = instruction.opcode == "div"
    answer = _nearest("rcp" if divides else instruction.opcode, value)
    if answer is None:
        return instruction
    if not divides:
        return replace(
            instruction, opcode="mov", qualifiers=("b32",), operands=(goal, answer)
        )
    words = tuple(word for word in instruction.qualifiers if word in ("ftz", "f32"))
    operands = (goal, instruction.operands[1], answer)
    return replace(instruction, opcode="mul", qualifiers=words, operands=operands)


def _nearest(opcode: str, value: float) -> Immediate | None:
    """The answer, if it and the value are normal numbers."""
    most = _MOST if opcode == "rcp" else _LARGEST
    if not _SMALLEST <= abs(value) <= most:
        return None
    if value < 0 and opcode in ("sqrt", "rsqrt", "lg2"):
        return None
    if opcode == "ex2" and abs(value) > 200:
        return None
    exact = _ANSWERS[opcode](value)
    if not _SMALLEST <= abs(exact) < _LARGEST * (1 - 2.0**-25):
        return None
    (bits,) = struct.unpack("<I", struct.pack("<f", exact))
    (rounded,) = struct.unpack("<f", struct.pack("<I", bits))
    return Immediate(rounded, "f32", bits)
