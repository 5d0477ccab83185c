"""What is known of registers before a kernel runs: constants, and words of f64."""

from __future__ import annotations

import struct

from fragmenta.base.arrays.once import OncePer
from fragmenta.ptx.checking.register_effects import effects_of, flows, ways, writers
from fragmenta.ptx.dataflow import reached
from fragmenta.ptx.module import (
    Function,
    Immediate,
    Instruction,
    Operand,
    Register,
    Vector,
    type_bits,
)
from fragmenta.values.numerics.code.exact import SUMS

_MAGIC = {"f32": 23, "f64": 52, "f16": 10, "bf16": 7, "f32x2": 23, "f16x2": 10}
"""Bits of fractions: from this power of two up, all numbers are integers."""


@OncePer
def _constants(function: Function) -> dict[int, int]:
    """Registers that only ever hold one constant: its bits."""
    once = {n: at[0] for n, at in writers(function).items() if len(at) == 1}
    made = {n: function.instructions[at] for n, at in once.items()}
    found = {n: _moved(each) for n, each in made.items() if each.guard is None}
    return {number: bits for number, bits in found.items() if bits >= 0}


def _moved(instruction: Instruction) -> int:
    """The bits of the constant that an instruction moves; -1 if it does not."""
    if not instruction.is_move:
        return -1
    goal, source = instruction.operands
    if not isinstance(goal, Register) or not isinstance(source, Immediate):
        return -1
    return immediate(source, instruction.qualifiers[-1])


def immediate(operand: Immediate, kind: str) -> int:
    """The bits of a constant of a type."""
    bits = type_bits(kind)
    if operand.form == "f64" and bits == 32:
        return int.from_bytes(struct.pack("<f", operand.value), "little")
    return operand.bits & (1 << bits) - 1


def constant_of(function: Function, operand: Operand, kind: str) -> float | None:
    """The number that an operand always is; None if that is not known."""
    if isinstance(operand, Immediate):
        bits = immediate(operand, kind)
    elif isinstance(operand, Register):
        bits = _constants(function).get(operand.number, -1)
    else:
        return None
    if bits < 0 or kind not in ("f32", "s32", "u32", "s16", "u16"):
        return None
    size = type_bits(kind) // 8
    form = {"f32": "<f", "s32": "<i", "u32": "<I", "s16": "<h", "u16": "<H"}[kind]
    found: float = struct.unpack(form, bits.to_bytes(8, "little")[:size])[0]
    return found


def rounds_by_magic(function: Function, instruction: Instruction) -> bool:
    """Whether a sum with a large constant is meant to round to an integer.

    So is ``x + 12582912.0``: all f32 from 2**23 to 2**24 are integers.
    """
    if instruction.opcode not in SUMS:
        return False
    kind = next((e for e in instruction.qualifiers if e in _MAGIC), "")
    if not kind:
        return False
    *_, last = instruction.operands
    given = instruction.operands[1:] if instruction.is_sum else (last,)
    return any(_magic(function, each, kind) for each in given)


def _magic(function: Function, operand: Operand, kind: str) -> bool:
    if isinstance(operand, Immediate):
        bits = immediate(operand, kind)
    elif isinstance(operand, Register):
        bits = _constants(function).get(operand.number, -1)
    else:
        return False
    if bits < 0:
        return False
    exponent, fraction, bias, low = {
        "f64": (11, 52, 1023, 64),
        "f16": (5, 10, 15, 16),
        "f16x2": (5, 10, 15, 16),
        "bf16": (8, 7, 127, 16),
    }.get(kind, (8, 23, 127, 32))
    word = bits & (1 << low) - 1
    power = (word >> fraction & (1 << exponent) - 1) - bias
    return power == fraction  # from 2**23 to 2**24


@OncePer
def upper_words(function: Function) -> frozenset[int]:
    """Registers that hold a word of an f64, or are computed from one."""

    def whole(register: Register) -> bool:
        return register.type != "pred"

    both = zip(function.instructions, effects_of(function), strict=True)
    start = [e.number for each, of in both if _unpacks(each) for e in of.writes]
    graph = flows(function, ways(function, _whole, whole))
    return frozenset(reached(start, graph.__getitem__))


def _unpacks(instruction: Instruction) -> bool:
    """Whether it takes an f64 apart."""
    if not instruction.is_move or "b64" not in instruction.qualifiers:
        return False
    goal, source = instruction.operands
    return (
        isinstance(goal, Vector)
        and len(goal.items) == 2
        and isinstance(source, Register)
        and source.type == "f64"
    )


def _whole(instruction: Instruction) -> bool:
    """Whether it computes 32-bit whole numbers."""
    return bool({"b32", "s32", "u32"} & set(instruction.qualifiers)) and not (
        instruction.is_load or instruction.is_conversion
    )
